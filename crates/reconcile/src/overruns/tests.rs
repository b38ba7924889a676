use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, changed, cluster_queue, job, reserved, workload_of};
use crate::testing::{State, named};

/// Job `a` with so many pods, running.
pub(super) fn running(pods: i64) -> Value {
    changed(job("a"), json!({"spec": {"suspend": false}, "status": {"active": pods}}))
}

/// Charge of a job: the charged ClusterQueue, and the amount in milli cpus.
type Charged = Option<(String, i64)>;

/// Pods that run and pods with quota, with the charge in milli cpus and the charged ClusterQueue.
fn usage(state: &State) -> Option<([i64; 2], Charged)> {
    let found = usage_of(&state.context(), &named(Kind::JOB, "a"))?;
    let cpu = |charge: BeyondSpec| {
        let amount = charge.usage.iter().find(|(cell, _)| cell.resource == "cpu").map_or(0, |(_, amount)| amount.get());
        (charge.cluster_queue, amount)
    };
    Some((found.pods, found.charge.map(cpu)))
}

/// The usage beyond quota of an object as text: pods that run and pods with quota, the carrier of the charge, its ClusterQueue, and amounts by flavor.
pub(super) fn shown(state: &State, object: &ObjectKey) -> String {
    let Some(found) = usage_of(&state.context(), object) else { return "none".to_owned() };
    let [runs, held] = found.pods;
    let Some(charge) = found.charge else { return format!("{runs}/{held} no queue") };
    let cells = charge.usage.iter().map(|(cell, sum)| format!(" {}/{} {}", cell.flavor, cell.resource, sum.get()));
    format!("{runs}/{held} {} {}{}", charge.carrier, charge.cluster_queue, cells.collect::<String>())
}

#[test]
fn pods_beyond_job_quota_are_charged_to_its_queue() {
    let state = |pods: i64, workload: Value| State::new().with(running(pods)).with(workload);
    let workload = || workload_of(&job("a"));
    let charged = |cpus: i64| Some(("cq".to_owned(), cpus));
    assert_eq!(usage(&state(2, admitted(workload()))), None, "as many run as have quota");
    assert_eq!(usage(&state(3, admitted(workload()))), Some(([3, 2], charged(1_000))));
    assert_eq!(usage(&state(2, workload())), Some(([2, 0], charged(2_000))), "it waits, and runs all the same");
    assert_eq!(usage(&state(0, workload())), None);
    assert_eq!(usage(&State::new()), None, "there is no such job");
}

/// If a ClusterQueue were charged for a namespace that its `namespaceSelector` excludes, a user who may make LocalQueues there could take the quota of the
/// ClusterQueue.
#[test]
fn queue_that_excludes_the_namespace_is_not_charged() {
    let closed = changed(
        cluster_queue("cq", &[("f", 10)]),
        json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "other"}}}}),
    );
    let state = State::new().with(closed).with(running(2)).with(workload_of(&job("a")));
    assert_eq!(usage(&state), Some(([2, 0], None)));
}

#[test]
fn workload_is_known_to_run_beyond_or_without_quota() {
    let known = |pods: i64, workload: Value| {
        let mut state = State::new().with(running(pods)).with(workload);
        state.note_overruns(&[named(Kind::JOB, "a")]);
        let ctx = state.context();
        let workload = state.workload("w");
        (ctx.has_overrun(workload), ctx.runs_without_quota(workload), ctx.has_room_for(workload, "cpu"))
    };
    assert_eq!(known(2, reserved(workload_of(&job("a")))), (false, false, false));
    assert_eq!(known(3, admitted(workload_of(&job("a")))), (true, false, true));
    assert_eq!(known(2, workload_of(&job("a"))), (true, true, true));
}
