//! Workloads whose owner is of a kind that nobody watches, is not there, or goes: they take nobody's quota.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster_queue, job, local_queue, made_before, settings};
use crate::one_queue;

/// A Workload of one cpu that this object controls, of the name `before`.
fn owned_by(api_version: &str, kind: &str, uid: &str) -> Value {
    let mut workload = made_before(&job("any", "lq", "1", true)["spec"]["template"]);
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid, "controller": true});
    workload["metadata"]["ownerReferences"] = json!([owner]);
    workload
}

fn reserved(cluster: &Cluster) -> Value {
    let conditions = &cluster.objects[&Cluster::key(Kind::Workload, "team", "before")]["status"]["conditions"];
    let mut all = conditions.as_array().into_iter().flatten();
    all.find(|one| one["type"] == "QuotaReserved").cloned().unwrap_or_default()
}

/// The next job gets the only cpu, and who comes after it is told why it waits.
fn the_queue_goes_on(cluster: &mut Cluster) {
    for name in ["next", "later"] {
        cluster.put(Kind::Job, job(name, "lq", "1", true));
        cluster.pass(5);
    }
    assert!(cluster.is("next", "Admitted"), "{:?}", cluster.writes);
    let told = cluster.condition("later", "QuotaReserved").map(|one| one["reason"].clone());
    assert_eq!(told, Some(json!("WaitingForQuota")), "{:?}", cluster.writes);
}

#[test]
fn whose_owner_is_not_there_takes_nobodys_quota() {
    for (api_version, kind) in [
        ("batch/v1", "Job"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("v1", "Pod"),
        ("berth.dev/v1alpha1", "TrainingJob"),
    ] {
        let mut cluster = crate::pod_queue("1");
        cluster.put(Kind::Workload, owned_by(api_version, kind, "nobody"));
        cluster.pass(5);
        assert_eq!(cluster.count(Purpose::ReserveQuota), 0, "{kind}");
        the_queue_goes_on(&mut cluster);
    }
}

#[test]
fn whose_owner_is_of_a_kind_that_is_not_managed_is_told_so() {
    let mut settings = settings();
    settings.job_kinds = [Kind::Job].into_iter().collect();
    for (api_version, kind) in [("jobset.x-k8s.io/v1alpha2", "JobSet"), ("v1", "Pod")] {
        let mut cluster = crate::with_queue(Cluster::with(settings.clone()), "1");
        if kind == "JobSet" {
            // JobSets are seen all the same.
            cluster.put(
                Kind::JobSet,
                json!({"metadata": {"namespace": "team", "name": "owner"}, "spec": {"suspend": true}}),
            );
            let uid = cluster.objects[&Cluster::key(Kind::JobSet, "team", "owner")]["metadata"]["uid"].clone();
            cluster.put(Kind::Workload, owned_by(api_version, kind, uid.as_str().unwrap()));
            cluster.pass(5);
            assert_eq!(reserved(&cluster)["reason"], json!("Misconfigured"), "{:?}", cluster.writes);
            the_queue_goes_on(&mut cluster);
            continue;
        }
        cluster.put(Kind::Workload, owned_by(api_version, kind, "unseen"));
        cluster.pass(5);
        let told = reserved(&cluster);
        assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("Misconfigured")), "{kind}");
        let text = format!(
            "its owner, {kind} \"owner\", is of a kind that is not managed: name it in integrations.frameworks"
        );
        assert_eq!(told["message"], json!(text));
        the_queue_goes_on(&mut cluster);
    }
}

#[test]
fn whose_owner_is_of_a_foreign_kind_is_admitted_for_whoever_made_it() {
    for (api_version, kind) in [("batch.volcano.sh/v1alpha1", "Job"), ("kubeflow.org/v1", "MPIJob")] {
        let mut cluster = one_queue("1");
        cluster.put(Kind::Workload, owned_by(api_version, kind, "theirs"));
        cluster.pass(5);
        assert_eq!(reserved(&cluster)["status"], json!("True"), "{api_version}: {:?}", cluster.writes);
    }
}

#[test]
fn a_job_that_is_going_gets_no_quota_any_more() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Job, job("first", "lq", "1", true));
    cluster.settle();
    let mut going = job("going", "lq", "1", true);
    going["metadata"]["finalizers"] = json!(["example.com/never"]);
    cluster.put(Kind::Job, going);
    cluster.pass(5);
    cluster.edit(Kind::Job, "team", "going", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    cluster.complete("first");
    cluster.pass(5);
    assert!(!cluster.is("going", "QuotaReserved"), "{:?}", cluster.writes);
    the_queue_goes_on(&mut cluster);
}

#[test]
fn a_job_that_moves_in_the_step_that_would_admit_it_takes_the_quota_of_its_new_queue() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("there", "other"));
    cluster.put(Kind::Job, job("first", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::Job, job("moves", "lq", "1", true));
    cluster.pass(5);
    // Both are seen before the next decision.
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "2")]));
    let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "there"}}});
    cluster.edit(Kind::Job, "team", "moves", &moved);
    cluster.pass(5);
    let given = &cluster.workload_of("moves").unwrap()["status"]["admission"]["clusterQueue"];
    assert_eq!(given, &json!("other"), "{:?}", cluster.writes);
    the_queue_goes_on(&mut cluster);
}
