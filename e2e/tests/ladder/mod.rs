//! Capacity tiers and QueuePolicies on a real control plane: quota that is full, nodes that never come, jobs that pin themselves to a tier, and
//! limits that keep jobs out.

mod falls;
mod limits;
mod pinned;

use anyhow::{Result, ensure};
use berth_e2e::kinds::{QUEUE_POLICY, condition_object, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{Job, cluster_queue, flavor, group, local_queue, merge, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::quickstart::flavor_of;
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use futures::FutureExt;
use serde_json::{Value, json};

const RESERVATION: &str = "cloud.google.com/reservation-name";
const SPOT: &str = "cloud.google.com/gke-spot";
const ACCELERATOR: (&str, &str) = ("cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-podslice");
/// Key of the node label that distinguishes the CPU pools.
const POOL: &str = "e2e.berth.dev/pool";
const TIERS: &str = "berth.dev/capacity-tiers";

/// A ResourceFlavor for TPU nodes of the tier `tier`; the parameter `reservation` is the name of GKE's reservation that the nodes of the reserved tier use.
fn tpu(name: &str, tier: &str, reservation: &str) -> Value {
    let (own, key, value, others) = match tier {
        "reserved" => ((RESERVATION, reservation), RESERVATION, reservation, SPOT.to_owned()),
        "spot" => ((SPOT, "true"), SPOT, "true", RESERVATION.to_owned()),
        _ => (("cloud.google.com/gke-provisioning", "standard"), "", "", format!("{RESERVATION},{SPOT}")),
    };
    let mut object = flavor(name, &[ACCELERATOR, own]);
    merge(
        &mut object["metadata"],
        &json!({
            "labels": {"berth.dev/capacity-tier": tier},
            "annotations": {"berth.dev/forbidden-node-labels": others},
        }),
    );
    let mut tolerations = vec![json!({"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"})];
    if !key.is_empty() {
        object["spec"]["nodeTaints"] = json!([{"key": key, "value": value, "effect": "NoSchedule"}]);
        tolerations.push(json!({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}));
    }
    object["spec"]["tolerations"] = json!(tolerations);
    object
}

/// Creates a queue of three tiers with `chips` chips each. The flavors are listed with the worst tier at the beginning, so that only their tier
/// labels put them in order.
async fn set_up_tiers(s: &Scenario<'_>, reservation: &str, chips: &str) -> Result<()> {
    let mut names = Vec::new();
    for tier in ["spot", "on-demand", "reserved"] {
        let name = s.name(tier);
        s.apply(&tpu(&name, tier, reservation)).await?;
        names.push(name);
    }
    let chips = [quota("google.com/tpu", chips)];
    let flavors: Vec<(&str, &[_])> = names.iter().map(|name| (name.as_str(), chips.as_slice())).collect();
    s.apply(&cluster_queue(&s.name("cq"), &[group(&flavors)], &json!({}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    Ok(())
}

/// Writes a QueuePolicy for the scenario's ClusterQueue `cq`.
async fn policy(s: &Scenario<'_>, spec: &Value) -> Result<()> {
    governed(s, "cq", "policy", spec).await
}

/// Writes or replaces the QueuePolicy `policy` for one of the scenario's queues, and waits until Berth has read it. Berth watches each kind
/// separately, so it may see an object that is created after the policy before it sees the policy.
async fn governed(s: &Scenario<'_>, queue: &str, policy: &str, spec: &Value) -> Result<()> {
    let (name, mut spec) = (s.name(policy), spec.clone());
    merge(&mut spec, &json!({"clusterQueues": [s.name(queue)]}));
    let metadata = json!({"name": name});
    let object = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": metadata, "spec": spec});
    let generation = s.apply(&object).await?["metadata"]["generation"].clone();
    let is_read = |p: &Value| {
        let condition = condition_object(p, "Active");
        condition.is_some_and(|condition| {
            text(condition, "/status") == "True" && condition["observedGeneration"] == generation
        })
    };
    s.object_is(QUEUE_POLICY, &name, &format!("active in generation {generation}"), is_read).await.map(drop)
}

/// A job whose pod needs all chips of one host.
fn chips(s: &Scenario<'_>, name: &str) -> Job {
    s.job(name).requests(&[("google.com/tpu", "4")]).endless()
}

/// Waits until the job is admitted to the tier `tier` and its pods are on nodes of that tier.
async fn runs_in_tier(s: &Scenario<'_>, job: &str, tier: &str) -> Result<()> {
    let flavor = s.name(tier);
    s.workload(job, &format!("admitted to {tier}"), |w| {
        berth_e2e::kinds::condition(w, "Admitted") == "True" && flavor_of(w) == flavor
    })
    .await?;
    let pool = format!("tpu-{}", tier.trim_start_matches("on-"));
    for node in s.nodes_of(job, 1).await? {
        ensure!(node.starts_with(&pool), "a pod of {job} landed on {node}, not on {pool}");
    }
    Ok(())
}

/// The message of the condition `kind` of a Workload or another object.
fn message(workload: &Value, kind: &str) -> String {
    condition_object(workload, kind).map(|c| text(c, "/message").to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_tiers() -> Result<()> {
    let pools = [
        // The pools have a host for each job of all scenarios at once, so that only quota decides, and no job waits for the nodes of another
        // scenario.
        Pool::tpu("tpu-reserved", 2, Tier::Reserved("e2e".to_owned())),
        Pool::tpu("tpu-demand", 8, Tier::OnDemand),
        Pool::tpu("tpu-spot", 4, Tier::Spot),
        Pool::cpu("fleeting", 1, Tier::Spot).label(POOL, "fleeting"),
        Pool::cpu("announced", 1, Tier::Spot).label(POOL, "announced"),
        Pool::cpu("stable", 1, Tier::OnDemand).label(POOL, "stable").offers("nvidia.com/gpu", "32"),
    ];
    let stage = Stage::start("ladder", &pools, ManagerOptions::default()).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("reserved-full", falls::reserved_is_full(s).boxed()),
        ("stock-out", falls::reserved_has_no_nodes(s).boxed()),
        ("scale-up-failed", falls::autoscaler_gets_no_nodes(s).boxed()),
        ("pinned-tiers", pinned::by_its_own_selectors(s).boxed()),
        ("overridden", pinned::pinned_job_falls_back(s).boxed()),
        ("announced", falls::nodes_that_are_about_to_go(s).boxed()),
        ("reclaimed", falls::nodes_are_taken_back(s).boxed()),
        ("climb-back", falls::back_up(s).boxed()),
        ("limits", limits::named_and_kept(s).boxed()),
        ("bounds", limits::preemption_is_bounded(s).boxed()),
        ("kept-out", limits::kept_out(s).boxed()),
        ("spared", limits::spared(s).boxed()),
        ("bad-policies", limits::refused_with_words(s).boxed()),
        ("policy-warnings", limits::labels_and_conflicts_are_reported(s).boxed()),
    ];
    let outcome = run_all(&stage, runs).await;
    stage.stop().await;
    outcome
}
