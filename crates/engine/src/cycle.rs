//! One scheduling cycle (kueue.md 6.3, 6.6, 6.7): take the heads, nominate them, process them in order, put back the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::assignment::{Assignment, Given, Mode};
use crate::effects::Run;
use crate::ids::{ClassId, NodeId, QueueId, WorkloadId};
use crate::model::{Admission, Eviction, Millis, PendingReason, PodSetAssignment};
use crate::nominate::Nominator;
use crate::order::{Nominee, Tournament};
use crate::preempt::{Target, spare};
use crate::store::{Phase, Place, Progress};
use crate::tree::Trial;
use crate::why::{Finding, Said};
use crate::world::World;

/// Where a head goes after its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    Admitted,
    /// Parked with its class, or by itself where the gate for that is off.
    NoRoom,
    /// Back at once.
    Retry,
    /// Back at once, and it stays first while its victims leave.
    PendingPreemption,
    /// Parked by itself.
    Park,
    /// Parked until its namespace or queue changes.
    Mismatch,
}

pub(crate) struct Entry {
    pub(crate) queue: QueueId,
    pub(crate) workload: WorkloadId,
    pub(crate) assignment: Assignment,
    pub(crate) targets: Vec<Target>,
    pub(crate) requeue: Requeue,
    pub(crate) verdict: Option<Finding>,
}

/// The trees that take part in a plan, each with its queues that have heads.
pub(crate) type Lines = Vec<(NodeId, Vec<QueueId>)>;

/// What cycles did, for the plan.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) evictions: Vec<Eviction>,
    /// Last finding per workload, with the order in which they came.
    pub(crate) findings: FxHashMap<WorkloadId, Finding>,
    pub(crate) leading: Vec<WorkloadId>,
    /// How many heads were looked at.
    pub(crate) heads: u64,
    /// Roots where something moved in the last cycle, or a head had no turn.
    pub(crate) moved: BTreeSet<NodeId>,
    /// Roots where a head goes on with the next flavor, and how many flavors it has.
    pub(crate) scanning: BTreeMap<NodeId, usize>,
    /// What a class was given last, in words.
    pub(crate) given: FxHashMap<ClassId, (Vec<Given>, Arc<[PodSetAssignment]>)>,
    /// Heads that lost against others with their victims: skips per queue, for metrics.
    pub(crate) skipped_preemptions: BTreeMap<QueueId, u32>,
    /// Searches repeated because victims were taken already: queue and result.
    pub(crate) recomputed: BTreeMap<(QueueId, &'static str), u32>,
}

impl World {
    /// Runs one cycle over the heads of the lines. Admits at most `room` workloads.
    pub(crate) fn run_cycle(&mut self, now: Millis, room: usize, lines: &mut Lines, report: &mut Report) {
        self.cycle += 1;
        report.moved.clear();
        report.scanning.clear();
        let mut heads = Vec::new();
        for (_, queues) in lines {
            // A queue without heads gets none before the next plan.
            queues.retain(|queue| {
                let head = self.head(*queue);
                heads.extend(head.map(|workload| (*queue, workload)));
                head.is_some()
            });
        }
        let mut entries = Vec::with_capacity(heads.len());
        // Entries are large: what is sorted and passed on is where they are.
        let (mut open, mut done) = (Vec::with_capacity(heads.len()), Vec::with_capacity(heads.len()));
        for (queue, workload) in heads {
            report.heads += 1;
            let entry = match self.refusal(queue, workload) {
                Some((requeue, verdict)) => {
                    done.push(entries.len());
                    let (assignment, targets) = (Assignment::default(), Vec::new());
                    Some(Entry { queue, workload, assignment, targets, requeue, verdict: Some(verdict) })
                }
                None => {
                    let entry = self.nominate(queue, workload);
                    open.extend(entry.as_ref().map(|_| entries.len()));
                    entry
                }
            };
            entries.extend(entry);
        }
        let mut run = Run { victims: BTreeMap::new(), booked: Vec::new(), room: report.admissions.len() + room };
        if self.options.fair_sharing.is_some() {
            let heads = open.into_iter().filter_map(|at| {
                let entry: &Entry = entries.get(at)?;
                Some((at, self.nominee(entry, now), entry.queue, entry.assignment.usage.clone()))
            });
            let mut tournament = Tournament::new(&self.store, &self.tree, heads.collect());
            while let Some(at) = tournament.next(&self.store, &mut self.tree, &self.options.gates) {
                if let Some(entry) = entries.get_mut(at) {
                    self.process(entry, now, &mut run, report);
                }
                done.push(at);
            }
        } else {
            for at in self.in_order(open, &entries, now) {
                if let Some(entry) = entries.get_mut(at) {
                    self.process(entry, now, &mut run, report);
                }
                done.push(at);
            }
        }
        // What the cycle only kept free for others is given back in reverse order.
        for (queue, usage) in run.booked.into_iter().rev() {
            let node = self.store.queues[queue].node;
            self.tree.remove(node, &usage);
        }
        for at in done {
            if let Some(entry) = entries.get_mut(at) {
                self.put_back(entry, report);
            }
        }
    }

    /// The queues of the live trees that have heads, parked workloads woken where something changed.
    pub(crate) fn lines(&mut self) -> Lines {
        let mut lines = Vec::with_capacity(self.live.len());
        for root in self.live.clone() {
            let queues = Arc::clone(&self.tree.nodes[root].queues);
            let mut line = Vec::new();
            for queue in queues.iter().copied() {
                if self.store.queues[queue].active {
                    self.wake_queue(queue, root);
                    line.extend(Some(queue).filter(|queue| self.store.queues[*queue].pending.has_heads()));
                }
            }
            lines.push((root, line));
        }
        lines
    }

    /// Makes parked workloads active if something in the tree changed since.
    pub(crate) fn wake_queue(&mut self, queue: QueueId, root: NodeId) {
        let epoch = self.tree.nodes[root].epoch;
        let pending = &mut self.store.queues[queue].pending;
        if pending.epoch == epoch {
            return;
        }
        pending.epoch = epoch;
        let woken = pending.wake_classes();
        if !woken && pending.solo.is_empty() {
            return;
        }
        for workload in std::mem::take(&mut pending.solo) {
            if self.store.workload(workload).is_some_and(|known| self.is_selected(queue, known)) {
                self.push(queue, workload);
                continue;
            }
            if let Some(workload) = self.store.workload_mut(workload) {
                workload.phase = Phase::Pending(Place::Mismatched);
            }
            self.store.queues[queue].pending.mismatched.insert(workload);
        }
        self.changed_queues.insert(queue);
    }

    fn push(&mut self, queue: QueueId, id: WorkloadId) {
        let Some(workload) = self.store.workload_mut(id) else { return };
        workload.phase = Phase::Pending(Place::Class);
        let (class, key, local_queue) = (workload.class, workload.key(), workload.local_queue);
        let lane = self.lane(queue, local_queue);
        self.store.queues[queue].pending.push(class, lane, key, id);
    }

    /// The workload of a queue that is to be looked at next.
    fn head(&self, queue: QueueId) -> Option<WorkloadId> {
        let pending = &self.store.queues[queue].pending;
        let sticky = pending.sticky.filter(|id| {
            self.store.workload(*id).is_some_and(|workload| {
                matches!(workload.phase, Phase::Pending(Place::Class)) && pending.is_active(workload.class)
            })
        });
        self.first_in_line(queue, sticky)
    }

    /// Takes the head of a queue out of it.
    pub(crate) fn pop(&mut self, queue: QueueId) -> Option<WorkloadId> {
        let id = self.head(queue)?;
        self.take_out(queue, id, Place::InFlight);
        Some(id)
    }

    /// Takes a workload out of its class.
    pub(crate) fn take_out(&mut self, queue: QueueId, id: WorkloadId, place: Place) {
        let Some(workload) = self.store.workload_mut(id) else { return };
        let old = std::mem::replace(&mut workload.phase, Phase::Pending(place));
        if matches!(old, Phase::Pending(Place::Class)) {
            let (class, key, local_queue) = (workload.class, workload.key(), workload.local_queue);
            let lane = self.lane(queue, local_queue);
            self.store.queues[queue].pending.take(class, lane, key, id);
        }
    }

    /// Puts a workload back that was looked at, or leaves it where it is.
    fn stay(&mut self, queue: QueueId, id: WorkloadId) {
        match self.store.workload(id) {
            Some(workload) if matches!(workload.phase, Phase::Pending(Place::Class)) => {
                let class = workload.class;
                self.store.queues[queue].pending.stay(class, id);
            }
            _ => self.push(queue, id),
        }
    }

    /// The lane with the lowest usage goes first, in it the workload that waits for its victims.
    fn first_in_line(&self, queue: QueueId, sticky: Option<WorkloadId>) -> Option<WorkloadId> {
        let pending = &self.store.queues[queue].pending;
        if !self.has_lanes(queue) {
            return sticky.or_else(|| pending.heads().next().map(|(_, (_, id))| *id));
        }
        let sticky =
            sticky.and_then(|id| self.store.workload(id).map(|w| (self.lane(queue, w.local_queue), w.key(), id)));
        let heads = pending.heads().map(|(lane, (key, id))| (lane, key.clone(), *id, false));
        heads
            .chain(sticky.map(|(lane, key, id)| (lane, key, id, true)))
            .map(|(lane, key, id, is_sticky)| (self.usage_of_lane(lane), !is_sticky, key, id))
            .min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))))
            .map(|(.., id)| id)
    }

    fn nominate(&mut self, queue: QueueId, id: WorkloadId) -> Option<Entry> {
        let (cycle, generation) = (self.cycle, self.tree.nodes[self.store.queues[queue].node].generation);
        let progress = self.store.workload_mut(id)?.progress.take();
        let keeps = self.options.gates.preserve_scan_progress;
        let is_recent = |p: &Progress| keeps && cycle.saturating_sub(p.cycle) <= 1;
        let progress = progress.filter(|p| p.waits || is_recent(p) || generation <= p.generation);
        let (requeue, verdict) = (Requeue::Retry, None);
        if let Some(claim) = progress.as_deref().and_then(|progress| progress.claim.as_deref())
            && let Some((mut assignment, targets)) = self.nominate_claim(queue, id, claim)
        {
            assignment.progress = progress.map(|progress| *progress).unwrap_or_default();
            return Some(Entry { queue, workload: id, assignment, targets, requeue, verdict });
        }
        let gone = self.barred(id);
        let workload = self.store.workload(id)?;
        let mut nominator = Nominator { store: &self.store, tree: &mut self.tree, options: &self.options, gone: &gone };
        let (mut assignment, targets) = nominator.nominate(workload, queue, progress.as_deref(), None);
        assignment.progress.cycle = cycle;
        assignment.progress.generation = generation;
        Some(Entry { queue, workload: id, assignment, targets, requeue, verdict })
    }

    fn nominee(&self, entry: &Entry, now: Millis) -> Nominee {
        let Some(workload) = self.store.workload(entry.workload) else { return Nominee::default() };
        Nominee {
            uid: Arc::clone(&workload.uid),
            borrowing: entry.assignment.borrowing,
            preemptor: self.store.queues[entry.queue].pending.preemptor == Some(entry.workload),
            priority: workload.priority_at(now),
            queued_at: workload.queued_at,
        }
    }

    fn in_order(&self, open: Vec<usize>, entries: &[Entry], now: Millis) -> Vec<usize> {
        if open.len() < 2 {
            return open;
        }
        let keyed = open.into_iter().filter_map(|at| Some((self.nominee(entries.get(at)?, now), at)));
        let mut keyed: Vec<(Nominee, usize)> = keyed.collect();
        keyed.sort_unstable_by(|a, b| a.0.compare(&b.0, &self.options.gates));
        keyed.into_iter().map(|(_, at)| at).collect()
    }

    fn process(&mut self, entry: &mut Entry, now: Millis, run: &mut Run, report: &mut Report) {
        if report.admissions.len() >= run.room {
            // The plan is full: the head stays where it is, untouched, and its tree has its turn with the next plan.
            let progress = std::mem::take(&mut entry.assignment.progress);
            entry.assignment = Assignment { progress, ..Assignment::default() };
            report.moved.insert(self.tree.root(self.store.queues[entry.queue].node));
            return;
        }
        let fits = self.refresh(entry, run, report) && !self.would_close_a_circle(entry, run);
        let overlaps = entry.targets.iter().any(|target| run.victims.contains_key(&target.workload));
        let waiting = |said: Said| Some((PendingReason::WaitingForQuota, said));
        match entry.assignment.mode() {
            Mode::NoFit => {
                let reason = entry.assignment.no_fit.unwrap_or(PendingReason::NoMatchingFlavor);
                entry.requeue = Requeue::NoRoom;
                entry.verdict = Some((reason, entry.assignment.take_unfit(None)));
            }
            Mode::Preempt if entry.targets.is_empty() => {
                entry.requeue = Requeue::NoRoom;
                self.reserve(entry, run);
                self.refused_victims += u64::from(entry.assignment.breach.is_some());
                let refused = entry.assignment.breach.take().map(|breach| Said::Plainly(breach.text()));
                entry.verdict = waiting(refused.unwrap_or_else(|| entry.assignment.take_unfit(None)));
            }
            Mode::DeferredFit => {
                let text = "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete";
                entry.requeue = Requeue::PendingPreemption;
                entry.verdict = Some((PendingReason::WaitingForPreemptedWorkloads, Said::Plainly(text)));
                self.await_victims(entry, run);
                self.book(entry.queue, entry.assignment.usage.clone(), run);
            }
            mode if overlaps || !fits => {
                entry.verdict = waiting(Said::Plainly(if overlaps {
                    "Workload has overlapping preemption targets with another workload"
                } else {
                    "Workload no longer fits after processing another workload"
                }));
                if mode == Mode::Preempt {
                    *report.skipped_preemptions.entry(entry.queue).or_default() += 1;
                }
            }
            Mode::Preempt => {
                let count = entry.targets.len();
                self.book(entry.queue, entry.assignment.usage.clone(), run);
                self.evict(entry, run, report);
                entry.requeue = Requeue::PendingPreemption;
                self.await_victims(entry, run);
                let unfit = entry.assignment.take_unfit(Some(count));
                entry.verdict = Some((PendingReason::WaitingForPreemptedWorkloads, unfit));
            }
            Mode::Fit => {
                entry.requeue = Requeue::Admitted;
                self.admit(entry, now, report);
            }
        }
    }

    /// Whether the entry still fits when its victims and all earlier ones are gone; when its victims are taken already,
    /// looks for others with the flavors held fixed, but for one that only waits for those who are leaving for it.
    fn refresh(&mut self, entry: &mut Entry, run: &Run, report: &mut Report) -> bool {
        let overlaps = entry.targets.iter().any(|target| run.victims.contains_key(&target.workload));
        if overlaps && entry.assignment.held_to == Some(Mode::Preempt) {
            entry.targets.retain(|target| !run.victims.contains_key(&target.workload));
            if self.fits_without(entry, run) {
                if entry.targets.is_empty() {
                    entry.assignment.held_to = Some(Mode::DeferredFit);
                }
                return true;
            }
        }
        if !overlaps || !self.options.gates.recompute_overlap {
            return self.fits_without(entry, run);
        }
        let pins = entry.assignment.pins();
        let mut gone = self.barred(entry.workload);
        gone.extend(run.victims.keys());
        let mut trial = Trial::new(&mut self.tree);
        for victim in run.victims.values() {
            spare::leave(&self.store, &mut trial, victim, true);
        }
        let Some(workload) = self.store.workload(entry.workload) else { return false };
        let mut nominator =
            Nominator { store: &self.store, tree: trial.tree_mut(), options: &self.options, gone: &gone };
        let (mut assignment, targets) = nominator.nominate(workload, entry.queue, None, Some(&pins));
        drop(trial);
        assignment.held_to = (assignment.mode() == Mode::Fit).then_some(Mode::DeferredFit);
        assignment.progress = std::mem::take(&mut entry.assignment.progress);
        report.recomputed(entry.queue, assignment.mode(), targets.is_empty());
        entry.assignment = assignment;
        entry.targets = targets;
        self.fits_without(entry, run)
    }

    /// Whether a victim became one it must not preempt: it was looked for before the evictions of this cycle.
    fn would_close_a_circle(&self, entry: &Entry, run: &Run) -> bool {
        if run.victims.is_empty() || entry.targets.is_empty() || entry.assignment.held_to.is_some() {
            return false;
        }
        let barred = self.barred(entry.workload);
        entry.targets.iter().any(|target| barred.contains(&target.workload))
    }

    fn fits_without(&mut self, entry: &Entry, run: &Run) -> bool {
        let node = self.store.queues[entry.queue].node;
        let mut trial = Trial::new(&mut self.tree);
        let own = entry.targets.iter().filter(|target| !run.victims.contains_key(&target.workload));
        for victim in run.victims.values().chain(own) {
            spare::leave(&self.store, &mut trial, victim, true);
        }
        if !trial.tree().fits(node, &entry.assignment.usage) {
            return false;
        }
        if run.victims.is_empty() || entry.assignment.mode() != Mode::Fit {
            return true;
        }
        // Victims hold their quota until they have left: what is admitted now must fit beside them.
        drop(trial);
        let mut trial = Trial::new(&mut self.tree);
        for (queue, usage) in &run.booked {
            trial.remove(self.store.queues[*queue].node, usage);
        }
        trial.tree().fits(node, &entry.assignment.usage)
    }

    pub(crate) fn put_back(&mut self, entry: &mut Entry, report: &mut Report) {
        if entry.requeue == Requeue::Admitted {
            report.findings.remove(&entry.workload);
            return;
        }
        let Entry { queue, workload: id, assignment, requeue, verdict, .. } = entry;
        let (queue, id, requeue, verdict) = (*queue, *id, *requeue, verdict.take());
        let root = self.tree.root(self.store.queues[queue].node);
        let is_strict = self.store.queues[queue].is_strict();
        let Some(workload) = self.store.workload_mut(id) else { return };
        let class = workload.class;
        // A scan that began behind the first flavor says nothing about those before it: scan them all before parking.
        let missed = assignment.resumed && requeue == Requeue::NoRoom;
        if requeue == Requeue::Retry && !assignment.progress.waits && !self.options.gates.preserve_scan_progress {
            // It was passed over for somebody else's sake.
            assignment.progress = Progress::default();
        }
        let has_pending_flavors = assignment.has_pending_flavors() || missed;
        let keeps = !missed && (has_pending_flavors || assignment.progress.waits);
        workload.progress = keeps.then(|| Box::new(assignment.take_progress()));
        let stays = has_pending_flavors
            || match requeue {
                Requeue::Retry | Requeue::PendingPreemption => true,
                Requeue::NoRoom | Requeue::Park => is_strict,
                Requeue::Admitted | Requeue::Mismatch => false,
            };
        match requeue {
            _ if stays => {
                self.stay(queue, id);
                if has_pending_flavors {
                    let flavors = self.store.queues[queue].groups.iter().map(|group| group.flavors.len()).max();
                    report.scanning.insert(root, flavors.unwrap_or(0) + 1);
                }
            }
            Requeue::NoRoom if self.options.gates.park_equals => {
                self.stay(queue, id);
                let reason = verdict.as_ref().map_or(PendingReason::WaitingForQuota, |(reason, _)| *reason);
                // One by one: appending a whole set would rebuild all notices, whoever they are for.
                let told = self.store.queues[queue].pending.park(class, reason);
                self.notices.extend(told.into_iter().filter(|told| *told != id));
                report.moved.insert(root);
            }
            Requeue::Mismatch => self.set_aside(queue, id, Place::Mismatched, root, report),
            _ => self.set_aside(queue, id, Place::Solo, root, report),
        }
        if requeue == Requeue::PendingPreemption {
            let pending = &mut self.store.queues[queue].pending;
            pending.preemptor = Some(id);
            if !is_strict {
                pending.sticky = Some(id);
            }
        }
        self.changed_queues.insert(queue);
        if let Some(finding) = verdict {
            report.findings.insert(id, finding);
            report.leading.push(id);
        }
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
