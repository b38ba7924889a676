use serde_json::{Value, json};

use crate::testing::State;
use crate::testing::objects::{admitted, changed, deleting, workload_of};
use crate::testing::step::step;
use crate::testing::{at, in_seconds};
use crate::training_job::tests::{case_of, restarting, workers};

/// The Workload of TrainingJob `a`, admitted with one number of workers, with the note of a restart with another number.
fn noted(granted: i32, workers: i32) -> Value {
    let scale = json!({"workers": workers, "at": at(-20), "workload": "w-uid"}).to_string();
    let mut workload = changed(
        admitted(workload_of(&restarting())),
        json!({"metadata": {"annotations": {"berth.dev/last-scale": scale}}}),
    );
    workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(granted);
    workload
}

/// The Job of TrainingJob `a`'s workers, whose pods were started with this number of workers.
fn with_workers(annotated_workers: i32) -> Value {
    let size = json!({"parallelism": annotated_workers, "completions": annotated_workers});
    workers(
        json!({"metadata": {"annotations": {"berth.dev/told-workers": annotated_workers.to_string()}}, "spec": size}),
    )
}

fn next(state: &State) -> Option<String> {
    case_of(state, |case| case.restarting(state.workload("w")).map(|decision| step(&decision).what))
}

fn without_pods(mut state: State, workers: i32) -> State {
    state.notes.workloads_mut().change("w-uid", |notes| notes.scale_mut().note_shrunk(workers, in_seconds(-1)));
    state
}

#[test]
fn restart_deletes_old_jobs_waits_for_pods_and_frees_quota() {
    let state = |workload: Value| State::new().with(restarting()).with(workload);
    let deletes = Some("StopTraining: delete Job ns/a-worker");
    let rows = [
        ("no restart", state(admitted(workload_of(&restarting()))).with(with_workers(4)), None),
        ("an old Job", state(noted(4, 3)).with(with_workers(4)), deletes),
        ("the old Job is gone", state(noted(4, 3)), Some("ProbeSurplus: ask Workload ns/w")),
        ("its pods are gone", without_pods(state(noted(4, 3)), 3), Some("LowerCount: apply Workload ns/w")),
        ("its quota is free", without_pods(state(noted(3, 3)), 3), None),
        ("the new Job is there", state(noted(3, 3)).with(with_workers(3)), None),
        ("more workers, pods are left", state(noted(4, 4)), Some("ProbeSurplus: ask Workload ns/w")),
    ];
    for (name, state, expected) in rows {
        assert_eq!(next(&state).as_deref(), expected, "{name}");
    }
}

#[test]
fn restart_message_names_pods_that_it_waits_for() {
    let waits = |state: State| case_of(&state, |case| case.waits_for_pods(state.workload("w")));
    let state = || State::new().with(restarting()).with(noted(4, 4));
    let message = "waits until the pods of Job a-worker are gone (kubectl get pods -n ns -l berth.dev/training-job=a)";
    assert_eq!(waits(state()).as_deref(), Some(message));
    assert_eq!(waits(without_pods(state(), 4)), None);
    assert_eq!(waits(state().with(with_workers(4))), None, "its new Job is there");
    assert_eq!(waits(State::new().with(restarting()).with(admitted(workload_of(&restarting())))), None);
}

/// The readiness of pods of the previous run says nothing about the next run.
#[test]
fn restart_is_pending_while_jobs_of_earlier_run_exist() {
    let yet = |child: Value| {
        let state = State::new().with(restarting()).with(noted(4, 3)).with(child);
        case_of(&state, |case| case.is_yet_to_restart(state.workload("w")))
    };
    assert!(yet(with_workers(4)));
    assert!(yet(deleting(with_workers(4))));
    assert!(!yet(with_workers(3)));
    let meant = |given: i32, child: Value| {
        let state = State::new().with(restarting()).with(noted(given, 4)).with(child);
        let job = &state.view.jobs()[&crate::testing::named(crate::write::Kind::JOB, "a-worker")];
        case_of(&state, |case| case.meant_for(state.workload("w"), "worker", job))
    };
    assert_eq!(
        (meant(4, with_workers(2)), meant(1, with_workers(2))),
        (2, 1),
        "it keeps the number with which it started"
    );
}
