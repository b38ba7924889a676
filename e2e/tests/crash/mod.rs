//! The crash tests: Berth dies before and after each kind of write, loses answers and requests, and is refused by a busy API server. Every story of the crash
//! table ends as it would without the fault, and no invariant is broken on the way.
//!
//! The crash table has a row for each kind of write: a function that recognises the request, and a story that makes Berth send the request. Each
//! story runs in a namespace of its own, and all stories run at the same time, so that the crash in one story also hits the others at any point.
//! Every purpose of a write has a row, or a reason in the module `purposes` why it needs none.

mod capacity;
mod checks;
mod elastic;
mod job_sets;
mod pods;
mod purposes;
mod stories;
mod trainings;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::autoscaler::{self, ScriptedAutoscaler};
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::jobset;
use berth_e2e::kinds::{Kind, condition_object, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::process::Guarded;
use berth_e2e::proxy::{Asked, Fault, Proxy};
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use berth_e2e::wait::{self, Seen};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

/// Leader election is off, because the lease has a test of its own (`failover`) and would only make every restart wait. Fair sharing is on, because
/// Cohorts have a status only with fair sharing.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: false
fairSharing: {}
waitForPodsReady:
  timeout: 5m
  blockAdmission: false
";

/// The configuration for rows with jobs of other kinds: like [`CONFIG`], but Workloads that Berth has deactivated are deleted soon.
const OTHER_CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: false
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]
objectRetentionPolicies:
  workloads:
    afterDeactivatedByKueue: 1s
";

/// Time without a kill, which is long enough for a start of Berth and for the writes that Berth makes when no other work is left.
const CALM: Duration = Duration::from_secs(5);
/// Time limit for writes that Berth makes only some time after its start: the limit is long, because other stories kill Berth again before that.
const PATIENCE: Duration = Duration::from_secs(150);

type StoryRun<'a> = BoxFuture<'a, Result<()>>;
type Story = for<'a> fn(&'a Scenario<'a>) -> StoryRun<'a>;

/// A row of the crash table: a kind of write, with the story that makes Berth send it.
struct Row {
    name: &'static str,
    /// The purpose of the write, by its name in Berth's source.
    purpose: &'static str,
    is: fn(&Asked) -> bool,
    story: Story,
}

/// A fault that is injected into several rows: its name, the fault, the number of times that it is injected, and the rows.
type Wave = (&'static str, Fault, u32, Vec<Row>);

/// Feature gate of the job controller. In the tested version of Kubernetes the job controller itself clears the start time of a stopped job, so that
/// Berth never has to. With the feature gate off the cluster behaves like a Kubernetes below 1.36: the template of a job that has run may change only
/// after Berth has cleared the start time.
const OLDER: &str = "--feature-gates=MutableSchedulingDirectivesForSuspendedJobs=false";

/// Whether the body of a status write leaves the Workload with QuotaReserved=True.
fn reserved(a: &Asked) -> bool {
    a.condition("QuotaReserved") == "True"
}

fn workload_status(a: &Asked) -> bool {
    a.resource == "workloads/status" && a.condition("Finished") != "True"
}

fn finalizers(a: &Asked, resource: &str, any: bool) -> bool {
    let list = a.at("/metadata/finalizers").as_array();
    a.verb == "patch" && a.resource == resource && list.is_some_and(|l| l.is_empty() != any)
}

fn does(a: &Asked, verb: &str, resource: &str) -> bool {
    a.verb == verb && a.resource == resource
}

/// Whether a request patches a pod's label `key` without a change of the pod's scheduling gates.
fn labels_pod(a: &Asked, key: &str) -> bool {
    let gates = a.at("/spec").get("schedulingGates").is_some();
    does(a, "patch", "pods") && !gates && a.at("/metadata/labels").get(key).is_some()
}

/// Whether a request patches a pod and adds the annotation `key`.
fn annotates(a: &Asked, key: &str) -> bool {
    does(a, "patch", "pods") && a.at("/metadata/annotations").get(key).is_some()
}

/// Whether a request writes that an admission check of a not yet admitted Workload is Ready.
fn answers(a: &Asked) -> bool {
    let ready = items(&a.body, "/status/admissionChecks").iter().any(|check| text(check, "/state") == "Ready");
    does(a, "apply", "workloads/status") && ready && a.condition("Admitted") != "True"
}

/// Whether a request writes the templates of a JobSet that stays suspended, with the label of a start if `marked`, and without it otherwise.
fn templates(a: &Asked, marked: bool) -> bool {
    let jobs = a.at("/spec/replicatedJobs");
    does(a, "patch", "jobsets")
        && a.at("/spec/suspend").is_null()
        && jobs.is_array()
        && jobs.to_string().contains("kueue.x-k8s.io/podset") == marked
}

fn rows() -> Vec<Row> {
    let row = |name, purpose, is, story| Row { name, purpose, is, story };
    vec![
        row("create-workload", "CreateWorkload", |a| does(a, "create", "workloads"), stories::plain),
        row(
            "reserve",
            "ReserveQuota",
            |a| workload_status(a) && reserved(a) && a.condition("Evicted") != "True",
            stories::plain,
        ),
        row("start", "StartJob", |a| a.resource == "jobs" && a.at("/spec/suspend") == false, stories::plain),
        row(
            "ready",
            "SetPodsReady",
            |a| workload_status(a) && a.condition("PodsReady") == "True",
            stories::stays_ready,
        ),
        row(
            "finish",
            "FinishWorkload",
            |a| a.resource == "workloads/status" && a.condition("Finished") == "True",
            stories::plain,
        ),
        row("let-go", "LetFinishedGo", |a| finalizers(a, "workloads", false), stories::plain),
        row("cluster-queue", "QueueStatus", |a| a.resource == "clusterqueues/status", stories::plain),
        row("local-queue", "QueueStatus", |a| a.resource == "localqueues/status", stories::plain),
        row("cohort", "QueueStatus", |a| a.resource == "cohorts/status", stories::shares_a_cohort),
        row("keep-queue", "AddFinalizer", |a| finalizers(a, "clusterqueues", true), stories::plain),
        row("keep-flavor", "AddFinalizer", |a| finalizers(a, "resourceflavors", true), stories::plain),
        row("free-queue", "RemoveFinalizer", |a| finalizers(a, "clusterqueues", false), stories::plain),
        row("free-flavor", "RemoveFinalizer", |a| finalizers(a, "resourceflavors", false), stories::plain),
        row(
            "explain",
            "ExplainPending",
            |a| workload_status(a) && a.condition("QuotaReserved") == "False",
            stories::too_big_at_first,
        ),
        row(
            "list-checks",
            "SyncAdmissionChecks",
            // An apply of the Workload's status may also contain the list of checks, but does not change the list.
            |a| does(a, "patch", "workloads/status") && a.at("/status/admissionChecks").is_array(),
            checks::passes_its_check,
        ),
        row(
            "admit",
            "SetAdmitted",
            |a| workload_status(a) && reserved(a) && a.condition("Admitted") == "True",
            checks::passes_its_check,
        ),
        row(
            "suspend",
            "SuspendJob",
            |a| a.resource == "jobs" && a.at("/spec/suspend") == true,
            stories::arrives_running,
        ),
        row(
            "evict",
            "Evict",
            |a| workload_status(a) && a.condition("Evicted") == "True" && reserved(a),
            stories::drained,
        ),
        row("stop", "SuspendJob", |a| a.resource == "jobs" && a.at("/spec/suspend") == true, stories::drained),
        row(
            "restore",
            "RestoreTemplate",
            |a| a.resource == "jobs" && a.at("/spec/suspend").is_null() && a.at("/spec/template").is_object(),
            stories::drained,
        ),
        row(
            "release",
            "ReleaseQuota",
            |a| workload_status(a) && a.condition("Evicted") == "True" && !reserved(a),
            stories::drained,
        ),
        row("requeue", "Requeue", |a| workload_status(a) && a.condition("Requeued") == "True", stories::drained),
        row(
            "target",
            "Deactivate",
            |a| workload_status(a) && a.condition("DeactivationTarget") == "True",
            stories::runs_out_of_time,
        ),
        row(
            "deactivate",
            "Deactivate",
            |a| a.resource == "workloads" && a.at("/spec/active") == false,
            stories::runs_out_of_time,
        ),
        row(
            "follow",
            "UpdateWorkload",
            |a| does(a, "patch", "workloads") && a.at("/spec/queueName") == "other",
            stories::moves_to_another_queue,
        ),
        row(
            "adopt",
            "AdoptWorkload",
            |a| a.resource == "workloads" && a.at("/metadata/ownerReferences").is_array(),
            stories::brings_its_workload,
        ),
        row("reclaim", "SetReclaimable", |a| a.at("/status/reclaimablePods").is_array(), stories::shrinks),
        row("delete-workload", "DeleteWorkload", |a| does(a, "delete", "workloads"), stories::changes_its_size),
        row(
            "probe",
            "ProbePods",
            |a| does(a, "list", "pods") && a.query.contains("controller-uid"),
            stories::deleted_while_it_runs,
        ),
    ]
}

/// Rows for clusters with Kubernetes below 1.36: the row of the write that only these clusters need, and the rows of the writes before and after it.
fn older_rows() -> Vec<Row> {
    let is = |a: &Asked| a.resource == "jobs/status" && a.at("/status").get("startTime").is_some_and(|t| t.is_null());
    let clears = Row { name: "clear-start-time", purpose: "ClearStartTime", is, story: stories::drained };
    let around = rows().into_iter().filter(|row| ["stop", "restore", "release"].contains(&row.name));
    [clears].into_iter().chain(around).collect()
}

/// Rows for jobs of other kinds, and for writes that need a special configuration or CRD. The crash table has only one row for a kind of write to Workloads
/// that is the same for all job kinds.
fn other_rows() -> Vec<Row> {
    let row = |name, purpose, is, story| Row { name, purpose, is, story };
    vec![
        row("delete-job", "DeleteJob", |a| does(a, "delete", "jobs"), stories::goes_after_its_time),
        row("policy", "QueueStatus", |a| a.resource == "queuepolicies/status", capacity::has_a_policy),
        row("use-check", "ActivateCheck", |a| a.resource == "admissionchecks/status", capacity::asks_for_it),
        row("template", "PreparePodTemplate", |a| does(a, "create", "podtemplates"), capacity::asks_for_it),
        row("hand-template", "PreparePodTemplate", |a| does(a, "patch", "podtemplates"), capacity::asks_for_it),
        row("drop-template", "WithdrawPodTemplate", |a| does(a, "delete", "podtemplates"), capacity::name_is_taken),
        row("ask", "RequestCapacity", |a| does(a, "create", "provisioningrequests"), capacity::asks_for_it),
        row("answer", "AnswerCheck", answers, capacity::asks_for_it),
        row("withdraw", "WithdrawRequest", |a| does(a, "delete", "provisioningrequests"), capacity::asks_for_it),
        row(
            "start-pod",
            "StartJob",
            |a| does(a, "patch", "pods") && a.at("/spec").get("schedulingGates").is_some(),
            pods::run_in_turn,
        ),
        row("mark-pod", "MarkPod", |a| labels_pod(a, "kueue.x-k8s.io/managed"), pods::are_let_in),
        row("tell-pod", "MarkPod", |a| labels_pod(a, "kueue.x-k8s.io/podset"), pods::are_let_in),
        row("release-pod", "ReleasePod", |a| finalizers(a, "pods", false), pods::run_in_turn),
        row("condemn-pod", "CondemnPod", |a| does(a, "apply", "pods/status"), pods::are_drained),
        row("delete-pod", "DeletePod", |a| does(a, "delete", "pods"), pods::are_drained),
        row(
            "await-pods",
            "SetWaitingForPods",
            |a| a.resource == "workloads/status" && a.query.contains("kueue-pod-controller"),
            pods::are_replaced,
        ),
        row(
            "add-owners",
            "AddOwners",
            |a| does(a, "patch", "workloads") && a.at("/metadata/ownerReferences").is_array(),
            pods::are_replaced,
        ),
        row("prepare-training", "PrepareTraining", |a| does(a, "apply", "services"), trainings::runs),
        row("start-training", "StartTraining", |a| does(a, "create", "jobs"), trainings::runs),
        row("training-status", "TrainingStatus", |a| a.resource == "trainingjobs/status", trainings::runs),
        row("stop-training", "StopTraining", |a| does(a, "delete", "jobs"), trainings::pauses),
        row("notify-pods", "NotifyPods", |a| annotates(a, "berth.dev/stop-at"), trainings::saves_before_it_stops),
        row("ask-to-save", "AskToSave", |a| annotates(a, "berth.dev/save-by"), elastic::saves_before_it_shrinks),
        row(
            "scale-training",
            "ScaleTraining",
            |a| does(a, "patch", "jobs") && a.at("/spec/completions").is_number(),
            elastic::shrinks,
        ),
        row(
            "restart-training",
            "ScaleTraining",
            |a| does(a, "patch", "workloads") && a.at("/metadata/annotations").get("berth.dev/last-scale").is_some(),
            elastic::restarts,
        ),
        row(
            "probe-surplus",
            "ProbeSurplus",
            // Berth also lists a TrainingJob's pods to count their nodes: the page size of 250 distinguishes that request from this row's request.
            |a| does(a, "list", "pods") && a.query.contains("training-job-uid") && !a.query.contains("limit=250"),
            elastic::shrinks,
        ),
        row("lower-count", "LowerCount", |a| does(a, "apply", "workloads"), elastic::shrinks),
        row(
            "replace-slice",
            "FinishWorkload",
            |a| condition_object(&a.body, "Finished").is_some_and(|c| text(c, "/reason") == "WorkloadSliceReplaced"),
            elastic::grows,
        ),
        row(
            "suspend-set",
            "SuspendJob",
            |a| a.resource == "jobsets" && a.at("/spec/suspend") == true,
            job_sets::runs_elsewhere,
        ),
        row("place-set", "PlaceTemplate", |a| templates(a, true), job_sets::runs_elsewhere),
        row("delete-child", "DeleteChild", |a| does(a, "delete", "jobs"), job_sets::runs_elsewhere),
        row(
            "start-set",
            "StartJob",
            |a| a.resource == "jobsets" && a.at("/spec/suspend") == false,
            job_sets::runs_elsewhere,
        ),
        row("restore-set", "RestoreTemplate", |a| templates(a, false), job_sets::runs_elsewhere),
    ]
}

/// Waits until `check` holds for an object, for at most `PATIENCE`, because the other stories may go on killing Berth.
async fn comes(s: &Scenario<'_>, kind: Kind, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
    wait::until(PATIENCE, &format!("{} {name}: {what}", kind.kind), || async {
        let object = kind.get(&s.client, &s.namespace, name).await?.unwrap_or_default();
        Ok(Seen::when(check(&object), || object["status"].to_string()))
    })
    .await
}

async fn run_story(stage: &Stage, proxy: &Proxy, row: Row, name: &str, fault: Fault, times: u32) -> Result<()> {
    let scenario = stage.scenario(name).await?;
    let (namespace, prefix, is) = (name.to_owned(), format!("{name}-"), row.is);
    let armed = proxy
        .arm(times, fault, move |asked| (asked.namespace == namespace || asked.name.starts_with(&prefix)) && is(asked));
    (row.story)(&scenario).await?;
    // Berth writes the statuses of queues after a second without changes, so Berth must live for some seconds before the scenario ends.
    proxy.calm(CALM, PATIENCE).await?;
    scenario.conclude().await?;
    ensure!(armed.struck() > 0, "the story never made the request that was to be broken");
    Ok(())
}

/// Faults that the rows of the crash table are tested with. A lost or refused request is repeated only twice, because the number of tries must not matter and
/// the pauses between tries cost time.
const WAVES: [(&str, Fault, u32); 6] = [
    ("before", Fault::KillBefore, 1),
    ("after", Fault::KillAfter, 1),
    ("lost-reply", Fault::LoseReply, 1),
    ("lost-request", Fault::LoseRequest, 2),
    ("conflict", Fault::Answer(409), 2),
    ("busy", Fault::Answer(429), 2),
];

/// Names of the faults with which `make test` tests each kind of write. For the cluster, a death of Berth after a write has the effect of a lost
/// answer, and for Berth the effect of a death before the next write; a lost request and a busy server have the effect of a conflict. All faults are
/// tested for the rows in `FEW` (writes on which quota depends) and in `SAVE_ROWS`, and for every row with `BERTH_CRASH=all`.
const USUAL_WAVES: [&str; 3] = ["before", "lost-reply", "conflict"];

fn is_played(wave: &str, row: &Row) -> bool {
    let all = || std::env::var("BERTH_CRASH").is_ok_and(|which| which == "all");
    USUAL_WAVES.contains(&wave) || FEW.contains(&row.name) || SAVE_ROWS.contains(&row.name) || all()
}

/// Further faults, which take long or show little: only the rows in `FEW`, on which quota depends, are tested with these faults.
const FEW_WAVES: [(&str, Fault, u32); 3] = [
    // The delay is longer than Berth's deadline for a write, so the answer comes after the deadline.
    ("hang", Fault::Delay(Duration::from_secs(11)), 1),
    ("error", Fault::Answer(500), 2),
    ("unavailable", Fault::Answer(503), 2),
];
const FEW: [&str; 5] = ["create-workload", "reserve", "start", "finish", "let-go"];

/// Names of the faults that rows of other job kinds are tested with, because Berth treats a refusal in the same way for all job kinds.
const OTHER_WAVES: [&str; 4] = ["before", "after", "lost-reply", "conflict"];
/// Rows that are tested with all faults although they are of other job kinds: a request to save goes to many pods, and Berth repeats it as long as the job may
/// save.
const SAVE_ROWS: [&str; 2] = ["notify-pods", "ask-to-save"];

/// Reports to the observer again and again whether Berth's manager leads, which it does when it is ready, because leader election is off; the function never
/// ends. Actions that Berth must take within a time (invariant L3) are not due while Berth is dead, because the time of a start depends on the machine.
async fn reports_when_nobody_leads(stage: &Stage) {
    loop {
        if matches!(stage.manager.readiness().await, Ok((200, _))) {
            stage.observer.somebody_leads();
        } else {
            stage.observer.nobody_leads();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs all rows with their faults on a control plane with Berth; the processes in `helpers` end before the control plane does.
async fn play(plane: ControlPlane, config: &str, helpers: Vec<Guarded>, waves: Vec<Wave>) -> Result<()> {
    let proxy = Proxy::start(&plane, &plane.folder().join("berth.pid")).await?;
    let options = ManagerOptions {
        config: Some(config.to_owned()),
        url: Some(proxy.url().to_owned()),
        restarts: true,
        ..ManagerOptions::default()
    };
    let stage = Stage::on(plane, &[Pool::cpu("cpu", 4, Tier::OnDemand)], options).await?;
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (wave, fault, times, rows) in waves {
        for row in rows {
            let name: &'static str = format!("{}-{wave}", row.name).leak();
            let (stage, proxy) = (&stage, &proxy);
            runs.push((name, async move { run_story(stage, proxy, row, name, fault, times).await }.boxed()));
        }
    }
    let outcome = tokio::select! {
        outcome = run_all(&stage, runs) => outcome,
        () = reports_when_nobody_leads(&stage) => Ok(()),
    };
    let starts = std::fs::read_to_string(stage.manager.log()).context("Berth's log")?.matches("\"starting\"").count();
    println!("Berth was started {starts} times");
    drop(helpers);
    stage.stop().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_points() -> Result<()> {
    let few = || rows().into_iter().filter(|row| FEW.contains(&row.name)).collect();
    let waves = WAVES.into_iter().map(|(wave, fault, times)| {
        (wave, fault, times, rows().into_iter().filter(|row| is_played(wave, row)).collect())
    });
    let few_waves = FEW_WAVES.into_iter().map(|(wave, fault, times)| (wave, fault, times, few()));
    let plane = ControlPlane::start(Options::with_crds("crash")).await?;
    play(plane, CONFIG, Vec::new(), waves.chain(few_waves).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_points_of_an_older_cluster() -> Result<()> {
    let options = Options {
        api_server_args: vec![OLDER.to_owned()],
        controller_manager_args: vec![OLDER.to_owned()],
        ..Options::with_crds("crash-older")
    };
    let waves = WAVES.into_iter().map(|(wave, fault, times)| (wave, fault, times, older_rows()));
    play(ControlPlane::start(options).await?, CONFIG, Vec::new(), waves.collect()).await
}

/// The controller of JobSets is the real one; the autoscaler is scripted. The test creates pods in the form in which the webhook would have stored
/// them, because no pod could be created while Berth, and so its webhook, is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_points_of_other_kinds() -> Result<()> {
    let mut options = Options::with_crds("crash-kinds");
    options.crds.extend([jobset::definitions().await?, autoscaler::definitions().await?]);
    let plane = ControlPlane::start(options).await?;
    let helpers = vec![jobset::start(&plane).await?];
    let _autoscaler = ScriptedAutoscaler::start(plane.client());
    let waves = WAVES.into_iter().map(|(wave, fault, times)| {
        let reported_by = |row: &Row| OTHER_WAVES.contains(&wave) || SAVE_ROWS.contains(&row.name);
        let rows: Vec<Row> = other_rows().into_iter().filter(|row| reported_by(row) && is_played(wave, row)).collect();
        (wave, fault, times, rows)
    });
    play(plane, OTHER_CONFIG, helpers, waves.collect()).await
}
