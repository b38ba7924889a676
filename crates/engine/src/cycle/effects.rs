//! Effects of a decision on the quota: usage that is reserved for the rest of the cycle, evictions, admissions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::assign::assignment::Assignment;
use crate::assign::mode::Mode;
use crate::cycle::entry::Entry;
use crate::cycle::report::Report;
use crate::cycle::run::Run;
use crate::model::{Admission, Eviction, Millis, PreemptionPolicy};
use crate::options::profile::Departure;
use crate::preempt::ask::Target;
use crate::quota::balance::{INF, Units, Usage, accumulate, plus};
use crate::world::World;
use crate::world::ids::QueueId;
use crate::world::store::{Held, Place};

impl World {
    /// Reserves usage of a queue for the rest of the cycle.
    fn assume(&mut self, queue: QueueId, usage: Usage, run: &mut Run) {
        let node = self.store.queues[queue].node;
        self.tree.add(node, &usage);
        run.assumed.push((queue, usage));
    }

    /// Keeps quota from later heads for a head that needs preemption but finds no victims, if its queue cannot always reclaim its quota or the head waits for
    /// its victims.
    pub(crate) fn reserve(&mut self, entry: &Entry, run: &mut Run) {
        let queue = &self.store.queues[entry.queue];
        let can_always_reclaim =
            queue.spec.as_ref().is_some_and(|spec| spec.preemption.reclaim_within_cohort == PreemptionPolicy::Any);
        let waits = self.options.gates.prioritize_preemptors && self.is_waiting(entry);
        if !can_always_reclaim || waits {
            self.keep(entry, run);
        }
    }

    /// Keeps quota from later heads for a head that is not admitted yet.
    pub(crate) fn keep(&mut self, entry: &Entry, run: &mut Run) {
        let usage = self.kept(entry.queue, &entry.assignment, &entry.targets);
        self.assume(entry.queue, usage, run);
    }

    /// Usage that is kept for a head: its full usage, or only the part within its queue's limits if the head needs preemption and has no victims.
    pub(crate) fn kept(&self, queue: QueueId, assignment: &Assignment, targets: &[Target]) -> Usage {
        if assignment.mode() != Mode::Preempt || !targets.is_empty() {
            return assignment.usage.clone();
        }
        let node = self.store.queues[queue].node;
        let reserved = |(key, value): &(crate::world::ids::CellId, i128)| {
            let cell = self.tree.cell(node, *key);
            let bound = match (assignment.borrowing > 0, cell.borrowing_limit) {
                (true, INF) => *value,
                (true, limit) => plus(cell.nominal, limit).saturating_sub(cell.usage),
                (false, _) => cell.nominal.saturating_sub(cell.usage),
            };
            // For a head that borrows, the kept amount is negative if the queue is above its borrowing limit; cohorts do not count a negative amount, only the
            // queue does.
            let least = if assignment.borrowing > 0 { Units::MIN } else { 0 };
            (*key, (*value).min(bound).max(least))
        };
        assignment.usage.iter().map(reserved).collect()
    }

    pub(crate) fn evict(&mut self, entry: &Entry, run: &mut Run, report: &mut Report) {
        let preemptor_path = self.tree.path(self.store.queues[entry.queue].node);
        let Some(preemptor) = self.store.workload(entry.workload).map(|workload| Arc::clone(&workload.uid)) else {
            return;
        };
        for target in &entry.targets {
            run.victims.insert(target.workload, *target);
            let held = self.store.workload(target.workload).and_then(|victim| victim.held());
            let Some(queue) = held.map(|held| held.queue) else { continue };
            let is_news = match target.gives_up {
                Some(pods) => self.store.set_giving(target.workload, pods),
                None => self.store.set_evicted(target.workload, true),
            };
            if !is_news {
                continue;
            }
            if target.gives_up.is_none() {
                self.store.set_evicted_for(target.workload, Some(&preemptor));
            }
            let root = self.tree.root(self.store.queues[queue].node);
            if target.gives_up.is_none() && self.options.profile.has(Departure::NoEvictionCircles) {
                self.store.eviction_history.note(root, entry.workload, target.workload);
            }
            report.moved.insert(root);
            report.evictions.extend(self.eviction(&preemptor, &preemptor_path, target));
        }
    }

    /// The eviction of a target as an [`Eviction`], with the paths of both queues; `None` if the target holds no quota.
    pub(crate) fn eviction(&self, preemptor: &str, preemptor_path: &str, target: &Target) -> Option<Eviction> {
        let victim = self.store.workload(target.workload)?;
        let node = self.store.queues[victim.held()?.queue].node;
        Some(Eviction {
            uid: victim.uid.to_string(),
            preemptor: preemptor.to_owned(),
            reason: target.reason,
            preemptor_path: preemptor_path.to_owned(),
            preemptee_path: self.tree.path(node),
            gives_up: target.gives_up,
        })
    }

    pub(crate) fn admit(&mut self, entry: &mut Entry, now: Millis, report: &mut Report) {
        self.take_out(entry.queue, entry.workload, Place::InFlight);
        let queue = &mut self.store.queues[entry.queue];
        queue.pending.total = queue.pending.total.saturating_sub(1);
        queue.pending.forget_preemptor(entry.workload);
        let cluster_queue = Arc::clone(&queue.name);
        let node = queue.node;
        let Some(workload) = self.store.workload(entry.workload) else { return };
        let (uid, local_queue, class) = (Arc::clone(&workload.uid), workload.local_queue, workload.class);
        let asked = &self.store.classes[class].pod_sets;
        let pod_sets = match report.given.get(&class) {
            Some((known, pod_sets)) if entry.assignment.gives_as(known) => Arc::clone(pod_sets),
            _ => {
                let pod_sets = entry.assignment.given(&self.store, asked);
                report.given.insert(class, (entry.assignment.given_ids(), Arc::clone(&pod_sets)));
                pod_sets
            }
        };
        let flavors_considered = entry.assignment.considered(&self.store, asked);
        // An admission check for all flavors does not apply to a workload that is given no flavors.
        let applies = |flavors: &BTreeSet<String>| {
            pod_sets.iter().any(|set| set.flavors.values().any(|f| flavors.is_empty() || flavors.contains(f)))
        };
        let checks = self.store.queues[entry.queue].spec.iter().flat_map(|spec| &spec.admission_checks);
        let admission_checks: Vec<String> =
            checks.filter(|(_, flavors)| applies(flavors)).map(|(name, _)| name.clone()).collect();
        let admitted = admission_checks.is_empty();
        let counts = self.store.counts_given(class, &pod_sets);
        report.admissions.push(Admission { uid, cluster_queue, admission_checks, flavors_considered, pod_sets });
        report.moved.insert(self.tree.root(node));
        self.stirred.insert(self.tree.root(node));
        self.store.local_queues[local_queue].pending.remove(&entry.workload);
        let usage = std::mem::take(&mut entry.assignment.usage);
        let usage = if self.store.classes[class].replaces.is_some() { self.full_usage(entry) } else { usage };
        self.hold(
            entry.workload,
            Held {
                queue: entry.queue,
                usage,
                full_usage: None,
                counts,
                at: now,
                saved: None,
                admitted,
                evicted: false,
                kept: false,
                evicted_for: None,
                assumed: true,
                spare: None,
                giving: 0,
            },
        );
    }

    /// Full usage of a head whose `assignment.usage` is only the part that its old workload slice does not hold yet.
    fn full_usage(&self, entry: &Entry) -> Usage {
        let mut full_usage = Usage::new();
        for (resource, flavor, value) in entry.assignment.pod_sets.iter().flat_map(|pod_set| pod_set.given()) {
            if let Some(cell) = self.store.find_cell(flavor, resource) {
                accumulate(&mut full_usage, cell, value);
            }
        }
        full_usage
    }
}
