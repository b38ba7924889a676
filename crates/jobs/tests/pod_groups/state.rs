use berth_jobs::pods::condemnation;
use serde_json::json;

#[test]
fn why_a_pod_goes_is_told_in_its_status() {
    let told = condemnation(("n", "p", "u"), ("Why", "because"), "2026-01-01T00:00:00Z");
    assert_eq!(told["metadata"], json!({"namespace": "n", "name": "p", "uid": "u"}));
    let condition = &told["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("TerminationTarget"), &json!("Why")));
}
