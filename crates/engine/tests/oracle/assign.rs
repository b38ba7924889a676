//! The oracle's flavor assignment of a workload in one size, as in Kueue, for any number of pod sets and resource groups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use berth_engine::steps::*;
use berth_engine::*;

use super::accounting::{Accounting, Amounts, Fr, Node};
use super::victims::{self, Plea, Victims};
use crate::worlds::flavor_labels;

/// Progress of a scan over flavors: index of the flavor that was tried last, by pod set and resource; a resource whose flavors were all tried has no entry.
pub(crate) type Tried = Vec<BTreeMap<String, usize>>;
/// The only flavors that an assignment may use, by pod set and resource.
pub(crate) type Pins = Vec<BTreeMap<String, String>>;

/// Number of pods and flavors of each pod set of a workload that starts.
pub(crate) type Start = Vec<(i64, BTreeMap<String, String>)>;

/// Assignment of one pod set: number of pods, and flavor and mode by resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) count: i64,
    pub(crate) flavors: BTreeMap<String, (String, Mode)>,
    /// True if one of the pod set's resource groups fits only with preemption or not at all.
    lacks: bool,
}

/// Assignment that the oracle found for a workload.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) mode: Mode,
    pub(crate) borrow: u32,
    pub(crate) sets: Vec<Given>,
    pub(crate) usage: Amounts,
    pub(crate) no_fit: Option<PendingReason>,
    pub(crate) victims: Victims,
    pub(crate) tried: Tried,
    /// True if the scan of some resource group began behind the first flavor.
    pub(crate) resumed: bool,
}

impl Found {
    pub(crate) fn pins(&self) -> Pins {
        let pin = |given: &Given| given.flavors.iter().map(|(r, (flavor, _))| (r.clone(), flavor.clone())).collect();
        self.sets.iter().map(pin).collect()
    }

    /// Number of pods of each pod set.
    pub(crate) fn counts(&self) -> Vec<i64> {
        self.sets.iter().map(|given| given.count).collect()
    }

    pub(crate) fn start(&self) -> Start {
        self.counts().into_iter().zip(self.pins()).collect()
    }

    /// Whether the workload fits, at once or when its victims have left.
    pub(super) fn has_room(&self) -> bool {
        self.mode == Mode::Fit || !self.victims.is_empty()
    }

    /// The flavors and resources of which the assignment lacks quota.
    fn needs(&self) -> Vec<Fr> {
        let all = self.sets.iter().flat_map(|given| &given.flavors);
        let mut needs: Vec<Fr> = all
            .filter(|(_, (_, mode))| *mode == Mode::Preempt)
            .map(|(resource, (flavor, _))| (flavor.clone(), resource.clone()))
            .collect();
        needs.sort();
        needs.dedup();
        needs
    }

    pub(crate) fn uids(&self) -> Vec<String> {
        self.victims.iter().map(|(uid, _)| uid.clone()).collect()
    }
}

/// Restrictions of an assignment: the only size that it may have, the flavors, and whether it may preempt.
#[derive(Clone, Copy, Default)]
pub(crate) struct How<'a> {
    pub(crate) pins: Option<&'a Pins>,
    pub(crate) tried: Option<&'a Tried>,
    /// The only size that the assignment may have: the number of pods of each pod set.
    pub(crate) counts: Option<&'a [i64]>,
    /// True if the assignment must not need preemption.
    pub(crate) free_only: bool,
}

/// Mode of a flavor (fit, preemption or none), and the height of the cohort from which the queue borrows.
type Level = (Granular, u32);

/// Whether the mode and borrowing height `a` are better than the mode and borrowing height `b`.
fn prefers(a: Level, b: Level, policy: &FlavorFungibility) -> bool {
    let rank = |level: Level| {
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

fn severity(reason: Option<PendingReason>) -> u8 {
    match reason {
        Some(PendingReason::NoMatchingFlavor) => 4,
        Some(PendingReason::ExceedsMaxQuota) => 3,
        Some(PendingReason::WaitingForQuota) => 2,
        _ => 0,
    }
}

/// Result of one flavor for one resource group of a pod set.
struct Attempt {
    level: Level,
    flavors: BTreeMap<String, (String, Mode)>,
    borrow: u32,
    why: Option<PendingReason>,
}

/// Inputs of a search for an assignment: options, accounting, workload and queue.
pub(crate) struct Search<'a> {
    pub(crate) options: &'a Options,
    pub(crate) accounting: &'a Accounting,
    pub(crate) spec: &'a WorkloadSpec,
    pub(crate) queue: &'a str,
    /// Workloads that the workload must not preempt because of eviction history.
    pub(crate) not_preemptible: &'a BTreeSet<String>,
    pub(crate) how: How<'a>,
}

impl Search<'_> {
    fn victims(&self, needs: Vec<Fr>, usage: Amounts) -> Victims {
        if self.how.free_only {
            return Vec::new();
        }
        let plea = Plea {
            queue: self.queue,
            priority: self.spec.priority,
            queued_at: self.spec.queued_at,
            needs,
            usage,
            equals_by_lot: self.options.profile.has(Departure::EqualsByLot),
        };
        // The workload may have a narrower preemption scope than its queue.
        let mut policy = self.accounting.queues[self.queue].preemption;
        for rule in [&mut policy.within_cluster_queue, &mut policy.reclaim_within_cohort] {
            match self.spec.preempts {
                Preempts::Nobody => *rule = PreemptionPolicy::Never,
                Preempts::Lower if *rule != PreemptionPolicy::Never => *rule = PreemptionPolicy::LowerPriority,
                Preempts::Lower | Preempts::AsQueue => {}
            }
        }
        let narrowed;
        let accounting = if self.spec.preempts == Preempts::AsQueue && self.not_preemptible.is_empty() {
            self.accounting
        } else {
            narrowed = self.accounting.seen_by(self.queue, policy, self.not_preemptible);
            &narrowed
        };
        match &self.options.fair_sharing {
            None => victims::classical(accounting, &plea),
            Some(sharing) => victims::fair(accounting, &plea, &sharing.strategies, &self.options.gates),
        }
    }

    /// Mode and borrowing level of an amount of a flavor and resource.
    fn quota(&self, fr: &Fr, value: i128) -> (Level, Option<PendingReason>) {
        let (accounting, queue) = (self.accounting, self.queue);
        let node = Node::Queue(queue.to_owned());
        if value > accounting.potential(&node, fr) {
            return ((Granular::NoFit, 0), Some(PendingReason::ExceedsMaxQuota));
        }
        let (borrow, may_reclaim) = accounting.borrowing_level(queue, fr, value);
        if value <= accounting.available(&node, fr).max(0) {
            return ((Granular::Fit, borrow), None);
        }
        let policy = accounting.queues[queue].preemption;
        let fair = self.options.fair_sharing.is_some() && policy.reclaim_within_cohort != PreemptionPolicy::Never;
        if accounting.nominal(&node, fr) < value && !may_reclaim && !policy.borrow_within_cohort && !fair {
            return ((Granular::NoFit, borrow), Some(PendingReason::WaitingForQuota));
        }
        let victims = self.victims(vec![fr.clone()], Amounts::from([(fr.clone(), value)]));
        let gone: Vec<String> = victims.iter().map(|(uid, _)| uid.clone()).collect();
        let (borrow, _) = accounting.without(&gone).borrowing_level(queue, fr, value);
        let own = accounting.holders.iter().any(|h| h.queue == queue && gone.contains(&h.uid));
        let mode = match (gone.is_empty(), own) {
            (true, _) => Granular::NoCandidates,
            (false, true) => Granular::Preempt,
            (false, false) => Granular::Reclaim,
        };
        ((mode, borrow), None)
    }

    fn attempt(&self, flavor: &str, wanted: &[(&String, i128)], assumed: &Amounts) -> Attempt {
        let policy = self.accounting.queues[self.queue].fungibility;
        let mut attempt = Attempt { level: (Granular::Fit, 0), flavors: BTreeMap::new(), borrow: 0, why: None };
        for (resource, value) in wanted {
            let fr = (flavor.to_owned(), (*resource).clone());
            let before = assumed.get(&fr).copied().unwrap_or(0);
            let (own, why) = self.quota(&fr, before + value);
            if severity(why) > severity(attempt.why) {
                attempt.why = why;
            }
            if own.0 == Granular::NoFit || attempt.level.0 == Granular::NoFit {
                // The other resources of the flavor are tried nevertheless, for the reasons about the quota that they lack.
                attempt.level.0 = Granular::NoFit;
                continue;
            }
            if prefers(attempt.level, own, &policy) {
                attempt.level = own;
            }
            attempt.borrow = attempt.borrow.max(own.1);
            let mode = if own.0 == Granular::Fit { Mode::Fit } else { Mode::Preempt };
            attempt.flavors.insert((*resource).clone(), (flavor.to_owned(), mode));
        }
        attempt
    }

    /// Finds a flavor of a resource group for a pod set; returns the reason if there is no flavor.
    fn scan(
        &self,
        found: &mut Found,
        index: usize,
        group: &ResourceGroup,
        (resource, wanted): (&String, &[(&String, i128)]),
    ) -> Result<(), Option<PendingReason>> {
        let policy = self.accounting.queues[self.queue].fungibility;
        let tried = self.how.tried.and_then(|tried| tried.get(index)?.get(resource).copied());
        let start = tried.map_or(0, |last| last + 1);
        found.resumed |= start > 0;
        let mut best: Option<Attempt> = None;
        let mut mildest: Option<Option<PendingReason>> = None;
        let mut last = None;
        for (at, flavor) in group.flavors.iter().enumerate().skip(start) {
            last = Some(at);
            let pin = self.how.pins.map(|pins| pins.get(index).and_then(|set| set.get(resource)));
            if pin.is_some_and(|pin| pin != Some(&flavor.flavor)) {
                continue;
            }
            // A node label that the flavor does not have keeps no pod off the flavor.
            let nodes = flavor_labels(&flavor.flavor);
            let selector = &self.spec.pod_sets[index].node_selector;
            if selector.iter().any(|(label, value)| nodes.get(label).is_some_and(|own| own != value)) {
                mildest = mildest.or(Some(Some(PendingReason::NoMatchingFlavor)));
                continue;
            }
            let attempt = self.attempt(&flavor.flavor, wanted, &found.usage);
            let level = attempt.level;
            if level.0 == Granular::NoFit {
                mildest = Some(match mildest {
                    Some(old) if severity(old) <= severity(attempt.why) => old,
                    _ => attempt.why,
                });
                continue;
            }
            let stop = match level.0 {
                Granular::NoFit | Granular::NoCandidates => false,
                Granular::Preempt | Granular::Reclaim if policy.when_can_preempt == Fungibility::TryNextFlavor => false,
                _ => level.1 == 0 || policy.when_can_borrow == Fungibility::MayStopSearch,
            };
            if stop || best.as_ref().is_none_or(|best| prefers(level, best.level, &policy)) {
                best = Some(attempt);
            }
            if stop {
                break;
            }
        }
        let Some(best) = best else { return Err(mildest.flatten()) };
        if let Some(last) = last.filter(|last| last + 1 < group.flavors.len()) {
            found.tried[index].extend(best.flavors.keys().map(|resource| (resource.clone(), last)));
        }
        found.borrow = found.borrow.max(best.borrow);
        for (resource, value) in wanted {
            let fr = (best.flavors[*resource].0.clone(), (*resource).clone());
            *found.usage.entry(fr).or_default() += value;
        }
        // In Kueue the mode of the flavor over all resources decides whether the flavor fits, even if one resource does not fit. If preemption is preferred to
        // borrowing, the mode of the flavor may hide a resource that does not fit.
        let all_fit = best.flavors.values().all(|(_, mode)| *mode == Mode::Fit);
        let fits = best.level.0 == Granular::Fit && (all_fit || !self.options.profile.has(Departure::AllResourcesFit));
        found.sets[index].lacks |= !fits;
        found.sets[index].flavors.extend(best.flavors);
        Ok(())
    }

    /// The oracle's assignment of a workload in the size `counts` (pods of each pod set), without a search for victims.
    pub(crate) fn assign(&self, counts: &[i64]) -> Found {
        let mut found = Found {
            mode: Mode::Fit,
            borrow: 0,
            sets: Vec::new(),
            usage: Amounts::new(),
            no_fit: None,
            victims: Vec::new(),
            tried: Vec::new(),
            resumed: false,
        };
        for (index, (set, count)) in self.spec.pod_sets.iter().zip(counts.iter().copied()).enumerate() {
            let total = |one: &Amount| (i128::from(one.get()) * i128::from(count)).min(i128::from(i64::MAX));
            let wanted: BTreeMap<&String, i128> = set.requests.iter().map(|(name, one)| (name, total(one))).collect();
            found.sets.push(Given { count, ..Given::default() });
            found.tried.push(BTreeMap::new());
            let before = (found.usage.clone(), found.borrow);
            for resource in wanted.keys() {
                if found.sets[index].flavors.contains_key(*resource) {
                    continue;
                }
                let groups = &self.accounting.queues[self.queue].groups;
                let Some(group) = groups.iter().find(|group| group.covered.contains(resource)) else {
                    panic!("{resource} is covered by no group of {}", self.queue)
                };
                let together: Vec<(&String, i128)> = wanted
                    .iter()
                    .filter(|(resource, _)| group.covered.contains(resource))
                    .map(|(resource, value)| (*resource, *value))
                    .collect();
                if let Err(reason) = self.scan(&mut found, index, group, (resource, &together)) {
                    found.mode = Mode::NoFit;
                    found.no_fit = Some(reason.unwrap_or(PendingReason::NoMatchingFlavor));
                    found.tried[index].clear();
                    (found.usage, found.borrow) = before;
                    return found;
                }
            }
            if found.sets[index].lacks {
                let worst = found.sets[index].flavors.values().map(|(_, mode)| *mode).min();
                found.mode = found.mode.min(worst.unwrap_or(Mode::Fit));
            }
        }
        found
    }

    /// The oracle's assignment of a workload in the size `counts` (pods of each pod set), with its victims.
    pub(super) fn nominate_as(&self, counts: &[i64]) -> Found {
        let mut found = self.assign(counts);
        if found.mode == Mode::Preempt {
            let mut usage = found.usage.clone();
            usage.retain(|_, value| *value != 0);
            found.victims = self.victims(found.needs(), usage);
        }
        found
    }
}
