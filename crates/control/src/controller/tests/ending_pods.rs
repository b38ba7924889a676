//! Tests of ending pods, whose Jobs are parts of a JobSet.

#![allow(clippy::unwrap_used, reason = "tests")]

use berth_cache::event::{Change, JobType, Observation};
use berth_cache::settings::Settings;
use berth_jobs::{JobPod, SharedJob};
use berth_reconcile::write::Term;
use jiff::Timestamp;
use serde_json::json;

use crate::controller::Control;

const OWNER: &str = "s-1";

fn see_job(control: &mut Control, uid: &str, gone: bool) {
    let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": OWNER, "controller": true});
    let job = json!({"metadata": {"name": "s-w-0", "namespace": "team", "uid": uid, "resourceVersion": "7", "ownerReferences": [owner]},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    let job = SharedJob::from(JobType::JOB.decode(&job.to_string()).unwrap());
    let change = if gone { Change::Delete(job) } else { Change::Apply(job) };
    control.observe(Observation::Job(JobType::JOB, change), Timestamp::UNIX_EPOCH);
}

/// An ending pod `p` of Job `j-1`, with a grace period of `grace` seconds.
fn pod_in(namespace: &str, grace: i64) -> Box<JobPod> {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "s-w-0", "uid": "j-1", "controller": true});
    let labels = json!({"kueue.x-k8s.io/podset": "w", "jobset.sigs.k8s.io/jobset-uid": OWNER,
        "batch.kubernetes.io/controller-uid": "j-1"});
    let metadata = json!({"namespace": namespace, "name": "p", "uid": "p-1", "labels": labels, "ownerReferences": [owner],
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace});
    JobPod::read(&json!({"metadata": metadata}).to_string()).unwrap()
}

fn pod(grace: i64) -> Box<JobPod> {
    pod_in("team", grace)
}

fn see(control: &mut Control, change: Change<Box<JobPod>>) {
    control.observe(Observation::JobPod(change), Timestamp::UNIX_EPOCH);
}

fn left(control: &Control) -> Vec<(&str, i64)> {
    control.view.ending_pods().left_of("team", OWNER).collect()
}

fn leader() -> Control {
    let mut control = Control::new(Settings::default());
    control.lead(Some(Term(1)));
    control
}

/// A Job and its pods are shown by two watches, so that a pod may be observed before its Job is, and after its Job is gone.
#[test]
fn ending_pod_is_left_while_its_job_is_unseen() {
    let mut control = leader();
    see(&mut control, Change::Apply(pod(30)));
    assert_eq!(left(&control), [("w", 1)]);
    see_job(&mut control, "j-1", false);
    assert!(left(&control).is_empty(), "{:?}", control.view.ending_pods());
    // Job `j-2` takes the name of Job `j-1`, so that no Job counts the pod.
    see_job(&mut control, "j-2", false);
    assert_eq!(left(&control), [("w", 1)]);
    see_job(&mut control, "j-2", true);
    assert_eq!(left(&control), [("w", 1)]);
    // A pod whose grace period is 0 has ended, and only a finalizer keeps the pod.
    see(&mut control, Change::Apply(pod(0)));
    assert!(left(&control).is_empty() && control.view.ending_pods().is_empty(), "{:?}", control.view.ending_pods());
}

#[test]
fn ending_pod_that_is_gone_leaves_nothing_behind() {
    let ends: [fn() -> Change<Box<JobPod>>; 3] =
        [|| Change::Delete(pod(0)), || Change::Only(Vec::new()), || Change::Reset(Vec::new())];
    for end in ends {
        let mut control = leader();
        see(&mut control, Change::Apply(pod(30)));
        assert_eq!(left(&control), [("w", 1)]);
        see(&mut control, end());
        let pods = control.view.ending_pods();
        assert!(pods.is_empty() && pods.by_job.is_empty() && pods.left.is_empty(), "{pods:?}");
    }
}

/// A process that does not lead may not have observed a list of Jobs yet.
#[test]
fn ending_pod_is_left_only_once_a_process_leads() {
    let mut control = Control::new(Settings::default());
    see(&mut control, Change::Apply(pod(30)));
    assert!(left(&control).is_empty(), "{:?}", control.view.ending_pods());
    control.lead(Some(Term(1)));
    assert_eq!(left(&control), [("w", 1)]);
}

#[test]
fn ending_pod_of_another_namespace_is_not_counted() {
    let mut control = leader();
    see(&mut control, Change::Apply(pod_in("other", 30)));
    assert!(left(&control).is_empty() && !control.view.ending_pods().is_empty());
}
