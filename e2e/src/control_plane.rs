//! Starts and stops one control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::binaries::{self, Binaries};
use crate::certificates::Certificates;
use crate::own_folder::OwnFolder;
use crate::plane_args::{GARBAGE, api_server_args, etcd_args};
use crate::process::{Guarded, Launch, free_ports};
use crate::wait;

/// Time limit for the start of all programs of a control plane.
const START_LIMIT: Duration = Duration::from_secs(180);

/// Options in which control planes of different tests differ.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Short name of the control plane, for its temporary folder.
    pub name: String,
    /// Further arguments for kube-apiserver.
    pub api_server_args: Vec<String>,
    /// Further arguments for kube-controller-manager.
    pub controller_manager_args: Vec<String>,
    /// Folders of CRDs, which are applied before the controllers start. The garbage collector looks for new kinds only every 30 s, so objects of
    /// kinds that are added later are not collected for half a minute.
    pub crds: Vec<PathBuf>,
}

impl Options {
    /// Options for a control plane with Berth's CRDs.
    pub fn with_crds(name: &str) -> Options {
        let crds = vec![binaries::repository().join("crds")];
        Options { name: name.to_owned(), crds, ..Options::default() }
    }
}

/// A running control plane. Dropping the control plane stops all of its programs and removes its folder, unless the test failed.
pub struct ControlPlane {
    folder: PathBuf,
    certificates: Certificates,
    url: String,
    client: Client,
    kubeconfig: PathBuf,
    processes: Vec<Guarded>,
    keep: AtomicBool,
}

/// Serial number that distinguishes the folders of the control planes of one process.
static SERIAL: AtomicU32 = AtomicU32::new(0);

impl ControlPlane {
    /// Starts the five programs of the control plane on free ports of 127.0.0.1 and waits until pods can be created.
    ///
    /// # Errors
    /// Fails if the programs cannot be built or a program does not come up; the message has the ends of the logs.
    pub async fn start(options: Options) -> Result<ControlPlane> {
        let binaries = tokio::task::spawn_blocking(binaries::ensure).await??;
        let mut attempt = 1;
        loop {
            match Self::try_start(&binaries, &options).await {
                Ok(plane) => return Ok(plane),
                // Another process may take a port between the kernel's answer that the port is free and the start of the program that uses the port.
                Err(e) if attempt < 3 && format!("{e:#}").contains("address already in use") => attempt += 1,
                Err(e) => return Err(e),
            }
        }
    }

    async fn try_start(binaries: &Binaries, options: &Options) -> Result<ControlPlane> {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = if options.name.is_empty() { "plane" } else { &options.name };
        let folder = std::env::temp_dir().join(format!("berth-e2e-{name}-{}-{serial}", std::process::id()));
        // A killed run may have left a folder with the same name, because a later run may get the same process id.
        let _ = fs::remove_dir_all(&folder);
        let own = OwnFolder::make(folder.clone())?;
        let certificates = Certificates::create(&folder.join("pki"))?;
        let [etcd, peer, api, manager, scheduler] = free_ports()?;
        let url = format!("https://127.0.0.1:{api}");
        let kubeconfig = folder.join("admin.kubeconfig");
        let user = serde_json::json!({
            "client-certificate": certificates.file("admin.crt"),
            "client-key": certificates.file("admin.key"),
        });
        write_kubeconfig(&kubeconfig, &url, &certificates.file("ca.crt"), "admin", &user)?;
        let client = client_from(&kubeconfig).await?;
        // The value `plane` now owns the control plane's folder, and removes the folder when it is dropped.
        let mut plane = ControlPlane {
            folder: own.keep(),
            certificates,
            url,
            client,
            kubeconfig,
            processes: Vec::new(),
            keep: AtomicBool::new(false),
        };
        let begun = plane.start_programs(binaries, options, [etcd, peer, api, manager, scheduler]).await;
        if let Err(e) = begun {
            plane.keep_files();
            let tails: Vec<String> = plane
                .processes
                .iter()
                .map(|p| format!("--- {} ({})\n{}", p.name(), p.log().display(), p.tail(12)))
                .collect();
            return Err(e.context(format!("control plane did not start\n{}", tails.join("\n"))));
        }
        Ok(plane)
    }

    async fn start_programs(&mut self, binaries: &Binaries, options: &Options, ports: [u16; 5]) -> Result<()> {
        let [etcd, peer, api, manager, scheduler] = ports;
        let deadline = Instant::now() + START_LIMIT;
        let data = self.folder.join("etcd");
        let store = format!("http://127.0.0.1:{etcd}");
        self.spawn("etcd", &binaries.etcd(), etcd_args(&data, &store, peer), Some(&data))?;
        let mut args = api_server_args(&self.certificates, &store, api, &self.url);
        args.extend(options.api_server_args.iter().cloned());
        self.spawn("kube-apiserver", &binaries.api_server(), args, None)?;
        self.wait_ready(deadline).await?;
        for folder in &options.crds {
            crate::kinds::apply_crds(&self.client, folder).await?;
        }
        let kubeconfig = self.kubeconfig.display().to_string();
        let mut args = vec![
            format!("--kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={manager}"),
            format!("--root-ca-file={}", self.certificates.file("ca.crt")),
            format!("--service-account-private-key-file={}", self.certificates.file("service-account.key")),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
            "--concurrent-job-syncs=20".to_owned(),
            // Each controller uses its own service account, as in real clusters, because Berth's reviews distinguish controllers from users by the
            // account.
            "--use-service-account-credentials=true".to_owned(),
        ];
        args.extend(options.controller_manager_args.iter().cloned());
        self.spawn("kube-controller-manager", &binaries.controller_manager(), args, None)?;
        args = vec![format!("--config={}", self.scheduler_config(&kubeconfig)?), "--bind-address=127.0.0.1".to_owned()];
        args.push(format!("--secure-port={scheduler}"));
        self.spawn("kube-scheduler", &binaries.scheduler(), args, None)?;
        let stages = binaries::repository().join("e2e/kwok/stages.yaml");
        args = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--config={}", stages.display()),
            "--manage-all-nodes=true".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
        ];
        self.spawn("kwok", &binaries.kwok(), args, None)?;
        self.wait_service_account("default", "default", deadline).await?;
        self.wait_port("kube-scheduler", scheduler, deadline).await
    }

    fn scheduler_config(&self, kubeconfig: &str) -> Result<String> {
        let path = self.folder.join("scheduler.yaml");
        let config = serde_json::json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 500.0, "burst": 1000},
        });
        fs::write(&path, serde_json::to_string(&config)?)?;
        Ok(path.display().to_string())
    }

    fn spawn(&mut self, name: &str, program: &Path, args: Vec<String>, doomed: Option<&Path>) -> Result<()> {
        let process = Guarded::start(Launch {
            name,
            program,
            args,
            env: GARBAGE.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            folder: &self.folder,
            doomed,
            restarts: false,
        })?;
        self.processes.push(process);
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if let Some(code) = process.ended() {
                bail!("{} ended with code {code}:\n{}", process.name(), process.tail(5));
            }
        }
        Ok(())
    }

    async fn wait_ready(&mut self, deadline: Instant) -> Result<()> {
        loop {
            self.check_alive()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let asked = tokio::time::timeout(Duration::from_secs(2), self.client.request_text(request)).await;
            match asked {
                Ok(Ok(text)) if text.trim() == "ok" => return Ok(()),
                other => ensure!(Instant::now() < deadline, "kube-apiserver is not ready: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn wait_service_account(&mut self, namespace: &str, name: &str, deadline: Instant) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        loop {
            self.check_alive()?;
            if matches!(accounts.get_opt(name).await, Ok(Some(_))) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "kube-controller-manager made no service account {namespace}/{name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a program listens on a port. If another process took the port, this wait is the first step that fails, and the control plane starts again
    /// with other ports.
    async fn wait_port(&mut self, name: &str, port: u16, deadline: Instant) -> Result<()> {
        loop {
            self.check_alive()?;
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} does not listen on port {port}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Copies a certificate for 127.0.0.1 and its key into a folder, as `tls.crt` and `tls.key`.
    ///
    /// # Errors
    /// Fails when a file cannot be copied.
    pub fn serving_certificate_into(&self, folder: &Path) -> Result<()> {
        self.certificates.serving_into(folder)
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a kubeconfig file for a user with the name `user` and an administrator's rights; returns its path.
    ///
    /// # Errors
    /// Fails when the kubeconfig file cannot be written.
    pub fn kubeconfig_as(&self, user: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{}.kubeconfig", user.replace(':', "-")));
        let credentials = serde_json::json!({
            "client-certificate": self.certificates.file("admin.crt"),
            "client-key": self.certificates.file("admin.key"),
            "as": user,
            "as-groups": ["system:masters"],
        });
        write_kubeconfig(&path, &self.url, &self.certificates.file("ca.crt"), "acting", &credentials)?;
        Ok(path)
    }

    /// A client for a user with the name `user` and an administrator's rights.
    ///
    /// # Errors
    /// Fails when the kubeconfig file cannot be written or read.
    pub async fn client_as(&self, user: &str) -> Result<Client> {
        client_from(&self.kubeconfig_as(user)?).await
    }

    /// Writes a kubeconfig for a user who has a certificate; returns its path.
    ///
    /// # Errors
    /// Fails when the kubeconfig file cannot be written.
    pub fn kubeconfig_of(&self, user: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{user}.kubeconfig"));
        let credentials = serde_json::json!({
            "client-certificate": self.certificates.file(&format!("{user}.crt")),
            "client-key": self.certificates.file(&format!("{user}.key")),
        });
        write_kubeconfig(&path, &self.url, &self.authority(), user, &credentials)?;
        Ok(path)
    }

    /// An administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Address of the API server, of the form `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The control plane's folder with logs, certificates and the administrator's kubeconfig.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of the certificate of the control plane's certificate authority.
    pub fn authority(&self) -> String {
        self.certificates.file("ca.crt")
    }

    /// Process ids of the programs by name, for measurements.
    ///
    /// # Errors
    /// Fails if a program does not run.
    pub fn pids(&self) -> Result<Vec<(String, u32)>> {
        self.processes.iter().map(|p| Ok((p.name().to_owned(), p.pid()?))).collect()
    }

    /// Pauses (`STOP`) or resumes (`CONT`) a program of the control plane.
    ///
    /// # Errors
    /// Fails if the control plane has no program with the name `name`, or if the program does not run.
    pub fn signal(&self, name: &str, signal: &str) -> Result<()> {
        let process = self.processes.iter().find(|p| p.name() == name).with_context(|| format!("no program {name}"))?;
        process.signal(signal)
    }

    /// A bearer token of a service account, which is valid for a day.
    ///
    /// # Errors
    /// Fails when the account does not exist.
    pub async fn token_for_service_account(&self, namespace: &str, name: &str) -> Result<String> {
        token(&self.client, namespace, name).await
    }

    /// Runs kubectl as administrator and returns its output.
    ///
    /// # Errors
    /// Fails if kubectl is missing or fails; the message has kubectl's output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubectl(&self.kubeconfig, args).await
    }

    /// Keeps the control plane's folder with the logs when the control plane is dropped.
    pub fn keep_files(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    /// Stops all programs and removes the folder, as dropping the control plane does, but the caller can await the end.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            process.kill();
        }
        let _ = fs::remove_dir_all(self.folder.join("etcd"));
        if std::thread::panicking() || self.keep.load(Ordering::Relaxed) {
            eprintln!("control plane: logs kept in {}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Writes a kubeconfig with one cluster, one user and one context.
///
/// # Errors
/// Fails when the kubeconfig file cannot be written.
pub fn write_kubeconfig(
    path: &Path,
    url: &str,
    authority: &str,
    user: &str,
    credentials: &serde_json::Value,
) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "berth-e2e", "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "berth-e2e", "context": {"cluster": "berth-e2e", "user": user}}],
        "current-context": "berth-e2e",
    });
    fs::write(path, serde_json::to_string_pretty(&config)?).with_context(|| format!("writing {}", path.display()))
}

/// A client for one kubeconfig file; the environment variable KUBECONFIG is never read.
///
/// # Errors
/// Fails if the file `kubeconfig` cannot be read or is no kubeconfig.
pub async fn client_from(kubeconfig: &Path) -> Result<Client> {
    let parsed = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    // The API server is on loopback, so a compression of answers would only cost time.
    config.disable_compression = true;
    Ok(Client::try_from(config)?)
}

/// A bearer token of a service account, which is valid for a day.
///
/// # Errors
/// Fails if the account does not exist or the client may not create a token.
pub async fn token(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(86_400), ..Default::default() };
    let request = TokenRequest { spec: Some(spec), ..Default::default() };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("asking for a token of {namespace}/{name}"))?;
    answer.status.and_then(|s| s.token).context("the answer has no token")
}

/// Runs kubectl with one kubeconfig and returns its output.
///
/// # Errors
/// Fails if kubectl is missing or fails; the message has kubectl's output.
pub async fn kubectl(kubeconfig: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(args).env_remove("KUBECONFIG");
    // kubectl caches facts about an API server by its port, and an earlier control plane may have had the same port.
    command.env("KUBECACHEDIR", kubeconfig.with_extension("cache"));
    command.current_dir(binaries::repository()).stdin(std::process::Stdio::null());
    let output: Output = tokio::task::spawn_blocking(move || command.output()).await?.context("running kubectl")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "kubectl {} failed ({}):\n{}{text}",
        args.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Creates a namespace and waits until pods can be created in it.
///
/// # Errors
/// Fails if the API server refuses the namespace, or if no service account appears within the usual time.
pub async fn create_namespace(client: &Client, name: &str, labels: &[(&str, &str)]) -> Result<()> {
    let labels: serde_json::Map<String, serde_json::Value> =
        labels.iter().map(|(k, v)| ((*k).to_owned(), serde_json::Value::from(*v))).collect();
    let object =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    crate::kinds::apply(client, &object).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    wait::until(wait::STEP, &format!("service account default in {name}"), || async {
        Ok(match accounts.get_opt("default").await? {
            Some(_) => wait::Seen::Yes(()),
            None => wait::Seen::NotYet("absent".to_owned()),
        })
    })
    .await
}
