use serde_json::json;

use crate::testing::State;
use crate::testing::objects::{admitted, changed, training_job};
use crate::training_job::tests::{case_of, listed, pending, saving, store};

fn state(up_since: i64) -> State {
    State::new().with(store()).with(saving("main", up_since)).with(admitted(pending()))
}

/// The conditions about the save interval and the store, each as its status and reason.
fn conditions(state: &State, is_up: bool) -> [(bool, String); 2] {
    case_of(state, |case| case.checkpoint_conditions(is_up)).map(|(_, (holds, reason, _))| (holds, reason))
}

#[test]
fn save_is_overdue_if_listing_shows_none_in_interval() {
    let overdue = |state: &State, is_up: bool| conditions(state, is_up)[0].clone();
    let (kept, missed, rests) = ("IntervalKept".to_owned(), "IntervalMissed".to_owned(), "NotRunning".to_owned());
    assert_eq!(overdue(&listed(state(-50), &[90], 4), true), (false, kept.clone()), "it saved ten seconds ago");
    assert_eq!(overdue(&listed(state(-50), &[70], 4), true), (true, missed));
    assert_eq!(overdue(&listed(state(-50), &[70], 40), true), (false, kept), "nobody has looked since it was due");
    assert_eq!(overdue(&listed(state(-50), &[70], 4), false), (false, rests));
}

#[test]
fn store_is_unavailable_while_its_last_listing_failed() {
    let mut failed = state(-50);
    let name = crate::testing::own_name("a");
    let place = failed.context().place_of(&name, &failed.view.training()[&name]);
    let found = Err("no route".to_owned());
    crate::training_job::saves::note_listing(
        failed.notes.jobs_mut(),
        &failed.view,
        &name,
        place.as_ref(),
        found,
        crate::testing::now(),
    );
    assert_eq!(conditions(&failed, true)[1], (true, "RequestFailed".to_owned()));
    assert_eq!(conditions(&state(-50), true)[1], (false, "Available".to_owned()));
}

#[test]
fn status_shows_checkpoints_of_the_store_newest_first() {
    let state = listed(state(-50), &[70, 90], 4);
    let shown = case_of(&state, |case| case.checkpoint_status(None)).expect("checkpoints");
    assert_eq!(shown.count, Some(2));
    let steps: Vec<Option<i64>> = shown.checkpoints.iter().map(|info| info.step).collect();
    assert_eq!(steps, [Some(90), Some(70)]);
    assert_eq!(shown.latest.and_then(|info| info.step), Some(90));
    let silent = State::new().with(training_job("a")).with(admitted(pending()));
    assert_eq!(case_of(&silent, |case| case.checkpoint_status(None)), None);
    let reported = json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": crate::testing::at(-5)}}});
    let reports = State::new().with(changed(training_job("a"), reported)).with(admitted(pending()));
    let shown = case_of(&reports, |case| case.checkpoint_status(None)).and_then(|status| status.latest);
    assert_eq!(shown.map(|info| info.time.0), Some(crate::testing::in_seconds(-5)), "the job reports it itself");
}
