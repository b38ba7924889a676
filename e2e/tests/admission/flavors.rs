//! ResourceFlavors: their order, taints and node selectors, capacity tiers, a missing flavor, and the restored template of a stopped job.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, NODE, WORKLOAD, condition, condition_object, text};
use berth_e2e::manifest::{Job, cluster_queue, flavor, group, local_queue, merge, quota};
use berth_e2e::quickstart::{flavor_of, tier_of};
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

use crate::admission::POOL;

pub(crate) async fn order_taints_selectors(stage: &Stage) -> Result<()> {
    let s = stage.scenario("flavor-order").await?;
    let [blue, green, red] = ["blue", "green", "red"].map(|color| s.name(color));
    let mut tainted = flavor(&blue, &[(POOL, "blue")]);
    tainted["spec"]["nodeTaints"] = json!([{"key": "special", "value": "yes", "effect": "NoSchedule"}]);
    s.apply(&tainted).await?;
    s.apply(&flavor(&green, &[(POOL, "green")])).await?;
    s.apply(&flavor(&red, &[(POOL, "red")])).await?;
    let two = [quota("cpu", "2")];
    let groups = [group(&[(&blue, &two), (&green, &two), (&red, &two)])];
    s.apply(&cluster_queue(&s.name("cq"), &groups, &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;

    let toleration =
        json!({"tolerations": [{"key": "special", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]});
    let red_selector = json!({"nodeSelector": {(POOL): "red"}});
    let red_affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": POOL, "operator": "In", "values": ["red"]}]}]}}}});
    let steps: [(&str, Value, &str, &str); 5] = [
        ("plain", json!({}), &green, "green-0"),
        ("tolerant", toleration, &blue, "blue-0"),
        ("selected", red_selector, &red, "red-0"),
        ("affine", red_affinity, &red, "red-0"),
        ("second", json!({}), &green, "green-0"),
    ];
    for (name, spec, expected, node) in &steps {
        s.create(s.job(name).pod_spec(spec).endless()).await?;
        let workload = s.admitted(name).await?;
        ensure!(flavor_of(&workload) == *expected, "{name} was admitted to {}", workload["status"]["admission"]);
        let nodes = s.nodes_of(name, 1).await?;
        ensure!(nodes == [*node], "{name} landed on {nodes:?}");
    }
    // The flavors green and red are full and the taint of blue keeps jobs away, so no flavor is left for a job without tolerations.
    s.create(s.job("no-room").endless()).await?;
    let waiting = s.pending("no-room").await?;
    let message =
        condition_object(&waiting, "QuotaReserved").map(|c| text(c, "/message").to_owned()).unwrap_or_default();
    ensure!(
        message.contains(&format!("in flavor {blue}")) && message.contains("untolerated taint"),
        "message: {message}"
    );
    s.conclude().await
}

/// A flavor of one tier: its jobs tolerate the taint of its nodes, and its pods do not go to nodes with one of the `forbidden` labels.
pub(crate) fn tier(name: &str, labels: &[(&str, &str)], taint: Option<(&str, &str)>, forbidden: &str) -> Value {
    let mut object = flavor(name, labels);
    merge(&mut object["metadata"], &json!({"annotations": {"berth.dev/forbidden-node-labels": forbidden}}));
    if let Some((key, value)) = taint {
        object["spec"]["nodeTaints"] = json!([{"key": key, "value": value, "effect": "NoSchedule"}]);
        object["spec"]["tolerations"] =
            json!([{"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}]);
    }
    object
}

pub(crate) const RESERVATION: &str = "cloud.google.com/reservation-name";
pub(crate) const SPOT: &str = "cloud.google.com/gke-spot";

fn chips(s: &Scenario<'_>, name: &str) -> Job {
    s.job(name).requests(&[("google.com/tpu", "4")]).endless()
}

pub(crate) async fn tiers(stage: &Stage) -> Result<()> {
    let s = stage.scenario("tiers").await?;
    let accelerator = ("cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-podslice");
    let [reserved, demand, spot] = ["reserved", "on-demand", "spot"].map(|tier| s.name(tier));
    s.apply(&tier(&reserved, &[accelerator, (RESERVATION, "e2e")], Some((RESERVATION, "e2e")), SPOT)).await?;
    let neither = format!("{RESERVATION},{SPOT}");
    s.apply(&tier(&demand, &[accelerator, ("cloud.google.com/gke-provisioning", "standard")], None, &neither)).await?;
    s.apply(&tier(&spot, &[accelerator, (SPOT, "true")], Some((SPOT, "true")), RESERVATION)).await?;
    let (four, eight) = ([quota("google.com/tpu", "4")], [quota("google.com/tpu", "8")]);
    let groups = [group(&[(&reserved, &four), (&demand, &four), (&spot, &eight)])];
    s.apply(&cluster_queue(&s.name("cq"), &groups, &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;

    // A job that selects the nodes of a tier itself gets the tier of its own selector, whatever tier the queue tries at first.
    let pinned = json!({"nodeSelector": {(SPOT): "true"}, "tolerations": [{"key": SPOT, "operator": "Exists"}]});
    s.create(chips(&s, "pinned").pod_spec(&pinned)).await?;
    s.admitted("pinned").await?;
    for name in ["first", "second", "third"] {
        s.create(chips(&s, name)).await?;
        s.admitted(name).await?;
    }
    for (name, expected) in [("pinned", "spot"), ("first", "reserved"), ("second", "on-demand"), ("third", "spot")] {
        let workload = s.workload_of(name).await?.context("the workload exists")?;
        ensure!(flavor_of(&workload) == s.name(expected), "{name}: {}", workload["status"]["admission"]);
        let nodes = s.nodes_of(name, 1).await?;
        let node = NODE.get(&s.client, "", &nodes.concat()).await?.context("the pod's node exists")?;
        ensure!(tier_of(&node) == expected, "{name} was admitted to {expected} and landed on {nodes:?}");
    }
    let second = s.get_job("second").await?;
    let affinity = second["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].to_string();
    ensure!(affinity.contains(RESERVATION) && affinity.contains("DoesNotExist"), "affinity: {affinity}");
    s.create(chips(&s, "fourth")).await?;
    s.pending("fourth").await?;
    s.remove("first").await?;
    let fourth = s.admitted("fourth").await?;
    ensure!(flavor_of(&fourth) == reserved, "fourth: {}", fourth["status"]["admission"]);
    s.conclude().await
}

pub(crate) async fn missing_then_added(stage: &Stage) -> Result<()> {
    let s = stage.scenario("flavor-missing").await?;
    let (name, queue) = (s.name("flavor"), s.name("cq"));
    s.apply(&cluster_queue(&queue, &[group(&[(&name, &[quota("cpu", "2")])])], &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &queue)).await?;
    let inactive = s.object_is(CLUSTER_QUEUE, &queue, "Active=False", |q| condition(q, "Active") == "False").await?;
    let active = condition_object(&inactive, "Active").cloned().unwrap_or_default();
    ensure!(text(&active, "/reason") == "FlavorNotFound", "{active}");
    ensure!(text(&active, "/message").contains(&name), "{active}");
    s.create(s.job("waiting")).await?;
    s.pending("waiting").await?;
    s.stays_pending("waiting").await?;
    s.apply(&flavor(&name, &[])).await?;
    s.object_is(CLUSTER_QUEUE, &queue, "Active=True", |q| condition(q, "Active") == "True").await?;
    s.admitted("waiting").await?;
    s.finished("waiting").await?;
    s.conclude().await
}

pub(crate) async fn selector_taken_back(stage: &Stage) -> Result<()> {
    let s = stage.scenario("selector-back").await?;
    let name = s.name("flavor");
    s.apply(&flavor(&name, &[(POOL, "blue")])).await?;
    s.apply(&cluster_queue(&s.name("cq"), &[group(&[(&name, &[quota("cpu", "2")])])], &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    let own = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let created = s.create(s.job("moved").pod_spec(&own).endless().termination_ms(700)).await?;
    let workload = s.admitted("moved").await?;
    let running = s.get_job("moved").await?;
    let selector = &running["spec"]["template"]["spec"]["nodeSelector"];
    ensure!(*selector == json!({"kubernetes.io/os": "linux", (POOL): "blue"}), "selector: {selector}");
    let nodes = s.nodes_of("moved", 1).await?;
    ensure!(nodes == ["blue-0"], "landed on {nodes:?}");
    // The Workload is deactivated: the job is stopped, its template is restored, and its quota is free only after the slow pod is gone (the
    // observer's invariants L4 and L7).
    let name = text(&workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.job_is("moved", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    s.workload("moved", "quota released", |w| condition(w, "QuotaReserved") == "False").await?;
    let evicted = s.workload("moved", "Evicted", |w| condition(w, "Evicted") == "True").await?;
    let reason = condition_object(&evicted, "Evicted").cloned().unwrap_or_default();
    ensure!(text(&reason, "/reason") == "Deactivated", "{reason}");
    let stopped = s.get_job("moved").await?;
    ensure!(
        stopped["spec"]["template"] == created["spec"]["template"],
        "template {} was {}",
        stopped["spec"]["template"],
        created["spec"]["template"]
    );
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": true}})).await?;
    s.admitted("moved").await?;
    s.conclude().await
}
