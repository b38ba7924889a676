//! A slow, obvious scheduler: one cycle over plain objects, written from the specification and apart from the engine. It knows
//! one pod set per workload and one resource group per queue, and no partial admission; its books and its rules of preemption know
//! any number.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod books;
pub(crate) mod victims;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use berth_engine::*;

use books::{Amounts, Books, Fr, Holder, Node};
use victims::{Plea, Victims};

/// What a cycle decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    /// Workload to flavor by resource.
    pub(crate) admitted: BTreeMap<String, BTreeMap<String, String>>,
    /// Victim, preemptor, reason; those that were on their way out already are left out.
    pub(crate) evicted: BTreeSet<(String, String, &'static str)>,
    /// Reasons of heads that stay.
    pub(crate) waiting: BTreeMap<String, PendingReason>,
}

#[derive(Clone, Debug)]
struct Found {
    mode: Mode,
    borrow: u32,
    flavors: BTreeMap<String, (String, Mode)>,
    usage: Amounts,
    no_fit: Option<PendingReason>,
    victims: Victims,
}

struct Head<'a> {
    spec: &'a WorkloadSpec,
    queue: String,
    found: Found,
}

fn requests(spec: &WorkloadSpec) -> BTreeMap<String, i128> {
    let set = &spec.pod_sets[0];
    set.requests.iter().map(|(name, one)| (name.clone(), i128::from(one.get()) * i128::from(set.count))).collect()
}

/// The objects of a world as the oracle sees them.
pub(crate) fn books(cohorts: &[CohortSpec], queues: &[ClusterQueueSpec], workloads: &[WorkloadSpec]) -> Books {
    let mut books = Books {
        queues: queues.iter().map(|queue| (queue.name.clone(), queue.clone())).collect(),
        cohorts: cohorts.iter().map(|cohort| (cohort.name.clone(), cohort.clone())).collect(),
        ..Books::default()
    };
    let named =
        queues.iter().filter_map(|queue| queue.cohort.clone()).chain(cohorts.iter().filter_map(|c| c.parent.clone()));
    for name in named {
        let empty = CohortSpec { name: name.clone(), parent: None, groups: vec![], weight: 1_000_000_000 };
        books.cohorts.entry(name).or_insert(empty);
    }
    for spec in workloads {
        if let WorkloadState::Reserved(held) = &spec.state {
            let mut usage = Amounts::new();
            for set in &held.pod_sets {
                for (resource, flavor) in &set.flavors {
                    let amount = i128::from(set.usage[resource].get());
                    *usage.entry((flavor.clone(), resource.clone())).or_default() += amount;
                }
            }
            books.holders.push(Holder {
                uid: spec.uid.clone(),
                queue: held.cluster_queue.clone(),
                usage,
                priority: spec.priority,
                queued_at: spec.queued_at,
                at: held.at,
                evicted: held.evicted,
            });
        }
    }
    books
}

struct Oracle<'a> {
    options: &'a Options,
}

impl Oracle<'_> {
    fn victims(&self, books: &Books, plea: &Plea<'_>) -> Victims {
        match &self.options.fair_sharing {
            None => victims::classical(books, plea),
            Some(sharing) => victims::fair(books, plea, &sharing.strategies),
        }
    }

    fn quota(
        &self,
        books: &Books,
        spec: &WorkloadSpec,
        queue: &str,
        fr: &Fr,
        value: i128,
    ) -> (Granular, u32, Option<PendingReason>) {
        let node = Node::Queue(queue.to_owned());
        if value > books.potential(&node, fr) {
            return (Granular::NoFit, 0, Some(PendingReason::ExceedsMaxQuota));
        }
        let (borrow, may_reclaim) = books.level(queue, fr, value);
        if value <= books.available(&node, fr).max(0) {
            return (Granular::Fit, borrow, None);
        }
        let policy = books.queues[queue].preemption;
        let fair = self.options.fair_sharing.is_some() && policy.reclaim_within_cohort != PreemptionPolicy::Never;
        if books.nominal(&node, fr) < value && !may_reclaim && !policy.borrow_within_cohort && !fair {
            return (Granular::NoFit, borrow, Some(PendingReason::WaitingForQuota));
        }
        let usage = Amounts::from([(fr.clone(), value)]);
        let plea = Plea { queue, priority: spec.priority, queued_at: spec.queued_at, needs: vec![fr.clone()], usage };
        let victims = self.victims(books, &plea);
        let gone: Vec<String> = victims.iter().map(|(uid, _)| uid.clone()).collect();
        let (borrow, _) = books.without(&gone).level(queue, fr, value);
        let own = books.holders.iter().any(|h| h.queue == queue && gone.contains(&h.uid));
        let mode = match (gone.is_empty(), own) {
            (true, _) => Granular::NoCandidates,
            (false, true) => Granular::Preempt,
            (false, false) => Granular::Reclaim,
        };
        (mode, borrow, None)
    }

    fn assign(&self, books: &Books, spec: &WorkloadSpec, queue: &str, pin: Option<&str>) -> Found {
        let policy = books.queues[queue].fungibility;
        let wanted = requests(spec);
        let mut best: Option<(Granular, u32, Found)> = None;
        let mut mildest: Option<Option<PendingReason>> = None;
        let severity = |reason: Option<PendingReason>| match reason {
            Some(PendingReason::NoMatchingFlavor) => 4,
            Some(PendingReason::ExceedsMaxQuota) => 3,
            Some(PendingReason::WaitingForQuota) => 2,
            _ => 0,
        };
        let group = &books.queues[queue].groups[0];
        for flavor in &group.flavors {
            if pin.is_some_and(|pin| pin != flavor.flavor) {
                continue;
            }
            let mut mode = (Granular::Fit, 0);
            let mut found = Found {
                mode: Mode::Fit,
                borrow: 0,
                flavors: BTreeMap::new(),
                usage: Amounts::new(),
                no_fit: None,
                victims: Vec::new(),
            };
            let mut reason = None;
            for (resource, value) in &wanted {
                let fr = (flavor.flavor.clone(), resource.clone());
                let (own, borrow, why) = self.quota(books, spec, queue, &fr, *value);
                if severity(why) > severity(reason) {
                    reason = why;
                }
                if own == Granular::NoFit || mode.0 == Granular::NoFit {
                    // The other resources are looked at all the same, for what they lack.
                    mode.0 = Granular::NoFit;
                    continue;
                }
                if prefers(mode, (own, borrow), &policy) {
                    mode = (own, borrow);
                }
                found.borrow = found.borrow.max(borrow);
                let plain = if own == Granular::Fit { Mode::Fit } else { Mode::Preempt };
                found.flavors.insert(resource.clone(), (flavor.flavor.clone(), plain));
                found.mode = found.mode.min(plain);
                found.usage.insert(fr, *value);
            }
            if mode.0 == Granular::NoFit {
                mildest = Some(match mildest {
                    Some(old) if severity(old) <= severity(reason) => old,
                    _ => reason,
                });
                continue;
            }
            let stop = match mode.0 {
                Granular::NoFit | Granular::NoCandidates => false,
                Granular::Preempt | Granular::Reclaim if policy.when_can_preempt == Fungibility::TryNextFlavor => false,
                _ => mode.1 == 0 || policy.when_can_borrow == Fungibility::MayStopSearch,
            };
            if stop || best.as_ref().is_none_or(|(m, b, _)| prefers(mode, (*m, *b), &policy)) {
                best = Some((mode.0, mode.1, found));
            }
            if stop {
                break;
            }
        }
        if let Some((.., found)) = best {
            return found;
        }
        let no_fit = Some(mildest.flatten().unwrap_or(PendingReason::NoMatchingFlavor));
        Found { mode: Mode::NoFit, borrow: 0, flavors: BTreeMap::new(), usage: Amounts::new(), no_fit, victims: vec![] }
    }

    fn nominate(&self, books: &Books, spec: &WorkloadSpec, queue: &str, pin: Option<&str>) -> Found {
        let mut found = self.assign(books, spec, queue, pin);
        if found.mode == Mode::Preempt {
            let needs = found
                .flavors
                .iter()
                .filter(|(_, (_, mode))| *mode == Mode::Preempt)
                .map(|(resource, (flavor, _))| (flavor.clone(), resource.clone()))
                .collect();
            let mut usage = found.usage.clone();
            usage.retain(|_, value| *value != 0);
            let plea = Plea { queue, priority: spec.priority, queued_at: spec.queued_at, needs, usage };
            found.victims = self.victims(books, &plea);
        }
        found
    }
}

/// Whether `a` is the better way to have a flavor.
fn prefers(a: (Granular, u32), b: (Granular, u32), policy: &FlavorFungibility) -> bool {
    let rank = |level: (Granular, u32)| {
        let viable = level.0 > Granular::NoCandidates;
        if policy.preemption_over_borrowing {
            (viable, Reverse(level.1), level.0, Reverse(0))
        } else {
            (viable, Reverse(0), level.0, Reverse(level.1))
        }
    };
    if a.0 == Granular::NoFit || b.0 == Granular::NoFit {
        return a.0 != Granular::NoFit;
    }
    rank(a) > rank(b)
}

/// One cycle from a world in which nothing was tried before.
pub(crate) fn cycle(options: &Options, mut books: Books, workloads: &[WorkloadSpec], now: Millis) -> Decided {
    let oracle = Oracle { options };
    let mut decided = Decided::default();
    let mut heads: Vec<Head<'_>> = Vec::new();
    for queue in books.queues.keys().cloned().collect::<Vec<_>>() {
        let is_mine =
            |spec: &&WorkloadSpec| spec.local_queue == queue && matches!(spec.state, WorkloadState::Pending { .. });
        let first = workloads.iter().filter(is_mine).min_by_key(|w| age(w, now));
        if let Some(spec) = first {
            let found = oracle.nominate(&books, spec, &queue, None);
            heads.push(Head { spec, queue, found });
        }
    }
    let mut gone: Vec<String> = Vec::new();
    while !heads.is_empty() {
        let next = if options.fair_sharing.is_some() { by_share(&books, &heads, now) } else { by_age(&heads, now) };
        let mut head = heads.remove(next);
        let mut deferred = false;
        if head.found.victims.iter().any(|(uid, _)| gone.contains(uid)) {
            let pin = head.found.flavors.values().next().map(|(flavor, _)| flavor.clone());
            head.found = oracle.nominate(&books.without(&gone), head.spec, &head.queue, pin.as_deref());
            deferred = head.found.mode == Mode::Fit;
        }
        let (uid, found) = (head.spec.uid.clone(), head.found);
        let overlaps = found.victims.iter().any(|(uid, _)| gone.contains(uid));
        let mut leaving = gone.clone();
        leaving.extend(found.victims.iter().map(|(uid, _)| uid.clone()));
        let mut fits = books.without(&leaving).fits(&head.queue, &found.usage);
        if found.mode == Mode::Fit && !deferred && !gone.is_empty() {
            // Whoever has been preempted still holds its quota; only those who wait for it do not count yet.
            let mut held = books.clone();
            held.booked.clear();
            fits &= held.fits(&head.queue, &found.usage);
        }
        let reason = match found.mode {
            Mode::NoFit => found.no_fit,
            Mode::Preempt if found.victims.is_empty() => {
                if books.queues[&head.queue].preemption.reclaim_within_cohort != PreemptionPolicy::Any {
                    let node = Node::Queue(head.queue.clone());
                    let kept = |(fr, value): (&Fr, &i128)| {
                        let limit = books.borrowing_limit(&node, fr);
                        let nominal = books.nominal(&node, fr);
                        let bound = match (found.borrow > 0, limit) {
                            (true, None) => *value,
                            (true, Some(limit)) => nominal + limit - books.usage(&node, fr),
                            (false, _) => nominal - books.usage(&node, fr),
                        };
                        (fr.clone(), (*value).min(bound).max(0))
                    };
                    let kept: Amounts = found.usage.iter().map(kept).collect();
                    books.booked.push((head.queue.clone(), kept));
                }
                Some(PendingReason::WaitingForQuota)
            }
            _ if deferred => {
                books.booked.push((head.queue.clone(), found.usage.clone()));
                Some(PendingReason::WaitingForPreemptedWorkloads)
            }
            _ if overlaps || !fits => Some(PendingReason::WaitingForQuota),
            Mode::Preempt => {
                for (victim, reason) in &found.victims {
                    gone.push(victim.clone());
                    let holder = books.holders.iter().find(|holder| holder.uid == *victim);
                    if holder.is_some_and(|holder| !holder.evicted) {
                        decided.evicted.insert((victim.clone(), uid.clone(), reason));
                    }
                }
                books.booked.push((head.queue.clone(), found.usage.clone()));
                Some(PendingReason::WaitingForPreemptedWorkloads)
            }
            _ => {
                let flavors = found.flavors.iter().map(|(r, (f, _))| (r.clone(), f.clone())).collect();
                decided.admitted.insert(uid.clone(), flavors);
                books.holders.push(Holder {
                    uid: uid.clone(),
                    queue: head.queue.clone(),
                    usage: found.usage.clone(),
                    priority: head.spec.priority,
                    queued_at: head.spec.queued_at,
                    at: now,
                    evicted: false,
                });
                None
            }
        };
        if let Some(reason) = reason {
            decided.waiting.insert(uid, reason);
        }
    }
    decided
}

fn age(spec: &WorkloadSpec, now: Millis) -> (Reverse<i64>, Millis, String) {
    let gained = (now.0 - spec.waits_since.0) * i64::from(spec.points_per_hour) / 3_600_000;
    (Reverse(i64::from(spec.priority) + gained), spec.queued_at, spec.uid.clone())
}

fn by_age(heads: &[Head<'_>], now: Millis) -> usize {
    (0..heads.len()).min_by_key(|index| (heads[*index].found.borrow, age(heads[*index].spec, now))).unwrap()
}

/// The winner of the tournament in the tree of the first head.
fn by_share(books: &Books, heads: &[Head<'_>], now: Millis) -> usize {
    let root = |head: &Head<'_>| books.line(&Node::Queue(head.queue.clone())).last().cloned();
    let first = root(&heads[0]);
    let mut best: BTreeMap<Node, usize> = BTreeMap::new();
    let standing = |index: usize, cohort: &Node| {
        let head = &heads[index];
        let mut with = books.clone();
        with.booked.push((head.queue.clone(), head.found.usage.clone()));
        let line = with.line(&Node::Queue(head.queue.clone()));
        let child = line.iter().zip(line.iter().skip(1)).find(|(_, above)| *above == cohort).unwrap().0;
        let borrows = head.found.usage.iter().any(|(fr, value)| *value > 0 && with.exceeds(child, fr, 0));
        (borrows, with.share(child))
    };
    let mut levels: Vec<(usize, Node, usize)> = Vec::new();
    for (index, head) in heads.iter().enumerate().filter(|(_, head)| root(head) == first) {
        let line = books.line(&Node::Queue(head.queue.clone()));
        if line.len() == 1 {
            return index;
        }
        for (depth, node) in line.iter().skip(1).enumerate() {
            levels.push((line.len() - depth, node.clone(), index));
        }
    }
    // Deepest cohorts first: each sends its winner up.
    levels.sort_by_key(|(depth, node, index)| (Reverse(*depth), node.clone(), *index));
    for (_, cohort, index) in levels {
        let line = books.line(&Node::Queue(heads[index].queue.clone()));
        let below = line.iter().zip(line.iter().skip(1)).find(|(_, above)| **above == cohort).unwrap().0;
        if matches!(below, Node::Cohort(_)) && best.get(below) != Some(&index) {
            continue;
        }
        let wins = best.get(&cohort).is_none_or(|champion| {
            let (a, b) = (standing(index, &cohort), standing(*champion, &cohort));
            let order = a.0.cmp(&b.0).then_with(|| a.1.compare(&b.1));
            order.then_with(|| age(heads[index].spec, now).cmp(&age(heads[*champion].spec, now))).is_lt()
        });
        if wins {
            best.insert(cohort, index);
        }
    }
    best[&first.unwrap()]
}
