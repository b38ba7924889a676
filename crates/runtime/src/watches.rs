//! Watches: one task per kind, turning kube's watch events into observations.
//!
//! The objects of a (re)list are told one by one, so that a long list is never held as a whole; its end is told with all
//! their names, so that control sees what vanished meanwhile. A new *epoch* makes every watch start over with a quorum
//! list: that is how a new leader gets a view not older than its claim.

use crate::metrics::Metrics;
use crate::raw::Raw;
use crate::rescue;
use crate::retry::{Retry, is_gone};
use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_api::lean;
use berth_control::event::{Change, JOB_TYPES, JobType, Observation, SharedJob};
use berth_control::write as control;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::ListParams;
use kube::core::{ApiResource, ObjectMeta};
use kube::runtime::watcher as watch;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinSet;

/// Number of watched kinds.
pub const KINDS: usize = 20 + JOB_TYPES.len();

/// Objects per page of a list.
const PAGE: u32 = 500;

/// Pause between two looks for a kind that is not served.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(30);

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

/// Turns changes of texts into observations of one kind: all that differs between the watches.
type Decode = Arc<dyn Fn(Change<Raw>) -> Result<Observation, Undecodable> + Send + Sync>;

/// An object that does not decode.
struct Undecodable {
    error: String,
    /// What is told of it all the same.
    remains: Option<Observation>,
}

/// A kind: where it is found and how it is decoded.
#[derive(Clone)]
struct Kind {
    resource: ApiResource,
    decode: Decode,
    /// Berth does without it where the cluster does not serve this kind: itself, or the one that it is made for.
    needs: Option<ApiResource>,
    /// What is told of whether that is served.
    tells: Option<fn(bool) -> Observation>,
    /// It is watched only where the configuration names this kind.
    integration: Option<control::Kind>,
    /// Only objects with this label are watched.
    selector: Option<String>,
}

impl Kind {
    /// Jobs of that kind.
    fn of_jobs(job: JobType) -> Self {
        let info = job.info();
        let resource = ApiResource {
            group: info.group.to_owned(),
            version: info.version.to_owned(),
            api_version: info.api_version.to_owned(),
            kind: info.kind.to_owned(),
            plural: info.plural.to_owned(),
        };
        let wrap = move |change| Observation::Job(job, change);
        let kind = Self {
            resource,
            decode: Arc::new(move |change| decode(change, |text| read_job(job, text), wrap, |_| None)),
            needs: None,
            tells: None,
            integration: None,
            selector: None,
        };
        if info.built_in { kind } else { kind.optional() }
    }

    fn optional(self) -> Self {
        Self { needs: Some(self.resource.clone()), ..self }
    }

    /// Objects of this kind count only together with those of another.
    fn made_for<K: Resource<DynamicType = ()>>(self) -> Self {
        Self { needs: Some(ApiResource::erase::<K>(&())), ..self }
    }

    fn telling(self, tells: fn(bool) -> Observation) -> Self {
        Self { tells: Some(tells), ..self }
    }

    fn labelled(self, selector: impl Into<String>) -> Self {
        Self { selector: Some(selector.into()), ..self }
    }

    fn of(self, kind: control::Kind) -> Self {
        Self { integration: Some(kind), ..self }
    }

    fn is_wanted(&self, kinds: &BTreeSet<control::Kind>) -> bool {
        self.integration.is_none_or(|kind| kinds.contains(&kind))
    }

    async fn is_served(&self, client: &Client) -> bool {
        match &self.needs {
            Some(resource) => served(client, resource).await,
            None => true,
        }
    }
}

/// The kinds, in the order of their numbers.
fn kinds() -> Vec<Kind> {
    macro_rules! kind {
        ($kind:ty, $wrap:path) => {
            kind!($kind, $wrap, |_| None)
        };
        ($kind:ty, $wrap:path, $rescue:expr) => {
            Kind {
                resource: ApiResource::erase::<$kind>(&()),
                decode: Arc::new(|change| decode(change, read::<$kind>, $wrap, $rescue)),
                needs: None,
                tells: None,
                integration: None,
                selector: None,
            }
        };
    }
    let managed = format!("{}=true", api::labels::MANAGED);
    let mut kinds = vec![
        kind!(Namespace, Observation::Namespace),
        kind!(PriorityClass, Observation::PriorityClass),
        kind!(RuntimeClass, Observation::RuntimeClass),
        kind!(LimitRange, Observation::LimitRange),
        kind!(api::WorkloadPriorityClass, Observation::WorkloadPriorityClass),
        kind!(api::ResourceFlavor, Observation::ResourceFlavor),
        kind!(api::Cohort, Observation::Cohort),
        kind!(api::ClusterQueue, Observation::ClusterQueue),
        kind!(api::LocalQueue, Observation::LocalQueue),
        kind!(api::Workload, Observation::Workload, rescue::workload),
        kind!(api::AdmissionCheck, Observation::AdmissionCheck),
        kind!(api::berth::QueuePolicy, Observation::QueuePolicy).optional(),
        kind!(api::berth::CheckpointStore, Observation::CheckpointStore).optional(),
        kind!(api::berth::TrainingJob, Observation::TrainingJob).optional(),
        // Whatever the configuration names now: what was started before holds quota, and waits for our finalizer to go.
        kind!(Pod, Observation::Pod).labelled(&managed),
        kind!(StatefulSet, Observation::StatefulSet).of(control::Kind::StatefulSet).labelled(api::labels::QUEUE_NAME),
        kind!(api::ProvisioningRequestConfig, Observation::ProvisioningRequestConfig).optional(),
        kind!(ProvisioningRequest, Observation::ProvisioningRequest)
            .optional()
            .telling(Observation::ServesProvisioningRequests),
        kind!(PodTemplate, Observation::PodTemplate).made_for::<ProvisioningRequest>().labelled(managed),
        // Those that are not tainted as about to go are forgotten at once.
        kind!(api::node::Node, Observation::Node),
    ];
    kinds.extend(JOB_TYPES.map(Kind::of_jobs));
    kinds
}

/// Decodes a change; of a whole list, what does not decode and cannot be rescued is left out.
fn decode<T>(
    change: Change<Raw>,
    read: impl Fn(&str) -> serde_json::Result<T>,
    wrap: impl Fn(Change<T>) -> Observation,
    rescue: impl Fn(&str) -> Option<T>,
) -> Result<Observation, Undecodable> {
    let one = |raw: &Raw| read(raw.text()).map_err(|error| error.to_string());
    Ok(wrap(match change {
        Change::Apply(raw) => Change::Apply(one(&raw).map_err(|error| Undecodable {
            error,
            remains: rescue(raw.text()).map(|object| wrap(Change::Apply(object))),
        })?),
        Change::Delete(raw) => Change::Delete(one(&raw).map_err(|error| Undecodable { error, remains: None })?),
        Change::Only(names) => Change::Only(names),
        Change::Reset(list) => {
            Change::Reset(list.iter().filter_map(|raw| one(raw).ok().or_else(|| rescue(raw.text()))).collect())
        }
    }))
}

fn read<K: Resource + DeserializeOwned>(text: &str) -> serde_json::Result<Box<K>> {
    let mut object = lean::decode::<K>(text)?;
    slim(object.meta_mut());
    Ok(object)
}

fn read_job(kind: JobType, text: &str) -> serde_json::Result<SharedJob> {
    let mut job = kind.decode(text)?;
    slim(job.metadata_mut());
    Ok(job.into())
}

/// Somebody beside the loop who wants to know what the watches see; it must not wait for anything.
pub type Tap = Arc<dyn Fn(&Observation) + Send + Sync>;

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
    /// Told first.
    pub tap: Option<Tap>,
    /// The kinds of job that the configuration names: of some, nothing is watched without it.
    pub job_kinds: BTreeSet<control::Kind>,
}

impl Context {
    /// Tells whoever wants to know first, and then the loop; false when that is gone.
    async fn tell(&self, observation: Observation, listed: Option<(usize, u64)>) -> bool {
        if let Some(tap) = &self.tap {
            tap(&observation);
        }
        self.seen.send(Seen { observation, listed }).await.is_ok()
    }
}

/// Starts the watches of all kinds. They end when the set is dropped or aborted.
#[must_use]
pub fn spawn_all(context: &Context) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (index, kind) in kinds().into_iter().enumerate() {
        tasks.spawn(follow(context.clone(), index, kind));
    }
    tasks
}

/// Lists every kind once, for a comparison with what the watches built up.
///
/// # Errors
/// When a list fails; objects that do not decode are left out as the watches leave them out.
pub async fn list_all(client: &Client, job_kinds: &BTreeSet<control::Kind>) -> kube::Result<Vec<Observation>> {
    let mut all = Vec::new();
    for kind in kinds().into_iter().filter(|kind| kind.is_wanted(job_kinds)) {
        let served = kind.is_served(client).await;
        all.extend(kind.tells.map(|tells| tells(served)));
        if !served {
            continue;
        }
        // A decoding error of a whole list cannot be: bad objects are left out one by one.
        all.extend((kind.decode)(Change::Reset(list(client, &kind).await?)).ok());
    }
    Ok(all)
}

/// Whether the cluster knows a kind. What cannot be found out counts as known: its watch says what is wrong.
async fn served(client: &Client, resource: &ApiResource) -> bool {
    let all: Api<Raw> = Api::all_with(client.clone(), resource);
    !matches!(all.list(&ListParams::default().limit(1)).await, Err(kube::Error::Api(status)) if status.code == 404)
}

async fn list(client: &Client, kind: &Kind) -> kube::Result<Vec<Raw>> {
    let objects: Api<Raw> = Api::all_with(client.clone(), &kind.resource);
    let mut all = Vec::new();
    let first = ListParams { label_selector: kind.selector.clone(), ..ListParams::default().limit(PAGE) };
    let mut params = first.clone();
    loop {
        let page = objects.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = first.clone().continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Drops the parts that are as heavy as the rest and that nothing reads.
fn slim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
        // Ours to set: on an object that does decode it would keep its job from being stopped.
        annotations.remove(api::labels::UNREADABLE);
    }
}

/// Follows one kind until the loop is gone.
async fn follow(mut context: Context, index: usize, kind: Kind) {
    let wanted = kind.is_wanted(&context.job_kinds);
    let Kind { resource, decode, tells, selector, .. } = kind.clone();
    let mut missed = false;
    let mut retry = Retry::default();
    loop {
        let epoch = *context.epoch.borrow_and_update();
        if !wanted {
            let Ok(observation) = decode(Change::Only(Vec::new())) else { return };
            if !context.tell(observation, Some((index, epoch))).await || context.epoch.changed().await.is_err() {
                return;
            }
            continue;
        }
        let served = kind.is_served(&context.client).await;
        if let Some(tells) = tells
            && !context.tell(tells(served), None).await
        {
            return;
        }
        if !served {
            if !std::mem::replace(&mut missed, true) {
                tracing::info!(
                    resource = resource.plural,
                    "the cluster does not serve this kind: Berth does without it"
                );
            }
            let Ok(observation) = decode(Change::Only(Vec::new())) else { return };
            if !context.tell(observation, Some((index, epoch))).await {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(NOT_SERVED_PAUSE) => {}
                changed = context.epoch.changed() => if changed.is_err() { return },
            }
            continue;
        }
        // From the start, so that an alert sees the first of them.
        for name in ["berth_undecodable_objects", "berth_watch_errors"] {
            context.metrics.count(name, &[("resource", &resource.plural)], 0);
        }
        let mut follower = Follower {
            plural: &resource.plural,
            decode: Arc::clone(&decode),
            metrics: &context.metrics,
            listed: Vec::new(),
            failing: false,
        };
        // The default list semantic is MostRecent: a quorum read.
        let mut config = watcher::Config::default().page_size(PAGE);
        if let Some(selector) = &selector {
            config = config.labels(selector);
        }
        let mut events = watch(Api::<Raw>::all_with(context.client.clone(), &resource), config).boxed();
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
            let (observation, ends) = match event {
                Some(Ok(event)) => {
                    // A list that is only begun tells nothing.
                    if !matches!(event, Event::Init) {
                        retry.works();
                    }
                    let ends = matches!(event, Event::InitDone);
                    (follower.take(event), ends)
                }
                Some(Err(error)) => {
                    follower.failing &= !retry.began(Instant::now());
                    follower.failed(&error);
                    if kind.needs.is_some() && is_gone(&error) {
                        // Its definition was deleted, and its objects with it: as at the start.
                        break;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(retry.failed(index, &error)) => continue,
                        changed = context.epoch.changed() => {
                            if changed.is_err() {
                                return;
                            }
                            break;
                        }
                    }
                }
                None => break,
            };
            let Some(observation) = observation else { continue };
            if !context.tell(observation, ends.then_some((index, epoch))).await {
                return;
            }
        }
    }
}

/// Turns events into changes and remembers the names of a list.
struct Follower<'a> {
    plural: &'a str,
    decode: Decode,
    metrics: &'a Metrics,
    listed: Vec<(String, String)>,
    failing: bool,
}

impl Follower<'_> {
    fn take(&mut self, event: Event<Raw>) -> Option<Observation> {
        if self.failing && !matches!(event, Event::Init) {
            self.failing = false;
            tracing::info!(resource = self.plural, "watch works again");
        }
        match event {
            Event::Init => {
                self.listed.clear();
                None
            }
            Event::InitApply(object) => {
                // One that does not decode is there all the same: what was known of it holds on.
                self.listed.push((object.namespace().unwrap_or_default(), object.name_any()));
                self.decoded(object)
            }
            Event::InitDone => (self.decode)(Change::Only(std::mem::take(&mut self.listed))).ok(),
            Event::Apply(object) => self.decoded(object),
            // It may have been good when it was last seen: its end must not be missed.
            Event::Delete(object) => {
                let head = object.head();
                (self.decode)(Change::Delete(object)).or_else(|_| (self.decode)(Change::Delete(head))).ok()
            }
        }
    }

    fn decoded(&self, object: Raw) -> Option<Observation> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        match (self.decode)(Change::Apply(object)) {
            Ok(observation) => Some(observation),
            Err(Undecodable { error, remains }) => {
                tracing::error!(
                    resource = self.plural,
                    namespace,
                    name,
                    error,
                    "object does not decode: it is left alone, and keeps what it holds"
                );
                self.metrics.count("berth_undecodable_objects", &[("resource", self.plural)], 1);
                remains
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
