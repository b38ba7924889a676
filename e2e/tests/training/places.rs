//! Placement of the pods of a TrainingJob that wants one topology domain for all of them: the real scheduler follows the affinity that Berth sets.
//!
//! The test has two racks of two nodes, and each node has room for two pods. Without affinity the scheduler spreads pods over nodes, so that three
//! pods of a job would be on both racks.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{NODE, TRAINING_JOB, condition, condition_object, text};
use berth_e2e::manifest::{self, group, merge, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use crate::training::stops::still;
use crate::training::{LIMIT, endless, is, phase, pods_of, training};

/// Label of a node with the name of its rack.
const RACK: &str = "e2e.berth.dev/rack";
/// Resource of the nodes for pods that must be on one rack.
const STRICT: &str = "e2e.berth.dev/strict";
/// Resource of the nodes for pods that should be on one rack: a resource of its own, so that both placements can be tested at the same time.
const LOOSE: &str = "e2e.berth.dev/loose";

/// The nodes of the rack `name`.
pub(crate) fn rack(name: &str) -> Pool {
    Pool::cpu(name, 2, Tier::OnDemand).label(RACK, name).offers(STRICT, "2").offers(LOOSE, "2")
}

/// The pods of a gang run on one rack or not at all; the pods of any other job run on one rack if the rack has room for them.
pub(crate) async fn on_one_rack(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("one-rack").await?;
    let s = &scenario;
    let flavor = s.name("flavor");
    s.apply(&manifest::flavor(&flavor, &[])).await?;
    let quotas = [quota("cpu", "20"), quota(STRICT, "10"), quota(LOOSE, "10")];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&[(&flavor, &quotas)])], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    futures::try_join!(required(s), preferred(s))?;
    scenario.conclude().await
}

async fn required(s: &Scenario<'_>) -> Result<()> {
    s.apply(&together(s, "gang", 3, STRICT, &json!({}))).await?;
    phase(s, "gang", "Running").await?;
    let there = racks(s, "gang").await?;
    ensure!(there.values().copied().collect::<Vec<_>>() == [3], "{there:?}");
    gone(s, "gang").await?;
    // The other rack is empty, and yet the fifth pod gets no node, because it may not be on the other rack: the gang is released after its timeout.
    s.apply(&together(s, "large", 5, STRICT, &json!({"schedulingTimeout": "20s"}))).await?;
    wait::until(LIMIT, "four of five pods are on one rack, and the fifth may not be on the other", || async {
        let there = racks(s, "large").await?;
        let pods = pods_of(s, "large").await?;
        let found_condition = pods.iter().filter_map(|pod| condition_object(pod, "PodScheduled"));
        let found_condition = found_condition.filter(|found_condition| text(found_condition, "/status") == "False");
        let why: Vec<&str> = found_condition.map(|found_condition| text(found_condition, "/message")).collect();
        let one_waits = why.len() == 1 && why.iter().all(|why| why.contains("pod affinity rules"));
        let on_one = there.values().copied().collect::<Vec<_>>() == [4];
        Ok(Seen::when(on_one && one_waits, || format!("{there:?} {why:?}")))
    })
    .await?;
    is(s, "large", "released", |job| condition(job, "SchedulingTimeout") == "True").await?;
    gone(s, "large").await
}

async fn preferred(s: &Scenario<'_>) -> Result<()> {
    let loose = json!({"gangScheduling": false});
    s.apply(&together(s, "near", 3, LOOSE, &loose)).await?;
    phase(s, "near", "Running").await?;
    let there = racks(s, "near").await?;
    ensure!(there.values().copied().collect::<Vec<_>>() == [3], "{there:?}");
    gone(s, "near").await?;
    s.apply(&together(s, "wide", 5, LOOSE, &loose)).await?;
    phase(s, "wide", "Running").await?;
    let there = racks(s, "wide").await?;
    ensure!(there.len() == 2 && there.values().sum::<usize>() == 5, "{there:?}");
    gone(s, "wide").await
}

/// A TrainingJob of `workers` workers that wants one rack; each worker requests one unit of the resource `room`. The fields of `more` are merged into
/// its `schedulingConfig`.
fn together(s: &Scenario<'_>, name: &str, workers: u32, room: &str, more: &Value) -> Value {
    let mut spec = endless();
    spec["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {(room): "1"}, "limits": {(room): "1"}});
    let wanted = json!({"resources": {"maxReplicas": workers, "topologyConstraint": RACK}, "schedulingConfig": more});
    merge(&mut spec, &wanted);
    training(s, name, "PyTorchJob", &spec)
}

/// Number of a TrainingJob's pods that are bound to nodes, by rack.
async fn racks(s: &Scenario<'_>, name: &str) -> Result<BTreeMap<String, usize>> {
    let nodes = NODE.list(&s.client, "").await?;
    let mut found = BTreeMap::new();
    for pod in pods_of(s, name).await? {
        let bound = text(&pod, "/spec/nodeName");
        if bound.is_empty() {
            continue;
        }
        let node =
            nodes.iter().find(|node| text(node, "/metadata/name") == bound).context("a node that is not there")?;
        let rack = node["metadata"]["labels"][RACK].as_str().unwrap_or("none");
        *found.entry(rack.to_owned()).or_default() += 1;
    }
    Ok(found)
}

/// Deletes a TrainingJob and waits until its pods are gone, which makes room for the next job.
async fn gone(s: &Scenario<'_>, name: &str) -> Result<()> {
    TRAINING_JOB.delete(&s.client, &s.namespace, name).await?;
    still(s, name).await
}
