//! The place where a head waits after its scheduling cycle.

use crate::cycle::entry::Entry;
use crate::cycle::outcome::Requeue;
use crate::cycle::report::Report;
use crate::model::PendingReason;
use crate::options::profile::Departure;
use crate::world::World;
use crate::world::ids::{ClassId, NodeId, QueueId, WorkloadId};
use crate::world::store::{Phase, Place, UNSURE};

/// The state of a head's scan over flavors at the end of a scheduling cycle.
struct ScanEnd {
    class: ClassId,
    /// True if there are flavors that the next scan can try at once.
    goes_on: bool,
    /// Largest number of scans over flavors in one round of scans of the head.
    most: usize,
}

impl World {
    /// Puts a head that was not admitted into the place where it waits for its next scheduling cycle, and keeps the reason why it was not admitted.
    pub(crate) fn put_back(&mut self, entry: &mut Entry, report: &mut Report) {
        if entry.requeue == Requeue::Admitted {
            report.findings.remove(&entry.workload);
            return;
        }
        let waits = self.is_waiting(entry);
        let Some(scan) = self.end_scan(entry) else { return };
        let (queue, id, requeue, verdict) = (entry.queue, entry.workload, entry.requeue, entry.verdict.take());
        let is_strict = self.store.queues[queue].is_strict();
        let stays = scan.goes_on
            || match requeue {
                Requeue::Retry | Requeue::PendingPreemption => true,
                Requeue::NoRoom | Requeue::Park => is_strict,
                Requeue::Admitted | Requeue::Mismatch => false,
            };
        if stays {
            self.stay(queue, id);
            let root = self.tree.root(self.store.queues[queue].node);
            if scan.goes_on {
                // A round of scans that began behind the first flavor is followed by one more round over all flavors, so the bound is two rounds of scans.
                let rounds = scan.most.saturating_mul(2).saturating_add(1);
                let known = report.scanning.entry(root).or_default();
                *known = rounds.max(*known);
            }
            // Workloads behind the head may not use quota that a preemptor had freed for itself.
            if !is_strict && !waits && requeue != Requeue::PendingPreemption {
                report.held_up.entry(root).or_default().push((queue, id));
            }
        } else {
            let reason = verdict.as_ref().map_or(PendingReason::WaitingForQuota, |(reason, _)| *reason);
            self.park((queue, id), (requeue, reason), scan.class, report);
        }
        if requeue == Requeue::PendingPreemption {
            let pending = &mut self.store.queues[queue].pending;
            pending.preemptor = Some(id);
            // In a strict queue no workload goes before the order of the queue, not even a workload that was first before the queue became strict.
            pending.sticky = (!is_strict).then_some(id);
        }
        self.changed_queues.insert(queue);
        if let Some(finding) = verdict {
            report.findings.insert(id, finding);
            report.leading.push(id);
        }
    }

    /// Keeps the progress of a head's scan over flavors for its next scan. Returns `None` if the head's workload does not exist.
    fn end_scan(&mut self, entry: &mut Entry) -> Option<ScanEnd> {
        let Entry { queue, workload: id, assignment, requeue, scans_anew, .. } = entry;
        if *scans_anew {
            assignment.forget_progress();
        }
        let queue = &self.store.queues[*queue];
        let epoch = self.tree.nodes[self.tree.root(queue.node)].epoch;
        if *requeue != Requeue::NoRoom {
            assignment.progress.began = UNSURE;
        }
        let (began, scans) = (assignment.progress.began, assignment.progress.scans);
        let class = self.store.workload(*id)?.class;
        let most = queue.most_scans(self.store.classes[class].pod_sets.len());
        // Scans over several resource groups end after as many scans as there are combinations of flavors.
        // Without FlavorFungibility no scan continues an earlier scan, whatever progress is recorded.
        let is_over = !self.options.gates.flavor_fungibility || scans >= most;
        let goes_on = assignment.has_pending_flavors() && !(is_over && self.options.profile.has(Departure::ScansEnd));
        // A scan that began behind the first flavor has not seen quota of earlier flavors that has become free. A head whose last scan began behind the first
        // flavor scans all flavors before it is parked.
        let resumed =
            self.options.profile.has(Departure::ScanStartsOver) && assignment.resumed && *requeue == Requeue::NoRoom;
        let missed = resumed && !goes_on && began != epoch;
        let keeps = !missed && (goes_on || assignment.progress.waits);
        if let Some(workload) = self.store.workload_mut(*id) {
            workload.progress = keeps.then(|| Box::new(assignment.take_progress()));
        }
        Some(ScanEnd { class, goes_on: goes_on || missed, most })
    }

    /// Parks a head until something changes in its cohort tree, its namespace or its queue.
    fn park(
        &mut self,
        (queue, id): (QueueId, WorkloadId),
        (requeue, reason): (Requeue, PendingReason),
        class: ClassId,
        report: &mut Report,
    ) {
        let root = self.tree.root(self.store.queues[queue].node);
        match requeue {
            Requeue::NoRoom if self.options.gates.park_equals => {
                // The other members of the head's class of equals get their verdict at the end of the plan; the head has a verdict already.
                if self.class_it_waits_in(id).is_none() {
                    self.push(queue, id);
                }
                // The workloads are added one by one to `World::notices`, because appending a set would rebuild the set.
                let equals = self.store.queues[queue].pending.park(class, reason);
                if self.is_fickle(queue, class) {
                    self.store.queues[queue].pending.fickle.insert(class);
                }
                self.notices.extend(equals.into_iter().filter(|equals| *equals != id));
                report.moved.insert(root);
            }
            Requeue::Mismatch => self.set_aside(queue, id, Place::Mismatched, root, report),
            _ => self.set_aside(queue, id, Place::Solo, root, report),
        }
    }

    /// Returns a head to its class of equals, if it was taken out of the class.
    fn stay(&mut self, queue: QueueId, id: WorkloadId) {
        match self.class_it_waits_in(id) {
            Some(class) => self.store.queues[queue].pending.stay(class, id),
            None => self.push(queue, id),
        }
    }

    fn class_it_waits_in(&self, id: WorkloadId) -> Option<ClassId> {
        let workload = self.store.workload(id)?;
        matches!(workload.phase, Phase::Pending(Place::Class)).then_some(workload.class)
    }

    fn set_aside(&mut self, queue: QueueId, id: WorkloadId, place: Place, root: NodeId, report: &mut Report) {
        self.take_out(queue, id, place);
        let pending = &mut self.store.queues[queue].pending;
        if place == Place::Mismatched {
            pending.mismatched.insert(id);
        } else {
            pending.solo.insert(id);
        }
        report.moved.insert(root);
    }
}
