use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, deleting, job, workload, workload_of};
use crate::testing::step::{Step, step};
use crate::testing::{State, named, read};

fn notice(reason: &str, message: String) -> Notice {
    let (key, uid, reason) = (named(Kind::JOB, "a"), "a-uid".to_owned(), reason.to_owned());
    Notice { key, uid, event_type: EventType::Normal, reason, message, reporter: "reporter" }
}

/// The creation of Workload `w` for job `a`, in the given state.
fn created(state: &State, made: Value) -> Step {
    let made: api::Workload = read(made);
    step(&create(&state.context(), &named(Kind::JOB, "a"), &made, |message| notice("CreatedWorkload", message)))
}

#[test]
fn created_workload_has_its_size_and_an_event() {
    let found = created(&State::new(), workload_of(&job("a")));
    assert_eq!(found.what, "CreateWorkload: create Workload ns/w");
    assert_eq!(found.body["metadata"]["annotations"], json!({"berth.dev/size": "2 pods, cpu 2"}));
    assert_eq!(found.events, ["Normal CreatedWorkload: Created Workload: ns/w"]);
}

#[test]
fn workload_with_the_name_of_another_is_not_created() {
    let of_another = || workload_of(&job("b"));
    let message = "has the name that the Workload of this job is to have: delete it";
    let known = || {
        let mut state = State::new().with(workload("w"));
        let text = format!("Workload ns/w belongs to no job and {message}");
        state.note_event(named(Kind::JOB, "a"), "WorkloadNameConflict", &text);
        state
    };
    let rows: Vec<(&str, State, &str, Option<String>)> = vec![
        (
            "nobody's",
            State::new().with(workload("w")),
            "tell",
            Some(format!("Workload ns/w belongs to no job and {message}")),
        ),
        (
            "another job's",
            State::new().with(job("b")).with(of_another()),
            "tell",
            Some(format!("Workload ns/w belongs to Job ns/b and {message}")),
        ),
        ("nobody's, and known", known(), "wait for Workload ns/w", None),
        ("of a job that is gone", State::new().with(of_another()), "wait for Workload ns/w", None),
        ("going", State::new().with(deleting(workload("w"))), "wait for Workload ns/w", None),
    ];
    for (name, state, expected, text) in rows {
        let found = created(&state, workload_of(&job("a")));
        assert_eq!(found.what, expected, "{name}");
        let event = text.map(|text| format!("Warning WorkloadNameConflict: {text}"));
        assert_eq!(found.events, event.into_iter().collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn workload_without_room_for_its_status_is_refused() {
    let large = changed(workload_of(&job("a")), json!({"metadata": {"annotations": {"x": "y".repeat(2 << 20)}}}));
    let found = created(&State::new(), large);
    assert_eq!(found.what, "tell");
    assert!(found.events[0].starts_with("Warning ErrWorkloadCompose: "), "{}", &found.events[0][..80]);
}

/// The Workload of a deleted job holds the quota of pods that still run.
#[test]
fn prebuilt_workload_is_adopted_unless_it_was_another_jobs() {
    let labelled = |labels: Value| changed(workload("w"), json!({"metadata": {"labels": labels}}));
    for (workload, expected) in [
        (workload("w"), true),
        (labelled(json!({"kueue.x-k8s.io/job-uid": "a-uid"})), true),
        (labelled(json!({"kueue.x-k8s.io/job-uid": "b-uid"})), false),
        (labelled(json!({"kueue.x-k8s.io/job-uid": "b-uid", "kueue.x-k8s.io/multikueue-origin": "other"})), true),
    ] {
        let state = State::new().with(workload);
        assert_eq!(may_adopt(state.workload("w"), "a-uid"), expected);
    }
}
