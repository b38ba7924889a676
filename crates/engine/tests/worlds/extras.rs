//! Berth's additions to quotas, put on a generated world: bounds of preemption, limits of jobs, tiers with shares, and stock-outs. The additions include
//! Kueue's admission fair sharing between two LocalQueues of a ClusterQueue.

use std::collections::BTreeMap;

use berth_engine::*;
use berth_quantity::to_nano;

use crate::worlds::{Dice, Objects, amount, local_queue};

const NOW: i64 = 1000;
const TIERS: [Tier; 3] = [Tier::Reserved, Tier::OnDemand, Tier::Spot];

/// A change that makes a world smaller.
type Try = Box<dyn Fn(&mut Extras)>;

/// A world and Berth's additions to it.
#[derive(Clone, Debug)]
pub(crate) struct Extras {
    pub(crate) objects: Objects,
    pub(crate) flavors: Vec<FlavorSpec>,
    pub(crate) stock_outs: Vec<StockOut>,
}

/// Random bounds of preemption; most queues get at least one bound.
pub(crate) fn random_guard(dice: &mut Dice) -> PreemptionGuard {
    PreemptionGuard {
        min_priority_difference: dice.pick(&[0, 0, 0, 0, 1, 2]),
        protected_ms: dice.pick(&[0, 0, 998, 3000]),
        max_victims: dice.pick(&[None, None, None, None, Some(0), Some(1), Some(1), Some(2)]),
        max_evicted_percent: dice.pick(&[None, Some(100), Some(150), Some(200), Some(300)]),
    }
}

/// Changes a world in which few workloads preempt into a world in which many workloads do.
pub(crate) fn stir(objects: &mut Objects, dice: &mut Dice) {
    for queue in &mut objects.queues {
        let preemption = &mut queue.preemption;
        if preemption.within_cluster_queue == PreemptionPolicy::Never && !dice.chance(4) {
            preemption.within_cluster_queue = PreemptionPolicy::LowerOrNewerEqualPriority;
        }
        if preemption.reclaim_within_cohort == PreemptionPolicy::Never && !dice.chance(4) {
            preemption.reclaim_within_cohort = PreemptionPolicy::Any;
        }
    }
    for spec in &mut objects.workloads {
        let is_pending = matches!(spec.state, WorkloadState::Pending { .. });
        if is_pending && !dice.chance(3) {
            spec.priority = spec.priority.saturating_add(dice.pick(&[1, 2, 3]));
        }
    }
}

/// The list of all tiers, rotated and cut at random.
fn random_tiers(dice: &mut Dice) -> Vec<Tier> {
    let mut tiers = TIERS.to_vec();
    tiers.rotate_left(dice.below(3) as usize);
    tiers.truncate(1 + dice.below(3) as usize);
    tiers
}

/// Adds Berth's additions (tiers, stock-outs, bounds and limits) to a generated world.
pub(crate) fn with_extras(objects: Objects, seed: u64) -> Extras {
    let mut extras = Extras { objects, flavors: Vec::new(), stock_outs: Vec::new() };
    let mut dice = Dice::new(seed ^ 0x6a09_e667);
    stir(&mut extras.objects, &mut dice);
    for queue in &mut extras.objects.queues {
        if !dice.chance(3) {
            queue.guard = random_guard(&mut dice);
        }
        if dice.chance(8) {
            queue.max_jobs = Some(JobLimit { most: 1 + dice.below(3) as u32, source: "the policy".to_owned() });
        }
    }
    if dice.chance(2) {
        extras.add_tiers(&mut dice);
    }
    extras
}

/// Puts Berth's additions on a world, and lets most ClusterQueues order their workloads by the usage of LocalQueues.
pub(crate) fn with_usage(objects: Objects, seed: u64) -> Extras {
    let mut extras = with_extras(objects, seed);
    extras.add_admission_fair_sharing(&mut Dice::new(seed ^ 0xbb67_ae85));
    extras
}

impl Extras {
    fn add_tiers(&mut self, dice: &mut Dice) {
        for name in ["f0", "f1", "f2", "f3"] {
            let tier = (!dice.chance(6)).then(|| dice.pick(&TIERS));
            self.flavors.push(FlavorSpec { name: name.into(), tier, ..FlavorSpec::default() });
        }
        for queue in &mut self.objects.queues {
            if dice.chance(3) {
                queue.tiers = random_tiers(dice);
            }
            if dice.chance(4) {
                queue.max_shares[dice.below(3) as usize] = Some(dice.pick(&[25, 50, 100]));
            }
        }
        for spec in &mut self.objects.workloads {
            if dice.chance(3) {
                spec.tiers = Some(random_tiers(dice));
            }
        }
        for _ in 0..dice.below(3) {
            let at = dice.below(self.objects.workloads.len().max(1) as u64) as usize;
            let Some(set) = self.objects.workloads.get(at).and_then(|spec| spec.pod_sets.first()) else { continue };
            self.stock_outs.push(StockOut {
                flavor: dice.pick(&["f0", "f1"]).into(),
                shape: Shape::of(set),
                pods: dice.pick(&[1, 1, 2]),
                until: Millis(NOW + dice.pick(&[1, 2, 500, 60_000])),
                text: "is out of stock".into(),
            });
        }
    }

    fn add_admission_fair_sharing(&mut self, dice: &mut Dice) {
        self.objects.options.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life: dice.pick(&[0, 2000, 1_000_000]),
            sampling_interval: dice.pick(&[700, 5000]),
            weights: if dice.chance(2) { BTreeMap::from([("memory".to_owned(), 0.5)]) } else { BTreeMap::new() },
        });
        for queue in &mut self.objects.queues {
            queue.usage_based = !dice.chance(3);
            let weight = dice.pick(&[0, 500_000_000, 1_000_000_000, 2_000_000_000]);
            let name = format!("{}-b", queue.name);
            let beside = LocalQueueSpec { cluster_queue: queue.name.clone(), weight, ..local_queue(&name) };
            self.objects.local_queues.push(beside);
            if dice.chance(2) {
                let consumed = BTreeMap::from([("cpu".to_owned(), to_nano("cpu", amount(1000 * dice.below(9))))]);
                self.objects.ledgers.push((name, LedgerFigures { consumed, at: Millis(0) }));
            }
        }
        for spec in &mut self.objects.workloads {
            if dice.chance(2) {
                spec.local_queue.push_str("-b");
            }
        }
    }

    /// The engine's world with the objects and all additions.
    pub(crate) fn world(&self) -> World {
        let mut world = Objects { workloads: Vec::new(), ..self.objects.clone() }.world();
        for flavor in &self.flavors {
            world.apply(Delta::Flavor(flavor.clone())).unwrap();
        }
        for out in &self.stock_outs {
            world.apply(Delta::StockOut(out.clone())).unwrap();
        }
        for spec in &self.objects.workloads {
            world.apply(Delta::Workload(spec.clone())).unwrap();
        }
        world
    }

    /// The ClusterQueue in which a workload waits.
    pub(crate) fn queue_of(&self, spec: &WorkloadSpec) -> &ClusterQueueSpec {
        let name = self.objects.queue_of(spec);
        self.objects.queues.iter().find(|queue| queue.name == name).unwrap()
    }

    /// The bounds of preemption of a workload's ClusterQueue.
    pub(crate) fn guard_of(&self, spec: &WorkloadSpec) -> PreemptionGuard {
        self.queue_of(spec).guard
    }

    /// The smallest set of workloads, stock-outs and bounds with which the test still fails.
    pub(crate) fn shrink(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut tries: Vec<Try> = Vec::new();
        for at in (0..self.objects.workloads.len()).rev() {
            tries.push(Box::new(move |extras| drop(extras.objects.workloads.remove(at))));
        }
        for at in (0..self.stock_outs.len()).rev() {
            tries.push(Box::new(move |extras| drop(extras.stock_outs.remove(at))));
        }
        for at in 0..self.objects.queues.len() {
            tries.push(Box::new(move |extras| extras.objects.queues[at].guard = PreemptionGuard::default()));
            tries.push(Box::new(move |extras| extras.objects.queues[at].max_jobs = None));
            tries.push(Box::new(move |extras| extras.objects.queues[at].max_shares = [None; 3]));
            tries.push(Box::new(move |extras| extras.objects.queues[at].tiers.clear()));
        }
        tries.push(Box::new(|extras| extras.objects.options.admission_fair_sharing = None));
        for change in tries {
            let mut less = self.clone();
            change(&mut less);
            if fails(&less) {
                self = less;
            }
        }
        self
    }

    /// A description of the world and its additions in few lines.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.objects.describe();
        for queue in &self.objects.queues {
            let (name, guard, most) = (&queue.name, queue.guard, queue.max_jobs.as_ref().map(|limit| limit.most));
            let (tiers, shares) = (&queue.tiers, queue.max_shares);
            text.push_str(&format!("{name} {guard:?}\n  jobs {most:?} tiers {tiers:?} shares {shares:?}\n"));
        }
        for flavor in &self.flavors {
            text.push_str(&format!("{} {:?}\n", flavor.name, flavor.tier));
        }
        for spec in self.objects.workloads.iter().filter(|spec| spec.tiers.is_some()) {
            text.push_str(&format!("{} takes {:?}\n", spec.uid, spec.tiers));
        }
        for out in &self.stock_outs {
            text.push_str(&format!("{out:?}\n"));
        }
        text
    }
}
