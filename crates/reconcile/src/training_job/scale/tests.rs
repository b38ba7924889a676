use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, condition_since, training_job, with_condition, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, at, now};
use crate::training_job::scale_notes::GiveUp;
use crate::training_job::tests::{case_of, elastic, elastic_workers, granted_two};

fn running(workload: Value, child: Value) -> State {
    State::new().with(elastic()).with(workload).with(child)
}

fn scaled_by(state: &State) -> Option<Step> {
    case_of(state, |case| case.scale(state.workload("w"), &case.states()).map(|decision| step(&decision)))
}

/// The Workload of an elastic TrainingJob, with this number of workers in its spec and with quota for all of them.
fn granted_of(workers: i32) -> Value {
    let mut workload = granted_two();
    workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(workers);
    workload["spec"]["podSets"][0]["count"] = json!(workers);
    workload
}

fn size(workers: i32) -> Value {
    json!({"spec": {"parallelism": workers, "completions": workers}, "status": {"active": workers, "ready": workers}})
}

#[test]
fn workers_follow_the_quota_of_their_run() {
    let resize = "ScaleTraining: merge Job ns/a-worker";
    let rows = [
        ("as many as quota", running(granted_two(), elastic_workers(json!({}))), None),
        ("quota for more", running(granted_of(3), elastic_workers(json!({}))), Some((resize, 3))),
        ("more than quota", running(granted_two(), elastic_workers(size(3))), Some((resize, 2))),
    ];
    for (name, state, expected) in rows {
        let found = scaled_by(&state);
        let found = found
            .as_ref()
            .map(|step| (step.what.as_str(), step.body["spec"]["parallelism"].as_i64().unwrap_or_default()));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn run_above_its_maximum_gives_workers_up_step_by_step() {
    let above = |seconds: i64| {
        let workload = with_condition(granted_of(4), condition_since("Admitted", true, "Admitted", -seconds));
        scaled_by(&running(workload, elastic_workers(size(4)))).map(|step| step.what)
    };
    assert_eq!(above(50).as_deref(), Some("wait 10s"), "the pause after its start");
    assert_eq!(above(60).as_deref(), Some("ScaleTraining: merge Job ns/a-worker"));
}

#[test]
fn preemptor_gets_workers_down_to_the_minimum() {
    let asked = |keeps: i32| {
        let mut state = running(granted_two(), elastic_workers(json!({})));
        let eviction = berth_engine::model::Eviction {
            uid: "w-uid".to_owned(),
            preemptor: "other".to_owned(),
            reason: "InClusterQueue",
            preemptor_path: "/cq".to_owned(),
            preemptee_path: "/cq".to_owned(),
            gives_up: Some(1),
        };
        state
            .notes
            .workloads_mut()
            .change("w-uid", |notes| notes.scale_mut().ask_for_workers(GiveUp { keeps, eviction }));
        scaled_by(&state)
    };
    let given = asked(1).expect("a step");
    assert_eq!(
        (given.what.as_str(), &given.body["spec"]["parallelism"]),
        ("ScaleTraining: merge Job ns/a-worker", &json!(1))
    );
    let message = "Normal ScalingDown: from 2 to 1 workers: a Workload that is gone needs quota (InClusterQueue)";
    assert_eq!(given.events, [message]);
    assert_eq!(asked(0).map(|step| step.body["spec"]["parallelism"].clone()), Some(json!(1)), "not below its minimum");
    assert_eq!(asked(2), None, "nothing is to go");
}

/// Quota is released when no pod runs beyond the workers that stay.
#[test]
fn quota_of_removed_workers_is_released_after_their_pods() {
    let mut state = running(granted_two(), elastic_workers(size(1)));
    let found = |state: &State| {
        case_of(state, |case| case.surplus_left(state.workload("w"), 1, 1).map(|decision| step(&decision).what))
    };
    assert_eq!(found(&state).as_deref(), Some("ProbeSurplus: ask Workload ns/w"));
    state.notes.workloads_mut().change("w-uid", |notes| notes.scale_mut().note_shrunk(1, now()));
    assert_eq!(found(&state), None);
    let counted = running(granted_two(), elastic_workers(json!({})));
    assert_eq!(found(&counted).as_deref(), Some("wait 1s"), "its Job still counts two pods");
    let lowered = case_of(&state, |case| crate::testing::step::written(&case.lower(state.workload("w"), 1, "")));
    assert_eq!(lowered.body["spec"], json!({"podSets": [{"name": "worker", "count": 1}]}));
    assert_eq!(lowered.body["metadata"]["annotations"], json!({"berth.dev/size": "1 pod, cpu 1"}));
    assert_eq!(lowered.events, ["Normal ScaledDown: 1 of 2 workers are left, and their quota"]);
}

#[test]
fn elastic_condition_describes_bounds_and_steps() {
    let describe = |training: Value| {
        let state = State::new().with(training);
        case_of(&state, |case| case.elasticity(None))
            .map(|(holds, reason, message)| (holds, format!("{reason}: {message}")))
    };
    assert_eq!(describe(training_job("a")), None);
    let message = "ScalePolicy: 1 to 4 workers; adds 1 at once, 300s after its start or a change, and takes 1 at once, 60s after a change";
    assert_eq!(describe(elastic()), Some((true, message.to_owned())));
    let restarts = describe(changed(elastic(), json!({"spec": {"jobType": "TFJob"}}))).expect("words");
    assert!(restarts.1.starts_with("ShrinksOnly: 1 to 4 workers; all pods of a TFJob start again"), "{}", restarts.1);
}

#[test]
fn slice_that_gets_no_quota_in_time_is_deleted() {
    let slice = |patch: Value| {
        let replaces = json!({"metadata": {"name": "x", "uid": "x-uid", "creationTimestamp": at(-1),
            "annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w"}}});
        changed(changed(workload_of(&elastic()), replaces), patch)
    };
    let beside = |slice: Value| {
        let state = running(granted_two(), elastic_workers(json!({}))).with(slice);
        case_of(&state, |case| {
            let owned = state.view.workloads_of("a-uid");
            case.beside(state.workload("w"), &owned).map(|decision| step(&decision).what)
        })
    };
    let dropped = beside(slice(json!({"metadata": {"creationTimestamp": at(-600)}})));
    assert_eq!(dropped.as_deref(), Some("DeleteWorkload: delete Workload ns/x"), "its quota did not come");
    let state = State::new().with(slice(json!({})));
    let found = step(&discard(state.workload("x")));
    assert_eq!(found.events, ["Normal Deleted: The workload slice is out of sync with its parent job"]);
}
