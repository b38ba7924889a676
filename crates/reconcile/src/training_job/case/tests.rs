use serde_json::{Value, json};

use crate::testing::objects::{changed, controlled_by, job, training_job};
use crate::testing::{State, named};
use crate::training_job::tests::{case_of, pending, workers};
use crate::write::{EventType, Kind};

/// A Job with the name of a child may be the Job of an older TrainingJob of the name, or may have been taken by another controller.
#[test]
fn child_of_training_job_names_it_as_controller() {
    let of_pods = json!({"spec": {"template": {"metadata": {"labels": {"berth.dev/training-job-uid": "a-uid"}}}}});
    let other = json!({"metadata": controlled_by(&job("other"))});
    let older = changed(training_job("a"), json!({"metadata": {"uid": "x"}}));
    let none = json!({"metadata": {"ownerReferences": null}});
    let made = || changed(workers(json!({})), of_pods.clone());
    let rows: Vec<(&str, Value, [bool; 3])> = vec![
        ("its Job", made(), [true, true, false]),
        ("taken by another controller", changed(made(), other), [false, false, true]),
        ("without controller", changed(made(), none.clone()), [false, false, true]),
        ("never its Job", changed(workers(json!({})), none), [false, false, false]),
        (
            "of an older TrainingJob",
            changed(workers(json!({})), json!({"metadata": controlled_by(&older)})),
            [false, false, false],
        ),
    ];
    for (name, child, expected) in rows {
        let state = State::new().with(training_job("a")).with(child);
        let found = case_of(&state, |case| {
            let object = case.child_key("worker");
            assert_eq!(object, named(Kind::JOB, "a-worker"));
            let job = case.ctx.view.jobs().get(&object).expect("the Job");
            [case.child("worker").is_some(), case.is_ours(job), case.is_taken_from_us(job)]
        });
        assert_eq!(found, expected, "{name}");
    }
}

/// An edit of the spec takes effect with the next start.
#[test]
fn roles_of_training_job_are_those_of_its_workload() {
    let roles = |state: &State| case_of(state, |case| case.roles());
    let mut older = pending();
    older["spec"]["podSets"][0]["name"] = json!("chief");
    assert_eq!(roles(&State::new().with(training_job("a"))), ["worker"]);
    assert_eq!(roles(&State::new().with(training_job("a")).with(older)), ["chief"]);
}

#[test]
fn event_about_training_job_names_its_uid_and_reporter() {
    let state = State::new().with(training_job("a"));
    let sent = case_of(&state, |case| case.notice(EventType::Normal, "Reason", "in words".to_owned()));
    assert_eq!((&sent.key, sent.uid.as_str()), (&named(Kind::TrainingJob, "a"), "a-uid"));
    assert_eq!((sent.event_type, sent.reporter), (EventType::Normal, "berth-training-job-controller"));
    assert_eq!((sent.reason.as_str(), sent.message.as_str()), ("Reason", "in words"));
}
