//! TrainingJobs that their user has suspended: a suspended TrainingJob holds no quota.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::json;

use crate::stories::cluster::{Cluster, job};
use crate::stories::training::{cluster, started, suspend, training};

#[test]
fn training_job_created_suspended_takes_no_quota_until_resumed() {
    // The API server accepts the write of the TrainingJob's status at once, or refuses such writes for a while.
    for refused in [0, 20] {
        let mut cluster = cluster("2");
        let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
        cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
        cluster.set_class("high", 10);
        cluster.put(Kind::JOB, job("victim", "lq", "2", true));
        cluster.pass(3);
        assert!(cluster.is("victim", "Admitted"), "{:?}", cluster.writes);
        let refusal = (Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false);
        cluster.faults.extend(vec![refusal; refused]);
        let spec = json!({"suspend": true, "schedulingConfig": {"priority": "high"}});
        cluster.put(Kind::TrainingJob, training("a", spec));
        cluster.pass(30);
        // A client deletes the Workload of the TrainingJob, and the job gets another Workload.
        cluster.delete(&cluster.workload_key("a"));
        cluster.pass(30);
        assert!(cluster.workload_of_training("a").unwrap()["status"]["admission"].is_null());
        assert!(cluster.is("victim", "Admitted") && !cluster.is("victim", "Evicted"), "{:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "{:?}", cluster.writes);
        cluster.faults.clear();
        cluster.pass(120);
        assert_eq!(cluster.phase("a"), "Suspended");
        assert_eq!(cluster.workload_of_training("a").unwrap()["spec"]["active"], false);
        suspend(&mut cluster, false);
        cluster.pass(30);
        assert_eq!((cluster.phase("a"), cluster.is("victim", "Admitted")), ("Running", false), "{:?}", cluster.writes);
    }
}

/// Two bools: true if the Workload of `a` is active, and true if it is marked as suspended with its job.
fn suspension_state(cluster: &Cluster) -> (bool, bool) {
    let workload = cluster.workload_of_training("a").unwrap();
    let mark = &workload["metadata"]["annotations"]["berth.dev/suspended-with-job"];
    (workload["spec"]["active"] != json!(false), !mark.is_null())
}

/// A client sets `spec.active` of the Workload of `a`, without suspending the TrainingJob.
fn activate(cluster: &mut Cluster, active: bool) {
    let workload = cluster.workload_key("a").name;
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": active}}));
}

fn running() -> Cluster {
    let mut cluster = started("2", json!({}));
    cluster.pass(2);
    assert_eq!(cluster.phase("a"), "Running");
    cluster
}

#[test]
fn resumed_training_job_runs_though_suspended_status_was_never_written() {
    for restarts in [false, true] {
        let mut cluster = running();
        let refusal = (Purpose::TrainingStatus, WriteOutcome::Refused("no".into()), false);
        cluster.faults.extend(vec![refusal; 1_000]);
        suspend(&mut cluster, true);
        cluster.pass(30);
        assert_eq!(suspension_state(&cluster), (false, true), "{:?}", cluster.writes);
        assert!(!cluster.has_job("a-worker"));
        if restarts {
            cluster.restart();
        }
        suspend(&mut cluster, false);
        cluster.pass(30);
        assert_eq!(suspension_state(&cluster), (true, false), "{:?}", cluster.writes);
        assert!(cluster.has_job("a-worker"), "no status is needed for that: {:?}", cluster.writes);
        cluster.faults.clear();
        cluster.pass(900);
        assert_eq!(cluster.phase("a"), "Running");
    }
}

#[test]
fn workload_deactivated_before_suspension_stays_inactive_after_resume() {
    let mut cluster = running();
    activate(&mut cluster, false);
    cluster.pass(10);
    suspend(&mut cluster, true);
    cluster.pass(120);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Suspended", (false, false)));
    assert_eq!(cluster.training_condition("a", "Suspended")["reason"], "WorkloadDeactivated");
    suspend(&mut cluster, false);
    cluster.pass(120);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Suspended", (false, false)));
    assert!(!cluster.has_job("a-worker"));
    activate(&mut cluster, true);
    cluster.pass(10);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn workload_of_suspended_training_job_cannot_be_activated_before_resume() {
    let mut cluster = running();
    suspend(&mut cluster, true);
    cluster.pass(10);
    assert_eq!(suspension_state(&cluster), (false, true));
    activate(&mut cluster, true);
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Suspended", (false, true)));
    // The user resumes the job and activates its Workload at the same time: Berth removes the mark that the Workload is suspended with its job, and the next
    // deactivation of the Workload counts as another client's.
    suspend(&mut cluster, false);
    activate(&mut cluster, true);
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Running", (true, false)));
    activate(&mut cluster, false);
    cluster.pass(30);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Suspended", (false, false)));
    assert_eq!(cluster.training_condition("a", "Suspended")["reason"], "WorkloadDeactivated");
}

#[test]
fn suspension_by_older_berth_without_mark_ends_on_resume() {
    let mut cluster = running();
    suspend(&mut cluster, true);
    cluster.pass(10);
    let workload = cluster.workload_key("a").name;
    let unmarked = json!({"metadata": {"annotations": {"berth.dev/suspended-with-job": null}}});
    cluster.edit(Kind::Workload, "team", &workload, &unmarked);
    cluster.restart();
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Suspended", (false, false)));
    suspend(&mut cluster, false);
    cluster.pass(10);
    assert_eq!((cluster.phase("a"), suspension_state(&cluster)), ("Running", (true, false)));
}
