use serde_json::json;

use crate::job::tests::{case_of, placed};
use crate::testing::objects::{admitted, changed, job, job_set, workload_of};
use crate::testing::step::{event, step};
use crate::testing::{State, named};
use crate::write::Kind;

#[test]
fn suspended_job_in_another_queue_gives_its_quota_back() {
    let in_queue =
        |queue: &str| changed(job("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}}));
    for (queue, expected) in [("lq", None), ("other", Some("The job was moved to LocalQueue other"))] {
        let state = State::new().with(in_queue(queue)).with(admitted(workload_of(&job("a"))));
        let found = case_of(&state, &named(Kind::JOB, "a"), |case| case.moved(state.workload("w")));
        let found = found.map(|decision| step(&decision));
        let reason = found.as_ref().and_then(|step| step.condition("QuotaReserved"));
        assert_eq!(reason.map(|(_, _, message)| message), expected, "{queue}");
    }
}

#[test]
fn foreign_suspension_is_reported_only_for_a_started_job() {
    let state = State::new()
        .with(placed(job("a"), true))
        .with(job("b"))
        .with(job_set("c", 1))
        .with(admitted(workload_of(&job("a"))));
    let reported_by = |kind: Kind, name: &str| {
        case_of(&state, &named(kind, name), |case| {
            case.suspension_undone(state.workload("w")).map(|notice| event(&notice))
        })
    };
    let message = "Somebody else has set spec.suspend to true; it runs by Workload w: to stop it, set spec.active of that to false";
    assert_eq!(reported_by(Kind::JOB, "a"), Some(format!("Warning SuspensionUndone: {message}")));
    assert_eq!(reported_by(Kind::JOB, "b"), None, "it was never started");
    assert_eq!(reported_by(Kind::JOB_SET, "c"), None);
}
