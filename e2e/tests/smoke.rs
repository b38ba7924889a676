//! One Job of the quickstart through all layers: suspended, queued, admitted, started with its flavor's node selector, bound by the default
//! scheduler, and finished, with its quota given back. This scenario is the short end-to-end test for daily work.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{self, CLUSTER_QUEUE, NODE, condition, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::quickstart::{self, NAMESPACE};
use berth_e2e::quota_tree::{reserved, thousandths};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::shipped;
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_runs_through_all_layers() -> Result<()> {
    let stage = Stage::start("smoke", &quickstart::pools(), ManagerOptions::default()).await?;
    let outcome = match own_programs(&stage) {
        Ok(()) => first_job(&stage).await,
        Err(e) => Err(e),
    };
    let outcome = match outcome {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow::anyhow!(stage.failure(NAMESPACE, &e).await)),
    };
    stage.stop().await;
    outcome
}

/// Checks that the test runs the programs of its own clone: two clones may run their tests at the same time with the same cache.
fn own_programs(stage: &Stage) -> Result<()> {
    let operator = std::fs::read_link(format!("/proc/{}/exe", stage.manager.pid()?))?;
    let asked_for = shipped::binary()?.canonicalize()?;
    ensure!(operator == asked_for, "the operator is {}, not {}", operator.display(), asked_for.display());
    // `make test` names the target folder of its own clone in the environment.
    if let Some(folder) = std::env::var_os("TESTRUN_TARGET") {
        let folder = std::path::Path::new(&folder).canonicalize()?;
        for program in [operator, std::env::current_exe()?.canonicalize()?] {
            ensure!(program.starts_with(&folder), "{} is not of {}", program.display(), folder.display());
        }
    }
    Ok(())
}

async fn first_job(stage: &Stage) -> Result<()> {
    let client = &stage.client;
    quickstart::apply_queues(client).await?;
    let scenario = Scenario { stage, client: client.clone(), namespace: NAMESPACE.to_owned() };
    scenario.object_is(CLUSTER_QUEUE, "tpu", "Active", |q| condition(q, "Active") == "True").await?;
    scenario.object_is(kinds::LOCAL_QUEUE, "tpu", "Active", |q| condition(q, "Active") == "True").await?;

    let mut manifest = quickstart::manifests("03-jobs.yaml")?.into_iter().next().context("the example has a job")?;
    // The job runs for 20 s, because the test checks its usage after its pods were bound, and Berth writes the statuses of queues seconds later.
    manifest["spec"]["template"]["metadata"]["annotations"]["e2e.berth.dev/run-ms"] = json!("20000");
    let name = text(&manifest, "/metadata/name").to_owned();
    let created = scenario.apply(&manifest).await?;
    ensure!(created["spec"]["suspend"] == json!(true), "the example's job is created suspended");

    let workload = scenario.admitted(&name).await?;
    ensure!(quickstart::flavor_of(&workload) == "reserved", "admitted to {}", workload["status"]["admission"]);
    ensure!(text(&workload, "/status/admission/clusterQueue") == "tpu", "{}", workload["status"]["admission"]);
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["google.com/tpu"];
    ensure!(thousandths(usage) == Some(8000), "8 chips are charged, not {usage}");

    let job = scenario.get_job(&name).await?;
    let selector = &job["spec"]["template"]["spec"]["nodeSelector"];
    ensure!(selector["cloud.google.com/reservation-name"] == json!("quickstart"), "node selector: {selector}");
    let bound = scenario.nodes_of(&name, 2).await?;
    for node in &bound {
        let node = NODE.get(client, "", node).await?.context("the pod's node exists")?;
        ensure!(quickstart::tier_of(&node) == "reserved", "pods landed on {bound:?}");
    }
    scenario.object_is(CLUSTER_QUEUE, "tpu", "8 chips reserved", |q| reserved(q, "total") == 8000).await?;
    dumps(stage, text(&workload, "/metadata/name")).await?;
    is_explained(stage, &name).await.context("docs/decide.md, a live cluster")?;
    scenario.finished(&name).await?;
    scenario.object_is(CLUSTER_QUEUE, "tpu", "no chips reserved", |q| reserved(q, "total") == 0).await?;
    // The time for which no object may change is longer than the interval between two writes of a queue status, so that a slow endless series of writes fails
    // the test.
    stage.observer.conclude(Duration::from_secs(6)).await?;
    stage.manager.recomputes().await?;
    scenario.remove(&name).await?;
    stage.observer.conclude(Duration::from_secs(2)).await?;
    stage.manager.recomputes().await
}

/// The command `berth decide` explains the objects that docs/decide.md pipes into it from kubectl, with the quota that is held.
async fn is_explained(stage: &Stage, job: &str) -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/decide.md"))?;
    let begins = |line: &&str| line.trim_start().starts_with("kubectl get -o yaml -A");
    let first = page.lines().position(|line| begins(&line)).context("the page has the command")?;
    let command: Vec<&str> = page.lines().skip(first).take_while(|line| !line.is_empty()).collect();
    let binary = shipped::binary()?;
    let folder = binary.parent().context("the folder of the binary")?.display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &command.join("\n")]).env("KUBECONFIG", stage.plane.kubeconfig()).env("PATH", path);
    let output = shell.output().await?;
    let (message, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{errors}");
    let reported = [format!("(Job {NAMESPACE}/{job}): admitted in tpu"), "google.com/tpu=reserved".to_owned()];
    ensure!(
        reported.iter().all(|words| message.contains(words)),
        "nothing is said of {job} and its flavor:\n{message}{errors}"
    );
    Ok(())
}

/// After SIGUSR2 the log lists the held quota, and the manager goes on.
async fn dumps(stage: &Stage, workload: &str) -> Result<()> {
    stage.manager.signal("USR2")?;
    let lines = wait::until(wait::STEP, "the log has a whole dump", || async {
        let log = std::fs::read_to_string(stage.manager.log())?;
        let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let ended = lines.iter().any(|line| line["message"] == "end of the dump" && line["cluster_queues"] == 1);
        Ok(if ended { Seen::Yes(lines) } else { Seen::NotYet(stage.manager.log_tail(3)) })
    })
    .await?;
    let queue = lines.iter().find(|line| line["message"] == "dump of a ClusterQueue" && line["cluster_queue"] == "tpu");
    let queue = queue.context("the dump names the ClusterQueue")?;
    ensure!(queue["level"] == "INFO" && queue["reserving"] == 1, "{queue}");
    ensure!(queue["holders"] == format!("{NAMESPACE}/{workload}"), "{queue}");
    Ok(())
}
