//! Laws of claims: quota for which a preemptor issued preemptions is kept for it until the preemptor starts, or until it could no longer start with this quota.

use crate::worlds::{Objects, amount, hold, pending, queue};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

/// A resource group of cpu: flavors with their nominal quotas.
fn cpu(flavors: &[(&str, u64)]) -> Vec<ResourceGroup> {
    let quota = |nominal: u64| Quota { nominal: amount(nominal), borrowing_limit: None, lending_limit: None };
    let flavor = |(name, nominal): &(&str, u64)| FlavorQuotas { flavor: (*name).into(), quotas: vec![quota(*nominal)] };
    vec![ResourceGroup { covered: vec!["cpu".into()], flavors: flavors.iter().map(flavor).collect() }]
}

fn cohort(groups: Vec<ResourceGroup>) -> CohortSpec {
    CohortSpec { name: "x".into(), parent: None, groups, weight: 1_000_000_000 }
}

fn admitted(plan: &Plan) -> Vec<&str> {
    plan.admissions.iter().map(|admission| &*admission.uid).collect()
}

fn evicted(plan: &Plan) -> Vec<&str> {
    plan.evictions.iter().map(|eviction| eviction.uid.as_str()).collect()
}

fn leave(world: &mut World, uid: &str) -> Plan {
    world.apply(Delta::RemoveWorkload(uid.into())).unwrap();
    world.plan(NOW, ALL)
}

/// While the victim holds flavor f1, the pod set of the driver can have flavor f0 by borrowing, and the pod set of the worker flavor f1. When the victim has
/// left, the driver would prefer flavor f1, and would take the quota that the worker needs.
#[test]
fn claim_keeps_flavors_of_all_pod_sets_of_preemptor() {
    let mut own = queue("q", Some("x"), cpu(&[("f0", 0), ("f1", 6)]));
    own.preemption.within_cluster_queue = PreemptionPolicy::LowerPriority;
    own.fungibility.when_can_borrow = Fungibility::TryNextFlavor;
    let mut victim = pending("victim", "q", 0, 0, &[("cpu", 4)]);
    hold(&mut victim, "f1", 0, false);
    let mut preemptor = pending("preemptor", "q", 1, 1, &[("cpu", 3)]);
    preemptor.pod_sets.push(PodSetSpec { name: "worker".into(), ..preemptor.pod_sets[0].clone() });
    preemptor.pod_sets[1].requests.insert("cpu".into(), amount(5));
    let objects = Objects {
        cohorts: vec![cohort(cpu(&[("f0", 4)]))],
        queues: vec![own],
        workloads: vec![victim.clone(), preemptor],
        ..Objects::default()
    };
    let mut world = objects.world();
    assert_eq!(evicted(&world.plan(NOW, ALL)), ["victim"]);
    // The evicted workload `victim` stops at once and waits for quota again.
    victim.revision += 1;
    victim.state = WorkloadState::Pending { not_before: None, blocked: None };
    world.apply(Delta::Workload(victim)).unwrap();
    let plan = world.plan(NOW, ALL);
    assert_eq!((admitted(&plan), evicted(&plan)), (vec!["preemptor"], vec![]));
    let flavors: Vec<&str> = plan.admissions[0].pod_sets.iter().map(|set| set.flavors["cpu"].as_str()).collect();
    assert_eq!(flavors, ["f0", "f1"]);
}

/// A world in which the queue `other` is above its quota until `large` has left: after that, `small` could not be preempted any more. The workload `next` waits
/// for any free quota.
fn two_victims() -> World {
    let mut own = queue("own", Some("x"), cpu(&[("f0", 4)]));
    own.preemption.reclaim_within_cohort = PreemptionPolicy::LowerPriority;
    own.preemption.borrow_within_cohort = true;
    let other = queue("other", Some("x"), cpu(&[("f0", 2)]));
    let mut large = pending("large", "other", 0, 0, &[("cpu", 3)]);
    hold(&mut large, "f0", 1, false);
    let mut small = pending("small", "other", 0, 0, &[("cpu", 1)]);
    hold(&mut small, "f0", 2, false);
    let next = pending("next", "other", 0, 3, &[("cpu", 3)]);
    let preemptor = pending("preemptor", "own", 1, 1, &[("cpu", 6)]);
    let objects = Objects {
        cohorts: vec![cohort(vec![])],
        queues: vec![own, other],
        workloads: vec![large, small, next, preemptor],
        ..Objects::default()
    };
    let mut world = objects.world();
    assert_eq!(evicted(&world.plan(NOW, ALL)), ["small", "large"]);
    world
}

#[test]
fn preemptor_waits_until_all_its_victims_are_gone() {
    let mut world = two_victims();
    let plan = leave(&mut world, "large");
    assert_eq!((admitted(&plan), evicted(&plan)), (vec![], vec![]));
    let reported = plan.verdicts.iter().find(|reported| &*reported.uid == "preemptor").unwrap();
    assert_eq!(reported.reason, PendingReason::WaitingForPreemptedWorkloads);
    let text = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f0, 1m more needed. Pending the preemption of 1 workload(s)";
    assert_eq!(&*reported.message, text);
    assert_eq!(admitted(&leave(&mut world, "small")), ["preemptor"]);
}

/// The preemptor no longer waits for a victim whose eviction failed, and free quota is free for all workloads.
#[test]
fn preemptor_does_not_wait_for_victim_that_stays() {
    let mut world = two_victims();
    world.apply(Delta::Forget("small".into())).unwrap();
    assert_eq!(admitted(&leave(&mut world, "large")), ["next"]);
}

/// With less quota the preemptor could not start even after both victims have left, so it does not wait for victims.
#[test]
fn claim_that_cannot_become_a_fit_is_given_up() {
    let mut world = two_victims();
    let mut own = queue("own", Some("x"), cpu(&[("f0", 3)]));
    own.preemption.reclaim_within_cohort = PreemptionPolicy::LowerPriority;
    own.preemption.borrow_within_cohort = true;
    world.apply(Delta::ClusterQueue(own)).unwrap();
    assert_eq!(admitted(&leave(&mut world, "large")), ["next"]);
}

/// The id of a victim that is gone is reused for another workload, which must not be taken for the victim.
#[test]
fn workload_with_reused_id_is_not_taken_for_victim() {
    let mut world = two_victims();
    world.apply(Delta::RemoveWorkload("small".into())).unwrap();
    let mut newcomer = pending("newcomer", "other", 0, 0, &[("cpu", 1)]);
    hold(&mut newcomer, "f0", 4, false);
    world.apply(Delta::Workload(newcomer)).unwrap();
    let plan = leave(&mut world, "large");
    assert_eq!((admitted(&plan), evicted(&plan)), (vec!["next"], vec![]));
}
