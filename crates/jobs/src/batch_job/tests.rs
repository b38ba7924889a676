use super::*;
use crate::patch::merged;
use std::collections::BTreeMap;

fn job(metadata: Value, spec: Value, status: Value) -> Job {
    let mut base = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5"},
        "spec": {"parallelism": 4, "template": {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}}});
    base = merged(&base, &json!({"metadata": metadata, "spec": spec, "status": status}));
    serde_json::from_value(base).expect("job")
}

fn with_status(spec: Value, status: Value) -> Job {
    job(json!({}), spec, status)
}

fn patched(job: &Job, patch: &Value) -> Job {
    let before = serde_json::to_value(job).expect("serialises");
    serde_json::from_value(merged(&before, patch)).expect("job")
}

/// The server drops empty maps and lists; serialised forms are compared the way it stores them.
fn stored(job: &Job) -> Value {
    fn prune(value: &mut Value) {
        if let Value::Object(fields) = value {
            fields.values_mut().for_each(prune);
            let empty = |v: &Value| v.as_object().is_some_and(Map::is_empty) || v.as_array().is_some_and(Vec::is_empty);
            fields.retain(|_, field| !empty(field));
        }
    }
    let mut value = serde_json::to_value(job).expect("serialises");
    prune(&mut value);
    value
}

fn parts(job: &Job) -> Vec<TemplateParts> {
    let sets = BatchJob::pod_sets(job).expect("pod sets");
    sets.iter().map(|set| TemplateParts::of(&set.template, set.effective_count())).collect()
}

fn needs_restore(job: &Job, original: &[TemplateParts]) -> bool {
    crate::JobState::read::<BatchJob>(job, None).needs_restore(original)
}

fn placement(count: i32) -> Placement {
    let pairs = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    Placement {
        pod_set: "main".to_owned(),
        count,
        labels: pairs(labels::POD_SET, "main"),
        annotations: pairs(labels::WORKLOAD, "job-a-12345"),
        node_selector: pairs("tpu", "v5"),
        tolerations: vec![serde_json::from_value(json!({"key": "spot", "operator": "Exists"})).expect("toleration")],
        scheduling_gates: vec!["gate".to_owned()],
        overrides: false,
        forbidden: vec![("reserved".to_owned(), Vec::new())],
    }
}

fn templates() -> Vec<Value> {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}});
    vec![
        json!({}),
        json!({"metadata": {"labels": {"job-name": "a", "controller-uid": "u"}}}),
        json!({"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}, "spec": {"nodeSelector": {"z": "3"},
            "tolerations": [{"key": "own", "operator": "Exists"}], "schedulingGates": [{"name": "own"}],
            "affinity": affinity}}),
        json!({"spec": {"nodeSelector": {"tpu": "v5"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}}),
        json!({"spec": {"affinity": {"nodeAffinity": {}}}}),
    ]
}

#[test]
fn a_start_is_one_patch_and_a_restore_takes_all_of_it_back() {
    for template in templates() {
        let before = job(json!({}), json!({"suspend": true, "template": template}), json!({}));
        let original = parts(&before);
        assert!(!needs_restore(&before, &original));
        let start = BatchJob::start_patch(&before, &[placement(4)]).expect("patch");
        assert_eq!(start["metadata"], json!({"uid": "u", "resourceVersion": "5"}));
        assert_eq!(start["spec"]["suspend"], json!(false));
        let running = patched(&before, &start);
        let spec = running.spec.as_ref().and_then(|s| s.template.spec.as_ref()).expect("pod spec");
        assert_eq!(spec.node_selector.as_ref().and_then(|s| s.get("tpu")).map(String::as_str), Some("v5"));
        assert!(!BatchJob::is_suspended(&running));

        let stopping = patched(&running, &BatchJob::stop_patch(&running));
        assert!(!BatchJob::is_suspended(&stopping), "not before it is restored");
        assert!(needs_restore(&stopping, &original));
        let restore = BatchJob::restore_patch(&stopping, &original).expect("patch");
        let after = patched(&stopping, &restore);
        assert_eq!(stored(&after), stored(&before), "template {template}");
        assert!(BatchJob::is_suspended(&after));
        assert_eq!(BatchJob::restore_patch(&after, &original), None);
    }
}

#[test]
fn patches_touch_nothing_else() {
    let before = job(json!({}), json!({"suspend": true}), json!({}));
    let start = BatchJob::start_patch(&before, &[placement(4)]).expect("patch");
    assert_eq!(
        start,
        json!({"metadata": {"uid": "u", "resourceVersion": "5"}, "spec": {"suspend": false, "template": {
            "metadata": {"labels": {labels::POD_SET: "main"}, "annotations": {labels::WORKLOAD: "job-a-12345"}},
            "spec": {"nodeSelector": {"tpu": "v5"}, "tolerations": [{"key": "spot", "operator": "Exists"}],
                "schedulingGates": [{"name": "gate"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                    [{"matchExpressions": [{"key": "reserved", "operator": "DoesNotExist"}]}]}}}}}}})
    );
    assert_eq!(
        BatchJob::suspend_patch(&before),
        json!({"metadata": {"uid": "u", "resourceVersion": "5"}, "spec": {"suspend": true}})
    );
    assert_eq!(
        BatchJob::stop_patch(&before),
        json!({"metadata": {"uid": "u", "resourceVersion": "5", "annotations": {labels::STOPPING: "true"}},
            "spec": {"suspend": true}})
    );
}

#[test]
fn placements_that_do_not_fit_the_job_are_refused() {
    let before =
        job(json!({}), json!({"suspend": true, "template": {"spec": {"nodeSelector": {"tpu": "v6"}}}}), json!({}));
    assert!(matches!(BatchJob::start_patch(&before, &[placement(4)]), Err(PlacementError::Conflict { .. })));
    assert!(matches!(BatchJob::start_patch(&before, &[]), Err(PlacementError::PodSets { given: 0, wanted: 1 })));
}

#[test]
fn partial_admission_changes_parallelism_and_gives_it_back() {
    let follow = json!({labels::JOB_MIN_PARALLELISM: "2", labels::JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"});
    let alone = json!({labels::JOB_MIN_PARALLELISM: "2"});
    let indexed = json!({"suspend": true, "parallelism": 4, "completions": 4, "completionMode": "Indexed"});
    let plain = json!({"suspend": true, "parallelism": 4, "completions": 8});
    let cases = [
        (follow.clone(), indexed, 3, Some(3), Some(3)),
        (follow, plain.clone(), 3, Some(3), Some(8)),
        (alone.clone(), plain.clone(), 2, Some(2), Some(8)),
        (alone, plain.clone(), 4, Some(4), Some(8)),
        (json!({}), plain, 3, Some(4), Some(8)),
    ];
    for (annotations, spec, count, parallelism, completions) in cases {
        let before = job(json!({"annotations": annotations}), spec, json!({}));
        let original = parts(&before);
        let running = patched(&before, &BatchJob::start_patch(&before, &[placement(count)]).expect("patch"));
        let found = running.spec.as_ref().map(|s| (s.parallelism, s.completions)).expect("spec");
        assert_eq!(found, (parallelism, completions));
        let stopping = patched(&running, &BatchJob::stop_patch(&running));
        let after = patched(&stopping, &BatchJob::restore_patch(&stopping, &original).expect("patch"));
        assert_eq!(stored(&after), stored(&before));
    }
}

#[test]
fn a_foreign_workload_restores_nothing_but_ends_the_stop() {
    let spec = json!({"suspend": true, "template": {"metadata": {"labels": {labels::POD_SET: "main"}}}});
    let stopping = job(json!({"annotations": {labels::STOPPING: "true"}}), spec, json!({}));
    let patch = BatchJob::restore_patch(&stopping, &[]).expect("patch");
    assert_eq!(
        patch,
        json!({"metadata": {"uid": "u", "resourceVersion": "5", "annotations": {labels::STOPPING: null}}})
    );
}

#[test]
fn a_job_suspended_by_hand_is_restored_too_but_the_users_edits_are_kept() {
    let original = parts(&with_status(json!({"suspend": true}), json!({})));
    let by_hand = with_status(
        json!({"suspend": true, "template": {"metadata": {"labels": {labels::POD_SET: "main"}}}}),
        json!({}),
    );
    assert!(needs_restore(&by_hand, &original));
    let edited = with_status(json!({"suspend": true, "template": {"spec": {"nodeSelector": {"a": "b"}}}}), json!({}));
    assert!(!needs_restore(&edited, &original));
    let running = with_status(json!({"template": {"metadata": {"labels": {labels::POD_SET: "main"}}}}), json!({}));
    assert!(!needs_restore(&running, &original));
}

#[test]
fn phases_are_told_from_the_status() {
    let time = "2026-01-01T00:00:00Z";
    // suspend, status, active, may change its template, has to be unlocked
    let cases = [
        (json!(true), json!({}), false, true, false),
        (json!(false), json!({}), false, false, false),
        (json!(false), json!({"active": 2, "startTime": time}), true, false, false),
        (json!(true), json!({"active": 2, "startTime": time}), true, false, false),
        (json!(true), json!({"active": 0, "terminating": 1, "startTime": time}), true, false, false),
        (json!(true), json!({"active": 0, "terminating": 1}), true, true, false),
        (json!(true), json!({"active": 0, "terminating": 0, "startTime": time}), false, false, true),
        (json!(true), json!({"active": 0, "terminating": 0}), false, true, false),
    ];
    for (suspend, status, active, mutable, locked) in cases {
        let job = with_status(json!({"suspend": suspend}), status.clone());
        let found =
            (BatchJob::is_active(&job), BatchJob::may_change_template(&job), BatchJob::unlock_patch(&job).is_some());
        assert_eq!(found, (active, mutable, locked), "suspend {suspend} status {status}");
    }
    let locked = with_status(json!({"suspend": true}), json!({"startTime": time}));
    assert_eq!(
        BatchJob::unlock_patch(&locked),
        Some(json!({"metadata": {"uid": "u", "resourceVersion": "5"}, "status": {"startTime": null}}))
    );
}

#[test]
fn ends_are_told_from_the_conditions() {
    let condition =
        |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status, "message": "m"}]});
    let cases = [
        (json!({}), None),
        (condition("Complete", "True"), Some(true)),
        (condition("Failed", "True"), Some(false)),
        (condition("Failed", "False"), None),
        (condition("FailureTarget", "True"), None),
    ];
    for (status, expected) in cases {
        let finish = BatchJob::finished(&with_status(json!({}), status));
        assert_eq!(finish, expected.map(|success| Finish { success, message: "m".to_owned() }));
    }
}

#[test]
fn counts() {
    // parallelism, completions, pods
    for (parallelism, completions, pods) in [
        (json!(null), json!(null), 1),
        (json!(4), json!(null), 4),
        (json!(4), json!(2), 2),
        (json!(4), json!(9), 4),
        (json!(0), json!(2), 0),
    ] {
        let job = with_status(json!({"parallelism": parallelism, "completions": completions}), json!({}));
        let sets = BatchJob::pod_sets(&job).expect("pod sets");
        assert_eq!(sets.iter().map(PodSet::effective_count).collect::<Vec<_>>(), [pods]);
    }
    for (text, result) in [("2", Ok(Some(2))), ("4", Ok(Some(4))), ("0", Err(())), ("5", Err(())), ("x", Err(()))] {
        let job = job(json!({"annotations": {labels::JOB_MIN_PARALLELISM: text}}), json!({}), json!({}));
        let found = BatchJob::pod_sets(&job).map(|sets| sets.first().and_then(|set| set.min_count));
        assert_eq!(found.map_err(|_| ()), result, "{text}");
    }
}

#[test]
fn readiness_and_reclaimable_pods() {
    let indexed = |indexes: &str| json!({"succeeded": 9, "completedIndexes": indexes});
    // parallelism, completions, indexed, status, ready, reclaimable
    let cases = [
        (4, Some(4), false, json!({"ready": 3}), false, 0),
        (4, Some(4), false, json!({"ready": 3, "succeeded": 1}), true, 1),
        (
            4,
            Some(4),
            false,
            json!({"ready": 2, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}}),
            true,
            1,
        ),
        (
            4,
            Some(4),
            false,
            json!({"ready": 2, "succeeded": 1, "uncountedTerminatedPods": {"failed": ["a"]}}),
            false,
            1,
        ),
        (4, Some(8), false, json!({"ready": 4, "succeeded": 4}), true, 0),
        (4, Some(8), false, json!({"ready": 3, "succeeded": 5}), true, 1),
        (4, None, false, json!({"succeeded": 1}), false, 1),
        (1, Some(1), false, json!({"succeeded": 1}), true, 0),
        (5, Some(3), false, json!({"succeeded": 1}), false, 1),
        (4, Some(4), true, indexed("0,2-3"), true, 3),
        (4, Some(4), true, indexed("2-6"), true, 2),
        (4, Some(8), true, indexed("0"), true, 0),
    ];
    for (index, (parallelism, completions, is_indexed, status, ready, reclaimable)) in cases.into_iter().enumerate() {
        let mode = if is_indexed { "Indexed" } else { "NonIndexed" };
        let spec = json!({"parallelism": parallelism, "completions": completions, "completionMode": mode});
        let job = with_status(spec, status);
        assert_eq!(BatchJob::pods_ready(&job), ready, "case {index}");
        assert_eq!(BatchJob::pods_succeeded(&job), [7, 9, 10, 11].contains(&index), "case {index}");
        let found: i32 = BatchJob::reclaimable_pods(&job).iter().map(|pods| pods.count).sum();
        assert_eq!(found, reclaimable, "case {index}");
    }
}

#[test]
fn fields_that_berth_does_not_act_on_are_named() {
    let cases = [
        (job(json!({}), json!({}), json!({})), None),
        (job(json!({}), json!({"managedBy": "kubernetes.io/job-controller"}), json!({})), None),
        (job(json!({}), json!({"managedBy": "kueue.x-k8s.io/multikueue"}), json!({})), Some("spec.managedBy")),
        (job(json!({"annotations": {labels::ELASTIC_JOB: "true"}}), json!({}), json!({})), Some(labels::ELASTIC_JOB)),
        (
            job(
                json!({}),
                json!({"template": {"metadata": {"annotations": {labels::POD_SET_GROUP_NAME: "g"}}}}),
                json!({}),
            ),
            Some(labels::POD_SET_GROUP_NAME),
        ),
        (
            job(json!({}), json!({"template": {"spec": {"resourceClaims": [{"name": "x"}]}}}), json!({})),
            Some("spec.template.spec.resourceClaims"),
        ),
    ];
    for (job, expected) in cases {
        let found = BatchJob::unsupported(&job);
        assert_eq!(found.is_some(), expected.is_some());
        assert!(expected.is_none_or(|field| found.is_some_and(|text| text.contains(field))));
    }
}

#[test]
fn negative_counts_are_named() {
    for (field, given) in [("parallelism", -1), ("completions", i32::MIN)] {
        let spec = json!({field: given, "template": {"spec": {"containers": [{"name": "c"}]}}});
        let error = BatchJob::pod_sets(&job(json!({"name": "j"}), spec, json!({}))).expect_err("refused");
        assert_eq!(error, format!("spec.{field}: {given} must be greater than or equal to 0"));
    }
}
