//! Handling of observed changes of the objects on which quota depends: queues, Cohorts, flavors, checks, policies, namespaces, classes and LimitRanges. The
//! functions that take priority classes, LimitRanges and RuntimeClasses are in this file, because these objects are plain values.

use std::collections::BTreeSet;

use berth_api as api;
use berth_cache::event::Observation;
use berth_cache::names::Name;
use berth_cache::settings::Settings;
use berth_cache::{View, slim};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;

use crate::observe::{cluster_wide, objects};
use crate::state::in_flight::InFlightWrites;
use crate::state::work_queue::WorkQueue;
use crate::state::{Quota, Reports};
use crate::write::{Kind, key};

/// The owners of the state that changes when a rule about quota is observed: a queue, Cohort, flavor, check, policy, namespace, priority class, LimitRange or
/// RuntimeClass.
pub struct QuotaRules<'a> {
    /// The settings of control.
    pub settings: &'a Settings,
    /// True if this process leads; the leader keeps figures that are stored only in statuses, and other replicas follow the statuses that the leader wrote.
    pub leads: bool,
    /// The observed objects.
    pub view: &'a mut View,
    /// The engine's world and plans.
    pub quota: &'a mut Quota,
    /// Writes under way.
    pub in_flight: &'a mut InFlightWrites,
    /// The queue of objects that control decides about.
    pub work: &'a mut WorkQueue,
    /// The reports to users and operators: statuses, events and metrics.
    pub reports: &'a mut Reports,
}

impl QuotaRules<'_> {
    /// Handles an observation of a rule about quota and ignores any other. After a call of `observe`, the caller passes the marked Workloads to the engine.
    pub fn observe(&mut self, observation: Observation, now: Timestamp) {
        match observation {
            Observation::ClusterQueue(change) => {
                let known = cluster_wide(self.view.cluster_queues().keys());
                for (name, object) in objects(change, known) {
                    self.put_cluster_queue(&name.1, object, now);
                }
            }
            Observation::LocalQueue(change) => {
                let known = self.view.local_queues().keys().cloned();
                for (name, object) in objects(change, known) {
                    self.put_local_queue(&name, object, now);
                }
            }
            Observation::AdmissionCheck(change) => {
                let known = cluster_wide(self.view.checks().keys());
                for (name, object) in objects(change, known) {
                    self.put_check(&name.1, object);
                }
            }
            Observation::Cohort(change) => {
                let known = cluster_wide(self.view.cohorts().keys());
                for (name, object) in objects(change, known) {
                    self.put_cohort(&name.1, object, now);
                }
            }
            Observation::ResourceFlavor(change) => {
                let known = cluster_wide(self.view.flavors().keys());
                for (name, object) in objects(change, known) {
                    self.put_flavor(&name.1, object);
                }
            }
            Observation::WorkloadPriorityClass(change) => {
                let known = cluster_wide(self.view.workload_priorities().keys());
                for (name, object) in objects(change, known) {
                    self.put_workload_priority(&name.1, object.as_deref());
                }
            }
            Observation::PriorityClass(change) => {
                let known = cluster_wide(self.view.priorities().keys());
                for (name, object) in objects(change, known) {
                    self.put_priority(name.1, object.as_deref());
                }
            }
            Observation::Namespace(change) => {
                let known = cluster_wide(self.view.namespaces().keys());
                let mut turned = BTreeSet::new();
                for (name, object) in objects(change, known) {
                    if self.put_namespace(&name.1, object.map(|object| *object)) {
                        turned.insert(name.1);
                    }
                }
                self.turn_workloads_of(&turned);
            }
            Observation::LimitRange(change) => {
                let known = self.view.limit_ranges().keys().cloned();
                for (name, object) in objects(change, known) {
                    self.put_limit_range(name, object);
                }
            }
            Observation::RuntimeClass(change) => {
                let known = cluster_wide(self.view.overheads().keys());
                for (name, object) in objects(change, known) {
                    self.put_runtime_class(name.1, object);
                }
            }
            _ => {}
        }
    }

    /// Handles a WorkloadPriorityClass that was observed or removed.
    pub(crate) fn put_workload_priority(&mut self, name: &str, object: Option<&api::WorkloadPriorityClass>) {
        for workload in self.view.put_workload_priority(name, object.map(|object| object.value)) {
            self.work.touch(key(Kind::Workload, &workload));
        }
        self.work.touch_all_jobs(self.view);
    }

    /// Handles a PriorityClass that was observed or removed.
    pub(crate) fn put_priority(&mut self, name: String, object: Option<&PriorityClass>) {
        let class = object.map(|object| (object.value.unwrap_or_default(), object.global_default.unwrap_or_default()));
        self.view.put_priority_class(name, class);
        self.work.touch_all_jobs(self.view);
    }

    /// Handles a LimitRange that was observed or removed.
    pub(crate) fn put_limit_range(&mut self, name: Name, object: Option<Box<LimitRange>>) {
        let place = name.0.clone();
        self.view.put_limit_range(name, object);
        self.work.touch_jobs_of(self.view, &place);
        self.reshape(Some(&place));
    }

    /// Handles a RuntimeClass that was observed or removed.
    pub(crate) fn put_runtime_class(&mut self, name: String, object: Option<Box<RuntimeClass>>) {
        let overhead = |object: Box<RuntimeClass>| object.overhead.and_then(|overhead| overhead.pod_fixed);
        self.view.put_overhead(name, object.map(|object| overhead(object).unwrap_or_default()));
        self.reshape(None);
    }

    /// Computes the requests of pending Workloads again after a LimitRange or RuntimeClass has changed.
    fn reshape(&mut self, namespace: Option<&str>) {
        for name in slim::reshape(self.settings, self.view, self.quota.shapes_mut(), namespace) {
            self.work.touch(key(Kind::Workload, &name));
            self.work.mirror(name);
        }
    }
}
