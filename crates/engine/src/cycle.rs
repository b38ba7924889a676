//! A scheduling cycle, in Kueue's steps: take the heads out of their queues, nominate the heads, process them in order, and return the heads that were not
//! admitted to their queues.

mod aside;
mod back;
mod claims;
mod effects;
pub(crate) mod entry;
pub(crate) mod issued;
pub(crate) mod nominate;
pub(crate) mod order;
pub(crate) mod outcome;
mod plan;
mod refresh;
mod refusal;
pub(crate) mod report;
mod run;
mod victims;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assign::assignment::Assignment;
use crate::assign::mode::Mode;
use crate::cycle::entry::Entry;
use crate::cycle::issued::Issued;
use crate::cycle::nominate::{Nomination, Nominator};
use crate::cycle::order::{Name, Nominee, Tournament};
use crate::cycle::outcome::Requeue;
use crate::cycle::report::Report;
use crate::cycle::run::Run;
use crate::explain::why::Message;
use crate::model::{Millis, PendingReason};
use crate::quota::tree::Trial;
use crate::world::World;
use crate::world::beyond;
use crate::world::ids::{NodeId, QueueId, WorkloadId};
use crate::world::store::{Phase, Place};

/// The cohort trees that take part in a plan, each with those of its queues that have heads.
pub(crate) type Lines = Vec<(NodeId, Vec<QueueId>)>;

impl World {
    /// Runs one cycle over the heads of the queues in `lines`. The cycle admits at most `room` workloads.
    pub(crate) fn run_cycle(&mut self, now: Millis, room: usize, lines: &mut Lines, report: &mut Report) {
        self.cycle = self.cycle.saturating_add(1);
        report.moved.clear();
        report.scanning.clear();
        report.held_up.clear();
        let mut heads = Vec::with_capacity(lines.iter().map(|(_, queues)| queues.len()).sum());
        for (_, queues) in lines {
            // A queue without a head is removed from `lines`, because it gets no head before the next plan.
            queues.retain(|queue| {
                let head = self.head(*queue);
                heads.extend(head.map(|workload| (*queue, workload)));
                head.is_some()
            });
        }
        let mut entries = Vec::with_capacity(heads.len());
        // Entries are large, so that indexes of entries are sorted and passed on instead of the entries.
        let (mut open, mut done) = (Vec::with_capacity(heads.len()), Vec::with_capacity(heads.len()));
        for (queue, workload) in heads {
            report.heads = report.heads.saturating_add(1);
            let entry = match self.refusal(queue, workload) {
                Some((requeue, verdict)) => {
                    done.push(entries.len());
                    let entry = Entry::new(queue, workload, Nomination::default());
                    Some(Entry { requeue, verdict: Some(verdict), ..entry })
                }
                None => {
                    let entry = self.nominate(queue, workload);
                    open.extend(entry.as_ref().map(|_| entries.len()));
                    entry
                }
            };
            entries.extend(entry);
        }
        let room = report.admissions.len().saturating_add(room);
        let mut run = Run { victims: BTreeMap::new(), admitted: Vec::new(), assumed: Vec::new(), room };
        if self.options.fair_sharing.is_some() {
            let heads = open.into_iter().filter_map(|at| {
                let entry: &Entry = entries.get(at)?;
                Some((at, self.nominee(entry, now, Arc::clone), entry.queue, entry.assignment.usage.clone()))
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
        // Usage that was reserved for the rest of the cycle is given back in reverse order.
        for (queue, usage) in run.assumed.into_iter().rev() {
            let node = self.store.queues[queue].node;
            self.tree.remove(node, &usage);
        }
        // LocalQueue usage is charged only here, at the end of the cycle, because it orders victims: as in Kueue's snapshot, it must not change during the
        // cycle.
        for workload in run.admitted {
            self.charge(workload, now);
        }
        // Most heads of the previous cycle are among the heads of this cycle.
        report.findings.reserve(done.len().saturating_sub(report.findings.len()));
        report.leading.reserve(done.len());
        for at in done {
            if let Some(entry) = entries.get_mut(at) {
                self.put_back(entry, report);
            }
        }
    }

    /// The queues of the live cohort trees that have heads. Parked workloads of the queues are woken if something changed in their cohort tree.
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

    /// Makes parked workloads of a queue active if something in the cohort tree has changed since they were parked.
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

    /// The workload that a queue tries next: its head.
    pub(crate) fn head(&self, queue: QueueId) -> Option<WorkloadId> {
        let pending = &self.store.queues[queue].pending;
        let sticky = pending.sticky.filter(|id| {
            self.store.workload(*id).is_some_and(|workload| {
                matches!(workload.phase, Phase::Pending(Place::Class)) && pending.is_active(workload.class)
            })
        });
        self.first_in_line(queue, sticky)
    }

    /// Takes the head of a queue out of the queue.
    pub(crate) fn pop(&mut self, queue: QueueId) -> Option<WorkloadId> {
        let id = self.head(queue)?;
        self.take_out(queue, id, Place::InFlight);
        Some(id)
    }

    /// Takes a workload out of its class of equals.
    pub(crate) fn take_out(&mut self, queue: QueueId, id: WorkloadId, place: Place) {
        let Some(workload) = self.store.workload_mut(id) else { return };
        let old = std::mem::replace(&mut workload.phase, Phase::Pending(place));
        if matches!(old, Phase::Pending(Place::Class)) {
            let (class, key, local_queue) = (workload.class, workload.key(), workload.local_queue);
            let lane = self.lane(queue, local_queue);
            self.store.queues[queue].pending.take(class, lane, key, id);
        }
    }

    /// The head of a queue. The lane (the workloads of one LocalQueue) of a workload that issued preemptions goes first, then the lane with the lowest usage.
    /// Among the workloads of one lane, the workload that waits for its victims goes first. The victims of a waiting preemptor do not go before it, whatever
    /// usage their LocalQueues have: otherwise the victims would take their old quota back and be evicted for the preemptor again.
    fn first_in_line(&self, queue: QueueId, sticky: Option<WorkloadId>) -> Option<WorkloadId> {
        let pending = &self.store.queues[queue].pending;
        if !self.has_lanes(queue) {
            return sticky.or_else(|| pending.heads().next().map(|(_, (_, id))| *id));
        }
        let sticky =
            sticky.and_then(|id| self.store.workload(id).map(|w| (self.lane(queue, w.local_queue), w.key(), id)));
        let heads = pending.heads().map(|(lane, (key, id))| (lane, key.clone(), *id, false));
        let preemptor = pending.preemptor.and_then(|id| Some((id, self.store.workload(id)?)));
        let preemptor = preemptor.filter(|(_, workload)| pending.is_active(workload.class));
        let claiming = preemptor.filter(|(_, workload)| workload.has_claim());
        let claiming = claiming.map(|(_, workload)| self.lane(queue, workload.local_queue));
        heads
            .filter(|(_, _, id, _)| preemptor.is_none_or(|(preemptor, _)| !self.gave_way_to(*id, preemptor)))
            .chain(sticky.map(|(lane, key, id)| (lane, key, id, true)))
            .map(|(lane, key, id, is_sticky)| (claiming != Some(lane), self.usage_of_lane(lane), !is_sticky, key, id))
            .min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then_with(|| (a.2, &a.3).cmp(&(b.2, &b.3))))
            .map(|(.., id)| id)
    }

    fn nominate(&mut self, queue: QueueId, id: WorkloadId) -> Option<Entry> {
        let (cycle, generation) = (self.cycle, self.tree.nodes[self.store.queues[queue].node].generation);
        let progress = self.store.workload_mut(id)?.progress.take();
        let keeps = self.options.gates.preserve_scan_progress;
        let progress = progress.filter(|p| p.waits || !p.is_outdated(generation, cycle, keeps));
        let epoch = self.tree.nodes[self.tree.root(self.store.queues[queue].node)].epoch;
        let round = progress.as_deref().map(|progress| (progress.began, progress.scans));
        if let Some(claim) = progress.as_deref().and_then(|progress| progress.claim.as_deref())
            && let Some((mut assignment, targets)) = self.nominate_claim(queue, id, claim)
        {
            assignment.progress = progress.map(|progress| *progress).unwrap_or_default();
            return Some(Entry::new(queue, id, (assignment, targets)));
        }
        let gone = self.not_preemptible(id);
        let workload = self.store.workload(id)?;
        let mut trial = Trial::new(&mut self.tree);
        beyond::set_trials_aside(&self.store, &mut trial, id, queue);
        let mut nominator =
            Nominator { store: &self.store, tree: trial.tree_mut(), options: &self.options, gone: &gone };
        let (mut assignment, targets) = nominator.nominate(workload, queue, progress.as_deref(), None);
        drop(trial);
        assignment.progress.cycle = cycle;
        assignment.progress.generation = generation;
        let (began, scans) = round.filter(|_| assignment.resumed).unwrap_or((epoch, 0));
        (assignment.progress.began, assignment.progress.scans) = (began, scans.saturating_add(1));
        Some(Entry::new(queue, id, (assignment, targets)))
    }

    /// Whether a preemption gate of the workload is closed.
    fn is_gated(&self, id: WorkloadId) -> bool {
        self.store.workload(id).is_some_and(|workload| workload.preemption_gated)
    }

    fn nominee<'w, N: Default>(&'w self, entry: &Entry, now: Millis, name: impl Fn(&'w Arc<str>) -> N) -> Nominee<N> {
        let Some(workload) = self.store.workload(entry.workload) else { return Nominee::default() };
        Nominee {
            tie: name(workload.tie.word()),
            borrowing: entry.assignment.borrowing,
            preemptor: self.is_waiting(entry),
            priority: workload.priority_at(now),
            queued_at: workload.queued_at,
        }
    }

    fn in_order(&self, open: Vec<usize>, entries: &[Entry], now: Millis) -> Vec<usize> {
        if open.len() < 2 {
            return open;
        }
        let mut keyed: Vec<(Nominee<Name<'_>>, usize)> = Vec::with_capacity(open.len());
        let nominee = |at: usize| Some((self.nominee(entries.get(at)?, now, |word| Name::of(word)), at));
        keyed.extend(open.into_iter().filter_map(nominee));
        keyed.sort_unstable_by(|a, b| a.0.compare(&b.0, &self.options.gates));
        keyed.into_iter().map(|(_, at)| at).collect()
    }

    fn process(&mut self, entry: &mut Entry, now: Millis, run: &mut Run, report: &mut Report) {
        if report.admissions.len() >= run.room {
            // The plan has reached its limit of admissions: the head keeps its place unchanged, and its cohort tree is evaluated in the next plan.
            let progress = std::mem::take(&mut entry.assignment.progress);
            entry.assignment = Assignment { progress, ..Assignment::default() };
            report.moved.insert(self.tree.root(self.store.queues[entry.queue].node));
            return;
        }
        // Only a head with room or victims is checked again: a head without room and without victims waits anyway.
        let has_lost = entry.targets.is_empty() && matches!(entry.assignment.mode(), Mode::NoFit | Mode::Preempt);
        let fits = !has_lost && self.refresh(entry, run, report) && !self.would_close_a_circle(entry, run);
        let overlaps = entry.targets.iter().any(|target| run.victims.contains_key(&target.workload));
        let refusals = u64::from(entry.assignment.breach.is_some());
        self.refused_victims = self.refused_victims.saturating_add(refusals);
        let waiting = |message: Message| Some((PendingReason::WaitingForQuota, message));
        match entry.assignment.mode() {
            Mode::NoFit => {
                let reason = entry.assignment.no_fit.unwrap_or(PendingReason::NoMatchingFlavor);
                entry.requeue = Requeue::NoRoom;
                entry.verdict = Some((reason, entry.assignment.take_unfit(Issued::default())));
            }
            Mode::Preempt if entry.targets.is_empty() => {
                entry.requeue = Requeue::NoRoom;
                self.reserve(entry, run);
                let refused = entry.assignment.breach.take().map(|breach| Message::Plainly(breach.text()));
                entry.verdict = waiting(refused.unwrap_or_else(|| entry.assignment.take_unfit(Issued::default())));
            }
            Mode::Preempt if self.is_gated(entry.workload) => {
                entry.requeue = Requeue::Park;
                entry.scans_anew = true;
                let text = "Workload requires preemption, but it's gated";
                entry.verdict = Some((PendingReason::AdmissionGated, Message::Plainly(text)));
            }
            Mode::DeferredFit => {
                let text = "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete";
                entry.requeue = Requeue::PendingPreemption;
                entry.verdict = Some((PendingReason::WaitingForPreemptedWorkloads, Message::Plainly(text)));
                self.await_victims(entry, run);
                self.keep(entry, run);
            }
            mode if overlaps || !fits => {
                entry.verdict = waiting(Message::Plainly(if overlaps {
                    "Workload has overlapping preemption targets with another workload"
                } else {
                    "Workload no longer fits after processing another workload"
                }));
                entry.scans_anew = !self.options.gates.preserve_scan_progress;
                if overlaps || mode == Mode::Preempt {
                    let skipped = report.skipped_preemptions.entry(entry.queue).or_default();
                    *skipped = skipped.saturating_add(1);
                }
            }
            Mode::Preempt => {
                let issued = Issued { preempted: entry.targets.len(), failed: 0 };
                self.keep(entry, run);
                self.evict(entry, run, report);
                entry.requeue = issued.outcome().requeue();
                self.await_victims(entry, run);
                let unfit = entry.assignment.take_unfit(issued);
                entry.verdict = Some((PendingReason::WaitingForPreemptedWorkloads, unfit));
            }
            Mode::Fit => {
                entry.requeue = Requeue::Admitted;
                self.admit(entry, now, report);
                run.admitted.push(entry.workload);
            }
        }
    }
}
