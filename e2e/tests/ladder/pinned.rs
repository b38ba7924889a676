//! Jobs that carry the selectors of a tier themselves, as AxLearn writes them.

use anyhow::{Result, ensure};
use berth_e2e::manifest::Job;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::json;

use crate::{ACCELERATOR, RESERVATION, SPOT, chips, ladder, lands, policy};

/// A v5e job as the bastion's builder writes it: on spot, or in a reservation.
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
    ladder(&s, "nowhere", "4").await?;
    policy(&s, &json!({"capacityTiers": {"default": ["on-demand"], "patience": {"reserved": "1h"}}})).await?;
    let created = s.create(axlearn(&s, "spot", None)).await?;
    lands(&s, "spot", "spot").await?;
    s.create(axlearn(&s, "again", None)).await?;
    let waiting = s.pending("again").await?;
    let told = crate::message(&waiting, "QuotaReserved");
    ensure!(told.contains(&s.name("spot")), "pinned to spot, whose quota is in use: {told}");
    // The reservation has quota and no nodes; it is waited for, since no other tier would do.
    s.create(axlearn(&s, "reserved", Some("nowhere"))).await?;
    let held = s.admitted("reserved").await?;
    ensure!(berth_e2e::quickstart::flavor_of(&held) == s.name("reserved"), "{}", held["status"]["admission"]);
    s.create(chips(&s, "silent")).await?;
    lands(&s, "silent", "on-demand").await?;
    let running = s.get_job("spot").await?;
    let selector = |job: &serde_json::Value| job["spec"]["template"]["spec"]["nodeSelector"].clone();
    ensure!(selector(&running) == selector(&created), "{} was {}", selector(&running), selector(&created));
    s.conclude().await
}

pub(crate) async fn taken_down_the_ladder(stage: &Stage) -> Result<()> {
    let s = stage.scenario("overridden").await?;
    ladder(&s, "nowhere", "4").await?;
    let tiers = json!({
        "default": ["reserved", "on-demand", "spot"], "selectors": "Override", "patience": {"reserved": "3s"},
    });
    policy(&s, &json!({"capacityTiers": tiers})).await?;
    // It asks for spot; by policy alone it tries the reservation, which has no nodes, and goes on demand.
    let created = s.create(axlearn(&s, "moved", None)).await?;
    lands(&s, "moved", "on-demand").await?;
    let moved = s.workload_of("moved").await?.unwrap_or_default();
    ensure!(crate::message(&moved, "Evicted").contains("had no nodes"), "{}", moved["status"]["conditions"]);
    let running = s.get_job("moved").await?;
    let template = &running["spec"]["template"];
    ensure!(template["spec"]["nodeSelector"].get(SPOT).is_none(), "{}", template["spec"]["nodeSelector"]);
    ensure!(template["metadata"]["labels"].get("bastion-tier").is_none(), "{}", template["metadata"]["labels"]);
    s.create(axlearn(&s, "next", None)).await?;
    lands(&s, "next", "spot").await?;
    // Stopped, it is as it was written.
    let name = berth_e2e::kinds::text(&moved, "/metadata/name");
    berth_e2e::kinds::WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.workload("moved", "quota released", |w| berth_e2e::kinds::condition(w, "QuotaReserved") == "False").await?;
    let stopped = s.get_job("moved").await?;
    ensure!(
        stopped["spec"]["template"] == created["spec"]["template"],
        "template {} was {}",
        stopped["spec"]["template"],
        created["spec"]["template"]
    );
    s.conclude().await
}
