//! Capacity fallback: at once if a tier has no quota, and after the patience if a tier has no nodes.

use anyhow::{Result, ensure};
use berth_e2e::autoscaler;
use berth_e2e::kinds::{self, POD, QUEUE_POLICY, condition, condition_object, items, text};
use berth_e2e::manifest::{cluster_queue, flavor, group, local_queue, merge, quota};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::api::DeleteParams;
use serde_json::json;

use crate::ladder::{POOL, SPOT, TIERS, chips, message, policy, runs_in_tier, set_up_tiers};

pub(crate) async fn reserved_is_full(stage: &Stage) -> Result<()> {
    let s = stage.scenario("reserved-full").await?;
    set_up_tiers(&s, "e2e", "4").await?;
    for (name, tier) in [("first", "reserved"), ("second", "on-demand")] {
        s.create(chips(&s, name).annotation(TIERS, "reserved,on-demand")).await?;
        runs_in_tier(&s, name, tier).await?;
    }
    // The spot tier is free, but the job's annotation does not accept it.
    s.create(chips(&s, "third").annotation(TIERS, "reserved,on-demand")).await?;
    s.pending("third").await?;
    s.create(chips(&s, "cheap").annotation(TIERS, "spot")).await?;
    runs_in_tier(&s, "cheap", "spot").await?;
    s.remove("first").await?;
    runs_in_tier(&s, "third", "reserved").await?;
    s.conclude().await
}

/// Waits until the event about a Workload's reservation names the tier that the Workload got.
async fn tier_is_reported(s: &Scenario<'_>, workload: &str, tier: &str) -> Result<()> {
    let words = format!("; capacity tier {tier}");
    wait::until(STEP, &format!("an event QuotaReserved about {workload} with {words:?}"), || async {
        let mut events = kinds::EVENT.list(&s.client, &s.namespace).await?;
        events.retain(|e| text(e, "/involvedObject/name") == workload && text(e, "/reason") == "QuotaReserved");
        let found_message: Vec<&str> = events.iter().map(|e| text(e, "/message")).collect();
        Ok(Seen::when(found_message.iter().any(|message| message.contains(&words)), || format!("{found_message:?}")))
    })
    .await
}

/// Waits until a line of Berth's log has all of `words`.
async fn logged(stage: &Stage, words: &[&str]) -> Result<()> {
    wait::until(STEP, &format!("a line of the log with {words:?}"), || async {
        let log = std::fs::read_to_string(stage.manager.log())?;
        let message = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        Ok(Seen::when(message, || stage.manager.log_tail(10)))
    })
    .await
}

pub(crate) async fn reserved_has_no_nodes(stage: &Stage) -> Result<()> {
    let s = stage.scenario("stock-out").await?;
    set_up_tiers(&s, "nowhere", "8").await?;
    let tiers = json!({
        "default": ["reserved", "on-demand"], "patience": {"reserved": "1s"},
        "backoff": {"initial": "10m", "max": "1h"},
    });
    policy(&s, &json!({"capacityTiers": tiers})).await?;
    // The job names no tiers itself; the QueuePolicy does.
    s.create(chips(&s, "first")).await?;
    let evicted = s.workload("first", "evicted once", |w| !condition(w, "Evicted").is_empty()).await?;
    let reason = condition_object(&evicted, "Evicted").cloned().unwrap_or_default();
    ensure!(text(&reason, "/reason") == "StockOut" || text(&reason, "/reason") == "QuotaReserved", "{reason}");
    let words = format!("flavor {} (reserved capacity) had no nodes for all 1 pods within ", s.name("reserved"));
    ensure!(message(&evicted, "Evicted").contains(&words), "{reason}");
    runs_in_tier(&s, "first", "on-demand").await?;
    let name = text(&evicted, "/metadata/name");
    for tier in ["reserved", "on-demand"] {
        tier_is_reported(&s, name, tier).await?;
    }
    let reserved = s.name("reserved");
    logged(stage, &[&s.namespace, name, "admitted to a capacity tier", "\"tier\":\"reserved\"", &reserved]).await?;
    logged(stage, &[&s.namespace, name, "left a capacity tier", "\"tier\":\"reserved\"", "StockOut"]).await?;
    logged(stage, &[&s.namespace, name, "admitted to a capacity tier", "\"tier\":\"on-demand\""]).await?;
    // The next job is not sent to the tier that is out of stock.
    s.create(chips(&s, "second")).await?;
    runs_in_tier(&s, "second", "on-demand").await?;
    let second = s.workload_of("second").await?.unwrap_or_default();
    ensure!(condition(&second, "Evicted").is_empty(), "{}", second["status"]["conditions"]);
    // The message to a job that accepts only the tier that is out of stock names the end of the back-off.
    s.create(chips(&s, "insists").annotation(TIERS, "reserved")).await?;
    let waiting = s.pending("insists").await?;
    let found_message = message(&waiting, "QuotaReserved");
    ensure!(
        found_message.contains("is out of stock until ") && found_message.contains("1 pods of this shape got no nodes"),
        "{found_message}"
    );
    let shown = s
        .object_is(QUEUE_POLICY, &s.name("policy"), "shows the stock-out", |p| !items(p, "/status/backoffs").is_empty())
        .await?;
    let backoff = &items(&shown, "/status/backoffs")[0];
    ensure!(text(backoff, "/flavor") == s.name("reserved") && backoff["pods"] == json!(1), "{backoff}");
    ensure!(kinds::condition(&shown, "Active") == "True", "{}", shown["status"]);
    s.object_is(QUEUE_POLICY, &s.name("policy"), "counts two jobs on demand", |p| {
        items(p, "/status/tiers").iter().any(|t| text(t, "/tier") == "on-demand" && t["admittedWorkloads"] == json!(2))
    })
    .await?;
    s.conclude().await
}

/// A scripted autoscaler writes the event about a pod that GKE's autoscaler writes when a zone has no machines left.
pub(crate) async fn autoscaler_gets_no_nodes(stage: &Stage) -> Result<()> {
    let s = stage.scenario("scale-up-failed").await?;
    set_up_tiers(&s, "nowhere", "8").await?;
    let tiers = json!({"default": ["reserved", "on-demand"], "patience": {"reserved": "40s"}});
    policy(&s, &json!({"capacityTiers": tiers})).await?;
    s.create(chips(&s, "first")).await?;
    s.admitted("first").await?;
    let pod = wait::until(STEP, "a pod without a node", || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let stuck = pods.into_iter().find(|pod| condition(pod, "PodScheduled") == "False");
        Ok(stuck.map_or_else(|| Seen::NotYet("none".to_owned()), Seen::Yes))
    })
    .await?;
    let words = "Node scale up in zones us-east5-b associated with this pod failed: out of resources";
    autoscaler::gets_no_node(&s.client, &pod, words).await?;
    runs_in_tier(&s, "first", "on-demand").await?;
    let evicted = s.workload("first", "evicted once", |w| !condition(w, "Evicted").is_empty()).await?;
    ensure!(message(&evicted, "Evicted").contains(words), "{}", evicted["status"]);
    s.conclude().await
}

pub(crate) async fn back_up(stage: &Stage) -> Result<()> {
    let s = stage.scenario("climb-back").await?;
    set_up_tiers(&s, "e2e", "4").await?;
    let promotion = json!({"when": "Anytime", "minStay": "1s", "hysteresis": "1s", "maxTimes": 1});
    policy(&s, &json!({"capacityTiers": {"default": ["reserved", "on-demand"], "climbBack": promotion}})).await?;
    s.create(chips(&s, "holder")).await?;
    s.workload("holder", "admitted to reserved", |w| condition(w, "Admitted") == "True").await?;
    s.next_second().await;
    s.create(chips(&s, "climber")).await?;
    let waiting = s.admitted("climber").await?;
    ensure!(berth_e2e::quickstart::flavor_of(&waiting) == s.name("on-demand"), "{}", waiting["status"]["admission"]);
    s.remove("holder").await?;
    s.workload("climber", "back on reserved", |w| {
        condition(w, "Admitted") == "True" && berth_e2e::quickstart::flavor_of(w) == s.name("reserved")
    })
    .await?;
    let back = s.workload_of("climber").await?.unwrap_or_default();
    let text = message(&back, "Evicted");
    ensure!(text.contains("goes back up from on-demand to reserved capacity"), "{text}");
    s.conclude().await
}

/// Creates a queue with spot capacity in the node pool `pool`, and with on-demand capacity.
async fn on_spot_first(s: &Scenario<'_>, pool: &str, patience: &str) -> Result<(String, String)> {
    let cpus = [quota("cpu", "4")];
    let (spot, demand) = (s.name("spot"), s.name("on-demand"));
    for (name, tier, pool) in [(&spot, "spot", pool), (&demand, "on-demand", "stable")] {
        let mut object = flavor(name, &[(POOL, pool)]);
        merge(&mut object["metadata"], &json!({"labels": {"berth.dev/capacity-tier": tier}}));
        object["spec"]["tolerations"] = json!([{"key": SPOT, "operator": "Exists"}]);
        s.apply(&object).await?;
    }
    s.apply(&cluster_queue(&s.name("cq"), &[group(&[(&demand, &cpus), (&spot, &cpus)])], &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    let patience = json!({"spot": patience});
    policy(s, &json!({"capacityTiers": {"default": ["spot", "on-demand"], "patience": patience}})).await?;
    Ok((spot, demand))
}

/// GKE announces that a node will be taken away in a few seconds: the job moves to the next tier before its pods are lost.
pub(crate) async fn nodes_that_are_about_to_go(stage: &Stage) -> Result<()> {
    let s = stage.scenario("announced").await?;
    let (spot, demand) = on_spot_first(&s, "announced", "1h").await?;
    s.create(s.job("cheap").endless()).await?;
    let node_names = s.nodes_of("cheap", 1).await?;
    ensure!(node_names == ["announced-0"], "{node_names:?}");
    let (ending, taint) =
        ("cloud.google.com/impending-node-termination", |key| json!({"key": key, "effect": "NoSchedule"}));
    let taints = json!({"spec": {"taints": [taint(SPOT), taint(ending)]}});
    kinds::NODE.patch(&s.client, "", "announced-0", &taints).await?;
    let moved = s
        .workload("cheap", "on demand", |w| {
            condition(w, "Admitted") == "True" && berth_e2e::quickstart::flavor_of(w) == demand
        })
        .await?;
    let text = message(&moved, "Evicted");
    let words = format!("flavor {spot} (spot capacity) takes node announced-0 back: it has the taint {ending}");
    ensure!(text.contains(&words), "{text}");
    // The pod that has ended may still exist for a moment.
    wait::until(STEP, "its only pod is on stable-0", || async {
        let nodes = s.nodes_of("cheap", 1).await?;
        Ok(Seen::when(nodes == ["stable-0"], || format!("{nodes:?}")))
    })
    .await?;
    s.create(s.job("next").endless()).await?;
    let next = s.admitted("next").await?;
    ensure!(berth_e2e::quickstart::flavor_of(&next) == demand, "{}", next["status"]["admission"]);
    s.conclude().await
}

pub(crate) async fn nodes_are_taken_back(stage: &Stage) -> Result<()> {
    let s = stage.scenario("reclaimed").await?;
    let (spot, demand) = on_spot_first(&s, "fleeting", "8s").await?;
    s.create(s.job("cheap").endless().spec(&json!({"backoffLimit": 6}))).await?;
    let node_names = s.nodes_of("cheap", 1).await?;
    ensure!(node_names == ["fleeting-0"], "{node_names:?}");
    s.job_is("cheap", "ready", |j| j["status"]["ready"] == json!(1)).await?;
    // The cloud takes the node away, and its pod with it.
    kinds::NODE.delete(&s.client, "", "fleeting-0").await?;
    let params = DeleteParams::default().grace_period(0);
    for pod in s.pods_of("cheap").await? {
        kinds::POD.api(&s.client, &s.namespace).delete(text(&pod, "/metadata/name"), &params).await?;
    }
    // The job controller creates another pod only after ten seconds, so Berth moves the job before that.
    s.workload("cheap", "evicted", |w| condition(w, "Evicted") == "True").await?;
    let moved = s
        .workload("cheap", "on demand", |w| {
            condition(w, "Admitted") == "True" && berth_e2e::quickstart::flavor_of(w) == demand
        })
        .await?;
    let found_message = message(&moved, "Evicted");
    ensure!(found_message.contains(&format!("flavor {spot} (spot capacity) took nodes back")), "{found_message}");
    s.create(s.job("next").endless()).await?;
    let next = s.admitted("next").await?;
    ensure!(berth_e2e::quickstart::flavor_of(&next) == demand, "{}", next["status"]["admission"]);
    s.conclude().await
}
