use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::overruns::tests::{running, shown};
use crate::testing::objects::{
    admitted, changed, controlled_by, finished, job, job_set, template, training_job, workload_of,
};
use crate::testing::{State, at, named, now};

fn without_queue(job: Value) -> Value {
    changed(job, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}))
}

/// A running Job with two pods that another job controls.
fn child(name: &str, owner: &Value) -> Value {
    let owned = changed(job(name), json!({"metadata": controlled_by(owner)}));
    changed(owned, json!({"spec": {"suspend": false}, "status": {"active": 2}}))
}

/// A running Job of JobSet `s`, as its controller creates the Job for one pod; the status counts `pods` pods.
fn part(name: &str, pods: i64) -> Value {
    let size = json!({"spec": {"parallelism": 1, "completions": 1}, "status": {"active": pods}});
    without_queue(changed(child(name, &job_set("s", 2)), size))
}

/// The Job of the workers of TrainingJob `a`, with two running pods.
fn workers(patch: Value) -> Value {
    changed(without_queue(child("a-worker", &training_job("a"))), patch)
}

/// A pod template whose container requests a number of cpus.
fn requesting(cpus: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus}}});
    changed(template(), json!({"spec": {"containers": [container]}}))
}

/// Metadata of pod `p`, which Workload `w` started in pod set `main`, with other labels.
fn pod_metadata(labels: Value) -> Value {
    let labels = changed(json!({"kueue.x-k8s.io/podset": "main"}), labels);
    json!({"namespace": "ns", "name": "p", "uid": "p-uid", "resourceVersion": "5", "generation": 1, "labels": labels,
        "annotations": {"kueue.x-k8s.io/workload": "w"}})
}

fn with_pod(mut state: State, metadata: Value) -> State {
    state.put_job_pod(metadata, now());
    state
}

#[test]
fn running_job_is_charged_beyond_quota_of_its_workloads() {
    let pending = || workload_of(&job("a"));
    let of = |job: Value, workload: Value| State::new().with(job).with(workload);
    let larger = || {
        let four = changed(job("a"), json!({"spec": {"parallelism": 4, "completions": 4}}));
        let metadata = json!({"metadata": {"name": "x", "uid": "x-uid", "creationTimestamp": at(-60)}});
        changed(admitted(workload_of(&four)), metadata)
    };
    let reclaimed = json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}});
    let unreadable = json!({"metadata": {"annotations": {"berth.dev/unreadable": "x"}}});
    let elsewhere = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "none"}}});
    let only_sets = || State::with_settings(Settings { job_kinds: [Kind::JOB_SET].into(), ..Settings::default() });
    let rows: Vec<(&str, State, &str)> = vec![
        ("as many as have quota", of(running(2), admitted(pending())), "none"),
        ("one more", of(running(3), admitted(pending())), "3/2 w-uid cq f/cpu 1000"),
        (
            "quota of a pod was given back",
            of(running(2), changed(admitted(pending()), reclaimed)),
            "2/1 w-uid cq f/cpu 1000",
        ),
        ("the larger slice", of(running(4), admitted(pending())).with(larger()), "none"),
        ("beyond the larger slice", of(running(5), admitted(pending())).with(larger()), "5/4 x-uid cq f/cpu 1000"),
        ("pending", of(running(2), pending()), "2/0 w-uid cq f/cpu 2000"),
        ("no Workload", State::new().with(running(2)), "2/0 a-uid cq f/cpu 2000"),
        ("finished", of(running(2), finished(admitted(pending()))), "2/0 a-uid cq f/cpu 2000"),
        ("unreadable", of(running(3), changed(admitted(pending()), unreadable)), "none"),
        ("no such LocalQueue", State::new().with(changed(running(2), elsewhere)), "2/0 no queue"),
        ("names no queue", State::new().with(without_queue(running(2))), "none"),
        ("names no queue, pending", of(without_queue(running(2)), pending()), "none"),
        ("names no queue, with quota", of(without_queue(running(3)), admitted(pending())), "3/2 w-uid cq f/cpu 1000"),
        ("a kind that is not managed", only_sets().with(running(2)), "none"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(shown(&state, &named(Kind::JOB, "a")), expected, "{name}");
    }
}

/// The pods of a part are counted with the job that it is a part of, so that no pod is charged twice.
#[test]
fn job_under_quota_of_another_job_is_not_charged_itself() {
    let set = || job_set("s", 2);
    let free = || without_queue(set());
    let other = || changed(set(), json!({"metadata": {"uid": "x"}}));
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "uid": "c-uid"}});
    let train = || training_job("a");
    let of_set = |name: &str| child(name, &set());
    let three = || changed(of_set("s-main-0"), json!({"status": {"active": 3}}));
    let rows: Vec<(&str, State, &str, &str)> = vec![
        ("a managed JobSet", State::new().with(set()).with(of_set("s-main-0")), "s-main-0", "none"),
        ("the JobSet is gone", State::new().with(of_set("s-main-0")), "s-main-0", "2/0 s-main-0-uid cq f/cpu 2000"),
        (
            "another JobSet of the name",
            State::new().with(other()).with(of_set("s-main-0")),
            "s-main-0",
            "2/0 s-main-0-uid cq f/cpu 2000",
        ),
        ("a JobSet without quota starts it", State::new().with(free()).with(of_set("s-main-1")), "s-main-1", "none"),
        (
            "a JobSet without quota has no such part",
            State::new().with(free()).with(of_set("s-main-2")),
            "s-main-2",
            "2/0 s-main-2-uid cq f/cpu 2000",
        ),
        (
            "a JobSet that lost its queue has quota",
            State::new().with(free()).with(admitted(workload_of(&set()))).with(of_set("s-main-2")),
            "s-main-2",
            "none",
        ),
        (
            "it has quota itself",
            State::new().with(set()).with(three()).with(admitted(workload_of(&three()))),
            "s-main-0",
            "3/2 w-uid cq f/cpu 1000",
        ),
        ("a TrainingJob", State::new().with(train()).with(child("a-worker", &train())), "a-worker", "none"),
        (
            "a TrainingJob without such a role",
            State::new().with(train()).with(child("a-other", &train())),
            "a-other",
            "2/0 a-other-uid cq f/cpu 2000",
        ),
        ("another controller", State::new().with(child("b", &cron)), "b", "2/0 b-uid cq f/cpu 2000"),
    ];
    for (row, state, name, expected) in rows {
        assert_eq!(shown(&state, &named(Kind::JOB, name)), expected, "{row}");
    }
}

#[test]
fn jobs_of_job_set_are_charged_beyond_its_quota() {
    let set = || changed(job_set("s", 2), json!({"spec": {"suspend": false}}));
    let pending = || workload_of(&job_set("s", 2));
    let of =
        |parts: Vec<Value>| parts.into_iter().fold(State::new().with(set()).with(admitted(pending())), State::with);
    let both = || vec![part("s-main-0", 1), part("s-main-1", 1)];
    let altered = changed(part("s-main-0", 1), json!({"spec": {"template": requesting("2")}}));
    let own = changed(admitted(workload_of(&part("s-main-0", 3))), json!({"metadata": {"name": "x", "uid": "x-uid"}}));
    let gone = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "s-main-0", "uid": "gone-uid"}});
    let of_gone = json!({"batch.kubernetes.io/controller-uid": "gone-uid", "jobset.sigs.k8s.io/jobset-uid": "s-uid"});
    let ending = changed(changed(pod_metadata(of_gone), controlled_by(&gone)), json!({"deletionTimestamp": at(-5)}));
    let let_go = pod_metadata(json!({"jobset.sigs.k8s.io/jobset-uid": "s-uid"}));
    let rows: Vec<(&str, State, &str)> = vec![
        ("no Job", of(Vec::new()), "none"),
        ("as many as have quota", of(both()), "none"),
        ("a pod is replaced", of(vec![part("s-main-0", 2), part("s-main-1", 1)]), "3/2 w-uid cq f/cpu 1000"),
        ("a Job has larger pods", of(vec![altered, part("s-main-1", 1)]), "2/2 w-uid cq f/cpu 2000"),
        ("a Job that is no part", of([both(), vec![part("other", 1)]].concat()), "3/2 w-uid cq f/cpu 1000"),
        ("a Job with quota of its own", of(vec![part("s-main-0", 3), part("s-main-1", 1), own]), "none"),
        ("a pod of a deleted Job ends", with_pod(of(both()), ending), "3/2 w-uid cq f/cpu 1000"),
        ("a pod that no Job counts", with_pod(of(both()), let_go), "3/2 w-uid cq f/cpu 1000"),
        (
            "pending",
            both().into_iter().fold(State::new().with(set()).with(pending()), State::with),
            "2/0 w-uid cq f/cpu 2000",
        ),
        ("no Workload", both().into_iter().fold(State::new().with(set()), State::with), "2/0 s-uid cq f/cpu 2000"),
        ("names no queue", both().into_iter().fold(State::new().with(without_queue(set())), State::with), "none"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(shown(&state, &named(Kind::JOB_SET, "s")), expected, "{name}");
    }
}

#[test]
fn pod_that_no_job_counts_is_charged_beside_job() {
    let state = |pods: i64| State::new().with(running(pods)).with(admitted(workload_of(&job("a"))));
    let let_go = |state: State| with_pod(state, pod_metadata(json!({"batch.kubernetes.io/controller-uid": "a-uid"})));
    let object = named(Kind::JOB, "a");
    assert_eq!(shown(&let_go(state(1)), &object), "none", "its quota covers both");
    assert_eq!(shown(&let_go(state(2)), &object), "3/2 w-uid cq f/cpu 1000");
    assert_eq!(shown(&let_go(state(0)), &object), "none");
}

/// A pod that asks for less than its share leaves nothing over for the other pods.
#[test]
fn resized_pod_of_job_is_charged_above_its_share() {
    let resized = |cpus: &str, set: &str| {
        let uid = json!({"batch.kubernetes.io/controller-uid": "a-uid", "kueue.x-k8s.io/podset": set});
        let metadata = changed(changed(pod_metadata(uid), controlled_by(&job("a"))), json!({"generation": 2}));
        let state = State::new().with(running(2)).with(admitted(workload_of(&job("a"))));
        let mut state = with_pod(state, metadata.clone());
        assert_eq!(shown(&state, &named(Kind::JOB, "a")), "none", "it was not read yet");
        let spec = requesting(cpus)["spec"].clone();
        state.read_job_pod(&json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}));
        shown(&state, &named(Kind::JOB, "a"))
    };
    assert_eq!(resized("3", "main"), "2/2 w-uid cq f/cpu 2000");
    assert_eq!(resized("1", "main"), "none");
    assert_eq!(resized("500m", "main"), "none");
    assert_eq!(resized("3", "other"), "none", "the Workload has no such pod set");
}

#[test]
fn jobs_of_training_job_are_charged_beyond_its_quota() {
    let three = || workers(json!({"status": {"active": 3}}));
    let quota = || admitted(workload_of(&training_job("a")));
    let marks = json!({"metadata": {
        "labels": {"kueue.x-k8s.io/podset": "worker"}, "annotations": {"kueue.x-k8s.io/workload": "w"}}});
    let state = |workload: Value, child: Value| State::new().with(training_job("a")).with(workload).with(child);
    let unreadable = json!({"metadata": {"annotations": {"berth.dev/unreadable": "x"}}});
    let rows: Vec<(&str, State, &str)> = vec![
        ("no TrainingJob", State::new(), "none"),
        ("as many as have quota", state(quota(), workers(json!({}))), "none"),
        ("one more", state(quota(), three()), "3/2 w-uid cq f/cpu 1000"),
        (
            "its Job has larger pods",
            state(quota(), workers(json!({"spec": {"template": changed(requesting("2"), marks)}}))),
            "2/2 w-uid cq f/cpu 4000",
        ),
        ("unreadable", state(changed(quota(), unreadable), three()), "none"),
    ];
    for (name, state, expected) in rows {
        assert_eq!(shown(&state, &named(Kind::TrainingJob, "a")), expected, "{name}");
    }
}

/// If one slice replaces another, each of them holds the quota of the complete job.
#[test]
fn quota_of_two_slices_counts_once_at_larger_size() {
    let sized = |name: &str, count: i64| {
        let job = changed(job("a"), json!({"spec": {"parallelism": count, "completions": count}}));
        changed(admitted(workload_of(&job)), json!({"metadata": {"name": name, "uid": format!("{name}-uid")}}))
    };
    let held = |workloads: Vec<Value>| {
        let state = workloads.into_iter().fold(State::new().with(job("a")), State::with);
        let held = state.context().held_by("a-uid");
        held.into_iter().map(|set| (set.name, set.count)).collect::<Vec<_>>()
    };
    assert!(held(vec![workload_of(&job("a"))]).is_empty(), "no quota");
    assert_eq!(held(vec![sized("w", 2), sized("x", 4)]), [("main".to_owned(), 4)]);
    assert_eq!(held(vec![sized("w", 4), sized("x", 2)]), [("main".to_owned(), 4)]);
}

#[test]
fn running_training_job_without_quota_is_charged_to_its_queue() {
    let state = || State::new().with(training_job("a")).with(workers(json!({})));
    let object = named(Kind::TrainingJob, "a");
    assert_eq!(shown(&state(), &object), "2/0 a-uid cq f/cpu 2000", "no Workload");
    let pending = state().with(workload_of(&training_job("a")));
    assert_eq!(shown(&pending, &object), "2/0 w-uid cq f/cpu 2000", "pending");
}

/// A Job that names a TrainingJob as its controller, and runs none of its roles, is a job like any other.
#[test]
fn job_that_runs_no_role_is_charged_once() {
    let state = State::new().with(training_job("a")).with(admitted(workload_of(&training_job("a"))));
    let state = state.with(workers(json!({}))).with(child("a-other", &training_job("a")));
    let of_job = shown(&state, &named(Kind::JOB, "a-other"));
    let of_training_job = shown(&state, &named(Kind::TrainingJob, "a"));
    assert_eq!((of_job.as_str(), of_training_job.as_str()), ("2/0 a-other-uid cq f/cpu 2000", "none"));
}
