//! The program that the benchmark measures, which is Berth, or the real Kueue if the benchmark's settings name one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::meter::{Requests, Usage, own_requests, total};
use super::plane::Bed;
use crate::control_plane::{create_namespace, token, write_kubeconfig};
use crate::http::http_get;
use crate::kinds;
use crate::kueue::{Kueue, NAMESPACE as KUEUE_NAMESPACE, Start};
use crate::manager::{self, Manager, ManagerOptions};
use crate::observer::Observer;
use crate::process::{Guarded, Launch, free_ports};

/// Time for which no object may change at the end of an observed run.
const REST: Duration = Duration::from_secs(2);

const KUEUE_ACCOUNT: &str = "kueue-controller-manager";
/// Time limit for a started Kueue to answer its readiness endpoint.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// Time that minimalkueue, which has no readiness endpoint, gets to fill its caches.
const FILLED: Duration = Duration::from_secs(5);

/// The measured operator.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The shipped binary.
    Berth,
    /// A binary of an older Berth, from before the change that is measured.
    Before(PathBuf),
    /// Kueue's program minimalkueue, which does not handle jobs.
    Minimal(Kueue),
    /// Kueue's manager.
    Kueue(Kueue),
}

/// A running operator.
pub enum Subject {
    /// Berth.
    Berth(Box<Manager>),
    /// A program of Kueue's.
    Kueue(Kind, Box<Guarded>),
}

/// User names of the operators; the audit log has every request of these users.
pub fn users() -> Vec<String> {
    let user = |namespace: &str, name: &str| format!("system:serviceaccount:{namespace}:{name}");
    vec![user(manager::NAMESPACE, manager::SERVICE_ACCOUNT), user(KUEUE_NAMESPACE, KUEUE_ACCOUNT)]
}

/// Creates the account and the rights for a program of Kueue's. Kueue's chart is not used, because minimalkueue has no chart.
async fn install_kueue(client: &Client) -> Result<()> {
    create_namespace(client, KUEUE_NAMESPACE, &[]).await?;
    let rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": KUEUE_ACCOUNT, "namespace": KUEUE_NAMESPACE}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "kueue"},
            "subjects": [{"kind": "ServiceAccount", "name": KUEUE_ACCOUNT, "namespace": KUEUE_NAMESPACE}],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}}),
    ] {
        kinds::apply(client, &object).await?;
    }
    Ok(())
}

/// Berth's configuration in the benchmark, without a limit on Berth's requests, so that only the API server limits the measured speed.
const UNLIMITED: &str =
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nclientConnection:\n  qps: -1\n";

/// The configuration of Kueue's manager without a limit on requests, for Jobs alone.
fn unlimited() -> Value {
    json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "clientConnection": {"qps": -1},
        "leaderElection": {"leaderElect": false}, "integrations": {"frameworks": ["batch/job"]}})
}

impl Kind {
    /// Name of the operator in the benchmark's report.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Berth => "berth",
            Kind::Before(_) => "berth, before",
            Kind::Minimal(_) => "minimalkueue",
            Kind::Kueue(_) => "kueue",
        }
    }

    /// Name of the program in its user agent.
    pub fn agent(&self) -> &'static str {
        match self {
            Kind::Berth | Kind::Before(_) => "berth",
            Kind::Minimal(_) => "minimalkueue",
            Kind::Kueue(_) => "kueue",
        }
    }

    /// Name of the operator as it occurs in the names of the benchmark's figures.
    pub fn called(&self) -> &'static str {
        match self {
            Kind::Berth | Kind::Before(_) => "Berth",
            Kind::Minimal(_) | Kind::Kueue(_) => "Kueue",
        }
    }

    /// The Kueue that the program belongs to; `None` for Berth.
    pub fn kueue(&self) -> Option<&Kueue> {
        match self {
            Kind::Berth | Kind::Before(_) => None,
            Kind::Minimal(kueue) | Kind::Kueue(kueue) => Some(kueue),
        }
    }

    /// Creates the operator's account and rights on a control plane.
    ///
    /// # Errors
    /// Fails when the API server refuses an account or a role.
    pub async fn install(&self, client: &Client) -> Result<()> {
        match self {
            Kind::Berth | Kind::Before(_) => manager::install(client).await,
            Kind::Minimal(_) | Kind::Kueue(_) => install_kueue(client).await,
        }
    }

    /// Starts the observer of a run of Berth, if `observed` asks for an observer.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn observer(&self, bed: &Bed, observed: bool) -> Result<Option<Observer>> {
        match self {
            Kind::Berth if observed => Observer::start(bed.client.clone()).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Starts the operator and waits until it is ready.
    ///
    /// # Errors
    /// Fails if the operator does not start.
    pub async fn start(&self, bed: &Bed) -> Result<Subject> {
        match self {
            Kind::Berth => berth(bed, None).await,
            Kind::Before(program) => berth(bed, Some(program.clone())).await,
            Kind::Minimal(kueue) => self.started(minimal(bed, kueue).await?, None).await,
            Kind::Kueue(kueue) => {
                let [webhooks, health] = free_ports()?;
                let kubeconfig = &kubeconfig(bed).await?;
                let start = Start { name: "kueue", config: unlimited(), kubeconfig, webhooks, health };
                self.started(kueue.start(&bed.plane, start)?, Some(health)).await
            }
        }
    }

    /// Waits until a program of Kueue's is ready; returns the running operator.
    async fn started(&self, mut process: Guarded, health: Option<u16>) -> Result<Subject> {
        let begun = Instant::now();
        loop {
            if let Some(code) = process.ended() {
                bail!("{} ended with code {code}:\n{}", self.name(), process.tail(20));
            }
            let ready = match health {
                Some(port) => matches!(http_get(port, "/readyz").await, Ok((200, _))),
                // A program without a readiness endpoint counts as ready after the time `FILLED`, because it fills its caches faster than that.
                None => begun.elapsed() >= FILLED,
            };
            if ready {
                return Ok(Subject::Kueue(self.clone(), Box::new(process)));
            }
            ensure!(begun.elapsed() < READY_LIMIT, "{} is not ready:\n{}", self.name(), process.tail(20));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn berth(bed: &Bed, older: Option<PathBuf>) -> Result<Subject> {
    let options = ManagerOptions { older, config: Some(UNLIMITED.to_owned()), ..ManagerOptions::default() };
    let manager = Manager::start(&bed.plane, options).await?;
    manager::wait_for_leader(&bed.client).await?;
    Ok(Subject::Berth(Box::new(manager)))
}

/// Writes a kubeconfig with the token of Kueue's account; returns its path.
async fn kubeconfig(bed: &Bed) -> Result<PathBuf> {
    let path = bed.plane.folder().join("kueue.kubeconfig");
    let token = token(&bed.client, KUEUE_NAMESPACE, KUEUE_ACCOUNT).await?;
    write_kubeconfig(&path, bed.plane.url(), &bed.plane.authority(), KUEUE_ACCOUNT, &json!({"token": token}))?;
    Ok(path)
}

async fn minimal(bed: &Bed, kueue: &Kueue) -> Result<Guarded> {
    Guarded::start(Launch {
        name: "minimalkueue",
        program: kueue.minimal()?,
        args: vec!["--kubeconfig".to_owned(), kubeconfig(bed).await?.display().to_string()],
        env: Vec::new(),
        folder: bed.plane.folder(),
        doomed: None,
        restarts: false,
    })
}

impl Subject {
    /// CPU and memory that the operator has used so far.
    ///
    /// # Errors
    /// Fails if the operator does not run.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid()?)
    }

    /// The id of the process.
    ///
    /// # Errors
    /// Fails if the operator does not run.
    pub fn pid(&self) -> Result<u32> {
        match self {
            Subject::Berth(manager) => manager.pid(),
            Subject::Kueue(_, process) => process.pid(),
        }
    }

    /// The operator's own count of its requests, and the number of events that it dropped; empty and 0 for Kueue.
    ///
    /// # Errors
    /// Fails if the operator does not serve its metrics.
    pub async fn own_count(&self) -> Result<(Requests, f64)> {
        match self {
            Subject::Berth(manager) => {
                let text = manager.metrics().await?;
                Ok((own_requests(&text), total(&text, "berth_events_dropped_total")))
            }
            Subject::Kueue(..) => Ok((Requests::new(), 0.0)),
        }
    }

    /// Number of events that the operator has published or dropped; 0 for Kueue.
    ///
    /// # Errors
    /// Fails if the operator does not serve its metrics.
    pub async fn events_handled(&self) -> Result<f64> {
        match self {
            Subject::Berth(manager) => {
                let text = manager.metrics().await?;
                Ok(total(&text, "berth_events_published_total") + total(&text, "berth_events_dropped_total"))
            }
            Subject::Kueue(..) => Ok(0.0),
        }
    }

    /// The end of an observed run: waits until writes have stopped and the statuses agree with the Workloads, and judges the observer's history and
    /// Berth's view (invariant R2). Without an observer the function judges nothing.
    ///
    /// # Errors
    /// Fails with every broken invariant.
    pub async fn judged(&self, observer: Option<Observer>) -> Result<()> {
        let (Some(observer), Subject::Berth(manager)) = (observer, self) else { return Ok(()) };
        observer.conclude(REST).await.context("the promises of the run")?;
        manager.recomputes().await.context("R2")
    }

    /// End of the operator's log, for messages.
    pub fn tail(&self) -> String {
        match self {
            Subject::Berth(manager) => manager.log_tail(25),
            Subject::Kueue(_, process) => process.tail(25),
        }
    }

    /// Starts the operator again, while all objects of the run exist.
    ///
    /// # Errors
    /// Fails if the operator does not start.
    pub async fn restart(self, bed: &Bed) -> Result<Subject> {
        match self {
            Subject::Berth(mut manager) => {
                // A terminated Berth gives its lease back, so that the restarted Berth need not wait until the lease expires.
                manager.terminate(Duration::from_secs(15));
                manager.restart().await.context("restarting berth")?;
                manager::wait_for_leader(&bed.client).await?;
                Ok(Subject::Berth(manager))
            }
            Subject::Kueue(kind, mut process) => {
                process.stop(Duration::from_secs(15));
                kind.start(bed).await.with_context(|| format!("restarting {}", kind.name()))
            }
        }
    }

    /// Ends the operator, with 15 seconds to end by itself.
    pub fn stop(self) {
        match self {
            Subject::Berth(mut manager) => manager.terminate(Duration::from_secs(15)),
            Subject::Kueue(_, mut process) => process.stop(Duration::from_secs(15)),
        }
    }
}
