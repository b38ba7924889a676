//! The oracle's cycles one after another, with the state between them: pending and parked workloads, preemptors that wait for victims, and the progress of
//! scans over flavors. The file is written from Kueue's documented behaviour and from the pages in `docs/departures`, without use of the engine's code.

mod heads;
mod plans;
mod wakes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use berth_engine::steps::*;
use berth_engine::*;

use super::accounting::{Accounting, Fr, Holder, Node};
use super::assign::{Found, How, Pins, Search, Start, Tried};
use super::usage::LocalQueues;
use super::{Head, are_equal, by_age, by_share, place};

/// Outcome of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The head was admitted: uid, with its pods and flavors.
    Admit(String, Start),
    /// The head preempts: uid, and the victims with reasons, without the victims that were evicted already.
    Preempt(String, BTreeSet<(String, &'static str)>),
    /// The head stays pending: uid and reason.
    Wait(String, PendingReason),
}

/// The assignment for which a workload issued preemptions (`0005-no-eviction-loops.md`, rule 3).
#[derive(Clone, Debug)]
struct Claim {
    counts: Vec<i64>,
    pins: Pins,
    victims: Vec<String>,
}

/// Progress of a scan over flavors, and the time of the scan.
#[derive(Clone, Debug)]
struct Scan {
    tried: Tried,
    cycle: u64,
    generation: u64,
    began: Option<u64>,
    scans: usize,
}

/// The place where a head waits after its cycle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    NoRoom,
    Retry,
    PendingPreemption,
}

/// Results of a cycle.
#[derive(Default)]
struct Cycle {
    steps: Vec<(Node, Step)>,
    /// The cohort trees in which something changed.
    moved: BTreeSet<Node>,
    /// The cohort trees in which a head goes on with another flavor, each with the number of scans that the head may make.
    scanning: BTreeMap<Node, usize>,
    /// Heads of queues without strict order that stay although they do not wait for victims, by cohort tree.
    losers: BTreeMap<Node, Vec<String>>,
}

/// The way in which a head that was not admitted is tried again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// The head was parked.
    Parked,
    /// The head is tried again with another flavor, at most as many times as the number says.
    Scans(usize),
    First,
}

/// Outcome of a head of a cycle, which takes effect when the cycle is over.
struct Ended<'a> {
    head: Head<'a>,
    after: After,
    claim: Option<Claim>,
}

/// A world in the state in which the cycles of the oracle have left it.
pub(crate) struct History<'a> {
    pub(super) options: &'a Options,
    pub(super) local_queues: LocalQueues,
    pub(crate) accounting: Accounting,
    pub(super) now: Millis,
    waiting: BTreeMap<String, Vec<&'a WorkloadSpec>>,
    /// All workloads by uid.
    pub(super) places: BTreeMap<String, &'a WorkloadSpec>,
    parked: BTreeSet<String>,
    /// Workloads that lost to quota reserved for others, and that are passed over for the rest of this plan (`0012-losers-stand-aside.md`).
    aside: BTreeSet<String>,
    /// For each queue: the workload that issued preemptions last; and the workload that goes first because of its preemptions.
    preemptors: BTreeMap<String, String>,
    first: BTreeMap<String, String>,
    claims: BTreeMap<String, Claim>,
    scans: BTreeMap<String, Scan>,
    cycle: u64,
    /// Workloads that were admitted in this cycle: none of them is a victim before the next cycle.
    pub(super) fresh: BTreeSet<String>,
    /// Number of workloads with quota that have left each queue.
    generations: BTreeMap<String, u64>,
    /// Pairs of preemptor and victim by cohort tree (`0005-no-eviction-loops.md`, rule 1).
    pub(super) eviction_history: BTreeMap<Node, BTreeSet<(String, String)>>,
    /// Cohort trees with an admission after the last check of the workloads whose pod sets compete with each other.
    stirred: BTreeSet<Node>,
    /// Cohort trees in which a cycle may find something to do.
    live: BTreeSet<Node>,
}

impl<'a> History<'a> {
    pub(crate) fn new(
        options: &'a Options,
        mut local_queues: LocalQueues,
        accounting: Accounting,
        workloads: &'a [WorkloadSpec],
        now: Millis,
    ) -> Self {
        let mut waiting: BTreeMap<String, Vec<&WorkloadSpec>> = BTreeMap::new();
        for spec in workloads.iter().filter(|spec| matches!(spec.state, WorkloadState::Pending { .. })) {
            waiting.entry(local_queues.queue_of(&spec.local_queue)).or_default().push(spec);
        }
        local_queues.settle(now, workloads);
        let root = |queue: &String| accounting.line(&Node::Queue(queue.clone())).pop().unwrap();
        let live = accounting.queues.keys().map(root).collect();
        Self {
            options,
            local_queues,
            live,
            accounting,
            now,
            waiting,
            parked: BTreeSet::new(),
            aside: BTreeSet::new(),
            preemptors: BTreeMap::new(),
            first: BTreeMap::new(),
            claims: BTreeMap::new(),
            scans: BTreeMap::new(),
            cycle: 0,
            fresh: BTreeSet::new(),
            generations: BTreeMap::new(),
            eviction_history: BTreeMap::new(),
            places: workloads.iter().map(|spec| (spec.uid.clone(), spec)).collect(),
            stirred: BTreeSet::new(),
        }
    }

    pub(super) fn root(&self, queue: &str) -> Node {
        self.accounting.line(&Node::Queue(queue.to_owned())).pop().unwrap()
    }

    /// Number of workloads with quota that have left the cohort tree of a queue.
    fn left(&self, queue: &str) -> u64 {
        let root = self.root(queue);
        let near = self.accounting.queues.keys().filter(|other| self.root(other) == root);
        near.map(|queue| self.generation(queue)).sum()
    }

    fn generation(&self, queue: &str) -> u64 {
        self.generations.get(queue).copied().unwrap_or(0)
    }

    fn look(&self, spec: &WorkloadSpec, queue: &str, accounting: &Accounting, how: How<'_>) -> Found {
        Search { options: self.options, accounting, spec, queue, not_preemptible: &self.not_preemptible(spec), how }
            .nominate()
    }

    /// Evicted workloads of a queue's cohort tree that still hold quota.
    fn leaving(&self, queue: &str) -> Vec<String> {
        let root = self.root(queue);
        let leaves = |holder: &&Holder| holder.evicted && self.root(&holder.queue) == root;
        self.accounting.holders.iter().filter(leaves).map(|holder| holder.uid.clone()).collect()
    }

    /// The assignment that a workload can have now with the quota for which it issued preemptions; `None` if the workload gives this quota up.
    fn look_by_claim(&self, spec: &WorkloadSpec, queue: &str, claim: &Claim) -> Option<Found> {
        let how = How { pins: Some(&claim.pins), tried: None, counts: Some(&claim.counts), free_only: true };
        let now = self.look(spec, queue, &self.accounting, how);
        if now.mode == Mode::Fit {
            return Some(now);
        }
        let leaving = self.leaving(queue);
        let own: Vec<String> = claim.victims.iter().filter(|uid| leaving.contains(uid)).cloned().collect();
        for gone in [own, leaving] {
            let then = self.look(spec, queue, &self.accounting.without(&gone), how);
            if !gone.is_empty() && then.mode == Mode::Fit {
                let victims = gone.into_iter().map(|uid| (uid, "")).collect();
                return Some(Found { mode: Mode::Preempt, victims, ..then });
            }
        }
        None
    }

    fn nominate(&mut self, spec: &'a WorkloadSpec, queue: &str) -> Head<'a> {
        let (claim, scan) = (self.claims.remove(&spec.uid), self.scans.remove(&spec.uid));
        let is_preemptor = self.preemptors.get(queue) == Some(&spec.uid);
        // A workload that gave up the quota for which it issued preemptions waits for no victims.
        let claims = self.options.profile.has(Departure::Claims);
        let fresh = Some(self.left(queue));
        let head = |found: Found, held: bool, (began, scans)| {
            let (queue, scans) = (queue.to_owned(), scans + 1);
            let is_preemptor = is_preemptor && (held || !claims);
            Head { spec, queue, found, is_preemptor, held, began, scans }
        };
        if let Some(found) = claim.as_ref().and_then(|claim| self.look_by_claim(spec, queue, claim)) {
            self.claims.extend(claim.map(|claim| (spec.uid.clone(), claim)));
            return head(found, true, (fresh, 0));
        }
        // If a workload gives up the quota for which it issued preemptions, its next scan begins with the flavors of that quota.
        let back = |claim: Claim| {
            let place = |resource: &String, flavor: &String| {
                let group =
                    self.accounting.queues[queue].groups.iter().find(|group| group.covered.contains(resource))?;
                group.flavors.iter().position(|known| known.flavor == *flavor)?.checked_sub(1)
            };
            let set = |pins: BTreeMap<String, String>| -> BTreeMap<String, usize> {
                pins.iter()
                    .filter_map(|(resource, flavor)| Some((resource.clone(), place(resource, flavor)?)))
                    .collect()
            };
            claim.pins.into_iter().map(set).collect::<Tried>()
        };
        let counts = |scan: &Scan| {
            let is_recent = self.options.gates.preserve_scan_progress && self.cycle - scan.cycle <= 1;
            is_recent || scan.generation == self.generation(queue)
        };
        let scan = scan.filter(counts);
        let round = scan.as_ref().map_or((None, 0), |scan| (scan.began, scan.scans));
        let tried = scan.map(|scan| scan.tried).or(claim.map(back));
        let found = self.look(spec, queue, &self.accounting, How { tried: tried.as_ref(), ..How::default() });
        let round = if found.resumed { round } else { (fresh, 0) };
        head(found, false, round)
    }

    /// Whether a head that was nominated before fits when all victims have left.
    fn fits(&self, head: &Head<'_>, gone: &[String]) -> bool {
        let mut leaving = gone.to_vec();
        leaving.extend(head.found.uids());
        if !self.accounting.without(&leaving).fits(&head.queue, &head.found.usage) {
            return false;
        }
        if head.found.mode != Mode::Fit || gone.is_empty() || !self.options.profile.has(Departure::FitsBesideVictims) {
            return true;
        }
        // In this comparison victims still hold their quota, and the quota that is kept for pending workloads counts as free.
        let mut held = self.accounting.clone();
        held.clear_charged();
        held.fits(&head.queue, &head.found.usage)
    }

    /// Checks a head again when its turn in the cycle comes. Returns whether the checked head fits.
    fn refresh(&self, head: &mut Head<'a>, gone: &[String]) -> bool {
        let is_gone = |uid: &String| gone.contains(uid);
        if !head.found.uids().iter().any(is_gone) {
            return self.fits(head, gone);
        }
        if head.held {
            head.found.victims.retain(|(uid, _)| !gone.contains(uid));
            if self.fits(head, gone) {
                if head.found.victims.is_empty() {
                    head.found.mode = Mode::DeferredFit;
                }
                return true;
            }
        }
        let pins = head.found.pins();
        let how = How { pins: Some(&pins), ..How::default() };
        head.found = self.look(head.spec, &head.queue, &self.accounting.without(gone), how);
        if head.found.mode == Mode::Fit {
            head.found.mode = Mode::DeferredFit;
        }
        self.fits(head, gone)
    }

    /// Keeps quota for a head that needs preemption and finds no victims, if its queue cannot always reclaim its quota or the head waits for its victims.
    fn reserve(&mut self, head: &Head<'_>) {
        let always = self.accounting.queues[&head.queue].preemption.reclaim_within_cohort == PreemptionPolicy::Any;
        let waits = self.options.gates.prioritize_preemptors && head.is_preemptor;
        if always && !waits {
            return;
        }
        let (node, borrows) = (Node::Queue(head.queue.clone()), head.found.borrow > 0);
        let kept = |(fr, value): (&Fr, &i128)| {
            let (nominal, usage) = (self.accounting.nominal(&node, fr), self.accounting.usage(&node, fr));
            let kept = match (borrows, self.accounting.borrowing_limit(&node, fr)) {
                (true, None) => *value,
                (true, Some(limit)) => (*value).min(nominal + limit - usage),
                (false, _) => (*value).min(nominal - usage).max(0),
            };
            (fr.clone(), kept)
        };
        let kept = head.found.usage.iter().map(kept).collect();
        self.accounting.charge(&head.queue, kept);
    }

    fn claim_of(&self, head: &Head<'_>, gone: &[String]) -> Claim {
        let root = self.root(&head.queue);
        let is_near =
            |uid: &&String| self.accounting.holders.iter().any(|h| h.uid == **uid && self.root(&h.queue) == root);
        let victims = if head.found.mode == Mode::DeferredFit {
            gone.iter().filter(is_near).cloned().collect()
        } else {
            head.found.uids()
        };
        Claim { counts: head.found.counts(), pins: head.found.pins(), victims }
    }

    /// Processes a head. Returns the head's step, and its outcome if the head stays pending.
    fn process(&mut self, mut head: Head<'a>, gone: &mut Vec<String>) -> (Step, Option<Ended<'a>>) {
        let mut fits = self.refresh(&mut head, gone);
        // Eviction history may now protect victims that were found earlier, because of the evictions of this same cycle.
        if !head.held && head.found.mode != Mode::DeferredFit && !gone.is_empty() {
            let not_preemptible = self.not_preemptible(head.spec);
            fits &= !head.found.uids().iter().any(|victim| not_preemptible.contains(victim));
        }
        let uid = head.spec.uid.clone();
        let overlaps = head.found.uids().iter().any(|victim| gone.contains(victim));
        let wait = |reason| Step::Wait(uid.clone(), reason);
        let claims = self.options.profile.has(Departure::Claims);
        let (step, after, claim) = match head.found.mode {
            Mode::NoFit => (wait(head.found.no_fit.unwrap()), After::NoRoom, None),
            Mode::Preempt if head.found.victims.is_empty() => {
                self.reserve(&head);
                (wait(PendingReason::WaitingForQuota), After::NoRoom, None)
            }
            Mode::DeferredFit => {
                let claim = claims.then(|| self.claim_of(&head, gone));
                self.accounting.charge(&head.queue, head.found.usage.clone());
                (wait(PendingReason::WaitingForPreemptedWorkloads), After::PendingPreemption, claim)
            }
            _ if overlaps || !fits => (wait(PendingReason::WaitingForQuota), After::Retry, None),
            Mode::Preempt => {
                let mut fresh = BTreeSet::new();
                for (victim, reason) in &head.found.victims {
                    gone.push(victim.clone());
                    if let Some(holder) = self.accounting.holders.iter_mut().find(|h| h.uid == *victim && !h.evicted) {
                        holder.evicted = true;
                        fresh.insert((victim.clone(), *reason));
                    }
                }
                if self.options.profile.has(Departure::NoEvictionCircles) {
                    let eviction_history = self.eviction_history.entry(self.root(&head.queue)).or_default();
                    eviction_history.extend(fresh.iter().map(|(victim, _)| (uid.clone(), victim.clone())));
                }
                let claim = claims.then(|| self.claim_of(&head, gone));
                self.accounting.charge(&head.queue, head.found.usage.clone());
                (Step::Preempt(uid.clone(), fresh), After::PendingPreemption, claim)
            }
            Mode::Fit => return (self.admit(&head), None),
        };
        (step, Some(Ended { head, after, claim }))
    }

    fn admit(&mut self, head: &Head<'_>) -> Step {
        let uid = head.spec.uid.clone();
        self.accounting.hold(Holder {
            uid: uid.clone(),
            queue: head.queue.clone(),
            usage: Rc::new(head.found.usage.clone()),
            priority: head.spec.priority,
            queued_at: head.spec.queued_at,
            at: self.now,
            evicted: false,
            not_preemptible: false,
            used: None,
        });
        self.local_queues.charge(head.spec);
        for waiting in self.waiting.values_mut() {
            waiting.retain(|spec| spec.uid != uid);
        }
        self.claims.remove(&uid);
        self.preemptors.retain(|_, preemptor| *preemptor != uid);
        self.first.retain(|_, first| *first != uid);
        self.stirred.insert(self.root(&head.queue));
        self.fresh.insert(uid.clone());
        Step::Admit(uid, head.found.start())
    }

    /// Returns a head that was not admitted to its place of waiting.
    fn put_back(&mut self, ended: Ended<'a>) -> Stays {
        let Ended { head, after, claim } = ended;
        let left = self.left(&head.queue);
        let (uid, queue) = (head.spec.uid.clone(), head.queue);
        let of_one: u64 =
            self.accounting.queues[&queue].groups.iter().map(|group| group.flavors.len() as u64).product();
        let most = of_one.pow(head.spec.pod_sets.len() as u32).min(256) as usize;
        let keeps = match after {
            After::NoRoom => true,
            After::Retry => self.options.gates.preserve_scan_progress,
            After::PendingPreemption => false,
        };
        let is_over = self.options.profile.has(Departure::ScansEnd) && head.scans >= most;
        let scans = keeps && !head.held && head.found.tried.iter().any(|set| !set.is_empty()) && !is_over;
        // A scan that began behind the first flavor has not seen quota of earlier flavors that has become free since (`0002-flavor-scan-starts-over.md`).
        let resumed =
            self.options.profile.has(Departure::ScanStartsOver) && head.found.resumed && after == After::NoRoom;
        let over = resumed && !scans && head.began != Some(left);
        if scans {
            let (cycle, generation) = (self.cycle, self.generation(&queue));
            let began = head.began.filter(|_| after == After::NoRoom);
            self.scans
                .insert(uid.clone(), Scan { tried: head.found.tried, cycle, generation, began, scans: head.scans });
        }
        self.claims.extend(claim.map(|claim| (uid.clone(), claim)));
        let is_strict = self.accounting.queues[&queue].strategy == Strategy::StrictFifo;
        if after == After::PendingPreemption {
            self.preemptors.insert(queue.clone(), uid.clone());
            if !is_strict {
                self.first.insert(queue, uid);
            }
            return Stays::First;
        }
        if scans || over {
            return Stays::Scans(2 * most + 1);
        }
        if after == After::Retry || is_strict {
            return Stays::First;
        }
        // Workloads that are equal to a workload without room are parked together with it.
        let equals = self.waiting[&queue].iter().filter(|other| are_equal(other, head.spec));
        self.parked.extend(equals.map(|spec| spec.uid.clone()));
        Stays::Parked
    }

    /// One cycle over the heads of the cohort trees `live`.
    fn cycle(&mut self, live: &BTreeSet<Node>) -> Cycle {
        self.cycle += 1;
        self.fresh.clear();
        self.note_usage();
        let mut heads: Vec<Head<'a>> = Vec::new();
        for queue in self.accounting.queues.keys().cloned().collect::<Vec<_>>() {
            if !self.accounting.is_active(&queue) || !live.contains(&self.root(&queue)) {
                continue;
            }
            if let Some(spec) = self.head(&queue) {
                heads.push(self.nominate(spec, &queue));
            }
        }
        let (mut cycle, mut ended, mut gone) = (Cycle::default(), Vec::new(), Vec::new());
        while !heads.is_empty() {
            let fair = self.options.fair_sharing.is_some();
            let next = if fair { by_share(&self.accounting, &heads, self) } else { by_age(&heads, self) };
            let head = heads.remove(next);
            let root = self.root(&head.queue);
            let (step, stays) = self.process(head, &mut gone);
            let does = match &step {
                Step::Admit(..) => true,
                Step::Preempt(_, victims) => !victims.is_empty(),
                Step::Wait(..) => false,
            };
            if does {
                cycle.moved.insert(root.clone());
            }
            cycle.steps.push((root.clone(), step));
            ended.extend(stays.map(|stays| (root, stays)));
        }
        self.accounting.clear_charged();
        for (root, stays) in ended {
            let (uid, queue, after) = (stays.head.spec.uid.clone(), stays.head.queue.clone(), stays.after);
            let loses = after != After::PendingPreemption && !stays.head.is_preemptor;
            match self.put_back(stays) {
                Stays::Parked => {
                    cycle.moved.insert(root);
                    continue;
                }
                Stays::Scans(most) => {
                    let known = cycle.scanning.entry(root.clone()).or_default();
                    *known = most.max(*known);
                }
                Stays::First => {}
            }
            if loses && self.accounting.queues[&queue].strategy != Strategy::StrictFifo {
                cycle.losers.entry(root).or_default().push(uid);
            }
        }
        cycle
    }

    /// Values of a head, besides shares, that decide the order of heads.
    pub(crate) fn rank(&self, head: &Head<'_>) -> (bool, super::Place) {
        let is_first = self.options.gates.prioritize_preemptors && head.is_preemptor;
        let (priority, since, uid) = place(head.spec, self.now);
        let priority = if self.options.gates.priority_sorting { priority } else { Reverse(0) };
        (!is_first, (priority, since, uid))
    }
}
