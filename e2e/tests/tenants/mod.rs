//! A tenant attacks the quota, with a client certificate and the rights of a user: what he writes never gets him more than his quota, and
//! never keeps others from theirs, within bounds that each attack is measured by.
//!
//! All attacks are made with webhooks on. Attacks that need no pods of their own are also made while Berth is down and `failurePolicy` lets
//! them in, and without webhooks: in `make test` the first of each root, in `make night` all (`BERTH_ATTACKS=all`).
//!
//! Attacks that still succeed are in [`OPEN`] (SECURITY.md has them), and are made with `BERTH_ATTACKS=open` alone.

mod job_sets;
mod jobs;
mod pods;
mod tenant;
mod trainings;

use std::path::PathBuf;

use anyhow::Result;
use berth_e2e::control_plane::{ControlPlane, Options, client_from};
use berth_e2e::jobset;
use berth_e2e::manager::{self, ManagerOptions};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::process::Guarded;
use berth_e2e::scenario::{Stage, run_each};
use berth_e2e::wait::STEP;
use berth_e2e::webhooks;
use futures::future::BoxFuture;
use kube::Client;
use tenant::Tenant;

/// Attacks at the same time.
const AT_ONCE: usize = 8;
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job, \
                      jobset.x-k8s.io/jobset, pod, deployment, statefulset]\n";

type Step = for<'a> fn(&'a Tenant<'_>) -> BoxFuture<'a, Result<()>>;

/// The tenant's objects before the attack, and the writes of the attack.
#[derive(Clone, Copy)]
struct Attack {
    /// Name of its namespace.
    name: &'static str,
    /// True for the attack that stands for its root where not all attacks are made.
    first: bool,
    /// Before: with Berth up.
    prepare: Step,
    /// The tenant's writes.
    strike: Step,
    /// Outcome that is waited for where Berth was down meanwhile, before the attack is judged.
    then: Step,
}

const fn attack(name: &'static str, first: bool, prepare: Step, strike: Step) -> Attack {
    Attack { name, first, prepare, strike, then: jobs::nothing }
}

/// Attacks with Jobs, JobSets and TrainingJobs.
const OF_JOBS: &[Attack] = &[
    attack("leaves-its-queue", true, jobs::borrows, jobs::leaves_its_queue),
    attack("drops-its-queue", false, jobs::borrows, jobs::drops_its_queue),
    attack("other-workload", true, jobs::borrows, jobs::names_another_workload),
    attack("controls-itself", true, jobs::asks_for_more, jobs::controls_itself),
    attack("own-controller", false, jobs::borrows, jobs::becomes_its_own_controller),
    attack("hides-below", false, jobs::small, jobs::hides_below_a_small_one),
    attack("moves-below", false, jobs::borrows, jobs::moves_below_a_small_one),
    attack("deleted-and-gone", false, jobs::borrows, jobs::leaves_while_it_is_deleted),
    attack("resumed-again", false, jobs::asks_for_more, jobs::is_resumed_again_and_again),
    attack("deletes-its-pods", true, jobs::borrows_and_lingers, jobs::deletes_its_pods),
    attack("resumed-and-slow", false, jobs::asks_for_more_and_lingers, jobs::is_resumed_again_and_again),
    attack("pods-left-behind", true, jobs::borrows, jobs::leaves_its_pods_behind),
    attack("relabelled-pods", true, jobs::borrows, jobs::pods_lose_their_labels),
    attack("resized-pods", true, jobs::borrows, jobs::pods_are_resized),
    attack("too-large", true, jobs::nothing, jobs::is_too_large_to_be_written),
    attack("unknown-set", false, jobs::nothing, jobs::names_an_unknown_job_set),
    attack("set-leaves-queue", false, job_sets::borrows, job_sets::leaves_its_queue),
    attack("set-own-controller", false, job_sets::borrows, job_sets::becomes_its_own_controller),
    attack("set-grows", false, job_sets::small, job_sets::its_job_grows),
    attack("set-left-jobs", false, job_sets::borrows, job_sets::leaves_its_jobs_behind),
    attack("set-kept-job", false, job_sets::borrows, job_sets::its_job_is_kept),
    attack("unreadable-grows", false, jobs::one_pod_at_once, jobs::grows_unreadable),
    attack("training-own-controller", true, trainings::borrows, trainings::its_job_names_another_controller),
    attack("training-job-grows", false, trainings::borrows, trainings::its_job_grows),
    attack("set-deletes-job", false, job_sets::borrows_and_lingers, job_sets::its_job_is_deleted_again_and_again),
    attack(
        "training-deletes-job",
        false,
        trainings::borrows_and_lingers,
        trainings::its_job_is_deleted_again_and_again,
    ),
    attack("training-grows-slowly", false, trainings::borrows_and_lingers, trainings::its_job_grows),
    attack("set-hides-job", false, job_sets::small, job_sets::hides_a_large_job),
];

/// Attacks that still succeed.
const OPEN: &[Attack] = &[];

/// Attacks with pods, and with kinds that are made of pods: without webhooks nothing gates a pod.
const OF_PODS: &[Attack] = &[
    attack("excess-ungated", false, pods::group, pods::excess_is_ungated),
    attack("role-changed", false, pods::group_of_one, pods::role_is_changed),
    attack("joins-group", false, pods::borrows, pods::joins_a_group),
    attack("forged-job", false, jobs::nothing, pods::names_a_job_that_has_ended),
    attack("set-ungated", false, jobs::nothing, pods::set_is_scaled_and_ungated),
];

/// Attacks by pods that no review goes over, since they are made while Berth is down.
const LET_IN: &[Attack] = &[
    Attack { then: pods::is_admitted, ..attack("let-in-with-room", true, jobs::nothing, pods::is_let_in) },
    Attack { then: pods::is_gone, ..attack("let-in-beyond", true, jobs::nothing, pods::is_let_in_and_large) },
    attack("let-in-beside", true, pods::borrows, pods::is_let_in),
    attack("let-in-group", false, jobs::nothing, pods::group_is_let_in),
    attack("let-in-forged", false, jobs::nothing, pods::is_let_in_as_reviewed),
];

/// A control plane with Berth, the controller of JobSets and the tenant's client.
struct Ground {
    stage: Stage,
    tenant: Client,
    job_sets: Guarded,
}

impl Ground {
    async fn new(name: &str, failure_policy: Option<&str>) -> Result<Ground> {
        let mut options = Options::with_crds(name);
        options.crds.push(jobset::definitions().await?);
        let plane = ControlPlane::start(options).await?;
        let job_sets = jobset::start(&plane).await?;
        tenant::roles(&plane.client()).await?;
        let port = webhooks::port()?;
        if let Some(policy) = failure_policy {
            webhooks::install(&plane.client(), port, policy).await?;
            webhooks::convert(&plane.client(), port).await?;
        }
        let kubeconfig: PathBuf = plane.kubeconfig_of(tenant::USER)?;
        let client = client_from(&kubeconfig).await?;
        let webhooks = failure_policy.map(|_| port);
        let manager = ManagerOptions { webhooks, config: Some(CONFIG.to_owned()), ..ManagerOptions::default() };
        let stage = Stage::on(plane, &[Pool::cpu("cpu", 8, Tier::OnDemand)], manager).await?;
        Ok(Ground { stage, tenant: client, job_sets })
    }

    /// Runs one step of attacks, some at the same time. The observer's verdict on them is not asked: the tenant breaks promises.
    async fn each<'a>(&'a self, attacks: &[Attack], step: impl Fn(Attack) -> BoxFuture<'a, Result<()>>) -> Result<()> {
        let runs = attacks.iter().map(|attack| (attack.name, step(*attack))).collect();
        run_each(&self.stage, AT_ONCE, runs).await.map(drop)
    }

    /// Stops the controller of JobSets, and then all else: it would wait for an API server that is gone.
    async fn stop(self) {
        let Ground { stage, job_sets, .. } = self;
        let _ = tokio::task::spawn_blocking(move || drop(job_sets)).await;
        stage.stop().await;
    }

    /// Makes attacks as a whole, and judges each.
    async fn attacked(self, attacks: &[Attack]) -> Result<()> {
        let this = &self;
        let whole = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move {
                let tenant = this.tenant(attack).await?;
                (attack.prepare)(&tenant).await?;
                (attack.strike)(&tenant).await?;
                tenant.judge().await
            })
        };
        let outcome = this.each(attacks, whole).await;
        self.stop().await;
        outcome
    }

    /// Makes attacks while Berth is down, and judges each when it is back.
    async fn attacked_while_down(&mut self, attacks: &[Attack]) -> Result<()> {
        let this = &*self;
        let prepare = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { (attack.prepare)(&this.tenant(attack).await?).await })
        };
        this.each(attacks, prepare).await?;
        let dead = manager::leader(&self.stage.client).await?;
        self.stage.manager.kill();
        let this = &*self;
        let strike = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { (attack.strike)(&Tenant::again(&this.stage, attack.name, &this.tenant)).await })
        };
        this.each(attacks, strike).await?;
        self.stage.manager.restart().await?;
        manager::leads_after(&self.stage.client, &dead, STEP).await?;
        let this = &*self;
        let judge = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move {
                let tenant = Tenant::again(&this.stage, attack.name, &this.tenant);
                (attack.then)(&tenant).await?;
                tenant.judge().await
            })
        };
        this.each(attacks, judge).await
    }

    async fn tenant(&self, attack: Attack) -> Result<Tenant<'_>> {
        Tenant::new(&self.stage, attack.name, &self.tenant).await
    }
}

fn asked_for(what: &str) -> bool {
    std::env::var("BERTH_ATTACKS").is_ok_and(|value| value == what)
}

/// The attacks that are made where not all are.
fn chosen(attacks: &[Attack]) -> Vec<Attack> {
    if asked_for("open") {
        return OPEN.to_vec();
    }
    let all = asked_for("all");
    attacks.iter().copied().filter(|attack| all || attack.first).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_webhooks() -> Result<()> {
    let all = if asked_for("open") { OPEN.to_vec() } else { [OF_JOBS, OF_PODS].concat() };
    Ground::new("tenants", Some("Fail")).await?.attacked(&all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_webhooks() -> Result<()> {
    Ground::new("tenants-off", None).await?.attacked(&chosen(OF_JOBS)).await
}

/// `failurePolicy: Ignore`, and Berth is down while the tenant writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_berth_is_down() -> Result<()> {
    let mut ground = Ground::new("tenants-down", Some("Ignore")).await?;
    let outcome = ground.attacked_while_down(&chosen(&[OF_JOBS, LET_IN].concat())).await;
    ground.stop().await;
    outcome
}
