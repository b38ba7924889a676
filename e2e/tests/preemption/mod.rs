//! Preemption on a real control plane, from the decision to the pods: the victim is evicted and suspended, its pods end, its quota is freed, and the
//! preemptor is admitted. One of the two clusters has Kueue's default configuration, the other cluster has fair sharing.

mod classical;
mod fair;

use anyhow::Result;
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{self, Job, group, merge, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use futures::FutureExt;
use serde_json::{Value, json};

/// Creates a ClusterQueue and a LocalQueue of the same short name with cpu of the scenario's flavor; `more` is merged into the ClusterQueue's spec.
async fn queue(s: &Scenario<'_>, name: &str, cpu: &str, more: &Value) -> Result<()> {
    let (flavor, full) = (s.name("flavor"), s.name(name));
    s.apply(&manifest::cluster_queue(&full, &[group(&[(&flavor, &[quota("cpu", cpu)])])], more)).await?;
    s.apply(&manifest::local_queue(&s.namespace, name, &full)).await?;
    Ok(())
}

/// Creates the scenario's priority classes `low`, `mid` and `high`, and its flavor.
async fn basics(s: &Scenario<'_>) -> Result<()> {
    s.apply(&manifest::flavor(&s.name("flavor"), &[])).await?;
    for (name, value) in [("low", 10), ("mid", 50), ("high", 100)] {
        s.apply(&manifest::priority_class(&s.name(name), value)).await?;
    }
    Ok(())
}

/// A job of the priority class `class` that does not end by itself; its pods take a moment to end.
fn job(s: &Scenario<'_>, name: &str, queue: &str, cpu: &str, class: &str) -> Job {
    Job::new(&s.namespace, name, queue)
        .cpu(cpu)
        .endless()
        .termination_ms(400)
        .label("kueue.x-k8s.io/priority-class", &s.name(class))
}

/// The spec of a ClusterQueue with a cohort of the scenario and the preemption policies `preemption`.
fn within(s: &Scenario<'_>, cohort: &str, preemption: &Value) -> Value {
    let mut spec = json!({"preemption": preemption});
    if !cohort.is_empty() {
        merge(&mut spec, &json!({"cohortName": s.name(cohort)}));
    }
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preemption() -> Result<()> {
    let pools = [Pool::cpu("cpu", 3, Tier::OnDemand)];
    let stage = Stage::start("preemption", &pools, ManagerOptions::default()).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("lower-priority", classical::within_the_queue(s).boxed()),
        ("reclaim", classical::reclaim(s).boxed()),
        ("kept-victim", classical::kept_by_a_finalizer(s).boxed()),
        ("borrow-preempts", classical::borrow_within_cohort(s).boxed()),
        ("hierarchy", classical::hierarchy(s).boxed()),
        ("two-flavors", classical::other_flavor_first(s).boxed()),
    ];
    let outcome = run_all(&stage, runs).await;
    stage.stop().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_sharing() -> Result<()> {
    let pools = [Pool::cpu("cpu", 3, Tier::OnDemand)];
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\n";
    let options = ManagerOptions { config: Some(config.to_owned()), ..ManagerOptions::default() };
    let stage = Stage::start("fair-sharing", &pools, options).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> =
        vec![("three-tenants", fair::three_tenants(s).boxed()), ("monopoly", fair::no_monopoly(s).boxed())];
    let outcome = run_all(&stage, runs).await;
    stage.stop().await;
    outcome
}
