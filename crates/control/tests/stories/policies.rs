//! QueuePolicies: the queues that a policy governs, and the jobs that a policy does not admit.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::tiers::{flavor_of, tiered_cluster};

pub fn policy(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": name}, "spec": spec})
}

fn status<'a>(cluster: &'a Cluster, name: &str) -> &'a Value {
    &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", name)]["status"]
}

pub fn with_tiers(more: Value) -> Value {
    let mut tiers = json!({"default": ["reserved", "on-demand"], "patience": {"reserved": "1m"}});
    for (key, value) in more.as_object().unwrap() {
        tiers[key] = value.clone();
    }
    policy("p", json!({"clusterQueues": ["cq"], "capacityTiers": tiers}))
}

#[test]
fn job_without_own_tiers_falls_back_through_policy_tiers() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"backoff": {"initial": "10m"}})));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(59);
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"));
    cluster.pass(10);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    cluster.pass(6);
    let shown = status(&cluster, "p");
    assert_eq!(shown["clusterQueues"], json!(["cq"]));
    assert_eq!(shown["conditions"][0]["status"], json!("True"), "{shown}");
    let jobs = |tier: &str, count: i64| json!({"tier": tier, "admittedWorkloads": count});
    assert_eq!(shown["tiers"], json!([jobs("reserved", 0), jobs("on-demand", 1), jobs("spot", 0)]));
    let backoff = &shown["backoffs"][0];
    assert_eq!((&backoff["flavor"], &backoff["failures"]), (&json!("reserved"), &json!(1)));
    assert_eq!(backoff["requests"], json!({"cpu": "1"}));
    // After the deletion of the policy, the order of the ClusterQueue itself applies again.
    cluster.delete(&Cluster::key(Kind::QueuePolicy, "", "p"));
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("spot"));
}

#[test]
fn stock_out_shown_in_policy_status_survives_restart() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, with_tiers(json!({})));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(80);
    assert!(status(&cluster, "p")["backoffs"][0]["until"].is_string(), "{}", status(&cluster, "p"));
    cluster.restart();
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"));
}

#[test]
fn tier_patience_starts_anew_after_restart() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, with_tiers(json!({})));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(3600);
    cluster.without_nodes = vec!["reserved"];
    cluster.pass(30);
    cluster.restart();
    cluster.pass(50);
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"), "nobody knows since when its pods are missing");
    cluster.pass(20);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
}

#[test]
fn job_beyond_policy_admission_limit_waits_with_limit_in_message() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("f", json!({})));
    let mut queue = cluster_queue("cq", None, &[("f", "9")]);
    queue["spec"]["resourceGroups"][0]["coveredResources"] = json!(["cpu", "nvidia.com/gpu"]);
    let gpus = json!({"name": "nvidia.com/gpu", "nominalQuota": 99});
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array_mut().unwrap().push(gpus);
    queue["metadata"]["labels"] = json!({"team": "a"});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    let limits = json!({"maxJobs": 1, "maxGPUsPerJob": 8, "priorityRange": {"min": -5, "max": 100}});
    let selector = json!({"matchLabels": {"team": "a"}});
    cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueueSelector": selector, "admission": limits})));
    let with = |name: &str, gpus: &str, class: Option<&str>| {
        let mut job = job(name, "lq", "1", true);
        job["spec"]["parallelism"] = json!(3);
        job["spec"]["completions"] = json!(3);
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = json!(gpus);
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus);
        if let Some(class) = class {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        }
        job
    };
    for (name, value) in [("high", 101), ("low", -6)] {
        cluster.set_class(name, value);
    }
    for (name, gpus, class, expected) in [
        ("big", "3", None, "QueuePolicy p: spec.admission.maxGPUsPerJob is 8, and the workload asks for 9"),
        (
            "high",
            "1",
            Some("high"),
            "QueuePolicy p: spec.admission.priorityRange.max is 100, and the workload's priority is 101",
        ),
        (
            "low",
            "1",
            Some("low"),
            "QueuePolicy p: spec.admission.priorityRange.min is -5, and the workload's priority is -6",
        ),
    ] {
        cluster.put(Kind::JOB, with(name, gpus, class));
        cluster.settle();
        let found_condition = cluster.condition(name, "QuotaReserved").unwrap();
        assert_eq!(
            (&found_condition["reason"], &found_condition["message"]),
            (&json!("AdmissionLimit"), &json!(expected))
        );
    }
    cluster.put(Kind::JOB, with("one", "2", None));
    cluster.settle();
    cluster.put(Kind::JOB, with("two", "2", None));
    cluster.settle();
    assert!(cluster.is("one", "Admitted"));
    let found_condition = cluster.condition("two", "QuotaReserved").unwrap();
    assert_eq!(
        found_condition["message"],
        json!("QueuePolicy p: spec.admission.maxJobs is 1, and 1 workloads hold quota of the ClusterQueue")
    );
    cluster.complete("one");
    cluster.settle();
    assert!(cluster.is("two", "Admitted"));
    // If a limit is raised, the job that exceeded the old limit is admitted.
    cluster.edit(Kind::QueuePolicy, "", "p", &json!({"spec": {"admission": {"maxGPUsPerJob": 9, "maxJobs": 5}}}));
    cluster.settle();
    assert!(cluster.is("big", "Admitted"), "{}", cluster.workload_of("big").unwrap());
}

/// Two policies of one queue: each field that one policy sets applies, and the status of the younger policy names its fields that are overruled by the older
/// policy.
#[test]
fn cluster_queue_with_two_policies_follows_both_and_reports_conflict() {
    let mut cluster = tiered_cluster("4");
    let mut older = with_tiers(json!({}));
    older["spec"]["admission"] = json!({"maxJobs": 1});
    cluster.put(Kind::QueuePolicy, older);
    cluster.pass(6);
    let younger = json!({"clusterQueueSelector": {}, "admission": {"maxJobs": 3, "priorityRange": {"min": 5}},
        "capacityTiers": {"default": ["spot"]}});
    cluster.put(Kind::QueuePolicy, policy("b", younger));
    cluster.set_class("high", 10);
    let of_class = |name: &str| {
        let mut job = job(name, "lq", "1", true);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        job
    };
    cluster.put(Kind::JOB, job("low", "lq", "1", true));
    for name in ["a", "c"] {
        cluster.put(Kind::JOB, of_class(name));
    }
    cluster.pass(6);
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"), "the tiers of the older one");
    let waits = |job: &str| cluster.condition(job, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(waits("low").starts_with("QueuePolicy b: spec.admission.priorityRange.min is 5"), "{}", waits("low"));
    assert!(waits("c").contains("QueuePolicy p: spec.admission.maxJobs"), "{}", waits("c"));
    let active = |cluster: &Cluster, name: &str| status(cluster, name)["conditions"][0].clone();
    assert_eq!(
        (&active(&cluster, "p")["status"], &active(&cluster, "p")["reason"]),
        (&json!("True"), &json!("Active"))
    );
    let reported = active(&cluster, "b");
    assert_eq!((&reported["status"], &reported["reason"]), (&json!("False"), &json!("Conflict")));
    let expected = "ClusterQueue cq: spec.admission.maxJobs is 3 here and 1 in QueuePolicy p: the stricter value counts; \
                    ClusterQueue cq: spec.capacityTiers gives way to that of QueuePolicy p, which is older";
    assert_eq!(reported["message"], json!(expected));
    for name in ["p", "b"] {
        assert_eq!(status(&cluster, name)["clusterQueues"], json!(["cq"]), "{name}");
    }
    // After the deletion of the older policy, the fields of the older policy no longer apply.
    cluster.delete(&Cluster::key(Kind::QueuePolicy, "", "p"));
    cluster.pass(6);
    assert_eq!(active(&cluster, "b")["status"], json!("True"));
    assert_eq!(flavor_of(&cluster, "c"), json!("spot"));
    // A policy that is created again is the younger policy.
    cluster.put(Kind::QueuePolicy, with_tiers(json!({})));
    cluster.pass(6);
    assert_eq!(
        (&active(&cluster, "b")["status"], &active(&cluster, "p")["reason"]),
        (&json!("True"), &json!("Conflict"))
    );
}

#[test]
fn policy_status_names_missing_cluster_queue_and_invalid_selector() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueues": ["cq", "gone"]})));
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
    cluster.put(Kind::QueuePolicy, policy("q", json!({"clusterQueueSelector": selector})));
    cluster.pass(6);
    let active = |name: &str| status(&cluster, name)["conditions"][0].clone();
    for (name, reason, words) in [
        ("p", "ClusterQueueNotFound", "spec.clusterQueues names gone, which do not exist"),
        ("q", "InvalidSelector", "spec.clusterQueueSelector.matchExpressions[0].operator: Invalid value: \"Like\""),
    ] {
        let reported = active(name);
        assert_eq!(
            (&reported["type"], &reported["status"], &reported["reason"]),
            (&json!("Active"), &json!("False"), &json!(reason))
        );
        assert!(reported["message"].as_str().unwrap().starts_with(words), "{reported}");
    }
}

/// How often a job's Workload was evicted for a reason.
pub fn evictions(cluster: &Cluster, job: &str, reason: &str) -> i64 {
    let stats = &cluster.workload_of(job).unwrap()["status"]["schedulingStats"]["evictions"];
    let found = stats.as_array().into_iter().flatten().find(|entry| entry["reason"] == json!(reason));
    found.map_or(0, |entry| entry["count"].as_i64().unwrap())
}

#[test]
fn running_job_moves_back_to_better_tier_after_saving_checkpoint() {
    let mut cluster = tiered_cluster("1");
    let promotion = json!({"minStay": "10m", "hysteresis": "1m"});
    let mut policy = with_tiers(json!({"climbBack": promotion}));
    // Berth requests no further checkpoint within the grace period, because the job has just saved the checkpoint for which its move back to the better tier
    // waits.
    policy["spec"]["preemption"] = json!({"gracePeriod": "1m"});
    cluster.put(Kind::QueuePolicy, policy);
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, job("second", "lq", "1", true));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "second"), json!("on-demand"));
    let save = |cluster: &mut Cluster| {
        let saved = json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": cluster.now().to_string()}}});
        cluster.edit(Kind::JOB, "team", "second", &saved);
    };
    cluster.pass(690);
    save(&mut cluster);
    cluster.pass(10);
    cluster.complete("first");
    cluster.pass(300);
    assert_eq!(flavor_of(&cluster, "second"), json!("on-demand"), "it has saved nothing since the reservation is free");
    save(&mut cluster);
    cluster.pass(6);
    assert_eq!(flavor_of(&cluster, "second"), json!("reserved"));
    let found_condition = cluster.condition("second", "Evicted").unwrap();
    let text = "Previously: goes back up from on-demand to reserved capacity, which has been free for ";
    assert!(found_condition["message"].as_str().unwrap().starts_with(text), "{found_condition}");
    assert_eq!(evictions(&cluster, "second", "ClimbedBack"), 1);
    cluster.pass(7200);
    assert_eq!(evictions(&cluster, "second", "ClimbedBack"), 1, "there is nothing better");
}

#[test]
fn tier_moves_of_jobs_are_bounded_without_nodes_of_tiers() {
    for (reserved, demand) in [(false, false), (true, false), (true, true)] {
        let mut cluster = tiered_cluster("2");
        let promotion = json!({"minStay": "1m", "hysteresis": "10s", "when": "Anytime", "maxTimes": 2});
        let backoff = json!({"initial": "1m", "max": "4m", "decay": "1m"});
        cluster.put(Kind::QueuePolicy, with_tiers(json!({"climbBack": promotion, "backoff": backoff})));
        cluster.without_nodes =
            [reserved.then_some("reserved"), demand.then_some("on-demand")].into_iter().flatten().collect();
        for name in ["a", "b", "c", "d", "e"] {
            cluster.put(Kind::JOB, job(name, "lq", "1", true));
            cluster.pass(7);
        }
        cluster.pass(6 * 3600);
        for name in ["a", "b", "c", "d"] {
            let promotions = evictions(&cluster, name, "ClimbedBack");
            assert!(promotions <= 2, "{name} climbed {promotions} times");
            // A job for which another tier has room is evicted for lack of nodes at most once after its first start, and once after each move back to a better
            // tier. A job for which no tier has room tries again after each back-off of four minutes and each patience of one minute.
            let falls = evictions(&cluster, name, "StockOut");
            let settled = cluster.is(name, "Admitted") && flavor_of(&cluster, name) == json!("on-demand");
            let most = if settled && !demand { promotions + 1 } else { 80 };
            assert!(falls <= most, "{name} fell {falls} times and climbed {promotions} times");
        }
        assert!(berth_engine::check(cluster.control.world()).is_empty());
    }
}

/// A ClusterQueue of 4 cpus in a cohort with more quota; the ClusterQueue has a borrowing limit of its own, and its policy has a borrowing ratio.
fn bounded(limit: Option<&str>, percent: i32) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("f", json!({})));
    for (name, quota) in [("mine", "4"), ("theirs", "100")] {
        let mut queue = cluster_queue(name, Some("all"), &[("f", quota)]);
        if let Some(limit) = limit.filter(|_| name == "mine") {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!(limit);
        }
        cluster.put(Kind::ClusterQueue, queue);
    }
    cluster.put(Kind::LocalQueue, local_queue("lq", "mine"));
    cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueues": ["mine"], "borrowingRatioPercent": percent})));
    cluster
}

#[test]
fn borrowing_is_bounded_by_smaller_of_limit_and_policy_ratio() {
    // The queue's own borrowing limit, the ratio of the policy, and the cpus that the queue may use at most.
    for (limit, percent, most) in [
        (None, 50, "6"),
        (Some("1"), 50, "5"),
        (Some("3"), 50, "6"),
        (Some("3"), 25, "5"),
        (Some("1"), 75, "5"),
        (Some("3"), 0, "4"),
        (Some("0"), 50, "4"),
    ] {
        let mut cluster = bounded(limit, percent);
        for (name, cpu) in [("most", most), ("more", "1")] {
            cluster.put(Kind::JOB, job(name, "lq", cpu, true));
            cluster.settle();
        }
        let (most, more) = (cluster.is("most", "Admitted"), cluster.is("more", "Admitted"));
        assert_eq!((most, more), (true, false), "limit {limit:?}, ratio {percent} %");
    }
}

#[test]
fn changed_borrowing_ratio_applies_up_to_borrowing_limit_of_queue() {
    let mut cluster = bounded(Some("3"), 50);
    for (name, cpu) in [("six", "6"), ("one", "1"), ("another", "1")] {
        cluster.put(Kind::JOB, job(name, "lq", cpu, true));
        cluster.pass(1);
    }
    assert!(cluster.is("six", "Admitted") && !cluster.is("one", "Admitted"));
    cluster.edit(Kind::QueuePolicy, "", "p", &json!({"spec": {"borrowingRatioPercent": 100}}));
    cluster.settle();
    assert!(cluster.is("one", "Admitted") && !cluster.is("another", "Admitted"), "three are borrowed, and no fourth");
    cluster.complete("six");
    cluster.edit(Kind::QueuePolicy, "", "p", &json!({"spec": {"borrowingRatioPercent": 25}}));
    cluster.put(Kind::JOB, job("four", "lq", "4", true));
    cluster.settle();
    assert!(
        cluster.is("another", "Admitted") && !cluster.is("four", "QuotaReserved"),
        "five at most, of which two run"
    );
}

#[test]
fn job_with_waiting_time_bonus_goes_before_higher_priority() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("f", json!({})));
    cluster.put(Kind::ClusterQueue, cluster_queue("mine", None, &[("f", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "mine"));
    cluster.set_class("high", 100);
    let high = |name: &str| {
        let mut job = job(name, "lq", "1", true);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        job
    };
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, job("old", "lq", "1", true));
    cluster.pass(3_600);
    cluster.put(Kind::JOB, high("a"));
    cluster.put(Kind::JOB, high("b"));
    cluster.complete("runs");
    cluster.pass(10);
    assert!(cluster.is("a", "Admitted") && !cluster.is("old", "Admitted"), "without a bonus priority decides");
    cluster.put(
        Kind::QueuePolicy,
        policy("p", json!({"clusterQueues": ["mine"], "waitingTimeBonus": {"pointsPerHour": 101}})),
    );
    cluster.settle();
    assert!(cluster.is("a", "Admitted"), "nobody is preempted for it");
    cluster.complete("a");
    cluster.pass(10);
    assert!(cluster.is("old", "Admitted") && !cluster.is("b", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn cluster_queue_holds_at_most_its_policy_share_of_tier() {
    let mut cluster = tiered_cluster("2");
    let tiers = json!({"default": ["reserved", "spot"], "maxSharePercent": {"reserved": 50}});
    cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueues": ["cq"], "capacityTiers": tiers})));
    for name in ["a", "b"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.settle();
    }
    assert_eq!((flavor_of(&cluster, "a"), flavor_of(&cluster, "b")), (json!("reserved"), json!("spot")));
    let more = json!({"spec": {"capacityTiers": {"maxSharePercent": {"reserved": 100}}}});
    cluster.edit(Kind::QueuePolicy, "", "p", &more);
    cluster.put(Kind::JOB, job("c", "lq", "1", true));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "c"), json!("reserved"));
}

/// A ClusterQueue of the given number of cpus in which jobs of a higher priority preempt.
fn preempting(cpu: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("f", json!({})));
    let mut queue = cluster_queue("cq", None, &[("f", cpu)]);
    queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster
}

#[test]
fn policy_limits_preemption_by_victim_count_and_evicted_quota() {
    // The requests of the running jobs, the request of the preemptor, the limit of a policy that forbids its victims, and the limit that allows these victims.
    for (running, asks, forbids, allows) in [
        (&["1", "1"][..], "2", json!({"maxVictims": 1}), json!({"maxVictims": 2})),
        (&["2"], "1", json!({"maxEvictedPercent": 199}), json!({"maxEvictedPercent": 200})),
    ] {
        let mut cluster = preempting("2");
        cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueues": ["cq"], "preemption": forbids})));
        cluster.set_class("far", 10);
        for (index, cpu) in running.iter().enumerate() {
            cluster.put(Kind::JOB, job(&format!("low-{index}"), "lq", cpu, true));
        }
        cluster.settle();
        let mut high = job("high", "lq", asks, true);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("far");
        cluster.put(Kind::JOB, high);
        cluster.pass(60);
        let all_run = (0..running.len()).all(|index| cluster.is(&format!("low-{index}"), "Admitted"));
        assert!(all_run && !cluster.is("high", "Admitted"), "{forbids}");
        cluster.edit(Kind::QueuePolicy, "", "p", &json!({"spec": {"preemption": allows}}));
        cluster.pass(60);
        assert!(cluster.is("high", "Admitted"), "{allows}: {:?}", cluster.workload_of("high"));
    }
}

#[test]
fn preemption_respects_min_priority_difference_and_protected_running_time() {
    let mut cluster = preempting("1");
    let bounds = json!({"minPriorityDifference": 10, "protectedRunningTime": "1m"});
    cluster.put(Kind::QueuePolicy, policy("p", json!({"clusterQueues": ["cq"], "preemption": bounds})));
    for (name, value) in [("near", 9), ("far", 10)] {
        cluster.set_class(name, value);
    }
    let with = |name: &str| {
        let mut job = job(name, "lq", "1", true);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(name);
        job
    };
    cluster.put(Kind::JOB, job("low", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, with("near"));
    cluster.put(Kind::JOB, with("far"));
    cluster.pass(58);
    assert!(cluster.is("low", "Admitted"), "it began a short while ago");
    cluster.pass(5);
    assert!(cluster.is("far", "Admitted") && !cluster.is("low", "Admitted"), "its time is over");
    assert!(!cluster.is("near", "Admitted"));
}
