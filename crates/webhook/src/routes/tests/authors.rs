//! Tests that the author of a TrainingJob must be allowed to create the Jobs that Berth creates for the TrainingJob.

use super::*;

const PATH: &str = "/validate-berth-dev-v1alpha1-trainingjob";
const WORDS: &str = "User \"alice\" cannot create resource \"jobs\" in API group \"batch\" in the namespace \"ns\"";

fn training(change: Value) -> Value {
    let mut job = json!({"metadata": {"name": "n"}, "spec": {"jobType": "PyTorchJob", "schedulingConfig": {"queue": "q"},
        "suspend": true, "template": {"spec": {"serviceAccountName": "mine", "containers": [{"name": "c", "image": "i"}]}}}});
    for (place, value) in change.as_object().unwrap() {
        let (above, field) = place.rsplit_once('/').unwrap();
        job.pointer_mut(above).unwrap()[field] = value.clone();
    }
    job
}

fn review(request: Value) -> Vec<u8> {
    let mut full_request = json!({"uid": "u", "operation": "CREATE", "name": "n", "namespace": "ns",
        "kind": {"group": "berth.dev", "version": "v1alpha1", "kind": "TrainingJob"},
        "userInfo": {"username": "alice", "uid": "1", "groups": ["g"], "extra": {"e": ["x"]}}});
    for (key, value) in request.as_object().unwrap() {
        full_request[key] = value.clone();
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full_request});
    review.to_string().into_bytes()
}

fn update(old: Value, new: Value) -> Value {
    json!({"operation": "UPDATE", "object": new, "oldObject": old})
}

fn answered(request: Value, leave: Option<Leave>) -> Value {
    let facts = Facts { managed_namespace: true, ..Facts::default() };
    let around = Around { cluster_facts: &World(facts), gates: Gates::default(), leave };
    let (answer, _) = route(PATH).unwrap().answer(&review(request), &around).unwrap();
    serde_json::from_slice::<Value>(&answer).unwrap()["response"].clone()
}

#[test]
fn author_without_right_to_create_jobs_is_refused() {
    let created = || json!({"object": training(json!({}))});
    assert_eq!(answered(created(), Some(Leave::Given)), json!({"uid": "u", "allowed": true}));
    let refused = answered(created(), Some(Leave::Refused(WORDS.to_owned())));
    let status = &refused["status"];
    assert_eq!(
        (&refused["allowed"], &status["code"], &status["reason"]),
        (&json!(false), &json!(403), &json!("Forbidden"))
    );
    let message = format!("TrainingJob \"n\" is forbidden: {WORDS}, which Berth does for the author of a TrainingJob");
    assert_eq!(status["message"], json!(message));
}

/// The TrainingJob of a user whose right is unknown is refused for now (code 503).
#[test]
fn author_whose_right_is_unknown_is_refused() {
    for leave in [Some(Leave::Unanswered("late".to_owned())), None] {
        let refused = answered(json!({"object": training(json!({}))}), leave);
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(503)), "{refused}");
    }
}

#[test]
fn author_is_checked_only_when_a_change_affects_created_jobs() {
    let asks = |request: Value| route(PATH).unwrap().asks(&review(request));
    let old = training(json!({}));
    let user = UserInfo {
        username: "alice".to_owned(),
        uid: "1".to_owned(),
        groups: vec!["g".to_owned()],
        extra: BTreeMap::from([("e".to_owned(), vec!["x".to_owned()])]),
    };
    assert_eq!(asks(json!({"object": old})), Some((user, "ns".to_owned())));
    for (change, asked) in [
        (json!({}), false),
        (json!({"/metadata/labels": {"a": "b"}}), false),
        (json!({"/spec/suspend": false}), false),
        (json!({"/spec/schedulingConfig": {"queue": "other"}}), false),
        (json!({"/spec/capacityTiers": ["spot"]}), false),
        (json!({"/spec/template/spec/serviceAccountName": "admin"}), true),
        (json!({"/spec/resources": {"maxReplicas": 100}}), true),
        (json!({"/spec/roles": [{"name": "r"}]}), true),
        (json!({"/spec": null}), true),
    ] {
        let new = training(change.clone());
        assert_eq!(asks(update(old.clone(), new.clone())).is_some(), asked, "{change}");
        let mut leaving = new;
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(asks(update(old.clone(), leaving)), None, "nothing holds up who goes: {change}");
    }
    // A stored object that cannot be decoded any more counts as changed.
    assert!(asks(update(json!("text"), old.clone())).is_some());
    assert_eq!(asks(json!({"operation": "DELETE", "object": null, "oldObject": old})), None);
    let others = route("/validate-batch-v1-job").unwrap();
    assert_eq!(others.asks(&review(json!({"object": job("q", true)}))), None);
}
