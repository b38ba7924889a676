//! Observations change the view. Each change is mirrored into the engine, and the objects that it affects are marked for decision.

mod jobs;
mod namespaces;
mod pods;
mod policies;
mod queues;
pub(crate) mod quota_rules;

use std::collections::BTreeSet;

use berth_api as api;
use berth_api::berth::QueuePolicy;
use berth_api::conditions::types;
use berth_engine::model as engine;
use berth_jobs::SharedJob;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::{Name, WorkloadView, name_of};
use crate::controller::{Control, key};
use crate::event::{Change, Observation};
use crate::observe::quota_rules::QuotaRules;
use crate::provisioning;
use crate::write::Kind;

impl Control {
    /// Takes an observation. Older states of a known uid are ignored; order between kinds does not matter.
    pub fn observe(&mut self, observation: Observation, now: Timestamp) {
        match observation {
            Observation::Job(kind, change) => self.observe_jobs(Kind::Job(kind), change, now),
            Observation::Workload(change) => self.observe_workloads(change, now),
            Observation::ClusterQueue(change) => {
                let known = known(&change, self.view.cluster_queues.keys().cloned());
                self.each(change, known, |me, name, object| me.quota_rules().put_cluster_queue(&name.1, object, now));
            }
            Observation::LocalQueue(change) => {
                let known = known(&change, self.view.local_queues.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| {
                    me.quota_rules().put_local_queue(&name, object, now)
                });
            }
            Observation::AdmissionCheck(change) => {
                let known = known(&change, self.view.checks.keys().cloned());
                self.each(change, known, |me, name, object| me.quota_rules().put_check(&name.1, object));
            }
            Observation::ServesProvisioningRequests(served) => {
                provisioning::put_served(&mut self.view, &mut self.work, served)
            }
            Observation::Unlisted(unlisted) => self.put_unlisted(unlisted),
            Observation::ProvisioningRequestConfig(change) => {
                let known = known(&change, self.view.provisioning.configs.keys().cloned());
                self.each(change, known, |me, name, object| {
                    provisioning::put_config(&mut me.view, &mut me.work, &name.1, object);
                });
            }
            Observation::ProvisioningRequest(change) => {
                let known = known(&change, self.view.provisioning.requests.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| {
                    provisioning::put_request(&mut me.view, &mut me.flights, &mut me.work, name, object);
                });
            }
            Observation::PodTemplate(change) => {
                let known = known(&change, self.view.provisioning.templates.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| {
                    provisioning::put_template(&mut me.view, &mut me.flights, &mut me.work, name, object);
                });
            }
            Observation::Cohort(change) => {
                let known = known(&change, self.view.cohorts.keys().cloned());
                self.each(change, known, |me, name, object| me.quota_rules().put_cohort(&name.1, object, now));
            }
            Observation::ResourceFlavor(change) => {
                let known = known(&change, self.view.flavors.keys().cloned());
                self.each(change, known, |me, name, object| me.quota_rules().put_flavor(&name.1, object));
            }
            Observation::WorkloadPriorityClass(change) => {
                let known = known(&change, self.view.workload_priorities.keys().cloned());
                self.each(change, known, |me, name, object| {
                    for workload in me.view.put_workload_priority(&name.1, object.map(|object| object.value)) {
                        me.touch(key(Kind::Workload, &workload));
                    }
                    me.work.touch_all_jobs(&me.view);
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
                    me.work.touch_all_jobs(&me.view);
                });
            }
            Observation::Namespace(change) => {
                let known = known(&change, self.view.namespaces.keys().cloned());
                let mut turned = BTreeSet::new();
                self.each(change, known, |me, name, object| {
                    if me.quota_rules().put_namespace(&name.1, object.map(|object| *object)) {
                        turned.insert(name.1);
                    }
                });
                namespaces::turn_workloads_of(&self.view, &mut self.work, &turned);
                self.mirror_stale();
            }
            Observation::LimitRange(change) => {
                let known = known(&change, self.view.limit_ranges.keys().cloned());
                self.each_namespaced(change, known, |me, name, object| {
                    let place = name.0.clone();
                    match object {
                        Some(object) => me.view.limit_ranges.insert(name, object),
                        None => me.view.limit_ranges.remove(&name),
                    };
                    me.work.touch_jobs_of(&me.view, &place);
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
            Observation::UnmarkedPod(by, change) => self.observe_unmarked_pods(by, change, now),
            Observation::JobPod(change) => self.observe_job_pods(change, now),
            Observation::StatefulSet(change) => self.observe_sets(change),
            Observation::Node(change) => {
                let known = self.capacity.reclaims.nodes().cloned().collect();
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

    /// What a queue or another rule of quota changes.
    fn quota_rules(&mut self) -> QuotaRules<'_> {
        QuotaRules {
            settings: &self.settings,
            leads: self.session.leads(),
            view: &mut self.view,
            quota: &mut self.quota,
            flights: &mut self.flights,
            work: &mut self.work,
            reports: &mut self.reports,
        }
    }

    fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>, now: Timestamp) {
        // The leader keeps the stock-outs; all other replicas follow what it wrote.
        let follows = !self.session.leads() || !self.view.policies.contains_key(name);
        if let Some(status) = object.as_ref().and_then(|object| object.status.as_ref()).filter(|_| follows) {
            self.restore_stock(&status.backoffs, now);
        }
        self.quota_rules().put_policy(name, object, now);
    }

    fn each<T: HasMeta>(&mut self, change: Change<T>, known: Vec<String>, put: impl FnMut(&mut Self, Name, Option<T>)) {
        let known = known.into_iter().map(|name| (String::new(), name)).collect();
        self.each_namespaced(change, known, put);
    }

    /// Applies a change object by object; objects that a list does not have are gone.
    fn each_namespaced<T: HasMeta>(
        &mut self,
        change: Change<T>,
        known: Vec<Name>,
        mut put: impl FnMut(&mut Self, Name, Option<T>),
    ) {
        match change {
            Change::Apply(object) => {
                put(self, name_of(object.meta()), Some(object));
                self.mirror_stale();
            }
            Change::Delete(object) => {
                put(self, name_of(object.meta()), None);
                self.mirror_stale();
            }
            Change::Only(listed) => {
                let listed: BTreeSet<Name> = listed.into_iter().collect();
                for name in known.into_iter().filter(|name| !listed.contains(name)) {
                    put(self, name, None);
                    self.mirror_stale();
                }
            }
            Change::Reset(objects) => {
                let listed: BTreeSet<Name> = objects.iter().map(|object| name_of(object.meta())).collect();
                for name in known.into_iter().filter(|name| !listed.contains(name)) {
                    put(self, name, None);
                    self.mirror_stale();
                }
                for object in objects {
                    put(self, name_of(object.meta()), Some(object));
                    self.mirror_stale();
                }
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
        self.work.touch_requests_of(&self.view, name);
        self.work.remove(&object_key);
        self.flights.vanished(&object_key);
        if let Some(old) = self.view.workloads.remove(name) {
            if let Some(owner) = &old.owner {
                self.touch_jobs_below(&old.namespace, &owner.uid);
            }
            self.quota.shapes.release(&old.shape);
            self.note_held(&old);
            self.engine(engine::Delta::RemoveWorkload(old.uid.clone()));
            self.spare_victims_of(&old.uid);
            self.quota.plans.forget(&old.uid);
            self.remains.forget_workload(&old.uid);
            self.training.forget_workload(&old.uid);
            self.capacity.forget_workload(&old.uid);
            self.reports.forget_workload(&object_key, &old.uid);
            self.view.repriced.remove(&old.uid);
            self.note_lost_slice(&old, now);
            self.forget_children(&old);
            self.mark_queues(&old, now);
            self.forget_job_pods_of(&old.namespace);
            if old.group.is_some() {
                self.view.pods.forget_owners(name);
                self.touch_members(name);
            } else if self.view.pods.group(name).is_some() || self.view.sets.of_group(name).is_some() {
                // The Workload had the name that the Workload of the group needs.
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
            self.remains.forget_workload(&new.uid);
            self.training.growth.shrunk.remove(&new.uid);
            self.training.saving.forget(&new.uid);
            self.capacity.reclaims.forget(&new.uid);
            self.training.prepared.remove(new.owner.as_ref().map(|owner| owner.uid.as_str()).unwrap_or_default());
        }
        if new.is(types::EVICTED) || new.is(types::FINISHED) {
            self.remains.starts.forget(new.owner.as_ref().map(|owner| owner.uid.as_str()).unwrap_or_default());
        }
        self.note_idle(&new);
        self.note_resized(&new);
        self.mark_queues(&new, now);
        let old = self.view.put_workload(new);
        self.note_again(&name);
        let stage = old.as_ref().map(|old| old.stage());
        let seen = self.view.workloads.get(&name).filter(|new| !new.reserved());
        let asks_otherwise = old.as_ref().zip(seen).is_some_and(|(old, new)| old.asks_otherwise(new));
        self.note_hands(&name, old.as_deref());
        self.note_held_since(&name, old.as_deref());
        if let Some(old) = old {
            // The old state of a finished Workload is no longer complete, and there is nothing left to count.
            let counts = self.context().leads() && !old.is(types::FINISHED);
            if let (true, Some(new)) = (counts, self.view.workloads.get(&name)) {
                let local = self.settings.local_queue_metrics;
                self.reports.measures.extend(crate::workload::transitions::measures(
                    &old,
                    new,
                    local,
                    (now, &self.view.timeline),
                ));
                self.reports.measures.extend(self.context().tier_measures(&old, new, now));
                self.capacity.moves.extend(self.context().tier_moves(&old, new, now));
                self.reports.measures.extend(self.context().training_measures(&old, new, now));
                if self.settings.cohort_metrics {
                    self.reports.measures.extend(self.context().cohort_measures(&old, new));
                }
            }
            if let Some(at) = self.view.workloads.get(&name).and_then(|new| self.context().stock_out_between(&old, new))
            {
                self.note_stock_out(&old, at, now);
            }
            self.quota.shapes.release(&old.shape);
            self.mark_queues(&old, now);
        }
        if asks_otherwise || self.flights.explains_conflict(&object_key, version) {
            // The Workload asks for something else now, or for nothing, or another writer has changed it: the plan was made for another state.
            let uid = self.view.workloads.get(&name).map(|workload| workload.uid.clone()).unwrap_or_default();
            self.quota.plans.remove(&uid);
        }
        if asks_otherwise {
            self.flights.forget_refused_reservation(&object_key);
        }
        self.wake_group(&name, stage);
        self.wake_parts(&name, stage);
        self.work.touch_requests_of(&self.view, &name);
        if let Some(new) = self.view.workloads.get_mut(&name) {
            if !self.capacity.better.is_empty() && (new.is(types::EVICTED) || !new.reserved()) {
                self.capacity.better.remove(&new.uid);
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
            self.reports.schedule.mark(Kind::ClusterQueue, "", queue, now);
            self.reports.schedule.mark(Kind::LocalQueue, &workload.namespace, &workload.queue, now);
        }
    }

    /// Passes the marked workloads to the engine.
    pub(crate) fn mirror_stale(&mut self) {
        for name in self.work.take_stale() {
            self.mirror_now(&name);
        }
    }

    /// Mirrors a workload of the view into the engine, unless a write of ours about its quota is still on its way: then the engine's own accounting
    /// holds until the result is seen. A write to a workload without quota, such as the reason why it waits, holds nothing up: the queue may open
    /// before that write is seen, and the engine must know by then that pods of the job run, or which policy the queue follows.
    fn mirror_now(&mut self, name: &Name) {
        let Some(workload) = self.view.workloads.get(name) else { return };
        let holds = || workload.reserved() || self.quota.world.holds_quota(&workload.uid);
        if self.quota.plans.contains(&workload.uid) || (self.flights.busy(&key(Kind::Workload, name)) && holds()) {
            return;
        }
        let over = workload.is(types::FINISHED) || (!workload.reserved() && (!workload.active || workload.deleting));
        let delta = if over {
            engine::Delta::RemoveWorkload(workload.uid.clone())
        } else {
            engine::Delta::Workload(self.context().engine_workload(workload))
        };
        let uid = workload.uid.clone();
        if over || workload.reserved() {
            self.reports.ration.forget(&uid);
        }
        self.engine(delta);
        if over {
            self.spare_victims_of(&uid);
        }
    }
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
