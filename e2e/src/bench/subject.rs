//! What is measured: Berth, or Kueue's own minimalkueue when the benchmark is given one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::json;

use super::meter::{Requests, Usage, own_requests, total};
use super::plane::Bed;
use crate::control_plane::{create_namespace, token, write_kubeconfig};
use crate::kinds;
use crate::manager::{self, Manager, ManagerOptions};
use crate::observer::Observer;
use crate::process::{Guarded, Launch};

/// Writes must stop for this long at the end of an observed run.
const REST: Duration = Duration::from_secs(2);

const KUEUE_NAMESPACE: &str = "kueue-bench";
const KUEUE_ACCOUNT: &str = "minimalkueue";

/// Which operator.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The shipped binary.
    Berth,
    /// minimalkueue at a path.
    Kueue(PathBuf),
}

/// A running operator.
pub enum Subject {
    /// Berth.
    Berth(Box<Manager>),
    /// Kueue.
    Kueue(Box<Guarded>),
}

/// User names of the operators, whose every request is counted.
pub fn users() -> Vec<String> {
    let user = |namespace: &str, name: &str| format!("system:serviceaccount:{namespace}:{name}");
    vec![user(manager::NAMESPACE, manager::SERVICE_ACCOUNT), user(KUEUE_NAMESPACE, KUEUE_ACCOUNT)]
}

/// Account and rights for minimalkueue, which has no chart of its own.
///
/// # Errors
/// When the server refuses.
pub async fn install_kueue(client: &Client) -> Result<()> {
    create_namespace(client, KUEUE_NAMESPACE, &[]).await?;
    let rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": KUEUE_ACCOUNT, "namespace": KUEUE_NAMESPACE}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "kueue-bench"},
            "subjects": [{"kind": "ServiceAccount", "name": KUEUE_ACCOUNT, "namespace": KUEUE_NAMESPACE}],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}}),
    ] {
        kinds::apply(client, &object).await?;
    }
    Ok(())
}

/// No limit on writes: the API server is to be the limit.
const UNLIMITED: &str =
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nclientConnection:\n  qps: -1\n";

impl Kind {
    /// Name for the report.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Berth => "berth",
            Kind::Kueue(_) => "minimalkueue",
        }
    }

    /// Starts the observer of a run of Berth, where the settings ask for one.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn observer(&self, bed: &Bed, observed: bool) -> Result<Option<Observer>> {
        match self {
            Kind::Berth if observed => Observer::start(bed.client.clone()).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(&self, bed: &Bed) -> Result<Subject> {
        match self {
            Kind::Berth => {
                let options = ManagerOptions { config: Some(UNLIMITED.to_owned()), ..ManagerOptions::default() };
                let manager = Manager::start(&bed.plane, options).await?;
                manager::wait_for_leader(&bed.client).await?;
                Ok(Subject::Berth(Box::new(manager)))
            }
            Kind::Kueue(program) => start_kueue(bed, program).await,
        }
    }
}

async fn start_kueue(bed: &Bed, program: &Path) -> Result<Subject> {
    let path = bed.plane.folder().join("minimalkueue.kubeconfig");
    let token = token(&bed.client, KUEUE_NAMESPACE, KUEUE_ACCOUNT).await?;
    write_kubeconfig(&path, bed.plane.url(), &bed.plane.authority(), KUEUE_ACCOUNT, &json!({"token": token}))?;
    let mut process = Guarded::start(Launch {
        name: "minimalkueue",
        program,
        args: vec!["--kubeconfig".to_owned(), path.display().to_string()],
        env: Vec::new(),
        folder: bed.plane.folder(),
        doomed: None,
        restarts: false,
    })?;
    // It has no readiness endpoint; its caches are filled within moments on an empty cluster.
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if let Some(code) = process.ended() {
            bail!("{} ended with code {code}:\n{}", program.display(), process.tail(20));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Subject::Kueue(Box::new(process)))
}

impl Subject {
    /// What it has used so far.
    ///
    /// # Errors
    /// When it does not run.
    pub fn usage(&self) -> Result<Usage> {
        let pid = match self {
            Subject::Berth(manager) => manager.pid()?,
            Subject::Kueue(process) => process.pid()?,
        };
        Usage::of(pid)
    }

    /// The program's name in its user agent.
    pub fn agent(&self) -> &'static str {
        match self {
            Subject::Berth(_) => "berth",
            Subject::Kueue(_) => "minimalkueue",
        }
    }

    /// Its own count of its requests (Berth only), and how many events it dropped.
    ///
    /// # Errors
    /// When its metrics do not answer.
    pub async fn own_count(&self) -> Result<(Requests, f64)> {
        match self {
            Subject::Berth(manager) => {
                let text = manager.metrics().await?;
                Ok((own_requests(&text), total(&text, "berth_events_dropped_total")))
            }
            Subject::Kueue(_) => Ok((Requests::new(), 0.0)),
        }
    }

    /// How many events it has published or dropped (Berth only).
    ///
    /// # Errors
    /// When its metrics do not answer.
    pub async fn events_handled(&self) -> Result<f64> {
        match self {
            Subject::Berth(manager) => {
                let text = manager.metrics().await?;
                Ok(total(&text, "berth_events_published_total") + total(&text, "berth_events_dropped_total"))
            }
            Subject::Kueue(_) => Ok(0.0),
        }
    }

    /// The end of an observed run: waits until writes have stopped and the books balance, and judges all that the observer has
    /// seen and what Berth believes (R2). Nothing is judged without an observer.
    ///
    /// # Errors
    /// With every broken promise.
    pub async fn judged(&self, observer: Option<Observer>) -> Result<()> {
        let (Some(observer), Subject::Berth(manager)) = (observer, self) else { return Ok(()) };
        observer.conclude(REST).await.context("the promises of the run")?;
        manager.recomputes().await.context("R2")
    }

    /// End of its log.
    pub fn tail(&self) -> String {
        match self {
            Subject::Berth(manager) => manager.log_tail(25),
            Subject::Kueue(process) => process.tail(25),
        }
    }

    /// Starts it anew, with all objects there from the beginning.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(self, bed: &Bed) -> Result<Subject> {
        match self {
            Subject::Berth(mut manager) => {
                // Gives its lease back, so that the next one need not wait for its end.
                manager.terminate(Duration::from_secs(15));
                manager.restart().await.context("restarting berth")?;
                manager::wait_for_leader(&bed.client).await?;
                Ok(Subject::Berth(manager))
            }
            other => Ok(other),
        }
    }

    /// Ends it.
    pub fn stop(self) {
        match self {
            Subject::Berth(mut manager) => manager.terminate(Duration::from_secs(15)),
            Subject::Kueue(mut process) => process.stop(Duration::from_secs(15)),
        }
    }
}
