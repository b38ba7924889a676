//! Writes that fail or are lost, and objects that another client has deleted.

use berth_control::write::{Kind, Purpose, TaskOutcome, WriteOutcome};
use serde_json::json;

use crate::stories::cluster::{Cluster, Fault, job, made_before};
use crate::stories::groups::{gated, member};
use crate::stories::one_queue;
use crate::stories::pods::pod;

/// Every way in which a write of each of the given purposes may fail or be lost, with the name of the fault.
pub fn every_fault(purposes: &[Purpose]) -> Vec<(Fault, String)> {
    let outcomes = [
        (WriteOutcome::Unknown("reset".into()), true),
        (WriteOutcome::Unknown("reset".into()), false),
        (WriteOutcome::Busy(100), false),
        (WriteOutcome::Conflict, false),
        (WriteOutcome::NotSent, false),
    ];
    let of_outcome = |(outcome, happens): (WriteOutcome, bool)| {
        purposes.iter().map(move |purpose| {
            let what = format!("{purpose:?} {outcome:?} {happens}");
            ((*purpose, outcome.clone(), happens), what)
        })
    };
    outcomes.into_iter().flat_map(of_outcome).collect()
}

/// Runs a story once for every way in which the first write of each of the given purposes may fail or be lost. The story gets the cluster and the name of the
/// fault.
pub fn with_every_fault(begin: impl Fn() -> Cluster, purposes: &[Purpose], check: impl Fn(Cluster, &str)) {
    for (fault, what) in every_fault(purposes) {
        let mut cluster = begin();
        cluster.faults.push(fault);
        check(cluster, &what);
    }
}

#[test]
fn jobs_run_one_after_another_despite_failed_or_lost_writes() {
    let purposes = [
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::StartJob,
        Purpose::SetPodsReady,
        Purpose::FinishWorkload,
        Purpose::LetFinishedGo,
        Purpose::SuspendJob,
    ];
    with_every_fault(
        || one_queue("1"),
        &purposes,
        |mut cluster, what| {
            cluster.put(Kind::JOB, job("a", "lq", "1", false));
            cluster.put(Kind::JOB, job("b", "lq", "1", false));
            let mut finished = Vec::new();
            for _ in 0..2 {
                cluster.pass(120);
                let running: Vec<&str> =
                    ["a", "b"].into_iter().filter(|name| cluster.job(name)["status"]["active"] == json!(1)).collect();
                assert_eq!(running.len(), 1, "{what}: one job has quota, running {running:?}, {:?}", cluster.writes);
                cluster.complete(running[0]);
                finished.push(running[0]);
            }
            cluster.pass(120);
            for name in ["a", "b"] {
                assert!(cluster.is(name, "Finished"), "{what}: {name} is not finished");
            }
            let before = cluster.writes.len();
            cluster.pass(300);
            assert_eq!(cluster.writes.len(), before, "{what}: quiet at rest, {:?}", &cluster.writes[before..]);
        },
    );
}

#[test]
fn job_with_spurious_write_conflicts_still_runs_and_finishes() {
    for purpose in [Purpose::ReserveQuota, Purpose::StartJob, Purpose::FinishWorkload, Purpose::LetFinishedGo] {
        let mut cluster = one_queue("1");
        cluster.conflicts_lie = true;
        cluster.faults.extend([(purpose, WriteOutcome::Conflict, false), (purpose, WriteOutcome::Conflict, false)]);
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(5);
        // No other Workload gets the quota while it is unknown whether the first Workload has the quota.
        cluster.put(Kind::JOB, job("b", "lq", "1", true));
        cluster.pass(60);
        assert!(cluster.is("a", "Admitted") && !cluster.is("b", "Admitted"), "{purpose:?}: {:?}", cluster.writes);
        assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "{purpose:?}");
        cluster.complete("a");
        cluster.pass(60);
        assert!(cluster.is("a", "Finished") && cluster.is("b", "Admitted"), "{purpose:?}: {:?}", cluster.writes);
    }
}

#[test]
fn workload_deleted_by_hand_is_recreated_and_admitted() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let first = cluster.workload_of("a").unwrap()["metadata"].clone();
    cluster.delete(&Cluster::key(Kind::Workload, "team", first["name"].as_str().unwrap()));
    // Control observes the deletion of the Workload before the answer to the write that removes the Workload's finalizer.
    cluster.pass(10);
    let second = &cluster.workload_of("a").expect("another workload")["metadata"];
    assert_eq!((&second["name"], second["uid"] == first["uid"]), (&first["name"], false));
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn job_adopts_prebuilt_workload_after_write_under_way_completes() {
    let mut cluster = one_queue("1");
    let mut guest = job("guest", "lq", "1", true);
    let workload = made_before(&guest["spec"]["template"]);
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    cluster.settle();
    cluster.put(Kind::Workload, workload);
    // The write of the prebuilt Workload's reservation is under way when the job that names this Workload is created.
    let under_way = cluster.control.step(cluster.now());
    assert!(under_way.tasks.iter().any(|write| write.purpose == Purpose::ReserveQuota));
    cluster.put(Kind::JOB, guest);
    let blocked = cluster.control.step(cluster.now());
    assert!(blocked.tasks.iter().all(|write| write.purpose != Purpose::AdoptWorkload));
    cluster.take(blocked);
    cluster.take(under_way);
    cluster.settle();
    assert_eq!(cluster.job("guest")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
}

#[test]
fn job_created_before_its_prebuilt_workload_starts_when_it_appears() {
    let mut cluster = one_queue("1");
    let mut guest = job("guest", "lq", "1", true);
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    let template = guest["spec"]["template"].clone();
    cluster.put(Kind::JOB, guest);
    cluster.pass(30);
    cluster.put(Kind::Workload, made_before(&template));
    cluster.settle();
    assert_eq!(cluster.job("guest")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
}

#[test]
fn pod_created_before_its_prebuilt_workload_starts_when_it_appears() {
    let mut cluster = crate::stories::pod_queue("1");
    let pod = json!({"metadata": {"namespace": "team", "name": "guest", "finalizers": ["kueue.x-k8s.io/managed"],
        "labels": {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true",
            "kueue.x-k8s.io/prebuilt-workload-name": "before"}},
        "spec": {"restartPolicy": "Never", "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": pod["spec"]["containers"]}});
    cluster.put(Kind::Pod, pod);
    cluster.pass(30);
    assert!(cluster.writes.iter().all(|(_, key)| key.kind != Kind::Workload), "{:?}", cluster.writes);
    cluster.put(Kind::Workload, made_before(&template));
    cluster.settle();
    let pod = cluster.pod("guest").unwrap();
    assert_eq!(pod["status"]["phase"], json!("Running"), "{pod} {:?}", cluster.writes);
    assert!(cluster.workload_is("before", "Admitted"));
}

#[test]
fn pod_group_created_before_prebuilt_workload_starts_when_it_appears() {
    let mut cluster = crate::stories::pod_queue("2");
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[("role-hash", "main"), ("prebuilt-workload-name", "g")]));
    }
    cluster.pass(30);
    assert!(cluster.writes.iter().all(|(_, key)| key.kind != Kind::Workload), "{:?}", cluster.writes);
    let template = json!({"spec": {"containers": pod("a", "1")["spec"]["containers"]}});
    cluster.put(
        Kind::Workload,
        json!({"metadata": {"namespace": "team", "name": "g", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 2, "template": template}]}}),
    );
    cluster.settle();
    assert!(!gated(&cluster, "a") && !gated(&cluster, "b"), "{:?}", cluster.writes);
    assert!(cluster.workload_is("g", "Admitted"));
}

#[test]
fn pod_with_requests_unlike_its_prebuilt_workload_does_not_start() {
    for cpu in ["4", "0.5"] {
        let mut cluster = crate::stories::pod_queue("8");
        let pod = json!({"metadata": {"namespace": "team", "name": "guest", "finalizers": ["kueue.x-k8s.io/managed"],
            "labels": {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true",
                "kueue.x-k8s.io/prebuilt-workload-name": "before"}},
            "spec": {"restartPolicy": "Never", "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
        cluster
            .put(Kind::Workload, made_before(&json!({"spec": {"restartPolicy": "Never", "containers": containers}})));
        cluster.put(Kind::Pod, pod);
        cluster.pass(30);
        assert_ne!(cluster.pod("guest").unwrap()["status"]["phase"], json!("Running"), "{:?}", cluster.writes);
        assert!(cluster.workload_is("before", "Finished"), "{:?}", cluster.writes);
        assert!(cluster.notices.iter().any(|notice| notice.reason == "OutOfSync"));
    }
}

#[test]
fn reelected_leader_with_unchanged_cluster_makes_no_writes() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(10);
    let writes = cluster.writes.len();
    cluster.control.lead(None);
    cluster.pass(60);
    cluster.control.lead(Some(berth_control::write::Term(2)));
    cluster.pass(60);
    assert_eq!(cluster.writes.len(), writes, "{:?}", &cluster.writes[writes..]);
}

#[test]
fn undecodable_workload_keeps_its_quota_and_is_not_written() {
    use berth_control::event::{Change, Observation};
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let stored = cluster.workload_of("a").unwrap().clone();
    // The runtime replaces a Workload that cannot be decoded by a Workload without pod sets and with a mark. The new leader has never observed the complete
    // Workload.
    let mut rest = stored.clone();
    rest["spec"] = json!({"queueName": "lq"});
    rest["metadata"]["annotations"] = json!({"berth.dev/unreadable": ""});
    let delete = Change::Delete(serde_json::from_value(stored.clone()).unwrap());
    cluster.control.observe(Observation::Workload(delete), cluster.now());
    let change = Change::Apply(serde_json::from_value(rest).unwrap());
    cluster.control.observe(Observation::Workload(change), cluster.now());
    let before = cluster.writes.len();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(30);
    assert!(!cluster.is("b", "QuotaReserved"), "{:?}", cluster.workload_of("b"));
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(false), "its job goes on");
    let name = stored["metadata"]["name"].as_str().unwrap();
    let about: Vec<_> =
        cluster.writes[before..].iter().filter(|(_, key)| key.name == name || key.name == "a").collect();
    assert!(about.is_empty(), "{about:?}");
    // The Workload that could not be decoded is readable again, and control can follow the Workload to the end of its job.
    let change = Change::Apply(serde_json::from_value(stored.clone()).unwrap());
    cluster.control.observe(Observation::Workload(change), cluster.now());
    cluster.pass(5);
    assert_eq!(cluster.workload_of("a"), Some(&stored), "nothing happened to it");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a"));
    cluster.pass(30);
    assert!(cluster.is("b", "Admitted"), "{:?}", cluster.workload_of("b"));
}

/// Deactivates a Workload, so that its job has to give up the quota.
fn deactivate(cluster: &mut Cluster, workload: &str) {
    cluster.edit(Kind::Workload, "team", workload, &json!({"spec": {"active": false}}));
}

fn name_of(object: &serde_json::Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// A cluster in which job `a` has all quota, the write that starts the job is lost, and the Workload is deactivated before the start is tried again.
fn lost_start() -> Cluster {
    let mut cluster = one_queue("1");
    cluster.loses.push(Purpose::StartJob);
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("a", "Admitted") && cluster.lost.len() == 1, "{:?}", cluster.writes);
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    let workload = name_of(cluster.workload_of("a").unwrap());
    deactivate(&mut cluster, &workload);
    cluster
}

#[test]
fn lost_job_start_cannot_apply_after_quota_is_released() {
    let mut cluster = lost_start();
    let before = cluster.job("a")["spec"].clone();
    cluster.pass(5);
    assert!(cluster.is("b", "Admitted") && !cluster.is("a", "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{:?}", cluster.writes);
    cluster.pass(5);
    let withdrawn = cluster.job("a");
    assert_eq!(withdrawn["spec"], before, "as its user wrote it");
    let annotations = withdrawn["metadata"]["annotations"].as_object();
    assert!(annotations.is_none_or(serde_json::Map::is_empty), "{withdrawn}");
    assert_eq!(cluster.count(Purpose::WithdrawStart), 1);

    // Berth withdraws no start of a job whose write was answered.
    cluster.put(Kind::JOB, job("c", "lq", "1", true));
    let workload = name_of(cluster.workload_of("b").unwrap());
    deactivate(&mut cluster, &workload);
    cluster.pass(5);
    assert!(cluster.is("c", "Admitted"));
    assert_eq!(cluster.count(Purpose::WithdrawStart), 1);
}

#[test]
fn job_start_applied_during_eviction_is_stopped_before_quota_release() {
    let mut cluster = lost_start();
    cluster.settle();
    assert!(cluster.is("a", "Evicted") && cluster.is("a", "QuotaReserved"), "it backs off");
    assert!(matches!(cluster.apply_writes()[..], [TaskOutcome::Written(WriteOutcome::Applied { .. })]));
    cluster.settle();
    assert!(!cluster.is("b", "Admitted") || cluster.job("a")["status"]["active"] == json!(0));
    cluster.pass(10);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    assert!(cluster.is("b", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn job_start_is_withdrawn_despite_failed_or_lost_withdrawal_writes() {
    with_every_fault(lost_start, &[Purpose::WithdrawStart, Purpose::RestoreTemplate], |mut cluster, what| {
        cluster.pass(30);
        assert!(cluster.is("b", "Admitted"), "{what}: {:?}", cluster.writes);
        assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{what}: {:?}", cluster.writes);
    });
    let mut cluster = lost_start();
    cluster.loses.push(Purpose::WithdrawStart);
    cluster.pass(30);
    assert!(cluster.is("b", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(
        cluster.apply_writes(),
        [WriteOutcome::Conflict.into(), WriteOutcome::Conflict.into()],
        "{:?}",
        cluster.writes
    );
}

#[test]
fn new_leader_withdraws_starts_possibly_sent_by_its_predecessor() {
    let mut cluster = one_queue("1");
    cluster.loses.push(Purpose::StartJob);
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let workload = name_of(cluster.workload_of("a").unwrap());
    cluster.restart();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    deactivate(&mut cluster, &workload);
    cluster.pass(5);
    assert!(cluster.is("b", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{:?}", cluster.writes);
    assert_eq!(cluster.job("a")["spec"]["suspend"], json!(true));

    // The next leader observes that every started job runs, and so knows of no start whose result is unknown.
    let writes = cluster.writes.len();
    cluster.restart();
    cluster.pass(60);
    assert!(cluster.writes[writes..].iter().all(|(purpose, _)| *purpose != Purpose::WithdrawStart));
}

#[test]
fn deleted_workload_keeps_quota_until_its_lost_start_is_withdrawn() {
    let mut cluster = one_queue("1");
    cluster.loses.push(Purpose::StartJob);
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let mut high = job("b", "lq", "1", true);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.set_class("high", 10);
    cluster.put(Kind::JOB, high);
    let workload = name_of(cluster.workload_of("a").unwrap());
    cluster.delete(&Cluster::key(Kind::Workload, "team", &workload));
    cluster.pass(10);
    assert!(cluster.is("b", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{:?}", cluster.writes);
}

#[test]
fn pod_with_lost_start_stays_gated_until_admitted_again() {
    let mut cluster = crate::stories::pod_queue("1");
    cluster.loses.push(Purpose::StartJob);
    cluster.put(Kind::Pod, crate::stories::pods::pod("a", "1"));
    cluster.settle();
    let (key, _) = cluster.objects().iter().find(|(key, _)| key.kind == Kind::Workload).expect("its Workload");
    let workload = key.name.clone();
    assert!(cluster.workload_is(&workload, "Admitted"), "{:?}", cluster.writes);
    cluster.put(Kind::Pod, crate::stories::pods::pod("b", "1"));
    deactivate(&mut cluster, &workload);
    cluster.pass(5);
    assert!(!crate::stories::groups::gated(&cluster, "b"), "{:?}", cluster.writes);
    assert_eq!(cluster.apply_writes(), [WriteOutcome::Conflict.into()], "{:?}", cluster.writes);
    assert!(crate::stories::groups::gated(&cluster, "a"));
    // The pod whose start was lost starts like any other pod when its Workload is admitted again.
    cluster.end_pod("b", "Succeeded");
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": true}}));
    cluster.pass(5);
    assert!(!crate::stories::groups::gated(&cluster, "a"), "{:?}", cluster.writes);
}

#[test]
fn evicted_pod_group_keeps_quota_until_no_start_can_apply() {
    for (loses, moment) in [(1, "lost"), (2, "lost twice"), (0, "under way")] {
        let mut cluster = crate::stories::pod_queue("2");
        cluster.loses.extend(vec![Purpose::StartJob; loses]);
        for name in ["a", "b"] {
            cluster.put(Kind::Pod, crate::stories::groups::member(name, "1", 2, &[]));
        }
        let mut under_way = None;
        while loses == 0 && under_way.is_none() {
            let step = cluster.control.step(cluster.now());
            match step.tasks.iter().any(|write| write.purpose == Purpose::StartJob) {
                true => under_way = Some(step),
                false => cluster.take(step),
            }
        }
        if under_way.is_none() {
            cluster.settle();
        }
        assert!(cluster.workload_is("g", "Admitted"), "{moment}: {:?}", cluster.writes);
        deactivate(&mut cluster, "g");
        cluster.put(Kind::Pod, crate::stories::pods::pod("other", "2"));
        cluster.settle();
        if let Some(step) = under_way {
            assert!(cluster.workload_is("g", "QuotaReserved"), "{moment}: {:?}", cluster.writes);
            cluster.take(step);
        }
        cluster.pass(5);
        let outcomes = cluster.apply_writes();
        assert!(outcomes.iter().all(|outcome| *outcome == WriteOutcome::Conflict.into()), "{moment}: {outcomes:?}");
        cluster.pass(5);
        assert!(!cluster.workload_is("g", "QuotaReserved"), "{moment}: {:?}", cluster.writes);
        assert!(!crate::stories::groups::gated(&cluster, "other"), "{moment}: {:?}", cluster.writes);
        let runs = |name: &str| cluster.pod(name).is_some_and(|pod| pod["status"]["phase"] == json!("Running"));
        assert!(!runs("a") && !runs("b"), "{moment}: {:?}", cluster.writes);
    }
}

#[test]
fn quota_of_lost_reservation_stays_charged_until_outcome_is_known() {
    for refusal in [WriteOutcome::NotSent, WriteOutcome::Refused("no".into())] {
        let mut cluster = one_queue("1");
        cluster.settle();
        cluster.loses.push(Purpose::ReserveQuota);
        cluster.faults.push((Purpose::ReserveQuota, refusal.clone(), false));
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.settle();
        let mut high = job("b", "lq", "1", true);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        cluster.set_class("high", 10);
        cluster.put(Kind::JOB, high);
        cluster.pass(1);
        assert!(!cluster.is("b", "QuotaReserved"), "{refusal:?}: {:?}", cluster.writes);
        assert_eq!(cluster.lost.len(), 1, "{refusal:?}");
        let _ = cluster.apply_writes();
        cluster.pass(60);
        let reserved: Vec<&str> = ["a", "b"].into_iter().filter(|name| cluster.is(name, "QuotaReserved")).collect();
        assert_eq!(reserved, ["a"], "{refusal:?}: {:?}", cluster.writes);
    }
}
