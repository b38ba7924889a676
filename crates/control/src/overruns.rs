//! Usage of a job beyond the quota that its Workloads hold: pods that are replaced while they end, pods of a job that somebody else has started, Jobs
//! and pods of a group that have no place. Such usage is found in the view, passed to the engine, and charged to the job's ClusterQueue until it is
//! gone (`docs/departures/0063-usage-beyond-is-charged-to-its-queue.md`). Nothing of it is stored: a process that comes to lead finds it again.

mod jobs;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_engine::model as engine;
use berth_engine::model::{Amount, BeyondSpec, FlavorResource};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::cache::pods::group_uid;
use crate::cache::shed::asks_alike;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::deltas;
use crate::write::{Kind, ObjectKey};

/// All usage beyond quota that is known.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    /// Jobs, pods and groups that were seen to change since they were looked at.
    unsure: BTreeSet<ObjectKey>,
    /// Jobs, pods and groups that run more than their Workloads hold.
    known: BTreeMap<ObjectKey, Overrun>,
    /// Charges of jobs that are gone, by the uid of their Workload, which is kept until their pods have ended.
    outlived: BTreeMap<String, BeyondSpec>,
}

/// Usage beyond quota of one job, pod or group.
#[derive(Debug)]
struct Overrun {
    /// The charge in the engine; `None` where no queue is known for it.
    charge: Option<BeyondSpec>,
    /// Number of pods that run, and number of pods for which quota is held.
    pods: [i64; 2],
    /// Time since when more than twice as many run.
    doubled: Option<Timestamp>,
    /// The queue that is charged has no room for all of it, as the engine said last.
    crowded: bool,
}

/// Numbers of pods, and the amounts that they use beyond quota.
#[derive(Default)]
struct Found {
    carrier: String,
    queue: Option<String>,
    usage: BTreeMap<FlavorResource, Amount>,
    pods: [i64; 2],
}

/// Amounts by resource.
type Requests = BTreeMap<String, Amount>;

impl Overruns {
    /// Time since when a job runs more than twice the pods for which it holds quota, with both numbers.
    pub(crate) fn doubled(&self, object: &ObjectKey) -> Option<(Timestamp, [i64; 2])> {
        let overrun = self.known.get(object)?;
        Some((overrun.doubled?, overrun.pods))
    }

    /// A queue has come or changed: usage beyond quota may be charged to another one now.
    pub(crate) fn charge_again(&mut self) {
        self.unsure.extend(self.known.keys().cloned());
    }

    /// True where the queue of a job, pod or group has room for all that it is charged with; `None` where nothing runs beyond quota.
    pub(crate) fn has_room(&self, object: &ObjectKey) -> Option<bool> {
        self.known.get(object).map(|overrun| overrun.charge.is_some() && !overrun.crowded)
    }
}

impl Overrun {
    fn is_without_quota(&self) -> bool {
        self.pods[0] > 0 && self.pods[1] == 0
    }
}

impl Found {
    /// Charges so many pods.
    fn charge(&mut self, ctx: &Context<'_>, given: Option<&BTreeMap<String, String>>, each: &Requests, pods: i64) {
        let all = |(resource, each): (&String, &Amount)| (resource.clone(), each.max(&Amount::ZERO).mul(pods));
        let mut amounts: Requests = each.iter().map(all).collect();
        // No pod asks for the resource `pods` itself.
        amounts.insert("pods".to_owned(), Amount::new(pods));
        self.charge_amounts(ctx, given, amounts);
    }

    /// Charges amounts in the flavors that were given for them, and others in the first flavor that the queue has for them.
    fn charge_amounts(&mut self, ctx: &Context<'_>, given: Option<&BTreeMap<String, String>>, amounts: Requests) {
        for (resource, amount) in amounts.into_iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            let first = || self.queue.as_deref().and_then(|queue| ctx.first_flavor(queue, &resource));
            let Some(flavor) = given.and_then(|given| given.get(&resource)).cloned().or_else(first) else { continue };
            let sum = self.usage.entry(FlavorResource { flavor, resource }).or_default();
            *sum = sum.add(amount);
        }
    }

    /// Counts the pods of one pod set, and charges those that are more than are held.
    fn count(&mut self, ctx: &Context<'_>, held: &[engine::PodSetAssignment], set: &engine::PodSetSpec, runs: i64) {
        let given = held.iter().find(|held| held.name == set.name);
        let count = given.map_or(0, |given| given.count);
        self.pods = [self.pods[0].saturating_add(runs), self.pods[1].saturating_add(count)];
        let beyond = runs.saturating_sub(count);
        if beyond > 0 {
            self.charge(ctx, given.map(|given| &given.flavors), &set.requests, beyond);
        }
    }

    /// Whether something runs beyond quota, even if its queue is unknown.
    fn is_beyond(&self) -> bool {
        !self.usage.is_empty() || self.pods[0] > self.pods[1]
    }

    fn spec(&self) -> Option<BeyondSpec> {
        let usage = self.usage.clone().into_iter().collect();
        Some(BeyondSpec { carrier: self.carrier.clone(), cluster_queue: self.queue.clone()?, usage })
    }
}

/// The charge of a carrier for which nothing runs any more.
fn none(charge: &BeyondSpec) -> BeyondSpec {
    BeyondSpec { usage: Vec::new(), ..charge.clone() }
}

/// The job of which a Job may be a part.
fn whole_of(object: &ObjectKey, job: &JobState) -> Option<ObjectKey> {
    let owner = job.owner.as_ref().filter(|_| object.kind == Kind::JOB)?;
    let kind = Kind::of_whole(&owner.kind).filter(|kind| kind.is_made_of_jobs())?;
    Some(key(kind, &(object.namespace.clone(), owner.name.to_string())))
}

impl Control {
    /// A job is seen anew: where it has another number of pods, or requests quota in another way, it is looked at, and the job that it is a part of.
    pub(crate) fn note_pods_since(&mut self, object: &ObjectKey, job: &JobState) {
        // A process that does not lead charges no queue.
        if !self.context().leads() {
            return;
        }
        let old = self.view.jobs.get(object).filter(|old| old.uid == job.uid);
        let asks_otherwise = job.pods > 0 && old.is_none_or(|old| !asks_alike(old, job));
        if old.map_or(0, |old| old.pods) != job.pods || asks_otherwise {
            let wholes = [old.and_then(|old| whole_of(object, old)), whole_of(object, job)];
            self.quota.overruns.unsure.extend(wholes.into_iter().flatten());
            self.quota.overruns.unsure.insert(object.clone());
        }
    }

    /// A job is gone: it is looked at, and the job that it was a part of.
    pub(crate) fn note_pods_of(&mut self, object: &ObjectKey, job: &JobState) {
        if self.context().leads() {
            self.quota.overruns.unsure.extend(whole_of(object, job));
            self.quota.overruns.unsure.insert(object.clone());
        }
    }

    /// A Workload was seen after `old`: it may hold other quota now.
    pub(crate) fn note_held_since(&mut self, name: &Name, old: Option<&WorkloadView>) {
        let Some(new) = self.view.workloads.get(name).filter(|_| self.context().leads()) else { return };
        let same = old.is_some_and(|old| {
            old.stage() == new.stage()
                && old.status.reclaimable_pods == new.status.reclaimable_pods
                && old.queue == new.queue
                && old.owner == new.owner
                && Arc::ptr_eq(&old.shape, &new.shape)
        });
        if !same {
            let whole = new.whole();
            self.look_again_at(whole);
        }
    }

    /// A Workload is gone.
    pub(crate) fn note_held(&mut self, workload: &WorkloadView) {
        if self.context().leads() {
            self.look_again_at(workload.whole());
        }
    }

    /// Marks a job, and the job that it is a part of.
    fn look_again_at(&mut self, object: Option<ObjectKey>) {
        let Some(object) = object else { return };
        let whole = self.view.jobs.get(&object).and_then(|job| whole_of(&object, job));
        self.quota.overruns.unsure.extend(whole.into_iter().chain([object]));
    }

    /// A TrainingJob is gone, or another one has its name.
    pub(crate) fn note_gone_training(&mut self, object: &ObjectKey) {
        if self.leads() {
            self.quota.overruns.unsure.insert(object.clone());
        }
    }

    /// Pods that no Job counts any more have come or gone: the job is looked at of which their Job was a part.
    pub(crate) fn note_left_pods(&mut self, whole: &str) {
        if self.leads() {
            let object = self.view.workloads.owned_by(whole).find_map(WorkloadView::whole);
            self.look_again_at(object);
        }
    }

    /// A process that comes to lead looks at everything that runs.
    pub(crate) fn find_overruns(&mut self) {
        self.quota.overruns.charge_again();
        self.count_all_ending_pods();
        for (object, job) in self.view.jobs.iter().filter(|(_, job)| job.pods > 0) {
            self.quota.overruns.unsure.extend(whole_of(object, job));
            self.quota.overruns.unsure.insert(object.clone());
        }
        let pods = self.view.pod_keys(None);
        self.quota.overruns.unsure.extend(pods);
        for stray in self.view.odd_pods.keys(None) {
            self.note_stray(&(stray.namespace, stray.name));
        }
    }

    /// A pod that no Job answers for is seen anew, or is about to be forgotten: the job beside which it runs is looked at.
    pub(crate) fn note_stray(&mut self, name: &Name) {
        let odd = self.view.odd_pods.get(name).filter(|_| self.context().leads());
        let whole = odd.and_then(|odd| self.context().workload_of_odd(&name.0, odd)).and_then(WorkloadView::whole);
        self.look_again_at(whole);
    }

    /// Looks for usage beyond quota where that may have changed, and passes it to the engine.
    pub(crate) fn look_at_overruns(&mut self, now: Timestamp) {
        self.end_outlived();
        for object in std::mem::take(&mut self.quota.overruns.unsure) {
            // Offline a job that runs may have been read without its Workload.
            let counts = |found: &Found| found.is_beyond() && !(self.session.is_offline && found.pods[1] == 0);
            let found = self.context().overrun_of(&object).filter(counts);
            let mut old = self.quota.overruns.known.remove(&object);
            let charge = old.as_ref().and_then(|old| old.charge.clone());
            if let Some(charge) = charge.filter(|charge| self.context().outlives(&object, charge)) {
                // Another job may have its name by now.
                self.quota.overruns.outlived.insert(charge.carrier.clone(), charge);
                old = None;
            }
            let before = old.as_ref().and_then(|old| old.charge.clone());
            let charge = found.as_ref().and_then(Found::spec);
            if before != charge {
                if let Some(gone) = before.filter(|old| charge.as_ref().is_none_or(|new| new.carrier != old.carrier)) {
                    self.engine(engine::Delta::Beyond(none(&gone)));
                }
                if let Some(charge) = &charge {
                    self.engine(engine::Delta::Beyond(charge.clone()));
                }
            }
            let since = old.as_ref().and_then(|old| old.doubled);
            let waited = old.as_ref().is_some_and(Overrun::is_without_quota);
            let Some(found) = found else {
                self.let_wait(&object, waited, false);
                continue;
            };
            let [runs, held] = found.pods;
            let is_doubled = held > 0 && runs > held.saturating_mul(2);
            let doubled = is_doubled.then(|| since.unwrap_or(now));
            if doubled != since {
                self.touch(object.clone());
            }
            let crowded = old.as_ref().is_some_and(|old| old.crowded);
            let overrun = Overrun { charge, pods: found.pods, doubled, crowded };
            let waits = overrun.is_without_quota();
            self.quota.overruns.known.insert(object.clone(), overrun);
            self.let_wait(&object, waited, waits);
        }
        self.look_for_room();
    }

    /// Asks the engine anew whether the queues that are charged have room. Costs all usage beyond quota: nearly always nothing.
    fn look_for_room(&mut self) {
        let mut changed = Vec::new();
        for (object, overrun) in &mut self.quota.overruns.known {
            let Some(charge) = &overrun.charge else { continue };
            let crowded =
                charge.usage.iter().any(|(cell, _)| self.quota.world.is_overdrawn(&charge.cluster_queue, cell));
            if crowded != overrun.crowded {
                overrun.crowded = crowded;
                changed.push(object.clone());
            }
        }
        // Pods that were made larger may stay as long as there is room.
        for object in changed {
            self.touch_job_pods(&object.namespace);
            match object.kind {
                Kind::PodGroup => self.touch_members(&(object.namespace, object.name)),
                _ => self.touch(object),
            }
        }
    }

    /// Lets the Workloads of a job be tried, or keeps them from it, when its pods begin or cease to run without quota.
    fn let_wait(&mut self, object: &ObjectKey, waited: bool, waits: bool) {
        if waited == waits {
            return;
        }
        let uid = match object.kind {
            Kind::PodGroup => group_uid(&object.namespace, &object.name),
            _ => self.context().uid_of(object).unwrap_or_default(),
        };
        self.mirror_waiting_of(&uid);
        self.touch_owned_by(&uid);
    }

    /// Ends the charges of jobs that are gone, where no pod of them is left. Nearly always there is none.
    fn end_outlived(&mut self) {
        let workloads = &self.view.workloads;
        let has_ended = |uid: &&String| workloads.by_uid(uid).is_none() || self.remains.pods_are_gone(uid);
        let ended: Vec<String> = self.quota.overruns.outlived.keys().filter(has_ended).cloned().collect();
        for charge in ended.iter().filter_map(|uid| self.quota.overruns.outlived.remove(uid)).collect::<Vec<_>>() {
            self.engine(engine::Delta::Beyond(none(&charge)));
        }
    }
}

impl Context<'_> {
    /// Whether the queue of a Workload has room for the excess of its pods in a resource: it is charged with that already.
    pub(crate) fn has_room_for(&self, workload: &WorkloadView, resource: &str) -> bool {
        let known =
            workload.whole().and_then(|whole| self.quota.overruns.known.get(&whole)).filter(|known| !known.crowded);
        let charge = known.and_then(|known| known.charge.as_ref());
        charge.is_some_and(|charge| charge.usage.iter().any(|(cell, _)| cell.resource == resource))
    }

    /// Whether pods that ran beyond quota outlive their job: it is gone, and its Workload is kept until none of them is left.
    fn outlives(&self, object: &ObjectKey, charge: &BeyondSpec) -> bool {
        let workload = self.view.workloads.by_uid(&charge.carrier);
        let Some(workload) = workload.filter(|_| object.kind.is_admitted_with_pods()) else { return false };
        let owner = workload.owner.as_ref().map(|owner| &owner.uid);
        let is_gone = self.uid_of(object).is_none_or(|uid| owner.is_some_and(|owner| *owner != uid));
        is_gone && !self.remains.pods_are_gone(&workload.uid)
    }

    /// Whether the job of a Workload runs something beyond the quota that it holds, as far as is known.
    pub(crate) fn has_overrun(&self, workload: &WorkloadView) -> bool {
        let overruns = &self.quota.overruns;
        let is_known = || workload.whole().is_some_and(|whole| overruns.known.contains_key(&whole));
        overruns.outlived.contains_key(&workload.uid) || is_known()
    }

    /// Whether the job of a Workload runs pods without any quota: the Workload waits until they have ended, since a reservation in the meantime would
    /// hold twice as many.
    pub(crate) fn runs_without_quota(&self, workload: &WorkloadView) -> bool {
        workload
            .whole()
            .is_some_and(|whole| self.quota.overruns.known.get(&whole).is_some_and(Overrun::is_without_quota))
    }

    /// Running pods of a job, a single pod or a group, and their usage beyond quota.
    fn overrun_of(&self, object: &ObjectKey) -> Option<Found> {
        match object.kind {
            Kind::Pod => self.overrun_of_pod(&(object.namespace.clone(), object.name.clone())),
            Kind::PodGroup => self.overrun_of_group(&(object.namespace.clone(), object.name.clone())),
            Kind::TrainingJob => self.overrun_of_training(object),
            kind if kind.is_job() => self.overrun_of_job(object),
            _ => None,
        }
    }

    /// The ClusterQueue that is charged for running pods of a Workload's job: the one whose quota it holds, or waits for.
    fn charged_for(&self, workload: &WorkloadView) -> Option<String> {
        let held = workload.holds().filter(|queue| !queue.is_empty()).map(str::to_owned);
        held.or_else(|| self.charged_behind(&workload.local_queue()))
    }

    /// The ClusterQueue that is charged for pods that run without quota by a LocalQueue. A ClusterQueue that takes nothing of the namespace is not
    /// charged: a user who may make LocalQueues there could take its quota from others.
    fn charged_behind(&self, local: &Name) -> Option<String> {
        let queue = self.view.behind(local)?;
        let selector = self.view.cluster_queues.get(queue)?.spec.namespace_selector.as_ref()?;
        let selector = deltas::selector(selector).ok()?;
        deltas::matches(&selector, self.view.namespaces.get(&local.0)?).then(|| queue.to_owned())
    }

    /// The flavor of a queue in which pods that run without quota are charged.
    fn first_flavor(&self, queue: &str, resource: &str) -> Option<String> {
        let groups = &self.view.cluster_queues.get(queue)?.spec.resource_groups;
        let group = groups.iter().find(|group| group.covered_resources.iter().any(|covered| covered == resource))?;
        group.flavors.first().map(|flavor| flavor.name.clone())
    }
}
