//! Quota that a ClusterQueue lends and reclaims.

use berth_control::measure::Labels;
use berth_control::write::{Kind, Purpose, WriteOutcome};
use berth_engine::FairSharing;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue, settings};

/// A cluster with a ClusterQueue that reclaims the quota that it lends, a ClusterQueue that only borrows, and a job that borrows the whole quota.
fn lent_out() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut owner = cluster_queue("owner", Some("all"), &[("default", "2")]);
    owner["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
    cluster.put(Kind::ClusterQueue, owner);
    cluster.put(Kind::ClusterQueue, cluster_queue("guest", Some("all"), &[("default", "0")]));
    cluster.put(Kind::LocalQueue, local_queue("owner", "owner"));
    cluster.put(Kind::LocalQueue, local_queue("guest", "guest"));
    cluster.put(Kind::JOB, job("borrower", "guest", "2", true));
    cluster.settle();
    assert!(cluster.is("borrower", "Admitted"));
    cluster
}

#[test]
fn victim_is_evicted_once_and_returns_when_preemptor_is_gone() {
    let mut cluster = lent_out();
    cluster.put(Kind::JOB, job("mine", "owner", "2", true));
    cluster.pass(30);
    assert!(cluster.is("mine", "Admitted") && !cluster.is("borrower", "QuotaReserved"));
    let evictions = cluster.count(Purpose::Evict);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "mine"));
    cluster.pass(60);
    assert!(cluster.is("borrower", "Admitted"), "{}", cluster.workload_of("borrower").unwrap());
    assert_eq!((evictions, cluster.count(Purpose::Evict)), (1, 1));
}

#[test]
fn victim_stopped_right_after_start_keeps_quota_until_pods_end() {
    let mut cluster = lent_out();
    // The Job controller has created pods, and the Job's status does not count them yet.
    cluster.controller_sleeps = true;
    cluster.edit(
        Kind::JOB,
        "team",
        "borrower",
        &json!({"status": {"startTime": null, "active": null, "ready": null, "conditions": [{"type": "Suspended", "status": "True"}]}}),
    );
    cluster.keep_pods_of(Kind::JOB, "borrower");
    cluster.put(Kind::JOB, job("mine", "owner", "2", true));
    cluster.pass(20);
    assert!(cluster.is("borrower", "Evicted"));
    assert_eq!(cluster.job("borrower")["spec"]["suspend"], json!(true));
    assert!(
        cluster.is("borrower", "QuotaReserved"),
        "its pods are there: {}",
        cluster.workload_of("borrower").unwrap()
    );
    assert!(!cluster.is("mine", "QuotaReserved"));
    cluster.pods_left.clear();
    cluster.controller_sleeps = false;
    cluster.pass(20);
    assert!(!cluster.is("borrower", "QuotaReserved") && cluster.is("mine", "Admitted"));
}

#[test]
fn victim_keeps_running_when_preemptor_is_deleted_before_eviction() {
    let mut cluster = lent_out();
    cluster.faults.push((Purpose::Evict, WriteOutcome::Busy(20_000), false));
    cluster.put(Kind::JOB, job("mine", "owner", "2", true));
    cluster.pass(5);
    cluster.delete(&Cluster::key(Kind::JOB, "team", "mine"));
    cluster.pass(60);
    assert!(cluster.is("borrower", "Admitted") && !cluster.is("borrower", "Evicted"));
    // The next preemptor evicts the job that was spared like any other victim.
    cluster.put(Kind::JOB, job("again", "owner", "2", true));
    cluster.pass(30);
    assert!(cluster.is("again", "Admitted") && !cluster.is("borrower", "QuotaReserved"));
}

#[test]
fn cohort_metrics_include_queues_and_cohorts_below_it() {
    let mut cluster = Cluster::new();
    let cohort = |name: &str, parent: &str| {
        let group = json!({"coveredResources": ["cpu"], "flavors": [{"name": "default",
            "resources": [{"name": "cpu", "nominalQuota": "1"}]}]});
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name},
            "spec": {"parentName": parent, "resourceGroups": [group]}})
    };
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    cluster.put(Kind::Cohort, cohort("root", ""));
    cluster.put(Kind::Cohort, cohort("leaf", "root"));
    cluster.put(Kind::ClusterQueue, cluster_queue("deep", Some("leaf"), &[("default", "2")]));
    cluster.put(Kind::ClusterQueue, cluster_queue("high", Some("root"), &[("default", "3")]));
    cluster.put(Kind::LocalQueue, local_queue("deep", "deep"));
    cluster.put(Kind::LocalQueue, local_queue("high", "high"));
    cluster.put(Kind::JOB, job("one", "deep", "2", true));
    cluster.put(Kind::JOB, job("two", "high", "1", true));
    cluster.settle();
    let gauges = cluster.control.figures().gauges;
    let value = |name: &str, cohort: &str| {
        let of = |labels: &Labels| labels.contains(&("cohort", cohort.to_owned()));
        gauges.iter().find(|gauge| gauge.name == name && of(&gauge.labels)).map(|gauge| gauge.value)
    };
    for (name, leaf, root) in [
        ("kueue_cohort_subtree_quota", 3.0, 7.0),
        ("kueue_cohort_subtree_resource_reservations", 2.0, 3.0),
        ("kueue_cohort_subtree_admitted_active_workloads", 1.0, 2.0),
        ("kueue_cohort_info", 1.0, 1.0),
    ] {
        assert_eq!((value(name, "leaf"), value(name, "root")), (Some(leaf), Some(root)), "{name}");
    }
    let info = gauges.iter().find(|gauge| gauge.name == "kueue_cluster_queue_info").unwrap();
    let labels = [("cluster_queue", "deep"), ("parent_cohort", "leaf"), ("root_cohort", "root")];
    assert_eq!(info.labels, labels.map(|(key, value)| (key, value.to_owned())));
}

#[test]
fn preemptor_gets_no_quota_of_flavor_removed_while_victim_stops() {
    for kept in ["first", "second"] {
        let mut cluster = Cluster::new();
        for name in ["first", "second"] {
            cluster.put(Kind::ResourceFlavor, flavor(name, json!({"tier": name})));
        }
        let queue = |flavors: &[(&str, &str)]| {
            let mut queue = cluster_queue("cq", None, flavors);
            queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
            queue
        };
        cluster.put(Kind::ClusterQueue, queue(&[("first", "1"), ("second", "1")]));
        cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
        for (class, value) in [("low", 1), ("middle", 2), ("high", 3)] {
            cluster.set_class(class, value);
        }
        let of_class = |name: &str, class: &str| {
            let mut job = job(name, "lq", "1", true);
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
            job
        };
        cluster.put(Kind::JOB, of_class("above", "high"));
        cluster.settle();
        cluster.put(Kind::JOB, of_class("victim", "low"));
        cluster.settle();
        // The victim of the job `waits` stops slowly, and a flavor is removed from the queue meanwhile.
        cluster.controller_sleeps = true;
        cluster.put(Kind::JOB, of_class("waits", "middle"));
        cluster.pass(5);
        assert!(cluster.is("victim", "Evicted") && !cluster.is("waits", "QuotaReserved"));
        cluster.put(Kind::ClusterQueue, queue(&[(kept, "1")]));
        cluster.pass(30);
        assert!(!cluster.is("waits", "QuotaReserved"), "{kept}: {}", cluster.workload_of("waits").unwrap());
        cluster.controller_sleeps = false;
        cluster.pass(120);
        let given = &cluster.workload_of("waits").unwrap()["status"]["admission"]["podSetAssignments"][0]["flavors"];
        assert_eq!(given["cpu"] == json!("second"), kept == "second", "{given}");
    }
}

#[test]
fn queue_status_that_could_not_be_written_is_written_later() {
    for fault in [WriteOutcome::Busy(100), WriteOutcome::Unknown("lost".into()), WriteOutcome::Refused("no".into())] {
        let mut cluster = lent_out();
        cluster.pass(10);
        cluster.delete(&Cluster::key(Kind::JOB, "team", "borrower"));
        // Each of the two queues' status writes fails twice.
        for _ in 0..4 {
            cluster.faults.push((Purpose::QueueStatus, fault.clone(), false));
        }
        cluster.pass(60);
        assert!(cluster.faults.is_empty(), "{fault:?}: each was tried again");
        let status = cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "guest")]["status"].clone();
        assert_eq!(status["reservingWorkloads"].as_i64().unwrap_or(0), 0, "{fault:?}: {status}");
    }
}

/// The share of ClusterQueue `guest` and the share of Cohort `leaf`, each as the value of its gauge and as the value in its status.
fn shares(cluster: &Cluster) -> [(f64, Value); 2] {
    let gauges = cluster.control.figures().gauges;
    [
        (Kind::ClusterQueue, "guest", "cluster_queue", "kueue_cluster_queue_weighted_share"),
        (Kind::Cohort, "leaf", "cohort", "kueue_cohort_weighted_share"),
    ]
    .map(|(kind, name, label, metric)| {
        let label = (label, name.to_owned());
        let mut found = gauges.iter().filter(|gauge| gauge.name == metric && gauge.labels.contains(&label));
        let value = found.next().unwrap().value;
        assert!(found.next().is_none(), "{metric} twice");
        let status = &cluster.objects()[&Cluster::key(kind, "", name)]["status"];
        (value, status["fairSharing"]["weightedShare"].clone())
    })
}

#[test]
fn weighted_share_is_rounded_in_status_and_exact_in_metrics() {
    let mut settings = settings();
    settings.engine.fair_sharing = Some(FairSharing::default());
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let leaf = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "leaf"},
        "spec": {"parentName": "root"}});
    cluster.put(Kind::Cohort, leaf);
    cluster.put(Kind::ClusterQueue, cluster_queue("owner", Some("root"), &[("default", "3")]));
    cluster.put(Kind::ClusterQueue, cluster_queue("guest", Some("leaf"), &[("default", "0")]));
    cluster.put(Kind::LocalQueue, local_queue("guest", "guest"));
    cluster.pass(10);
    assert_eq!(shares(&cluster), [(0.0, json!(0)), (0.0, json!(0))]);
    // The job `borrower` uses one of the three cpus that its ClusterQueue can borrow.
    cluster.put(Kind::JOB, job("borrower", "guest", "1", true));
    cluster.pass(10);
    assert!(cluster.is("borrower", "Admitted"));
    assert_eq!(shares(&cluster), [(1000.0 / 3.0, json!(334)), (1000.0 / 3.0, json!(334))]);
    // A ClusterQueue with weight zero that borrows has an infinite share: Kueue's gauge of a ClusterQueue is not a number then, and the gauge of a Cohort is
    // infinite.
    let weightless = json!({"spec": {"fairSharing": {"weight": "0"}}});
    cluster.edit(Kind::ClusterQueue, "", "guest", &weightless);
    cluster.edit(Kind::Cohort, "", "leaf", &weightless);
    cluster.pass(10);
    let [(queue, queue_status), (cohort, cohort_status)] = shares(&cluster);
    assert!(queue.is_nan(), "{queue}");
    assert_eq!((cohort, queue_status, cohort_status), (f64::INFINITY, json!(i64::MAX), json!(i64::MAX)));
    // The weight of a ClusterQueue has no effect while the usage is within the nominal quota.
    cluster.complete("borrower");
    cluster.pass(10);
    assert_eq!(shares(&cluster), [(0.0, json!(0)), (0.0, json!(0))]);
}
