use crate::testing::objects::admitted;
use crate::testing::{State, in_seconds, now, own_name};
use crate::training_job::tests::{listed, pending, saving, store};

fn running() -> State {
    State::new().with(store()).with(saving("main", -50)).with(admitted(pending()))
}

#[test]
fn missing_checkpoint_store_is_named_with_existing_ones() {
    let missing = |state: State| state.context().lacks_store(state.workload("w"));
    assert_eq!(missing(running()), None);
    let unknown = State::new().with(store()).with(saving("other", -50)).with(admitted(pending()));
    let message = "spec.checkpoint.store: \"other\" is no CheckpointStore; those that exist: main";
    assert_eq!(missing(unknown).as_deref(), Some(message));
    let none = State::new().with(saving("other", -50)).with(admitted(pending()));
    assert_eq!(
        missing(none).as_deref(),
        Some("spec.checkpoint.store: \"other\" is no CheckpointStore; those that exist: there is none")
    );
}

#[test]
fn checkpoint_listings_repeat_at_half_the_interval() {
    let next = |state: State| {
        let name = own_name("a");
        state.context().next_look(&name, &state.view.training()[&name], now())
    };
    assert_eq!(next(State::new().with(store()).with(saving("main", -50))), None, "it does not run");
    assert_eq!(next(running()), Some(now()), "it was never listed");
    assert_eq!(next(listed(running(), &[90], 70)), Some(now()), "it was listed before the run");
    assert_eq!(next(listed(running(), &[90], 4)), Some(in_seconds(6)));
}

#[test]
fn training_start_waits_for_store_listing_at_most_a_minute() {
    let name = own_name("a");
    let knows = |state: &State, begun: i64| {
        state.context().knows_where_to_resume(&name, &state.view.training()[&name], (in_seconds(begun), now()))
    };
    assert!(!knows(&running(), -59));
    assert!(knows(&running(), -60), "it was patient");
    assert!(knows(&listed(running(), &[], 4), -4));
    assert!(!knows(&listed(running(), &[], 4), -3), "the listing is older");
}

#[test]
fn last_checkpoint_and_the_next_due_time_follow_the_store() {
    let state = listed(running(), &[70, 90], 4);
    let name = own_name("a");
    let view = &state.view.training()[&name];
    let saved = state.context().saved_of(&name, view).expect("a checkpoint");
    assert_eq!((saved.step, saved.uri.as_deref()), (Some(90), Some("s3://b/all/ns/a/step-90")));
    assert_eq!(state.context().save_due(&name, view), Some(in_seconds(10)));
    let never = running();
    assert_eq!(
        never.context().save_due(&name, &never.view.training()[&name]),
        Some(in_seconds(-30)),
        "it has run for 50 s"
    );
}
