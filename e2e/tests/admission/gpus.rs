//! GPUs in three tiers, with the labels and taints of a managed cloud: all pods of a job go into the first tier that has quota for all of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, NODE, items, text};
use berth_e2e::manifest::{Job, cluster_queue, group, local_queue, quota};
use berth_e2e::quickstart::{flavor_of, tier_of};
use berth_e2e::quota_tree::thousandths;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

use crate::admission::flavors::{RESERVATION, SPOT, tier};

const GPU: &str = "nvidia.com/gpu";
const ACCELERATOR: (&str, &str) = ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb");

/// A job whose pod requests half of a node's GPUs.
fn devices(s: &Scenario<'_>, name: &str) -> Job {
    s.job(name).requests(&[(GPU, "4"), ("cpu", "16"), ("memory", "64Gi")]).endless()
}

/// Number of GPUs in use, by flavor.
fn used(queue: &Value) -> BTreeMap<String, i128> {
    let devices = |flavor: &Value| -> i128 {
        let gpus = items(flavor, "/resources").iter().filter(|r| text(r, "/name") == GPU);
        gpus.filter_map(|r| r.get("total").and_then(thousandths)).sum::<i128>() / 1000
    };
    items(queue, "/status/flavorsUsage").iter().map(|f| (text(f, "/name").to_owned(), devices(f))).collect()
}

/// Waits until the job is admitted, and checks that its pods are on the node of the tier `expected`.
async fn runs_in_tier(s: &Scenario<'_>, job: &str, pods: usize, expected: &str) -> Result<()> {
    let workload = s.admitted(job).await?;
    ensure!(flavor_of(&workload) == s.name(expected), "{job}: {}", workload["status"]["admission"]);
    let machine = format!("gpu-{}-0", expected.trim_start_matches("on-"));
    for name in s.nodes_of(job, pods).await? {
        ensure!(name == machine, "a pod of {job} landed on {name}, not on {machine}");
        let node = NODE.get(&s.client, "", &name).await?.context("the pod's node exists")?;
        ensure!(tier_of(&node) == expected, "{job} was admitted to {expected}; {name}: {}", node["metadata"]["labels"]);
        ensure!(node["metadata"]["labels"][ACCELERATOR.0] == json!(ACCELERATOR.1), "{}", node["metadata"]["labels"]);
    }
    Ok(())
}

pub(crate) async fn tiers(stage: &Stage) -> Result<()> {
    let s = stage.scenario("gpu-tiers").await?;
    let [reserved, demand, spot] = ["reserved", "on-demand", "spot"].map(|tier| s.name(tier));
    s.apply(&tier(&reserved, &[ACCELERATOR, (RESERVATION, "h100")], Some((RESERVATION, "h100")), SPOT)).await?;
    let neither = format!("{RESERVATION},{SPOT}");
    let standard = [ACCELERATOR, ("cloud.google.com/gke-provisioning", "standard")];
    s.apply(&tier(&demand, &standard, None, &neither)).await?;
    s.apply(&tier(&spot, &[ACCELERATOR, (SPOT, "true")], Some((SPOT, "true")), RESERVATION)).await?;
    let machine = [quota(GPU, "8"), quota("cpu", "128"), quota("memory", "1Ti")];
    let groups = [group(&[(&reserved, &machine), (&demand, &machine), (&spot, &machine)])];
    s.apply(&cluster_queue(&s.name("cq"), &groups, &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;

    s.create(devices(&s, "first")).await?;
    runs_in_tier(&s, "first", 1, "reserved").await?;
    // Half of the GPUs of the reserved tier are free, which is too little for the two pods of the job `wide`; the job is not split over two tiers.
    s.create(devices(&s, "wide").pods(2)).await?;
    runs_in_tier(&s, "wide", 2, "on-demand").await?;
    s.create(devices(&s, "second")).await?;
    runs_in_tier(&s, "second", 1, "reserved").await?;
    for name in ["third", "fourth"] {
        s.create(devices(&s, name)).await?;
        runs_in_tier(&s, name, 1, "spot").await?;
    }
    let full = BTreeMap::from([(reserved.clone(), 8), (demand.clone(), 8), (spot.clone(), 8)]);
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "8 devices of each tier used", |q| used(q) == full).await?;
    // All three nodes are full; when a job on one of the nodes ends, the next job goes to that node.
    s.create(devices(&s, "fifth")).await?;
    s.pending("fifth").await?;
    s.remove("wide").await?;
    runs_in_tier(&s, "fifth", 1, "on-demand").await?;
    s.conclude().await
}
