//! The rows of docs/compatibility.md and docs/departures that no other story covers: reasons of conditions, and behaviour that depends on a feature gate.

use berth_control::measure::Measure;
use berth_control::write::{Kind, ObjectKey, Purpose};
use berth_engine::{FairSharing, Gates};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::stories::checks::{answer, checked};
use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue, merge, settings};
use crate::stories::tiers::flavor_of;
use crate::stories::{one_queue, with_queue};

/// A cluster with a value of a feature gate of Kueue, and with fair sharing if `fair` is true.
fn gated(gate: &str, on: bool, fair: bool) -> Cluster {
    let mut settings = settings();
    settings.engine.gates = Gates::named(|name| (name == gate).then_some(on));
    settings.engine.fair_sharing = fair.then(FairSharing::default);
    let mut cluster = Cluster::with(settings);
    for name in ["first", "second"] {
        cluster.put(Kind::ResourceFlavor, flavor(name, json!({"tier": name})));
    }
    for (class, value) in [("low", 1), ("middle", 2), ("high", 3)] {
        cluster.set_class(class, value);
    }
    cluster
}

/// Creates a ClusterQueue of the cohort `all`, and a LocalQueue with the name of the ClusterQueue; `more` is merged into the spec of the ClusterQueue.
fn member(cluster: &mut Cluster, name: &str, flavors: &[(&str, &str)], more: &Value) {
    let mut queue = cluster_queue(name, Some("all"), flavors);
    merge(&mut queue["spec"], more);
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue(name, name));
}

fn of_class(name: &str, queue: &str, class: &str) -> Value {
    let mut made = job(name, queue, "1", true);
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    made
}

/// The reason of a condition of a job's Workload.
fn reason(cluster: &Cluster, job: &str, kind: &str) -> Value {
    cluster.condition(job, kind).unwrap_or_default()["reason"].clone()
}

fn workload_named(cluster: &Cluster, job: &str) -> String {
    cluster.workload_of(job).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Whether the job `winner` got the quota for which both jobs wait.
fn beats(cluster: &Cluster, winner: &str, loser: &str) -> bool {
    cluster.is(winner, "Admitted") && !cluster.is(loser, "QuotaReserved")
}

/// Creates a ClusterQueue that reclaims the quota that it lends, a ClusterQueue without quota of its own, and a job that borrows the whole quota.
fn lend(cluster: &mut Cluster) {
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    member(cluster, "owner", &[("first", "2")], &reclaims);
    member(cluster, "guest", &[("first", "0")], &json!({}));
    cluster.put(Kind::JOB, job("borrower", "guest", "2", true));
    cluster.settle();
    assert!(cluster.is("borrower", "Admitted"));
}

#[test]
fn preemptor_and_victim_conditions_show_preemption_under_way() {
    let mut cluster = gated("", true, false);
    lend(&mut cluster);
    // The borrowing job stops slowly.
    cluster.controller_sleeps = true;
    cluster.put(Kind::JOB, job("mine", "owner", "2", true));
    cluster.pass(5);
    let waits = cluster.condition("mine", "QuotaReserved").unwrap();
    assert_eq!(waits["status"], "False", "{waits}");
    assert_eq!(waits["reason"], "WaitingForPreemptedWorkloads", "{waits}");
    assert!(waits["message"].as_str().unwrap().ends_with("Pending the preemption of 1 workload(s)"), "{waits}");
    assert_eq!(reason(&cluster, "borrower", "Evicted"), "Preempted");
    assert_eq!(reason(&cluster, "borrower", "Preempted"), "InCohortReclamation");
    cluster.controller_sleeps = false;
    cluster.pass(30);
    assert!(beats(&cluster, "mine", "borrower"), "{:?}", cluster.writes);
}

#[test]
fn victim_of_fair_sharing_gets_fair_sharing_reason() {
    let mut cluster = gated("", true, true);
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    for (name, quota) in [("pool", "4"), ("large", "0"), ("small", "0")] {
        member(&mut cluster, name, &[("first", quota)], &reclaims);
    }
    let names = ["a", "b", "c", "d"];
    for name in names {
        cluster.put(Kind::JOB, job(name, "large", "1", true));
    }
    cluster.settle();
    cluster.put(Kind::JOB, job("other", "small", "1", true));
    cluster.pass(30);
    assert!(cluster.is("other", "Admitted"), "{:?}", cluster.writes);
    let conditions: Vec<Value> = names.into_iter().filter_map(|name| cluster.condition(name, "Preempted")).collect();
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    assert_eq!((&conditions[0]["status"], &conditions[0]["reason"]), (&json!("True"), &json!("InCohortFairSharing")));
    let paths = "due to Fair Sharing within the cohort; preemptor path: /all/small; preemptee path: /all/large";
    assert!(conditions[0]["message"].as_str().unwrap().ends_with(paths), "{conditions:?}");
}

#[test]
fn admitted_and_pods_ready_conditions_say_what_is_missing() {
    let (mut cluster, name) = checked();
    assert_eq!(reason(&cluster, "a", "Admitted"), "UnsatisfiedAdmissionChecks");
    assert_eq!(reason(&cluster, "a", "PodsReady"), "WaitForStart");
    cluster.put(Kind::JOB, job("b", "lq", "1", true));
    cluster.pass(5);
    assert_eq!(reason(&cluster, "b", "Admitted"), "NoReservation");
    answer(&mut cluster, &name, "Ready");
    cluster.pass(5);
    assert_eq!(reason(&cluster, "a", "Admitted"), "Admitted");
    assert_eq!(reason(&cluster, "a", "PodsReady"), "Started");
}

fn active(cluster: &Cluster, key: &ObjectKey) -> (Value, Value) {
    let condition = &cluster.objects()[key]["status"]["conditions"][0];
    (condition["status"].clone(), condition["reason"].clone())
}

#[test]
fn deleted_cluster_queue_admits_nothing_and_goes_with_last_workload() {
    let mut cluster = one_queue("2");
    let queue = Cluster::key(Kind::ClusterQueue, "", "cq");
    let local = Cluster::key(Kind::LocalQueue, "team", "lq");
    let inactive = |reason: &str| (json!("False"), json!(reason));
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.settle();
    cluster.delete(&queue);
    cluster.put(Kind::JOB, job("late", "lq", "1", true));
    cluster.pass(10);
    assert_eq!(active(&cluster, &queue), inactive("Terminating"));
    assert_eq!(active(&cluster, &local), inactive("ClusterQueueIsInactive"));
    assert!(beats(&cluster, "runs", "late"), "{:?}", cluster.writes);
    assert_eq!(reason(&cluster, "late", "QuotaReserved"), "Suspended");
    cluster.complete("runs");
    cluster.pass(10);
    assert!(!cluster.objects().contains_key(&queue), "{:?}", cluster.writes);
    assert_eq!(active(&cluster, &local), inactive("ClusterQueueDoesNotExist"));
    assert_eq!(reason(&cluster, "late", "QuotaReserved"), "Misconfigured");
}

#[test]
fn requeued_condition_says_what_kept_workload_away() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    for policy in ["HoldAndDrain", "None"] {
        cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
        cluster.pass(5);
    }
    assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(reason(&cluster, "a", "Requeued"), "ClusterQueueRestarted");
    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Retry");
    cluster.pass(60);
    assert!(cluster.is("a", "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(reason(&cluster, "a", "Requeued"), "BackoffFinished");
}

#[test]
fn waiting_workload_that_is_deactivated_shows_deactivated_reason() {
    let mut cluster = one_queue("1");
    for name in ["holds", "waits"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.pass(3);
    }
    let name = workload_named(&cluster, "waits");
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(5);
    assert_eq!(reason(&cluster, "waits", "QuotaReserved"), "Deactivated");
}

/// Makes steps until Berth has nothing to write at the current time. Returns the different reasons that the condition of the type `kind` had on the job's
/// Workload during these steps.
fn on_the_way(cluster: &mut Cluster, job: &str, kind: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    loop {
        let step = cluster.control.step(cluster.now());
        if step.tasks.is_empty() {
            return seen;
        }
        cluster.take(step);
        seen.extend(cluster.condition(job, kind).map(|condition| condition["reason"].clone()));
        seen.dedup();
    }
}

#[test]
fn deactivation_target_reason_is_written_before_deactivation() {
    let later = |cluster: &mut Cluster| {
        cluster.set_now(cluster.now().checked_add(SignedDuration::from_secs(11)).unwrap());
    };
    let mut cluster = one_queue("1");
    let mut limited = job("a", "lq", "1", true);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("10");
    cluster.put(Kind::JOB, limited);
    cluster.settle();
    later(&mut cluster);
    assert_eq!(on_the_way(&mut cluster, "a", "DeactivationTarget"), ["MaximumExecutionTimeExceeded"]);

    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Rejected");
    assert_eq!(on_the_way(&mut cluster, "a", "DeactivationTarget"), ["AdmissionCheck"]);

    let mut settings = settings();
    let wait = settings.wait_for_pods_ready.as_mut().unwrap();
    wait.timeout_ms = 10_000;
    wait.backoff_limit_count = Some(0);
    let mut cluster = with_queue(Cluster::with(settings), "1");
    cluster.pods_stay_unready = true;
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    later(&mut cluster);
    assert_eq!(on_the_way(&mut cluster, "a", "DeactivationTarget"), ["RequeuingLimitExceeded"]);
    let evicted = cluster.condition("a", "Evicted").unwrap();
    let message = "The workload is deactivated due to exceeding the maximum number of re-queuing retries";
    assert_eq!(
        (&evicted["reason"], &evicted["message"]),
        (&json!("DeactivatedDueToRequeuingLimitExceeded"), &json!(message))
    );
}

#[test]
fn finalizer_removal_does_not_drop_finalizer_added_meanwhile() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.settle();
    let name = workload_named(&cluster, "a");
    cluster.complete("a");
    let held = loop {
        let step = cluster.control.step(cluster.now());
        assert!(!step.tasks.is_empty(), "{:?}", cluster.writes);
        if step.tasks.iter().any(|write| write.purpose == Purpose::LetFinishedGo) {
            break step;
        }
        cluster.take(step);
    };
    // Another client adds its finalizer while the write that removes Berth's finalizer is under way.
    let both = json!(["kueue.x-k8s.io/resource-in-use", "example.com/keeps"]);
    cluster.edit(Kind::Workload, "team", &name, &json!({"metadata": {"finalizers": both}}));
    cluster.take(held);
    let finalizers = |cluster: &Cluster| cluster.workload_of("a").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(&cluster), both, "that write was made for another state");
    cluster.pass(10);
    assert_eq!(finalizers(&cluster), json!(["example.com/keeps"]));
}

#[test]
fn job_with_missing_owner_frees_its_quota_when_deleted() {
    let mut cluster = one_queue("1");
    let mut orphan = job("orphan", "lq", "1", true);
    orphan["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "uid-of-gone", "controller": true}]);
    cluster.put(Kind::JOB, orphan);
    cluster.settle();
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.settle();
    assert!(beats(&cluster, "orphan", "next"), "{:?}", cluster.writes);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "orphan"));
    cluster.pass(5);
    assert!(cluster.is("next", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn first_fitting_flavor_is_taken_with_flavor_fungibility_off() {
    for (on, expected) in [(true, "second"), (false, "first")] {
        let mut cluster = gated("FlavorFungibility", on, false);
        member(&mut cluster, "pool", &[("first", "1")], &json!({}));
        let more = json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}});
        member(&mut cluster, "own", &[("first", "0"), ("second", "1")], &more);
        cluster.put(Kind::JOB, job("a", "own", "1", true));
        cluster.settle();
        assert_eq!(flavor_of(&cluster, "a"), expected, "{on}");
    }
}

#[test]
fn losing_workload_continues_with_next_flavor_when_gate_keeps_progress() {
    for (on, expected) in [(true, "second"), (false, "first")] {
        let mut cluster = gated("FlavorFungibilityPreserveScanProgress", on, false);
        member(&mut cluster, "pool", &[("first", "1"), ("second", "1")], &json!({}));
        member(&mut cluster, "rival", &[("first", "0"), ("second", "0")], &json!({}));
        let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"},
            "flavorFungibility": {"whenCanPreempt": "MayStopSearch"}});
        member(&mut cluster, "own", &[("first", "1"), ("second", "0")], &more);
        cluster.put(Kind::JOB, of_class("below", "own", "low"));
        cluster.settle();
        // The jobs `winner` and `loser` need the free quota of the first flavor. Afterwards the job `loser` either gets the second flavor, or preempts a job.
        cluster.put(Kind::JOB, of_class("winner", "rival", "high"));
        cluster.put(Kind::JOB, of_class("loser", "own", "middle"));
        cluster.pass(30);
        assert_eq!(flavor_of(&cluster, "winner"), "first", "{on}");
        assert_eq!(flavor_of(&cluster, "loser"), expected, "{on}");
        assert_eq!(cluster.condition("below", "Preempted").is_some(), !on);
    }
}

#[test]
fn cohort_heads_are_ordered_by_priority_only_with_gate_on() {
    for on in [true, false] {
        let mut cluster = gated("PrioritySortingWithinCohort", on, false);
        for (name, quota) in [("pool", "1"), ("one", "0"), ("two", "0")] {
            member(&mut cluster, name, &[("first", quota)], &json!({}));
        }
        cluster.put(Kind::JOB, job("holder", "pool", "1", true));
        cluster.settle();
        for (name, queue, class) in [("older", "one", "low"), ("urgent", "two", "high")] {
            cluster.put(Kind::JOB, of_class(name, queue, class));
            cluster.pass(2);
        }
        cluster.complete("holder");
        cluster.pass(5);
        let (winner, loser) = if on { ("urgent", "older") } else { ("older", "urgent") };
        assert!(beats(&cluster, winner, loser), "{on}: {:?}", cluster.writes);
    }
}

#[test]
fn non_borrowing_workload_beats_smaller_share_only_with_gate_on() {
    for on in [true, false] {
        let mut cluster = gated("FairSharingPrioritizeNonBorrowing", on, true);
        for (name, cpu, memory) in [("pool", "0", "10Gi"), ("large", "10", "0"), ("small", "0", "0")] {
            let quotas = json!([{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]);
            let groups = json!([{"coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "first", "resources": quotas}]}]);
            member(&mut cluster, name, &[], &json!({"resourceGroups": groups}));
        }
        let mut borrower = job("borrower", "large", "1", true);
        borrower["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = json!({"memory": "8Gi"});
        cluster.put(Kind::JOB, borrower);
        cluster.settle();
        assert!(cluster.is("borrower", "Admitted"), "{:?}", cluster.writes);
        // The job `entitled` requests all cpus, which are its queue's own, and its queue has borrowed most of the memory; the job `modest` borrows one cpu.
        cluster.put(Kind::JOB, job("entitled", "large", "10", true));
        cluster.put(Kind::JOB, job("modest", "small", "1", true));
        cluster.pass(5);
        let (winner, loser) = if on { ("entitled", "modest") } else { ("modest", "entitled") };
        assert!(beats(&cluster, winner, loser), "{on}: {:?}", cluster.writes);
    }
}

#[test]
fn reclaim_within_nominal_quota_ignores_shares_with_gate_on() {
    for (on, expected) in [(true, "InCohortReclamation"), (false, "InCohortFairSharing")] {
        let mut cluster = gated("FairSharingPreemptWithinNominal", on, true);
        lend(&mut cluster);
        cluster.put(Kind::JOB, job("mine", "owner", "2", true));
        cluster.pass(30);
        assert!(beats(&cluster, "mine", "borrower"), "{on}: {:?}", cluster.writes);
        assert_eq!(reason(&cluster, "borrower", "Preempted"), expected);
    }
}

#[test]
fn undeclared_resource_is_ignored_only_when_configured() {
    for ignored in [true, false] {
        let mut settings = settings();
        settings.engine.ignore_undeclared = ignored;
        let mut cluster = with_queue(Cluster::with(settings), "1");
        let mut licensed = job("a", "lq", "1", true);
        licensed["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/license"] =
            json!("1");
        cluster.put(Kind::JOB, licensed);
        cluster.pass(5);
        let expected = if ignored { "QuotaReserved" } else { "NoMatchingFlavor" };
        assert_eq!(reason(&cluster, "a", "QuotaReserved"), expected);
    }
}

#[test]
fn quota_of_ended_pods_is_free_only_with_gate_on() {
    for on in [true, false] {
        let mut settings = settings();
        settings.reclaimable_pods = on;
        let mut cluster = with_queue(Cluster::with(settings), "2");
        let mut wide = job("wide", "lq", "1", true);
        merge(&mut wide, &json!({"spec": {"parallelism": 2, "completions": 2}}));
        cluster.put(Kind::JOB, wide);
        cluster.settle();
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(5);
        assert!(beats(&cluster, "wide", "next"), "{:?}", cluster.writes);
        cluster.edit(Kind::JOB, "team", "wide", &json!({"status": {"active": 1, "ready": 1, "succeeded": 1}}));
        cluster.pass(10);
        assert_eq!(cluster.is("next", "Admitted"), on, "{:?}", cluster.writes);
        assert_eq!(cluster.count(Purpose::SetReclaimable) > 0, on, "{:?}", cluster.writes);
    }
}

#[test]
fn local_queue_cohort_and_unadmitted_metrics_can_be_disabled() {
    for on in [true, false] {
        let mut settings = settings();
        settings.local_queue_metrics = on;
        settings.cohort_metrics = on;
        settings.observe_unadmitted = on;
        settings.creation_latency_metric = on;
        let mut cluster = Cluster::with(settings);
        cluster.put(Kind::ResourceFlavor, flavor("first", json!({})));
        member(&mut cluster, "own", &[("first", "1")], &json!({}));
        cluster.put(Kind::JOB, job("too-large", "own", "2", true));
        cluster.pass(5);
        let gauges = cluster.control.figures().gauges;
        for name in ["kueue_local_queue_", "kueue_cohort_", "kueue_cluster_queue_info", "kueue_unadmitted_workloads"] {
            assert_eq!(gauges.iter().any(|gauge| gauge.name.starts_with(name)), on, "{name}");
        }
        let latency = "kueue_workload_creation_latency_seconds";
        let measures = cluster.control.drain_measures();
        let measured = measures.iter().any(|one| matches!(one, Measure::Observe { name, .. } if *name == latency));
        assert_eq!(measured, on);
    }
}

#[test]
fn deactivated_job_frees_its_quota_when_its_pods_are_gone() {
    let mut cluster = one_queue("1");
    for name in ["holds", "waits"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.pass(3);
    }
    cluster.controller_sleeps = true;
    let name = workload_named(&cluster, "holds");
    cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": false}}));
    cluster.pass(20);
    assert!(cluster.is("holds", "Evicted") && cluster.is("holds", "QuotaReserved"), "{:?}", cluster.writes);
    assert!(!cluster.is("waits", "QuotaReserved"), "the pods are there");
    cluster.controller_sleeps = false;
    cluster.pass(10);
    assert!(beats(&cluster, "waits", "holds"), "{:?}", cluster.writes);
}

#[test]
fn preemption_waits_while_admission_is_blocked_on_unready_pods() {
    let mut settings = settings();
    settings.wait_for_pods_ready.as_mut().unwrap().block_admission = true;
    let mut cluster = with_queue(Cluster::with(settings), "2");
    for (class, value) in [("low", 1), ("high", 3)] {
        cluster.set_class(class, value);
    }
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.put(Kind::JOB, of_class("ready", "lq", "low"));
    cluster.settle();
    cluster.pods_stay_unready = true;
    cluster.put(Kind::JOB, of_class("slow", "lq", "low"));
    cluster.settle();
    assert!(cluster.is("ready", "PodsReady") && cluster.is("slow", "Admitted") && !cluster.is("slow", "PodsReady"));
    cluster.put(Kind::JOB, of_class("urgent", "lq", "high"));
    cluster.pass(20);
    assert_eq!(reason(&cluster, "urgent", "QuotaReserved"), "WaitingForPodsReady");
    assert_eq!(cluster.count(Purpose::Evict), 0, "{:?}", cluster.writes);
    cluster.pods_stay_unready = false;
    cluster.pass(60);
    assert!(cluster.is("urgent", "Admitted") && cluster.count(Purpose::Evict) == 1, "{:?}", cluster.writes);
}

#[test]
fn pods_ready_is_not_written_for_job_about_to_finish() {
    for ends in [true, false] {
        let mut cluster = with_queue(Cluster::with(settings()), "1");
        cluster.pods_stay_unready = true;
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.settle();
        assert!(cluster.is("a", "Admitted"));
        cluster.edit(Kind::JOB, "team", "a", &json!({"status": {"uncountedTerminatedPods": {"succeeded": ["p"]}}}));
        cluster.pass(3);
        assert_eq!(cluster.count(Purpose::SetPodsReady), 0, "its end is expected");
        if ends {
            cluster.complete("a");
        }
        cluster.pass(70);
        assert_eq!(cluster.is("a", "Finished"), ends);
        assert_eq!(
            cluster.count(Purpose::SetPodsReady),
            usize::from(!ends),
            "one that does not end is told after a while"
        );
    }
}
