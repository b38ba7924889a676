//! Runs the manager of Berth as it ships: the real binary, with a service account that has exactly the chart's rights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::admission_policy;
use crate::binaries::repository;
use crate::control_plane::{ControlPlane, create_namespace, token, write_kubeconfig};
use crate::http::{http_get, https_get};
use crate::kinds;
use crate::observer::Scope;
use crate::older;
use crate::process::{Guarded, Launch, free_ports};
use crate::recompute::{self, Comparisons};
use crate::shipped;
use crate::wait::{self, Seen};

/// Namespace of the manager, as the chart's documentation names it.
pub const NAMESPACE: &str = "berth-system";
/// Service account of the manager, as the chart's values name it.
pub const SERVICE_ACCOUNT: &str = "berth-controller-manager";

/// Time limit for a started manager to become ready, that is, to have listed all objects.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// Time within which a manager may answer two requests for its metrics with the same text.
const SAME_TEXT: Duration = Duration::from_millis(1_100);

/// Time limit for Berth's view to agree with fresh lists. Berth looks only every half minute for a kind that the API server did not serve at first,
/// and tests that kill Berth may add that time again and more.
const AGREES_WITHIN: Duration = Duration::from_secs(150);

/// Options with which a test starts a manager.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Name of the manager's replica, after which its log file is called.
    pub name: String,
    /// Path of an older Berth, which is run in place of the shipped binary, with only the flags that the older Berth knows.
    pub older: Option<PathBuf>,
    /// Configuration file of the manager in Kueue's format, as text.
    pub config: Option<String>,
    /// Address of the API server if the manager does not use the control plane's own address, for example the address of a proxy with faults.
    pub url: Option<String>,
    /// True if the configuration file sets the manager's namespace and addresses, in place of flags.
    pub configured_by_file: bool,
    /// Port of the manager's webhooks; `None` switches the webhooks off.
    pub webhooks: Option<u16>,
    /// Token with which the test reads the manager's metrics, over TLS as the chart serves them; if `None`, the manager serves the metrics without
    /// TLS to every client.
    pub reader: Option<String>,
    /// Further arguments of the manager.
    pub args: Vec<String>,
    /// Further environment variables of the manager.
    pub env: Vec<(String, String)>,
    /// True if the manager is started again after it has died, as a kubelet would do.
    pub restarts: bool,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        ManagerOptions {
            name: "berth".to_owned(),
            older: None,
            config: None,
            url: None,
            configured_by_file: false,
            webhooks: None,
            reader: None,
            args: Vec::new(),
            env: Vec::new(),
            restarts: false,
        }
    }
}

/// A running manager; the process is killed when the value is dropped.
#[derive(Debug)]
pub struct Manager {
    process: Guarded,
    launch: Invocation,
    metrics_port: u16,
    reader: Option<String>,
    /// Time of the last request for the manager's metrics.
    asked: Mutex<Option<Instant>>,
    compared: Comparisons,
    health_port: u16,
}

/// Arguments with which a manager was started, to start it again.
#[derive(Clone, Debug)]
struct Invocation {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    folder: PathBuf,
    restarts: bool,
}

/// Creates the manager's namespace, service account, roles and bindings from the chart's own rules, and the policy that limits the objects which the
/// service account may create.
///
/// # Errors
/// Fails if the API server refuses an object or the chart's files cannot be read.
pub async fn install(client: &Client) -> Result<()> {
    create_namespace(client, NAMESPACE, &[]).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": NAMESPACE}});
    kinds::apply(client, &account).await?;
    for (file, kind) in [("rules.yaml", "ClusterRole"), (IN_NAMESPACES, "Role")] {
        for (concern, rules) in concerns(file)? {
            grant(client, (kind, NAMESPACE), &concern, &rules).await?;
        }
    }
    admission_policy::install(client).await
}

/// File of the chart with the rights that Berth has in single namespaces.
const IN_NAMESPACES: &str = "namespace-rules.yaml";

/// The rules in a file of the chart, by the concern that needs them.
fn concerns(file: &str) -> Result<BTreeMap<String, Value>> {
    let path = repository().join("charts/berth/files").join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// Gives the manager the right to another lease than the chart's default lease, as the chart does if its values name another lease.
///
/// # Errors
/// Fails as [`install`] does.
pub async fn grant_lease(client: &Client, namespace: &str, name: &str) -> Result<()> {
    create_namespace(client, namespace, &[]).await?;
    let mut rules = concerns(IN_NAMESPACES)?.remove("leader-election").context("rules of the lease")?;
    for names in rules.as_array_mut().into_iter().flatten().filter_map(|rule| rule.get_mut("resourceNames")) {
        *names = json!([name]);
    }
    grant(client, ("Role", namespace), "other-lease", &rules).await
}

/// Creates a role with the rules of one concern and a binding of the role to the manager, in the cluster or in a namespace.
async fn grant(client: &Client, (kind, namespace): (&str, &str), concern: &str, rules: &Value) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let role = format!("berth-{concern}-role");
    let mut objects = [
        json!({"apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": {"name": role}, "rules": rules}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": format!("{kind}Binding"),
            "metadata": {"name": format!("berth-{concern}-rolebinding")},
            "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}],
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": role}}),
    ];
    for object in &mut objects {
        if kind == "Role" {
            object["metadata"]["namespace"] = json!(namespace);
        }
        kinds::apply(client, object).await?;
    }
    Ok(())
}

/// Writes a kubeconfig with the manager's own token.
///
/// # Errors
/// Fails if the API server gives no token.
pub async fn kubeconfig(plane: &ControlPlane, url: Option<&str>, path: &Path) -> Result<()> {
    let token = token(&plane.client(), NAMESPACE, SERVICE_ACCOUNT).await?;
    write_kubeconfig(path, url.unwrap_or(plane.url()), &plane.authority(), SERVICE_ACCOUNT, &json!({"token": token}))
}

impl Manager {
    /// Starts a manager on a control plane and waits until the manager is ready. The caller must have called [`install`] before it starts a manager.
    ///
    /// # Errors
    /// Fails if the binary cannot be built or started, or if the manager is not ready in time; the message has the end of the manager's log.
    pub async fn start(plane: &ControlPlane, options: ManagerOptions) -> Result<Manager> {
        let path = plane.folder().join(format!("{}.kubeconfig", options.name));
        kubeconfig(plane, options.url.as_deref(), &path).await?;
        Self::start_with(plane.folder(), &path, options).await
    }

    /// Starts a manager as [`Manager::start`] does, with an existing kubeconfig and a folder for logs.
    ///
    /// # Errors
    /// Fails as [`Manager::start`] does.
    pub async fn start_with(folder: &Path, kubeconfig: &Path, options: ManagerOptions) -> Result<Manager> {
        let mut manager = Self::launch(folder, kubeconfig, options).await?;
        manager.wait_ready().await?;
        Ok(manager)
    }

    /// Starts a manager and does not wait until it is ready, for tests in which the manager cannot become ready.
    ///
    /// # Errors
    /// Fails if the binary cannot be built or started.
    pub async fn launch(folder: &Path, kubeconfig: &Path, options: ManagerOptions) -> Result<Manager> {
        let program = match &options.older {
            Some(program) => program.clone(),
            None => tokio::task::spawn_blocking(shipped::binary).await??,
        };
        let [metrics_port, health_port] = free_ports()?;
        let (metrics, health) = (format!("127.0.0.1:{metrics_port}"), format!("127.0.0.1:{health_port}"));
        let mut config = options.config;
        let reported = if options.configured_by_file {
            let more = format!(
                "namespace: {NAMESPACE}\nmetrics: {{bindAddress: '{metrics}'}}\nhealth: {{healthProbeBindAddress: '{health}'}}\n"
            );
            config.get_or_insert_default().push_str(&more);
            Vec::new()
        } else {
            let flags =
                [("namespace", NAMESPACE), ("metrics-bind-address", &*metrics), ("health-probe-bind-address", &health)];
            flags.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]).collect()
        };
        let mut args = vec![
            "manager".to_owned(),
            "--kubeconfig".to_owned(),
            kubeconfig.display().to_string(),
            "--webhook-bind-address".to_owned(),
            options.webhooks.map_or_else(|| "0".to_owned(), |port| format!("127.0.0.1:{port}")),
            // Berth's webhook server ends without a delay: the API server calls it directly, and not through a Service whose endpoints change late.
            "--webhook-shutdown-delay=0s".to_owned(),
            format!("--metrics-secure={}", options.reader.is_some()),
        ];
        args.extend(reported);
        if let Some(text) = &config {
            let path = folder.join(format!("{}-config.yaml", options.name));
            fs::write(&path, text)?;
            args.extend(["--config".to_owned(), path.display().to_string()]);
        }
        args.extend(options.args);
        if options.older.is_some() {
            args = older::known(&program, args)?;
        }
        // Additional arguments for a developer who looks into a run, for example E2E_BERTH_ARGS=--zap-log-level=debug.
        args.extend(std::env::var("E2E_BERTH_ARGS").unwrap_or_default().split_whitespace().map(str::to_owned));
        let launch = Invocation {
            name: options.name,
            program,
            args,
            env: options.env,
            folder: folder.to_path_buf(),
            restarts: options.restarts,
        };
        let process = launch.start()?;
        Ok(Manager {
            process,
            launch,
            metrics_port,
            reader: options.reader,
            asked: Mutex::default(),
            compared: Comparisons::default(),
            health_port,
        })
    }

    /// Waits until the manager's `/readyz` answers 200.
    ///
    /// # Errors
    /// Fails if the manager has ended, or is not ready in time.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let deadline = std::time::Instant::now() + READY_LIMIT;
        loop {
            if let Some(code) = self.process.ended() {
                return Err(anyhow!("{} ended with code {code}:\n{}", self.launch.name, self.log_tail(20)));
            }
            let answer = http_get(self.health_port, "/readyz").await;
            if matches!(answer, Ok((200, _))) {
                return Ok(());
            }
            ensure!(
                std::time::Instant::now() < deadline,
                "{} is not ready: /readyz says {answer:?}; log:\n{}",
                self.launch.name,
                self.log_tail(20)
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The present answer of `/readyz`.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        http_get(self.health_port, "/readyz").await
    }

    /// Name of the replica.
    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// Process id.
    ///
    /// # Errors
    /// Fails if the manager does not run.
    pub fn pid(&self) -> Result<u32> {
        self.process.pid()
    }

    /// Exit code of the manager, once the process has ended.
    pub fn ended(&mut self) -> Option<i32> {
        self.process.ended()
    }

    /// Kills the manager at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks the manager to end and waits for its end for at most `grace`, as a rolling update does.
    pub fn terminate(&mut self, grace: Duration) {
        self.process.stop(grace);
    }

    /// Starts the manager again with the same arguments and waits until it is ready.
    ///
    /// # Errors
    /// Fails as [`Manager::start`] does.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = self.launch.start()?;
        self.wait_ready().await
    }

    /// Sends a signal to the manager by the signal's name, for example `KILL`.
    ///
    /// # Errors
    /// Fails if the manager does not run.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// Invariant R2: waits until the view that Berth kept up event by event equals a view that is computed from fresh lists.
    ///
    /// # Errors
    /// Fails with the differences by kind, name and field if the kept view does not come to equal the view from fresh lists, or with the fault that
    /// the engine's own check finds.
    pub async fn recomputes(&self) -> Result<()> {
        self.recomputes_in(&Scope::all()).await
    }

    /// Does what [`Manager::recomputes`] does, for the objects of one scope: objects of other scopes may change meanwhile.
    ///
    /// # Errors
    /// Fails as [`Manager::recomputes`] does.
    pub async fn recomputes_in(&self, scope: &Scope) -> Result<()> {
        wait::until(AGREES_WITHIN, "the view equals one from fresh lists", || async {
            let answer = self.compared.newest(self.get("/debug/recompute")).await?;
            let found = recompute::disagreements(&answer, scope);
            Ok(Seen::when(found.is_empty(), || found.join("; ")))
        })
        .await
    }

    /// Whether the manager's endpoint for metrics and debugging accepts a connection within three seconds; it does not if a test has killed the
    /// manager.
    pub async fn is_there(&self) -> bool {
        let deadline = std::time::Instant::now() + Duration::from_secs(3);
        while std::time::Instant::now() < deadline {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.metrics_port)).await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }

    /// Stops the manager's process (SIGSTOP), so that its clock seems to stand still.
    ///
    /// # Errors
    /// Fails if the manager does not run.
    pub fn pause(&self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// Lets the manager's stopped process go on (SIGCONT).
    ///
    /// # Errors
    /// Fails if the manager does not run.
    pub fn resume(&self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// End of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        self.process.tail(lines)
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Port of the manager's endpoint for metrics and debugging.
    pub fn metrics_port(&self) -> u16 {
        self.metrics_port
    }

    /// The answer of the manager's endpoint for metrics and debugging.
    async fn get(&self, path: &str) -> Result<(u16, String)> {
        match &self.reader {
            Some(token) => https_get(self.metrics_port, path, Some(token)).await,
            None => http_get(self.metrics_port, path).await,
        }
    }

    /// The text of the manager's metrics.
    ///
    /// # Errors
    /// Fails if the manager does not answer with 200.
    pub async fn metrics(&self) -> Result<String> {
        {
            // The manager gives the same text to all requests within a second, so a request that follows another too soon would get an old text.
            let mut last = self.asked.lock().await;
            if let Some(at) = *last {
                tokio::time::sleep_until((at + SAME_TEXT).into()).await;
            }
            *last = Some(Instant::now());
        }
        let (code, text) = self.get("/metrics").await?;
        ensure!(code == 200, "/metrics answered {code}: {text}");
        Ok(text)
    }

    /// Sum of all samples of a metric whose labels contain all of `labels` (as `key="value"`); `None` if there is no sample.
    ///
    /// # Errors
    /// Fails if the manager's endpoint for metrics does not answer.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<Option<f64>> {
        Ok(sum_of(&self.metrics().await?, name, labels))
    }
}

/// The sum of all samples of a metric whose labels contain all of `labels`, in the text of [`Manager::metrics`]; `None` if there is no sample.
pub fn sum_of(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut sum = None;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (metric, rest) = series.split_once('{').unwrap_or((series, ""));
        if metric == name && labels.iter().all(|l| rest.contains(l)) {
            *sum.get_or_insert(0.0) += value.parse::<f64>().unwrap_or(0.0);
        }
    }
    sum
}

impl Invocation {
    fn start(&self) -> Result<Guarded> {
        Guarded::start(Launch {
            name: &self.name,
            program: &self.program,
            args: self.args.clone(),
            env: self.env.clone(),
            folder: &self.folder,
            doomed: None,
            restarts: self.restarts,
        })
    }
}

/// Holder of the leader's lease; empty if there is no lease.
///
/// # Errors
/// Fails when the API server does not answer.
pub async fn leader(client: &Client) -> Result<String> {
    let leases = kinds::Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
    let found = leases.list(client, NAMESPACE).await?;
    Ok(found.first().map(|l| kinds::text(l, "/spec/holderIdentity").to_owned()).unwrap_or_default())
}

/// Waits until a manager leads; returns the holder of the lease.
///
/// # Errors
/// Fails if no manager leads in time.
pub async fn wait_for_leader(client: &Client) -> Result<String> {
    leads_after(client, "", READY_LIMIT).await
}

/// Waits until a manager other than `before` leads; returns the holder of the lease.
///
/// # Errors
/// Fails if no manager leads in time.
pub async fn leads_after(client: &Client, before: &str, limit: Duration) -> Result<String> {
    wait::until(limit, "somebody holds the lease", || async {
        let holder = leader(client).await?;
        let leads = !holder.is_empty() && holder != before;
        Ok(if leads { Seen::Yes(holder) } else { Seen::NotYet(holder) })
    })
    .await
}
