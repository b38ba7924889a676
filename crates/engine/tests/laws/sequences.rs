//! Laws over random worlds and random sequences of deltas and plans; each law is tried on the sequences of the seeds of `worlds`.
//!
//! A failed law prints its seed and the fewest steps that fail; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use crate::worlds::seeds;
use berth_engine::Strategy;
use berth_engine::steps::*;
use berth_engine::*;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const COHORTS: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Debug)]
enum Step {
    Queue {
        name: usize,
        cohort: usize,
        nominal: [u8; 2],
        borrow: Option<u8>,
        lend: Option<u8>,
        policy: u8,
        strict: bool,
        /// True if the resource `memory` has other flavors than `cpu` in the world.
        split: bool,
    },
    /// Step of a sequence: a LocalQueue names another ClusterQueue from now on.
    Lead {
        name: usize,
        queue: usize,
    },
    Cohort {
        name: usize,
        parent: usize,
        nominal: u8,
    },
    RemoveQueue(usize),
    Pending {
        id: u8,
        queue: usize,
        cpu: u8,
        memory: u8,
        priority: u8,
        min: bool,
        /// True if the workload has a second pod set of one pod with the same request.
        second: bool,
    },
    /// Step of a sequence: a workload's priority changes.
    Rank {
        id: u8,
        priority: u8,
    },
    Remove(u8),
    Forget(u8),
    Release(u8),
    Flavor {
        name: usize,
        present: bool,
    },
    /// Step of a sequence: a larger workload slice replaces a workload.
    Slice {
        id: u8,
        of: u8,
        more: u8,
    },
    /// A planned admission is confirmed, and the workload has surplus pods.
    Confirm {
        id: u8,
        surplus: u8,
        step: u8,
    },
    Plan {
        max: usize,
    },
}

fn step() -> impl Strategy_<Value = Step> {
    let quota = || proptest::option::of(0..6_u8);
    prop_oneof![
        3 => (0..4_usize, 0..4_usize, [0..8_u8, 0..8_u8], quota(), quota(), 0..6_u8, any::<bool>(), any::<bool>()).prop_map(
            |(name, cohort, nominal, borrow, lend, policy, strict, split)| {
                Step::Queue { name, cohort, nominal, borrow, lend, policy, strict, split }
            }
        ),
        1 => (0..4_usize, 0..4_usize).prop_map(|(name, queue)| Step::Lead { name, queue }),
        2 => (0..3_usize, 0..4_usize, 0..5_u8).prop_map(|(name, parent, nominal)| Step::Cohort { name, parent, nominal }),
        1 => (0..4_usize).prop_map(Step::RemoveQueue),
        8 => (0..24_u8, 0..4_usize, 0..7_u8, 0..7_u8, 0..3_u8, any::<bool>(), proptest::bool::weighted(0.25)).prop_map(
            |(id, queue, cpu, memory, priority, min, second)| Step::Pending { id, queue, cpu, memory, priority, min, second }
        ),
        1 => (0..24_u8, 0..3_u8).prop_map(|(id, priority)| Step::Rank { id, priority }),
        3 => (0..24_u8).prop_map(Step::Remove),
        2 => (0..24_u8).prop_map(Step::Forget),
        3 => (0..24_u8).prop_map(Step::Release),
        1 => (0..3_usize, any::<bool>()).prop_map(|(name, present)| Step::Flavor { name, present }),
        3 => (0..24_u8, 0..24_u8, 0..3_u8).prop_map(|(id, of, more)| Step::Slice { id, of, more }),
        3 => (0..24_u8, 0..3_u8, 1..3_u8).prop_map(|(id, surplus, step)| Step::Confirm { id, surplus, step }),
        4 => (1..9_usize).prop_map(|max| Step::Plan { max }),
    ]
}

use proptest::strategy::Strategy as Strategy_;

fn groups(nominal: [u8; 2], borrow: Option<u8>, lend: Option<u8>, split: bool) -> Vec<ResourceGroup> {
    let quota = |n: u8| Quota {
        nominal: Amount::new(i64::from(n)),
        borrowing_limit: borrow.map(|v| Amount::new(i64::from(v))),
        lending_limit: lend.map(|v| Amount::new(i64::from(v))),
    };
    let alone = |i: usize, n: u8| FlavorQuotas { flavor: format!("f{i}"), quotas: vec![quota(n)] };
    if split {
        return vec![
            ResourceGroup { covered: vec!["cpu".into()], flavors: vec![alone(0, nominal[0]), alone(1, nominal[1])] },
            ResourceGroup { covered: vec!["memory".into()], flavors: vec![alone(2, nominal[1])] },
        ];
    }
    let flavor =
        |i: usize| FlavorQuotas { flavor: format!("f{i}"), quotas: vec![quota(nominal[i]), quota(nominal[1 - i])] };
    vec![ResourceGroup { covered: vec!["cpu".into(), "memory".into()], flavors: vec![flavor(0), flavor(1)] }]
}

fn name_of(names: &[&str], index: usize) -> Option<String> {
    names.get(index).map(|n| (*n).to_owned())
}

/// State that an observer of the plans keeps, as control would keep it.
#[derive(Default)]
struct Observer {
    specs: std::collections::BTreeMap<String, WorkloadSpec>,
    /// Last planned admission of each workload, by uid.
    given: std::collections::BTreeMap<String, Admission>,
}

impl Observer {
    /// Whether the pods that a victim gives up are surplus pods, in full steps.
    fn may_give(&self, eviction: &Eviction) -> bool {
        let Some(pods) = eviction.gives_up else { return true };
        let surplus = self.specs.get(&eviction.uid).and_then(|spec| match &spec.state {
            WorkloadState::Reserved(reservation) => reservation.surplus.clone(),
            WorkloadState::Pending { .. } => None,
        });
        surplus.is_some_and(|own| pods > 0 && (pods == own.pods || (pods < own.pods && pods % own.step == 0)))
    }

    fn apply(&mut self, world: &mut World, step: &Step) -> bool {
        let delta = match step.clone() {
            Step::Queue { name, cohort, nominal, borrow, lend, policy, strict, split } => {
                let policies = [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any];
                Delta::ClusterQueue(ClusterQueueSpec {
                    name: QUEUES[name].into(),
                    cohort: name_of(&COHORTS, cohort),
                    groups: groups(nominal, borrow, lend, split),
                    strategy: if strict { Strategy::StrictFifo } else { Strategy::BestEffortFifo },
                    stop: StopPolicy::None,
                    namespace_selector: Some(Selector::default()),
                    preemption: Preemption {
                        within_cluster_queue: if policy % 2 == 0 {
                            PreemptionPolicy::LowerPriority
                        } else {
                            PreemptionPolicy::LowerOrNewerEqualPriority
                        },
                        reclaim_within_cohort: policies[usize::from(policy % 3)],
                        borrow_within_cohort: policy > 3,
                        max_priority_threshold: (policy == 5).then_some(1),
                    },
                    fungibility: FlavorFungibility {
                        when_can_borrow: if policy % 2 == 0 {
                            Fungibility::TryNextFlavor
                        } else {
                            Fungibility::MayStopSearch
                        },
                        when_can_preempt: if policy % 3 == 0 {
                            Fungibility::MayStopSearch
                        } else {
                            Fungibility::TryNextFlavor
                        },
                        preemption_over_borrowing: false,
                    },
                    weight: 1_000_000_000,
                    usage_based: false,
                    tiers: vec![],
                    max_shares: [None; 3],
                    max_jobs: None,
                    guard: PreemptionGuard::default(),
                    inactive: None,
                    problems: vec![],
                    admission_checks: vec![],
                })
            }
            Step::Cohort { name, parent, nominal } => Delta::Cohort(CohortSpec {
                name: COHORTS[name].into(),
                parent: name_of(&COHORTS, parent),
                groups: groups([nominal, nominal / 2], None, None, false),
                weight: 1_000_000_000,
            }),
            Step::Lead { name, queue } => Delta::LocalQueue(local_queue(QUEUES[name], QUEUES[queue])),
            Step::RemoveQueue(name) => Delta::RemoveClusterQueue(QUEUES[name].into()),
            Step::Rank { id, priority } => {
                let Some(spec) = self.specs.get_mut(&format!("w{id}")) else { return false };
                spec.priority = i64::from(priority);
                Delta::Workload(spec.clone())
            }
            Step::Pending { id, queue, cpu, memory, priority, min, second } => {
                let uid = format!("w{id}");
                if self.specs.contains_key(&uid) {
                    return false;
                }
                let one = |v: u8| Amount::new(i64::from(v));
                let main = PodSetSpec {
                    name: "main".into(),
                    count: 2,
                    min_count: min.then_some(1),
                    requests: [("cpu".to_owned(), one(cpu)), ("memory".to_owned(), one(memory))].into(),
                    ..PodSetSpec::default()
                };
                let other = PodSetSpec { name: "other".into(), count: 1, min_count: None, ..main.clone() };
                let spec = WorkloadSpec {
                    uid: uid.clone(),
                    namespace: "default".into(),
                    name: uid.clone(),
                    local_queue: QUEUES[queue].into(),
                    priority: i64::from(priority),
                    queued_at: Millis(i64::from(id)),
                    at_front: false,
                    pod_sets: [main, other].into_iter().take(1 + usize::from(second)).collect(),
                    allowed_flavors: None,
                    tiers: None,
                    preempts: Preempts::AsQueue,
                    points_per_hour: 0,
                    waits_since: Millis(0),
                    replaces: None,
                    refused: None,
                    checks_failed: false,
                    preemption_gated: false,
                    runs: false,
                    state: WorkloadState::Pending { not_before: None, blocked: None },
                    revision: 1,
                };
                self.specs.insert(uid, spec.clone());
                Delta::Workload(spec)
            }
            Step::Slice { id, of, more } => {
                let (uid, old) = (format!("w{id}"), format!("w{of}"));
                let (Some(spec), Some(given)) = (self.specs.get(&old), self.given.get(&old)) else { return false };
                if self.specs.contains_key(&uid) {
                    return false;
                }
                let mut spec = spec.clone();
                spec.uid.clone_from(&uid);
                spec.replaces = Some(Replaced { uid: old, pod_sets: given.pod_sets.to_vec() });
                spec.pod_sets[0].count += i64::from(more);
                spec.pod_sets[0].min_count = None;
                spec.state = WorkloadState::Pending { not_before: None, blocked: None };
                self.specs.insert(uid, spec.clone());
                Delta::Workload(spec)
            }
            Step::Confirm { id, surplus, step } => {
                let uid = format!("w{id}");
                let (Some(spec), Some(given)) = (self.specs.get_mut(&uid), self.given.get(&uid)) else { return false };
                // The number of surplus pods is at most the number of given pods, which may be less than requested.
                let pods = i64::from(surplus).min(given.pod_sets[0].count);
                spec.state = WorkloadState::Reserved(Reservation {
                    cluster_queue: given.cluster_queue.to_string(),
                    pod_sets: given.pod_sets.to_vec(),
                    at: Millis(1000),
                    saved: None,
                    admitted: true,
                    evicted: false,
                    kept: false,
                    surplus: Some(Surplus { pod_set: "main".into(), pods, step: i64::from(step) }),
                });
                Delta::Workload(spec.clone())
            }
            Step::Remove(id) => {
                let uid = format!("w{id}");
                self.given.remove(&uid);
                if self.specs.remove(&uid).is_none() {
                    return false;
                }
                Delta::RemoveWorkload(uid)
            }
            Step::Forget(id) => {
                let uid = format!("w{id}");
                if !self.specs.contains_key(&uid) {
                    return false;
                }
                Delta::Forget(uid)
            }
            Step::Release(id) => {
                let Some(spec) = self.specs.get_mut(&format!("w{id}")) else { return false };
                spec.revision += 1;
                Delta::Workload(spec.clone())
            }
            Step::Flavor { name, present: true } => {
                Delta::Flavor(FlavorSpec { name: format!("f{name}"), ..FlavorSpec::default() })
            }
            Step::Flavor { name, .. } => Delta::RemoveFlavor(format!("f{name}")),
            Step::Plan { .. } => return false,
        };
        world.apply(delta).unwrap();
        true
    }
}

fn local_queue(name: &str, cluster_queue: &str) -> LocalQueueSpec {
    let (namespace, cluster_queue) = ("default".into(), cluster_queue.into());
    LocalQueueSpec { namespace, name: name.into(), cluster_queue, stop: StopPolicy::None, weight: 1_000_000_000 }
}

fn start() -> World {
    let mut world = World::default();
    world.apply(Delta::Namespace("default".into(), Default::default())).unwrap();
    for flavor in ["f0", "f1", "f2"] {
        world.apply(Delta::Flavor(FlavorSpec { name: flavor.into(), ..FlavorSpec::default() })).unwrap();
    }
    for queue in QUEUES {
        world.apply(Delta::LocalQueue(local_queue(queue, queue))).unwrap();
    }
    world
}

fn run(
    steps: &[Step],
    mut each: impl FnMut(&mut World, Option<&Plan>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut world = start();
    let mut observer = Observer::default();
    for step in steps {
        if let Step::Plan { max } = step {
            let before = world.over_quota();
            let plan = world.plan(Millis(1000), Limits { max_admissions: *max });
            let fresh: Vec<String> = world.over_quota().into_iter().filter(|fault| !before.contains(fault)).collect();
            prop_assert!(fresh.is_empty(), "plan overbooked: {:?} {:?}", fresh, plan);
            prop_assert!(plan.admissions.len() <= *max);
            for admission in &plan.admissions {
                observer.given.insert(admission.uid.to_string(), admission.clone());
            }
            for eviction in &plan.evictions {
                prop_assert!(observer.may_give(eviction), "beyond its surplus: {:?}", eviction);
            }
            each(&mut world, Some(&plan))?;
        } else if observer.apply(&mut world, step) {
            each(&mut world, None)?;
        }
    }
    Ok(())
}

/// Tries a law on the steps of each seed.
fn holds(law: impl Fn(Vec<Step>) -> Result<(), TestCaseError>) {
    let steps = proptest::collection::vec(step(), 1..30);
    let one = ProptestConfig { cases: 1, failure_persistence: None, ..ProptestConfig::default() };
    for seed in seeds() {
        let config = ProptestConfig { rng_seed: RngSeed::Fixed(seed), ..one.clone() };
        if let Err(failure) = TestRunner::new(config).run(&steps, &law) {
            panic!("seed {seed}: {failure}");
        }
    }
}

/// Accounting that is updated with each change equals recomputed accounting, and a plan never takes more quota than there is.
#[test]
fn accounting_is_exact_and_plans_keep_within_quota() {
    holds(|steps| {
        run(&steps, |world, _| {
            let faults = check(world);
            prop_assert!(faults.is_empty(), "{:?}", faults);
            Ok(())
        })
    });
}

/// A parked workload that would fit is always woken, so a sweep after a plan finds no parked workload that fits.
#[test]
fn sweep_after_plan_finds_no_parked_workload_that_fits() {
    holds(|steps| {
        run(&steps, |world, plan| {
            if plan.is_some_and(|plan| !plan.more) {
                let found = world.sweep(Millis(1000));
                prop_assert_eq!(found, 0);
            }
            Ok(())
        })
    });
}

/// If no workload keeps quota from others without using it, a workload that is pending after a plan does not fit.
#[test]
fn workload_pending_after_a_plan_does_not_fit() {
    holds(|steps| {
        let tame = |step: &Step| match step.clone() {
            Step::Queue { name, cohort, nominal, borrow, lend, split, .. } => {
                Step::Queue { name, cohort, nominal, borrow, lend, policy: 0, strict: false, split }
            }
            Step::Pending { id, queue, cpu, memory, min, second, .. } => {
                Step::Pending { id, queue, cpu, memory, priority: 0, min, second }
            }
            Step::Rank { id, .. } => Step::Rank { id, priority: 0 },
            step => step,
        };
        let steps: Vec<Step> = steps.iter().map(tame).collect();
        run(&steps, |world, plan| {
            if plan.is_some_and(|plan| !plan.more) {
                for id in 0..24 {
                    let Some(account) = world.account(&format!("w{id}"), Millis(1000)) else { continue };
                    let is_idle = account
                        .cluster_queue
                        .as_ref()
                        .is_none_or(|queue| !world.readiness(queue).is_some_and(|r| r.active));
                    let waits = account.holds.is_none() && account.obstacle.is_none() && !is_idle;
                    prop_assert!(!waits || account.mode != Some(Mode::Fit), "{:?}", account);
                }
            }
            Ok(())
        })
    });
}

/// A plan directly after a plan neither admits nor evicts, and the same deltas give the same plans.
#[test]
fn plans_are_complete_and_deterministic() {
    holds(|steps| {
        let mut first = Vec::new();
        run(&steps, |world, plan| {
            if let Some(plan) = plan {
                first.push(format!("{plan:?}"));
                if !plan.more {
                    let again = world.plan(Millis(1000), Limits { max_admissions: 100 });
                    prop_assert!(again.admissions.is_empty() && again.evictions.is_empty(), "{:?}", again);
                }
            }
            Ok(())
        })?;
        let mut second = Vec::new();
        run(&steps, |world, plan| {
            if let Some(plan) = plan {
                second.push(format!("{plan:?}"));
                if !plan.more {
                    let _again = world.plan(Millis(1000), Limits { max_admissions: 100 });
                }
            }
            Ok(())
        })?;
        prop_assert_eq!(first, second);
        Ok(())
    });
}
