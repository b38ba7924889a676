//! Tests of jobs that the view keeps completely, and of jobs of which the view keeps only the state.

#![allow(clippy::unwrap_used, reason = "tests")]

use berth_cache::event::{Change, JobType, Observation};
use berth_cache::settings::Settings;
use berth_reconcile::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::controller::Control;

fn control() -> Control {
    Control::new(Settings::default())
}

/// Shows a Job with the given metadata and status; returns whether the view keeps the complete Job.
fn kept(control: &mut Control, metadata: &Value, status: &Value) -> bool {
    let mut all = json!({"name": "a", "namespace": "team", "uid": "a-1", "resourceVersion": "7", "generation": 1});
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": all, "spec": {"suspend": true, "template": template}, "status": status});
    let job = JobType::JOB.decode(&job.to_string()).unwrap();
    control.observe(Observation::Job(JobType::JOB, Change::Apply(job.into())), jiff::Timestamp::UNIX_EPOCH);
    let key = ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "a".into() };
    let known = control.view.jobs().get(&key).unwrap();
    assert_eq!(known.decode().is_some(), known.asked().is_some(), "what it asks for goes with it");
    known.decode().is_some()
}

fn owned_by(api_version: &str, kind: &str) -> Value {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o-1", "controller": true});
    json!({"ownerReferences": [owner]})
}

#[test]
fn unmanaged_job_without_managing_owner_is_not_kept_in_full() {
    let no_queue = json!({});
    assert!(!kept(&mut control(), &no_queue, &json!({})));
    assert!(!kept(&mut control(), &owned_by("batch/v1", "CronJob"), &json!({})));
    // The JobSet or TrainingJob under whose quota a Job runs may be observed after the Job, so the view keeps the complete Job.
    assert!(kept(&mut control(), &owned_by("jobset.x-k8s.io/v1alpha2", "JobSet"), &json!({})));
    assert!(kept(&mut control(), &owned_by("berth.dev/v1alpha1", "TrainingJob"), &json!({})));
    let settings = Settings { manage_jobs_without_queue_name: true, ..Settings::default() };
    assert!(kept(&mut Control::new(settings), &no_queue, &json!({})));
}

/// A started job without a queue may still hold quota, and is stopped if its quota goes to another Workload.
#[test]
fn started_job_that_leaves_its_queue_is_kept_in_full() {
    let started = |labels: &Value, version: &str| {
        let mut metadata = json!({"name": "a", "namespace": "team", "uid": "a-1", "labels": labels, "generation": 2});
        metadata["resourceVersion"] = json!(version);
        let template = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"metadata": metadata, "spec": {"suspend": false, "template": template}});
        JobType::JOB.decode(&job.to_string()).unwrap()
    };
    let mut control = control();
    for (labels, version) in [(json!({"kueue.x-k8s.io/queue-name": "lq"}), "7"), (json!({}), "8")] {
        let job = started(&labels, version);
        control.observe(Observation::Job(JobType::JOB, Change::Apply(job.into())), jiff::Timestamp::UNIX_EPOCH);
        let key = ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "a".into() };
        assert!(control.view.jobs().get(&key).unwrap().decode().is_some(), "{labels}");
    }
}

#[test]
fn unqueued_job_that_enters_a_queue_is_kept_in_full() {
    let mut control = control();
    assert!(!kept(&mut control, &json!({}), &json!({})));
    // A change of labels does not change the generation of a Job.
    let queued = json!({"resourceVersion": "8", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    assert!(kept(&mut control, &queued, &json!({})));
    assert!(!kept(&mut control, &json!({"resourceVersion": "9"}), &json!({})), "it has left the queue");
}

#[test]
fn finished_job_without_workload_is_not_kept_in_full() {
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let queued = json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    assert!(kept(&mut control(), &queued, &json!({})));
    assert!(!kept(&mut control(), &queued, &complete));
    assert!(!kept(&mut control(), &owned_by("jobset.x-k8s.io/v1alpha2", "JobSet"), &complete));
    assert!(kept(&mut control(), &owned_by("berth.dev/v1alpha1", "TrainingJob"), &complete));
    let mut prebuilt = queued;
    prebuilt["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("w");
    assert!(kept(&mut control(), &prebuilt, &complete), "it is suspended as long as its Workload is missing");
}
