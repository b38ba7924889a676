//! Labels that QueuePolicies read: labels that set the capacity tiers of jobs without tiers, labels that set priority classes, and labels of runners that
//! supervise a job.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, Notice};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue, settings};
use crate::stories::groups::member;
use crate::stories::policies::{policy, with_tiers};
use crate::stories::tiers::{flavor_of, tiered_cluster};
use crate::stories::{one_queue, with_queue};

/// As in Kueue, a label is copied to the Workload of a pod group only if all pods of the group agree on the label, whatever roles the pods have.
#[test]
fn pod_group_workload_copies_label_unless_its_pods_disagree() {
    for (other, copied) in [(None, Some("a")), (Some("a"), Some("a")), (Some("b"), None)] {
        for (first, second) in [("1", "2"), ("2", "1")] {
            let mut settings = settings();
            settings.job_kinds.insert(Kind::Pod);
            settings.label_keys_to_copy = ["team".to_owned()].into();
            let mut cluster = with_queue(Cluster::with(settings), "3");
            let mut pods = [member("one", first, 2, &[]), member("two", second, 2, &[])];
            pods[0]["metadata"]["labels"]["team"] = json!("a");
            if let Some(other) = other {
                pods[1]["metadata"]["labels"]["team"] = json!(other);
            }
            for pod in pods {
                cluster.put(Kind::Pod, pod);
            }
            cluster.settle();
            let made = cluster.objects().get(&Cluster::key(Kind::Workload, "team", "g"));
            let label = made.map(|made| made["metadata"]["labels"]["team"].clone());
            assert_eq!(label, copied.map(|value| json!(value)), "{other:?} {first}: {:?}", cluster.notices);
            let words = "pods one and two have different values of label team, which the Workload takes over: a and b";
            let is_reported = cluster.notices.iter().any(|notice| notice.message == words);
            assert_eq!(is_reported, copied.is_none(), "{:?}", cluster.notices);
        }
    }
}

/// A Job with a label on its pods.
fn labelled(name: &str, key: &str, value: &str) -> Value {
    let mut job = job(name, "lq", "1", true);
    job["spec"]["template"]["metadata"]["labels"][key] = json!(value);
    job
}

fn tier_0(name: &str) -> Value {
    labelled(name, "bastion-tier", "0")
}

/// A QueuePolicy that gives jobs of AxLearn's tier 0 the reserved tier, and other jobs spot, in the queues that `queues` selects.
fn bastion_rule(mut queues: Value) -> Value {
    let zero = json!({"label": "bastion-tier", "values": ["0", "reserved"], "tiers": ["reserved"]});
    queues["capacityTiers"] = json!({"default": ["spot"], "defaultFor": [zero]});
    policy("p", queues)
}

#[test]
fn policy_label_rule_beats_default_tiers_but_not_job_annotation() {
    let mut cluster = tiered_cluster("2");
    cluster.put(Kind::QueuePolicy, bastion_rule(json!({"clusterQueues": ["cq"]})));
    for (job, flavor) in [
        (tier_0("zero"), "reserved"),
        (labelled("named", "bastion-tier", "reserved"), "reserved"),
        (labelled("one", "bastion-tier", "1"), "spot"),
        (job("silent", "lq", "1", true), "spot"),
    ] {
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.put(Kind::JOB, job);
        cluster.settle();
        assert_eq!(flavor_of(&cluster, &name), json!(flavor), "{name}");
    }
    // Capacity tiers that a job names itself come before the tiers of the policy.
    let mut own = tier_0("own");
    own["metadata"]["annotations"] = json!({"berth.dev/capacity-tiers": "on-demand"});
    cluster.put(Kind::JOB, own);
    cluster.put(Kind::JOB, tier_0("late"));
    cluster.pass(60);
    assert_eq!(flavor_of(&cluster, "own"), json!("on-demand"));
    assert!(!cluster.is("late", "QuotaReserved"), "the reservation is full, and it is not sent to spot");
    cluster.complete("zero");
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "late"), json!("reserved"));
}

#[test]
fn pod_capacity_selector_beats_tier_label_unless_policy_overrides_selectors() {
    let mut cluster = tiered_cluster("2");
    let spot = json!({"spec": {"nodeLabels": {"cloud.google.com/gke-spot": "true"}}});
    cluster.edit(Kind::ResourceFlavor, "", "spot", &spot);
    cluster.put(Kind::QueuePolicy, bastion_rule(json!({"clusterQueues": ["cq"]})));
    let pinned = |name: &str| {
        let mut job = tier_0(name);
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"cloud.google.com/gke-spot": "true"});
        job
    };
    cluster.put(Kind::JOB, pinned("kept"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "kept"), json!("spot"));
    let more = json!({"spec": {"capacityTiers": {"selectors": "Override"}}});
    cluster.edit(Kind::QueuePolicy, "", "p", &more);
    cluster.put(Kind::JOB, pinned("moved"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "moved"), json!("reserved"), "without its selector it says nothing but its label");
}

#[test]
fn required_node_affinity_pins_job_to_tier_despite_overriding_policy() {
    let mut cluster = tiered_cluster("2");
    let spot = json!({"spec": {"nodeLabels": {"cloud.google.com/gke-spot": "true"}}});
    cluster.edit(Kind::ResourceFlavor, "", "spot", &spot);
    let is_spot = json!({"key": "cloud.google.com/gke-spot", "operator": "In", "values": ["true"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [is_spot]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    cluster.put(Kind::QueuePolicy, bastion_rule(json!({"clusterQueues": ["cq"]})));
    for (name, selectors) in [("respected", "Respect"), ("overridden", "Override")] {
        let more = json!({"spec": {"capacityTiers": {"selectors": selectors}}});
        cluster.edit(Kind::QueuePolicy, "", "p", &more);
        let mut job = tier_0(name);
        job["spec"]["template"]["spec"]["affinity"] = affinity.clone();
        cluster.put(Kind::JOB, job);
        cluster.settle();
        assert_eq!(flavor_of(&cluster, name), json!("spot"), "{selectors}");
    }
}

#[test]
fn job_gets_default_tier_when_queue_has_no_reserved_flavor() {
    let mut cluster = tiered_cluster("1");
    let groups = |flavors: &[(&str, &str)]| {
        let queue = cluster_queue("cq", None, flavors);
        json!({"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}})
    };
    cluster.edit(Kind::ClusterQueue, "", "cq", &groups(&[("spot", "1"), ("on-demand", "1")]));
    cluster.put(Kind::QueuePolicy, bastion_rule(json!({"clusterQueues": ["cq"]})));
    cluster.put(Kind::JOB, tier_0("a"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("spot"));
    cluster.put(Kind::JOB, tier_0("b"));
    cluster.settle();
    assert!(!cluster.is("b", "QuotaReserved"), "spot is full, and on demand is not for it");
    // Waiting jobs use a flavor of the reserved tier as soon as the flavor is added to the ClusterQueue, and no longer when the flavor is removed.
    cluster.edit(Kind::ClusterQueue, "", "cq", &groups(&[("spot", "1"), ("on-demand", "1"), ("reserved", "1")]));
    cluster.put(Kind::JOB, tier_0("c"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "b"), json!("reserved"));
    assert!(!cluster.is("c", "QuotaReserved"));
    let no_tier = json!({"metadata": {"labels": {"berth.dev/capacity-tier": null}}});
    cluster.edit(Kind::ResourceFlavor, "", "reserved", &no_tier);
    cluster.complete("a");
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "c"), json!("spot"));
}

#[test]
fn waiting_job_follows_policy_that_starts_to_select_its_queue() {
    let mut cluster = tiered_cluster("1");
    let selector = json!({"matchLabels": {"team": "a"}});
    cluster.put(Kind::QueuePolicy, bastion_rule(json!({"clusterQueueSelector": selector})));
    for name in ["spot", "on-demand", "reserved"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.settle();
        assert_eq!(flavor_of(&cluster, name), json!(name), "the queue's order: no policy governs it yet");
    }
    cluster.put(Kind::JOB, tier_0("late"));
    cluster.settle();
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"metadata": {"labels": {"team": "a"}}}));
    cluster.complete("spot");
    cluster.pass(60);
    assert!(!cluster.is("late", "QuotaReserved"), "it accepts the reservation alone");
    cluster.complete("reserved");
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "late"), json!("reserved"));
}

#[test]
fn tier_label_counts_when_local_queue_is_created_after_job() {
    let mut cluster = tiered_cluster("1");
    cluster.delete(&Cluster::key(Kind::LocalQueue, "team", "lq"));
    cluster.put(Kind::QueuePolicy, bastion_rule(json!({"clusterQueues": ["cq"]})));
    cluster.put(Kind::JOB, tier_0("a"));
    cluster.settle();
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "a"), json!("reserved"));
}

/// A QueuePolicy that maps the label `job-priority` to priority classes: 1 is very-high, 3 is a class that does not exist, and 5 is low.
fn classes() -> Value {
    let class = |value: &str, name: &str| json!({"value": value, "workloadPriorityClass": name});
    let classes = [class("1", "very-high"), class("3", "gone"), class("5", "low")];
    policy("p", json!({"clusterQueues": ["cq"], "priorityFromLabel": {"label": "job-priority", "classes": classes}}))
}

/// A ClusterQueue with the policy [`classes`], and the priority classes that the policy names.
fn by_label(cpu: &str) -> Cluster {
    let mut cluster = one_queue(cpu);
    for (name, value) in [("very-high", 100), ("usual", 50), ("low", 1)] {
        cluster.set_class(name, value);
    }
    cluster.put(Kind::QueuePolicy, classes());
    cluster
}

/// Priority class and priority of a job's Workload.
fn priority(cluster: &Cluster, name: &str) -> (Value, Value) {
    let spec = &cluster.workload_of(name).unwrap()["spec"];
    (spec["priorityClassRef"]["name"].clone(), spec["priority"].clone())
}

/// The events with a reason.
fn events_of<'a>(cluster: &'a Cluster, reason: &str) -> Vec<&'a Notice> {
    cluster.notices.iter().filter(|notice| notice.reason == reason).collect()
}

#[test]
fn pod_label_sets_priority_class_and_unknown_value_is_reported() {
    let mut cluster = by_label("1");
    let usual = |mut job: Value| {
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("usual");
        job
    };
    for (job, class, value) in [
        (usual(labelled("unknown", "job-priority", "7")), json!("usual"), 50),
        (usual(labelled("both", "job-priority", "1")), json!("very-high"), 100),
        (labelled("low", "job-priority", "5"), json!("low"), 1),
        (usual(job("none", "lq", "1", true)), json!("usual"), 50),
        (labelled("missing", "job-priority", "3"), Value::Null, 0),
    ] {
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.put(Kind::JOB, job);
        cluster.settle();
        assert_eq!(priority(&cluster, &name), (class, json!(value)), "{name}");
    }
    cluster.pass(120);
    assert!(cluster.is("unknown", "Admitted"), "a label that says nothing stops nobody");
    let [unknown] = events_of(&cluster, "PriorityLabelUnknown")[..] else { panic!("told once") };
    assert_eq!(unknown.key, Cluster::key(Kind::JOB, "team", "unknown"));
    assert_eq!(
        unknown.message,
        "label job-priority: \"7\" has no class in spec.priorityFromLabel.classes of QueuePolicy p, which has 1, 3, 5; \
         the label kueue.x-k8s.io/priority-class holds, else the priorityClassName of the pods"
    );
    let [missing] = events_of(&cluster, "WorkloadPriorityClassNotFound")[..] else { panic!("told once") };
    assert!(missing.message.starts_with("label job-priority: \"3\" stands for WorkloadPriorityClass \"gone\""));
    // Waiting jobs get the priority of a class that is created later.
    cluster.set_class("gone", 7);
    cluster.settle();
    assert_eq!(priority(&cluster, "missing"), (json!("gone"), json!(7)));
}

#[test]
fn priority_from_policy_label_beats_missing_priority_class_without_event() {
    let mut cluster = by_label("1");
    let mut job = labelled("a", "job-priority", "1");
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("nowhere");
    cluster.put(Kind::JOB, job);
    cluster.settle();
    assert_eq!(priority(&cluster, "a"), (json!("very-high"), json!(100)));
    assert!(events_of(&cluster, "WorkloadPriorityClassNotFound").is_empty());
}

#[test]
fn waiting_job_follows_priority_policy_and_running_job_does_not() {
    let mut cluster = by_label("1");
    cluster.delete(&Cluster::key(Kind::QueuePolicy, "", "p"));
    let pods = json!({"metadata": {"name": "of-pods"}, "value": 3});
    let class = Observation::PriorityClass(Change::Apply(serde_json::from_value(pods).unwrap()));
    cluster.control.observe(class, cluster.now());
    cluster.put(Kind::JOB, labelled("runs", "job-priority", "5"));
    cluster.settle();
    let mut waits = labelled("waits", "job-priority", "1");
    waits["spec"]["template"]["spec"]["priorityClassName"] = json!("of-pods");
    cluster.put(Kind::JOB, waits);
    cluster.settle();
    assert_eq!(priority(&cluster, "waits"), (json!("of-pods"), json!(3)));
    cluster.put(Kind::QueuePolicy, classes());
    cluster.settle();
    assert_eq!(priority(&cluster, "waits"), (json!("very-high"), json!(100)));
    assert_eq!(priority(&cluster, "runs"), (Value::Null, json!(0)), "no class comes to what holds quota");
    // A Workload follows the value of a class that the label sets, and keeps the value when the class is deleted.
    cluster.set_class("very-high", 90);
    cluster.settle();
    assert_eq!(priority(&cluster, "waits"), (json!("very-high"), json!(90)));
    let gone = json!({"metadata": {"name": "very-high"}, "value": 90});
    let gone = Observation::WorkloadPriorityClass(Change::Delete(serde_json::from_value(gone).unwrap()));
    cluster.control.observe(gone, cluster.now());
    cluster.pass(60);
    assert_eq!(priority(&cluster, "waits"), (json!("very-high"), json!(90)));
    let other = json!([{"value": "1", "workloadPriorityClass": "low"}]);
    cluster.edit(Kind::QueuePolicy, "", "p", &json!({"spec": {"priorityFromLabel": {"classes": other}}}));
    cluster.settle();
    assert_eq!(priority(&cluster, "waits"), (json!("low"), json!(1)));
    cluster.delete(&Cluster::key(Kind::QueuePolicy, "", "p"));
    cluster.settle();
    assert_eq!(priority(&cluster, "waits"), (json!("of-pods"), json!(3)), "as without a policy");
}

/// A JobSet with the given labels, and with the given labels of its pods.
fn slices(own: Value, pods: Value) -> Value {
    let mut labels = own;
    labels["kueue.x-k8s.io/queue-name"] = json!("lq");
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"metadata": {"labels": pods}, "spec": {"containers": [container]}});
    let jobs = json!([{"name": "job", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1,
        "template": template}}}]);
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"namespace": "team", "name": "a", "labels": labels},
        "spec": {"suspend": true, "replicatedJobs": jobs}})
}

#[test]
fn bastion_label_gets_job_set_one_event_under_overriding_policy() {
    for (selectors, own, pods, label) in [
        ("Override", json!({}), json!({"bastion-tier": "spot"}), Some("bastion-tier: \"spot\"")),
        ("Override", json!({}), json!({"bastion-job-version": "3"}), Some("bastion-job-version: \"3\"")),
        ("Override", json!({"bastion-job-version": "3"}), json!({}), Some("bastion-job-version: \"3\"")),
        ("Override", json!({"bastion-job-version": "3"}), json!({"bastion-tier": "disabled"}), None),
        ("Override", json!({}), json!({"job-priority": "1"}), None),
        ("Respect", json!({}), json!({"bastion-tier": "spot"}), None),
    ] {
        let mut cluster = tiered_cluster("4");
        cluster.put(Kind::QueuePolicy, with_tiers(json!({"selectors": selectors})));
        let case = format!("{selectors} {own} {pods}");
        cluster.put(Kind::JOB_SET, slices(own, pods));
        cluster.pass(20);
        let writes = |cluster: &Cluster| cluster.writes.iter().filter(|(_, key)| key.kind == Kind::JOB_SET).count();
        let before = writes(&cluster);
        // If control decides about the JobSet again, the JobSet gets no further event and no further write.
        cluster.set_class("any", 1);
        cluster.pass(20);
        let found = events_of(&cluster, "BastionRunner");
        assert_eq!(found.len(), usize::from(label.is_some()), "{case}: {found:?}");
        assert_eq!(writes(&cluster), before, "{case}");
        let Some(label) = label else { continue };
        assert_eq!(found[0].key, Cluster::key(Kind::JOB_SET, "team", "a"));
        let expected = format!("label {label}: a bastion runner that looks after this JobSet may delete it");
        assert!(found[0].message.starts_with(&expected), "{case}: {}", found[0].message);
        assert!(found[0].message.contains("launch it with BASTION_TIER=disabled"), "{}", found[0].message);
    }
}

#[test]
fn policy_edit_warns_job_set_about_bastion_and_priority_labels() {
    let mut cluster = tiered_cluster("4");
    cluster.put(Kind::QueuePolicy, with_tiers(json!({})));
    cluster.put(Kind::JOB_SET, slices(json!({}), json!({"bastion-tier": "spot", "job-priority": "9"})));
    cluster.pass(20);
    assert!(events_of(&cluster, "BastionRunner").is_empty());
    let classes = json!([{"value": "1", "workloadPriorityClass": "very-high"}]);
    let more = json!({"spec": {"capacityTiers": {"selectors": "Override"},
        "priorityFromLabel": {"label": "job-priority", "classes": classes}}});
    cluster.edit(Kind::QueuePolicy, "", "p", &more);
    cluster.pass(20);
    let both = (events_of(&cluster, "BastionRunner").len(), events_of(&cluster, "PriorityLabelUnknown").len());
    assert_eq!(both, (1, 1), "one text does not hide the other");
}

/// A job of any kind that waits or runs keeps its priority while its priority class is missing, and gets the priority of the class as soon as the class exists.
#[test]
fn missing_priority_class_is_reported_once_and_workload_keeps_priority() {
    for quota in ["9", "0"] {
        let mut cluster = crate::stories::pod_queue(quota);
        cluster.set_class("high", 9);
        let set = json!({"metadata": {"namespace": "team", "name": "s", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "replicatedJobs": [{"name": "job", "replicas": 1, "template": {"spec": {
                "parallelism": 1, "completions": 1, "template": {"spec": {"containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}}}]},
            // The JobSet controller has reported that the JobSet is suspended.
            "status": {"conditions": [{"type": "Suspended", "status": "True",
                "lastTransitionTime": "2026-11-21T12:00:00Z", "message": "", "reason": "x"}]}});
        let objects = [
            (Kind::JOB, "a", job("a", "lq", "1", true)),
            (Kind::JOB_SET, "s", set),
            (Kind::Pod, "p", crate::stories::pods::pod("p", "1")),
            (Kind::Pod, "m", crate::stories::groups::member("m", "1", 1, &[])),
            (Kind::StatefulSet, "web", crate::stories::groups::set(1)),
        ];
        for (kind, _, object) in &objects {
            let mut object = object.clone();
            object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
            cluster.put(*kind, object);
        }
        cluster.pass(10);
        let priorities = |cluster: &Cluster| -> Vec<i64> {
            let workloads = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
            workloads.map(|(_, object)| object["spec"]["priority"].as_i64().unwrap_or_default()).collect()
        };
        assert_eq!(priorities(&cluster), [9; 5]);
        let nope = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "nope"}}});
        for (kind, name, _) in &objects {
            cluster.edit(*kind, "team", name, &nope);
        }
        cluster.pass(60);
        assert_eq!(priorities(&cluster), [9; 5]);
        for (kind, name, _) in &objects {
            let is_it = |notice: &&berth_control::write::Notice| {
                notice.reason == "WorkloadPriorityClassNotFound"
                    && (notice.key.kind, notice.key.name.as_str()) == (*kind, *name)
            };
            let messages: Vec<&str> =
                cluster.notices.iter().filter(is_it).map(|notice| notice.message.as_str()).collect();
            assert!(matches!(messages.as_slice(), [one] if one.contains("nope")), "{quota}: {name}: {messages:?}");
        }
        cluster.set_class("nope", 5);
        cluster.pass(10);
        assert_eq!(priorities(&cluster), [5; 5], "{quota}");
    }
}
