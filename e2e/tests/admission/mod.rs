//! Admission on a real control plane: each scenario has its own queues, flavors and namespace, and all scenarios share one cluster.

mod checks;
mod cluster_objects;
mod cron;
mod flavors;
mod gpus;
mod jobs;
mod queues;
mod quota;
mod sharing;
mod unsupported;

use anyhow::Result;
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Stage, run_all};
use futures::FutureExt;

/// Key of the node label that distinguishes the CPU pools.
const POOL: &str = "e2e.berth.dev/pool";

fn pools() -> Vec<Pool> {
    vec![
        Pool::cpu("cpu", 2, Tier::OnDemand),
        Pool::cpu("blue", 1, Tier::OnDemand).label(POOL, "blue"),
        Pool::cpu("green", 1, Tier::OnDemand).label(POOL, "green"),
        Pool::cpu("red", 1, Tier::OnDemand).label(POOL, "red"),
        Pool::tpu("tpu-reserved", 1, Tier::Reserved("e2e".to_owned())),
        Pool::tpu("tpu-demand", 1, Tier::OnDemand),
        Pool::tpu("tpu-spot", 2, Tier::Spot),
        Pool::gpu("gpu-reserved", 1, Tier::Reserved("h100".to_owned())),
        Pool::gpu("gpu-demand", 1, Tier::OnDemand),
        Pool::gpu("gpu-spot", 1, Tier::Spot),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission() -> Result<()> {
    let stage = Stage::start("admission", &pools(), ManagerOptions::default()).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        // The CronJob scenario is the first of the list, because it waits for the next full minute while the others run.
        ("cronjob", cron::fired_and_by_hand(s).boxed()),
        ("fill-and-release", quota::fill_and_release(s).boxed()),
        ("borrowing", quota::borrowing_and_lending(s).boxed()),
        ("three-levels", quota::three_levels(s).boxed()),
        ("quota-cut", quota::cut_below_usage(s).boxed()),
        ("edit-wakes", quota::edit_wakes(s).boxed()),
        ("flavor-order", flavors::order_taints_selectors(s).boxed()),
        ("tiers", flavors::tiers(s).boxed()),
        ("gpu-tiers", gpus::tiers(s).boxed()),
        ("flavor-missing", flavors::missing_then_added(s).boxed()),
        ("selector-back", flavors::selector_taken_back(s).boxed()),
        ("strict-fifo", queues::strict_fifo(s).boxed()),
        ("best-effort", queues::best_effort_fifo(s).boxed()),
        ("hold", queues::hold(s).boxed()),
        ("drain", queues::hold_and_drain(s).boxed()),
        ("local-hold", queues::local_queue_hold(s).boxed()),
        ("queue-later", queues::created_after_its_jobs(s).boxed()),
        ("namespaces", queues::namespace_selector(s).boxed()),
        ("priorities", queues::priorities(s).boxed()),
        ("pod-priorities", cluster_objects::priority_classes(s).boxed()),
        ("limits", cluster_objects::limits(s).boxed()),
        ("pod-placement", cluster_objects::placement(s).boxed()),
        ("check-ready", checks::ready(s).boxed()),
        ("check-retry", checks::retry(s).boxed()),
        ("check-rejected", checks::rejected(s).boxed()),
        ("gated", jobs::gated(s).boxed()),
        ("unsupported", unsupported::held(s).boxed()),
        ("partial", jobs::fewer_pods(s).boxed()),
        ("deleted-phases", jobs::deleted_in_each_phase(s).boxed()),
        ("by-hand", jobs::unsuspended_by_hand(s).boxed()),
        ("arrives-running", jobs::arrives_running(s).boxed()),
        ("failing", jobs::failing(s).boxed()),
        ("same-name", jobs::created_again(s).boxed()),
        ("unmanaged", jobs::without_queue_is_left_alone(s).boxed()),
    ];
    let outcome = run_all(&stage, runs).await;
    stage.stop().await;
    outcome
}

/// The scenario of admission fair sharing, which has a configuration of its own: of two LocalQueues the one that used less in the recent past is
/// served before the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_fair_sharing() -> Result<()> {
    let options = ManagerOptions { config: Some(sharing::CONFIG.to_owned()), ..ManagerOptions::default() };
    let stage = Stage::start("admission-sharing", &[Pool::cpu("cpu", 1, Tier::OnDemand)], options).await?;
    let outcome = run_all(&stage, vec![("usage-order", sharing::less_used_first(&stage).boxed())]).await;
    stage.stop().await;
    outcome
}
