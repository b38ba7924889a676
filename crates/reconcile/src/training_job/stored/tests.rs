use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, deleting};
use crate::testing::step::{Step, step};
use crate::testing::{State, now, own_name};
use crate::training_job::tests::{listed, pending, saving, store};

fn decided(state: &State) -> Step {
    step(&decide(&state.context(), &own_name("a"), now()))
}

fn running(training: Value) -> State {
    State::new().with(store()).with(training).with(admitted(pending()))
}

#[test]
fn checkpoints_of_running_job_are_listed_and_pruned() {
    let saves = || saving("main", -50);
    let rows: Vec<(&str, State, &str)> = vec![
        ("never listed", running(saves()), "ListCheckpoints: ask Checkpoints ns/a"),
        ("just listed", listed(running(saves()), &[80, 90], 4), "wait 6s"),
        (
            "too many",
            listed(running(saves()), &[60, 70, 80, 90], 4),
            "DeleteCheckpoints: delete checkpoints Checkpoints ns/a",
        ),
        ("goes", running(deleting(saves())), "done"),
        ("no such store", running(saving("other", -50)), "done"),
        ("does not run", State::new().with(store()).with(saves()), "done"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(decided(&state).what, expected, "{name}");
    }
}

/// The checkpoint from which the present run began is not deleted, however old it is.
#[test]
fn deletion_spares_latest_checkpoints_and_the_resumed_one() {
    let mut state = listed(running(saving("main", -50)), &[50, 60, 70, 80, 90], 4);
    assert_eq!(decided(&state).body, json!(["step-50", "step-60"]));
    state.notes.jobs_mut().change("a-uid", |notes| notes.training_mut().note_begin(Some("step-50".to_owned())));
    assert_eq!(decided(&state).body, json!(["step-60"]));
}
