//! Every field of a TrainingJob with a bad value: the message names the field, the value, and what is allowed.

use super::{job, run};
use berth_api::berth::TrainingJob;
use berth_jobs::training::{
    Accelerators, invalid_training_job, invalid_training_job_change, invalid_training_job_metadata,
};
use serde_json::{Value, json};

#[test]
fn valid_training_job_of_each_type_has_no_errors() {
    for job_type in ["PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"] {
        let job = job(job_type, json!({}));
        assert_eq!(invalid_training_job(&job, &Accelerators::default()), [], "{job_type}");
        assert!(run(&job).len() >= 2);
    }
}

#[test]
fn template_amount_in_other_notation_matches_replica_resources() {
    let resources = json!({"requests": {"cpu": "32000m", "memory": "262144Mi", "nvidia.com/gpu": "8"}});
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
    let job = job("PyTorchJob", json!({"template": template}));
    assert_eq!(invalid_training_job(&job, &Accelerators::default()), []);
}

#[test]
fn invalid_training_job_field_is_refused_with_value_and_choices() {
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        super::merge(&mut container, &more);
        json!({"spec": {"containers": [container]}})
    };
    let cases: Vec<(&str, Value, &str, &str, &str)> = vec![
        ("CaffeJob", json!({}), "spec.jobType", "CaffeJob", "JAXJob"),
        ("PyTorchJob", json!({"resources": {"minReplicas": 0}}), "spec.resources.minReplicas", "0", "1 or more"),
        ("PyTorchJob", json!({"resources": {"maxReplicas": -1}}), "spec.resources.maxReplicas", "-1", "1 or more"),
        ("PyTorchJob", json!({"resources": {"minReplicas": 4}}), "spec.resources.minReplicas", "4", "which is 3"),
        ("PyTorchJob", resources(json!({"gpu": -1})), "spec.resources.replicaResources.gpu", "-1", "0 or more"),
        ("PyTorchJob", resources(json!({"cpu": "many"})), "spec.resources.replicaResources.cpu", "many", "500m"),
        ("PyTorchJob", resources(json!({"memory": "-1"})), "spec.resources.replicaResources.memory", "-1", "0 or more"),
        (
            "PyTorchJob",
            json!({"template": {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "a b"}}}}),
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]",
            "a b",
            "alphanumeric",
        ),
        ("PyTorchJob", json!({"sharedMemory": "0"}), "spec.sharedMemory", "0", "greater than 0"),
        ("PyTorchJob", json!({"sharedMemory": "big"}), "spec.sharedMemory", "big", "64Gi"),
        (
            "PyTorchJob",
            json!({"sharedMemory": "1Gi", "template": container(json!({"volumeMounts": [{"name": "x", "mountPath": "/dev/shm/"}]}))}),
            "spec.sharedMemory",
            "1Gi",
            "mounts /dev/shm already",
        ),
        (
            "PyTorchJob",
            json!({"resources": {"gpuType": "A100"}, "template": {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}}}),
            "spec.resources.gpuType",
            "A100",
            "nvidia.com/gpu.product=H100",
        ),
        ("PyTorchJob", scheduling(json!({"queue": null})), "spec.schedulingConfig.queue", "", "must name a LocalQueue"),
        ("PyTorchJob", scheduling(json!({"queue": "A_b"})), "spec.schedulingConfig.queue", "A_b", "lower case"),
        ("PyTorchJob", scheduling(json!({"priority": "A_b"})), "spec.schedulingConfig.priority", "A_b", "lower case"),
        ("PyTorchJob", scheduling(json!({"maxWaitTime": "1d"})), "spec.schedulingConfig.maxWaitTime", "1d", "1h30m"),
        (
            "PyTorchJob",
            scheduling(json!({"maxWaitTime": "0s"})),
            "spec.schedulingConfig.maxWaitTime",
            "0s",
            "longer than 0",
        ),
        (
            "PyTorchJob",
            scheduling(json!({"schedulingTimeout": "soon"})),
            "spec.schedulingConfig.schedulingTimeout",
            "soon",
            "10m",
        ),
        (
            "PyTorchJob",
            scheduling(json!({"schedulingTimeout": "0s"})),
            "spec.schedulingConfig.schedulingTimeout",
            "0s",
            "longer than 0",
        ),
        (
            "PyTorchJob",
            scheduling(json!({"preemptionPolicy": "Maybe"})),
            "spec.schedulingConfig.preemptionPolicy",
            "Maybe",
            "Never, PreemptLower, PreemptAlways",
        ),
        (
            "PyTorchJob",
            json!({"schedulingConfig": {"schedulerName": "a"}, "template": {"spec": {"schedulerName": "b"}}}),
            "spec.template.spec.schedulerName",
            "b",
            "\"a\"",
        ),
        ("PyTorchJob", elastic(json!({"minWorkers": 0})), "spec.elasticConfig.minWorkers", "0", "1 or more"),
        ("PyTorchJob", elastic(json!({"maxWorkers": 9})), "spec.elasticConfig.maxWorkers", "9", "maxReplicas, 3"),
        (
            "PyTorchJob",
            elastic(json!({"minWorkers": 3, "maxWorkers": 2})),
            "spec.elasticConfig.minWorkers",
            "3",
            "which is 2",
        ),
        (
            "PyTorchJob",
            elastic(json!({"scalePolicy": {"scaleUpCooldown": "x"}})),
            "spec.elasticConfig.scalePolicy.scaleUpCooldown",
            "x",
            "90s",
        ),
        (
            "PyTorchJob",
            elastic(json!({"scalePolicy": {"scaleDownCooldown": "-1s"}})),
            "spec.elasticConfig.scalePolicy.scaleDownCooldown",
            "-1s",
            "90s",
        ),
        (
            "PyTorchJob",
            elastic(json!({"scalePolicy": {"scaleUpCooldown": "0s"}})),
            "spec.elasticConfig.scalePolicy.scaleUpCooldown",
            "0s",
            "longer than 0",
        ),
        (
            "PyTorchJob",
            elastic(json!({"scalePolicy": {"scaleDownCooldown": "0m"}})),
            "spec.elasticConfig.scalePolicy.scaleDownCooldown",
            "0m",
            "longer than 0",
        ),
        (
            "PyTorchJob",
            elastic(json!({"scalePolicy": {"scaleUpStep": 0}})),
            "spec.elasticConfig.scalePolicy.scaleUpStep",
            "0",
            "1 or more",
        ),
        (
            "PyTorchJob",
            elastic(json!({"scalePolicy": {"scaleDownStep": -2}})),
            "spec.elasticConfig.scalePolicy.scaleDownStep",
            "-2",
            "1 or more",
        ),
        ("PyTorchJob", json!({"checkpoint": {"interval": "1.5h"}}), "spec.checkpoint.interval", "1.5h", "1h30m"),
        ("PyTorchJob", json!({"checkpoint": {"interval": "0s"}}), "spec.checkpoint.interval", "0s", "longer than 0"),
        ("PyTorchJob", json!({"checkpoint": {"store": "A_b"}}), "spec.checkpoint.store", "A_b", "lower case"),
        (
            "PyTorchJob",
            json!({"checkpoint": {"maxCheckpoints": 0}}),
            "spec.checkpoint.maxCheckpoints",
            "0",
            "1 to 1000",
        ),
        (
            "PyTorchJob",
            json!({"capacityTiers": ["cheap"]}),
            "spec.capacityTiers[0]",
            "cheap",
            "reserved, on-demand, spot",
        ),
        ("PyTorchJob", json!({"capacityTiers": ["spot", "spot"]}), "spec.capacityTiers[1]", "spot", "unique"),
        ("PyTorchJob", json!({"backoffLimit": 101}), "spec.backoffLimit", "101", "from 0 to 100"),
        ("PyTorchJob", json!({"backoffLimit": -1}), "spec.backoffLimit", "-1", "from 0 to 100"),
        ("PyTorchJob", json!({"roles": [{"name": "ps"}]}), "spec.roles[0].name", "ps", "no roles beside its workers"),
        ("TFJob", json!({"roles": [{"name": "boss"}]}), "spec.roles[0].name", "boss", "chief, ps, evaluator"),
        ("TFJob", json!({"roles": [{"name": "ps"}, {"name": "ps"}]}), "spec.roles[1].name", "ps", "unique"),
        ("TFJob", json!({"roles": [{"name": "chief", "replicas": 2}]}), "spec.roles[0].replicas", "2", "must be 1"),
        ("TFJob", json!({"roles": [{"name": "ps", "replicas": 0}]}), "spec.roles[0].replicas", "0", "1 or more"),
        ("MPIJob", json!({"roles": [{"name": "ps"}]}), "spec.roles[0].name", "ps", "supported values: launcher"),
        ("MPIJob", json!({"roles": [{"name": "launcher", "replicas": 2}]}), "spec.roles[0].replicas", "2", "must be 1"),
        (
            "TFJob",
            role(json!({"replicaResources": {"gpu": -1}})),
            "spec.roles[0].replicaResources.gpu",
            "-1",
            "0 or more",
        ),
        (
            "TFJob",
            role(json!({"replicaResources": {"cpu": "many"}})),
            "spec.roles[0].replicaResources.cpu",
            "many",
            "500m",
        ),
        (
            "TFJob",
            role(json!({"replicaResources": {"memory": "-1"}})),
            "spec.roles[0].replicaResources.memory",
            "-1",
            "0 or more",
        ),
        (
            "TFJob",
            role(json!({"template": {"spec": {"containers": []}}})),
            "spec.roles[0].template.spec.containers",
            "",
            "a container",
        ),
        ("PyTorchJob", json!({"mpi": {"slotsPerWorker": 2}}), "spec.mpi", "", "only an MPIJob"),
        ("MPIJob", json!({"mpi": {"sshAuthSecret": "keys"}}), "spec.mpi", "keys", "go together"),
        ("MPIJob", json!({"mpi": {"sshAuthMountPath": "/keys"}}), "spec.mpi", "/keys", "go together"),
        (
            "PyTorchJob",
            json!({"template": {"spec": {"containers": []}}}),
            "spec.template.spec.containers",
            "",
            "a container",
        ),
        (
            "PyTorchJob",
            json!({"template": {"spec": {"restartPolicy": "OnFailure"}}}),
            "spec.template.spec.restartPolicy",
            "OnFailure",
            "Never",
        ),
        (
            "PyTorchJob",
            json!({"template": container(json!({"resources": {"requests": {"cpu": "1"}}}))}),
            "spec.template.spec.containers[0].resources.requests[cpu]",
            "1",
            "32",
        ),
        (
            "PyTorchJob",
            json!({"template": container(json!({"resources": {"requests": {"memory": "1Gi"}}}))}),
            "spec.template.spec.containers[0].resources.requests[memory]",
            "1Gi",
            "256Gi",
        ),
        (
            "PyTorchJob",
            json!({"template": container(json!({"resources": {"requests": {"nvidia.com/gpu": "4"}}}))}),
            "spec.template.spec.containers[0].resources.requests[nvidia.com/gpu]",
            "4",
            "must be 8",
        ),
        (
            "PyTorchJob",
            json!({"template": container(json!({"resources": {"limits": {"nvidia.com/gpu": "4"}}}))}),
            "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]",
            "4",
            "must be 8",
        ),
        (
            "TFJob",
            role(json!({"replicaResources": {"memory": "2Gi"},
                "template": container(json!({"resources": {"requests": {"memory": "1Gi"}}}))})),
            "spec.roles[0].template.spec.containers[0].resources.requests[memory]",
            "1Gi",
            "2Gi",
        ),
    ];
    for (job_type, more, field, value, allowed) in cases {
        let errors = invalid_training_job(&job(job_type, more.clone()), &Accelerators::default());
        let found = errors.iter().find(|error| error.field == field && error.value == value);
        let found = found.unwrap_or_else(|| panic!("{more}: no error of {field} {value:?} in {errors:?}"));
        assert!(found.message.contains(allowed), "{field}: {}", found.message);
    }
}

#[test]
fn training_job_name_unfit_for_host_names_is_refused() {
    for (name, wrong) in
        [("a", None), ("a-1", None), ("1a", Some("begin")), ("a.b", Some("begin")), ("a-", Some("begin"))]
    {
        let mut job = job("PyTorchJob", json!({}));
        job.metadata.name = Some(name.to_owned());
        let errors = invalid_training_job(&job, &Accelerators::default());
        let found = errors.iter().find(|error| error.field == "metadata.name");
        assert_eq!(found.is_some(), wrong.is_some(), "{name}");
        assert!(found.is_none_or(|found| found.message.contains(wrong.unwrap())));
    }
    let mut long = job("PyTorchJob", json!({}));
    long.metadata.name = Some("a".repeat(44));
    let errors = invalid_training_job(&long, &Accelerators::default());
    assert!(errors.iter().any(|error| error.field == "metadata.name" && error.message.contains("43")));
}

#[test]
fn unreadable_checkpoint_annotation_is_refused() {
    for (key, value, allowed) in [
        ("berth.dev/last-checkpoint-time", "yesterday", "2026-01-31T12:00:00Z"),
        ("berth.dev/last-checkpoint-step", "-1", "0 or more"),
        ("berth.dev/last-checkpoint-step", "many", "0 or more"),
    ] {
        let mut job = job("PyTorchJob", json!({}));
        job.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
        let errors = invalid_training_job(&job, &Accelerators::default());
        let found = errors.iter().find(|error| error.field == format!("metadata.annotations[{key}]")).unwrap();
        assert!(found.value == value && found.message.contains(allowed), "{found:?}");
    }
}

#[test]
fn unreadable_metadata_is_refused_but_stored_training_job_runs_on() {
    for (place, key, value, allowed) in [
        ("labels", "kueue.x-k8s.io/max-exec-time-seconds", "2h", "whole number of seconds greater than 0"),
        ("annotations", "berth.dev/capacity-tiers", "spot,cheap", "reserved, on-demand and spot"),
        ("annotations", "kueue.x-k8s.io/admission-gated-by", "budget", "example.com/name"),
        ("annotations", "kueue.x-k8s.io/elastic-job", "true", "a batch/v1 Job alone may say so"),
    ] {
        let mut job = job("PyTorchJob", json!({}));
        let text = Some([(key.to_owned(), value.to_owned())].into());
        if place == "labels" {
            job.metadata.labels = text;
        } else {
            job.metadata.annotations = text;
        }
        assert_eq!(invalid_training_job(&job, &Accelerators::default()), [], "one that is stored runs on");
        let errors = invalid_training_job_metadata(&job);
        let [found] = errors.as_slice() else { panic!("one error of {key}, not {errors:?}") };
        assert_eq!((found.field.as_str(), found.value.as_str()), (&*format!("metadata.{place}[{key}]"), value));
        assert!(found.message.contains(allowed), "{found:?}");
    }
}

#[test]
fn empty_topology_annotation_is_refused_but_stored_training_job_runs() {
    let key = |name: &str| format!("kueue.x-k8s.io/podset-{name}");
    // A template engine, such as Helm, writes an empty topology annotation if its value is empty.
    for (empty, text) in [("preferred-topology", Some("required-topology")), ("group-name", None), ("slice-size", None)]
    {
        let mut annotations = json!({key(empty): ""});
        if let Some(text) = text {
            annotations[key(text)] = json!("rack");
        }
        let template =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let both = json!({"template": template, "roles": [{"name": "ps", "template": template}]});
        let job = job("TFJob", both);
        assert_eq!(invalid_training_job(&job, &Accelerators::default()), [], "one that is stored runs on");
        let errors = invalid_training_job_metadata(&job);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let of = |place: &str| format!("{place}.metadata.annotations[{}]", key(empty));
        assert_eq!(fields, [of("spec.template"), of("spec.roles[0].template")]);
        assert!(errors.iter().all(|error| error.message.contains("must not be empty")), "{errors:?}");
    }
}

#[test]
fn queue_label_of_training_job_is_validated_like_the_field() {
    for (label, allowed) in [("A_b", "lower case"), ("", "name a LocalQueue")] {
        let job = queued(Value::Null, Some(label), &json!({}));
        let errors = invalid_training_job_metadata(&job);
        let [found] = errors.as_slice() else { panic!("one error of {label:?}, not {errors:?}") };
        assert_eq!((found.field.as_str(), found.value.as_str()), ("metadata.labels[kueue.x-k8s.io/queue-name]", label));
        assert!(found.message.contains(allowed), "{found:?}");
    }
    assert_eq!(invalid_training_job_metadata(&queued(Value::Null, Some("a"), &json!({}))), []);
}

#[test]
fn max_exec_time_of_admitted_training_job_is_immutable() {
    let with = |seconds: &str, suspend: bool, status: &Value| {
        let mut job = job("PyTorchJob", json!({"suspend": suspend}));
        job.metadata.labels = Some([("kueue.x-k8s.io/max-exec-time-seconds".to_owned(), seconds.to_owned())].into());
        job.status = Some(serde_json::from_value(status.clone()).unwrap());
        job
    };
    let change = |suspend: bool, status: Value| {
        invalid_training_job_change(&with("60", false, &status), &with("90", suspend, &status))
    };
    let errors = change(false, admitted("True"));
    let [found] = errors.as_slice() else { panic!("one error, not {errors:?}") };
    let field = "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]";
    assert_eq!((found.field.as_str(), found.value.as_str()), (field, "90"));
    assert!(found.message.starts_with("must stay \"60\" while the job is admitted"), "{found:?}");
    assert_eq!(change(true, admitted("True")), []);
    assert_eq!(change(false, admitted("False")), []);
}

#[test]
fn queue_label_that_contradicts_training_job_field_is_refused() {
    let mut job = job("PyTorchJob", json!({}));
    job.metadata.labels = Some([("kueue.x-k8s.io/queue-name".to_owned(), "other".to_owned())].into());
    let errors = invalid_training_job(&job, &Accelerators::default());
    assert!(errors.iter().any(|e| e.field == "spec.schedulingConfig.queue" && e.message.contains("\"other\"")));
}

/// A TrainingJob with this status, whose field and label name these queues.
fn queued(field: Value, label: Option<&str>, status: &Value) -> TrainingJob {
    let mut job = job("PyTorchJob", scheduling(json!({"queue": field})));
    job.metadata.labels = label.map(|queue| [("kueue.x-k8s.io/queue-name".to_owned(), queue.to_owned())].into());
    job.status = Some(serde_json::from_value(status.clone()).unwrap());
    job
}

fn admitted(status: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Admitted", "status": status, "reason": "r", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

#[test]
fn queue_of_admitted_training_job_is_immutable() {
    let (field, label) = ("spec.schedulingConfig.queue", "metadata.labels[kueue.x-k8s.io/queue-name]");
    let none = Value::Null;
    let cases = [
        // Each case has the queue in the TrainingJob's field and in its label before and after the change, and the path and value in the error, if any.
        ((json!("a"), None), (json!("b"), None), Some((field, "b"))),
        ((json!("a"), None), (none.clone(), Some("b")), Some((field, "b"))),
        ((json!("a"), Some("a")), (json!("b"), Some("b")), Some((field, "b"))),
        ((none.clone(), Some("a")), (none.clone(), Some("b")), Some((label, "b"))),
        ((none.clone(), Some("a")), (none.clone(), None), Some((label, ""))),
        // The queue may move between the TrainingJob's field and its label, because the queue itself does not change.
        ((json!("a"), None), (json!("a"), Some("a")), None),
        ((json!("a"), None), (none.clone(), Some("a")), None),
        ((none.clone(), Some("a")), (json!("a"), None), None),
    ];
    for (was, is, refused) in cases {
        let what = format!("{was:?} {is:?}");
        let change = |status: Value, suspend: bool| {
            let mut new = queued(is.0.clone(), is.1, &status);
            new.spec.suspend = Some(suspend);
            invalid_training_job_change(&queued(was.0.clone(), was.1, &status), &new)
        };
        let errors = change(admitted("True"), false);
        let reported: Vec<(&str, &str)> = errors.iter().map(|e| (e.field.as_str(), e.value.as_str())).collect();
        assert_eq!(reported, Vec::from_iter(refused), "{what}");
        assert!(errors.iter().all(|e| e.message.contains("must stay \"a\" while the job is admitted")), "{errors:?}");
        assert!(errors.iter().all(|e| e.message.contains("spec.suspend")), "{errors:?}");
        for free in [change(admitted("True"), true), change(admitted("False"), false), change(json!({}), false)] {
            assert_eq!(free, [], "{what}");
        }
    }
}

fn resources(more: Value) -> Value {
    json!({"resources": {"replicaResources": more}})
}

fn scheduling(more: Value) -> Value {
    json!({ "schedulingConfig": more })
}

fn elastic(more: Value) -> Value {
    let mut config = json!({"enabled": true});
    super::merge(&mut config, &more);
    json!({"resources": {"minReplicas": 1}, "elasticConfig": config})
}

fn role(more: Value) -> Value {
    let mut role = json!({"name": "ps"});
    super::merge(&mut role, &more);
    json!({"roles": [role]})
}
