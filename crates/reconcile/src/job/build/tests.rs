use serde_json::{Value, json};

use super::*;
use crate::job::tests::case_of;
use crate::testing::objects::{changed, job};
use crate::testing::step::{event, step};
use crate::testing::{State, named};

/// The Workload that is built from a job, or the event about the job's fault.
fn built(job: Value) -> Result<Value, String> {
    let state = State::new().with(job);
    case_of(&state, &named(Kind::JOB, "a"), |case| match case.build() {
        Ok(made) => Ok(serde_json::to_value(made).expect("JSON")),
        Err(Unbuilt::Lean) => Err("lean".to_owned()),
        Err(problem) => Err(event(&case.complaint(&problem))),
    })
}

#[test]
fn built_workload_has_queue_owner_and_pods_of_its_job() {
    let made =
        built(changed(job("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}}})))
            .expect("a Workload");
    assert_eq!(made["spec"]["queueName"], "lq");
    assert_eq!(made["spec"]["maximumExecutionTimeSeconds"], 60);
    assert_eq!(made["spec"]["podSets"][0]["count"], 2);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "a-uid");
    assert_eq!(made["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
}

#[test]
fn job_that_yields_no_workload_gets_event_with_fault() {
    let class = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "none"}}});
    let minimum = json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "5"}}});
    for (patch, expected) in
        [(class, "none"), (minimum, "Warning ErrWorkloadCompose: annotation kueue.x-k8s.io/job-min-parallelism")]
    {
        let error = built(changed(job("a"), patch)).expect_err("a fault");
        assert!(error.contains(expected), "{error}");
    }
}

/// Only a part of a large job is kept in memory, so the job is read again before its Workload is built, and only a few jobs are read at a time.
#[test]
fn large_job_is_read_before_its_workload_is_made() {
    let large = changed(
        job("a"),
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "i", "args": ["x".repeat(100_000)], "resources": {"requests": {"cpu": "1"}}}]}}}}),
    );
    let mut state = State::new().with(large);
    state.view.lighten_job(&named(Kind::JOB, "a"));
    let found = |state: &State| {
        case_of(state, &named(Kind::JOB, "a"), |case| {
            assert!(matches!(case.build(), Err(Unbuilt::Lean)));
            step(&case.read()).what
        })
    };
    assert_eq!(found(&state), "ReadJob: ask Job ns/a");
    let name = workload_name("Job", "batch", "a", "a-uid");
    state.in_flight.expect(named(Kind::Workload, &name), 8);
    assert_eq!(found(&state), format!("wait for Workload ns/{name}"), "it is being made");
    let mut state = state;
    state.in_flight.vanished(&named(Kind::Workload, &name));
    for job in 0..64 {
        let other = named(Kind::Workload, &format!("other-{job}"));
        let mut draft = Draft::of_any_version(
            Purpose::CreateWorkload,
            other.clone(),
            crate::write::Write::Create(crate::write::Body::of_new(json!({}))),
        );
        state.in_flight.start(&mut draft, other);
    }
    assert_eq!(found(&state), "wait for creations");
}
