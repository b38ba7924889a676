//! Berth is down: what nothing opts in is created as if it were not installed; an opted-in job is refused with Berth's name, or,
//! where the operator chose so, let in and suspended when Berth is back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{self, JOB, condition};
use berth_e2e::manifest;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks;
use serde_json::json;

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let client = stage.client.clone();
    {
        let s = stage.scenario("blast").await?;
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("running").endless()).await?;
        s.admitted("running").await?;
        s.nodes_of("running", 1).await?;
    }
    stage.manager.kill();
    {
        let s = Scenario { stage, client: client.clone(), namespace: "blast".to_owned() };
        let plain = manifest::Job::new("blast", "plain", "").spec(&json!({"suspend": false}));
        let begun = Instant::now();
        s.create(plain).await.context("a job that nothing opts in, with Berth down")?;
        ensure!(begun.elapsed() < Duration::from_secs(1), "it took {:?}", begun.elapsed());
        s.job_is("plain", "Complete", |j| condition(j, "Complete") == "True").await?;
        JOB.patch(&client, "blast", "plain", &json!({"metadata": {"labels": {"a": "b"}}})).await?;
        // Of Kueue's kinds, those with rules beyond their schema wait; the others, and deletions, do not.
        s.apply(&manifest::local_queue("blast", "another", "blast-cq")).await?;
        let queue = manifest::cluster_queue("blast-other", &[], &json!({}));
        let error = format!("{:#}", s.apply(&queue).await.err().context("a ClusterQueue, with Berth down")?);
        ensure!(error.contains("vclusterqueue.berth.dev"), "{error}");

        let eager = s.job("eager").spec(&json!({"suspend": false})).endless();
        let error = format!("{:#}", s.create(eager).await.err().context("an opted-in job, with Berth down")?);
        ensure!(error.contains("mjob.berth.dev") && error.contains("failed calling webhook"), "{error}");
        JOB.delete(&client, "blast", "running").await.context("deleting a managed job, with Berth down")?;
        wait::until(STEP, "the job is gone", || async {
            let there = JOB.get(&client, "blast", "running").await?.is_some();
            Ok(Seen::when(!there, || "there".to_owned()))
        })
        .await?;

        webhooks::install(&client, port, "Ignore").await?;
        // The API server hears of its configuration a moment later.
        wait::until(STEP, "an opted-in job is let in", || async {
            let eager = s.job("eager").spec(&json!({"suspend": false})).endless().manifest();
            let created = kinds::apply(&client, &eager).await?;
            ensure!(created["spec"]["suspend"] == json!(false), "{}", created["spec"]["suspend"]);
            Ok(Seen::Yes(()))
        })
        .await?;
        s.create(s.job("second").spec(&json!({"suspend": false})).endless()).await?;
        s.nodes_of("second", 1).await?;
    }
    stage.manager.restart().await?;
    let s = Scenario { stage, client: client.clone(), namespace: "blast".to_owned() };
    // Their Workloads are made in the same second: which of them is first is not said.
    let jobs = ["eager", "second"];
    let waiting = wait::until(STEP, "one of the two is admitted", || async {
        for (job, other) in [(jobs[0], jobs[1]), (jobs[1], jobs[0])] {
            if s.workload_of(job).await?.is_some_and(|w| condition(&w, "Admitted") == "True") {
                return Ok(Seen::Yes(other));
            }
        }
        Ok(Seen::NotYet("neither".to_owned()))
    })
    .await?;
    s.pending(waiting).await?;
    wait::until(STEP, "the job without quota has no pods", || async {
        let pods = s.pods_of(waiting).await?.len();
        Ok(Seen::when(pods == 0, || format!("{pods} pods")))
    })
    .await?;
    let created = s.create(s.job("third").spec(&json!({"suspend": false}))).await?;
    ensure!(created["spec"]["suspend"] == json!(true), "Berth is back: {}", created["spec"]["suspend"]);
    Ok(())
}
