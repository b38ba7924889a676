//! Jobs that have the node selectors of a tier themselves, as AxLearn writes them.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{WORKLOAD, condition, items, text};
use berth_e2e::manifest::{Job, cluster_queue, group, local_queue, quota};
use berth_e2e::quickstart::flavor_of;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

use crate::ladder::{ACCELERATOR, RESERVATION, SPOT, chips, message, policy, runs_in_tier, set_up_tiers, tpu};

/// A job for TPU v5e as the builder of AxLearn's bastion writes it: with a selector for spot nodes, or for nodes of GKE's reservation `reservation`.
pub(crate) fn axlearn(s: &Scenario<'_>, name: &str, reservation: Option<&str>) -> Job {
    let job = chips(s, name).pod_label("job-priority", "3").pod_label("user-id", "somebody");
    let tpu = json!({"key": "google.com/tpu", "operator": "Exists"});
    match reservation {
        Some(reservation) => job.pod_label("bastion-tier", "reserved").pod_spec(&json!({
            "nodeSelector": {(ACCELERATOR.0): ACCELERATOR.1, "cloud.google.com/gke-tpu-topology": "2x4",
                (RESERVATION): reservation},
            "tolerations": [tpu, {"key": RESERVATION, "operator": "Exists"}],
        })),
        None => job.pod_label("bastion-tier", "spot").pod_spec(&json!({
            "nodeSelector": {(ACCELERATOR.0): ACCELERATOR.1, "cloud.google.com/gke-tpu-topology": "2x4", (SPOT): "true"},
            "tolerations": [tpu, {"key": SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        })),
    }
}

pub(crate) async fn by_its_own_selectors(stage: &Stage) -> Result<()> {
    let s = stage.scenario("pinned-tiers").await?;
    set_up_tiers(&s, "nowhere", "4").await?;
    policy(&s, &json!({"capacityTiers": {"default": ["on-demand"], "patience": {"reserved": "1h"}}})).await?;
    let created = s.create(axlearn(&s, "spot", None)).await?;
    runs_in_tier(&s, "spot", "spot").await?;
    s.create(axlearn(&s, "again", None)).await?;
    let waiting = s.pending("again").await?;
    let text = crate::ladder::message(&waiting, "QuotaReserved");
    ensure!(text.contains(&s.name("spot")), "pinned to spot, whose quota is in use: {text}");
    // The reserved tier has quota but no nodes; the admitted job waits for nodes, because it accepts no other tier.
    s.create(axlearn(&s, "reserved", Some("nowhere"))).await?;
    let held = s.admitted("reserved").await?;
    ensure!(berth_e2e::quickstart::flavor_of(&held) == s.name("reserved"), "{}", held["status"]["admission"]);
    s.create(chips(&s, "silent")).await?;
    runs_in_tier(&s, "silent", "on-demand").await?;
    let running = s.get_job("spot").await?;
    let selector = |job: &serde_json::Value| job["spec"]["template"]["spec"]["nodeSelector"].clone();
    ensure!(selector(&running) == selector(&created), "{} was {}", selector(&running), selector(&created));
    s.conclude().await
}

pub(crate) async fn pinned_job_falls_back(stage: &Stage) -> Result<()> {
    let s = stage.scenario("overridden").await?;
    futures::try_join!(one_tier_down(&s), all_the_way_down(&s))?;
    s.conclude().await
}

/// A job with a selector for spot: because the QueuePolicy overrides the selector, the job is admitted to the reserved tier, which has no nodes, and then gets
/// on-demand capacity.
async fn one_tier_down(s: &Scenario<'_>) -> Result<()> {
    set_up_tiers(s, "nowhere", "4").await?;
    let tiers = json!({
        "default": ["reserved", "on-demand", "spot"], "selectors": "Override", "patience": {"reserved": "1s"},
    });
    policy(s, &json!({"capacityTiers": tiers})).await?;
    let created = s.create(axlearn(s, "moved", None)).await?;
    runs_in_tier(s, "moved", "on-demand").await?;
    let moved = s.workload_of("moved").await?.unwrap_or_default();
    ensure!(message(&moved, "Evicted").contains("had no nodes"), "{}", moved["status"]["conditions"]);
    let running = s.get_job("moved").await?;
    let template = &running["spec"]["template"];
    ensure!(template["spec"]["nodeSelector"].get(SPOT).is_none(), "{}", template["spec"]["nodeSelector"]);
    ensure!(template["metadata"]["labels"].get("bastion-tier").is_none(), "{}", template["metadata"]["labels"]);
    s.create(axlearn(s, "next", None)).await?;
    runs_in_tier(s, "next", "spot").await?;
    is_restored(s, &created).await
}

/// A job with a selector for a reservation of GKE that has no nodes, in a zone without on-demand nodes: the job falls back to spot, in a queue of its own.
async fn all_the_way_down(s: &Scenario<'_>) -> Result<()> {
    let name = |tier: &str| s.name(&format!("deep-{tier}"));
    let [spot, demand, reserved] = ["spot", "on-demand", "reserved"].map(|tier| (tier, name(tier)));
    for (tier, flavor) in [&spot, &demand, &reserved] {
        let mut object = tpu(flavor, tier, "nowhere");
        if *tier == "on-demand" {
            object["spec"]["nodeLabels"]["topology.kubernetes.io/zone"] = json!("us-nowhere1-a");
        }
        s.apply(&object).await?;
    }
    let chips = [quota("google.com/tpu", "4")];
    let flavors = [&spot, &demand, &reserved].map(|(_, flavor)| (flavor.as_str(), chips.as_slice()));
    s.apply(&cluster_queue(&name("cq"), &[group(&flavors)], &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "deep", &name("cq"))).await?;
    let tiers = json!({
        "default": ["reserved", "on-demand", "spot"], "selectors": "Override",
        "patience": {"reserved": "1s", "on-demand": "1s"}, "backoff": {"initial": "10m", "max": "1h"},
    });
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": name("policy")},
        "spec": {"clusterQueues": [name("cq")], "capacityTiers": tiers}}))
        .await?;
    let job = axlearn(s, "sunk", Some("nowhere")).label("kueue.x-k8s.io/queue-name", "deep");
    let created = s.create(job).await?;
    for (tier, flavor) in [&reserved, &demand] {
        let words = format!("flavor {flavor} ({tier} capacity) had no nodes for all 1 pods within ");
        s.workload("sunk", &format!("out of {tier}"), |w| message(w, "Evicted").contains(&words)).await?;
    }
    let sunk = s
        .workload("sunk", "admitted to spot", |w| condition(w, "Admitted") == "True" && flavor_of(w) == spot.1)
        .await?;
    let evictions = items(&sunk, "/status/schedulingStats/evictions");
    let as_expected = |one: &Value| text(one, "/reason") == "StockOut" && one["count"] == json!(2);
    ensure!(evictions.len() == 1 && evictions.iter().all(as_expected), "{evictions:?}");
    for node in s.nodes_of("sunk", 1).await? {
        ensure!(node.starts_with("tpu-spot-"), "a pod landed on {node}");
    }
    let running = s.get_job("sunk").await?;
    let template = &running["spec"]["template"];
    let selector = &template["spec"]["nodeSelector"];
    ensure!(selector[SPOT] == json!("true") && selector.get(RESERVATION).is_none(), "{selector}");
    ensure!(template["metadata"]["labels"].get("bastion-tier").is_none(), "{}", template["metadata"]["labels"]);
    for (tier, left) in [("reserved", 1.0), ("on-demand", 1.0), ("spot", 0.0)] {
        is_counted(s, &name("cq"), tier, left).await?;
    }
    is_restored(s, &created).await
}

/// Waits until the metrics count one admission to the tier `tier` of a queue, and `left` departures from the tier, all because of missing nodes.
async fn is_counted(s: &Scenario<'_>, queue: &str, tier: &str, left: f64) -> Result<()> {
    let (queue, tier) = (format!(r#"cluster_queue="{queue}""#), format!(r#"tier="{tier}""#));
    let place = [queue.as_str(), tier.as_str()];
    wait::until(STEP, &format!("figures of {tier}"), || async {
        let manager = &s.stage.manager;
        let given = manager.metric("berth_tier_admissions_total", &place).await?;
        let gone = manager.metric("berth_tier_departures_total", &place).await?.unwrap_or(0.0);
        let for_want = [place[0], place[1], r#"reason="StockOut""#];
        let out = manager.metric("berth_tier_departures_total", &for_want).await?.unwrap_or(0.0);
        let as_expected = given == Some(1.0) && gone == left && out == left;
        Ok(Seen::when(as_expected, || format!("{given:?} admissions, {gone} departures, {out} of them StockOut")))
    })
    .await
}

/// Stops a job by its Workload, and checks that the job's template is as it was written.
async fn is_restored(s: &Scenario<'_>, created: &Value) -> Result<()> {
    let job = text(created, "/metadata/name");
    let workload = s.workload_of(job).await?.unwrap_or_default();
    let name = text(&workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.workload(job, "quota released", |w| condition(w, "QuotaReserved") == "False").await?;
    let stopped = s.get_job(job).await?;
    ensure!(
        stopped["spec"]["template"] == created["spec"]["template"],
        "template {} was {}",
        stopped["spec"]["template"],
        created["spec"]["template"]
    );
    Ok(())
}
