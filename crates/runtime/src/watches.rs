//! Watches: one task per kind, turning kube's watch events into observations.
//!
//! A (re)list arrives as one `Reset` with everything in it, so that control sees what vanished meanwhile. A new *epoch*
//! makes every watch start over with a quorum list: that is how a new leader gets a view not older than its claim.

use crate::guarded::Guarded;
use crate::metrics::Metrics;
use berth_api as api;
use berth_control::event::{Change, Observation};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{LimitRange, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinSet;

/// Number of watched kinds.
pub const KINDS: usize = 11;

/// Objects per page of a list.
const PAGE: u32 = 500;

/// Annotation that repeats the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What a watch tells the loop.
#[derive(Debug)]
pub struct Seen {
    /// The observation.
    pub observation: Observation,
    /// For a complete list: which kind (0 to [`KINDS`]) and the epoch in which it was started.
    pub listed: Option<(usize, u64)>,
}

type Wrap<K> = fn(Change<Box<K>>) -> Observation;

/// What every watch needs.
#[derive(Clone)]
pub struct Context {
    /// Client for watches.
    pub client: Client,
    /// Where observations go.
    pub seen: mpsc::Sender<Seen>,
    /// The epoch; a higher number restarts every watch with a fresh list.
    pub epoch: channel::Receiver<u64>,
    /// Figures.
    pub metrics: Arc<Metrics>,
}

/// Starts the watches of all kinds. They end when the set is dropped or aborted.
#[must_use]
pub fn spawn_all(context: &Context) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    macro_rules! start {
        ($($index:literal => $kind:ty, $wrap:path;)*) => {
            $(tasks.spawn(follow::<$kind>(context.clone(), $index, $wrap));)*
        };
    }
    start! {
        0 => Namespace, Observation::Namespace;
        1 => PriorityClass, Observation::PriorityClass;
        2 => RuntimeClass, Observation::RuntimeClass;
        3 => LimitRange, Observation::LimitRange;
        4 => api::WorkloadPriorityClass, Observation::WorkloadPriorityClass;
        5 => api::ResourceFlavor, Observation::ResourceFlavor;
        6 => api::Cohort, Observation::Cohort;
        7 => api::ClusterQueue, Observation::ClusterQueue;
        8 => api::LocalQueue, Observation::LocalQueue;
        9 => api::Workload, Observation::Workload;
        10 => Job, Observation::Job;
    }
    tasks
}

/// Lists every kind once, for a comparison with what the watches built up.
///
/// # Errors
/// When a list fails; objects that do not decode are left out as the watches leave them out.
pub async fn list_all(client: &Client) -> kube::Result<Vec<Observation>> {
    Ok(vec![
        list::<Namespace>(client, Observation::Namespace).await?,
        list::<PriorityClass>(client, Observation::PriorityClass).await?,
        list::<RuntimeClass>(client, Observation::RuntimeClass).await?,
        list::<LimitRange>(client, Observation::LimitRange).await?,
        list::<api::WorkloadPriorityClass>(client, Observation::WorkloadPriorityClass).await?,
        list::<api::ResourceFlavor>(client, Observation::ResourceFlavor).await?,
        list::<api::Cohort>(client, Observation::Cohort).await?,
        list::<api::ClusterQueue>(client, Observation::ClusterQueue).await?,
        list::<api::LocalQueue>(client, Observation::LocalQueue).await?,
        list::<api::Workload>(client, Observation::Workload).await?,
        list::<Job>(client, Observation::Job).await?,
    ])
}

async fn list<K>(client: &Client, wrap: Wrap<K>) -> kube::Result<Observation>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind: Api<Guarded<K>> = Api::all(client.clone());
    let mut all = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = kind.list(&params).await?;
        all.extend(page.items.into_iter().filter_map(|item| item.object.ok()).map(slim));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(wrap(Change::Reset(all))),
        }
    }
}

/// Drops the parts that are as heavy as the rest and that nothing reads.
fn slim<K: Resource>(mut object: Box<K>) -> Box<K> {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
    object
}

type Events<K> = BoxStream<'static, Result<Event<Guarded<K>>, watcher::Error>>;

fn stream<K>(client: &Client, guarded: bool) -> Events<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    // The default list semantic is MostRecent: a quorum read.
    let config = watcher::Config::default().page_size(PAGE);
    if guarded {
        return watch(Api::<Guarded<K>>::all(client.clone()), config).default_backoff().boxed();
    }
    watch(Api::<K>::all(client.clone()), config)
        .default_backoff()
        .map(|event| {
            event.map(|event| match event {
                Event::Apply(object) => Event::Apply(Guarded::good(object)),
                Event::Delete(object) => Event::Delete(Guarded::good(object)),
                Event::InitApply(object) => Event::InitApply(Guarded::good(object)),
                Event::Init => Event::Init,
                Event::InitDone => Event::InitDone,
            })
        })
        .boxed()
}

/// Follows one kind until the loop is gone.
async fn follow<K>(mut context: Context, index: usize, wrap: Wrap<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let plural = K::plural(&()).into_owned();
    let mut guarded = false;
    loop {
        let epoch = *context.epoch.borrow_and_update();
        let mut follower = Follower { plural: &plural, metrics: &context.metrics, list: Vec::new(), failing: false };
        let mut events = stream::<K>(&context.client, guarded);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                changed = context.epoch.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
            };
            let change = match event {
                Some(Ok(event)) => follower.take(event),
                Some(Err(error)) => {
                    follower.failed(&error);
                    if !guarded && is_decoding(&error) {
                        // From here on one by one: the list starts over, so nothing that was skipped is lost.
                        guarded = true;
                        break;
                    }
                    continue;
                }
                None => break,
            };
            let Some(change) = change else { continue };
            let listed = matches!(change, Change::Reset(_)).then_some((index, epoch));
            if context.seen.send(Seen { observation: wrap(change), listed }).await.is_err() {
                return;
            }
        }
    }
}

/// True when the failure is one object that does not decode.
fn is_decoding(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::SerdeError(_))
        | watcher::Error::WatchStartFailed(kube::Error::SerdeError(_))
        | watcher::Error::WatchFailed(kube::Error::SerdeError(_)) => true,
        // kube reads a line that is no event as a Status, and every JSON object is one without any field. Trying it again
        // without a guard would meet the same line for ever.
        watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 0 && status.reason.is_empty(),
        _ => false,
    }
}

/// Collects a list and turns events into changes.
struct Follower<'a, K> {
    plural: &'a str,
    metrics: &'a Metrics,
    list: Vec<Box<K>>,
    failing: bool,
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Follower<'_, K> {
    fn take(&mut self, event: Event<Guarded<K>>) -> Option<Change<Box<K>>> {
        if self.failing && !matches!(event, Event::Init) {
            self.failing = false;
            tracing::info!(resource = self.plural, "watch works again");
        }
        match event {
            Event::Init => {
                self.list.clear();
                None
            }
            Event::InitApply(object) => {
                let object = self.decoded(object)?;
                self.list.push(object);
                None
            }
            Event::InitDone => Some(Change::Reset(std::mem::take(&mut self.list))),
            Event::Apply(object) => Some(Change::Apply(self.decoded(object)?)),
            // It may have been good when it was last seen: its end must not be missed.
            Event::Delete(object) => Some(Change::Delete(slim(object.ended()?))),
        }
    }

    fn decoded(&self, guarded: Guarded<K>) -> Option<Box<K>> {
        match guarded.object {
            Ok(object) => Some(slim(object)),
            Err(error) => {
                let meta = &guarded.metadata;
                tracing::error!(
                    resource = self.plural,
                    namespace = meta.namespace.as_deref().unwrap_or_default(),
                    name = meta.name.as_deref().unwrap_or_default(),
                    error,
                    "object does not decode and is passed over"
                );
                self.metrics.count("berth_undecodable_objects", &[("resource", self.plural)], 1);
                None
            }
        }
    }

    fn failed(&mut self, error: &watcher::Error) {
        self.metrics.count("berth_watch_errors", &[("resource", self.plural)], 1);
        if self.failing {
            tracing::debug!(resource = self.plural, %error, "watch still fails");
        } else {
            self.failing = true;
            tracing::warn!(resource = self.plural, %error, "watch failed, trying again with back-off");
        }
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
