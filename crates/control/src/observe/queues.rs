//! Queues, cohorts, flavors and admission checks that come, go and change.

use std::collections::{BTreeMap, BTreeSet};

use berth_api as api;
use berth_engine::model as engine;
use jiff::Timestamp;

use super::same_intent;
use crate::cache::{Name, WorkloadView};
use crate::controller::{Control, cluster_key, key};
use crate::deltas;
use crate::queues::checks::{self, Check};
use crate::write::Kind;

impl Control {
    pub(super) fn put_cluster_queue(&mut self, name: &str, object: Option<Box<api::ClusterQueue>>, now: Timestamp) {
        let object_key = cluster_key(Kind::ClusterQueue, name);
        let cohort = |queue: Option<&Box<api::ClusterQueue>>| queue.and_then(|queue| queue.spec.cohort_name.clone());
        let (left, joined) = (cohort(self.view.cluster_queues.get(name)), cohort(object.as_ref()));
        self.reports.gone.cohorts.extend(left.filter(|left| joined.as_ref() != Some(left)));
        let mut flavors: BTreeSet<String> = self.context().flavors_of(name).map(str::to_owned).collect();
        let known = self.view.cluster_queues.get_mut(name);
        match (known, object) {
            (Some(known), Some(object)) if same_intent(&known.metadata, &object.metadata) => {
                *known = object;
                self.reports.schedule.mark_key(&object_key, now);
                return;
            }
            (_, Some(object)) => {
                let claimed = self.claim(name, object.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()), now);
                let spec = self.context().queue_spec(&object);
                self.engine(engine::Delta::ClusterQueue(spec));
                let by_age = deltas::equals_go_by_age(&object);
                let stop = object.spec.stop_policy.clone();
                let was = self.view.cluster_queues.insert(name.to_owned(), object);
                // Workloads that a stop has evicted come back with its end.
                let turns =
                    was.map_or(by_age, |was| deltas::equals_go_by_age(&was) != by_age || was.spec.stop_policy != stop);
                self.reports.schedule.mark_key(&object_key, now);
                if claimed || turns || self.view.claims.contains_key(name) {
                    self.tell_members_again(name);
                }
            }
            (_, None) => {
                self.engine(engine::Delta::RemoveClusterQueue(name.to_owned()));
                self.view.cluster_queues.remove(name);
                self.reports.gone.cluster_queues.insert(name.to_owned());
                self.view.claims.remove(name);
                self.flights.vanished(&object_key);
            }
        }
        self.charge_overruns_again();
        self.touch(object_key);
        self.touch_queue_members(name);
        // A flavor may go when the last queue that names it has gone.
        flavors.extend(self.context().flavors_of(name).map(str::to_owned));
        flavors.retain(|flavor| self.view.flavors.contains_key(flavor));
        self.work.extend(flavors.iter().map(|flavor| cluster_key(Kind::ResourceFlavor, flavor)));
        // Checks that are being deleted wait for the last queue that names them.
        let leaving = self.view.checks.iter().filter(|(_, check)| check.deleting).map(|(name, _)| name);
        self.work.extend(leaving.map(|name| cluster_key(Kind::AdmissionCheck, name)));
    }

    /// A check that comes, goes or changes has an effect on the ClusterQueues that name it.
    pub(super) fn put_check(&mut self, name: &str, object: Option<Box<api::AdmissionCheck>>) {
        let object_key = cluster_key(Kind::AdmissionCheck, name);
        let old = match object.map(|object| Check::of(&object)) {
            Some(check) => {
                self.flights.seen(&object_key, check.resource_version.parse().unwrap_or_default());
                self.view.checks.insert(name.to_owned(), check)
            }
            None => {
                self.flights.vanished(&object_key);
                self.view.checks.remove(name)
            }
        };
        self.touch(object_key);
        let new = self.view.checks.get(name);
        if old.iter().chain(new).any(Check::asks_autoscaler) {
            self.touch_check(name);
        }
        let new = self.view.checks.get(name);
        if old.as_ref().zip(new).is_some_and(|(old, new)| old.serves_as(new)) {
            return;
        }
        let queues = self.view.cluster_queues.values();
        let concerned = queues.filter(|object| checks::names(&object.spec, name));
        let specs: Vec<_> = concerned.map(|object| self.context().queue_spec(object)).collect();
        for spec in specs {
            self.engine(engine::Delta::ClusterQueue(spec));
        }
    }

    /// Stop policies and deletion concern every workload of a queue, and its LocalQueues' statuses.
    pub(super) fn touch_queue_members(&mut self, cluster_queue: &str) {
        let local: Vec<Name> = self
            .view
            .local_queues
            .iter()
            .filter(|(_, queue)| queue.spec.cluster_queue.as_deref() == Some(cluster_queue))
            .map(|(name, _)| name.clone())
            .collect();
        for name in local {
            self.touch_local_members(&name);
        }
        let reserving: Vec<Name> = self.view.workloads.reserving(cluster_queue).map(WorkloadView::key).collect();
        for name in reserving {
            self.touch(key(Kind::Workload, &name));
        }
    }

    pub(super) fn touch_local_members(&mut self, name: &Name) {
        let members: Vec<Name> = self.view.workloads.members(name).map(WorkloadView::key).collect();
        for member in members {
            self.touch(key(Kind::Workload, &member));
        }
        self.touch(key(Kind::LocalQueue, name));
    }

    pub(super) fn put_local_queue(&mut self, name: &Name, object: Option<Box<api::LocalQueue>>, now: Timestamp) {
        // The leader keeps the ledger of usage; all other replicas follow what it wrote.
        let follows = self.session.term.is_none() || !self.view.local_queues.contains_key(name);
        if let Some(ledger) = object.as_deref().filter(|_| follows).and_then(deltas::ledger) {
            self.engine(engine::Delta::Ledger(name.0.clone(), name.1.clone(), ledger));
        }
        let queue_of = |queue: Option<&Box<api::LocalQueue>>| {
            queue.map(|queue| (queue.spec.cluster_queue.clone(), queue.spec.stop_policy.clone()))
        };
        let moves = queue_of(self.view.local_queues.get(name)) != queue_of(object.as_ref());
        match (self.view.local_queues.get_mut(name), object) {
            (Some(known), Some(object)) if same_intent(&known.metadata, &object.metadata) => {
                *known = object;
                self.reports.schedule.mark(Kind::LocalQueue, &name.0, &name.1, now);
                return;
            }
            (_, Some(object)) => {
                self.engine(engine::Delta::LocalQueue(deltas::local_queue(&object)));
                self.view.local_queues.insert(name.clone(), object);
                self.reports.schedule.mark(Kind::LocalQueue, &name.0, &name.1, now);
            }
            (_, None) => {
                self.engine(engine::Delta::RemoveLocalQueue(name.0.clone(), name.1.clone()));
                self.view.local_queues.remove(name);
                self.reports.gone.local_queues.insert(name.clone());
            }
        }
        self.charge_overruns_again();
        // The rules of its ClusterQueue for them may not have been known.
        if moves || !self.view.claims.is_empty() {
            self.tell_local_members_again(name);
        }
        self.touch_local_members(name);
    }

    pub(super) fn put_cohort(&mut self, name: &str, object: Option<Box<api::Cohort>>, now: Timestamp) {
        let parent = |cohort: Option<&Box<api::Cohort>>| cohort.and_then(|cohort| cohort.spec.parent_name.clone());
        let (left, joined) = (parent(self.view.cohorts.get(name)), parent(object.as_ref()));
        self.reports.gone.cohorts.extend(left.filter(|left| joined.as_ref() != Some(left)));
        match object {
            Some(object) => {
                self.engine(engine::Delta::Cohort(deltas::cohort(&object)));
                self.reports.schedule.mark(Kind::Cohort, "", name, now);
                self.touch(cluster_key(Kind::Cohort, name));
                self.view.cohorts.insert(name.to_owned(), object);
            }
            None => {
                self.engine(engine::Delta::RemoveCohort(name.to_owned()));
                self.view.cohorts.remove(name);
                self.reports.gone.cohorts.insert(name.to_owned());
            }
        }
    }

    pub(super) fn put_flavor(&mut self, name: &str, object: Option<Box<api::ResourceFlavor>>) {
        let old_tier = self.context().capacity_tier_of(name);
        match object {
            Some(object) => {
                self.engine(engine::Delta::Flavor(deltas::flavor(&object, self.settings.refuse_invalid)));
                self.view.flavors.insert(name.to_owned(), object);
            }
            None => {
                self.engine(engine::Delta::RemoveFlavor(name.to_owned()));
                self.view.flavors.remove(name);
            }
        }
        if self.context().capacity_tier_of(name) != old_tier {
            self.offer_changed(name);
        }
        self.touch(cluster_key(Kind::ResourceFlavor, name));
    }
}
