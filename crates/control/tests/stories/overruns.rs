//! Usage beyond quota is charged to the queue of its job until the usage ends, and to no other queue. Examples of usage beyond quota are pods that are replaced
//! while they end, pods of a job that another client has started, and Jobs and pods that are not part of an admission.

use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::groups::member;
use crate::stories::jobsets::{part, slices, stopped};
use crate::stories::pods::pod;
use crate::stories::random::{Dice, seeds};
use crate::stories::training::started;
use crate::stories::{one_queue, pod_queue};

/// The totals of reserved and used quota in the status of a ClusterQueue.
pub fn shown(cluster: &Cluster, queue: &str) -> [Value; 2] {
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", queue)]["status"];
    ["flavorsReservation", "flavorsUsage"].map(|list| status[list][0]["resources"][0]["total"].clone())
}

pub fn both(amount: &str) -> [Value; 2] {
    [json!(amount), json!(amount)]
}

/// The Job controller reports how many pods of a Job run and how many end.
pub fn counts(cluster: &mut Cluster, name: &str, active: i32, terminating: i32) {
    cluster.edit(Kind::JOB, "team", name, &json!({"status": {"active": active, "terminating": terminating}}));
    cluster.pass(7);
}

/// A ClusterQueue of the given number of cpus in which a job of two pods runs.
pub fn running(quota: &str) -> Cluster {
    let mut cluster = one_queue(quota);
    let mut two = job("t", "lq", "1", true);
    two["spec"]["parallelism"] = json!(2);
    two["spec"]["completions"] = json!(2);
    cluster.put(Kind::JOB, two);
    cluster.pass(7);
    assert_eq!((cluster.job("t")["status"]["active"].clone(), shown(&cluster, "cq")), (json!(2), both("2")));
    cluster.controller_sleeps = true;
    cluster
}

/// Pods of a job are deleted one by one and end slowly: their replacements are charged while old and new pods exist, and no other workload is admitted in their
/// place.
#[test]
fn replaced_pods_are_charged_until_they_have_ended() {
    for restarts in [false, true] {
        let mut cluster = running("4");
        counts(&mut cluster, "t", 2, 2);
        assert_eq!(shown(&cluster, "cq"), both("4"), "{:?}", cluster.writes);
        if restarts {
            cluster.restart();
        }
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(7);
        assert!(!cluster.is("next", "Admitted"), "restarts {restarts}: {:?}", cluster.writes);
        let found_condition = cluster.condition("next", "QuotaReserved").expect("told");
        assert!(found_condition["message"].as_str().unwrap().contains("1 more needed"), "{found_condition}");
        counts(&mut cluster, "t", 2, 1);
        assert!(cluster.is("next", "Admitted"), "one has ended: {:?}", cluster.writes);
        counts(&mut cluster, "t", 2, 0);
        assert_eq!(shown(&cluster, "cq"), both("3"), "{:?}", cluster.writes);
        assert!(!cluster.is("t", "Evicted") && cluster.job("t")["spec"]["suspend"] == json!(false));
    }
}

/// A drain of nodes replaces all pods of a job at once, and a second drain may follow: After such a drain, Berth does not evict the job as long as the job's
/// pods end in the usual time.
#[test]
fn job_is_not_evicted_while_its_pods_are_replaced() {
    let mut cluster = running("4");
    counts(&mut cluster, "t", 2, 2);
    cluster.pass(600);
    counts(&mut cluster, "t", 2, 4);
    cluster.pass(40);
    counts(&mut cluster, "t", 2, 2);
    cluster.pass(600);
    assert!(!cluster.is("t", "Evicted"), "{:?}", cluster.writes);
}

/// Pods are replaced while earlier pods of the job still end: Berth evicts a job of which pods of more than two generations of replacements run at the same
/// time for long.
#[test]
fn job_with_three_generations_of_pods_is_evicted() {
    for restarts in [false, true] {
        let mut cluster = running("9");
        counts(&mut cluster, "t", 2, 3);
        if restarts {
            cluster.restart();
        }
        cluster.pass(70);
        assert!(
            cluster.is("t", "Evicted") && cluster.job("t")["spec"]["suspend"] == json!(true),
            "{:?}",
            cluster.writes
        );
        let event = cluster.notices.iter().find(|notice| notice.reason == "EvictedDueToPodsBeyondQuota").expect("told");
        assert!(event.message.starts_with("5 pods of the job run or end, and it has quota for 2"), "{}", event.message);
        counts(&mut cluster, "t", 0, 5);
        assert_eq!(shown(&cluster, "cq"), both("5"), "{:?}", cluster.writes);
        assert!(cluster.is("t", "QuotaReserved"), "its pods are there");
        cluster.controller_sleeps = false;
        counts(&mut cluster, "t", 0, 0);
        cluster.pass(120);
        assert!(cluster.is("t", "Admitted") && !cluster.is("t", "Evicted"), "{:?}", cluster.writes);
        assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
    }
}

/// A tenant starts a waiting job again and again: the job's pods are charged to the tenant's own ClusterQueue, and the lending ClusterQueue can use its quota
/// in full.
#[test]
fn unsuspended_waiting_job_is_charged_until_its_pods_are_gone() {
    for (class, restarts) in [(None, false), (None, true), (Some("nobody-knows"), false), (Some("nobody-knows"), true)]
    {
        let mut cluster = one_queue("2");
        cluster.put(Kind::ClusterQueue, cluster_queue("cq", Some("all"), &[("default", "2")]));
        cluster.put(Kind::ClusterQueue, cluster_queue("lends", Some("all"), &[("default", "6")]));
        cluster.put(Kind::LocalQueue, local_queue("lent", "lends"));
        let mut large = job("t", "lq", "100", true);
        // A job with a priority class that does not exist has no Workload.
        large["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        if class.is_none() {
            large["metadata"]["labels"].as_object_mut().unwrap().remove("kueue.x-k8s.io/priority-class");
        }
        cluster.put(Kind::JOB, large);
        cluster.pass(7);
        cluster.controller_sleeps = true;
        let loose = json!({"spec": {"suspend": false}, "status": {"startTime": "2026-11-21T12:00:00Z", "active": 1}});
        cluster.edit(Kind::JOB, "team", "t", &loose);
        cluster.pass(1);
        assert_eq!(cluster.job("t")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
        counts(&mut cluster, "t", 0, 1);
        assert_eq!(shown(&cluster, "cq"), both("100"), "{class:?} {restarts}: {:?}", cluster.writes);
        if restarts {
            cluster.restart();
        }
        cluster.controller_sleeps = false;
        cluster.put(Kind::JOB, job("own", "lq", "1", true));
        cluster.put(Kind::JOB, job("other", "lent", "6", true));
        cluster.pass(7);
        assert!(!cluster.is("own", "Admitted"), "{class:?} {restarts}: {:?}", cluster.writes);
        assert!(cluster.is("other", "Admitted"), "{class:?} {restarts}: {:?}", cluster.writes);
        assert_eq!((shown(&cluster, "cq"), shown(&cluster, "lends")), (both("100"), both("6")));
        counts(&mut cluster, "t", 0, 0);
        assert!(cluster.is("own", "Admitted"), "{class:?} {restarts}: {:?}", cluster.writes);
        assert_eq!(shown(&cluster, "cq"), both("1"), "{class:?} {restarts}: {:?}", cluster.writes);
    }
}

/// A job with pods that run without quota waits until these pods have ended, because they use the quota that the job would get. The job does not move to
/// another flavor because of pods that run without quota.
#[test]
fn job_waits_until_own_pods_end_and_keeps_its_flavor() {
    for restarts in [false, true] {
        let mut cluster = one_queue("2");
        cluster.put(Kind::ResourceFlavor, flavor("spare", json!({})));
        cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", "2"), ("spare", "2")]));
        let hold = |policy: &str| json!({"spec": {"stopPolicy": policy}});
        cluster.edit(Kind::ClusterQueue, "", "cq", &hold("Hold"));
        cluster.put(Kind::JOB, job("t", "lq", "2", true));
        cluster.pass(7);
        cluster.controller_sleeps = true;
        counts(&mut cluster, "t", 0, 1);
        cluster.edit(Kind::ClusterQueue, "", "cq", &hold("None"));
        if restarts {
            cluster.restart();
        }
        cluster.pass(7);
        assert!(!cluster.is("t", "QuotaReserved"), "restarts {restarts}: {:?}", cluster.writes);
        let found_condition = cluster.condition("t", "QuotaReserved").expect("told");
        assert_eq!(
            found_condition["message"],
            json!("waits until the pods have ended that its job runs without quota")
        );
        cluster.controller_sleeps = false;
        counts(&mut cluster, "t", 0, 0);
        assert!(cluster.is("t", "Admitted"), "restarts {restarts}: {:?}", cluster.writes);
        assert_eq!(shown(&cluster, "cq"), both("2"), "of the first flavor: {:?}", cluster.writes);
    }
}

/// A job whose pods ran without quota is deleted: the pods stay charged until they have ended.
#[test]
fn pods_of_deleted_job_are_charged_until_gone() {
    let mut cluster = one_queue("2");
    cluster.put(Kind::JOB, job("t", "lq", "100", true));
    cluster.pass(7);
    cluster.controller_sleeps = true;
    counts(&mut cluster, "t", 0, 1);
    assert_eq!(shown(&cluster, "cq"), both("100"), "{:?}", cluster.writes);
    cluster.keep_pods_of(Kind::JOB, "t");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.put(Kind::JOB, job("own", "lq", "1", true));
    cluster.pass(30);
    assert_eq!(shown(&cluster, "cq"), both("100"), "{:?}", cluster.writes);
    assert!(!cluster.is("own", "Admitted"), "{:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.pass(20);
    assert!(cluster.is("own", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(shown(&cluster, "cq"), both("1"), "{:?}", cluster.writes);
}

/// At first no ClusterQueue can be charged for the job's pods, because its LocalQueue does not exist; later the LocalQueue names another ClusterQueue.
#[test]
fn usage_beyond_quota_follows_local_queue_to_another_cluster_queue() {
    let mut cluster = one_queue("2");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "2")]));
    cluster.put(Kind::JOB, job("t", "late", "1", true));
    cluster.pass(7);
    cluster.controller_sleeps = true;
    counts(&mut cluster, "t", 0, 3);
    assert_eq!((shown(&cluster, "cq"), shown(&cluster, "other")), (both("0"), both("0")));
    cluster.put(Kind::LocalQueue, local_queue("late", "cq"));
    cluster.pass(7);
    assert_eq!((shown(&cluster, "cq"), shown(&cluster, "other")), (both("3"), both("0")), "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::LocalQueue, "team", "late"));
    cluster.put(Kind::LocalQueue, local_queue("late", "other"));
    cluster.pass(7);
    assert_eq!((shown(&cluster, "cq"), shown(&cluster, "other")), (both("0"), both("3")), "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.pass(7);
    assert_eq!((shown(&cluster, "cq"), shown(&cluster, "other")), (both("0"), both("0")), "{:?}", cluster.writes);
}

/// The parallelism of a running job is raised: pods that were made before Berth stopped the job are charged.
#[test]
fn raised_parallelism_is_charged_until_its_pods_are_gone() {
    let mut cluster = running("2");
    cluster.edit(Kind::JOB, "team", "t", &json!({"spec": {"parallelism": 5, "completions": 5}}));
    counts(&mut cluster, "t", 0, 5);
    assert_eq!(cluster.job("t")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    assert_eq!(shown(&cluster, "cq"), both("5"), "{:?}", cluster.writes);
    cluster.controller_sleeps = false;
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.pass(7);
    assert!(!cluster.is("next", "Admitted"), "{:?}", cluster.writes);
    counts(&mut cluster, "t", 0, 0);
    cluster.pass(10);
    assert!(cluster.is("next", "Admitted"), "what it asks for now does not fit: {:?}", cluster.writes);
    assert_eq!(shown(&cluster, "cq"), both("1"), "{:?}", cluster.writes);
}

/// Pods that a job of a lower class runs beyond its quota do not keep a job of a higher class from its quota: Berth evicts the job of the lower class with all
/// its pods.
#[test]
fn preemptor_waits_until_victims_pods_beyond_quota_are_gone() {
    let mut cluster = running("2");
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    counts(&mut cluster, "t", 2, 2);
    cluster.set_class("high", 10);
    let mut urgent = job("urgent", "lq", "2", true);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, urgent);
    cluster.pass(7);
    assert!(cluster.is("t", "Evicted"), "{:?}", cluster.writes);
    counts(&mut cluster, "t", 0, 1);
    assert!(!cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    cluster.controller_sleeps = false;
    counts(&mut cluster, "t", 0, 0);
    cluster.pass(7);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
}

/// The Jobs of a JobSet have more pods than were admitted, or a foreign Job names the JobSet as its controller.
#[test]
fn job_set_pods_beyond_admission_are_charged_until_gone() {
    for restarts in [false, true] {
        let mut cluster = one_queue("6");
        let mut set = slices();
        set["spec"]["suspend"] = json!(true);
        cluster.put(Kind::JOB_SET, set);
        stopped(&mut cluster);
        cluster.pass(5);
        part(&mut cluster, "a-job-0");
        part(&mut cluster, "a-job-1");
        cluster.pass(7);
        assert_eq!(shown(&cluster, "cq"), both("4"), "{:?}", cluster.writes);
        cluster.controller_sleeps = true;
        counts(&mut cluster, "a-job-0", 2, 1);
        assert_eq!(shown(&cluster, "cq"), both("5"), "{:?}", cluster.writes);
        if restarts {
            cluster.restart();
        }
        counts(&mut cluster, "a-job-1", 1, 2);
        assert_eq!(shown(&cluster, "cq"), both("6"), "{restarts}: {:?}", cluster.writes);
        counts(&mut cluster, "a-job-0", 1, 0);
        assert_eq!(shown(&cluster, "cq"), both("4"), "{restarts}: {:?}", cluster.writes);
        counts(&mut cluster, "a-job-1", 1, 0);
        assert_eq!(shown(&cluster, "cq"), both("4"), "{restarts}: it holds what it was given: {:?}", cluster.writes);
    }
}

/// A Job of a TrainingJob has more pods than were admitted for its role.
#[test]
fn training_job_pods_beyond_admission_are_charged_until_gone() {
    let mut cluster = started("4", json!({}));
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
    cluster.controller_sleeps = true;
    counts(&mut cluster, "a-worker", 2, 1);
    assert_eq!(shown(&cluster, "cq"), both("3"), "{:?}", cluster.writes);
    counts(&mut cluster, "a-worker", 2, 0);
    assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
}

/// Pods that lose their gates without quota are stopped, and their requests are charged until they have ended.
#[test]
fn pods_ungated_without_quota_are_charged_until_they_end() {
    let mut cluster = pod_queue("4");
    cluster.put(Kind::Pod, pod("alone", "7"));
    cluster.put(Kind::Pod, member("a", "1", 2, &[("role-hash", "x")]));
    cluster.put(Kind::Pod, member("b", "1", 2, &[("role-hash", "x")]));
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
    cluster.controller_sleeps = true;
    let keep = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/managed", "example.com/keep"]},
        "spec": {"schedulingGates": [], "nodeName": "node"}, "status": {"phase": "Running"}});
    // The pod `c` exceeds the number of pods for which its group was admitted.
    cluster.put(Kind::Pod, member("c", "3", 2, &[("role-hash", "x")]));
    cluster.edit(Kind::Pod, "team", "c", &keep);
    cluster.pass(7);
    assert!(cluster.pod("c").unwrap()["metadata"]["deletionTimestamp"].is_string(), "{:?}", cluster.writes);
    assert_eq!(shown(&cluster, "cq"), both("5"), "{:?}", cluster.writes);
    cluster.edit(Kind::Pod, "team", "alone", &keep);
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("12"), "{:?}", cluster.writes);
    cluster.restart();
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("12"), "{:?}", cluster.writes);
    for name in ["alone", "c"] {
        cluster.end_pod(name, "Failed");
    }
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
}

/// A pod that runs beyond quota and moves to another pod group is charged once, and not for both groups.
#[test]
fn pod_beyond_quota_that_changes_group_is_charged_once() {
    let mut cluster = pod_queue("4");
    for name in ["a", "b"] {
        cluster.put(Kind::Pod, member(name, "1", 2, &[("role-hash", "x")]));
    }
    cluster.pass(7);
    cluster.controller_sleeps = true;
    cluster.put(Kind::Pod, member("c", "3", 2, &[("role-hash", "x")]));
    let runs = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/managed", "example.com/keep"]},
        "spec": {"schedulingGates": [], "nodeName": "node"}, "status": {"phase": "Running"}});
    cluster.edit(Kind::Pod, "team", "c", &runs);
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("5"), "{:?}", cluster.writes);
    let joins = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "h"}}});
    cluster.edit(Kind::Pod, "team", "c", &joins);
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("5"), "{:?}", cluster.writes);
    cluster.end_pod("c", "Failed");
    cluster.pass(7);
    assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
}

/// A tenant has made a LocalQueue for a ClusterQueue that does not select the namespace, and resumes a job of that LocalQueue: the ClusterQueue is not charged
/// until it selects the namespace.
#[test]
fn cluster_queue_that_excludes_the_namespace_is_not_charged() {
    let mut cluster = one_queue("2");
    let mut theirs = cluster_queue("theirs", None, &[("default", "2")]);
    theirs["spec"]["namespaceSelector"] = json!({"matchLabels": {"team": "theirs"}});
    cluster.put(Kind::ClusterQueue, theirs);
    cluster.put(Kind::LocalQueue, local_queue("foreign", "theirs"));
    cluster.put(Kind::JOB, job("t", "foreign", "1", true));
    cluster.pass(7);
    cluster.controller_sleeps = true;
    counts(&mut cluster, "t", 0, 3);
    assert_eq!(shown(&cluster, "theirs"), both("0"), "{:?}", cluster.writes);
    cluster.label_namespace(&json!({"team": "theirs"}));
    cluster.pass(7);
    assert_eq!(shown(&cluster, "theirs"), both("3"), "{:?}", cluster.writes);
}

/// A Job that names a JobSet without a queue as its controller, and that is no part of the JobSet, is charged like any other Job.
#[test]
fn foreign_job_claiming_queueless_job_set_is_charged_to_queue() {
    let mut cluster = one_queue("2");
    let mut set = slices();
    set["metadata"].as_object_mut().unwrap().remove("annotations");
    cluster.put(Kind::JOB_SET, set);
    let mut hides = job("t", "lq", "100", true);
    hides["metadata"]["ownerReferences"] = cluster.controlled_by(Kind::JOB_SET, "a");
    cluster.put(Kind::JOB, hides);
    cluster.pass(7);
    cluster.controller_sleeps = true;
    counts(&mut cluster, "t", 0, 1);
    assert_eq!(shown(&cluster, "cq"), both("100"), "{:?}", cluster.writes);
    counts(&mut cluster, "t", 0, 0);
    assert_eq!(shown(&cluster, "cq"), both("0"), "{:?}", cluster.writes);
}

/// Cpus that Workloads hold, plus cpus of pods that run beyond the held quota, counted from the objects of the cluster.
fn counted(cluster: &Cluster) -> i64 {
    let all = cluster.objects().iter();
    let mut held = std::collections::BTreeMap::new();
    for (_, workload) in all.clone().filter(|(key, _)| key.kind == Kind::Workload) {
        let is = |kind: &str| {
            let mut conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == kind && one["status"] == "True")
        };
        if is("QuotaReserved") && !is("Finished") {
            let pods = workload["status"]["admission"]["podSetAssignments"][0]["count"].as_i64().unwrap();
            held.insert(workload["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default(), pods);
        }
    }
    let mut sum: i64 = held.values().sum();
    for (_, job) in all.filter(|(key, _)| key.kind == Kind::JOB) {
        let pods = |field: &str| job["status"][field].as_i64().unwrap_or(0);
        let held = held.get(job["metadata"]["uid"].as_str().unwrap()).copied().unwrap_or(0);
        sum += (pods("active") + pods("terminating") - held).max(0);
    }
    sum
}

/// A queue is charged the quota of its Workloads, and the usage of their jobs beyond this quota, whatever the Job controller reports, and whichever replica
/// leads.
#[test]
fn cluster_queue_is_charged_reservations_plus_usage_beyond_them() {
    let mut beyond = 0;
    for seed in seeds(40) {
        let mut dice = Dice::new(seed);
        let mut cluster = one_queue("6");
        cluster.controller_sleeps = true;
        for event in 0..20 {
            let name = ["a", "b", "c", "d"][dice.below(4)];
            let there = cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", name));
            match dice.below(8) {
                0 => cluster.restart(),
                1 => cluster.controller_sleeps = !cluster.controller_sleeps,
                2 if there => cluster.delete(&Cluster::key(Kind::JOB, "team", name)),
                3 if there => {
                    let suspend = dice.below(2) == 0;
                    cluster.edit(Kind::JOB, "team", name, &json!({"spec": {"suspend": suspend}}));
                }
                _ if there => {
                    let [active, terminating] = [0, 1].map(|_| dice.below(4));
                    let status = json!({"status": {"active": active, "terminating": terminating}});
                    cluster.edit(Kind::JOB, "team", name, &status);
                }
                _ => {
                    let mut made = job(name, "lq", "1", true);
                    made["spec"]["parallelism"] = json!(1 + dice.below(3));
                    made["spec"]["completions"] = json!(null);
                    cluster.put(Kind::JOB, made);
                }
            }
            cluster.pass(dice.seconds(7, 20));
            // The cpus that the engine charges follow the objects of the cluster within five seconds.
            let reported = cluster.control.world().figures("cq").unwrap().reservation[0].total;
            let (wanted, found) = (counted(&cluster), reported.get() / 1000);
            assert_eq!(found, wanted, "seed {seed}, event {event}: {:?}", cluster.objects().values());
            beyond += usize::from(found > 6);
            assert_eq!(
                berth_engine::check(cluster.control.world()),
                Vec::<String>::new(),
                "seed {seed}, event {event}"
            );
        }
    }
    assert!(beyond > 20, "too tame: {beyond}");
}

#[test]
fn shrinking_job_with_late_pod_counts_is_not_evicted() {
    let mut cluster = crate::stories::elastic::started();
    // The pods beyond the Job's parallelism end at once, and the Job's status shows the lower number of pods later.
    cluster.controller_sleeps = true;
    cluster.put(Kind::JOB, crate::stories::elastic::other("urgent", "4", 100));
    cluster.pass(5);
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 4), "{:?}", cluster.writes);
    assert!(!cluster.is("urgent", "Admitted"), "the status counts four pods: {:?}", cluster.writes);

    counts(&mut cluster, "a-worker", 2, 1);
    cluster.pass(5);
    assert!(!cluster.is("urgent", "Admitted"), "one pod ends: {:?}", cluster.writes);

    counts(&mut cluster, "a-worker", 2, 0);
    cluster.pass(5);
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2), "{:?}", cluster.writes);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
}
