//! Tests that fields of a job which only Berth changes keep their values when another client changes the job.

use super::*;

const JOB: &str = "/mutate-batch-v1-job";

/// A job as Berth has started it.
fn running(queue: &str) -> Value {
    let mut job = job(queue, false);
    job["metadata"]["namespace"] = json!("ns");
    job["spec"]["parallelism"] = json!(2);
    job["spec"]["template"]["metadata"] =
        json!({"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": "job-n-1a2b3"}});
    job
}

fn change(path: &str, old: &Value, new: &Value) -> Value {
    ask(path, json!({"operation": "UPDATE", "object": new, "oldObject": old}))
}

fn warning(response: &Value) -> &str {
    let [warning] = response["warnings"].as_array().map(Vec::as_slice).unwrap_or_default() else { return "" };
    warning.as_str().unwrap_or_default()
}

/// A manifest with `suspend: true` is applied again: the running job goes on, and kubectl prints how to stop the job.
#[test]
fn suspension_of_a_running_job_is_reverted_with_a_warning() {
    let (old, mut new) = (running("q"), running("q"));
    new["spec"]["suspend"] = json!(true);
    let response = change(JOB, &old, &new);
    assert_eq!(patch(&response), json!([{"op": "add", "path": "/spec/suspend", "value": false}]));
    let reported = warning(&response);
    for words in ["spec.suspend stays false", "job-n-1a2b3", "{\"spec\":{\"active\":false}}", "-n ns "] {
        assert!(reported.contains(words), "{reported}");
    }
    // A write that moves a running job to another queue may suspend the job.
    new["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("r");
    assert_eq!(change(JOB, &old, &new), json!({"uid": "u", "allowed": true}));
    assert_eq!(change("/validate-batch-v1-job", &old, &new)["allowed"], json!(true));
}

#[test]
fn start_of_a_waiting_job_is_reverted_with_a_warning() {
    let response = change(JOB, &job("q", true), &job("q", false));
    assert_eq!(patch(&response), json!([{"op": "add", "path": "/spec/suspend", "value": true}]));
    assert!(warning(&response).contains("waits in queue \"q\""), "{response}");
}

/// In an update that raises the parallelism of a running job, the webhook suspends the job, because the job controller would create the added pods
/// before Berth sees the change.
#[test]
fn running_job_with_raised_parallelism_is_suspended_in_same_write() {
    let (old, mut new) = (running("q"), running("q"));
    new["spec"]["parallelism"] = json!(3);
    let response = change(JOB, &old, &new);
    let marker = "/metadata/annotations/kueue.x-k8s.io~1stopping";
    assert_eq!(
        patch(&response),
        json!([
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": marker, "value": "true"},
            {"op": "add", "path": "/spec/suspend", "value": true},
        ])
    );
    assert!(warning(&response).contains("waits for its new size"), "{response}");
    new["spec"]["parallelism"] = json!(1);
    assert_eq!(change(JOB, &old, &new), json!({"uid": "u", "allowed": true}));
}

#[test]
fn job_set_child_may_be_unsuspended_but_forged_child_waits() {
    let owned = |suspend: bool, uid: &str| {
        let mut job = job("q", suspend);
        job["metadata"]["name"] = json!("set-job-0");
        job["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "name": "set", "uid": uid, "controller": true}]);
        job
    };
    assert_eq!(change(JOB, &owned(true, "s"), &owned(false, "s")), json!({"uid": "u", "allowed": true}));
    // A Job that names a JobSet as its owner without being its part is started and stopped by Berth, and waits.
    let forged = change(JOB, &owned(true, "0"), &owned(false, "0"));
    assert_eq!(patch(&forged)[0]["value"], json!(true));
    // A write that adds a JobSet as the controller of a Job does not start the Job.
    let joins = change(JOB, &job("q", true), &owned(false, "s"));
    assert_eq!(patch(&joins)[0]["value"], json!(true));
}

/// `spec.suspend` of a stored job that cannot be decoded any more does not keep its value.
#[test]
fn stored_job_that_does_not_decode_is_not_changed() {
    let mut broken = running("q");
    broken["spec"]["parallelism"] = json!("many");
    assert_eq!(change(JOB, &broken, &job("q", true)), json!({"uid": "u", "allowed": true}));
}

#[test]
fn job_set_suspension_change_is_reverted_with_a_warning() {
    let set = |suspend: bool| {
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"annotations": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"suspend": suspend, "replicatedJobs": [{"name": "job", "template": {"spec": {"template": {
                "metadata": {"labels": {"kueue.x-k8s.io/podset": "job"}}, "spec": {"containers": [{"name": "c"}]}}}}}]}})
    };
    let path = "/mutate-jobset-x-k8s-io-v1alpha2-jobset";
    for was in [false, true] {
        let response = change(path, &set(was), &set(!was));
        assert_eq!(patch(&response), json!([{"op": "add", "path": "/spec/suspend", "value": was}]));
        assert!(warning(&response).contains("this JobSet"), "{response}");
    }
}
