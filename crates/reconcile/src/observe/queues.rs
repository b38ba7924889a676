//! ClusterQueues, LocalQueues, Cohorts, flavors and admission checks as the watch shows them.

use std::collections::BTreeSet;

use berth_api as api;
use berth_cache::admission_checks::{self as checks, Check};
use berth_cache::deltas;
use berth_cache::names::{Name, same_intent};
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::observe::quota_rules::QuotaRules;
use crate::write::{Kind, cluster_key};

impl QuotaRules<'_> {
    /// Handles a ClusterQueue that was observed or removed.
    pub(crate) fn put_cluster_queue(&mut self, name: &str, object: Option<Box<api::ClusterQueue>>, now: Timestamp) {
        let object_key = cluster_key(Kind::ClusterQueue, name);
        let cohort = |queue: Option<&Box<api::ClusterQueue>>| queue.and_then(|queue| queue.spec.cohort_name.clone());
        let (left, joined) = (cohort(self.view.cluster_queues().get(name)), cohort(object.as_ref()));
        if let Some(left) = left.filter(|left| joined.as_ref() != Some(left)) {
            self.reports.note_left_cohort(left);
        }
        let mut flavors: BTreeSet<String> = self.view.flavors_of(name).map(str::to_owned).collect();
        let known = self.view.cluster_queues().get(name);
        match (known, object) {
            (Some(known), Some(object)) if same_intent(&known.metadata, &object.metadata) => {
                self.view.put_cluster_queue(name, object);
                self.reports.schedule_mut().mark_key(&object_key, now);
                return;
            }
            (_, Some(object)) => {
                let claimed = self.claim(name, object.metadata.labels.as_ref(), now);
                let spec = self.view.queue_spec(self.settings, &object);
                self.quota.apply(engine::Delta::ClusterQueue(spec));
                let by_age = deltas::equals_go_by_age(&object);
                let stop = object.spec.stop_policy.clone();
                let was = self.view.put_cluster_queue(name, object);
                // Workloads that a stop policy has evicted are tried again when the stop ends.
                let turns =
                    was.map_or(by_age, |was| deltas::equals_go_by_age(&was) != by_age || was.spec.stop_policy != stop);
                self.reports.schedule_mut().mark_key(&object_key, now);
                if claimed || turns || self.view.claims().contains_key(name) {
                    self.work.follow_policy(self.view, name);
                }
            }
            (_, None) => {
                self.quota.apply(engine::Delta::RemoveClusterQueue(name.to_owned()));
                self.view.remove_cluster_queue(name);
                self.reports.note_gone_cluster_queue(name);
                self.in_flight.vanished(&object_key);
            }
        }
        self.quota.overruns_mut().charge_again();
        self.work.touch(object_key);
        self.work.touch_queue_members(self.view, name);
        // A deleted flavor may be released when no ClusterQueue names it any more.
        flavors.extend(self.view.flavors_of(name).map(str::to_owned));
        flavors.retain(|flavor| self.view.flavors().contains_key(flavor));
        self.work.extend(flavors.iter().map(|flavor| cluster_key(Kind::ResourceFlavor, flavor)));
        // A deleted check is released when no ClusterQueue names it any more.
        let leaving = self.view.checks().iter().filter(|(_, check)| check.deleting).map(|(name, _)| name);
        self.work.extend(leaving.map(|name| cluster_key(Kind::AdmissionCheck, name)));
    }

    /// Handles an AdmissionCheck that was observed or removed; the ClusterQueues that name the check are passed to the engine again.
    pub(crate) fn put_check(&mut self, name: &str, object: Option<Box<api::AdmissionCheck>>) {
        let object_key = cluster_key(Kind::AdmissionCheck, name);
        let old = match object.map(|object| Check::of(&object)) {
            Some(check) => {
                self.in_flight.seen(&object_key, check.version());
                self.view.put_check(name, check)
            }
            None => {
                self.in_flight.vanished(&object_key);
                self.view.remove_check(name)
            }
        };
        self.work.touch(object_key);
        let new = self.view.checks().get(name);
        if old.iter().chain(new).any(Check::asks_autoscaler) {
            self.work.touch_check(self.view, name);
        }
        let new = self.view.checks().get(name);
        if old.as_ref().zip(new).is_some_and(|(old, new)| old.serves_as(new)) {
            return;
        }
        let queues = self.view.cluster_queues().values();
        let concerned = queues.filter(|object| checks::names(&object.spec, name));
        let specs: Vec<_> = concerned.map(|object| self.view.queue_spec(self.settings, object)).collect();
        for spec in specs {
            self.quota.apply(engine::Delta::ClusterQueue(spec));
        }
    }

    /// Handles a LocalQueue that was observed or removed.
    pub(crate) fn put_local_queue(&mut self, name: &Name, object: Option<Box<api::LocalQueue>>, now: Timestamp) {
        // The leader keeps the record of usage for fair sharing; other replicas follow the record that the leader wrote.
        let follows = !self.leads || !self.view.local_queues().contains_key(name);
        if let Some(ledger) = object.as_deref().filter(|_| follows).and_then(deltas::ledger) {
            self.quota.apply(engine::Delta::Ledger(name.0.clone(), name.1.clone(), ledger));
        }
        let queue_of = |queue: Option<&Box<api::LocalQueue>>| {
            queue.map(|queue| (queue.spec.cluster_queue.clone(), queue.spec.stop_policy.clone()))
        };
        let moves = queue_of(self.view.local_queues().get(name)) != queue_of(object.as_ref());
        match (self.view.local_queues().get(name), object) {
            (Some(known), Some(object)) if same_intent(&known.metadata, &object.metadata) => {
                self.view.put_local_queue(name, object);
                self.reports.schedule_mut().mark(Kind::LocalQueue, &name.0, &name.1, now);
                return;
            }
            (_, Some(object)) => {
                self.quota.apply(engine::Delta::LocalQueue(deltas::local_queue(&object)));
                self.view.put_local_queue(name, object);
                self.reports.schedule_mut().mark(Kind::LocalQueue, &name.0, &name.1, now);
            }
            (_, None) => {
                self.quota.apply(engine::Delta::RemoveLocalQueue(name.0.clone(), name.1.clone()));
                self.view.remove_local_queue(name);
                self.reports.note_gone_local_queue(name);
            }
        }
        self.quota.overruns_mut().charge_again();
        // The QueuePolicy rules for the Workloads of the LocalQueue may have been unknown until now.
        if moves || !self.view.claims().is_empty() {
            self.work.follow_policy_in(self.view, name);
        }
        self.work.touch_local_members(self.view, name);
    }

    /// Handles a Cohort that was observed or removed.
    pub(crate) fn put_cohort(&mut self, name: &str, object: Option<Box<api::Cohort>>, now: Timestamp) {
        let parent = |cohort: Option<&Box<api::Cohort>>| cohort.and_then(|cohort| cohort.spec.parent_name.clone());
        let (left, joined) = (parent(self.view.cohorts().get(name)), parent(object.as_ref()));
        if let Some(left) = left.filter(|left| joined.as_ref() != Some(left)) {
            self.reports.note_left_cohort(left);
        }
        match object {
            Some(object) => {
                self.quota.apply(engine::Delta::Cohort(deltas::cohort(&object)));
                self.reports.schedule_mut().mark(Kind::Cohort, "", name, now);
                self.work.touch(cluster_key(Kind::Cohort, name));
                self.view.put_cohort(name, object);
            }
            None => {
                self.quota.apply(engine::Delta::RemoveCohort(name.to_owned()));
                self.view.remove_cohort(name);
                self.reports.note_left_cohort(name.to_owned());
            }
        }
    }

    /// Handles a ResourceFlavor that was observed or removed.
    pub(crate) fn put_flavor(&mut self, name: &str, object: Option<Box<api::ResourceFlavor>>) {
        let old_tier = self.view.capacity_tier_of(name);
        match object {
            Some(object) => {
                self.quota.apply(engine::Delta::Flavor(deltas::flavor(&object, self.settings.refuse_invalid)));
                self.view.put_flavor(name, object);
            }
            None => {
                self.quota.apply(engine::Delta::RemoveFlavor(name.to_owned()));
                self.view.remove_flavor(name);
            }
        }
        if self.view.capacity_tier_of(name) != old_tier {
            self.offer_changed(name);
        }
        self.work.touch(cluster_key(Kind::ResourceFlavor, name));
    }
}
