//! The webhooks on a real control plane: their defaults and refusals, jobs while the webhooks are down, certificates that change under traffic, and
//! floods.

mod authors;
mod blast;
mod conversion;
mod flood;
mod held;
mod jobs;
mod kept;
mod kinds;
mod load;
mod pods;
mod pods_of_jobs;
pub(crate) mod rotation;
mod tables;

use anyhow::Result;
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::jobset;
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Stage, run_all};
use berth_e2e::webhooks;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::RwLock;

/// A lock by which a test that measures times or memory runs alone: this test holds the lock as writer, and the other tests of the suite hold it as readers.
static QUIET: RwLock<()> = RwLock::const_new(());

/// Options for a manager with the arguments `args`.
fn manager(args: &[&str]) -> ManagerOptions {
    ManagerOptions { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..ManagerOptions::default() }
}

/// Starts a control plane with a Berth that serves its webhooks; returns it with the port of the webhooks.
async fn stage(options: Options, manager: ManagerOptions) -> Result<(Stage, u16)> {
    let plane = ControlPlane::start(options).await?;
    let port = webhooks::port()?;
    webhooks::install(&plane.client(), port, "Fail").await?;
    webhooks::convert(&plane.client(), port).await?;
    let manager = ManagerOptions { webhooks: Some(port), ..manager };
    Ok((Stage::on(plane, &[Pool::cpu("cpu", 2, Tier::OnDemand)], manager).await?, port))
}

/// Runs the test function `story` on a control plane of its own; messages about a failure name the control plane.
async fn alone<F>(options: Options, manager: ManagerOptions, story: F) -> Result<()>
where
    F: for<'a> FnOnce(&'a mut Stage, u16) -> BoxFuture<'a, Result<()>>,
{
    let name = options.name.clone();
    let (mut stage, port) = stage(options, manager).await?;
    let outcome = match story(&mut stage, port).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow::anyhow!(stage.failure(&name, &e).await)),
    };
    stage.stop().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews() -> Result<()> {
    let _turn = QUIET.read().await;
    // The webhook refuses the fields of the feature gates ConcurrentAdmission and PriorityBoost only if the gates are on.
    let config = format!("{}featureGates: {{ConcurrentAdmission: true, PriorityBoost: true}}\n", blast::CONFIG);
    let options = ManagerOptions { config: Some(config), ..ManagerOptions::default() };
    let mut served = Options::with_crds("webhook");
    served.crds.push(jobset::definitions().await?);
    let (stage, _) = stage(served, options).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("no-race", jobs::suspended_without_a_race(s).boxed()),
        ("labels-locked", jobs::labels_of_a_running_job(s).boxed()),
        ("default-queue-jobs", jobs::default_queue(s).boxed()),
        ("default-queue-jobset", jobs::default_queue_of_job_sets(s).boxed()),
        ("default-queue-pods", pods::default_queue(s).boxed()),
        ("refused-jobs", jobs::refused(s).boxed()),
        ("reviews", tables::answered(s).boxed()),
        ("refused-kinds", kinds::refused(s).boxed()),
        ("kept", kept::story(s).boxed()),
        ("pods-of-jobs", pods_of_jobs::keep_what_they_are_counted_by(s).boxed()),
        ("held-workloads", held::workloads_that_hold_quota(s).boxed()),
        ("held-checks", held::checks_that_are_ready(s).boxed()),
        ("held-trainings", held::queue_of_training_jobs(s).boxed()),
        ("author-rights", authors::need_the_right(s).boxed()),
        ("own-account", authors::own_account_makes_jobs_of_training_jobs_alone(s).boxed()),
    ];
    let mut outcome = run_all(&stage, runs).await;
    if outcome.is_ok() {
        // The scenario default-class runs alone, because a class called `default` concerns the jobs of all namespaces.
        let last: Run<'_> = ("default-class", jobs::default_priority_class(&stage).boxed());
        outcome = run_all(&stage, vec![last]).await;
    }
    stage.stop().await;
    outcome
}

/// While Berth is down, objects without a queue in namespaces that Berth does not manage are created; objects that Berth must review are refused or stored
/// unchanged, as `failurePolicy` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_outage_affects_only_opted_in_objects() -> Result<()> {
    let _turn = QUIET.read().await;
    let mut options = Options::with_crds("blast");
    options.crds.push(jobset::definitions().await?);
    let manager = ManagerOptions { config: Some(blast::CONFIG.to_owned()), ..ManagerOptions::default() };
    alone(options, manager, |stage, port| blast::story(stage, port).boxed()).await
}

/// Manifests of v1beta1 work, and no field is lost by a write through v1beta1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v1beta1_manifests_work_and_lose_no_field() -> Result<()> {
    let _turn = QUIET.read().await;
    alone(Options::with_crds("conversion"), manager(&[]), |stage, port| conversion::story(stage, port).boxed()).await
}

/// The test puts new certificate authorities, new leaf certificates and invalid data into the Secret, and no review may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_traffic() -> Result<()> {
    let _turn = QUIET.read().await;
    let manager = manager(&[rotation::MARGIN]);
    alone(Options::with_crds("rotation"), manager, |stage, port| rotation::story(stage, port).boxed()).await
}

/// The test creates 300 objects a second, and then sends malformed requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_answers_under_load_and_floods() -> Result<()> {
    let mut options = Options::with_crds("webhook-load");
    options.crds.push(jobset::definitions().await?);
    let manager = ManagerOptions { config: Some(blast::CONFIG.to_owned()), ..ManagerOptions::default() };
    alone(options, manager, |stage, port| load::story(stage, port).boxed()).await
}
