//! Wiring of the runtime: starts every part, waits for the shutdown signal, and stops the parts in order.

use crate::access::Access;
use crate::checkpoints::Stores;
use crate::clients::Clients;
use crate::controller::Controller;
use crate::core_loop::{self, Ports};
use crate::dump;
use crate::elector;
use crate::events::EventSink;
use crate::leadership::Leadership;
use crate::lease_participation::LeaseParticipation;
use crate::liveness::Liveness;
use crate::load::Load;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::rate::{Bucket, Rate};
use crate::server::{self, Context, Fresh, Guard, Missing};
use crate::watches::{self, ObservationHook, Wanted};
use crate::{pool, stored, writer::Writer};
use berth_control::write::Kind;
use futures::FutureExt;
use jiff::Timestamp;
use kube::Config;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Reason why the runtime ended without a shutdown signal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Kubernetes client could not be made.
    #[error("making the API client")]
    Client(#[source] kube::Error),
    /// A server could not listen on its address.
    #[error("{0}")]
    Listen(String),
    /// A part of the runtime ended that must run until the shutdown; the log has the reason.
    #[error("{0} ended unexpectedly")]
    Ended(&'static str),
}

/// Parts that run beside the control loop in this process, such as the webhooks, and the state that these parts share with the loop.
pub struct Beside {
    /// Registry of metrics for all parts of the process.
    pub metrics: Arc<Metrics>,
    /// Observer hook, which receives each observation of the watches before the loop does.
    pub hook: Option<ObservationHook>,
    /// TLS configuration of the metrics server, which then serves only users with permission to get `/metrics`; `None` serves all users without TLS.
    pub metrics_tls: Option<Arc<rustls::ServerConfig>>,
    /// Function that reports why another part of the process, such as the webhooks, is not ready.
    pub missing: Option<Missing>,
    /// The kinds to watch, from the configuration.
    pub wanted: Wanted,
    /// Notified when a user requests a dump of control's view into the log.
    pub dump: Arc<Notify>,
}

/// Largest number of observations that may wait for the control loop. The number is small because each observation has an object in memory, and the watches
/// wait while the queue of observations is full.
const SEEN_QUEUE: usize = 512;
/// Largest number of task outcomes that may wait for the control loop.
const OUTCOME_QUEUE: usize = 1024;
/// Largest number of queries about control's state that may wait for the control loop.
const QUERY_QUEUE: usize = 16;
/// Time for which a shutdown waits for running writes after their time limit.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the runtime. The process does not take part in the election until every object of Kueue's kinds is stored in the version that Berth reads. When
/// `shutdown` is ready, the runtime stops leading, waits for running writes, closes the servers and releases the lease. `make` makes a controller: one for the
/// control loop, and one for each comparison of the view with fresh lists.
///
/// # Errors
/// A server cannot listen, the client cannot be made, or a part ends by itself.
pub async fn run<B: Controller>(
    config: Config,
    options: Options,
    make: impl Fn() -> B + Send + Sync + 'static,
    beside: Beside,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let Beside { metrics, hook, metrics_tls, missing, wanted, dump } = beside;
    let clients = Clients::new(config, &options.version, &metrics).map_err(Error::Client)?;
    let (state, leadership) = Leadership::new(options.write_deadline());
    let identity = elector::identity();
    let liveness = Arc::new(Liveness::default());
    let (seen_in, seen) = mpsc::channel(SEEN_QUEUE);
    let (outcomes_in, outcomes) = mpsc::channel(OUTCOME_QUEUE);
    let (queries_in, queries) = mpsc::channel(QUERY_QUEUE);
    let (writes, writes_out) = mpsc::unbounded_channel();
    let (epochs, epoch) = watch::channel(0);
    let (stop, stopped) = watch::channel(false);

    let make = Arc::new(make);
    let context = Context {
        queries: queries_in,
        metrics: Arc::clone(&metrics),
        liveness: Arc::clone(&liveness),
        fresh: fresh(clients.rpc.clone(), Arc::clone(&make), wanted.clone()),
        missing,
        scrape: Arc::default(),
        comparing: Arc::new(Semaphore::new(1)),
    };
    let guard = match metrics_tls {
        Some(tls) => Guard::Secure { tls, readers: Access::of_bearers(clients.rpc.clone()) },
        None => Guard::Open,
    };
    let mut servers = serve(&options, &context, guard).await?;
    servers.spawn(dump::dump_on_request(dump, context.queries.clone(), dump::log));
    let mut shutdown = std::pin::pin!(shutdown);
    let event_bucket = Bucket::new(Some(options.event_rate), options.event_burst, Instant::now());
    for kind in Kind::jobs().chain([Kind::Workload, Kind::ClusterQueue, Kind::LocalQueue]) {
        metrics.count("berth_writes_refused", &[("kind", kind.name())], 0);
    }
    for kind in Kind::jobs().chain([Kind::TrainingJob]) {
        metrics.count("berth_repeated_starts", &[("kind", kind.name())], 0);
    }
    let stores = Stores::new(clients.rpc.clone(), options.namespace.clone());
    let rate = Rate::new(Bucket::new(options.write_rate, options.write_burst, Instant::now()));
    let writer = Arc::new(Writer::new(clients.rpc.clone(), leadership.clone(), stores, rate, Arc::clone(&metrics)));
    let load = Arc::new(Load::new(Instant::now()));
    let rpc = clients.rpc.clone();
    let events = EventSink::spawn(rpc, identity.clone(), event_bucket, Arc::clone(&load), Arc::clone(&metrics));
    let pool = tokio::spawn(pool::run(writer, writes_out, outcomes_in, options.writes_in_flight, Arc::clone(&load)));
    let ports = Ports {
        seen,
        outcomes,
        queries,
        writes,
        epochs,
        leadership,
        events,
        load,
        metrics: Arc::clone(&metrics),
        liveness: Arc::clone(&liveness),
        stop: stopped,
        elected: options.election.is_some(),
    };
    let mut core = on_own_thread(make(), ports)?;
    let mut watching = watches::spawn_all(&watches::Context {
        client: clients.watch.clone(),
        seen: seen_in,
        epoch,
        metrics: Arc::clone(&metrics),
        liveness: Arc::clone(&liveness),
        hook,
        wanted: wanted.clone(),
        room: watches::room(),
    });
    let mut settled = std::pin::pin!(stored::settled(&clients.rpc, &liveness, stored::AGAIN));
    let mut participation = LeaseParticipation::Waits { identity, state };
    let ended = loop {
        tokio::select! {
            () = &mut shutdown => {
                tracing::info!("shutting down");
                break None;
            }
            _ = &mut core => break Some("the control loop"),
            _ = watching.join_next() => break Some("a watch"),
            Some(_) = servers.join_next() => break Some("a server"),
            () = participation.end() => break Some("the elector"),
            () = &mut settled, if participation.waits() => {}
        }
        participation = participation.begin(&clients.rpc, options.election.as_ref());
    };

    // A shutdown stops decisions first and new writes second; afterwards it waits for running writes, stops the servers, and releases the lease last.
    liveness.stop();
    let lease = participation.resign();
    stop.send_replace(true);
    let patience = options.write_deadline() + GRACE;
    if ended != Some("the control loop") && tokio::time::timeout(patience, &mut core).await.is_err() {
        tracing::error!("writes did not end in time");
    }
    let drained = tokio::time::timeout(GRACE, pool).await.is_ok();
    watching.shutdown().await;
    servers.shutdown().await;
    if let Some(lease) = lease {
        lease.end(drained, GRACE).await;
    }
    ended.map_or(Ok(()), |part| Err(Error::Ended(part)))
}

/// Runs the control loop on a thread of its own, so that a long decision never delays a lease renewal or a write.
fn on_own_thread<B: Controller>(controller: B, ports: Ports) -> Result<oneshot::Receiver<()>, Error> {
    let (done, ended) = oneshot::channel();
    let handle = tokio::runtime::Handle::current();
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            let _done = done;
            handle.block_on(core_loop::run(controller, ports));
        })
        .map_err(|_| Error::Ended("the control thread"))?;
    Ok(ended)
}

async fn serve(options: &Options, context: &Context, guard: Guard) -> Result<JoinSet<Infallible>, Error> {
    let mut servers = JoinSet::new();
    if let Some(address) = &options.metrics_address {
        let listener = server::bind(address).await.map_err(Error::Listen)?;
        servers.spawn(server::serve_metrics(listener, context.clone(), guard));
    }
    if let Some(address) = &options.health_address {
        let listener = server::bind(address).await.map_err(Error::Listen)?;
        let (context, live, ready) = (context.clone(), options.liveness_path.clone(), options.readiness_path.clone());
        servers.spawn(async move { server::serve_health(listener, context, &live, &ready).await });
    }
    Ok(servers)
}

/// Makes the digest of a new controller that has observed only fresh lists, for the comparison with control's view.
fn fresh<B: Controller>(
    client: kube::Client,
    make: Arc<impl Fn() -> B + Send + Sync + 'static>,
    wanted: Wanted,
) -> Fresh {
    Arc::new(move || {
        let (client, make, wanted) = (client.clone(), Arc::clone(&make), wanted.clone());
        async move {
            let lists = watches::list_all(&client, &wanted).await.map_err(|error| error.to_string())?;
            let work = move || {
                let mut controller = make();
                let now = Timestamp::now();
                for list in lists {
                    controller.observe(list, now);
                }
                controller.recompute()
            };
            tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
        }
        .boxed()
    })
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
