//! Columns of `kubectl get` for which Kueue has no field: control writes the columns' texts together with other writes, and makes no write for the texts alone.

use berth_control::write::{Action, Kind, Purpose, Write};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, made_before};
use crate::stories::elastic;
use crate::stories::groups::{member, set, set_workload};
use crate::stories::tiers::tiered_cluster;
use crate::stories::training;
use crate::stories::{one_queue, pod_queue};

/// The value of a Workload's annotation `berth.dev/size`, from which `kubectl get` shows the number of its pods and the sum of their requests.
fn size(workload: &Value) -> &str {
    workload["metadata"]["annotations"]["berth.dev/size"].as_str().unwrap_or_default()
}

fn used(cluster: &Cluster) -> Value {
    cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["berthUsed"].clone()
}

/// A Workload of every job kind has from its creation an annotation with the number of its pods and with the sum of their requests.
#[test]
fn workload_of_every_job_kind_is_created_with_its_size() {
    let mut cluster = pod_queue("1");
    let mut of_three = job("a", "lq", "1500m", true);
    of_three["spec"]["parallelism"] = json!(3);
    of_three["spec"]["completions"] = json!(3);
    cluster.put(Kind::JOB, of_three);
    cluster.put(Kind::TrainingJob, training::training("t", json!({})));
    cluster.put(Kind::Pod, member("lead", "2", 2, &[]));
    cluster.put(Kind::Pod, member("work", "1", 2, &[]));
    cluster.settle();
    assert_eq!(size(cluster.workload_of("a").unwrap()), "3 pods, cpu 4500m");
    assert_eq!(size(&cluster.workload_of_training("t").unwrap()), "2 pods, cpu 2");
    let group = &cluster.objects()[&Cluster::key(Kind::Workload, "team", "g")];
    assert_eq!(size(group), "2 pods, cpu 3");
    assert_eq!(group["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], "true", "beside the others");
    let creations = cluster.count(Purpose::CreateWorkload);
    assert_eq!((creations, cluster.count(Purpose::UpdateWorkload)), (3, 0), "it costs no write of its own");
}

/// If a job's pods change while the job's Workload waits, one write sets the Workload's pod sets and its size annotation.
#[test]
fn size_annotation_changes_with_pod_sets_in_one_write() {
    let mut cluster = pod_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "2", true));
    cluster.pass(5);
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"parallelism": 2, "completions": 2}}));
    cluster.pass(5);
    assert_eq!(size(cluster.workload_of("a").unwrap()), "2 pods, cpu 4");
    assert_eq!(cluster.count(Purpose::UpdateWorkload), 1, "{:?}", cluster.writes);

    let mut cluster = pod_queue("1");
    cluster.put(Kind::StatefulSet, set(2));
    cluster.pass(5);
    assert_eq!(size(set_workload(&cluster)), "2 pods, cpu 2");
    cluster.edit(Kind::StatefulSet, "team", "web", &json!({"spec": {"replicas": 3}}));
    cluster.pass(5);
    assert_eq!(size(set_workload(&cluster)), "3 pods, cpu 3");
    assert_eq!(cluster.count(Purpose::UpdateWorkload), 1, "{:?}", cluster.writes);

    let mut cluster = training::cluster("1");
    cluster.put(Kind::TrainingJob, training::training("a", json!({})));
    cluster.pass(5);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"resources": {"maxReplicas": 3}}}));
    cluster.pass(5);
    assert_eq!(size(&cluster.workload_of_training("a").unwrap()), "3 pods, cpu 3");
    assert_eq!(cluster.count(Purpose::UpdateWorkload), 1, "{:?}", cluster.writes);
}

/// The size annotation of an elastic TrainingJob gets smaller when the job gives up workers and their quota.
#[test]
fn size_annotation_shrinks_with_workers_of_elastic_job() {
    let mut cluster = elastic::started();
    assert_eq!(size(&cluster.workload_of_training("a").unwrap()), "4 pods, cpu 4");
    cluster.put(Kind::JOB, elastic::other("urgent", "4", 100));
    cluster.pass(5);
    assert_eq!(cluster.workers("a"), 2, "{:?}", cluster.writes);
    assert_eq!(size(&cluster.workload_of_training("a").unwrap()), "2 pods, cpu 2");
}

/// A prebuilt Workload gets its size annotation when a job adopts the Workload.
#[test]
fn prebuilt_workload_gets_its_size_annotation_when_job_adopts_it() {
    let mut cluster = one_queue("0");
    let mut guest = job("guest", "lq", "3", true);
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    cluster.put(Kind::Workload, made_before(&guest["spec"]["template"]));
    cluster.settle();
    let workload = |cluster: &Cluster| cluster.objects()[&Cluster::key(Kind::Workload, "team", "before")].clone();
    assert_eq!(size(&workload(&cluster)), "");
    cluster.put(Kind::JOB, guest);
    cluster.pass(5);
    assert_eq!(size(&workload(&cluster)), "1 pod, cpu 3");
    assert_eq!(cluster.count(Purpose::AdoptWorkload), 1);
}

/// The condition with the capacity tier of a Workload is written together with the quota reservation, and is removed with the reservation.
#[test]
fn capacity_tier_condition_comes_and_goes_with_quota_reservation() {
    let mut cluster = tiered_cluster("1");
    cluster.put(Kind::JOB, crate::stories::tiers::accepting("a", "on-demand"));
    cluster.put(Kind::JOB, crate::stories::tiers::accepting("b", "spot"));
    cluster.settle();
    let tier =
        |cluster: &Cluster, job| cluster.condition(job, "CapacityTier").map(|reported| reported["message"].clone());
    assert_eq!(tier(&cluster, "a"), Some(json!("on-demand")));
    assert_eq!(cluster.count(Purpose::ReserveQuota), 2, "{:?}", cluster.writes);
    let name = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(10);
    assert_eq!((cluster.is("a", "QuotaReserved"), tier(&cluster, "a")), (false, None));
    cluster.complete("b");
    cluster.pass(10);
    assert!(cluster.is("b", "Finished"));
    assert_eq!(tier(&cluster, "b"), Some(json!("spot")), "where it ran stays readable");

    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    assert!(cluster.is("a", "Admitted"));
    assert_eq!(cluster.condition("a", "CapacityTier"), None, "its flavor has no tier");
}

/// The column with a ClusterQueue's used quota is written together with the other figures of the status, and without a precondition. Control makes no write for
/// the column of used quota alone, even if the API server does not store the column.
#[test]
fn used_quota_column_is_written_only_with_other_queue_status() {
    let mut cluster = one_queue("4");
    cluster.pass(30);
    assert_eq!(used(&cluster), "cpu 0/4");
    cluster.loses = vec![Purpose::QueueStatus, Purpose::QueueStatus];
    cluster.put(Kind::JOB, job("a", "lq", "1500m", true));
    cluster.pass(6);
    let written = cluster.lost.iter().find(|write| write.key.kind == Kind::ClusterQueue).expect("its figures");
    let Action::Write(Write::Merge { body, .. }) = &written.action else { panic!("{written:?}") };
    let body = body.value().unwrap();
    assert!(body["metadata"]["resourceVersion"].is_null(), "others may have written meanwhile: {body}");
    assert!(body["status"].get("conditions").is_none(), "and may have conditions of theirs: {body}");
    cluster.loses.clear();
    cluster.pass(60);
    assert_eq!(used(&cluster), "cpu 1500m/4");
    cluster.edit(
        Kind::ClusterQueue,
        "",
        "cq",
        &json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"],
        "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "8"}]}]}]}}),
    );
    cluster.pass(30);
    assert_eq!(used(&cluster), "cpu 1500m/8", "another quota is another generation, which is told anyway");
    let before = cluster.count(Purpose::QueueStatus);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"status": {"berthUsed": null}}));
    cluster.pass(60);
    assert_eq!(cluster.count(Purpose::QueueStatus), before, "Kueue's definition does not have it");
    cluster.complete("a");
    cluster.pass(30);
    assert_eq!(used(&cluster), "cpu 0/8");
}

/// The status of a TrainingJob has the number of accelerators that all its pods request, even while the job waits. Control writes no status of a TrainingJob
/// for the number of accelerators alone.
#[test]
fn training_job_status_counts_accelerators_of_all_its_pods() {
    let mut cluster = training::cluster("0");
    cluster.put(Kind::TrainingJob, training::training("a", json!({"resources": {"replicaResources": {"gpu": 8}}})));
    cluster.pass(30);
    assert_eq!(cluster.phase("a"), "Queued");
    assert_eq!(cluster.training("a")["status"]["accelerators"], 16);
    let before = cluster.count(Purpose::TrainingStatus);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"status": {"accelerators": null}}));
    cluster.pass(30);
    assert_eq!(cluster.count(Purpose::TrainingStatus), before);
}
