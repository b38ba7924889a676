//! Watches: one task per kind turns kube's watch events into observations.
//!
//! The objects of a list are passed on one by one, so that a long list is never in memory at once. The observation of a list's end has the names of all objects
//! of the list, so that control learns which objects have vanished. A new *epoch* makes every watch begin again with a quorum list, so that the view of a new
//! leader is not older than the leader's claim of the Lease.

use crate::first_list::{FirstList, reason};
use crate::metrics::Metrics;
use crate::raw::Raw;
use crate::rescue;
use crate::retry::{Retry, is_gone};
use crate::source::Source;
use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_api::lean;
use berth_control::event::{Change, FoundBy, JOB_TYPES, JobType, Observation, SharedJob, Unlisted};
use berth_control::write as control;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::ListParams;
use kube::core::{ApiResource, ObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

mod compare;
mod context;
pub(crate) mod metadata;

pub use compare::list_all;
pub use context::{Context, ObservationHook, Seen, Wanted, room};

/// Number of watched kinds.
pub const KINDS: usize = 23 + JOB_TYPES.len();

/// Pause between two checks whether the API server serves a kind that was missing.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(30);

/// Label that each pod of a StatefulSet has.
const POD_OF_SET: &str = "statefulset.kubernetes.io/pod-name";

/// Annotation in which `kubectl apply` keeps a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Function that turns changes of object texts into observations of one kind.
type Decode = Arc<dyn Fn(Change<Raw>) -> Result<Observation, Undecodable> + Send + Sync>;

/// An object of a watch or list that does not decode.
struct Undecodable {
    error: String,
    /// The observation that is reported in place of the object that does not decode.
    remains: Option<Observation>,
}

/// A watched kind: its resource, and how its objects are decoded.
#[derive(Clone)]
struct Kind {
    resource: ApiResource,
    decode: Decode,
    /// The resource that the cluster must serve for this watch: the watched kind itself, or a kind that the watched kind supports. In a cluster without this
    /// resource, Berth works without the watch.
    needs: Option<ApiResource>,
    /// Makes the observation whether the cluster serves the resource `needs`.
    reports_served: Option<fn(bool) -> Observation>,
    /// The job kind that the configuration must name (`integrations.frameworks`) for this watch.
    integration: Option<control::Kind>,
    /// Label selector of the watch.
    selector: Option<String>,
    /// True if Berth may lead although objects of the watched kind cannot be listed.
    dispensable: bool,
    /// The job kind about whose jobs Berth makes no decisions while objects of the watched kind cannot be listed.
    holds_up: Option<control::Kind>,
    /// True if lists and watches request metadata only.
    metadata_only: bool,
    /// Name of the watch in messages, if this name differs from the resource's name.
    called: Option<&'static str>,
}

impl Kind {
    /// The watch of a job kind.
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
            reports_served: None,
            integration: None,
            selector: None,
            dispensable: false,
            holds_up: None,
            metadata_only: false,
            called: None,
        };
        if info.built_in { kind } else { kind.optional().without(control::Kind::Job(job)) }
    }

    fn optional(self) -> Self {
        Self { needs: Some(self.resource.clone()), ..self }
    }

    /// Marks a watched kind as dispensable: Berth may lead although objects of the kind cannot be listed.
    fn dispensable(self) -> Self {
        Self { dispensable: true, ..self }
    }

    /// Marks a watched kind as dispensable: only jobs of the kind `kind` wait while objects of the watched kind cannot be listed.
    fn without(self, kind: control::Kind) -> Self {
        Self { holds_up: Some(kind), ..self.dispensable() }
    }

    /// The observation that objects of this kind cannot be listed for the reason `why`, or with `None` that they can be listed again.
    fn unlisted(&self, why: Option<String>) -> Observation {
        Observation::Unlisted(Unlisted { resource: self.name().to_owned(), kind: self.holds_up, why })
    }

    /// Name of the watch in messages; two watches of one resource have different names.
    fn name(&self) -> &str {
        self.called.unwrap_or(&self.resource.plural)
    }

    /// Limits the watch to clusters that serve the kind `K`, which objects of the watched kind support.
    fn made_for<K: Resource<DynamicType = ()>>(self) -> Self {
        Self { needs: Some(ApiResource::erase::<K>(&())), ..self }
    }

    fn reporting(self, reports_served: fn(bool) -> Observation) -> Self {
        Self { reports_served: Some(reports_served), ..self }
    }

    fn labelled(self, selector: impl Into<String>) -> Self {
        Self { selector: Some(selector.into()).filter(|selector: &String| !selector.is_empty()), ..self }
    }

    fn named(self, name: &'static str) -> Self {
        Self { called: Some(name), ..self }
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

/// The watched kinds; a kind's index in the list is its number.
fn kinds(wanted: &Wanted) -> Vec<Kind> {
    macro_rules! kind {
        ($kind:ty, $wrap:expr) => {
            kind!($kind, $wrap, |_| None)
        };
        ($kind:ty, $wrap:expr, $rescue:expr) => {
            Kind {
                resource: ApiResource::erase::<$kind>(&()),
                decode: Arc::new(|change| decode(change, read::<$kind>, $wrap, $rescue)),
                needs: None,
                reports_served: None,
                integration: None,
                selector: None,
                dispensable: false,
                holds_up: None,
                metadata_only: false,
                called: None,
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
        // QueuePolicies are not dispensable, because no limit of a policy would apply while Berth does not know the policies.
        kind!(api::berth::QueuePolicy, Observation::QueuePolicy).optional(),
        kind!(api::berth::CheckpointStore, Observation::CheckpointStore).optional().without(control::Kind::TrainingJob),
        kind!(api::berth::TrainingJob, Observation::TrainingJob).optional().without(control::Kind::TrainingJob),
        // The watch of pods shows all managed pods, even if the configuration no longer names pods: a pod that was started earlier holds quota, and waits for
        // the removal of Berth's finalizer.
        kind!(Pod, Observation::Pod).labelled(&managed).without(control::Kind::Pod),
        kind!(StatefulSet, Observation::StatefulSet)
            .of(control::Kind::StatefulSet)
            .labelled(if wanted.without_queue { "" } else { api::labels::QUEUE_NAME })
            .without(control::Kind::StatefulSet),
        kind!(api::ProvisioningRequestConfig, Observation::ProvisioningRequestConfig)
            .optional()
            .without(control::Kind::ProvisioningRequest),
        kind!(ProvisioningRequest, Observation::ProvisioningRequest)
            .optional()
            .reporting(Observation::ServesProvisioningRequests)
            .without(control::Kind::ProvisioningRequest),
        kind!(PodTemplate, Observation::PodTemplate)
            .made_for::<ProvisioningRequest>()
            .labelled(managed)
            .without(control::Kind::ProvisioningRequest),
        // Control keeps only nodes with a taint that announces the node's end, so it forgets other nodes at once.
        kind!(api::node::Node, Observation::Node).dispensable(),
        Kind::of_started_pods(),
        // Unmarked pods with a queue were let in while Berth did not answer. Control drops pods of jobs whose templates name a queue as these pods arrive.
        kind!(Pod, |change| Observation::UnmarkedPod(FoundBy::Queue, change))
            .of(control::Kind::Pod)
            .labelled(format!("{},{}!=true", api::labels::QUEUE_NAME, api::labels::MANAGED))
            .dispensable()
            .named("unmarked pods with a queue"),
        // Pods of a StatefulSet name no queue before a review by Berth's webhook adds the queue's label.
        kind!(Pod, |change| Observation::UnmarkedPod(FoundBy::StatefulSet, change))
            .of(control::Kind::StatefulSet)
            .labelled(format!("{POD_OF_SET},!{},{}!=true", api::labels::QUEUE_NAME, api::labels::MANAGED))
            .dispensable()
            .named("unmarked pods of StatefulSets"),
    ];
    kinds.extend(JOB_TYPES.map(Kind::of_jobs));
    kinds
}

/// Decodes a change. A listed object that does not decode and of which no part is readable is left out. An existing object whose resourceVersion is no number
/// counts as an object that does not decode; the deletion of an object is taken with any resourceVersion.
fn decode<T>(
    change: Change<Raw>,
    read: impl Fn(&str) -> serde_json::Result<T>,
    wrap: impl Fn(Change<T>) -> Observation,
    rescue: impl Fn(&str) -> Option<T>,
) -> Result<Observation, Undecodable> {
    let one = |raw: &Raw| read(raw.text()).map_err(|error| error.to_string());
    let present = |raw: &Raw| raw.version_fault().map_or_else(|| one(raw), Err);
    Ok(wrap(match change {
        Change::Apply(raw) => Change::Apply(present(&raw).map_err(|error| Undecodable {
            error,
            remains: rescue(raw.text()).map(|object| wrap(Change::Apply(object))),
        })?),
        Change::Delete(raw) => Change::Delete(one(&raw).map_err(|error| Undecodable { error, remains: None })?),
        Change::Only(names) => Change::Only(names),
        Change::Reset(list) => {
            Change::Reset(list.iter().filter_map(|raw| present(raw).ok().or_else(|| rescue(raw.text()))).collect())
        }
    }))
}

fn read<K: Resource + DeserializeOwned>(text: &str) -> serde_json::Result<Box<K>> {
    let mut object = lean::decode::<K>(text)?;
    slim(object.meta_mut());
    Ok(object)
}

/// Decodes a job, and removes large metadata that Berth does not read.
pub(crate) fn read_job(kind: JobType, text: &str) -> serde_json::Result<SharedJob> {
    let mut job = kind.decode(text)?;
    slim(job.metadata_mut());
    Ok(job.into())
}

/// Starts the watches of all kinds. The watches end when the returned set of tasks is dropped or aborted.
#[must_use]
pub fn spawn_all(context: &Context) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (index, kind) in kinds(&context.wanted).into_iter().enumerate() {
        tasks.spawn(follow(context.clone(), index, kind));
    }
    tasks
}

/// Whether the API server serves a kind. If the request about the kind fails, the result is true, and the watch of the kind reports the error.
async fn served(client: &Client, resource: &ApiResource) -> bool {
    let all: Api<Raw> = Api::all_with(client.clone(), resource);
    !matches!(all.list(&ListParams::default().limit(1)).await, Err(kube::Error::Api(status)) if status.code == 404)
}

/// Removes large metadata that Berth does not read from an object.
fn slim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
        // Only Berth may set the annotation of unreadable objects: on an object that decodes, the annotation would keep the object's job from being stopped.
        annotations.remove(api::labels::UNREADABLE);
    }
}

/// Lists and watches one kind until the control loop is gone.
async fn follow(mut context: Context, index: usize, kind: Kind) {
    let wanted = kind.is_wanted(&context.wanted.job_kinds);
    let Kind { resource, decode, reports_served, selector, .. } = kind.clone();
    let client = kind.client(&context.client);
    let mut missed = false;
    let mut first = FirstList::default();
    let mut retry = Retry::default();
    loop {
        let epoch = *context.epoch.borrow_and_update();
        first.begin(Instant::now());
        if !wanted {
            let Ok(observation) = decode(Change::Only(Vec::new())) else { return };
            if !context.send(observation, Some((index, epoch))).await || context.epoch.changed().await.is_err() {
                return;
            }
            continue;
        }
        let served = kind.is_served(&context.client).await;
        if let Some(reports_served) = reports_served
            && !context.send(reports_served(served), None).await
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
            if !(context.send(observation, Some((index, epoch))).await && context.listed(&kind, &mut first).await) {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(NOT_SERVED_PAUSE) => {}
                changed = context.epoch.changed() => if changed.is_err() { return },
            }
            continue;
        }
        // The counters of undecodable objects and of watch errors exist from the start with the value 0, so that an alert sees the first error.
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
        let mut source = Source::new(client.clone(), &resource, selector.clone());
        loop {
            let event = tokio::select! {
                event = source.next() => event,
                changed = context.epoch.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    break;
                }
            };
            let (observation, ends, room) = match event {
                Ok(event) => {
                    // The event `Init` at the beginning of a list does not prove that the watch works.
                    if !matches!(event, Event::Init) {
                        retry.works();
                    }
                    let ends = matches!(event, Event::InitDone);
                    let room = context.room_for(&event).await;
                    (follower.take(event), ends, room)
                }
                Err(error) => {
                    follower.failing &= !retry.began(Instant::now());
                    follower.failed(&error);
                    if first.is_awaited() {
                        context.liveness.note_unlisted(kind.name(), reason(&error));
                    }
                    if kind.dispensable && first.failed(&error, Instant::now()) {
                        tracing::error!(resource = kind.name(), %error, "Berth goes on without this kind");
                        if !context.send(kind.unlisted(Some(reason(&error))), Some((index, epoch))).await {
                            return;
                        }
                    }
                    if kind.needs.is_some() && is_gone(&error) {
                        // The CustomResourceDefinition of the kind was deleted with all objects of the kind, so the watch begins as at the start of the
                        // process.
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
            };
            let Some(observation) = observation else { continue };
            if !context.send_with_room(observation, ends.then_some((index, epoch)), room).await {
                return;
            }
            if ends && !context.listed(&kind, &mut first).await {
                return;
            }
        }
    }
}

/// Turns watch events into changes, and collects the names of a list.
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
                // A listed object that does not decode still exists, so its name is in the list's end, and control keeps the object's last known state.
                self.listed.push((object.namespace().unwrap_or_default(), object.name_any()));
                self.decoded(object)
            }
            Event::InitDone => (self.decode)(Change::Only(std::mem::take(&mut self.listed))).ok(),
            Event::Apply(object) => self.decoded(object),
            // A deleted object that does not decode may have decoded earlier, so its deletion is reported with the object's metadata only.
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
