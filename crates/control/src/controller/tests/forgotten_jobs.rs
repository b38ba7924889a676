//! Tests that a job that is gone leaves no state behind.

#![allow(clippy::unwrap_used, reason = "tests")]

use berth_api::conditions::reasons;
use berth_cache::event::{Change, JobType, Observation};
use berth_cache::settings::Settings;
use berth_jobs::SharedJob;
use berth_reconcile::notes::job::JobNotes;
use berth_reconcile::write::{EventType, Kind, Notice, ObjectKey, WORKLOADS};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::Control;

fn see(control: &mut Control, uid: &str, status: &Value, gone: bool) {
    let owner = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "t", "uid": "t-1",
        "controller": true});
    let template = json!({"spec": {"containers": [{"name": "c"}]}});
    let job = json!({"metadata": {"name": "t-worker", "namespace": "team", "uid": uid, "resourceVersion": "7",
            "ownerReferences": [owner], "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"berth.dev/elastic-workers": "1-4"}, "finalizers": ["foregroundDeletion"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"parallelism": 2, "completions": 2, "template": template}, "status": status});
    let job = SharedJob::from(JobType::JOB.decode(&job.to_string()).unwrap());
    let change = if gone { Change::Delete(job) } else { Change::Apply(job) };
    control.observe(Observation::Job(JobType::JOB, change), Timestamp::UNIX_EPOCH);
}

/// The key of the Job.
fn object() -> ObjectKey {
    ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "t-worker".into() }
}

/// Number of entries about jobs in the state of control, by the jobs' uids and names.
fn remembered(control: &Control) -> usize {
    let notes = ["one", "two", "t-1"].map(|uid| control.notes.jobs().of(uid));
    let count = |known: fn(&JobNotes) -> bool| notes.iter().filter(|notes| known(notes)).count();
    let stopped =
        count(|notes| notes.is_at_rest() || notes.is_rid_of_pods()) + count(|notes| !notes.starts().is_empty());
    let by_uid = stopped + count(|notes| notes.lack().is_some());
    let settled = count(JobNotes::has_settled);
    let event = usize::from(control.reports.last_event(&object(), reasons::STOPPED).is_some());
    event + by_uid + settled + control.view.jobs().len() + control.view.jobs().controlled.len()
}

/// Shows a Job in all states that leave an entry in the state of control.
fn lives(control: &mut Control, uid: &str) {
    let start = "2026-01-01T00:00:00Z";
    see(control, uid, &json!({"startTime": start, "active": 2, "ready": 2}), false);
    see(control, uid, &json!({"startTime": start, "active": 1, "ready": 1, "succeeded": 1}), false);
    control.notes.jobs_mut().change(uid, JobNotes::note_at_rest);
    let event = Notice {
        key: object(),
        uid: uid.to_owned(),
        event_type: EventType::Warning,
        reason: reasons::STOPPED.to_owned(),
        message: "text".to_owned(),
        reporter: WORKLOADS,
    };
    assert!(control.reports.is_news(&event.key, &event));
    assert!(remembered(control) > 4, "{control:?}");
}

#[test]
fn replaced_or_deleted_job_leaves_no_state_in_control() {
    let mut control = Control::new(Settings::default());
    lives(&mut control, "one");
    // Job `two` takes the name of Job `one`.
    see(&mut control, "two", &json!({}), false);
    let one = control.notes.jobs().of("one");
    assert!(!one.is_at_rest() && !one.is_rid_of_pods());
    assert!(one.lack().is_none() && !one.has_settled());
    assert_eq!(control.reports.last_event(&object(), reasons::STOPPED), None);
    assert!(control.notes.jobs().of("one").ended_at().is_none());
    lives(&mut control, "two");
    see(&mut control, "two", &json!({}), true);
    assert_eq!(remembered(&control), 0, "{control:?}");
    assert!(
        control.notes.jobs().of("two").ended_at().is_none()
            && control.view.jobs().controlled_by("team", "t-1").next().is_none()
    );
}
