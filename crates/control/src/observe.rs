//! Observations change the view, and what follows from the change is mirrored into the engine and marked for decision.

mod pods;
mod queues;

use std::collections::{BTreeMap, BTreeSet};

use berth_api as api;
use berth_api::conditions::types;
use berth_engine::model as engine;
use berth_jobs::{JobState, SharedJob};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::core::{Control, key};
use crate::event::{Change, Observation};
use crate::ladder::Pods;
use crate::view::{Name, WorkloadView, name_of};
use crate::write::{Kind, ObjectKey};

impl Control {
    /// Takes an observation. Older states of a known uid are ignored; order between kinds does not matter.
    pub fn observe(&mut self, observation: Observation, now: Timestamp) {
        match observation {
            Observation::Job(kind, change) => self.observe_jobs(Kind::Job(kind), change, now),
            Observation::Workload(change) => self.observe_workloads(change, now),
            Observation::ClusterQueue(change) => {
                let known = known(&change, self.view.cluster_queues.keys().cloned());
                self.each(change, known, |me, name, object| me.put_cluster_queue(&name.1, object, now));
            }
            Observation::LocalQueue(change) => {
                let known = known(&change, self.view.local_queues.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| me.put_local_queue(&name, object, now));
            }
            Observation::AdmissionCheck(change) => {
                let known = known(&change, self.view.checks.keys().cloned());
                self.each(change, known, |me, name, object| me.put_check(&name.1, object));
            }
            Observation::ServesProvisioningRequests(served) => self.put_served(served),
            Observation::ProvisioningRequestConfig(change) => {
                let known = known(&change, self.view.provisioning.configs.keys().cloned());
                self.each(change, known, |me, name, object| me.put_provisioning_config(&name.1, object));
            }
            Observation::ProvisioningRequest(change) => {
                let known = known(&change, self.view.provisioning.requests.keys().cloned());
                self.each_namespaced(change, known, Self::put_request);
            }
            Observation::PodTemplate(change) => {
                let known = known(&change, self.view.provisioning.templates.keys().cloned());
                self.each_namespaced(change, known, Self::put_template);
            }
            Observation::Cohort(change) => {
                let known = known(&change, self.view.cohorts.keys().cloned());
                self.each(change, known, |me, name, object| me.put_cohort(&name.1, object, now));
            }
            Observation::ResourceFlavor(change) => {
                let known = known(&change, self.view.flavors.keys().cloned());
                self.each(change, known, |me, name, object| me.put_flavor(&name.1, object));
            }
            Observation::WorkloadPriorityClass(change) => {
                let known = known(&change, self.view.workload_priorities.keys().cloned());
                self.each(change, known, |me, name, object| {
                    for workload in me.view.put_workload_priority(&name.1, object.map(|object| object.value)) {
                        me.touch(key(Kind::Workload, &workload));
                    }
                    me.touch_all_jobs();
                });
            }
            Observation::PriorityClass(change) => {
                let known = known(&change, self.view.priorities.keys().cloned());
                self.each(change, known, |me, name, object| {
                    match object {
                        Some(object) => {
                            let default = object.global_default.unwrap_or_default();
                            me.view.priorities.insert(name.1, (object.value.unwrap_or_default(), default))
                        }
                        None => me.view.priorities.remove(&name.1),
                    };
                    me.touch_all_jobs();
                });
            }
            Observation::Namespace(change) => {
                let known = known(&change, self.view.namespaces.keys().cloned());
                self.each(change, known, |me, name, object| {
                    me.put_namespace(&name.1, object.map(|object| object.metadata.labels.unwrap_or_default()));
                });
            }
            Observation::LimitRange(change) => {
                let known = known(&change, self.view.limit_ranges.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| {
                    let place = name.0.clone();
                    match object {
                        Some(object) => me.view.limit_ranges.insert(name, object),
                        None => me.view.limit_ranges.remove(&name),
                    };
                    me.touch_jobs_of(&place);
                    me.reshape(Some(&place));
                });
            }
            Observation::QueuePolicy(change) => {
                let known = known(&change, self.view.policies.keys().cloned());
                self.each(change, known, |me, name, object| me.put_policy(&name.1, object, now));
            }
            Observation::CheckpointStore(change) => {
                let known = known(&change, self.view.stores.keys().cloned());
                self.each(change, known, |me, name, object| me.put_store(&name.1, object));
            }
            Observation::TrainingJob(change) => {
                let known = known(&change, self.view.training.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| me.put_training_job(name, object));
            }
            Observation::Pod(change) => self.observe_pods(change, now),
            Observation::StatefulSet(change) => self.observe_sets(change),
            Observation::Node(change) => {
                let known = self.ladder.reclaims.nodes().cloned().collect();
                self.each(change, known, |me, name, object| me.put_node(&name.1, object.as_deref()));
            }
            Observation::RuntimeClass(change) => {
                let known = known(&change, self.view.overheads.keys().cloned());
                self.each(change, known, |me, name, object| {
                    match object {
                        Some(object) => {
                            let overhead = object.overhead.and_then(|overhead| overhead.pod_fixed).unwrap_or_default();
                            me.view.overheads.insert(name.1, overhead)
                        }
                        None => me.view.overheads.remove(&name.1),
                    };
                    me.reshape(None);
                });
            }
        }
    }

    fn each<T: HasMeta>(&mut self, change: Change<T>, known: Vec<String>, put: impl FnMut(&mut Self, Name, Option<T>)) {
        let known = known.into_iter().map(|name| (String::new(), name)).collect();
        self.each_namespaced(change, known, put);
    }

    /// Applies a change object by object; what a list does not have is gone.
    fn each_namespaced<T: HasMeta>(
        &mut self,
        change: Change<T>,
        known: Vec<Name>,
        mut put: impl FnMut(&mut Self, Name, Option<T>),
    ) {
        match change {
            Change::Apply(object) => put(self, name_of(object.meta()), Some(object)),
            Change::Delete(object) => put(self, name_of(object.meta()), None),
            Change::Only(listed) => {
                let listed: BTreeSet<Name> = listed.into_iter().collect();
                for name in known.into_iter().filter(|name| !listed.contains(name)) {
                    put(self, name, None);
                }
            }
            Change::Reset(objects) => {
                let listed: BTreeSet<Name> = objects.iter().map(|object| name_of(object.meta())).collect();
                for name in known.into_iter().filter(|name| !listed.contains(name)) {
                    put(self, name, None);
                }
                for object in objects {
                    put(self, name_of(object.meta()), Some(object));
                }
            }
        }
    }

    pub(crate) fn engine(&mut self, delta: engine::Delta) {
        // A refusal means the engine does not know the object: nothing is booked for it.
        let _ = self.world.apply(delta);
        self.replan();
    }

    fn put_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        match labels {
            Some(labels) => {
                self.engine(engine::Delta::Namespace(name.to_owned(), labels.clone()));
                if self.view.namespaces.insert(name.to_owned(), labels.clone()).as_ref() != Some(&labels) {
                    self.touch_jobs_of(name);
                }
            }
            None => {
                self.engine(engine::Delta::RemoveNamespace(name.to_owned()));
                self.view.namespaces.remove(name);
            }
        }
    }

    fn observe_jobs(&mut self, kind: Kind, change: Change<SharedJob>, now: Timestamp) {
        let all = self.view.jobs.keys().filter(|key| key.kind == kind);
        let known = known(&change, all.map(|key| (key.namespace.clone(), key.name.clone())));
        self.each_namespaced(change, known, |me, name, object| match object {
            Some(job) => me.put_job(key(kind, &name), now, |older| job.state(older)),
            None => me.drop_job(&key(kind, &name)),
        });
    }

    fn drop_job(&mut self, object: &ObjectKey) {
        // Those it owned are looked at before the name is forgotten.
        self.touch_related(object);
        self.flights.vanished(object);
        self.told.remove(object);
        if let Some(old) = self.view.jobs.remove(object) {
            self.mirror_waiting_of(&old.uid);
            if let Some(owner) = &old.owner {
                self.mirror_waiting_of(&owner.uid);
                // Whoever takes away a Job of a TrainingJob may have taken what the Job needs: it is applied anew before the next.
                self.prepared.remove(&*owner.uid);
            }
            self.at_rest.remove(&old.uid);
            self.rid_of_pods.remove(&old.uid);
            self.ladder.lacking.remove(&old.uid);
            self.ration.forget_ended(&old.uid);
            self.growth.settled.remove(&old.uid);
            self.forget_child(object, &old);
        }
    }

    fn put_job(&mut self, object: ObjectKey, now: Timestamp, read: impl FnOnce(Option<&JobState>) -> JobState) {
        let older = self.view.jobs.get(&object);
        let mut job = read(older);
        if self.passes_over(object.kind, &job) {
            job.shed();
        }
        let version = job.version;
        let appeared = older.is_none_or(|old| old.uid != job.uid);
        match older {
            Some(old) if old.uid == job.uid && old.version > version => return,
            Some(old) if old.uid != job.uid => {
                let gone = old.clone();
                self.touch_related(&object);
                self.flights.vanished(&object);
                self.forget_child(&object, &gone);
                self.view.jobs.remove(&object);
                self.rid_of_pods.remove(&gone.uid);
                self.mirror_waiting_of(&gone.uid);
                if let Some(owner) = &gone.owner {
                    self.mirror_waiting_of(&owner.uid);
                    self.prepared.remove(&*owner.uid);
                }
            }
            _ => {}
        }
        if appeared {
            self.flights.appeared(&object);
        }
        if job.deleting && job.pods_go_first {
            // The garbage collector takes that mark off again when the pods have gone.
            self.rid_of_pods.insert(job.uid.clone());
        }
        if !job.suspended {
            self.at_rest.remove(&job.uid);
        } else if job.at_rest {
            self.at_rest.insert(job.uid.clone());
        }
        let said = |job: &JobState| job.annotation(api::labels::LAST_CHECKPOINT_TIME).map(str::to_owned);
        let saved = self.view.jobs.get(&object).is_some_and(|old| said(old) != said(&job));
        let unsupported = job.unsupported.is_some();
        // Whether, and of how many workers, a TrainingJob may do without some.
        let of_role = |job: &JobState| job.role.as_ref().map(|role| (role.wanted, role.succeeded > 0));
        let scaled = of_role(&job).is_some() && self.view.jobs.get(&object).and_then(of_role) != of_role(&job);
        let training = job.owner.as_ref().filter(|_| scaled).map(|owner| owner.uid.to_string());
        let old = self.view.jobs.get(&object).filter(|old| old.uid == job.uid);
        let before = old.map(Pods::of);
        let moved = old.is_none_or(|old| old.deleting != job.deleting);
        let owner = job.owner.as_ref().map(|owner| owner.uid.to_string());
        let moved = moved.then(|| [Some(job.uid.clone()), owner]);
        let more_ended = old.is_some_and(|old| old.reclaimable != job.reclaimable);
        if job.finished.is_some() || job.suspended {
            self.ration.forget_ended(&job.uid);
        } else if more_ended {
            self.ration.note_ended(&job.uid, now);
        }
        self.note_capacity(&object, &job, before, now);
        self.note_settled(&object, &job);
        self.note_child(&object, &job);
        let owned: Vec<Name> = self.view.workloads.owned_by(&job.uid).map(WorkloadView::key).collect();
        self.view.jobs.insert(object.clone(), job);
        self.view.shed_job(&object);
        self.flights.seen(&object, version);
        self.touch_related(&object);
        for uid in moved.into_iter().flatten().flatten() {
            self.mirror_waiting_of(&uid);
        }
        if let Some(uid) = training {
            self.mirror_owned_by(&uid);
        }
        if unsupported || saved {
            for workload in owned {
                self.mirror(&workload);
            }
        }
    }

    fn observe_workloads(&mut self, change: Change<Box<api::Workload>>, now: Timestamp) {
        let mut known = known(&change, self.view.workloads.keys());
        known.sort_unstable();
        self.each_namespaced(change, known, |me, name, object| match object {
            Some(object) => me.put_workload(*object, now),
            None => me.drop_workload(&name, now),
        });
    }

    fn drop_workload(&mut self, name: &Name, now: Timestamp) {
        let object_key = key(Kind::Workload, name);
        self.touch_related(&object_key);
        self.touch_requests_of(name);
        self.dirty.remove(&object_key);
        self.told.remove(&object_key);
        self.flights.vanished(&object_key);
        if let Some(old) = self.view.workloads.remove(name) {
            self.shapes.release(&old.shape);
            self.engine(engine::Delta::RemoveWorkload(old.uid.clone()));
            self.spare_victims_of(&old.uid);
            self.planned.remove(&old.uid);
            self.evictions.remove(&old.uid);
            self.refused_evictions.remove(&old.uid);
            self.pods_gone.remove(&old.uid);
            self.growth.shrunk.remove(&old.uid);
            self.growth.gives_up.remove(&old.uid);
            self.note_lost_slice(&old, now);
            self.forget_children(&old);
            self.saving.forget(&old.uid);
            self.saving.before.remove(&old.uid);
            self.view.repriced.remove(&old.uid);
            self.ration.forget(&old.uid);
            self.ladder.answers.remove(&old.uid);
            self.ladder.reclaims.forget(&old.uid);
            self.ladder.better.remove(&old.uid);
            self.mark_queues(&old, now);
            if old.group.is_some() {
                self.view.pods.forget_owners(name);
                self.touch_members(name);
            } else if self.view.pods.group(name).is_some() || self.view.sets.of_group(name).is_some() {
                // Its name was taken, so that the group of that name could have none of its own.
                self.touch(key(Kind::PodGroup, name));
            }
        }
    }

    fn put_workload(&mut self, object: api::Workload, now: Timestamp) {
        let new = Box::new(self.slim(object));
        let name = new.key();
        let object_key = key(Kind::Workload, &name);
        let version = new.version();
        match self.view.workloads.get(&name) {
            Some(old) if old.uid == new.uid && old.version() > version => return,
            Some(old) if old.uid != new.uid => self.drop_workload(&name, now),
            _ => {}
        }
        if !new.reserved() {
            self.pods_gone.remove(&new.uid);
            self.growth.shrunk.remove(&new.uid);
            self.saving.forget(&new.uid);
            self.ladder.reclaims.forget(&new.uid);
            self.prepared.remove(new.owner.as_ref().map(|owner| owner.uid.as_str()).unwrap_or_default());
        }
        self.note_idle(&new);
        self.note_resized(&new);
        self.mark_queues(&new, now);
        let old = self.view.put_workload(new);
        let stage = old.as_ref().map(|old| old.stage());
        let seen = self.view.workloads.get(&name).filter(|new| !new.reserved());
        let asks_otherwise = old.as_ref().zip(seen).is_some_and(|(old, new)| old.asks_otherwise(new));
        if let Some(old) = old {
            // Of a finished one the old state is no longer whole, and there is nothing left to count.
            let counts = self.leads() && !old.is(types::FINISHED);
            if let (true, Some(new)) = (counts, self.view.workloads.get(&name)) {
                let local = self.settings.local_queue_metrics;
                self.measures.extend(crate::transitions::measures(&old, new, local, now));
                self.measures.extend(self.tier_measures(&old, new, now));
                self.ladder.moves.extend(self.tier_moves(&old, new, now));
                self.measures.extend(self.training_measures(&old, new, now));
                if self.settings.cohort_metrics {
                    self.measures.extend(self.cohort_measures(&old, new));
                }
            }
            if let Some(at) = self.view.workloads.get(&name).and_then(|new| self.stock_out_between(&old, new)) {
                self.note_stock_out(&old, at, now);
            }
            self.shapes.release(&old.shape);
            self.mark_queues(&old, now);
        }
        if asks_otherwise || self.flights.explains_conflict(&object_key, version) {
            // It asks for something else now, or for nothing, or somebody else has written: the plan was made for another state.
            let uid = self.view.workloads.get(&name).map(|workload| workload.uid.clone()).unwrap_or_default();
            self.planned.remove(&uid);
        }
        if asks_otherwise {
            self.flights.forget_refused_reservation(&object_key);
        }
        self.wake_group(&name, stage);
        self.touch_requests_of(&name);
        if let Some(new) = self.view.workloads.get_mut(&name) {
            if !self.ladder.better.is_empty() && (new.is(types::EVICTED) || !new.reserved()) {
                self.ladder.better.remove(&new.uid);
            }
            new.shed();
        }
        self.flights.seen(&object_key, version);
        self.settle(&name);
        self.mirror_slices_of(&name);
        self.touch_related(&object_key);
    }

    fn mark_queues(&mut self, workload: &WorkloadView, now: Timestamp) {
        if let Some(queue) = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_ref()) {
            self.schedule.mark(Kind::ClusterQueue, "", queue, now);
            self.schedule.mark(Kind::LocalQueue, &workload.namespace, &workload.queue, now);
        }
    }

    /// Tells the engine what the view says of a workload, unless an admission of ours is still on its way: then the
    /// engine's own booking holds until the result is seen.
    pub(crate) fn mirror(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads.get(name) else { return };
        if self.planned.contains(&workload.uid) || self.flights.busy(&key(Kind::Workload, name)) {
            return;
        }
        let over = workload.is(types::FINISHED) || (!workload.reserved() && (!workload.active || workload.deleting));
        let delta = if over {
            engine::Delta::RemoveWorkload(workload.uid.clone())
        } else {
            engine::Delta::Workload(self.engine_workload(workload))
        };
        let uid = workload.uid.clone();
        if over || workload.reserved() {
            self.ration.forget(&uid);
        }
        self.engine(delta);
        if over {
            self.spare_victims_of(&uid);
        }
    }
}

/// Two states of one object that differ in its status at most: what follows from the rest has been done already.
pub(crate) fn same_intent(known: &ObjectMeta, new: &ObjectMeta) -> bool {
    let intent = |meta: &ObjectMeta| {
        // Without a generation the spec may have changed unseen.
        let generation = meta.generation.filter(|generation| *generation > 0)?;
        Some((meta.uid.clone(), generation, meta.deletion_timestamp.is_some(), meta.finalizers.clone()))
    };
    let same = intent(known).is_some_and(|known| Some(known) == intent(new));
    same && known.labels == new.labels && known.annotations == new.annotations
}

/// The names that the view has, when the change may mean that some of them are gone.
fn known<T, N>(change: &Change<T>, all: impl Iterator<Item = N>) -> Vec<N> {
    match change {
        Change::Apply(_) | Change::Delete(_) => Vec::new(),
        Change::Reset(_) | Change::Only(_) => all.collect(),
    }
}

/// Objects with metadata.
pub(crate) trait HasMeta {
    fn meta(&self) -> &ObjectMeta;
}

impl HasMeta for SharedJob {
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }
}

macro_rules! has_meta {
    ($($kind:ty),* $(,)?) => {
        $(impl HasMeta for Box<$kind> {
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
        })*
    };
}

has_meta!(
    k8s_openapi::api::apps::v1::StatefulSet,
    api::berth::CheckpointStore,
    api::node::Node,
    k8s_openapi::api::core::v1::Pod,
    k8s_openapi::api::core::v1::PodTemplate,
    api::berth::TrainingJob,
    api::Workload,
    api::ClusterQueue,
    api::LocalQueue,
    api::AdmissionCheck,
    api::ProvisioningRequestConfig,
    api::autoscaling::ProvisioningRequest,
    api::Cohort,
    api::ResourceFlavor,
    api::WorkloadPriorityClass,
    api::berth::QueuePolicy,
    k8s_openapi::api::scheduling::v1::PriorityClass,
    k8s_openapi::api::core::v1::Namespace,
    k8s_openapi::api::core::v1::LimitRange,
    k8s_openapi::api::node::v1::RuntimeClass,
);
