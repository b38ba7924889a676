//! Requests of pods that need quota, and requests that need none.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{condition_object, text};
use berth_e2e::manifest::{Job, cluster_queue, flavor, group, local_queue, quota};
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::json;

/// A job of one pod that requests `count` GPU slices, each with `percent` percent of the cores and `megabytes` megabytes of the memory of a GPU.
fn slices(s: &Scenario<'_>, name: &str, count: &str, percent: &str, megabytes: &str) -> Job {
    let requests = [("nvidia.com/gpu", count), ("nvidia.com/gpucores", percent), ("nvidia.com/gpumem", megabytes)];
    let tolerations = json!({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]});
    s.job(name).requests(&requests).pod_spec(&tolerations).endless()
}

/// The smallest units of quota for GPU slices are one percent of a GPU's cores and one megabyte of its memory.
pub(crate) async fn gpu_slices(stage: &Stage) -> Result<()> {
    let s = stage.scenario("gpu-slices").await?;
    let (kind, queue) = (s.name("flavor"), s.name("cq"));
    s.apply(&flavor(&kind, &[])).await?;
    let group = group(&[(&kind, &[quota("gpu-percent", "100"), quota("gpu-megabytes", "1000")])]);
    s.apply(&cluster_queue(&queue, &[group], &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &queue)).await?;
    s.create(slices(&s, "two", "2", "30", "400")).await?;
    let workload = s.admitted("two").await?;
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    ensure!(*usage == json!({"gpu-percent": "60", "gpu-megabytes": "800"}), "{usage}");
    s.create(slices(&s, "over", "1", "41", "200")).await?;
    let reported = s.pending("over").await?;
    let reported = condition_object(&reported, "QuotaReserved").cloned().unwrap_or_default();
    let expected = format!("insufficient unused quota for gpu-percent in flavor {kind}, 1 more needed");
    ensure!(text(&reported, "/message").contains(&expected), "{reported}");
    s.create(slices(&s, "wide", "1", "1", "201")).await?;
    let reported = s.pending("wide").await?;
    let reported = condition_object(&reported, "QuotaReserved").cloned().unwrap_or_default();
    let expected = format!("insufficient unused quota for gpu-megabytes in flavor {kind}, 1 more needed");
    ensure!(text(&reported, "/message").contains(&expected), "{reported}");
    s.create(slices(&s, "fits", "1", "40", "200")).await?;
    s.admitted("fits").await?;
    s.nodes_of("fits", 1).await?;
    s.remove("two").await?;
    s.admitted("over").await?;
    s.conclude().await
}

/// A resource that the configuration excludes needs no quota.
pub(crate) async fn excluded(stage: &Stage) -> Result<()> {
    let s = stage.scenario("excluded").await?;
    licensed(&s).await?;
    s.conclude().await
}

/// With the strategy IgnoreUndeclared a resource that the queue does not cover needs no quota.
pub(crate) async fn undeclared(stage: &Stage) -> Result<()> {
    let s = stage.scenario("undeclared").await?;
    licensed(&s).await?;
    s.conclude().await
}

async fn licensed(s: &Scenario<'_>) -> Result<()> {
    s.simple_queue("1", &json!({})).await?;
    s.create(s.job("licensed").requests(&[("cpu", "1"), ("e2e.berth.dev/license", "1")])).await?;
    let workload = s.admitted("licensed").await?;
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    ensure!(*usage == json!({"cpu": "1"}), "{usage}");
    s.finished("licensed").await
}
