//! Tests of `make demo` on an existing cluster: the demo names the server and asks the user, does nothing without a yes, and shows the tiers after a
//! yes. The demo does not read the environment variable KUBECONFIG.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::kinds::{self, JOB, condition};
use berth_e2e::observer::{Observer, Scope};
use berth_e2e::{nodes, quickstart};
use tokio::io::AsyncWriteExt;

/// Runs the demo once with `answer` on its standard input; returns whether it succeeded, and its output. The files that the demo keeps while it runs
/// must be gone afterwards.
async fn demo(plane: &ControlPlane, answer: &str) -> Result<(bool, String)> {
    // The kubeconfig names its certificate authority by a file beside itself, as many kubeconfigs do.
    let kubeconfig = plane.folder().join("relative.kubeconfig");
    let text = std::fs::read_to_string(plane.kubeconfig())?;
    ensure!(text.contains(&plane.authority()), "the kubeconfig names no file of its authority: {text}");
    std::fs::write(&kubeconfig, text.replace(&plane.authority(), "pki/ca.crt"))?;
    let scratch = plane.folder().join("scratch");
    std::fs::create_dir_all(&scratch)?;
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_demo"))
        .env("DEMO_KUBECONFIG", &kubeconfig)
        .env("DEMO_ONCE", "1")
        .env("TMPDIR", &scratch)
        .env("KUBECONFIG", "/nonexistent/of-somebody-else")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("a pipe")?;
    stdin.write_all(answer.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = std::fs::read_dir(&scratch)?.collect::<Result<_, _>>()?;
    ensure!(left.is_empty(), "the demo has left {left:?}");
    Ok((output.status.success(), text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_asks_before_it_uses_a_cluster() -> Result<()> {
    let plane = ControlPlane::start(Options { name: "demo-asks".to_owned(), ..Options::default() }).await?;
    let outcome = asked(&plane).await;
    if outcome.is_err() {
        plane.keep_files();
    }
    plane.stop().await;
    outcome
}

async fn asked(plane: &ControlPlane) -> Result<()> {
    nodes::create(&plane.client(), &quickstart::pools()).await?;
    for answer in ["no\n", "", "y\n"] {
        let (succeeded, text) = demo(plane, answer).await?;
        ensure!(!succeeded && text.contains("nothing was done"), "answer {answer:?}: {text}");
        ensure!(text.contains(plane.url()), "it names the server: {text}");
        ensure!(!text.contains("What stays"), "nothing stays: {text}");
        for what in ["crds", "clusterroles berth-manager-role", "namespaces berth-system quickstart"] {
            let mut args = vec!["get", "--ignore-not-found", "-o", "name"];
            args.extend(what.split(' '));
            let found = plane.kubectl(&args).await?;
            ensure!(found.trim().is_empty(), "answer {answer:?} left {found}");
        }
    }
    // The CRDs are applied before the demo, as on a cluster that has had Berth earlier, because the observer can only watch kinds that are served.
    kinds::apply_crds(&plane.client(), &repository().join("crds")).await?;
    let observer = Observer::start(plane.client()).await?;
    let (succeeded, text) = demo(plane, "yes\n").await?;
    ensure!(succeeded, "{text}");
    let stays = ["What stays in the cluster", "valid for a day", "kubectl delete -f crds/"];
    ensure!(stays.iter().all(|words| text.contains(words)), "it does not say what stays: {text}");
    // The demo's Berth ended with the demo, so statuses may be out of date: the observer judges the history of changes, and not the final state.
    let broken = observer.violations(&Scope::all()).await?;
    ensure!(broken.is_empty(), "{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    ensure!(observer.changes() > 0, "the observer saw nothing");
    for tier in ["reserved", "on-demand", "spot"] {
        let row = |line: &str| line.contains("train-") && line.split_whitespace().any(|word| word == tier);
        ensure!(text.lines().any(row), "no job on {tier} is shown:\n{text}");
    }
    let jobs = JOB.list(&plane.client(), quickstart::NAMESPACE).await?;
    ensure!(jobs.len() == 6 && jobs.iter().all(|j| condition(j, "Complete") == "True"), "{} jobs", jobs.len());
    Ok(())
}
