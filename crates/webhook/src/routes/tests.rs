use super::*;
use crate::{ObjectMeta, OwnerReference};
use berth_jobs::Facts;
use berth_jobs::pods::OwningSet;
use berth_jobs::training::Accelerators;
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod authors;
mod jobs;
mod pods;

struct World(Facts);

impl ClusterFacts for World {
    /// Job is the only kind that can be unmanaged in these tests.
    fn has_kind(&self, kind: JobType) -> bool {
        !self.0.unmanaged_kind || kind != JobType::JOB
    }

    fn facts(&self, _: &str) -> Facts {
        self.0
    }

    fn governs(&self, namespace: &str, job: &ObjectMeta, owner: &OwnerReference) -> bool {
        let owner = [&owner.api_version, &owner.kind, &owner.name, &owner.uid].map(String::as_str);
        let known = match job.name.as_deref().unwrap_or_default() {
            "n-worker" => ["berth.dev/v1alpha1", "TrainingJob", "n", "u"],
            "set-job-0" => ["jobset.x-k8s.io/v1alpha2", "JobSet", "set", "s"],
            _ => return false,
        };
        namespace == "ns" && owner == known
    }

    fn stateful_set(&self, namespace: &str, name: &str) -> Option<OwningSet> {
        let known = OwningSet {
            uid: "u".to_owned(),
            queue_name: Some("q".to_owned()),
            priority_class: Some("high".to_owned()),
            replicas: 2,
        };
        ((namespace, name) == ("ns", "web")).then_some(known)
    }

    fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>> {
        None
    }

    fn accelerators(&self) -> Accelerators {
        Accelerators { resource: "amd.com/gpu".into(), type_label: "amd.com/gpu.product-name".into() }
    }
}

fn ask_in(path: &str, request: Value, facts: Facts) -> Value {
    ask_with(path, request, facts, Gates::default())
}

fn ask_with(path: &str, request: Value, facts: Facts, gates: Gates) -> Value {
    let mut full_request = json!({"uid": "u", "operation": "CREATE", "name": "n", "namespace": "ns",
        "kind": {"group": "g", "version": "v", "kind": "K"}});
    for (key, value) in request.as_object().unwrap() {
        full_request[key] = value.clone();
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full_request});
    let around = Around { cluster_facts: &World(facts), gates, leave: Some(Leave::Given) };
    let (answer, _) = route(path).unwrap().answer(review.to_string().as_bytes(), &around).unwrap();
    serde_json::from_slice::<Value>(&answer).unwrap()["response"].clone()
}

fn ask(path: &str, request: Value) -> Value {
    ask_in(path, request, Facts { managed_namespace: true, ..Facts::default() })
}

fn patch(response: &Value) -> Value {
    use base64::Engine as _;
    let text = response["patch"].as_str().unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

fn job(queue: &str, suspend: bool) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"suspend": suspend, "template": {"spec": {"containers": [{"name": "c"}]}}}})
}

fn denied_fields(response: &Value) -> Vec<String> {
    let causes = response["status"]["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|cause| cause["field"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn job_with_queue_is_suspended_at_creation() {
    let path = "/mutate-batch-v1-job";
    let response = ask(path, json!({"object": job("q", false)}));
    assert_eq!(patch(&response), json!([{"op": "add", "path": "/spec/suspend", "value": true}]));
    let edited = json!({"operation": "UPDATE", "object": job("r", true), "oldObject": job("q", true)});
    assert_eq!(ask(path, edited), json!({"uid": "u", "allowed": true}));
    assert_eq!(ask(path, json!({"object": job("q", true)})), json!({"uid": "u", "allowed": true}));
    let plain = json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    assert_eq!(ask(path, json!({"object": plain})), json!({"uid": "u", "allowed": true}));
    let facts = Facts { managed_namespace: true, default_queue: true, ..Facts::default() };
    let operations = patch(&ask_in(path, json!({"object": plain}), facts));
    assert_eq!(operations[1]["value"], json!("default"));
    assert_eq!(operations.as_array().map(Vec::len), Some(3));
}

#[test]
fn job_queue_change_requires_suspension_and_deletion_is_never_refused() {
    let path = "/validate-batch-v1-job";
    let change =
        |suspend: bool| json!({"operation": "UPDATE", "object": job("b", suspend), "oldObject": job("a", suspend)});
    assert_eq!(denied_fields(&ask(path, change(false))), ["metadata.labels[kueue.x-k8s.io/queue-name]"]);
    assert_eq!(ask(path, change(true))["allowed"], json!(true));
    // While a running job is being deleted, the fields by which its quota is counted must stay until it has stopped, and no other rule of Berth applies.
    for (mut leaving, allowed) in [(change(false), false), (change(true), true)] {
        leaving["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(ask(path, leaving.clone())["allowed"], json!(allowed), "{leaving}");
        leaving["object"]["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "a", "team": "x"});
        leaving["object"]["metadata"]["annotations"] = json!({"kueue.x-k8s.io/admission-gated-by": "plain"});
        assert_eq!(ask(path, leaving.clone())["allowed"], json!(true), "{leaving}");
    }
    assert_eq!(
        ask(path, json!({"operation": "DELETE", "object": null, "oldObject": job("a", false)}))["allowed"],
        json!(true)
    );
}

#[test]
fn undecodable_stored_job_can_be_repaired_by_a_valid_one() {
    let path = "/validate-batch-v1-job";
    let mut broken = job("q", true);
    broken["spec"]["parallelism"] = json!("many");
    let update = |old: &Value, new: &Value| ask(path, json!({"operation": "UPDATE", "object": new, "oldObject": old}));
    assert_eq!(update(&broken, &job("q", true))["allowed"], json!(true));
    let refused = update(&broken, &job("no name", true));
    assert_eq!(denied_fields(&refused), ["metadata.labels[kueue.x-k8s.io/queue-name]"], "it is judged by itself");
    assert_eq!(update(&job("q", true), &broken)["status"]["code"], json!(400));
}

#[test]
fn running_job_set_keeps_its_queue_in_label_or_annotation() {
    let path = "/validate-jobset-x-k8s-io-v1alpha2-jobset";
    let queue = json!({"kueue.x-k8s.io/queue-name": "q"});
    let set = |metadata: Value, suspend: bool| {
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata,
            "spec": {"suspend": suspend, "replicatedJobs": [{"name": "job", "template": {"spec": {"template": {
                "spec": {"containers": [{"name": "c"}]}}}}}]}})
    };
    let update = |old: Value, new: Value, facts: Facts| {
        ask_in(path, json!({"operation": "UPDATE", "object": new, "oldObject": old}), facts)
    };
    let here = Facts { managed_namespace: true, ..Facts::default() };
    for (place, metadata) in [("labels", json!({"labels": queue})), ("annotations", json!({"annotations": queue}))] {
        let field = format!("metadata.{place}[kueue.x-k8s.io/queue-name]");
        let field = field.as_str();
        let taken = |was: bool, is: bool, facts: Facts| update(set(metadata.clone(), was), set(json!({}), is), facts);
        let refused = taken(false, false, here);
        assert_eq!(denied_fields(&refused), [field], "{metadata}");
        let message = refused["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("is immutable while the job is not suspended"), "{message}");
        assert_eq!(denied_fields(&taken(true, false, here)), [field], "it is started in the same write");
        assert_eq!(taken(true, true, here)["allowed"], json!(true));
        let with_queue = Facts { default_queue: true, ..here };
        assert_eq!(denied_fields(&taken(true, true, with_queue)), [field], "there is a default queue");
        assert_eq!(denied_fields(&update(set(json!({}), false), set(metadata.clone(), false), here)), [field]);
        assert_eq!(update(set(metadata.clone(), false), set(metadata.clone(), false), here)["allowed"], json!(true));
    }
    // A move of the queue name from the annotation to the label does not change the queue.
    let moved = update(set(json!({"annotations": queue}), false), set(json!({"labels": queue}), false), here);
    assert_eq!(moved["allowed"], json!(true));
}

#[test]
fn job_kind_missing_in_the_configuration_is_not_mutated() {
    let managed = Facts { managed_namespace: true, ..Facts::default() };
    let without = Facts { unmanaged_kind: true, ..managed };
    for (path, facts, suspended) in [
        ("/mutate-batch-v1-job", managed, true),
        ("/mutate-batch-v1-job", without, false),
        ("/mutate-jobset-x-k8s-io-v1alpha2-jobset", without, true),
    ] {
        let answer = ask_in(path, json!({"object": job("q", false)}), facts);
        assert_eq!(answer.get("patch").is_some(), suspended, "{facts:?}");
    }
}

#[test]
fn job_controlled_by_a_job_set_is_not_mutated() {
    let path = "/mutate-batch-v1-job";
    let facts = Facts {
        managed_namespace: true,
        default_queue: true,
        default_priority_class: true,
        without_queue_name: true,
        ..Facts::default()
    };
    let untouched = |job: &Value| ask_in(path, json!({"object": job}), facts).get("patch").is_none();
    let owned = |mut job: Value, api_version: &str, kind: &str, controls: bool| {
        job["metadata"]["name"] = json!("set-job-0");
        job["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": "set", "uid": "s", "controller": controls}]);
        job
    };
    let plain = json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    assert!(untouched(&owned(plain.clone(), "jobset.x-k8s.io/v1alpha2", "JobSet", true)));
    assert!(untouched(&owned(job("q", false), "jobset.x-k8s.io/v1alpha2", "JobSet", true)), "with a queue of its own");
    let mut forged = owned(job("q", false), "jobset.x-k8s.io/v1alpha2", "JobSet", true);
    forged["metadata"]["name"] = json!("mine");
    assert!(!untouched(&forged), "it has no name of a part");
    forged["metadata"]["name"] = json!("set-job-0");
    forged["metadata"]["ownerReferences"][0]["uid"] = json!("0");
    assert!(!untouched(&forged), "there is no such JobSet");
    assert!(!untouched(&plain));
    assert!(!untouched(&owned(plain.clone(), "jobset.x-k8s.io/v1alpha2", "JobSet", false)), "it does not control it");
    assert!(!untouched(&owned(plain.clone(), "example.com/v1", "JobSet", true)), "another kind of that name");
    assert!(!untouched(&owned(plain, "jobset.x-k8s.io/v1alpha2", "Other", true)));
}

#[test]
fn kueue_object_is_refused_by_field_unless_fault_was_stored() {
    let path = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
    let queue = |limit: Option<&str>, stop: &str| {
        let mut quota = json!({"name": "cpu", "nominalQuota": "1"});
        if let Some(limit) = limit {
            quota["borrowingLimit"] = json!(limit);
        }
        json!({"metadata": {"name": "q"}, "spec": {"stopPolicy": stop, "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]}})
    };
    let field = "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit";
    assert_eq!(denied_fields(&ask(path, json!({"object": queue(Some("1"), "None")}))), [field]);
    assert_eq!(ask(path, json!({"object": queue(None, "None")}))["allowed"], json!(true));
    let update = |old: Value, new: Value| ask(path, json!({"operation": "UPDATE", "object": new, "oldObject": old}));
    assert_eq!(update(queue(Some("1"), "None"), queue(Some("1"), "Hold"))["allowed"], json!(true));
    assert_eq!(denied_fields(&update(queue(None, "None"), queue(Some("1"), "None"))), [field]);
    let flavor = json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"a b": "c"}}});
    let path = "/validate-kueue-x-k8s-io-v1beta2-resourceflavor";
    assert_eq!(denied_fields(&ask(path, json!({"object": flavor}))), ["spec.nodeLabels"]);
    let cohort = json!({"metadata": {"name": "c"}, "spec": {"fairSharing": {"weight": "-1"}}});
    let path = "/validate-kueue-x-k8s-io-v1beta2-cohort";
    assert_eq!(denied_fields(&ask(path, json!({"object": cohort}))), ["spec.fairSharing.weight"]);
}

#[test]
fn concurrent_admission_policy_is_immutable_and_validated_behind_its_gate() {
    let path = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
    let field = "spec.concurrentAdmissionPolicy";
    let queue = |policy: Value, stop: &str| {
        json!({"metadata": {"name": "q"}, "spec": {"stopPolicy": stop, "queueingStrategy": "StrictFIFO",
            "concurrentAdmissionPolicy": policy, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]}})
    };
    let mode = |mode: &str| json!({"migration": {"mode": mode}});
    let moves = || mode("TryPreferredFlavors");
    for concurrent_admission in [false, true] {
        let gates = Gates { concurrent_admission, ..Gates::default() };
        let ask = |request: Value| ask_with(path, request, Facts::default(), gates);
        let update = |old: Value, new: Value| ask(json!({"operation": "UPDATE", "object": new, "oldObject": old}));
        // A ClusterQueue's `concurrentAdmissionPolicy` is immutable whether the feature gate `ConcurrentAdmission` is on or off, as in Kueue.
        for new in [mode("RetainFirstAdmission"), Value::Null] {
            let refused = update(queue(moves(), "None"), queue(new.clone(), "None"));
            assert_eq!(denied_fields(&refused), [field], "{new}");
            let message = refused["status"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("is immutable"), "{message}");
        }
        assert_eq!(update(queue(moves(), "None"), queue(moves(), "Hold"))["allowed"], json!(true));
        let expected: &[&str] = if concurrent_admission { &["spec.queueingStrategy"] } else { &[] };
        assert_eq!(denied_fields(&ask(json!({"object": queue(moves(), "None")}))), expected);
    }
}

#[test]
fn shrunk_elastic_workload_may_keep_more_reclaimable_pods_than_pods() {
    let workload = |elastic: &str, pods: i32, given_back: i32| {
        json!({"metadata": {"name": "w", "annotations": {"kueue.x-k8s.io/elastic-job": elastic}},
            "spec": {"podSets": [{"name": "main", "count": pods, "template": {"spec": {"containers": [{"name": "c"}]}}}]},
            "status": {"reclaimablePods": [{"name": "main", "count": given_back}]}})
    };
    let smaller = |elastic: &str, given_back: i32| {
        let (old, new) = (workload(elastic, 4, 3), workload(elastic, 2, given_back));
        let change = json!({"operation": "UPDATE", "object": new, "oldObject": old});
        denied_fields(&ask("/validate-kueue-x-k8s-io-v1beta2-workload", change))
    };
    let field = "status.reclaimablePods[main].count";
    assert_eq!(smaller("true", 3), Vec::<String>::new());
    assert_eq!(smaller("true", 4), [field]);
    assert_eq!(smaller("false", 3), [field]);
}

#[test]
fn workload_min_counts_are_removed_and_two_of_them_refused() {
    let set = |name: &str, count: i32| json!({"name": name, "count": count, "minCount": 1, "template": {"spec": {"containers": [{"name": "c"}]}}});
    let workload = |count: i32| json!({"metadata": {"name": "w"}, "spec": {"podSets": [set("a", count), set("b", 1)]}});
    let response = ask("/mutate-kueue-x-k8s-io-v1beta2-workload", json!({"object": workload(2)}));
    assert_eq!(patch(&response)[1], json!({"op": "remove", "path": "/spec/podSets/1/minCount"}));
    let odd = ask("/mutate-kueue-x-k8s-io-v1beta2-workload", json!({"object": {"spec": {"podSets": "text"}}}));
    assert_eq!(odd["allowed"], json!(true), "what the schema refuses is not ours to fail on");
    let path = "/validate-kueue-x-k8s-io-v1beta2-workload";
    assert_eq!(denied_fields(&ask(path, json!({"object": workload(2)}))), ["spec.podSets"]);
    let undecodable = ask(path, json!({"object": {"spec": {"podSets": "text"}}}));
    assert_eq!((&undecodable["allowed"], &undecodable["status"]["code"]), (&json!(false), &json!(400)));
}

#[test]
fn priority_boost_must_be_numeric_while_its_gate_is_on() {
    let path = "/validate-kueue-x-k8s-io-v1beta2-workload";
    let workload = |boost: &str| {
        json!({"metadata": {"name": "w", "annotations": {"kueue.x-k8s.io/priority-boost": boost}},
            "spec": {"podSets": [{"name": "a", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}]}})
    };
    let denied = |boost: &str, priority_boost: bool| {
        let gates = Gates { priority_boost, ..Gates::default() };
        denied_fields(&ask_with(path, json!({"object": workload(boost)}), Facts::default(), gates))
    };
    for good in ["10", "-5", "0", "2147483647"] {
        assert_eq!(denied(good, true), [""; 0], "{good}");
    }
    for bad in ["", "high", "1.5", "2147483648"] {
        assert_eq!(denied(bad, true), ["metadata.annotations[kueue.x-k8s.io/priority-boost]"], "{bad:?}");
        assert_eq!(denied(bad, false), [""; 0], "{bad:?} with the gate off");
    }
}

#[test]
fn route_paths_and_names_are_unique() {
    for (index, one) in ROUTES.iter().enumerate() {
        assert!(!ROUTES[..index].iter().any(|other| other.path == one.path || other.name == one.name));
    }
    assert!(route("/mutate-batch-v1-job/").is_none() && route("/").is_none());
}

#[test]
fn conversion_route_converts_queues_and_fails_other_kinds() {
    let around = Around { cluster_facts: &World(Facts::default()), gates: Gates::default(), leave: Some(Leave::Given) };
    let ask = |kind: &str| {
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": "q"},
            "spec": {"cohort": "c"}});
        let request = json!({"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [queue]});
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
        let (answer, outcome) = route(CONVERT).unwrap().answer(review.to_string().as_bytes(), &around).unwrap();
        (serde_json::from_slice::<Value>(&answer).unwrap()["response"].clone(), outcome)
    };
    let (response, outcome) = ask("ClusterQueue");
    assert_eq!((&response["convertedObjects"][0]["spec"], outcome), (&json!({"cohortName": "c"}), "converted"));
    let (response, outcome) = ask("Job");
    assert_eq!((&response["result"]["status"], outcome), (&json!("Failure"), "error"));
    assert!(route(CONVERT).unwrap().answer(b"{}", &around).is_err());
}

#[test]
fn route_handles_mutilated_bodies_without_panic() {
    let around = Around { cluster_facts: &World(Facts::default()), gates: Gates::default(), leave: Some(Leave::Given) };
    let good = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "UPDATE", "object": job("q", false), "oldObject": job("q", true)}})
    .to_string();
    let mut state: u64 = 1;
    for round in 0..3000_usize {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=round % 5 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(state >> 33).unwrap() % bytes.len();
            match round % 3 {
                0 => bytes[at] = u8::try_from(state >> 24 & 0xff).unwrap(),
                1 => bytes.truncate(at.max(1)),
                _ => {
                    bytes.remove(at);
                }
            }
        }
        for route in ROUTES.iter() {
            if let Ok((answer, _)) = route.answer(&bytes, &around) {
                serde_json::from_slice::<Value>(&answer).unwrap();
            }
        }
    }
}

#[test]
fn training_job_without_queue_is_refused_and_children_stay_unchanged() {
    let path = "/validate-berth-dev-v1alpha1-trainingjob";
    let training = |queue: Value| {
        json!({"metadata": {"name": "n"}, "spec": {"jobType": "PyTorchJob", "schedulingConfig": {"queue": queue},
            "template": {"spec": {"containers": [{"name": "c"}]}}}})
    };
    assert_eq!(ask(path, json!({"object": training(json!("q"))}))["allowed"], json!(true));
    let refused = ask(path, json!({"object": training(Value::Null)}));
    assert_eq!(denied_fields(&refused), ["spec.schedulingConfig.queue"]);
    // The Jobs of a TrainingJob are admitted with the TrainingJob, also in a namespace in which other Jobs get a default queue.
    let facts = Facts { managed_namespace: true, default_queue: true, without_queue_name: true, ..Facts::default() };
    let mut child = json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    assert!(ask_in("/mutate-batch-v1-job", json!({"object": child}), facts).get("patch").is_some());
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "name": "n", "uid": "u", "controller": true}]);
    child["metadata"]["name"] = json!("mine");
    let other = json!({"object": child});
    assert!(ask_in("/mutate-batch-v1-job", other, facts).get("patch").is_some(), "it only says so");
    child["metadata"]["name"] = json!("n-worker");
    assert!(ask_in("/mutate-batch-v1-job", json!({"object": child}), facts).get("patch").is_none());
}

#[test]
fn training_job_accelerators_follow_the_configured_labels_and_resources() {
    let path = "/validate-berth-dev-v1alpha1-trainingjob";
    let training = |label: &str, resource: &str| {
        let container = json!({"name": "c", "resources": {"limits": {resource: "1"}}});
        json!({"metadata": {"name": "n"}, "spec": {"jobType": "PyTorchJob", "schedulingConfig": {"queue": "q"},
            "resources": {"gpuType": "MI300X", "replicaResources": {"gpu": 2}},
            "template": {"spec": {"nodeSelector": {label: "MI210"}, "containers": [container]}}}})
    };
    let refused = |label: &str, resource: &str| denied_fields(&ask(path, json!({"object": training(label, resource)})));
    assert_eq!(refused("nvidia.com/gpu.product", "nvidia.com/gpu"), Vec::<String>::new());
    assert_eq!(
        refused("amd.com/gpu.product-name", "amd.com/gpu"),
        ["spec.template.spec.containers[0].resources.limits[amd.com/gpu]", "spec.resources.gpuType"]
    );
}

#[test]
fn admitted_training_job_keeps_its_queue() {
    let path = "/validate-berth-dev-v1alpha1-trainingjob";
    let training = |queue: &str, suspend: bool, admitted: &str| {
        json!({"metadata": {"name": "n"}, "spec": {"jobType": "PyTorchJob", "suspend": suspend,
            "schedulingConfig": {"queue": queue}, "template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"conditions": [{"type": "Admitted", "status": admitted, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    };
    let change = |to: &str, suspend: bool, admitted: &str| {
        let (old, new) = (training("a", false, admitted), training(to, suspend, admitted));
        ask(path, json!({"operation": "UPDATE", "object": new, "oldObject": old}))
    };
    let refused = change("b", false, "True");
    assert_eq!(denied_fields(&refused), ["spec.schedulingConfig.queue"]);
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("\"b\"") && message.contains("must stay \"a\" while the job is admitted"), "{message}");
    for accepted in [change("a", false, "True"), change("b", true, "True"), change("b", false, "False")] {
        assert_eq!(accepted["allowed"], json!(true), "{accepted}");
    }
}
