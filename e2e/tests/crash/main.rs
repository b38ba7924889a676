//! Berth dies before and after each kind of write that it does, loses replies and requests, and is refused by a busy server:
//! everything ends right all the same, and no promise is broken on the way.
//!
//! One row per kind of write: how the request is recognised, and a story that makes Berth send it. Each story runs in a
//! namespace of its own, all at the same time, so that one story's crash hits the others wherever they are.

mod stories;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::proxy::{Asked, Fault, Proxy};
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use futures::FutureExt;
use futures::future::BoxFuture;

/// The lease has a test of its own (`failover`): here it would only make every restart wait.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: false
waitForPodsReady:
  timeout: 5m
  blockAdmission: false
";

/// Long enough for a start and what Berth does when nothing else is left to do.
const CALM: Duration = Duration::from_secs(5);

type Story = for<'a> fn(&'a Scenario<'a>) -> BoxFuture<'a, Result<()>>;

/// A kind of write.
struct Row {
    name: &'static str,
    is: fn(&Asked) -> bool,
    story: Story,
}

/// The job controller of this version clears a stopped job's start time itself, so that Berth never has to. Clusters below 1.36
/// work like one without this gate: a template that has run once may change only after Berth has cleared the start time.
const OLDER: &str = "--feature-gates=MutableSchedulingDirectivesForSuspendedJobs=false";

/// Whether the body of a status write leaves the workload in this state.
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

fn rows() -> Vec<Row> {
    let row = |name, is, story| Row { name, is, story };
    vec![
        row("create-workload", |a| a.verb == "create" && a.resource == "workloads", stories::plain),
        row("reserve", |a| workload_status(a) && reserved(a) && a.condition("Evicted") != "True", stories::plain),
        row("start", |a| a.resource == "jobs" && a.at("/spec/suspend") == false, stories::plain),
        row("ready", |a| workload_status(a) && a.condition("PodsReady") == "True", stories::stays_ready),
        row("finish", |a| a.resource == "workloads/status" && a.condition("Finished") == "True", stories::plain),
        row("let-go", |a| finalizers(a, "workloads", false), stories::plain),
        row("cluster-queue", |a| a.resource == "clusterqueues/status", stories::plain),
        row("local-queue", |a| a.resource == "localqueues/status", stories::plain),
        row("keep-queue", |a| finalizers(a, "clusterqueues", true), stories::plain),
        row("keep-flavor", |a| finalizers(a, "resourceflavors", true), stories::plain),
        row("free-queue", |a| finalizers(a, "clusterqueues", false), stories::plain),
        row("free-flavor", |a| finalizers(a, "resourceflavors", false), stories::plain),
        row("explain", |a| workload_status(a) && a.condition("QuotaReserved") == "False", stories::too_big_at_first),
        row("suspend", |a| a.resource == "jobs" && a.at("/spec/suspend") == true, stories::arrives_running),
        row("evict", |a| workload_status(a) && a.condition("Evicted") == "True" && reserved(a), stories::drained),
        row("stop", |a| a.resource == "jobs" && a.at("/spec/suspend") == true, stories::drained),
        row(
            "restore",
            |a| a.resource == "jobs" && a.at("/spec/suspend").is_null() && a.at("/spec/template").is_object(),
            stories::drained,
        ),
        row("release", |a| workload_status(a) && a.condition("Evicted") == "True" && !reserved(a), stories::drained),
        row("requeue", |a| workload_status(a) && a.condition("Requeued") == "True", stories::drained),
        row("target", |a| workload_status(a) && a.condition("DeactivationTarget") == "True", stories::runs_out_of_time),
        row("deactivate", |a| a.resource == "workloads" && a.at("/spec/active") == false, stories::runs_out_of_time),
        row(
            "follow",
            |a| a.verb == "patch" && a.resource == "workloads" && a.at("/spec/queueName") == "other",
            stories::moves_to_another_queue,
        ),
        row(
            "adopt",
            |a| a.resource == "workloads" && a.at("/metadata/ownerReferences").is_array(),
            stories::brings_its_workload,
        ),
        row("reclaim", |a| a.at("/status/reclaimablePods").is_array(), stories::shrinks),
        row("delete-workload", |a| a.verb == "delete" && a.resource == "workloads", stories::changes_its_size),
        row(
            "probe",
            |a| a.verb == "list" && a.resource == "pods" && a.query.contains("controller-uid"),
            stories::deleted_while_it_runs,
        ),
    ]
}

/// What an older cluster has beside these, and the writes around it.
fn older_rows() -> Vec<Row> {
    let clears =
        |a: &Asked| a.resource == "jobs/status" && a.at("/status").get("startTime").is_some_and(|t| t.is_null());
    let mut found = vec![Row { name: "clear-start-time", is: clears, story: stories::drained }];
    found.extend(rows().into_iter().filter(|row| ["stop", "restore", "release"].contains(&row.name)));
    found
}

async fn tell(stage: &Stage, proxy: &Proxy, row: Row, name: &str, fault: Fault, times: u32) -> Result<()> {
    let scenario = stage.scenario(name).await?;
    let (namespace, prefix, is) = (name.to_owned(), format!("{name}-"), row.is);
    let armed = proxy
        .arm(times, fault, move |asked| (asked.namespace == namespace || asked.name.starts_with(&prefix)) && is(asked));
    (row.story)(&scenario).await?;
    // Statuses of queues are written after a quiet second, which Berth must live to see.
    proxy.calm(CALM, CALM * 30).await?;
    scenario.conclude().await?;
    ensure!(armed.struck() > 0, "the story never made the request that was to be broken");
    Ok(())
}

/// Whether Berth is asked again for what it was refused, must not matter; how long it waits, does: few refusals each.
const WAVES: [(&str, Fault, u32); 6] = [
    ("before", Fault::KillBefore, 1),
    ("after", Fault::KillAfter, 1),
    ("lost-reply", Fault::LoseReply, 1),
    ("lost-request", Fault::LoseRequest, 2),
    ("conflict", Fault::Answer(409), 2),
    ("busy", Fault::Answer(429), 2),
];

/// What takes long or says little; the rows that a quota hangs on stand for all.
const FEW_WAVES: [(&str, Fault, u32); 3] = [
    // Longer than Berth's deadline for a write: the answer comes when nobody waits for it any more.
    ("hang", Fault::Delay(Duration::from_secs(11)), 1),
    ("error", Fault::Answer(500), 2),
    ("unavailable", Fault::Answer(503), 2),
];
const FEW: [&str; 5] = ["create-workload", "reserve", "start", "finish", "let-go"];

async fn play(options: Options, waves: Vec<(&'static str, Fault, u32, Vec<Row>)>) -> Result<()> {
    let plane = ControlPlane::start(options).await?;
    let proxy = Proxy::start(&plane, &plane.folder().join("berth.pid")).await?;
    let options = ManagerOptions {
        config: Some(CONFIG.to_owned()),
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
            runs.push((name, async move { tell(stage, proxy, row, name, fault, times).await }.boxed()));
        }
    }
    let outcome = run_all(&stage, runs).await;
    let starts = std::fs::read_to_string(stage.manager.log()).context("Berth's log")?.matches("\"starting\"").count();
    println!("Berth was started {starts} times");
    stage.stop().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_points() -> Result<()> {
    let few = || rows().into_iter().filter(|row| FEW.contains(&row.name)).collect();
    let waves = WAVES.into_iter().map(|(wave, fault, times)| (wave, fault, times, rows()));
    let few_waves = FEW_WAVES.into_iter().map(|(wave, fault, times)| (wave, fault, times, few()));
    play(Options::with_crds("crash"), waves.chain(few_waves).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_points_of_an_older_cluster() -> Result<()> {
    let options = Options {
        api_server_args: vec![OLDER.to_owned()],
        controller_manager_args: vec![OLDER.to_owned()],
        ..Options::with_crds("crash-older")
    };
    let waves = WAVES.into_iter().map(|(wave, fault, times)| (wave, fault, times, older_rows()));
    play(options, waves.collect()).await
}
