//! Nodes that a cloud takes away: the jobs that are evicted from these nodes, and the capacity tiers to which the jobs move.

use berth_control::write::{Kind, PodOnNode, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job, local_queue, settings};
use crate::stories::groups::member;
use crate::stories::pods::pod;
use crate::stories::policies::{policy, with_tiers};
use crate::stories::tiers::{accepting, eviction, flavor_of, tiered_cluster, tiered_cluster_on};
use crate::stories::training::training;

const ENDING: &str = "cloud.google.com/impending-node-termination";

fn node(taint: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}})
}

/// Creates a pod of the given Job, or the given pod itself, on node `n`.
fn runs_there(cluster: &mut Cluster, kind: Kind, name: &str, pod_set: &str) {
    let uid = cluster.objects()[&Cluster::key(kind, "team", name)]["metadata"]["uid"].as_str().unwrap().to_owned();
    let (of_pod, job) = match kind {
        Kind::Pod => ((name.to_owned(), uid), None),
        _ => ((format!("{name}-0"), "pod".to_owned()), Some((name.to_owned(), uid))),
    };
    let pod = PodOnNode { namespace: "team".into(), name: of_pod.0, uid: of_pod.1, pod_set: pod_set.into(), job };
    cluster.on_node.entry("n".to_owned()).or_default().push(pod);
}

/// A cluster with a job in the spot tier that has a pod on node `n`.
fn on_spot(job: Value) -> Cluster {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::JOB, job);
    cluster.pass(60);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
    runs_there(&mut cluster, Kind::JOB, "a", "main");
    cluster
}

#[test]
fn job_on_terminating_spot_node_is_evicted_to_next_tier() {
    let mut cluster = on_spot(accepting("a", "spot,on-demand"));
    cluster.put(Kind::Node, node(ENDING));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"), "{:?}", cluster.writes);
    let message = eviction(&cluster, "a").1;
    let expected = format!("flavor spot (spot capacity) takes node n back: it has the taint {ENDING}");
    assert!(message.contains(&expected), "{message}");
    cluster.put(Kind::JOB, accepting("b", "spot,on-demand"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("on-demand"), "it counts against the tier");
    // The kubelet of the node that ends still updates the Node object.
    for _ in 0..3 {
        cluster.put(Kind::Node, node(ENDING));
        cluster.pass(10);
    }
    assert_eq!(cluster.count(Purpose::FindPodsOnNode), 1, "each node is asked about once");
    let evictions = &cluster.workload_of("a").unwrap()["status"]["schedulingStats"]["evictions"];
    assert_eq!(*evictions, json!([{"reason": "CapacityReclaimed", "underlyingCause": "", "count": 1}]));
}

/// A pod of the evicted job becomes ready on the node that ends: the ready pod does not show that the tier has capacity.
#[test]
fn pod_ready_after_reclaim_eviction_does_not_clear_stock_out() {
    let mut cluster = tiered_cluster("4");
    cluster.pods_stay_unready = true;
    cluster.put(Kind::JOB, accepting("a", "spot,on-demand"));
    cluster.pass(2);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
    runs_there(&mut cluster, Kind::JOB, "a", "main");
    cluster.put(Kind::Node, node(ENDING));
    for _ in 0..20 {
        if cluster.is("a", "Evicted") {
            break;
        }
        let step = cluster.control.step(cluster.now());
        cluster.take(step);
    }
    assert!(cluster.is("a", "Evicted"), "{:?}", cluster.writes);
    cluster.edit(Kind::JOB, "team", "a", &json!({"status": {"ready": 1}}));
    cluster.pass(10);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"), "{:?}", cluster.writes);
}

#[test]
fn reclaimed_job_goes_before_later_jobs() {
    let mut cluster = tiered_cluster("1");
    cluster.put(Kind::JOB, accepting("a", "spot"));
    cluster.pass(1000);
    cluster.put(Kind::JOB, accepting("b", "spot"));
    cluster.pass(10);
    runs_there(&mut cluster, Kind::JOB, "a", "main");
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(10);
    assert_eq!(eviction(&cluster, "a").0, "CapacityReclaimed");
    assert!(!cluster.is("a", "QuotaReserved") && !cluster.is("b", "QuotaReserved"), "spot is out of stock for both");
    cluster.pass(600);
    assert!(cluster.is("a", "Admitted") && !cluster.is("b", "QuotaReserved"), "it was there first");
}

#[test]
fn reclaimed_job_precedes_older_jobs_unless_preemption_is_by_age() {
    let by_age = "LowerOrNewerEqualPriority";
    for (policy, last, first, second) in [
        ("Never", None, "a", "old"),
        (by_age, None, "old", "a"),
        (by_age, Some(Kind::ClusterQueue), "old", "a"),
        (by_age, Some(Kind::LocalQueue), "old", "a"),
    ] {
        // A taint announces the end of the node, or the node disappears without notice and no other node replaces it (`gone`).
        for gone in [false, true] {
            let mut cluster = earlier_and_running();
            if gone {
                cluster.without_nodes = vec!["spot"];
                cluster.pass(700);
                cluster.without_nodes.clear();
            } else {
                runs_there(&mut cluster, Kind::JOB, "a", "main");
                cluster.put(Kind::Node, node(ENDING));
                cluster.pass(10);
            }
            assert_eq!(eviction(&cluster, "a").0, "CapacityReclaimed", "gone: {gone}");
            assert!(
                !cluster.is("a", "QuotaReserved") && !cluster.is("old", "QuotaReserved"),
                "spot is out of stock for both, gone: {gone}"
            );
            let preemption = json!({"spec": {"preemption": {"withinClusterQueue": policy}}});
            cluster.edit(Kind::ClusterQueue, "", "cq", &preemption);
            if last.is_some() {
                cluster.restart_hearing_last(last);
            }
            cluster.pass(600);
            assert!(
                cluster.is(first, "Admitted") && !cluster.is(second, "QuotaReserved"),
                "{policy}, {last:?}, gone: {gone}: {:?}",
                cluster.writes
            );
            assert_eq!(cluster.condition("a", "Preempted"), None, "{policy}, {last:?}, gone: {gone}");
        }
    }
}

/// A cluster in which job `a` uses the whole spot tier; job `old` was created before `a`, and its queue opened when `a` was running.
fn earlier_and_running() -> Cluster {
    let mut cluster = tiered_cluster("1");
    let mut closed = local_queue("closed", "cq");
    closed["spec"]["stopPolicy"] = json!("Hold");
    cluster.put(Kind::LocalQueue, closed);
    let mut old = accepting("old", "spot");
    old["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("closed");
    cluster.put(Kind::JOB, old);
    cluster.pass(10);
    cluster.put(Kind::JOB, accepting("a", "spot"));
    cluster.pass(1000);
    cluster.edit(Kind::LocalQueue, "team", "closed", &json!({"spec": {"stopPolicy": "None"}}));
    cluster.pass(10);
    cluster
}

/// The waiting time of a job does not include the time for which the job was admitted, however long this was.
#[test]
fn waiting_time_bonus_keeps_earlier_waiting_and_excludes_running_time() {
    for (waits, reason, first, second) in [
        (true, "CapacityReclaimed", "a", "high"),
        (true, "StockOut", "a", "high"),
        (false, "CapacityReclaimed", "high", "a"),
    ] {
        let mut cluster = tiered_cluster("1");
        let tiers = json!({"default": ["spot"], "patience": {"spot": "20m"}});
        let bonus = json!({"pointsPerHour": 400});
        let spec = json!({"clusterQueues": ["cq"], "capacityTiers": tiers, "waitingTimeBonus": bonus});
        cluster.put(Kind::QueuePolicy, policy("p", spec));
        cluster.set_class("high", 100);
        if waits {
            cluster.put(Kind::JOB, job("first", "lq", "1", true));
            cluster.pass(10);
        }
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        if !waits {
            cluster.pass(10);
            runs_there(&mut cluster, Kind::JOB, "a", "main");
        }
        cluster.pass(3_700);
        if reason == "StockOut" {
            cluster.without_nodes = vec!["spot"];
        }
        if waits {
            cluster.complete("first");
            cluster.pass(10);
        }
        let mut high = job("high", "lq", "1", true);
        high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        cluster.put(Kind::JOB, high);
        cluster.pass(10);
        assert!(cluster.is("a", "Admitted") && !cluster.is("high", "QuotaReserved"), "{reason}: {:?}", cluster.writes);
        if reason == "StockOut" {
            cluster.pass(1_200);
        } else {
            if waits {
                runs_there(&mut cluster, Kind::JOB, "a", "main");
            }
            cluster.put(Kind::Node, node(ENDING));
            cluster.pass(10);
        }
        assert_eq!(eviction(&cluster, "a").0, reason, "{:?}", cluster.writes);
        cluster.pass(600);
        assert!(
            cluster.is(first, "Admitted") && !cluster.is(second, "QuotaReserved"),
            "{reason}, it waited: {waits}: {:?}",
            cluster.writes
        );
    }
}

#[test]
fn termination_taint_evicts_only_tiered_gangs_on_spot_nodes() {
    let mut independent = accepting("a", "spot,on-demand");
    independent["spec"]["parallelism"] = json!(2);
    independent["spec"]["completions"] = json!(2);
    let mut indexed = independent.clone();
    indexed["spec"]["completionMode"] = json!("Indexed");
    for (what, job, taint, leaves) in [
        ("its end", accepting("a", "spot,on-demand"), ENDING, true),
        ("pods that are one", indexed, ENDING, true),
        ("another taint", accepting("a", "spot,on-demand"), "cloud.google.com/gke-spot", false),
        ("pods of their own", independent, ENDING, false),
        ("a job without tiers", job("a", "lq", "1", true), ENDING, false),
    ] {
        let mut cluster = on_spot(job);
        cluster.put(Kind::Node, node(taint));
        cluster.pass(30);
        assert_eq!(flavor_of(&cluster, "a") == json!("on-demand"), leaves, "{what}");
    }
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::JOB, accepting("a", "on-demand,spot"));
    cluster.pass(60);
    runs_there(&mut cluster, Kind::JOB, "a", "main");
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(30);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"), "maintenance of a node that comes back");
}

#[test]
fn configured_reclaim_taint_evicts_like_the_built_in_one() {
    const KARPENTER: &str = "karpenter.sh/disrupted";
    for (named, taint, leaves) in
        [(None, KARPENTER, false), (Some(KARPENTER), KARPENTER, true), (Some(KARPENTER), ENDING, true)]
    {
        let mut settings = settings();
        settings.reclaim_taints.extend(named.map(str::to_owned));
        let mut cluster = tiered_cluster_on(Cluster::with(settings), "4");
        cluster.put(Kind::JOB, accepting("a", "spot,on-demand"));
        cluster.pass(60);
        assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
        runs_there(&mut cluster, Kind::JOB, "a", "main");
        cluster.put(Kind::Node, node(taint));
        cluster.pass(30);
        assert_eq!(flavor_of(&cluster, "a") == json!("on-demand"), leaves, "{named:?}, {taint}");
    }
}

#[test]
fn policy_without_node_reclaimed_keeps_job_on_terminating_node() {
    for (on, flavor) in [(json!(["NodeReclaimed"]), "on-demand"), (json!(["Unschedulable", "ScaleUpFailed"]), "spot")] {
        let mut cluster = tiered_cluster("4");
        cluster.put(Kind::QueuePolicy, with_tiers(json!({"default": ["spot", "on-demand"], "stockOutOn": on})));
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(60);
        runs_there(&mut cluster, Kind::JOB, "a", "main");
        cluster.put(Kind::Node, node(ENDING));
        cluster.pass(30);
        assert_eq!(flavor_of(&cluster, "a"), json!(flavor), "{on}");
    }
}

#[test]
fn unanswered_query_for_pods_on_node_is_repeated() {
    let mut cluster = on_spot(accepting("a", "spot,on-demand"));
    cluster.faults = vec![
        (Purpose::FindPodsOnNode, WriteOutcome::Busy(1_000), false),
        (Purpose::FindPodsOnNode, WriteOutcome::Unknown("broken".into()), false),
    ];
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(10);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
    assert_eq!(cluster.count(Purpose::FindPodsOnNode), 3);
}

#[test]
fn node_tainted_before_berth_started_evicts_its_job() {
    let mut cluster = on_spot(accepting("a", "spot,on-demand"));
    cluster.faults = vec![(Purpose::FindPodsOnNode, WriteOutcome::NotSent, false)];
    cluster.put(Kind::Node, node(ENDING));
    cluster.settle();
    cluster.restart();
    cluster.pass(5);
    assert_eq!(flavor_of(&cluster, "a"), json!("on-demand"));
}

#[test]
fn recreated_node_with_same_name_is_queried_again() {
    let mut cluster = on_spot(accepting("a", "spot"));
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(1_000);
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"), "it is back, elsewhere");
    cluster.delete(&Cluster::key(Kind::Node, "", "n"));
    cluster.put(Kind::Node, node("other"));
    cluster.pass(10);
    assert_eq!(cluster.count(Purpose::FindPodsOnNode), 1);
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(1_000);
    assert_eq!(cluster.count(Purpose::FindPodsOnNode), 2);
    assert_eq!(cluster.workload_of("a").unwrap()["status"]["schedulingStats"]["evictions"][0]["count"], json!(2));
}

#[test]
fn training_job_on_terminating_node_moves_to_next_tier() {
    let mut cluster = tiered_cluster("8");
    cluster.put(Kind::TrainingJob, training("a", json!({"capacityTiers": ["spot", "on-demand"]})));
    cluster.pass(60);
    assert_eq!(cluster.training("a")["status"]["capacityTier"], "spot");
    runs_there(&mut cluster, Kind::JOB, "a-worker", "worker");
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(60);
    let status = &cluster.training("a")["status"];
    assert_eq!((&status["capacityTier"], &status["phase"]), (&json!("on-demand"), &json!("Running")), "{status}");
    let workload = cluster.workload_of_training("a").unwrap();
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "CapacityReclaimed");
}

#[test]
fn pod_and_pod_group_on_terminating_node_are_evicted() {
    let mut settings = crate::stories::cluster::settings();
    settings.job_kinds.insert(Kind::Pod);
    let single = || vec![pod("p", "1")];
    let group = || vec![member("p", "1", 2, &[]), member("q", "1", 2, &[])];
    for pods in [single(), group()] {
        let mut cluster = tiered_cluster_on(Cluster::with(settings.clone()), "4");
        let count = pods.len();
        for mut pod in pods {
            pod["metadata"]["annotations"]["berth.dev/capacity-tiers"] = json!("spot,on-demand");
            cluster.put(Kind::Pod, pod);
        }
        cluster.pass(10);
        assert_eq!(cluster.pod("p").unwrap()["spec"]["nodeSelector"], json!({"tier": "spot"}), "{:?}", cluster.writes);
        runs_there(&mut cluster, Kind::Pod, "p", "");
        cluster.put(Kind::Node, node(ENDING));
        cluster.pass(10);
        // A deleted pod of a group stays until another pod replaces it.
        let leaves = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
        assert!(cluster.pod("p").is_none_or(leaves), "{count}: {:?}", cluster.writes);
        let event = cluster.notices.iter().find(|notice| notice.reason == "EvictedDueToCapacityReclaimed").unwrap();
        assert!(event.message.contains(ENDING), "{}", event.message);
    }
}

#[test]
fn scaled_up_training_job_on_terminating_node_is_evicted() {
    let mut cluster = tiered_cluster("4");
    let accepts = json!({"spec": {"capacityTiers": ["spot"]}});
    let mut grown = crate::stories::elastic::elastic("a", json!({"scaleUpStep": 2}));
    crate::stories::cluster::merge(&mut grown, &accepts);
    cluster.put(Kind::JOB, accepting("first", "spot"));
    cluster.put(Kind::JOB, accepting("second", "spot"));
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, grown);
    cluster.pass(5);
    assert_eq!((cluster.tier_of("a"), cluster.workers("a")), ("spot", 2));
    cluster.complete("first");
    cluster.complete("second");
    cluster.pass(40);
    assert_eq!((cluster.tier_of("a"), cluster.workers("a")), ("spot", 4), "{:?}", cluster.writes);
    runs_there(&mut cluster, Kind::JOB, "a-worker", "worker");
    cluster.put(Kind::Node, node(ENDING));
    cluster.pass(20);
    assert_eq!(cluster.evictions_of("a", "CapacityReclaimed"), 1, "{:?}", cluster.writes);
}
