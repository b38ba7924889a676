use serde_json::{Value, json};

use crate::job::tests::{case_of, placed};
use crate::testing::objects::{admitted, changed, finished, job, reserved, workload_of};
use crate::testing::{State, named};
use crate::write::Kind;

fn is_same(job: Value, workload: Value) -> bool {
    let state = State::new().with(job).with(workload);
    case_of(&state, &named(Kind::JOB, "a"), |case| case.same(state.workload("w")))
}

#[test]
fn workload_matches_job_that_requests_the_same_pods() {
    let larger = || changed(job("a"), json!({"spec": {"parallelism": 3, "completions": 3}}));
    let smaller = |job: Value| changed(job, json!({"spec": {"parallelism": 1}}));
    let partial =
        || changed(job("a"), json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}}));
    let limited = || changed(job("a"), json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}}}));
    let ended = changed(
        larger(),
        json!({"status": {"conditions": [{"type": "Complete", "status": "True", "reason": "R", "message": ""}]}}),
    );
    let workload = || workload_of(&job("a"));
    let with_one = |job: Value| {
        let mut workload = admitted(workload_of(&job));
        workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(1);
        workload
    };
    let rows = [
        ("alike", job("a"), workload(), true),
        ("more pods", larger(), workload(), false),
        ("fewer pods", smaller(job("a")), workload(), false),
        ("another limit of time", limited(), workload(), false),
        ("the Workload has ended", larger(), finished(workload()), true),
        ("the job has ended", ended, admitted(workload()), true),
        ("runs as admitted", placed(job("a"), false), admitted(workload()), true),
        ("runs with fewer pods, as admitted", placed(smaller(partial()), false), with_one(partial()), true),
        ("runs with more pods than were admitted", placed(partial(), false), with_one(partial()), false),
        ("runs with fewer pods, and accepts no fewer", placed(smaller(job("a")), false), with_one(job("a")), false),
        ("runs with more pods", placed(larger(), false), admitted(workload()), false),
        ("reserved", job("a"), reserved(workload()), true),
    ];
    for (name, job, workload, expected) in rows {
        assert_eq!(is_same(job, workload), expected, "{name}");
    }
}

/// An annotation with an invalid value makes a job unreadable, and then the size of the job decides.
#[test]
fn unreadable_running_job_keeps_its_workload_unless_it_grows() {
    let unreadable = |pods: i32| {
        let annotation = json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "none"}}});
        let size = json!({"spec": {"parallelism": pods, "completions": pods}});
        placed(changed(changed(job("a"), annotation), size), false)
    };
    let workload = || admitted(workload_of(&job("a")));
    assert!(is_same(unreadable(2), workload()));
    assert!(is_same(unreadable(1), workload()));
    assert!(!is_same(unreadable(3), workload()));
}
