//! Tests of the harness itself: the control plane comes up, nodes are Ready, a plain Job runs and finishes, and nothing is left over.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use berth_e2e::control_plane::{ControlPlane, Options, create_namespace};
use berth_e2e::kinds::{self, JOB, POD};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::process::{Guarded, Launch};
use berth_e2e::wait::{self, Seen};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_job_runs_on_a_fresh_control_plane() -> Result<()> {
    let begun = Instant::now();
    let plane = ControlPlane::start(Options { name: "harness".to_owned(), ..Options::default() }).await?;
    println!("control plane ready after {:.1} s", begun.elapsed().as_secs_f64());
    let client = plane.client();
    nodes::create(&client, &[Pool::cpu("cpu", 2, Tier::OnDemand), Pool::tpu("spot", 1, Tier::Spot)]).await?;
    println!("nodes ready after {:.1} s", begun.elapsed().as_secs_f64());
    create_namespace(&client, "plain", &[]).await?;
    for (name, annotations, phase) in [
        ("good", json!({"e2e.berth.dev/run-ms": "300", "e2e.berth.dev/ready-ms": "100"}), "Complete"),
        ("bad", json!({"e2e.berth.dev/outcome": "fail"}), "Failed"),
    ] {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "plain"},
            "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/nothing",
                    "resources": {"requests": {"cpu": "1"}}}]}}}
        });
        kinds::apply(&client, &job).await?;
        wait::until(wait::STEP, &format!("job {name} is {phase}"), || async {
            let job = JOB.get(&client, "plain", name).await?.unwrap_or_default();
            Ok(Seen::when(kinds::condition(&job, phase) == "True", || job["status"].to_string()))
        })
        .await?;
    }
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "slow", "namespace": "plain"},
        "spec": {"template": {
            "metadata": {"annotations": {"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "1500"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/nothing"}]}}}
    });
    kinds::apply(&client, &job).await?;
    let running = || async {
        let pods = POD.list(&client, "plain").await?;
        let phases: Vec<String> = pods
            .iter()
            .filter(|p| kinds::text(p, "/metadata/name").starts_with("slow-"))
            .map(|p| format!("{}{}", kinds::text(p, "/status/phase"), p["metadata"]["deletionTimestamp"]))
            .collect();
        Ok::<_, anyhow::Error>(phases)
    };
    wait::until(wait::STEP, "the slow pod runs", || async {
        let seen = running().await?;
        Ok(Seen::when(seen == ["Runningnull"], || format!("{seen:?}")))
    })
    .await?;
    // The pods of the Job may have been deleted before the answer to the Job's deletion is read.
    let asked = Instant::now();
    JOB.delete(&client, "plain", "slow").await?;
    wait::until(wait::STEP, "the slow pod is gone", || async {
        let seen = running().await?;
        Ok(Seen::when(seen.is_empty(), || format!("{seen:?}")))
    })
    .await?;
    ensure!(asked.elapsed() > Duration::from_millis(1300), "the pod did not take its time: {:?}", asked.elapsed());
    let pids = plane.pids()?;
    let folder = plane.folder().to_path_buf();
    println!("jobs done after {:.1} s", begun.elapsed().as_secs_f64());
    plane.stop().await;
    for (name, pid) in pids {
        ensure!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{name} ({pid}) outlived its control plane");
    }
    ensure!(!folder.exists(), "{} is left over", folder.display());
    println!("stopped after {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Environment variable of the process that the test kills: the folder for the pid file of that process's child.
const OWNER: &str = "BERTH_E2E_OWNER_FOLDER";

/// The process that [`killed_owner_leaves_no_child_process_or_folder`] starts and kills, and no test by itself.
#[test]
fn owner_to_be_killed() -> Result<()> {
    let Some(folder) = std::env::var_os(OWNER) else { return Ok(()) };
    let folder = std::path::PathBuf::from(folder);
    let doomed = folder.join("doomed");
    std::fs::create_dir_all(&doomed)?;
    let _child = Guarded::start(Launch {
        name: "sleeper",
        program: std::path::Path::new("sleep"),
        args: vec!["600".to_owned()],
        env: Vec::new(),
        folder: &folder,
        doomed: Some(&doomed),
        restarts: false,
    })?;
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

#[tokio::test]
async fn killed_owner_leaves_no_child_process_or_folder() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("berth-e2e-owner-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut owner = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "harness::owner_to_be_killed"])
        .env(OWNER, &folder)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let pid = wait::until(wait::STEP, "the child's pid", || async {
        let text = std::fs::read_to_string(folder.join("sleeper.pid")).unwrap_or_default();
        Ok(text.trim().parse::<u32>().map_or_else(|_| Seen::NotYet(text.clone()), Seen::Yes))
    })
    .await?;
    let runs = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    ensure!(runs(), "the child runs while its owner does");
    // The process that owns the child process is killed with SIGKILL, so that none of its destructors runs.
    owner.kill()?;
    owner.wait()?;
    wait::until(wait::STEP, "the child is dead and its folder removed", || async {
        Ok(Seen::when(!runs() && !folder.join("doomed").exists(), || format!("process {pid}: {}", runs())))
    })
    .await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
