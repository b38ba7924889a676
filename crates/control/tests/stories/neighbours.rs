//! Tenants who share ClusterQueues: no message about a tenant's object names an object of the other tenant.

use berth_control::event::{Change, Observation};
use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue, settings};
use crate::stories::groups::member;
use crate::stories::names::job_set;
use crate::stories::pods::pod;
use crate::stories::random::{Dice, seeds};
use crate::stories::training::training;

const TENANTS: [&str; 2] = ["team", "next-door"];

/// A cluster with one ClusterQueue for two namespaces, in which jobs of a higher priority preempt.
fn two_tenants(quota: &str) -> Cluster {
    let mut settings = settings();
    settings.job_kinds.insert(Kind::Pod);
    let mut cluster = Cluster::with(settings);
    let namespace = json!({"metadata": {"name": TENANTS[1], "labels": {"team": "b"}}});
    let namespace = Observation::Namespace(Change::Apply(serde_json::from_value(namespace).unwrap()));
    cluster.control.observe(namespace, cluster.now());
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({})));
    let mut queue = cluster_queue("cq", None, &[("default", quota)]);
    queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    cluster.put(Kind::ClusterQueue, queue);
    for tenant in TENANTS {
        cluster.put(Kind::LocalQueue, of(tenant, local_queue("lq", "cq")));
    }
    cluster.set_class("high", 100);
    cluster
}

/// A cluster in which each tenant's LocalQueue has a ClusterQueue of its own; the two ClusterQueues lend quota to each other and reclaim it.
fn two_borrowers() -> Cluster {
    let mut cluster = two_tenants("2");
    for (queue, tenant) in [("cq", TENANTS[0]), ("cq2", TENANTS[1])] {
        let mut made = cluster_queue(queue, Some("all"), &[("default", "2")]);
        made["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"});
        cluster.put(Kind::ClusterQueue, made);
        cluster.put(Kind::LocalQueue, of(tenant, local_queue("lq", queue)));
    }
    cluster
}

/// A random object that waits in the queue of a tenant: a Job, a TrainingJob, a JobSet, a pod, or a member of a pod group.
fn asks(dice: &mut Dice, name: &str) -> (Kind, Value) {
    let cpu = (1 + dice.below(4)).to_string();
    match dice.below(7) {
        0 => (Kind::TrainingJob, training(name, json!({}))),
        1 => (Kind::JOB_SET, job_set(name)),
        2 => (Kind::Pod, pod(name, &cpu)),
        3 => (Kind::Pod, member(name, "1", 2, &[])),
        _ => (Kind::JOB, job(name, "lq", &cpu, true)),
    }
}

fn of(tenant: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!(tenant);
    object
}

fn urgent(mut object: Value) -> Value {
    object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    object
}

/// The message of the preemptor's event after the preemption of a tenant's job, and the uid of the Workload that was preempted.
fn event_of_victim_in(tenant: &str) -> (String, String) {
    let mut cluster = two_tenants("1");
    cluster.put(Kind::JOB, of(tenant, job("low", "lq", "1", true)));
    cluster.pass(3);
    let workload = cluster.objects().iter().find(|(key, _)| key.kind == Kind::Workload).expect("a Workload of the job");
    let uid = workload.1["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.put(Kind::JOB, urgent(job("urgent", "lq", "1", true)));
    cluster.pass(5);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.writes);
    let event = cluster.notices.iter().find(|notice| notice.reason == "PreemptedWorkload").expect("an event");
    assert_eq!(&*event.key.namespace, "team");
    (event.message.clone(), uid)
}

#[test]
fn preemptor_event_hides_name_of_victim_in_another_namespace() {
    let (message, uid) = event_of_victim_in(TENANTS[1]);
    let expected = format!("Preempted a workload of another namespace (UID: {uid}) in ClusterQueue cq; preemptor ");
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn preemptor_event_names_victim_in_its_own_namespace() {
    let (message, uid) = event_of_victim_in(TENANTS[0]);
    assert!(message.starts_with("Preempted workload team/job-low-"), "{message}");
    assert!(message.contains(&format!(" (UID: {uid}) in ClusterQueue cq; preemptor ")), "{message}");
}

/// The simulated cluster checks every event and every message against the law of namespaces (`cluster/neighbours.rs`); the random changes of this story cause
/// many messages.
#[test]
fn messages_in_random_stories_name_no_object_of_another_namespace() {
    for seed in seeds(20) {
        let mut dice = Dice::new(seed);
        let mut cluster = if seed % 2 == 0 { two_borrowers() } else { two_tenants("3") };
        cluster.job_sets_run = true;
        let mut jobs: Vec<(Kind, &str, String)> = Vec::new();
        for event in 0..25 {
            let tenant = TENANTS[dice.below(2)];
            match dice.below(6) {
                0..=2 => {
                    let name = format!("made-{event}");
                    let (kind, made) = asks(&mut dice, &name);
                    let made = if dice.below(2) == 0 { urgent(made) } else { made };
                    cluster.put(kind, of(tenant, made));
                    jobs.push((kind, tenant, name));
                }
                3 if !jobs.is_empty() => {
                    let (kind, tenant, name) = jobs.remove(dice.below(jobs.len()));
                    cluster.delete(&Cluster::key(kind, tenant, &name));
                }
                4 => {
                    let stop = ["None", "Hold", "HoldAndDrain"][dice.below(3)];
                    cluster.edit(Kind::LocalQueue, tenant, "lq", &json!({"spec": {"stopPolicy": stop}}));
                }
                5 => {
                    let quota = (1 + dice.below(4)).to_string();
                    let resources = json!([{"name": "cpu", "nominalQuota": quota}]);
                    let flavors = json!([{"name": "default", "resources": resources}]);
                    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
                    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": groups}}));
                }
                _ => {}
            }
            cluster.pass(dice.seconds(1, 20));
        }
    }
}
