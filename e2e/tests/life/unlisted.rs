//! A role of Berth's lacks a rule, as after half of an upgrade: the jobs that need the rule wait, and all other jobs go on.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::jobset::{self, JOBSET};
use berth_e2e::kinds::{self, Kind, WORKLOAD, condition};
use berth_e2e::manager::{self, Manager, ManagerOptions};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use super::managed::job_set;

/// Time limit that is longer than the longest pause between two attempts of Berth to list a kind.
const LISTED: Duration = Duration::from_secs(90);
/// Leader election is off, so that a restarted manager need not wait for the lease of the killed one.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}
";
const BINDING: &str = "berth-jobsets-rolebinding";

fn options(name: &str) -> ManagerOptions {
    ManagerOptions { name: name.to_owned(), config: Some(CONFIG.to_owned()), ..ManagerOptions::default() }
}

fn binding() -> Result<Kind> {
    Kind::of(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}))
}

/// A JobSet that is created suspended in the LocalQueue `queue`, and whose pods run for longer than the test.
fn long_set(s: &Scenario<'_>, name: &str) -> Value {
    let mut set = job_set(s, name, &json!({"kueue.x-k8s.io/queue-name": "queue"}));
    set["spec"]["suspend"] = json!(true);
    set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
        json!({"annotations": {"e2e.berth.dev/run-ms": "600000"}});
    set
}

/// Waits until the manager's `/readyz` answers 200 with a text that begins with `words`; the text must be exactly `ok` if `words` is `ok`, which
/// reports no fault.
async fn readyz(manager: &Manager, words: &str) -> Result<()> {
    wait::until(LISTED, &format!("/readyz says {words:?}"), || async {
        let answer = manager.readiness().await;
        let says = |text: &str| text.starts_with(words) && (words != "ok" || text.trim_end() == words);
        let there = matches!(&answer, Ok((200, text)) if says(text));
        Ok(Seen::when(there, || format!("{answer:?}")))
    })
    .await
}

/// A Berth that was started without the right to list JobSets admits Jobs, and a JobSet keeps its quota; once it gets the right, Berth handles
/// JobSets again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_admitted_without_the_role_for_job_sets() -> Result<()> {
    let mut plane = Options::with_crds("life-unlisted");
    plane.crds.push(jobset::definitions().await?);
    let plane = ControlPlane::start(plane).await?;
    let controller = jobset::start(&plane).await?;
    let stage = Stage::on(plane, &[Pool::cpu("cpu", 1, Tier::OnDemand)], options("berth")).await?;
    let outcome = match half_upgraded(&stage).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow!(stage.failure("unlisted", &e).await)),
    };
    drop(controller);
    stage.stop().await;
    outcome
}

async fn half_upgraded(stage: &Stage) -> Result<()> {
    let s = stage.scenario("unlisted").await?;
    s.simple_queue("2", &json!({})).await?;
    s.apply(&long_set(&s, "runs")).await?;
    s.workload("runs", "Admitted", |w| condition(w, "Admitted") == "True").await?;

    binding()?.delete(&s.client, "", BINDING).await?;
    stage.manager.signal("KILL")?;
    // The API server refuses the requests only a moment after the ClusterRoleBinding is deleted, because its authorizer learns of the deletion by a watch.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let half = Manager::start(&stage.plane, options("berth-half")).await?;
    readyz(&half, "ok, but jobsets cannot be listed").await?;
    s.create(s.job("beside").run_ms(300)).await?;
    s.finished("beside").await?;
    s.apply(&long_set(&s, "waits")).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let shown: Vec<Value> = WORKLOAD.list(&s.client, &s.namespace).await?;
    let held = shown.iter().filter(|workload| kinds::text(workload, "/metadata/name").starts_with("jobset-runs"));
    ensure!(held.clone().count() == 1 && held.clone().all(|w| condition(w, "Evicted") != "True"), "{shown:?}");

    manager::install(&s.client).await?;
    readyz(&half, "ok").await?;
    s.workload("waits", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    let keeps = |w: &Value| condition(w, "Admitted") == "True" && condition(w, "Finished") != "True";
    s.workload("runs", "Admitted as before", keeps).await?;
    half.recomputes().await?;
    for name in ["runs", "waits"] {
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    s.conclude().await
}
