use std::time::Duration;

use super::*;
use crate::testing::objects::{admitted, condition_since, with_condition, workload};
use crate::testing::step::step;
use crate::testing::{State, in_seconds, now};
use crate::workload::stops::take_back;

/// A workload that was admitted a minute ago by the wall clock, where a number of these seconds was a jump of the clock.
fn jumped(seconds: i64) -> State {
    let workload = with_condition(admitted(workload("w")), condition_since("Admitted", true, "Admitted", -60));
    let mut state = State::new().with(workload);
    state.view.tick(in_seconds(-60), Duration::from_secs(100));
    let passed = u64::try_from(160 - seconds).unwrap_or(0);
    state.view.tick(now(), Duration::from_secs(passed));
    state
}

#[test]
fn execution_time_of_workload_excludes_jumps_of_the_clock() {
    for (jump, ran) in [(0, 60), (40, 20)] {
        let state = jumped(jump);
        let ctx = state.context();
        assert_eq!(ctx.time_run(state.workload("w"), now()), ran);
        let given_back = take_back(state.workload("w"), ("PendingEvaluation", "m"), now());
        let found = step(&ctx.timed(given_back, now()));
        assert_eq!(found.body["status"]["accumulatedPastExecutionTimeSeconds"], serde_json::json!(ran), "{jump}");
    }
}

#[test]
fn decision_that_gives_no_quota_back_keeps_its_times() {
    let state = jumped(40);
    let ctx = state.context();
    let wait = Decision::Wait(in_seconds(5));
    assert_eq!(step(&ctx.timed(wait, now())).what, "wait 5s");
    let draft = crate::workload::status_write(state.workload("w"), crate::write::Purpose::Evict, now(), |_| {});
    assert_eq!(
        step(&ctx.timed(Decision::write(draft), now())).body["status"].get("accumulatedPastExecutionTimeSeconds"),
        None
    );
    let unadmitted = State::new().with(workload("w"));
    assert_eq!(unadmitted.context().time_run(unadmitted.workload("w"), now()), 0);
}
