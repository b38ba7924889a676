//! Runs Berth as it ships: the real binary, with a service account that has exactly the chart's rights.

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

/// Namespace of the manager, as in the chart's documentation.
pub const NAMESPACE: &str = "berth-system";
/// Service account of the manager, as in the chart's values.
pub const SERVICE_ACCOUNT: &str = "berth-controller-manager";

/// A started manager has its views within this time, or something is wrong.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// Requests for figures within this time may get the same text.
const SAME_TEXT: Duration = Duration::from_millis(1_100);

/// Time within which Berth's view agrees with fresh lists. A kind that was not served at first is looked for every half minute, and stories
/// that kill Berth may add as much again and more.
const AGREES_WITHIN: Duration = Duration::from_secs(150);

/// Options with which a test starts a manager.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Name of the replica, for its log file.
    pub name: String,
    /// An older binary to be run in place of the shipped one, with those of the flags that it knows.
    pub older: Option<PathBuf>,
    /// Kueue's configuration file, as text.
    pub config: Option<String>,
    /// Address of the API server when it is not the control plane's own, for example a proxy with faults.
    pub url: Option<String>,
    /// The configuration file sets its namespace and its addresses, and not flags.
    pub told_by_file: bool,
    /// Port of its webhooks; `None` switches them off.
    pub webhooks: Option<u16>,
    /// Token by which its figures are read, over TLS as the chart has it; without one they are served to all.
    pub reader: Option<String>,
    /// Further arguments.
    pub args: Vec<String>,
    /// Further environment.
    pub env: Vec<(String, String)>,
    /// True: it is started again when it dies, as a kubelet would.
    pub restarts: bool,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        ManagerOptions {
            name: "berth".to_owned(),
            older: None,
            config: None,
            url: None,
            told_by_file: false,
            webhooks: None,
            reader: None,
            args: Vec::new(),
            env: Vec::new(),
            restarts: false,
        }
    }
}

/// A manager process; it is killed when dropped.
#[derive(Debug)]
pub struct Manager {
    process: Guarded,
    launch: Invocation,
    metrics_port: u16,
    reader: Option<String>,
    /// Time of the last request for its figures.
    asked: Mutex<Option<Instant>>,
    compared: Comparisons,
    health_port: u16,
}

/// Arguments of a start, to repeat it.
#[derive(Clone, Debug)]
struct Invocation {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    folder: PathBuf,
    restarts: bool,
}

/// Creates the namespace, service account, roles and bindings of the manager, from the chart's own rules, and the policy that bounds them.
///
/// # Errors
/// Fails when the API server refuses or the chart's files cannot be read.
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

/// Rules in single namespaces.
const IN_NAMESPACES: &str = "namespace-rules.yaml";

/// The chart's own rules, by concern.
fn concerns(file: &str) -> Result<BTreeMap<String, Value>> {
    let path = repository().join("charts/berth/files").join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// Gives the manager the right to another lease than the chart's by default, as the chart does where its values name one.
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

/// Creates a role for one concern and its binding to the manager, in the cluster or in a namespace.
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
/// Fails when the token cannot be had.
pub async fn kubeconfig(plane: &ControlPlane, url: Option<&str>, path: &Path) -> Result<()> {
    let token = token(&plane.client(), NAMESPACE, SERVICE_ACCOUNT).await?;
    write_kubeconfig(path, url.unwrap_or(plane.url()), &plane.authority(), SERVICE_ACCOUNT, &json!({"token": token}))
}

impl Manager {
    /// Starts a manager on a control plane and waits until it is ready. [`install`] must have been called.
    ///
    /// # Errors
    /// Fails when the binary cannot be built or started, or is not ready in time; the message has the end of its log.
    pub async fn start(plane: &ControlPlane, options: ManagerOptions) -> Result<Manager> {
        let path = plane.folder().join(format!("{}.kubeconfig", options.name));
        kubeconfig(plane, options.url.as_deref(), &path).await?;
        Self::start_with(plane.folder(), &path, options).await
    }

    /// As [`Manager::start`], with an existing kubeconfig and a folder for logs.
    ///
    /// # Errors
    /// Fails as [`Manager::start`] does.
    pub async fn start_with(folder: &Path, kubeconfig: &Path, options: ManagerOptions) -> Result<Manager> {
        let mut manager = Self::launch(folder, kubeconfig, options).await?;
        manager.wait_ready().await?;
        Ok(manager)
    }

    /// Starts a manager without waiting for it, for tests in which it cannot become ready.
    ///
    /// # Errors
    /// Fails when the binary cannot be built or started.
    pub async fn launch(folder: &Path, kubeconfig: &Path, options: ManagerOptions) -> Result<Manager> {
        let program = match &options.older {
            Some(program) => program.clone(),
            None => tokio::task::spawn_blocking(shipped::binary).await??,
        };
        let [metrics_port, health_port] = free_ports()?;
        let (metrics, health) = (format!("127.0.0.1:{metrics_port}"), format!("127.0.0.1:{health_port}"));
        let mut config = options.config;
        let told = if options.told_by_file {
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
            // No proxy stands between the API server and this webhook that would learn of its end late.
            "--webhook-shutdown-delay=0s".to_owned(),
            format!("--metrics-secure={}", options.reader.is_some()),
        ];
        args.extend(told);
        if let Some(text) = &config {
            let path = folder.join(format!("{}-config.yaml", options.name));
            fs::write(&path, text)?;
            args.extend(["--config".to_owned(), path.display().to_string()]);
        }
        args.extend(options.args);
        if options.older.is_some() {
            args = older::known(&program, args)?;
        }
        // For a look inside, for example E2E_BERTH_ARGS=--zap-log-level=debug.
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

    /// Waits until `/readyz` answers 200.
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

    /// Exit code, once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        self.process.ended()
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end and waits, as a rolling update does.
    pub fn terminate(&mut self, grace: Duration) {
        self.process.stop(grace);
    }

    /// Starts it again with the same arguments and waits until it is ready.
    ///
    /// # Errors
    /// Fails as [`Manager::start`] does.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = self.launch.start()?;
        self.wait_ready().await
    }

    /// Sends a signal by its name, for example `KILL`.
    ///
    /// # Errors
    /// Fails if the manager does not run.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// R2: waits until the view that was kept up event by event equals one that is computed from fresh lists.
    ///
    /// # Errors
    /// Fails with the differences by kind, name and field when they stay different, or when the engine's own check finds a
    /// problem.
    pub async fn recomputes(&self) -> Result<()> {
        self.recomputes_in(&Scope::all()).await
    }

    /// As [`Manager::recomputes`], about the objects of one scope: others may change meanwhile.
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

    /// Whether its endpoint for metrics and debugging answers; the endpoint of a manager that a test has killed does not.
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

    /// Stops its clock: the process stands still (SIGSTOP).
    ///
    /// # Errors
    /// Fails if the manager does not run.
    pub fn pause(&self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// Lets it go on (SIGCONT).
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

    /// Port of its metrics endpoint.
    pub fn metrics_port(&self) -> u16 {
        self.metrics_port
    }

    /// The answer of its port of figures.
    async fn get(&self, path: &str) -> Result<(u16, String)> {
        match &self.reader {
            Some(token) => https_get(self.metrics_port, path, Some(token)).await,
            None => http_get(self.metrics_port, path).await,
        }
    }

    /// Answer of its metrics endpoint.
    ///
    /// # Errors
    /// Fails if the manager does not answer with 200.
    pub async fn metrics(&self) -> Result<String> {
        {
            // Requests within a second get the same text: one that follows another too soon gets an old text.
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

    /// Sum of all samples of one metric whose labels contain all of `labels` (as `key="value"`); `None` without samples.
    ///
    /// # Errors
    /// Fails when the endpoint does not answer.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<Option<f64>> {
        Ok(sum_of(&self.metrics().await?, name, labels))
    }
}

/// The sum of the series of a metric that have all of these labels, in the text of [`Manager::metrics`]; `None` where there is no such
/// series.
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

/// Holder of the leader's lease, empty without one.
///
/// # Errors
/// Fails when the API server does not answer.
pub async fn leader(client: &Client) -> Result<String> {
    let leases = kinds::Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
    let found = leases.list(client, NAMESPACE).await?;
    Ok(found.first().map(|l| kinds::text(l, "/spec/holderIdentity").to_owned()).unwrap_or_default())
}

/// Waits until a manager leads.
///
/// # Errors
/// Fails if no manager leads in time.
pub async fn wait_for_leader(client: &Client) -> Result<String> {
    leads_after(client, "", READY_LIMIT).await
}

/// Waits until another manager leads than before.
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
