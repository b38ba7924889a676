//! Tests of the roles, pod sets and pod fields that a TrainingJob's fields become.

use super::{admitted, container, job, run, variable};
use berth_api::berth::TrainingJob;
use berth_jobs::training::{
    Accelerators, ChildKind, Continuation, RunError, children, role_names, role_of_child, saved_of, training_facts,
    training_owner, training_pod_sets,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Name, count and smallest count of every pod set.
fn sets(job: &TrainingJob) -> Vec<(String, i32, Option<i32>)> {
    let sets = training_pod_sets(job, &Accelerators::default()).unwrap();
    sets.into_iter().map(|set| (set.name.unwrap(), set.count.unwrap(), set.min_count)).collect()
}

#[test]
fn resumed_worker_gets_checkpoint_variables_unless_template_sets_them() {
    let own = json!([{"name": "BERTH_RESUME_STEP", "value": "mine"}]);
    let more = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i", "env": own}]}}});
    let reported = BTreeMap::from([
        ("berth.dev/last-checkpoint-time".to_owned(), "2026-11-22T10:00:00Z".to_owned()),
        ("berth.dev/last-checkpoint-step".to_owned(), "70".to_owned()),
        ("berth.dev/last-checkpoint-uri".to_owned(), "s3://b/7".to_owned()),
    ]);
    let saved = saved_of(&reported).unwrap();
    let reported = Continuation { save_to: Some("s3://b"), saved: Some(&saved) };
    for (more, step) in [(json!({}), "70"), (more, "mine")] {
        let job = job("PyTorchJob", more);
        let all = children(&job, &Accelerators::default(), &admitted(&job), reported).unwrap();
        let container = container(&all, "worker");
        assert_eq!(variable(&container, "BERTH_RESUME_URI", 0).as_deref(), Some("s3://b/7"));
        assert_eq!(variable(&container, "BERTH_CHECKPOINT_URI", 0).as_deref(), Some("s3://b"));
        assert_eq!(variable(&container, "BERTH_RESUME_STEP", 0).as_deref(), Some(step));
    }
    let without = BTreeMap::from([("berth.dev/last-checkpoint-step".to_owned(), "70".to_owned())]);
    assert_eq!(saved_of(&without), None, "nobody knows when");
}

#[test]
fn training_job_pod_sets_follow_roles_and_replica_bounds() {
    let worker = |count, least| vec![("worker".to_owned(), count, least)];
    let replicas = |resources: Value| sets(&job("PyTorchJob", json!({"resources": resources})));
    assert_eq!(replicas(json!({})), worker(3, None));
    assert_eq!(replicas(json!({"minReplicas": 2})), worker(3, Some(2)));
    assert_eq!(replicas(json!({"minReplicas": 3})), worker(3, None));
    assert_eq!(replicas(json!({"maxReplicas": null, "minReplicas": 5})), worker(5, None));
    let elastic = json!({"resources": {"minReplicas": 1, "maxReplicas": 9},
        "elasticConfig": {"enabled": true, "minWorkers": 2, "maxWorkers": 8}});
    assert_eq!(sets(&job("JAXJob", elastic)), worker(8, Some(2)));
    let mpi = job("MPIJob", json!({}));
    assert_eq!(sets(&mpi), [("worker".to_owned(), 3, None), ("launcher".to_owned(), 1, None)]);
    assert_eq!(role_names(&mpi), ["worker", "launcher"]);
}

#[test]
fn gang_gets_required_topology_affinity_and_others_preferred() {
    for (gang, term) in [
        (json!(true), "requiredDuringSchedulingIgnoredDuringExecution"),
        (json!(null), "requiredDuringSchedulingIgnoredDuringExecution"),
        (json!(false), "preferredDuringSchedulingIgnoredDuringExecution"),
    ] {
        let more = json!({"resources": {"topologyConstraint": "rack"}, "schedulingConfig": {"gangScheduling": gang}});
        let all = run(&job("PyTorchJob", more));
        let affinity = &all[1].body["spec"]["template"]["spec"]["affinity"]["podAffinity"];
        let text = affinity[term].to_string();
        assert!(
            text.contains(r#""topologyKey":"rack""#) && text.contains(r#""berth.dev/training-job":"gpt""#),
            "{text}"
        );
        assert_eq!(affinity.as_object().unwrap().len(), 1);
    }
}

#[test]
fn workers_get_the_smaller_admitted_count() {
    let job = job("PyTorchJob", json!({"resources": {"minReplicas": 2}}));
    let mut places = admitted(&job);
    places[0].count = 2;
    let all = children(&job, &Accelerators::default(), &places, Continuation::default()).unwrap();
    assert_eq!((&all[1].body["spec"]["completions"], &all[1].body["spec"]["parallelism"]), (&json!(2), &json!(2)));
    let world = super::variable(&container(&all, "worker"), "WORLD_SIZE", 0);
    assert_eq!(world.as_deref(), Some("2"));
}

#[test]
fn job_annotation_records_worker_count_of_its_pods() {
    let notes = |job_type: &str, more: Value| -> Vec<(String, Value)> {
        let jobs = run(&job(job_type, more)).into_iter().filter(|child| child.kind == ChildKind::Job);
        jobs.map(|child| (child.name, child.body["metadata"]["annotations"].clone())).collect()
    };
    let elastic = || json!({"resources": {"minReplicas": 2}, "elasticConfig": {"enabled": true}});
    let (worker, launcher) = ("gpt-worker".to_owned(), "gpt-launcher".to_owned());
    assert_eq!(notes("PyTorchJob", elastic()), [(worker.clone(), json!({"berth.dev/elastic-workers": "2:3"}))]);
    // In an elastic MPIJob, the pods of each role learn the number of workers at their start, so the Job of each role has the annotation with this number.
    let reported = json!({"berth.dev/told-workers": "3"});
    assert_eq!(notes("MPIJob", elastic()), [(worker.clone(), reported.clone()), (launcher, reported)]);
    assert_eq!(notes("JAXJob", json!({"resources": {"minReplicas": 2}})), [(worker, Value::Null)]);
}

#[test]
fn admission_for_other_roles_starts_no_children() {
    let one = job("PyTorchJob", json!({}));
    let two = job("MPIJob", json!({}));
    for (job, places) in [(&one, admitted(&two)), (&two, admitted(&one))] {
        let error = children(job, &Accelerators::default(), &places, Continuation::default()).unwrap_err();
        assert!(matches!(error, RunError::Placement(_)), "{error}");
    }
}

#[test]
fn training_job_children_have_owner_and_no_queue_label() {
    let all = run(&job("MPIJob", json!({})));
    let kinds: Vec<ChildKind> = all.iter().map(|child| child.kind).collect();
    assert_eq!(kinds, [ChildKind::Service, ChildKind::ConfigMap, ChildKind::Job, ChildKind::Job]);
    for child in &all {
        let metadata = serde_json::from_value(child.body["metadata"].clone()).unwrap();
        assert!(training_owner(&metadata).is_some_and(|owner| owner.name == "gpt"), "{}", child.name);
        assert!(!child.body["metadata"]["labels"].to_string().contains("kueue.x-k8s.io/queue-name"));
    }
    let other = run(&serde_json::from_value(json!({"metadata": {"name": "gpt", "uid": "other"},
        "spec": serde_json::to_value(job("MPIJob", json!({})).spec).unwrap()}))
    .unwrap());
    assert_ne!(all[0].name, other[0].name, "a namesake has a Service of its own");
    assert_eq!(all[2].name, other[2].name);
    let roles = [2, 3].map(|child: usize| role_of_child("gpt", &all[child].name));
    assert_eq!(roles, [Some("worker"), Some("launcher")]);
    assert_eq!([role_of_child("gpt", "gpt-2"), role_of_child("gpt", "gpts-worker")], [Some("2"), None]);
}

#[test]
fn labels_stand_in_for_missing_queue_and_priority_fields() {
    let mut labelled = job("PyTorchJob", json!({"schedulingConfig": {"queue": null, "maxWaitTime": "1h"}}));
    labelled.metadata.labels = Some(
        [("kueue.x-k8s.io/queue-name", "q"), ("kueue.x-k8s.io/priority-class", "high")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    let facts = training_facts(&labelled);
    assert_eq!((facts.queue.as_str(), facts.priority_class.as_deref()), ("q", Some("high")));
    assert_eq!((facts.max_wait_seconds, facts.scheduling_timeout_seconds), (Some(3600), Some(600)));
    let loose = json!({"schedulingConfig": {"gangScheduling": false, "schedulingTimeout": "5s"}});
    assert_eq!(training_facts(&job("PyTorchJob", loose)).scheduling_timeout_seconds, None);
}
