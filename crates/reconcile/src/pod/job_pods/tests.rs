use serde_json::json;

use super::*;
use crate::testing::objects::{admitted, changed, evicted, job, workload_of};
use crate::testing::step::step;
use crate::testing::{State, named, now, own_name};
use crate::write::Kind;

#[test]
fn quota_release_without_odd_pods_is_not_delayed() {
    let state = State::new().with(job("a")).with(evicted(admitted(workload_of(&job("a"))), "Preempted"));
    let ctx = state.context();
    let draft =
        crate::workload::status_write(state.workload("w"), Purpose::ReleaseQuota, now(), |edit| edit.release(true));
    let kept = after_uncovered_odd_pods(&ctx, Decision::write(draft), now());
    assert_eq!(step(&kept).what, "ReleaseQuota: apply status Workload ns/w", "no pod is odd");
    assert_eq!(step(&decide(&ctx, &own_name("p"), now())).what, "done", "it is not known");
}

/// A pod that its Job does not count any more runs in addition to the pods for which the Workload has quota.
#[test]
fn odd_pod_is_read_before_quota_is_released() {
    let labels = json!({"kueue.x-k8s.io/podset": "main", "batch.kubernetes.io/controller-uid": "a-uid"});
    let owner = crate::testing::objects::controlled_by(&job("a"))["ownerReferences"].clone();
    let pod = json!({"namespace": "ns", "name": "p", "uid": "p-uid", "resourceVersion": "5", "labels": labels,
        "annotations": {"kueue.x-k8s.io/workload": "w"}, "generation": 1});
    let of_job = changed(pod.clone(), json!({ "ownerReferences": owner }));
    let mut state = State::new().with(job("a")).with(evicted(admitted(workload_of(&job("a"))), "Preempted"));
    state.put_job_pod(of_job, crate::testing::in_seconds(-20));
    state.put_job_pod(changed(pod, json!({"resourceVersion": "6"})), crate::testing::in_seconds(-10));
    let ctx = state.context();
    let draft =
        crate::workload::status_write(state.workload("w"), Purpose::ReleaseQuota, now(), |edit| edit.release(true));
    let waits = after_uncovered_odd_pods(&ctx, Decision::write(draft), now());
    assert_eq!(step(&waits).what, "wait for Pod ns/p");
    assert_eq!(step(&decide(&ctx, &own_name("p"), now())).what, "ReadPod: ask Pod ns/p");
    assert_eq!(named(Kind::JobPod, "p").name, "p");
}
