//! Random worlds from a seed, and the number of worlds on which a law is tried.

pub(crate) mod by_usage;
mod describe;
pub(crate) mod ledger;
pub(crate) mod wide;

use std::collections::BTreeMap;

use berth_engine::*;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The part of the cases that this process runs, and the number of parts, both from the variable `BERTH_SHARD`. The value `BERTH_SHARD=2/8` stands for the
/// second of eight parts. By default this process runs all cases of a law.
fn shard() -> (u64, u64) {
    let text = std::env::var("BERTH_SHARD").unwrap_or_else(|_| "1/1".to_owned());
    let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    let is_one = |(part, of): &(u64, u64)| (1..=*of).contains(part);
    parts.filter(is_one).unwrap_or_else(|| panic!("BERTH_SHARD is {text:?}, and is to be like 2/8"))
}

/// The seeds of a law: one seed for each case, from `BERTH_SEED` on (1 by default), and of these seeds only the part that `BERTH_SHARD` names.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    let (first, all) = (number("BERTH_SEED").unwrap_or(1), number("BERTH_CASES").unwrap_or(100_000));
    let (part, of) = shard();
    let seeds = first + all * (part - 1) / of..first + all * part / of;
    crate::noted::note("engine", seeds.end - seeds.start);
    seeds
}

/// Number of cases of a law in this run: the part of `BERTH_CASES` (100,000 by default) that `BERTH_SHARD` names.
pub(crate) fn cases() -> u32 {
    let seeds = seeds();
    (seeds.end - seeds.start) as u32
}

/// Prints the name of a world if anything panics while the world is tried, including the engine's own assertions.
pub(crate) struct Named<T: std::fmt::Debug>(pub(crate) T);

impl<T: std::fmt::Debug> Drop for Named<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was in world {:?}", self.0);
        }
    }
}

/// The world of a seed: every third world is a wide world. A wide world costs several times as much as a small one, and in small worlds workloads compete more
/// often.
pub(crate) fn mixed(seed: u64) -> Objects {
    if seed.is_multiple_of(3) { wide::wide(seed) } else { random(seed) }
}

/// The random number generator xorshift, which is good enough for random worlds.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// Kueue's feature gates, some of which are off in every fourth world. The two gates that are on in Berth alone stay on: without them evictions may go on for
/// ever, and a workload that fits may wait.
pub(crate) fn gates(seed: u64) -> Gates {
    let mut dice = Dice::new(seed ^ 0x5be0_cd19);
    let is_odd = dice.chance(4);
    let mut is_on = || !(is_odd && dice.chance(2));
    Gates::named(|name| (name != "PrioritizePreemptorWorkloads").then(&mut is_on))
}

/// The uid of a pending workload of a world; `None` if no workload is pending.
pub(crate) fn one_that_waits(objects: &Objects, seed: u64) -> Option<String> {
    let waits = |spec: &&WorkloadSpec| matches!(spec.state, WorkloadState::Pending { .. });
    let waiting: Vec<&WorkloadSpec> = objects.workloads.iter().filter(waits).collect();
    waiting.get((seed % 3) as usize).or(waiting.first()).map(|spec| spec.uid.clone())
}

/// Adds the counts that a law returns for the world of a seed to `sums`. If the law does not hold, the panic message has the seed and the smallest world for
/// which it fails.
pub(crate) fn add_up<const N: usize>(
    sums: &mut [u32; N],
    seed: u64,
    objects: Objects,
    law: impl Fn(&Objects) -> Result<[u32; N], String>,
) {
    match law(&objects) {
        Ok(found) => sums.iter_mut().zip(found).for_each(|(sum, more)| *sum += more),
        Err(_) => {
            let small = objects.shrink(|objects| law(objects).is_err());
            panic!("seed {seed}\n{}{}", small.describe(), law(&small).unwrap_err());
        }
    }
}

/// The objects of a world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) options: Options,
    pub(crate) cohorts: Vec<CohortSpec>,
    pub(crate) queues: Vec<ClusterQueueSpec>,
    pub(crate) workloads: Vec<WorkloadSpec>,
    /// LocalQueues in addition to the LocalQueue that each ClusterQueue has under its own name.
    pub(crate) local_queues: Vec<LocalQueueSpec>,
    /// Recent usage of LocalQueues.
    pub(crate) ledgers: Vec<(String, LedgerFigures)>,
}

pub(crate) fn amount(value: u64) -> Amount {
    Amount::new(i64::try_from(value).unwrap())
}

pub(crate) fn queue(name: &str, cohort: Option<&str>, groups: Vec<ResourceGroup>) -> ClusterQueueSpec {
    ClusterQueueSpec {
        name: name.to_owned(),
        cohort: cohort.map(str::to_owned),
        groups,
        namespace_selector: Some(Selector::default()),
        ..ClusterQueueSpec::default()
    }
}

pub(crate) fn pending(uid: &str, queue: &str, priority: i64, queued_at: i64, requests: &[(&str, u64)]) -> WorkloadSpec {
    WorkloadSpec {
        uid: uid.to_owned(),
        namespace: "default".into(),
        name: uid.to_owned(),
        local_queue: queue.to_owned(),
        priority,
        queued_at: Millis(queued_at),
        at_front: false,
        pod_sets: vec![PodSetSpec {
            name: "main".into(),
            count: 1,
            requests: requests.iter().map(|(name, value)| ((*name).to_owned(), amount(*value))).collect(),
            ..PodSetSpec::default()
        }],
        allowed_flavors: None,
        tiers: None,
        preempts: Preempts::AsQueue,
        points_per_hour: 0,
        waits_since: Millis(queued_at),
        replaces: None,
        refused: None,
        checks_failed: false,
        preemption_gated: false,
        runs: false,
        state: WorkloadState::Pending { not_before: None, blocked: None },
        revision: 1,
    }
}

/// Makes a workload hold the quota of its admission; the workload is Admitted at once.
pub(crate) fn admit(spec: &mut WorkloadSpec, admission: &Admission, at: Millis) {
    spec.state = WorkloadState::Reserved(Reservation {
        cluster_queue: admission.cluster_queue.to_string(),
        pod_sets: admission.pod_sets.to_vec(),
        at,
        saved: None,
        kept: false,
        surplus: None,
        admitted: true,
        evicted: false,
    });
}

/// Makes a victim that has left wait for quota again.
pub(crate) fn queue_again(spec: &mut WorkloadSpec, now: Millis) {
    spec.revision += 1;
    spec.waits_since = now;
    spec.state = WorkloadState::Pending { not_before: None, blocked: None };
}

/// Makes a pending workload hold its request in one flavor.
pub(crate) fn hold(spec: &mut WorkloadSpec, flavor: &str, at: i64, evicted: bool) {
    let usage = spec.pod_sets[0].requests.clone();
    let flavors = usage.keys().map(|resource| (resource.clone(), flavor.to_owned())).collect();
    let given = PodSetAssignment { name: "main".into(), count: 1, flavors, usage };
    let cluster_queue = spec.local_queue.clone();
    spec.state = WorkloadState::Reserved(Reservation {
        cluster_queue,
        pod_sets: vec![given],
        at: Millis(at),
        saved: None,
        kept: false,
        surplus: None,
        admitted: true,
        evicted,
    });
}

const RESOURCES: [&str; 2] = ["cpu", "memory"];
const FLAVORS: [&str; 6] = ["f0", "f1", "f2", "f3", "f4", "f5"];

/// Labels of the nodes of a flavor.
pub(crate) fn flavor_labels(flavor: &str) -> BTreeMap<String, String> {
    let key = if ["f2", "f3", "f5"].contains(&flavor) { "rack" } else { "pool" };
    BTreeMap::from([(key.to_owned(), flavor.to_owned())])
}

fn random_groups(dice: &mut Dice, flavors: u64, resources: usize, most: u64, limits: bool) -> Vec<ResourceGroup> {
    let limit = |dice: &mut Dice| (limits && dice.chance(4)).then(|| amount(dice.below(4)));
    let mut flavor = |index: u64| FlavorQuotas {
        flavor: format!("f{index}"),
        quotas: (0..resources)
            .map(|_| Quota {
                nominal: amount(dice.below(most)),
                borrowing_limit: limit(dice),
                lending_limit: limit(dice),
            })
            .collect(),
    };
    let flavors = (0..flavors).map(&mut flavor).collect();
    let covered = RESOURCES.iter().take(resources).map(|name| (*name).to_owned()).collect();
    vec![ResourceGroup { covered, flavors }]
}

const WEIGHTS: [i64; 5] = [1_000_000_000, 1_000_000_000, 2_000_000_000, 500_000_000, 0];

/// Fair sharing, which is on in every second world, with a random list of strategies.
fn random_sharing(dice: &mut Dice) -> Option<FairSharing> {
    let (last, first) = (ShareStrategy::LessThanOrEqualToFinalShare, ShareStrategy::LessThanInitialShare);
    dice.chance(2).then(|| FairSharing {
        strategies: dice.pick(&[&[][..], &[last][..], &[first][..], &[last, first][..]]).to_vec(),
    })
}

/// Sets random weight, preemption, scan over flavors and queueing strategy of a queue.
fn random_policies(dice: &mut Dice, spec: &mut ClusterQueueSpec) {
    let policies = [
        PreemptionPolicy::Never,
        PreemptionPolicy::LowerPriority,
        PreemptionPolicy::LowerOrNewerEqualPriority,
        PreemptionPolicy::Any,
    ];
    spec.weight = dice.pick(&WEIGHTS);
    spec.preemption.within_cluster_queue = dice.pick(&policies[..3]);
    spec.preemption.reclaim_within_cohort = dice.pick(&policies);
    if dice.chance(3) && spec.preemption.reclaim_within_cohort != PreemptionPolicy::Never {
        spec.preemption.borrow_within_cohort = true;
        spec.preemption.max_priority_threshold = dice.chance(2).then_some(1);
    }
    if dice.chance(2) {
        spec.fungibility.when_can_preempt = Fungibility::MayStopSearch;
    }
    if dice.chance(2) {
        spec.fungibility.when_can_borrow = Fungibility::TryNextFlavor;
    }
    let both_next = spec.fungibility.when_can_borrow == spec.fungibility.when_can_preempt
        && spec.fungibility.when_can_borrow == Fungibility::TryNextFlavor;
    spec.fungibility.preemption_over_borrowing = both_next && dice.chance(2);
    if dice.chance(4) {
        spec.strategy = Strategy::StrictFifo;
    }
}

/// A world of up to five queues below a forest of up to three cohorts, with workloads that hold quota or wait for it.
pub(crate) fn random(seed: u64) -> Objects {
    let mut dice = Dice::new(seed);
    let mut objects = Objects::default();
    objects.options.fair_sharing = random_sharing(&mut dice);
    let flavors = dice.pick(&[1, 1, 1, 2, 2, 2, 3]);
    let resources = 1 + usize::from(dice.chance(3));
    let shape = dice.below(4);
    let parents = match shape {
        0 => vec![("x", None)],
        1 => vec![("x", None), ("y", Some("x"))],
        2 => vec![("x", None), ("y", Some("x")), ("z", Some("x"))],
        _ => vec![("x", None), ("y", Some("x")), ("z", Some("y"))],
    };
    for (name, parent) in &parents {
        objects.cohorts.push(CohortSpec {
            name: (*name).to_owned(),
            parent: parent.map(str::to_owned),
            groups: if dice.chance(3) {
                random_groups(&mut dice, flavors, resources, 4, parent.is_some())
            } else {
                vec![]
            },
            weight: dice.pick(&WEIGHTS),
        });
    }
    let count = 2 + dice.below(4);
    for index in 0..count {
        let cohort = (!dice.chance(8)).then(|| parents[dice.below(parents.len() as u64) as usize].0);
        let groups = random_groups(&mut dice, flavors, resources, 5, cohort.is_some());
        let mut spec = queue(&format!("q{index}"), cohort, groups);
        random_policies(&mut dice, &mut spec);
        objects.queues.push(spec);
    }
    // A queue in which waiting counts gives a workload one point for each millisecond.
    let points: Vec<u32> = (0..count).map(|_| if dice.chance(4) { 3_600_000 } else { 0 }).collect();
    for index in 0..3 + dice.below(9) {
        let queue = dice.below(count);
        let name = format!("q{queue}");
        let asked: Vec<(&str, u64)> = RESOURCES.iter().take(resources).map(|r| (*r, dice.below(5))).collect();
        let mut spec = pending(&format!("w{index}"), &name, dice.below(3) as i64, dice.below(4) as i64, &asked);
        spec.points_per_hour = points[queue as usize];
        if dice.chance(2) {
            let flavor = format!("f{}", dice.below(flavors));
            let at = dice.below(4) as i64;
            hold(&mut spec, &flavor, at, dice.chance(8));
        }
        objects.workloads.push(spec);
    }
    // Reservations are within quota, as if the engine had made them, except in some worlds, in which quota was cut afterwards.
    if !dice.chance(10) {
        objects.keep_within_quota();
    }
    objects.save_some(seed);
    objects
}

/// Changes a world so that most pending workloads have several pods and accept fewer pods.
pub(crate) fn shrinking(mut objects: Objects, seed: u64) -> Objects {
    let mut dice = Dice::new(seed ^ 0x3c6e_f372);
    let waits = |spec: &&mut WorkloadSpec| matches!(spec.state, WorkloadState::Pending { .. });
    for set in objects.workloads.iter_mut().filter(waits).flat_map(|spec| &mut spec.pod_sets) {
        if dice.chance(4) {
            continue;
        }
        if set.count == 1 {
            set.count = dice.pick(&[1, 2, 3, 5]);
        }
        let is_many = set.count > 1;
        set.min_count = is_many.then(|| 1 + dice.below(set.count as u64 - 1) as i64);
    }
    objects
}

impl Objects {
    /// Gives every second holder of quota a checkpoint, possibly older than its reservation. The random numbers for checkpoints are separate, so that the rest
    /// of the world stays the same.
    fn save_some(&mut self, seed: u64) {
        let mut dice = Dice::new(seed ^ 0x1f83_d9ab);
        for spec in &mut self.workloads {
            if let WorkloadState::Reserved(held) = &mut spec.state {
                held.saved = dice.chance(2).then(|| Millis(dice.below(8) as i64));
            }
        }
    }

    /// Removes workloads that hold quota for which there is no room.
    fn keep_within_quota(&mut self) {
        let mut world = World::default();
        self.objects_into(&mut world);
        let mut kept = Vec::new();
        for spec in std::mem::take(&mut self.workloads) {
            if matches!(spec.state, WorkloadState::Reserved(_)) {
                world.apply(Delta::Workload(spec.clone())).unwrap();
                if !world.over_quota().is_empty() {
                    world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
                    continue;
                }
            }
            kept.push(spec);
        }
        self.workloads = kept;
    }

    /// The workload with the name `uid`.
    pub(crate) fn workload(&mut self, uid: &str) -> &mut WorkloadSpec {
        self.workloads.iter_mut().find(|spec| spec.uid == uid).unwrap()
    }

    /// The ClusterQueue of a workload's LocalQueue.
    pub(crate) fn queue_of<'a>(&'a self, spec: &'a WorkloadSpec) -> &'a str {
        let beside = self.local_queues.iter().find(|queue| queue.name == spec.local_queue);
        beside.map_or(&spec.local_queue, |queue| &queue.cluster_queue)
    }

    /// The objects after a plan: admitted workloads hold their quota, and victims are evicted.
    pub(crate) fn after(&self, plan: &Plan, now: Millis) -> Self {
        let mut objects = self.clone();
        for admission in &plan.admissions {
            objects.workload(&admission.uid).state = WorkloadState::Reserved(Reservation {
                cluster_queue: admission.cluster_queue.to_string(),
                pod_sets: admission.pod_sets.to_vec(),
                at: now,
                saved: None,
                kept: false,
                surplus: None,
                admitted: true,
                evicted: false,
            });
        }
        for eviction in &plan.evictions {
            if let WorkloadState::Reserved(held) = &mut objects.workload(&eviction.uid).state {
                held.evicted = true;
            }
        }
        objects
    }

    fn objects_into(&self, world: &mut World) {
        world.apply(Delta::Namespace("default".into(), BTreeMap::new())).unwrap();
        for name in FLAVORS {
            let (name, node_labels) = (name.to_owned(), flavor_labels(name));
            world.apply(Delta::Flavor(FlavorSpec { name, node_labels, ..FlavorSpec::default() })).unwrap();
        }
        for cohort in &self.cohorts {
            world.apply(Delta::Cohort(cohort.clone())).unwrap();
        }
        for queue in &self.queues {
            world.apply(Delta::ClusterQueue(queue.clone())).unwrap();
            world.apply(Delta::LocalQueue(local_queue(&queue.name))).unwrap();
        }
        for local_queue in &self.local_queues {
            world.apply(Delta::LocalQueue(local_queue.clone())).unwrap();
        }
        for (name, figures) in &self.ledgers {
            world.apply(Delta::Ledger("default".into(), name.clone(), figures.clone())).unwrap();
        }
    }

    /// The engine's world that is made from these objects.
    pub(crate) fn world(&self) -> World {
        let mut world = World::new(self.options.clone());
        self.objects_into(&mut world);
        for workload in &self.workloads {
            world.apply(Delta::Workload(workload.clone())).unwrap();
        }
        world
    }

    /// The smallest set of the workloads with which the test still fails.
    pub(crate) fn shrink(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut index = 0;
        while index < self.workloads.len() {
            let mut fewer = self.clone();
            fewer.workloads.remove(index);
            if fails(&fewer) {
                self = fewer;
            } else {
                index += 1;
            }
        }
        self
    }
}

pub(crate) fn local_queue(name: &str) -> LocalQueueSpec {
    LocalQueueSpec {
        namespace: "default".into(),
        name: name.to_owned(),
        cluster_queue: name.to_owned(),
        stop: StopPolicy::None,
        weight: 1_000_000_000,
    }
}
