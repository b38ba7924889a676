//! QueuePolicies that override the selectors of capacity in jobs.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::policies::with_tiers;
use crate::stories::tiers::{flavor_of, tiered_cluster};
use crate::stories::training::training;

/// A ClusterQueue whose capacity tiers have node labels of GKE.
fn on_gke() -> Cluster {
    let mut cluster = tiered_cluster("4");
    for (tier, key) in [("spot", "cloud.google.com/gke-spot"), ("reserved", "cloud.google.com/reservation-name")] {
        let labels = json!({"spec": {"nodeLabels": {(key): "true"}}});
        cluster.edit(Kind::ResourceFlavor, "", tier, &labels);
    }
    cluster
}

/// Adds to a pod template the selector for spot nodes that AxLearn writes, and a selector and a toleration that do not select capacity.
fn pin(template: &mut Value) {
    template["metadata"]["labels"]["bastion-tier"] = json!("spot");
    let spec = &mut template["spec"];
    spec["nodeSelector"] = json!({"cloud.google.com/gke-spot": "true", "accelerator": "v5e"});
    spec["tolerations"] = json!([{"key": "cloud.google.com/gke-spot", "operator": "Exists"}, {"key": "mine"}]);
}

/// The node selector and the tolerations of a Job's pods, and the value of their label for AxLearn's tier.
fn selected(cluster: &Cluster, job: &str) -> [Value; 3] {
    let template = &cluster.job(job)["spec"]["template"];
    let spec = &template["spec"];
    [&spec["nodeSelector"], &spec["tolerations"], &template["metadata"]["labels"]["bastion-tier"]].map(Value::clone)
}

#[test]
fn overriding_policy_moves_pinned_job_through_tiers_and_restores_selectors() {
    let mut cluster = on_gke();
    let pinned = |name: &str| {
        let mut job = job(name, "lq", "1", true);
        pin(&mut job["spec"]["template"]);
        job
    };
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"selectors": "Respect"})));
    cluster.put(Kind::JOB, pinned("kept"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "kept"), json!("spot"));
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"selectors": "Override", "patience": {"reserved": "1m"}})));
    cluster.edit(Kind::QueuePolicy, "", "p", &json!({"metadata": {"generation": 2}}));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::JOB, pinned("moved"));
    cluster.settle();
    assert_eq!(flavor_of(&cluster, "moved"), json!("reserved"));
    let template = cluster.job("moved")["spec"]["template"].clone();
    assert_eq!(template["metadata"]["labels"]["bastion-tier"], Value::Null);
    let selector = json!({"accelerator": "v5e", "cloud.google.com/reservation-name": "true", "tier": "reserved"});
    assert_eq!(template["spec"]["nodeSelector"], selector);
    assert_eq!(template["spec"]["tolerations"], json!([{"key": "mine"}]));
    cluster.pass(70);
    assert_eq!(flavor_of(&cluster, "moved"), json!("on-demand"));
    // The stopped job has the pod template that its user wrote.
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    cluster.settle();
    let template = cluster.job("moved")["spec"]["template"].clone();
    let wanted = pinned("moved")["spec"]["template"].clone();
    assert_eq!(template["spec"]["nodeSelector"], wanted["spec"]["nodeSelector"]);
    assert_eq!(template["spec"]["tolerations"], wanted["spec"]["tolerations"]);
    assert_eq!(template["metadata"]["labels"]["bastion-tier"], json!("spot"));
}

#[test]
fn training_job_with_overridden_selectors_gets_pods_for_each_tier() {
    let pinned = |name: &str| {
        let mut job = training(name, json!({"schedulingConfig": {"schedulingTimeout": "1h"}}));
        pin(&mut job["spec"]["template"]);
        job
    };
    let mut cluster = on_gke();
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"selectors": "Respect"})));
    cluster.put(Kind::TrainingJob, pinned("kept"));
    cluster.pass(5);
    assert_eq!((cluster.tier_of("kept"), cluster.phase("kept")), ("spot", "Running"));
    let selector = json!({"accelerator": "v5e", "cloud.google.com/gke-spot": "true", "tier": "spot"});
    let tolerations = json!([{"key": "cloud.google.com/gke-spot", "operator": "Exists"}, {"key": "mine"}]);
    assert_eq!(selected(&cluster, "kept-worker"), [selector, tolerations, json!("spot")]);

    let mut cluster = on_gke();
    cluster.put(Kind::QueuePolicy, with_tiers(json!({"selectors": "Override"})));
    cluster.without_nodes = vec!["reserved"];
    cluster.put(Kind::TrainingJob, pinned("moved"));
    cluster.pass(5);
    assert_eq!((cluster.tier_of("moved"), cluster.phase("moved")), ("reserved", "Pending"));
    let selector = json!({"accelerator": "v5e", "cloud.google.com/reservation-name": "true", "tier": "reserved"});
    assert_eq!(selected(&cluster, "moved-worker"), [selector, json!([{"key": "mine"}]), Value::Null]);
    cluster.pass(120);
    assert_eq!((cluster.tier_of("moved"), cluster.phase("moved")), ("on-demand", "Running"));
    let selector = json!({"accelerator": "v5e", "tier": "on-demand"});
    assert_eq!(selected(&cluster, "moved-worker"), [selector, json!([{"key": "mine"}]), Value::Null]);
    assert_eq!(cluster.training("moved")["spec"], pinned("moved")["spec"], "its own spec stays as its user wrote it");
}
