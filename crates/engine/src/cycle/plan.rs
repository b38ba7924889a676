//! Planning: scheduling cycles run back to back in memory until no head is left to try.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assign::mode::Mode;
use crate::cycle::aside::Aside;
use crate::cycle::nominate::Nominator;
use crate::cycle::report::Report;
use crate::explain::why::Message;
use crate::model::{ClusterQueueSpec, Fungibility, Limits, Millis, PendingReason, Plan, Verdict};
use crate::options::profile::Departure;
use crate::world::World;
use crate::world::ids::{ClassId, NodeId, QueueId, WorkloadId};
use crate::world::store::{Phase, Place, PodSet};

impl World {
    /// Runs cycles until no head can change its place any more or the limit of admissions is reached. Quota of planned admissions is charged at once. Cost of
    /// `plan`: for each head that is tried, and for each parked class of equals that new admissions may let fit, a scan over the flavors; with fair sharing,
    /// also the number of heads of the cohort tree for each head. Besides, a plan visits the ClusterQueues and parked classes of equals of cohort trees that
    /// changed, the workloads whose back-off is over or whose reason to wait is new, the workloads that hold quota of a ClusterQueue with a protected time, and
    /// the ledgers that [`World::settle`] updates.
    pub fn plan(&mut self, now: Millis, limits: Limits) -> Plan {
        self.plan_cycles(now, limits, u64::MAX)
    }

    /// Plans like [`World::plan`], with at most `cycles` cycles. Cost of `plan_cycles`: as for [`World::plan`], with at most one head of each ClusterQueue in a
    /// cycle.
    pub fn plan_cycles(&mut self, now: Millis, limits: Limits, cycles: u64) -> Plan {
        self.release_timers(now);
        self.release_stock(now);
        self.release_protected(now);
        self.settle(now);
        // Cohort trees may have been joined since they were marked as live.
        self.live = self.live.iter().map(|node| self.tree.root(*node)).collect();
        let mut report = Report::default();
        let mut done: u64 = 0;
        // Number of cycles in a row in which a cohort tree only continued to scan flavors.
        let mut idle: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut aside = Aside::default();
        let mut lines = self.lines();
        while done < cycles && report.admissions.len() < limits.max_admissions {
            if self.live.is_empty() {
                if !self.rouse_fickle() {
                    break;
                }
                idle.clear();
                lines = self.lines();
            }
            let room = limits.max_admissions.saturating_sub(report.admissions.len());
            self.run_cycle(now, room, &mut lines, &mut report);
            done = done.saturating_add(1);
            let mut stalled = Vec::new();
            for root in &self.live {
                if report.moved.contains(root) {
                    idle.remove(root);
                    aside.note_move(*root);
                    continue;
                }
                let scans = idle.entry(*root).or_default();
                *scans = scans.saturating_add(1);
                if report.scanning.get(root).is_none_or(|bound| *scans > *bound) {
                    stalled.push(*root);
                }
            }
            for root in stalled {
                idle.remove(&root);
                if self.call_back(root, &mut aside) {
                    lines = self.lines();
                } else if !self.send_aside(root, &report, &mut aside) {
                    self.live.remove(&root);
                }
            }
            lines.retain(|(root, _)| self.live.contains(root));
        }
        self.call_all_back(aside);
        // A debug build panics if a search chose victims that break a rule.
        debug_assert_eq!(self.refused_victims, 0, "chosen victims broke a rule: {:?}", report.findings);
        let verdicts = self.collect_verdicts(&mut report);
        let skipped = std::mem::take(&mut report.skipped_preemptions);
        let name =
            |(queue, count): (crate::world::ids::QueueId, u32)| (self.store.queues[queue].name.to_string(), count);
        let recomputed = std::mem::take(&mut report.recomputed);
        let by_result = |((queue, result), count): ((crate::world::ids::QueueId, &'static str), u32)| {
            ((self.store.queues[queue].name.to_string(), result), count)
        };
        Plan {
            recomputed_targets: recomputed.into_iter().map(by_result).collect(),
            skipped_preemptions: skipped.into_iter().map(name).collect(),
            more: self.live.iter().any(|root| self.has_heads(*root)) || self.has_stirred(),
            admissions: report.admissions,
            evictions: report.evictions,
            verdicts,
            wake_at: self.wake_at(),
            cycles: done,
            heads: report.heads,
        }
    }

    fn wake_at(&self) -> Option<Millis> {
        let timer = self.timers.first().map(|(time, _)| *time);
        let stock = self.store.stock_outs.next_end();
        [timer, self.next_settlement(), stock, self.next_unprotected()].into_iter().flatten().min()
    }

    fn has_heads(&self, root: NodeId) -> bool {
        self.tree.nodes[root].queues.iter().any(|queue| {
            let queue = &self.store.queues[*queue];
            let is_stale = queue.pending.epoch != self.tree.nodes[root].epoch;
            queue.active && (queue.pending.has_heads() || (is_stale && queue.pending.total > 0))
        })
    }

    pub(crate) fn release_timers(&mut self, now: Millis) {
        while let Some((time, id)) = self.timers.first().copied().filter(|(time, _)| *time <= now) {
            self.timers.remove(&(time, id));
            self.unplace(id);
            if let Some(workload) = self.store.workload_mut(id) {
                workload.not_before = None;
            }
            self.place(id);
        }
    }

    fn collect_verdicts(&mut self, report: &mut Report) -> Vec<Verdict> {
        let mut verdicts = self.verdicts_of_heads(report);
        for id in std::mem::take(&mut self.notices) {
            let Some((reason, message)) = self.lasting_verdict(id) else { continue };
            verdicts.extend(self.verdict(id, reason, message, false));
        }
        verdicts
    }

    /// The verdicts on the heads that were not admitted.
    pub(crate) fn verdicts_of_heads(&mut self, report: &mut Report) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(report.findings.len());
        // Heads of one cohort tree often lose for the same reason, so the text of the reason is made once.
        let mut last: Option<(Message, Arc<[PodSet]>, Arc<str>)> = None;
        for id in std::mem::take(&mut report.leading) {
            let Some((reason, content)) = report.findings.remove(&id) else { continue };
            let Some(workload) = self.store.workload(id) else { continue };
            let pod_sets = &self.store.classes[workload.class].pod_sets;
            let message = match last {
                Some((ref known, ref names, ref words))
                    if *known == content && names_of(names).eq(names_of(pod_sets)) =>
                {
                    Arc::clone(words)
                }
                _ => {
                    let name = |at: usize| pod_sets.get(at).map_or("", |pod_set| pod_set.spec.name.as_str());
                    let words = Arc::from(content.text(&self.store, name));
                    last = Some((content, Arc::clone(pod_sets), Arc::clone(&words)));
                    words
                }
            };
            self.note_verdict_of_equals(id, reason, &message);
            verdicts.extend(self.verdict(id, reason, message, true));
        }
        verdicts
    }

    /// Keeps a workload's message for its class of equals, if the class is parked because of this workload: requests and numbers are the same for all members.
    /// A closed preemption gate concerns one workload alone, so its message is not kept for the workload's class of equals.
    fn note_verdict_of_equals(&mut self, id: WorkloadId, reason: PendingReason, message: &Arc<str>) {
        let is_of_all =
            self.options.profile.has(Departure::EqualsGetReasons) && reason != PendingReason::AdmissionGated;
        let Some(workload) = self.store.workload(id).filter(|_| is_of_all) else { return };
        let (class, queue) = (workload.class, self.store.local_queues[workload.local_queue].queue);
        if let (Phase::Pending(Place::Class), Some(queue)) = (&workload.phase, queue) {
            self.store.queues[queue].pending.note_verdict_of_equals(class, reason, message);
        }
    }

    fn verdict(&mut self, id: WorkloadId, reason: PendingReason, message: Arc<str>, leading: bool) -> Option<Verdict> {
        let workload = self.store.workload_mut(id)?;
        workload.verdict = Some((reason, Arc::clone(&message)));
        Some(Verdict { uid: Arc::clone(&workload.uid), reason, message, leading })
    }

    /// A self-check: counts parked workloads (a class of equals counts once) that would fit although nothing woke them, and wakes them. In a correct engine the
    /// self-check finds no workload. Cost of `sweep`: the number of all ClusterQueues, of the workloads whose back-off is over and of the workloads that hold
    /// quota of a ClusterQueue with a protected time, and a scan over the flavors for each class of equals or single workload that is parked.
    pub fn sweep(&mut self, now: Millis) -> usize {
        self.release_timers(now);
        self.release_stock(now);
        self.release_protected(now);
        let mut found: usize = 0;
        for queue in self.store.queues.ids() {
            let root = self.tree.root(self.store.queues[queue].node);
            let is_stale = self.store.queues[queue].pending.epoch != self.tree.nodes[root].epoch;
            let is_full = self.store.queues[queue].reached_limit().is_some();
            if !self.store.queues[queue].active || is_stale || is_full {
                continue;
            }
            let pending = &self.store.queues[queue].pending;
            let parked = pending.classes.values().filter(|class| class.parked.is_some());
            let mut suspects: Vec<WorkloadId> = parked
                .filter_map(|class| class.members().map(|(_, id)| *id).find(|id| !self.is_refused(*id)))
                .collect();
            suspects.extend(pending.solo.iter().filter(|id| !self.asks_topology(**id) && !self.is_refused(**id)));
            for id in suspects {
                if self.would_fit(queue, id) {
                    found = found.saturating_add(1);
                    self.rouse(queue, id);
                    self.live.insert(root);
                }
            }
        }
        found
    }

    /// Whether a class of equals can come to fit because other workloads were admitted. Parked classes of equals of two kinds can come to fit because other
    /// workloads were admitted. In classes of equals of the first kind, the pod sets of a workload compete for flavors: if the first flavor is full, one pod
    /// set takes the next flavor and leaves the first flavor to another pod set. In classes of equals of the second kind, the scan of a workload goes past a
    /// flavor that fits by borrowing to a flavor that needs preemption, until the flavor that needs preemption is too full even for preemption.
    pub(crate) fn is_fickle(&self, queue: QueueId, class: ClassId) -> bool {
        let of_queue = &self.store.queues[queue];
        let scans_on = |spec: &ClusterQueueSpec| spec.fungibility.when_can_borrow == Fungibility::TryNextFlavor;
        self.options.profile.has(Departure::TriedAgainAfterAdmissions)
            && (self.store.classes[class].pod_sets.len() > 1 || of_queue.spec.as_ref().is_some_and(scans_on))
            && of_queue.groups.iter().any(|group| group.flavors.len() > 1)
    }

    /// Whether a cohort tree with new admissions has parked classes of equals that may fit because other workloads were admitted ([`Self::is_fickle`]).
    fn has_stirred(&self) -> bool {
        let queues = self.stirred.iter().flat_map(|root| self.tree.nodes[self.tree.root(*root)].queues.iter());
        queues.copied().any(|queue| !self.store.queues[queue].pending.fickle.is_empty())
    }

    /// Wakes parked classes of equals that other admissions have let fit ([`Self::is_fickle`]); returns true if there are any. The cost of `rouse_fickle` is
    /// the number of parked classes of equals that other admissions may let fit, in cohort trees where a workload was admitted.
    fn rouse_fickle(&mut self) -> bool {
        let mut roused = false;
        for root in std::mem::take(&mut self.stirred) {
            let root = self.tree.root(root);
            for queue in Arc::clone(&self.tree.nodes[root].queues).iter().copied() {
                if !self.store.queues[queue].active || self.store.queues[queue].reached_limit().is_some() {
                    continue;
                }
                let pending = &self.store.queues[queue].pending;
                let classes = pending.fickle.iter().filter_map(|class| pending.classes.get(class));
                let firsts =
                    classes.filter_map(|class| class.members().map(|(_, id)| *id).find(|id| !self.is_refused(*id)));
                for id in firsts.collect::<Vec<_>>() {
                    if self.would_fit(queue, id) {
                        self.rouse(queue, id);
                        self.live.insert(root);
                        roused = true;
                    }
                }
            }
        }
        roused
    }

    fn is_refused(&self, id: WorkloadId) -> bool {
        self.store.workload(id).is_some_and(|workload| {
            workload.refused.is_some() || workload.checks_failed || self.lacks_namespace(workload)
        })
    }

    fn asks_topology(&self, id: WorkloadId) -> bool {
        let class = self.store.workload(id).map(|workload| &self.store.classes[workload.class]);
        class.is_some_and(|class| class.pod_sets.iter().any(|pod_set| pod_set.spec.topology_request))
    }

    fn would_fit(&mut self, queue: QueueId, id: WorkloadId) -> bool {
        let gone = std::collections::BTreeSet::new();
        let Some(workload) = self.store.workload(id) else { return false };
        let mut nominator = Nominator { store: &self.store, tree: &mut self.tree, options: &self.options, gone: &gone };
        nominator.assign(workload, queue, None, None, None).mode() == Mode::Fit
    }

    fn rouse(&mut self, queue: QueueId, id: WorkloadId) {
        let Some(workload) = self.store.workload_mut(id) else { return };
        let (class, key, local_queue) = (workload.class, workload.key(), workload.local_queue);
        let is_solo = matches!(workload.phase, Phase::Pending(Place::Solo));
        workload.phase = Phase::Pending(Place::Class);
        let lane = self.lane(queue, local_queue);
        let pending = &mut self.store.queues[queue].pending;
        if is_solo {
            pending.solo.remove(&id);
            pending.push(class, lane, key, id);
        }
        pending.wake_class(class);
    }
}

fn names_of(pod_sets: &[PodSet]) -> impl Iterator<Item = &str> {
    pod_sets.iter().map(|pod_set| pod_set.spec.name.as_str())
}
