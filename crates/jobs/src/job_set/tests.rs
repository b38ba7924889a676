use super::*;
use crate::JobState;
use std::collections::BTreeMap;

/// As AxLearn's Pathways writes them: a head on CPUs and workers on slices, not suspended, the queue in an annotation.
fn pathways(spec: Value, status: Value) -> Object {
    let pods = |selector: Value| {
        json!({"metadata": {"labels": {"own": "1"}}, "spec": {"nodeSelector": selector,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "fromTheFuture": {"kept": true}}})
    };
    let mut base = json!({"apiVersion": jobset::API_VERSION, "kind": "JobSet",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5",
        "annotations": {"kueue.x-k8s.io/queue-name": "tpu"}},
    "spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [
        {"name": "pwhd", "template": {"spec": {"template": pods(json!({"kind": "cpu"}))}}},
        {"name": "pwwk", "replicas": 3, "template": {"metadata": {"labels": {"x": "y"}}, "spec": {
            "parallelism": 4, "completions": 4, "backoffLimit": 0, "template": pods(json!({"topology": "4x4"}))}}},
    ]}});
    base = merged(&base, &json!({"spec": spec, "status": status}));
    serde_json::from_value(base).expect("JobSet")
}

fn patched(job: &Object, patch: &Value) -> Object {
    serde_json::from_value(merged(&serde_json::to_value(job).expect("serialises"), patch)).expect("JobSet")
}

fn placement(pod_set: &str) -> Placement {
    Placement {
        pod_set: pod_set.to_owned(),
        count: if pod_set == "pwhd" { 1 } else { 12 },
        labels: BTreeMap::from([(labels::POD_SET.to_owned(), pod_set.to_owned())]),
        annotations: BTreeMap::from([(labels::WORKLOAD.to_owned(), "jobset-a-1".to_owned())]),
        node_selector: BTreeMap::from([("pool".to_owned(), format!("for-{pod_set}"))]),
        ..Placement::default()
    }
}

fn jobs_status(ready: [i32; 2], succeeded: [i32; 2], active: [i32; 2]) -> Value {
    let of = |at: usize, name: &str| {
        json!({"name": name, "ready": ready[at], "succeeded": succeeded[at], "active": active[at], "failed": 0,
            "suspended": 0})
    };
    json!({"replicatedJobsStatus": [of(0, "pwhd"), of(1, "pwwk")], "restarts": 0})
}

#[test]
fn a_pod_set_per_replicated_job_and_the_queue_of_its_annotation() {
    let job = pathways(json!({}), Value::Null);
    let sets = JobSet::pod_sets(&job).expect("pod sets");
    let counts: Vec<_> = sets.iter().map(|set| (set.effective_name(), set.effective_count())).collect();
    assert_eq!(counts, [("pwhd", 1), ("pwwk", 12)]);
    assert_eq!(JobSet::queue_name(&job), Some("tpu"));
    let labelled = patched(&job, &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "label"}}}));
    assert_eq!(JobSet::queue_name(&labelled), Some("label"), "the label wins");
    assert!(!JobSet::has_suspend(&job) && !JobSet::is_placed(&job));
}

#[test]
fn a_start_changes_templates_only_and_a_restore_takes_all_of_it_back() {
    let before = pathways(json!({"suspend": true}), Value::Null);
    let sets = JobSet::pod_sets(&before).expect("pod sets");
    let original: Vec<_> = sets.iter().map(|set| TemplateParts::of(&set.template, set.effective_count())).collect();
    // The order of placements does not matter, their names do.
    let start = JobSet::start_patch(&before, &[placement("pwwk"), placement("pwhd")]).expect("patch");
    assert_eq!(start["metadata"], json!({"uid": "u", "resourceVersion": "5"}));
    assert_eq!(start["spec"]["suspend"], json!(false));
    let pods = &start["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"];
    assert_eq!(pods["nodeSelector"], json!({"topology": "4x4", "pool": "for-pwwk"}));
    assert_eq!(pods["fromTheFuture"], json!({"kept": true}), "what we do not know comes back");
    let running = patched(&before, &start);
    assert!(JobSet::is_placed(&running) && !JobSet::is_suspended(&running));
    let stopping = patched(&running, &JobSet::stop_patch(&running));
    assert!(JobSet::has_suspend(&stopping) && !JobSet::is_suspended(&stopping), "not before it is restored");
    let state = JobState::read::<JobSet>(&stopping, None);
    assert!(state.needs_restore(&original) && !state.at_rest && !state.seen_start);
    let restore = JobSet::restore_patch(&stopping, &original).expect("patch");
    let mut after = patched(&stopping, &restore);
    after.metadata.annotations.as_mut().expect("annotations").retain(|_, value| !value.is_empty());
    assert_eq!(after, before);
    assert_eq!(JobSet::restore_patch(&after, &original), None);
}

#[test]
fn what_cannot_be_placed_is_said() {
    let job = pathways(json!({"suspend": true}), Value::Null);
    assert_eq!(JobSet::start_patch(&job, &[placement("pwhd")]), Err(PlacementError::PodSets { given: 1, wanted: 2 }));
    let avoiding = Placement { forbidden: vec![("reserved".to_owned(), Vec::new())], ..placement("pwwk") };
    let refused = JobSet::start_patch(&job, &[placement("pwhd"), avoiding]).expect_err("affinity");
    assert!(refused.to_string().contains("JobSet"), "{refused}");
}

#[test]
fn its_status_is_read() {
    let state = |status: Value| JobState::read::<JobSet>(&pathways(json!({}), status), None);
    let fresh = state(Value::Null);
    assert!(!fresh.active && !fresh.ready && fresh.finished.is_none() && fresh.reclaimable.is_empty());
    let running = state(jobs_status([1, 2], [0, 0], [1, 3]));
    assert!(running.active && !running.ready);
    let partly_over = state(jobs_status([1, 1], [0, 2], [1, 1]));
    assert!(partly_over.ready);
    assert_eq!(partly_over.reclaimable, [ReclaimablePod { name: "pwwk".to_owned(), count: 8 }]);
    let condition = json!([{"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let over = state(json!({"conditions": condition}));
    let end = over.finished.expect("an end");
    assert_eq!((end.success, end.message.as_str()), (false, "jobset failed"));
}

#[test]
fn it_may_start_once_its_controller_has_stopped_it() {
    let suspended = |active: i32, conditions: Value| {
        let mut status = jobs_status([0, 0], [0, 0], [0, active]);
        status["conditions"] = conditions;
        JobState::read::<JobSet>(&pathways(json!({"suspend": true}), status), None).may_change_template
    };
    let noted = json!([{"type": "Suspended", "status": "True", "reason": "SuspendedJobs", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    assert!(!suspended(0, json!([])) && !suspended(1, noted.clone()));
    assert!(suspended(0, noted));
}

#[test]
fn what_cannot_be_read_is_named() {
    let problem = |jobs: Value| JobSet::pod_sets(&pathways(json!({"replicatedJobs": jobs}), Value::Null)).unwrap_err();
    assert!(problem(json!([{"name": "a"}])).starts_with("spec.replicatedJobs[0].template"));
    let template = json!({"spec": {"parallelism": -1, "template": {}}});
    assert!(problem(json!([{"name": "a", "template": template}])).contains("greater than or equal to 0"));
    let template = json!({"spec": {"template": {}}});
    assert!(problem(json!([{"name": "a", "replicas": "many", "template": template}])).contains("replicas"));
    let elsewhere = pathways(json!({"managedBy": "kueue.x-k8s.io/multikueue"}), Value::Null);
    assert!(JobSet::unsupported(&elsewhere).is_some_and(|text| text.starts_with("spec.managedBy")));
}

#[test]
fn places_that_cannot_be_had_are_refused_by_field() {
    let (required, group) = (labels::POD_SET_REQUIRED_TOPOLOGY, labels::POD_SET_GROUP_NAME);
    let (slice, size) = (labels::POD_SET_SLICE_REQUIRED_TOPOLOGY, labels::POD_SET_SLICE_SIZE);
    // A head of one pod, and workers: three times four.
    let check = |head: Value, workers: Value, replicas: i32, expected: &[(usize, &str)]| {
        let entry = |name: &str, replicas: i32, pods: i32, annotations: Value| {
            json!({"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods, "completions": pods,
                "template": {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}}}})
        };
        let jobs = json!([entry("head", replicas, 1, head), entry("workers", 3, 4, workers)]);
        let object = json!({"apiVersion": jobset::API_VERSION, "kind": "JobSet", "metadata": {"name": "a"},
            "spec": {"replicatedJobs": jobs}});
        let job: Object = serde_json::from_value(object).expect("JobSet");
        let found: Vec<String> = JobSet::invalid(&job).into_iter().map(|error| error.field).collect();
        let path = |(index, key): &(usize, &str)| {
            format!("spec.replicatedJobs[{index}].template.spec.template.metadata.annotations[{key}]")
        };
        assert_eq!(found, expected.iter().map(path).collect::<Vec<_>>());
    };
    check(json!({required: "rack"}), json!({slice: "rack", size: "12"}), 1, &[]);
    check(json!({required: "a b"}), json!({slice: "rack", size: "13"}), 1, &[(0, required), (1, size)]);
    let grouped = |level: &str| json!({required: level, group: "g"});
    check(grouped("rack"), grouped("rack"), 1, &[]);
    check(grouped("rack"), json!({}), 1, &[(0, group)]);
    check(grouped("rack"), grouped("rack"), 2, &[(0, group), (1, group)]);
    check(grouped("rack"), grouped("block"), 1, &[(0, required), (1, required)]);
    check(json!({group: "g"}), json!({group: "g"}), 1, &[(0, group), (1, group)]);
    let number = json!({required: "rack", group: "7"});
    check(number.clone(), number, 1, &[(0, group), (1, group)]);
    let sliced = json!({required: "rack", group: "g", slice: "host", size: "1"});
    check(grouped("rack"), sliced, 1, &[(1, group)]);
}
