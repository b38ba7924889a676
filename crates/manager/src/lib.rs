//! Wiring of the manager: configuration, logging, signals, and the running parts. The crate `berth-manager` has no other logic.
//!
//! The manager decides nothing about jobs. Decisions are in `berth-control`, and input and output are in `berth-runtime`. [`run`] is the entry point.

mod flags;
mod logging;
mod webhooks;

pub use flags::ManagerFlags;

use anyhow::{Context, anyhow};
use berth_configuration::{Addresses, Given, Loaded, gates};
use berth_control::Control;
use berth_runtime::metrics::Metrics;
use berth_runtime::watches::Wanted;
use berth_runtime::{Beside, Election, Options, server};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use webhooks::Webhooks;

/// Longest wait for blocking calls after all other parts have ended.
const PATIENCE: Duration = Duration::from_secs(1);
/// File with the namespace of the service account.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Runs the manager until a signal ends it.
///
/// # Errors
/// A flag or the configuration file is invalid, or an address or the API server cannot be used; the error is one message for the user.
pub fn run(flags: &ManagerFlags) -> anyhow::Result<()> {
    // The crypto provider of rustls is set explicitly, because rustls could not choose one if two were linked.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("a crypto provider was installed before the manager");
    }
    logging::start(&flags.zap_log_level)?;
    for warning in flags.zap.warnings() {
        tracing::warn!(warning, "flags");
    }
    let loaded = configuration(flags)?;
    for warning in &loaded.warnings {
        tracing::warn!(warning, "configuration");
    }
    let options = options(flags, &loaded);
    tracing::info!(version = options.version, namespace = loaded.namespace, "starting");
    // One thread does all I/O, beside the thread of control. With more threads, passing work between threads would cost more than the threads save.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime =
        berth_runtime::throttle::moderate(&mut builder).enable_all().build().context("starting the runtime")?;
    completed(runtime, async {
        let dump = dump_requests()?;
        let config = client_config(flags).await?;
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let shutdown = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let settings = loaded.settings.clone();
        let metrics = Arc::new(Metrics::new(&options.version));
        let webhooks = Webhooks::start(flags, &loaded, &config, &metrics)?;
        let (hook, missing) = webhooks.as_ref().map(|webhooks| (webhooks.hook(), webhooks.missing())).unzip();
        let secure = flags.metrics_secure.unwrap_or(true);
        let metrics_tls =
            secure.then(|| webhooks::tls_of_figures(webhooks.as_ref(), flags.object_names, &loaded)).transpose()?;
        let wanted =
            Wanted { job_kinds: settings.job_kinds.clone(), without_queue: settings.manage_jobs_without_queue_name };
        let beside = Beside { metrics, hook, metrics_tls, missing, wanted, dump };
        let asked = OnceCell::new();
        let shutdown = async {
            tokio::select! {
                () = shutdown => {
                    let _ = asked.set(Instant::now());
                }
                () = webhooks::ended(webhooks.as_ref()) => tracing::error!("the webhooks ended unexpectedly"),
            }
        };
        let done = berth_runtime::run(config, options, move || Control::new(settings.clone()), beside, shutdown).await;
        if let Some(webhooks) = webhooks {
            webhooks.stop(asked.get().copied()).await;
        }
        done?;
        Ok(())
    })
}

/// A notification for each SIGUSR2, on which the manager dumps its state into the log, as Kueue's manager does.
fn dump_requests() -> anyhow::Result<Arc<Notify>> {
    let mut signals = signal(SignalKind::user_defined2()).context("listening for SIGUSR2")?;
    let dump = Arc::new(Notify::new());
    let notified = Arc::clone(&dump);
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            notified.notify_one();
        }
    });
    Ok(dump)
}

/// Runs `work` to its end, and afterwards waits only shortly for blocking calls, because a hanging call on a folder would keep the process alive.
fn completed<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(PATIENCE);
    done
}

fn configuration(flags: &ManagerFlags) -> anyhow::Result<Loaded> {
    let text = match &flags.config {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?,
        None => String::new(),
    };
    let gates = flags.feature_gates.as_deref().map(gates::parse_flag).transpose();
    let given = Given {
        namespace: flags.namespace.clone(),
        home: std::fs::read_to_string(NAMESPACE_FILE)
            .ok()
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "kueue-system".to_owned()),
        leader_elect: flags.leader_elect,
        lease_namespace: flags.leader_elect_resource_namespace.clone(),
        lease_name: flags.leader_elect_resource_name.clone(),
        addresses: Addresses {
            metrics: flags.metrics_bind_address.clone(),
            health: flags.health_probe_bind_address.clone(),
            webhook: flags.webhook_bind_address.clone(),
        },
        feature_gates: gates.map_err(|error| anyhow!("--feature-gates: {error}"))?,
        accelerators: flags.accelerators.accelerators().map_err(anyhow::Error::msg)?,
        reclaim_taints: flags.reclaim_taints().map_err(anyhow::Error::msg)?,
        names: flags.object_names,
    };
    berth_configuration::load(&text, &given).map_err(|error| match &flags.config {
        Some(path) => anyhow!("{}: {error}", path.display()),
        None => anyhow!(error),
    })
}

fn options(flags: &ManagerFlags, loaded: &Loaded) -> Options {
    let address = |flag: &Option<String>, file: &str| server::address(flag.as_deref().unwrap_or(file));
    Options {
        election: loaded.election.clone().map(election),
        metrics_address: address(&flags.metrics_bind_address, &loaded.metrics_address),
        health_address: address(&flags.health_probe_bind_address, &loaded.health_address),
        readiness_path: loaded.readiness_path.clone(),
        liveness_path: loaded.liveness_path.clone(),
        write_rate: loaded.qps,
        write_burst: loaded.burst,
        event_rate: 50.0,
        event_burst: 200.0,
        writes_in_flight: 16,
        namespace: Some(loaded.namespace.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Converts the settings of the leader election from the configuration's type to the runtime's type.
fn election(of: berth_configuration::Election) -> Election {
    let berth_configuration::Election { namespace, name, lease_duration, renew_deadline, retry_period, counts_pods } =
        of;
    Election { namespace, name, lease_duration, renew_deadline, retry_period, counts_pods }
}

async fn client_config(flags: &ManagerFlags) -> anyhow::Result<kube::Config> {
    match &flags.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using {}", path.display()))
        }
        None => kube::Config::infer().await.context("finding the API server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_thread_does_not_keep_the_process_from_ending() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let work = async {
            tokio::task::spawn_blocking(move || {
                let _ = begin.send(());
                let _ = ended.recv_timeout(Duration::from_secs(60));
            });
            begun.recv().unwrap();
            7
        };
        let before = Instant::now();
        assert_eq!(completed(runtime, work), 7);
        assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
        drop(end);
    }
}
