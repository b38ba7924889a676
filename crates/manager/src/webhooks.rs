//! Wiring of the webhook server: its address, its certificates, its facts about the cluster, and its metrics.

use crate::flags::ManagerFlags;
use anyhow::{Context, anyhow};
use berth_configuration::{GoDuration, Loaded, ObjectNames};
use berth_control::cluster_facts;
use berth_jobs::pods::OwningSet;
use berth_jobs::training::Accelerators;
use berth_jobs::{Facts, JobType};
use berth_runtime::access::{Access, Deed, User, Verdict};
use berth_runtime::clients::Clients;
use berth_runtime::metrics::Metrics;
use berth_runtime::server::Missing;
use berth_runtime::watches::ObservationHook;
use berth_webhook::author::{Authors, Leave};
use berth_webhook::certs::keeper::{Keeper, Source};
use berth_webhook::certs::rotate::Policy;
use berth_webhook::certs::served::{self, Served};
use berth_webhook::review::UserInfo;
use berth_webhook::routes::Gates;
use berth_webhook::server::Handler;
use berth_webhook::{ClusterFacts, Meter, ObjectMeta, OwnerReference};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// Pause between two checks whether the webhook server still runs.
const CHECK: Duration = Duration::from_secs(5);

/// The running webhook server, with its facts, its certificates and its thread.
pub(crate) struct Webhooks {
    known: Arc<Known>,
    changed: Arc<Notify>,
    served: Arc<Served>,
    stop: watch::Sender<bool>,
    thread: Arc<JoinHandle<()>>,
    keeper: AbortHandle,
    delay: Duration,
}

impl Webhooks {
    /// Starts the webhook server; `None` if it is switched off. `start` must be called within a tokio runtime, in which the keeper of certificates runs.
    pub(crate) fn start(
        flags: &ManagerFlags,
        loaded: &Loaded,
        config: &kube::Config,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Option<Self>> {
        let wanted = &loaded.webhook;
        let given = flags.webhook_bind_address.as_deref().unwrap_or(&wanted.address);
        let Some(address) = berth_runtime::server::address(given) else { return Ok(None) };
        let length = |flag: &str, text: &str| {
            GoDuration::parse(text).map(GoDuration::length).map_err(|error| anyhow!("{flag}: {error}"))
        };
        let margin = length("--webhook-ca-margin", &flags.webhook_ca_margin)?;
        let delay = length("--webhook-shutdown-delay", &flags.webhook_shutdown_delay)?;
        let listener =
            std::net::TcpListener::bind(&address).with_context(|| format!("webhooks: listening on {address}"))?;
        let known = Arc::new(Known(RwLock::new(cluster_facts::ClusterFacts::new(&loaded.settings))));
        let client =
            Clients::new(config.clone(), env!("CARGO_PKG_VERSION"), metrics).context("webhooks: API client")?.rpc;
        let figures: Arc<dyn Meter> = Arc::new(Figures(Arc::clone(metrics)));
        for reason in ["connections", "handshake", "silent"] {
            metrics.count("berth_webhook_refused", &[("reason", reason)], 0);
        }
        let served = Arc::new(Served::default());
        let changed = Arc::new(Notify::new());
        if let Some(warning) = wanted.missing() {
            tracing::warn!(warning, "configuration");
        }
        let margin = SignedDuration::try_from(margin).context("--webhook-ca-margin")?;
        let source = match &wanted.folder {
            Some(folder) => Source::Folder(folder.into()),
            None => Source::Own {
                secret: flags.object_names.secret().to_owned(),
                policy: Policy::new(names(flags.object_names, &loaded.namespace), margin),
            },
        };
        let keeper = Keeper {
            client: client.clone(),
            namespace: loaded.namespace.clone(),
            service: flags.object_names.service().to_owned(),
            configurations: flags.object_names.configurations(),
            source,
            served: Arc::clone(&served),
            cluster_facts: Arc::clone(&known) as Arc<dyn ClusterFacts>,
            meter: Arc::clone(&figures),
            changed: Arc::clone(&changed),
            converted: berth_webhook::routes::CONVERTED.map(str::to_owned).to_vec(),
        };
        let authors = Arc::new(Asked { access: Access::of_authors(client), here: Handle::current() });
        let cluster_facts = Arc::clone(&known) as Arc<dyn ClusterFacts>;
        let handler = Arc::new(Handler::new(cluster_facts, figures, gates(loaded), authors));
        let (stop, stopped) = watch::channel(false);
        let tls = served.tls().context("webhooks: TLS")?;
        let thread = berth_webhook::server::spawn(listener, tls, handler, stopped).context("webhooks")?;
        let keeper = tokio::spawn(keeper.run()).abort_handle();
        tracing::info!(address, "serving webhooks");
        Ok(Some(Self { known, changed, served, stop, thread: Arc::new(thread), keeper, delay }))
    }

    /// Observer hook that updates the facts of the webhook server from the observations of the watches.
    pub(crate) fn hook(&self) -> ObservationHook {
        let (known, changed) = (Arc::clone(&self.known), Arc::clone(&self.changed));
        Arc::new(move |observation| {
            if cluster_facts::ClusterFacts::concerns(observation)
                && known.0.write().unwrap_or_else(PoisonError::into_inner).observe(observation)
            {
                changed.notify_one();
            }
        })
    }

    /// Reason why reviews cannot arrive, or cannot be answered correctly. Until Namespaces are listed, a pod in a namespace with unknown labels would pass
    /// without its scheduling gate. Only the list of Namespaces is required, because other lists may need the conversion webhook, which a replica serves only
    /// after it is ready.
    pub(crate) fn missing(&self) -> Missing {
        let (served, thread, known) = (Arc::clone(&self.served), Arc::clone(&self.thread), Arc::clone(&self.known));
        Arc::new(move || {
            if thread.is_finished() {
                return Some("the webhooks ended".to_owned());
            }
            let listed = || known.0.read().unwrap_or_else(PoisonError::into_inner).knows_namespaces();
            served.trouble().or_else(|| (!listed()).then(|| "namespaces are not listed yet".to_owned()))
        })
    }

    /// Serves reviews until the shutdown delay since `asked` is over, answers the running requests, and stops the server. The process is not ready from the
    /// time `asked` on, but clients send new connections until they know that.
    pub(crate) async fn stop(self, asked: Option<Instant>) {
        // The keeper of certificates must not write the webhook configurations any more, because the watches have ended and its facts about the cluster become
        // outdated.
        self.keeper.abort();
        let rest = asked.map_or(Duration::ZERO, |asked| self.delay.saturating_sub(asked.elapsed()));
        tokio::time::sleep(rest).await;
        self.stop.send_replace(true);
        // The thread of the webhook server ends by itself after `stop`, at the latest when the server's grace time for running requests is over.
        while !self.thread.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Values of the feature gates that reviews need.
fn gates(loaded: &Loaded) -> Gates {
    Gates {
        partial_admission: loaded.settings.engine.partial_admission,
        priority_boost: loaded.settings.priority_boost,
        concurrent_admission: loaded.webhook.concurrent_admission,
    }
}

/// Returns when the webhook server has ended, which is a fault unless `stop` was called before.
pub(crate) async fn ended(webhooks: Option<&Webhooks>) {
    let Some(webhooks) = webhooks else { return std::future::pending().await };
    while !webhooks.thread.is_finished() {
        tokio::time::sleep(CHECK).await;
    }
}

/// Host names under which clients reach this process: the Service for the API server, the Service for Prometheus, and the local host.
fn names(objects: ObjectNames, namespace: &str) -> Vec<String> {
    let services = [objects.service(), objects.metrics_service()];
    let of = |service: &str| ["svc", "svc.cluster.local"].map(|suffix| format!("{service}.{namespace}.{suffix}"));
    let mut names: Vec<String> = services.into_iter().flat_map(of).collect();
    names.extend(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    names
}

/// The TLS configuration of the metrics server, with the webhooks' certificate if there are webhooks.
pub(crate) fn tls_of_figures(
    webhooks: Option<&Webhooks>,
    objects: ObjectNames,
    loaded: &Loaded,
) -> anyhow::Result<Arc<ServerConfig>> {
    let served = webhooks.map(|webhooks| Arc::clone(&webhooks.served));
    served::tls_of_figures(served, &names(objects, &loaded.namespace), Timestamp::now()).context("metrics")
}

/// Control's facts about the cluster, behind a lock.
struct Known(RwLock<cluster_facts::ClusterFacts>);

impl ClusterFacts for Known {
    fn has_kind(&self, kind: JobType) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).has_kind(kind)
    }

    fn facts(&self, namespace: &str) -> Facts {
        self.0.read().unwrap_or_else(PoisonError::into_inner).facts(namespace)
    }

    fn governs(&self, namespace: &str, job: &ObjectMeta, owner: &OwnerReference) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).governs(namespace, job, owner)
    }

    fn stateful_set(&self, namespace: &str, name: &str) -> Option<OwningSet> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).stateful_set(namespace, name)
    }

    fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).opted_in()
    }

    fn accelerators(&self) -> Accelerators {
        self.0.read().unwrap_or_else(PoisonError::into_inner).accelerators().clone()
    }
}

/// Questions to the API server about the rights of authors, sent from the thread of all other requests.
struct Asked {
    access: Access,
    here: Handle,
}

impl Authors for Asked {
    fn may_create_jobs(&self, user: UserInfo, namespace: String) -> BoxFuture<'static, Leave> {
        let access = self.access.clone();
        let user = User { name: user.username, uid: user.uid, groups: user.groups, extra: user.extra };
        let asked = self.here.spawn(async move {
            let deed = Deed { verb: "create", group: "batch", resource: "jobs", namespace: &namespace };
            access.may(user, deed).await
        });
        Box::pin(async move {
            match asked.await {
                Ok(Verdict::Allowed) => Leave::Given,
                Ok(Verdict::Forbidden(words)) => Leave::Refused(words.to_string()),
                Ok(Verdict::Unanswered(why)) => Leave::Unanswered(why.to_string()),
                Ok(Verdict::Busy | Verdict::Unknown) => Leave::Unanswered("too many others ask".to_owned()),
                Err(error) => Leave::Unanswered(error.to_string()),
            }
        })
    }
}

/// The runtime's registry of metrics.
struct Figures(Arc<Metrics>);

impl Meter for Figures {
    fn answered(&self, endpoint: &'static str, outcome: &'static str, seconds: f64) {
        self.0.observe("berth_webhook_duration_seconds", &[("endpoint", endpoint), ("outcome", outcome)], seconds);
    }

    fn refused(&self, why: &'static str) {
        self.0.count("berth_webhook_refused", &[("reason", why)], 1);
    }

    fn expires(&self, at: i64) {
        // The certificate's expiry may be converted to a float, which represents a number of seconds since 1970 exactly.
        self.0.hold("berth_webhook_certificate_expiry_timestamp_seconds", at as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_configuration::Given;
    use berth_control::event::{Change, Observation};
    use tokio::net::TcpStream;

    #[test]
    fn feature_gates_of_the_configuration_reach_the_webhooks() {
        let read = |gates: &str| {
            let header = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration";
            let given = Given { home: "berth-system".into(), ..Given::default() };
            super::gates(&berth_configuration::load(&format!("{header}\nfeatureGates: {{{gates}}}\n"), &given).unwrap())
        };
        let plain = Gates { partial_admission: true, priority_boost: false, concurrent_admission: false };
        assert_eq!(read(""), plain);
        assert_eq!(read("PartialAdmission: false"), Gates { partial_admission: false, ..plain });
        assert_eq!(read("PriorityBoost: true"), Gates { priority_boost: true, ..plain });
        assert_eq!(read("ConcurrentAdmission: true"), Gates { concurrent_admission: true, ..plain });
    }

    struct Nobody;

    impl Authors for Nobody {
        fn may_create_jobs(&self, _: UserInfo, _: String) -> BoxFuture<'static, Leave> {
            Box::pin(std::future::ready(Leave::Given))
        }
    }

    fn serving(delay: Duration) -> (Webhooks, u16) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let known = Arc::new(Known(RwLock::default()));
        let figures: Arc<dyn Meter> = Arc::new(Figures(Arc::new(Metrics::new("0"))));
        let cluster_facts = Arc::clone(&known) as Arc<dyn ClusterFacts>;
        let handler = Handler::new(cluster_facts, figures, Gates::default(), Arc::new(Nobody));
        let served = Arc::new(Served::default());
        let (stop, stopped) = watch::channel(false);
        let tls = served.tls().unwrap();
        let thread = berth_webhook::server::spawn(listener, tls, Arc::new(handler), stopped).unwrap();
        let keeper = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let changed = Arc::default();
        (Webhooks { known, changed, served, stop, thread: Arc::new(thread), keeper, delay }, port)
    }

    async fn accepts(port: u16) -> bool {
        TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    }

    #[tokio::test]
    async fn webhooks_are_not_ready_before_namespaces_are_listed() {
        let (webhooks, _) = serving(Duration::ZERO);
        let (missing, hook) = (webhooks.missing(), webhooks.hook());
        assert!(missing().is_some_and(|why| why.contains("certificate")));
        webhooks.served.set_trouble(None);
        assert_eq!(missing().as_deref(), Some("namespaces are not listed yet"));
        let seen = serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}})).unwrap();
        hook(&Observation::Namespace(Change::Apply(seen)));
        assert!(missing().is_some(), "there may be more of them");
        // The webhook server counts as ready before LocalQueues are listed, because their list may need the conversion webhook that this replica serves only
        // when it is ready.
        hook(&Observation::Namespace(Change::Only(vec![(String::new(), "n".to_owned())])));
        assert_eq!(missing(), None);
        webhooks.stop(None).await;
    }

    #[tokio::test]
    async fn webhooks_keep_serving_for_the_delay_after_shutdown_signal() {
        let (webhooks, port) = serving(Duration::from_secs(2));
        let asked = Instant::now();
        let during = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            accepts(port).await
        };
        let ((), accepted) = tokio::join!(webhooks.stop(Some(asked)), during);
        assert!(accepted && asked.elapsed() >= Duration::from_secs(2));
        assert!(!accepts(port).await);
    }

    #[tokio::test]
    async fn shutdown_delay_counts_from_signal_and_is_skipped_after_failure() {
        for asked in [Instant::now().checked_sub(Duration::from_secs(120)), None] {
            let (webhooks, port) = serving(Duration::from_secs(60));
            assert!(accepts(port).await);
            let begun = Instant::now();
            webhooks.stop(asked).await;
            assert!(begun.elapsed() < Duration::from_secs(30), "{asked:?}");
            assert!(!accepts(port).await);
        }
    }
}
