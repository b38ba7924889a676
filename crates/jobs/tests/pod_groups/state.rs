use berth_jobs::Placement;
use berth_jobs::pods::{PodState, condemnation};
use serde_json::json;

use crate::pod_groups::pod;

#[test]
fn condemned_pod_gets_reason_in_its_status() {
    let reported = condemnation(("n", "p", "u"), ("Why", "because"), "2026-01-01T00:00:00Z").into_body();
    assert_eq!(reported["metadata"], json!({"namespace": "n", "name": "p", "uid": "u"}));
    let condition = &reported["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("TerminationTarget"), &json!("Why")));
}

/// A pod that was let in has its node already, so it gets only the labels and annotations of its admission.
#[test]
fn let_in_pod_gets_admission_labels_and_keeps_its_node() {
    let running = json!({"spec": {"schedulingGates": null, "nodeName": "n"}, "status": {"phase": "Running"}});
    let state = PodState::read(&pod(running));
    let made = state.decode().expect("kept, since its Workload is made of it");
    assert_eq!(made.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), None);
    let given = |set: &str| Placement {
        pod_set: set.into(),
        count: 1,
        labels: [("l".to_owned(), "v".to_owned())].into(),
        annotations: [("kueue.x-k8s.io/workload".to_owned(), "w".to_owned())].into(),
        node_selector: [("tier".to_owned(), "spot".to_owned())].into(),
        ..Placement::default()
    };
    let reported = state.admitted_patch(&[given("main")]).expect("its pod set");
    assert_eq!(
        reported.into_body(),
        json!({"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"l": "v", "kueue.x-k8s.io/podset": "main"},
            "annotations": {"kueue.x-k8s.io/workload": "w"}}})
    );
    assert_eq!(state.admitted_patch(&[given("other")]), None);
}
