//! Pods, groups of pods, Deployments and StatefulSets, on one control plane with the webhooks, because only the webhooks make pods wait.

mod co_location;
mod groups;
mod parents;
mod single;

use anyhow::{Result, ensure};
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::kinds::{DEPLOYMENT, JOB, POD, STATEFUL_SET, WORKLOAD, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks;
use futures::FutureExt;
use serde_json::{Value, json};

const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job, \
                      pod, deployment, statefulset]\n";

/// A pod in the LocalQueue `queue` that requests `cpu`; the fields of `more` are merged into it.
pub(crate) fn pod(s: &Scenario<'_>, name: &str, cpu: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": s.namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "work", "resources": {"requests": {"cpu": cpu}}}]}});
    manifest::merge(&mut object, more);
    object
}

/// A pod of the group `group`, which has `total` pods.
pub(crate) fn member(s: &Scenario<'_>, name: &str, cpu: &str, total: u32, more: &Value) -> Value {
    let mut all = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": total.to_string()}}});
    manifest::merge(&mut all, more);
    pod(s, name, cpu, &all)
}

/// Annotation of a pod that ends by itself after `milliseconds`.
pub(crate) fn run_ms(milliseconds: u32) -> Value {
    json!({"metadata": {"annotations": {"e2e.berth.dev/run-ms": milliseconds.to_string()}}})
}

/// Lets a pod that runs without an end succeed.
pub(crate) async fn ends(s: &Scenario<'_>, name: &str) -> Result<()> {
    let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/run-ms": "100"}}});
    POD.patch(&s.client, &s.namespace, name, &ends).await.map(drop)
}

pub(crate) fn gated(pod: &Value) -> bool {
    items(pod, "/spec/schedulingGates").iter().any(|gate| text(gate, "/name") == "kueue.x-k8s.io/admission")
}

pub(crate) fn running(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && pod.pointer("/metadata/deletionTimestamp").is_none()
}

pub(crate) fn held(pod: &Value) -> bool {
    items(pod, "/metadata/finalizers").iter().any(|name| name == "kueue.x-k8s.io/managed")
}

/// Waits until all pods in `names` run.
pub(crate) async fn all_run(s: &Scenario<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        s.object_is(POD, name, "running", running).await?;
    }
    Ok(())
}

/// Checks for one and a half seconds that the pods in `names` wait with their scheduling gates.
pub(crate) async fn all_wait(s: &Scenario<'_>, names: &[&str]) -> Result<()> {
    wait::stays(std::time::Duration::from_millis(1_500), "pods wait", || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let started = pods.iter().filter(|pod| names.contains(&text(pod, "/metadata/name")) && !gated(pod));
        let started: Vec<&str> = started.map(|pod| text(pod, "/metadata/name")).collect();
        Ok(Seen::when(started.is_empty(), || format!("started: {started:?}")))
    })
    .await
}

/// Waits until `run` pods run and `waiting` pods wait, and no other pods exist.
pub(crate) async fn counts(s: &Scenario<'_>, run: usize, waiting: usize) -> Result<Vec<Value>> {
    wait::until(STEP, &format!("{run} pods run and {waiting} wait"), || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let (runs, waits) = (pods.iter().filter(|p| running(p)).count(), pods.iter().filter(|p| gated(p)).count());
        let there = runs == run && waits == waiting && pods.len() == run + waiting;
        Ok(if there {
            Seen::Yes(pods)
        } else {
            Seen::NotYet(format!("{runs} run, {waits} wait, {} are there", pods.len()))
        })
    })
    .await
}

/// Deletes the objects that a scenario left, and concludes the scenario.
pub(crate) async fn conclude(s: Scenario<'_>) -> Result<()> {
    s.delete_all(&[DEPLOYMENT, STATEFUL_SET, JOB]).await?;
    s.delete_groups_and_pods().await?;
    wait::until(STEP, "no pods are left", || async {
        let left = POD.list(&s.client, &s.namespace).await?;
        Ok(Seen::when(left.is_empty(), || format!("{:?}", left.iter().map(berth_e2e::kinds::key).collect::<Vec<_>>())))
    })
    .await?;
    s.conclude().await
}

/// Another replica becomes the leader after some pods of a group have been created and before the group's other pods are.
async fn another_leader_finishes_what_was_begun(stage: &mut Stage) -> Result<()> {
    let manager_down = {
        let s = stage.scenario("restart").await?;
        s.simple_queue("2", &json!({})).await?;
        s.apply(&member(&s, "a", "1", 2, &run_ms(600))).await?;
        s.object_is(POD, "a", "gated and held", |pod| gated(pod) && held(pod)).await?;
        s.namespace.clone()
    };
    ensure!(manager_down == "restart", "a scenario is called as its namespace");
    stage.manager.kill();
    stage.manager.restart().await?;
    let s = Scenario { stage, client: stage.client.clone(), namespace: manager_down };
    s.apply(&member(&s, "b", "1", 2, &run_ms(600))).await?;
    s.object_is(WORKLOAD, "group", "finished", |w| berth_e2e::kinds::condition(w, "Finished") == "True").await?;
    for name in ["a", "b"] {
        s.object_is(POD, name, "succeeded and let go", |pod| text(pod, "/status/phase") == "Succeeded" && !held(pod))
            .await?;
    }
    stage.manager.recomputes().await?;
    conclude(s).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods() -> Result<()> {
    let plane = ControlPlane::start(Options::with_crds("pods")).await?;
    let port = webhooks::port()?;
    webhooks::install(&plane.client(), port, "Fail").await?;
    let options = ManagerOptions { webhooks: Some(port), config: Some(CONFIG.to_owned()), ..ManagerOptions::default() };
    let mut spot = Pool::cpu("spot", 1, Tier::Spot);
    spot.labels.push(("e2e/pool".to_owned(), "spot".to_owned()));
    let cpu = Pool::cpu("cpu", 2, Tier::OnDemand).label("e2e/pool", "cpu");
    let pools = ["t4", "h100"]
        .map(|accelerator| Pool::gpu(&format!("gpu-{accelerator}"), 1, Tier::OnDemand).label("gpu-type", accelerator));
    let [small, large] = pools;
    let mut stage = Stage::on(plane, &[cpu, spot, small, large], options).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("single", single::admitted_by_tier_and_finished(s).boxed()),
        ("pod-scale-up-failed", single::autoscaler_gets_no_node(s).boxed()),
        ("gpu-type", single::the_gpu_that_its_affinity_requires(s).boxed()),
        ("untouched", single::without_a_queue_nothing_happens(s).boxed()),
        ("refused-pods", single::refused(s).boxed()),
        ("roles", groups::two_roles_all_or_none(s).boxed()),
        ("replaced", groups::a_failed_pod_is_replaced(s).boxed()),
        ("excess", groups::one_too_many(s).boxed()),
        ("preempted", groups::preempted_and_back(s).boxed()),
        ("serving", groups::serving_without_an_end(s).boxed()),
        ("fast-admission", groups::admitted_with_its_first_pod(s).boxed()),
        ("deployment", parents::a_deployment_grows_as_an_autoscaler_wants(s).boxed()),
        ("autoscaled", parents::an_autoscaler_moves_its_bounds(s).boxed()),
        ("statefulset", parents::a_stateful_set_scales_to_zero_and_back(s).boxed()),
        ("parents-end", parents::they_go_with_their_namespace(s).boxed()),
        ("parent-tiers", parents::they_take_the_tier_that_they_name(s).boxed()),
        ("co-location", co_location::training_and_inference_share_nodes(s).boxed()),
    ];
    let mut outcome = run_all(&stage, runs).await;
    if outcome.is_ok() && std::env::var("SCENARIO").is_ok_and(|wanted| !"restart".contains(&wanted)) {
        outcome = Ok(());
    } else if outcome.is_ok() {
        outcome = match another_leader_finishes_what_was_begun(&mut stage).await {
            Ok(()) => Ok(()),
            Err(e) => Err(anyhow::anyhow!(stage.failure("restart", &e).await)),
        };
    }
    stage.stop().await;
    outcome
}
