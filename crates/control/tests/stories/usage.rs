//! Admission fair sharing: a job of the LocalQueue with the lower recent usage is admitted first, and the LocalQueue's status records the usage.

use berth_control::write::{Kind, Purpose, Term};
use berth_engine::AdmissionFairSharing;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue, settings};

/// A ClusterQueue of 2 cpus for the LocalQueues `calm` and `busy`; `busy` has used 4 cpus so far.
fn two_tenants() -> Cluster {
    let mut settings = settings();
    settings.engine.admission_fair_sharing =
        Some(AdmissionFairSharing { half_life: 60_000, sampling_interval: 10_000, weights: Default::default() });
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut queue = cluster_queue("cq", None, &[("default", "2")]);
    queue["spec"]["admissionScope"] = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("calm", "cq"));
    let mut busy = local_queue("busy", "cq");
    busy["status"] = used("4", "2026-11-21T12:00:00Z");
    cluster.put(Kind::LocalQueue, busy);
    cluster
}

fn used(cpu: &str, at: &str) -> Value {
    let status = json!({"consumedResources": {"cpu": cpu}, "lastUpdate": at});
    json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": status}})
}

fn shown(cluster: &Cluster, queue: &str) -> Value {
    cluster.objects()[&Cluster::key(Kind::LocalQueue, "team", queue)]["status"]["fairSharing"].clone()
}

#[test]
fn local_queue_with_less_usage_goes_first_and_shows_usage() {
    let mut cluster = two_tenants();
    cluster.put(Kind::JOB, job("first", "busy", "2", true));
    cluster.put(Kind::JOB, job("second", "calm", "2", true));
    cluster.settle();
    assert!(cluster.is("second", "Admitted") && !cluster.is("first", "QuotaReserved"));
    // After one half-life, the 4 cpus of `busy` count half. For `calm`, half of the 2 cpus that its job holds count as used, and half of the usage that was
    // added at the admission.
    cluster.pass(61);
    assert_eq!(shown(&cluster, "busy"), used("2", "2026-11-21T12:01:00Z")["fairSharing"]);
    assert_eq!(shown(&cluster, "calm"), used("1109m", "2026-11-21T12:01:00Z")["fairSharing"]);
    let gauges = cluster.control.figures().gauges;
    let usage = gauges.iter().filter(|gauge| gauge.name == "kueue_local_queue_admission_fair_sharing_usage");
    let mut usage: Vec<f64> = usage.map(|gauge| gauge.value).collect();
    usage.sort_by(f64::total_cmp);
    assert!((usage[0] - 1.109).abs() < 0.001 && (usage[1] - 2.0).abs() < 0.001, "{usage:?}");
}

#[test]
fn status_writes_stop_when_decayed_usage_is_negligible() {
    let mut cluster = two_tenants();
    // The usage in thousandths of a cpu is halved again and again until it is nearly zero.
    cluster.pass(1_200);
    let writes = cluster.count(Purpose::QueueStatus);
    cluster.pass(1_200);
    assert_eq!(cluster.count(Purpose::QueueStatus), writes);
    let busy = shown(&cluster, "busy");
    assert_eq!(busy["admissionFairSharingStatus"]["consumedResources"], json!({"cpu": "488281n"}));
    assert_eq!(shown(&cluster, "calm"), Value::Null);
}

#[test]
fn new_leader_takes_fair_sharing_usage_from_status() {
    let mut cluster = two_tenants();
    cluster.control.lead(None);
    // Another leader has written the usage of both LocalQueues to their statuses in the meantime.
    cluster.edit(Kind::LocalQueue, "team", "busy", &json!({"status": used("1", "2026-11-21T12:00:00Z")}));
    cluster.edit(Kind::LocalQueue, "team", "calm", &json!({"status": used("3", "2026-11-21T12:00:00Z")}));
    cluster.control.lead(Some(Term(2)));
    cluster.put(Kind::JOB, job("first", "calm", "2", true));
    cluster.put(Kind::JOB, job("second", "busy", "2", true));
    cluster.settle();
    assert!(cluster.is("second", "Admitted") && !cluster.is("first", "QuotaReserved"));
}

#[test]
fn cluster_queue_without_admission_scope_keeps_creation_order() {
    let mut cluster = two_tenants();
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "2")]));
    cluster.put(Kind::JOB, job("first", "busy", "2", true));
    cluster.put(Kind::JOB, job("second", "calm", "2", true));
    cluster.settle();
    assert!(cluster.is("first", "Admitted") && !cluster.is("second", "QuotaReserved"));
}

/// With a half-life of a month, the usage of a job of some seconds is some millionths of a cpu.
#[test]
fn small_fair_sharing_usage_survives_restart() {
    let mut settings = settings();
    let (half_life, sampling_interval) = (720 * 3_600_000, 2_000);
    settings.engine.admission_fair_sharing =
        Some(AdmissionFairSharing { half_life, sampling_interval, weights: Default::default() });
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut queue = cluster_queue("cq", None, &[("default", "1")]);
    queue["spec"]["admissionScope"] = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
    cluster.put(Kind::ClusterQueue, queue.clone());
    for name in ["calm", "busy"] {
        cluster.put(Kind::LocalQueue, local_queue(name, "cq"));
    }
    cluster.put(Kind::JOB, job("short", "busy", "1", true));
    cluster.pass(10);
    cluster.complete("short");
    cluster.pass(10);
    let used = shown(&cluster, "busy")["admissionFairSharingStatus"]["consumedResources"]["cpu"].clone();
    assert!(used.as_str().is_some_and(|text| text.ends_with('n')), "{used}");
    let gauge = |cluster: &Cluster| {
        let gauges = cluster.control.figures().gauges;
        let usage = |name: &str| name == "kueue_local_queue_admission_fair_sharing_usage";
        gauges.iter().filter(|gauge| usage(gauge.name)).map(|gauge| gauge.value).fold(0.0, f64::max)
    };
    let before = gauge(&cluster);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.restart();
    cluster.pass(3);
    let after = gauge(&cluster);
    assert!(before > 0.0 && (after - before).abs() < before / 100.0, "{before} {after}");
    // The LocalQueue `busy` has the higher usage, so that its job is admitted second although the job is older.
    cluster.put(Kind::JOB, job("again", "busy", "1", true));
    cluster.pass(3);
    cluster.put(Kind::JOB, job("other", "calm", "1", true));
    cluster.pass(3);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(5);
    assert!(cluster.is("other", "Admitted") && !cluster.is("again", "QuotaReserved"), "{:?}", cluster.writes);
}
