//! A tenant attacks the quota with a client certificate and the rights of a user. The tenant's writes never get him more than his quota, and never
//! keep others from theirs for longer than the bound by which each attack is judged.
//!
//! The tests make all attacks with webhooks on. Attacks that need no pods of their own, and attacks by pods that no review sees, are also made while Berth is
//! down and `failurePolicy` lets the tenant's writes pass, and without webhooks. The command `make test` makes the first attack of each cause, and `make night`
//! makes all attacks (`BERTH_ATTACKS=all`), some of them once more in a namespace with a LocalQueue `default`.
//!
//! The list [`OPEN`] has the attacks that still succeed, which SECURITY.md describes; they are made only with `BERTH_ATTACKS=open`.

mod deployments;
mod job_sets;
mod jobs;
mod pods;
mod tenant;
mod trainings;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use berth_e2e::control_plane::{ControlPlane, Options, client_from};
use berth_e2e::jobset;
use berth_e2e::manager::{self, ManagerOptions};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::process::Guarded;
use berth_e2e::scenario::{Stage, run_each};
use berth_e2e::test_clock;
use berth_e2e::wait::STEP;
use berth_e2e::webhooks;
use futures::future::BoxFuture;
use kube::Client;
use tenant::{LOOK, Tenant};

/// Number of attacks that are made at the same time.
const AT_ONCE: usize = 8;
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job, \
                      jobset.x-k8s.io/jobset, pod, deployment, statefulset]\n";

type Step = for<'a> fn(&'a Tenant<'_>) -> BoxFuture<'a, Result<()>>;

/// An attack: the objects that the tenant has before it, and the writes of the attack.
#[derive(Clone, Copy)]
struct Attack {
    /// Name of the attack and of its namespace.
    name: &'static str,
    /// True for the attack that represents its cause if not all attacks are made.
    first: bool,
    /// Creates the tenant's objects before the attack, while Berth is up.
    prepare: Step,
    /// Makes the tenant's writes.
    strike: Step,
    /// Waits for a further outcome of the attack, beside the check that pods use no more than the held quota; by default it waits for nothing.
    then: Step,
    /// Time that the lender may wait for its quota longer than the usual bound, because the tenant's pods end slowly.
    slow: Duration,
    /// True if a review must refuse at least one of the tenant's writes.
    refused: bool,
}

const fn attack(name: &'static str, first: bool, prepare: Step, strike: Step) -> Attack {
    Attack { name, first, prepare, strike, then: jobs::nothing, slow: Duration::ZERO, refused: false }
}

impl Attack {
    const fn is_refused(self) -> Attack {
        Attack { refused: true, ..self }
    }

    /// Waits for the further outcome of the attack, and until pods use no more than the held quota; the bound for that begins at the time `begun`, and the test
    /// looks at the pods once in each `pause`.
    async fn settles(self, tenant: &Tenant<'_>, begun: Duration, pause: Duration) -> Result<()> {
        let (then, settles) = tokio::join!((self.then)(tenant), tenant.settles(begun, pause));
        then.and(settles)
    }
}

/// Attacks on the quota with Jobs, JobSets and TrainingJobs.
const OF_JOBS: &[Attack] = &[
    attack("leaves-its-queue", true, jobs::borrows, jobs::leaves_its_queue).is_refused(),
    attack("drops-its-queue", false, jobs::borrows, jobs::drops_its_queue),
    attack("other-workload", true, jobs::borrows, jobs::names_another_workload).is_refused(),
    attack("controls-itself", true, jobs::asks_for_more, jobs::controls_itself),
    attack("own-controller", false, jobs::borrows, jobs::becomes_its_own_controller).is_refused(),
    attack("hides-below", false, jobs::small, jobs::hides_below_a_small_one),
    attack("moves-below", false, jobs::borrows, jobs::moves_below_a_small_one).is_refused(),
    attack("deleted-and-gone", false, jobs::borrows, jobs::leaves_while_it_is_deleted).is_refused(),
    attack("resumed-again", false, jobs::asks_for_more, jobs::is_resumed_again_and_again),
    Attack {
        slow: jobs::LINGERS,
        ..attack("deletes-its-pods", true, jobs::borrows_and_lingers, jobs::deletes_its_pods)
    },
    attack("resumed-and-slow", false, jobs::asks_for_more_and_lingers, jobs::is_resumed_again_and_again),
    attack("pods-left-behind", true, jobs::borrows, jobs::leaves_its_pods_behind),
    attack("pods-left-and-named", false, jobs::borrows, jobs::leaves_its_pods_and_names_their_workload),
    attack("relabelled-pods", true, jobs::borrows, jobs::pods_lose_their_labels).is_refused(),
    attack("resized-pods", true, jobs::borrows, jobs::pods_are_resized),
    attack("too-large", true, jobs::nothing, jobs::is_too_large_to_be_written).is_refused(),
    attack("unknown-set", false, jobs::nothing, jobs::names_an_unknown_job_set),
    attack("set-leaves-queue", false, job_sets::borrows, job_sets::leaves_its_queue).is_refused(),
    attack("set-own-controller", false, job_sets::borrows, job_sets::becomes_its_own_controller).is_refused(),
    attack("set-grows", false, job_sets::small, job_sets::its_job_grows),
    attack("set-left-jobs", false, job_sets::borrows, job_sets::leaves_its_jobs_behind),
    attack("set-kept-job", false, job_sets::borrows, job_sets::its_job_is_kept),
    attack("unreadable-grows", false, jobs::one_pod_at_once, jobs::grows_unreadable).is_refused(),
    attack("training-own-controller", true, trainings::borrows, trainings::its_job_names_another_controller),
    attack("training-job-grows", false, trainings::borrows, trainings::its_job_grows),
    Attack {
        slow: jobs::LINGERS,
        ..attack("set-deletes-job", false, job_sets::borrows_and_lingers, job_sets::its_job_is_deleted_again_and_again)
    },
    Attack {
        slow: jobs::LINGERS,
        ..attack(
            "training-deletes-job",
            false,
            trainings::borrows_and_lingers,
            trainings::its_job_is_deleted_again_and_again,
        )
    },
    Attack {
        slow: jobs::LINGERS,
        ..attack("training-grows-slowly", false, trainings::borrows_and_lingers, trainings::its_job_grows)
    },
    attack("set-hides-job", false, job_sets::small, job_sets::hides_a_large_job),
    attack("outlives-its-parent", false, jobs::small, jobs::outlives_a_small_one),
    attack("set-other-workload", false, job_sets::borrows, job_sets::names_another_workload).is_refused(),
    attack("set-deleted-and-gone", false, job_sets::borrows, job_sets::leaves_while_it_is_deleted),
    attack("set-resumed", false, job_sets::asks_for_more, job_sets::is_resumed_again_and_again),
];

/// Attacks on the quota in a namespace with a LocalQueue `default`.
const BESIDE_DEFAULT: &[Attack] = &[
    attack("default-leaves-its-queue", false, jobs::borrows, jobs::leaves_its_queue),
    attack("default-other-workload", false, jobs::borrows, jobs::names_another_workload),
    attack("default-controls-itself", false, jobs::asks_for_more, jobs::controls_itself),
    attack("default-own-controller", false, jobs::borrows, jobs::becomes_its_own_controller),
    attack("default-hides-below", false, jobs::small, jobs::hides_below_a_small_one),
    attack("default-relabelled-pods", false, jobs::borrows, jobs::pods_lose_their_labels),
    attack("default-deleted-and-gone", false, jobs::borrows, jobs::leaves_while_it_is_deleted),
];

/// Attacks on the quota that still succeed.
const OPEN: &[Attack] = &[];

/// Attacks with pods, and with kinds that are made of pods; they need the webhooks, because nothing gates a pod without webhooks.
const OF_PODS: &[Attack] = &[
    attack("excess-ungated", false, pods::group, pods::excess_is_ungated),
    attack("role-changed", false, pods::group_of_one, pods::role_is_changed).is_refused(),
    attack("joins-group", false, pods::borrows, pods::joins_a_group).is_refused(),
    attack("forged-job", false, jobs::nothing, pods::names_a_job_that_has_ended).is_refused(),
    attack("set-ungated", false, jobs::nothing, pods::set_is_scaled_and_ungated),
    attack("deployment-leaves-queue", false, deployments::borrows, deployments::leaves_its_queue).is_refused(),
    attack("deployment-other-queue", false, deployments::borrows, deployments::names_another_queue).is_refused(),
    attack("deployment-relabelled", false, deployments::borrows, deployments::pods_are_relabelled).is_refused(),
    attack("deployment-orphaned", false, deployments::borrows, deployments::leaves_its_pods_behind),
    attack("deployment-ungated", false, deployments::borrows, deployments::grows_and_is_ungated),
    attack("deployment-forged-parent", false, deployments::borrows, deployments::forges_the_parent),
];

/// Attacks with pods in a namespace with a LocalQueue `default`.
const OF_PODS_BESIDE_DEFAULT: &[Attack] =
    &[attack("default-replica-set", false, deployments::borrows, deployments::its_replica_set_forgets_the_queue)];

/// Attacks by pods that no webhook reviews, because the pods are created while Berth is down or on a control plane without webhooks.
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
    /// True if each of the tenant's writes is reviewed, or refused.
    reviewed: bool,
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
        Ok(Ground { stage, tenant: client, job_sets, reviewed: failure_policy == Some("Fail") })
    }

    /// Runs one step of each attack, for `at_once` attacks at the same time. The observer gives no verdict on the complete run, because the tenant's own writes
    /// break invariants.
    async fn each<'a>(
        &'a self,
        attacks: &[Attack],
        at_once: usize,
        step: impl Fn(Attack) -> BoxFuture<'a, Result<()>>,
    ) -> Result<()> {
        let runs = attacks.iter().map(|attack| (attack.name, step(*attack))).collect();
        run_each(&self.stage, at_once, runs).await.map(drop)
    }

    /// Stops the controller of JobSets before the rest of the control plane, because that controller would wait for an API server that is gone.
    async fn stop(self) {
        let Ground { stage, job_sets, .. } = self;
        let _ = tokio::task::spawn_blocking(move || drop(job_sets)).await;
        stage.stop().await;
    }

    /// Makes attacks with all of their steps, and judges each attack.
    async fn attacked(self, attacks: &[Attack]) -> Result<()> {
        let this = &self;
        let full_attack = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move {
                let tenant = this.tenant(attack).await?;
                (attack.prepare)(&tenant).await?;
                let before = tenant.refusals();
                (attack.strike)(&tenant).await?;
                let refused = tenant.refusals() > before;
                ensure!(refused || !attack.refused || !tenant.reviewed, "no review refused a write of the tenant");
                attack.settles(&tenant, test_clock::now(), LOOK).await?;
                tenant.lender_is_served(attack.slow).await
            })
        };
        let outcome = this.each(attacks, AT_ONCE, full_attack).await;
        self.stop().await;
        outcome
    }

    /// Makes attacks while Berth is down, and judges each attack after Berth is back.
    async fn attacked_while_down(&mut self, attacks: &[Attack]) -> Result<()> {
        let this = &*self;
        let prepare = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { (attack.prepare)(&this.tenant(attack).await?).await })
        };
        this.each(attacks, AT_ONCE, prepare).await?;
        let dead = manager::leader(&self.stage.client).await?;
        self.stage.observer.nobody_leads();
        self.stage.manager.kill();
        let this = &*self;
        let again = |attack: Attack| Tenant::again(&this.stage, attack.name, &this.tenant);
        let strike = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { (attack.strike)(&again(attack)).await })
        };
        this.each(attacks, AT_ONCE, strike).await?;
        self.stage.manager.restart().await?;
        manager::leads_after(&self.stage.client, &dead, STEP).await?;
        self.stage.observer.somebody_leads();
        // The bound of each attack begins when Berth is back, so the test looks at all attacks at the same time; the more attacks there are, the longer is the
        // pause between two looks.
        let back = test_clock::now();
        let this = &*self;
        let pause = LOOK * u32::try_from(attacks.len().div_ceil(AT_ONCE))?;
        let again = |attack: Attack| Tenant::again(&this.stage, attack.name, &this.tenant);
        let settles = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { attack.settles(&again(attack), back, pause).await })
        };
        this.each(attacks, attacks.len(), settles).await?;
        let lender = |attack: Attack| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { again(attack).lender_is_served(attack.slow).await })
        };
        this.each(attacks, AT_ONCE, lender).await
    }

    async fn tenant(&self, attack: Attack) -> Result<Tenant<'_>> {
        Tenant::new(&self.stage, attack.name, &self.tenant, self.reviewed).await
    }
}

fn asked_for(what: &str) -> bool {
    std::env::var("BERTH_ATTACKS").is_ok_and(|value| value == what)
}

/// The attacks among `attacks` that this run makes, as `BERTH_ATTACKS` asks for.
fn chosen(attacks: &[Attack]) -> Vec<Attack> {
    if asked_for("open") {
        return OPEN.to_vec();
    }
    let all = asked_for("all");
    attacks.iter().copied().filter(|attack| all || attack.first).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_with_webhooks() -> Result<()> {
    let more = if asked_for("all") { [BESIDE_DEFAULT, OF_PODS_BESIDE_DEFAULT].concat() } else { Vec::new() };
    let all = if asked_for("open") { OPEN.to_vec() } else { [OF_JOBS, OF_PODS, more.as_slice()].concat() };
    Ground::new("tenants", Some("Fail")).await?.attacked(&all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_without_webhooks() -> Result<()> {
    Ground::new("tenants-off", None).await?.attacked(&chosen(&[OF_JOBS, BESIDE_DEFAULT, LET_IN].concat())).await
}

/// Attacks while Berth is down and the webhooks' `failurePolicy`, Ignore, lets the tenant's writes pass without a review.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_while_berth_is_down() -> Result<()> {
    let mut ground = Ground::new("tenants-down", Some("Ignore")).await?;
    let outcome = ground.attacked_while_down(&chosen(&[OF_JOBS, BESIDE_DEFAULT, LET_IN].concat())).await;
    ground.stop().await;
    outcome
}
