use berth_jobs::pods::PodState;
use serde_json::json;

use crate::pod_groups::pod;

#[test]
fn why_a_pod_goes_is_told_in_its_status() {
    let told = PodState::read(&pod(json!({}))).condemnation("n", "p", ("Why", "because"), "2026-01-01T00:00:00Z");
    assert_eq!(told["metadata"], json!({"namespace": "n", "name": "p", "uid": "u"}));
    let condition = &told["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("TerminationTarget"), &json!("Why")));
}
