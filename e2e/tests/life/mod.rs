//! The life of a Workload under a configuration with many settings: managed kinds, requests that count, evictions, requeues and deletions.

mod counted;
mod ends;
mod managed;
mod namespaces;
mod unlisted;

use anyhow::Result;
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::jobset;
use berth_e2e::kinds::{self, condition_object, text};
use berth_e2e::manager::{self, ManagerOptions};
use berth_e2e::manifest;
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Stage, run_all};
use berth_e2e::webhooks;
use futures::FutureExt;
use serde_json::Value;

/// The configuration has GPU slices in the form in which device plugins that share a GPU offer them: a number of slices, each with some percent of
/// the cores and some megabytes of the memory of a GPU. The quota for GPU slices is in percents and megabytes, summed over all slices of a pod.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: false
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [kube-system, berth-system, left-alone]
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]
  labelKeysToCopy: [e2e.berth.dev/project]
resources:
  excludeResourcePrefixes: [e2e.berth.dev/]
  transformations:
  - input: nvidia.com/gpu
    strategy: Replace
  - input: nvidia.com/gpucores
    strategy: Replace
    multiplyBy: nvidia.com/gpu
    outputs: {gpu-percent: 1}
  - input: nvidia.com/gpumem
    strategy: Replace
    multiplyBy: nvidia.com/gpu
    outputs: {gpu-megabytes: 1}
objectRetentionPolicies:
  workloads:
    afterFinished: 10s
    afterDeactivatedByKueue: 8s
waitForPodsReady:
  timeout: 12s
  blockAdmission: false
  requeuingStrategy:
    backoffLimitCount: 1
    backoffBaseSeconds: 1
    backoffMaxSeconds: 1
";

/// A configuration in which resources that a queue does not cover are ignored, with a lease of another name, and with few requests a second.
const IGNORES: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  quotaCheckStrategy: IgnoreUndeclared
leaderElection: {resourceName: e2e-lease, resourceNamespace: berth-system}
clientConnection: {qps: 10, burst: 1}
";

/// Whether the condition `kind` of an object has the reason `reason`.
fn because(object: &Value, kind: &str, reason: &str) -> bool {
    condition_object(object, kind).is_some_and(|condition| text(condition, "/reason") == reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life() -> Result<()> {
    let mut options = Options::with_crds("life");
    options.crds.push(jobset::definitions().await?);
    let plane = ControlPlane::start(options).await?;
    let controller = jobset::start(&plane).await?;
    let port = webhooks::port()?;
    webhooks::install(&plane.client(), port, "Fail").await?;
    // The priority class `default` exists for all scenarios, and for as long as any of them runs.
    kinds::apply(&plane.client(), &manifest::priority_class("default", 5)).await?;
    let options = ManagerOptions { webhooks: Some(port), config: Some(CONFIG.to_owned()), ..ManagerOptions::default() };
    let shared = Pool::gpu("shared", 1, Tier::OnDemand)
        .offers("nvidia.com/gpucores", "800")
        .offers("nvidia.com/gpumem", "640000");
    let pools = [Pool::cpu("cpu", 2, Tier::OnDemand).offers("e2e.berth.dev/license", "4"), shared];
    let stage = Stage::on(plane, &pools, options).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("without-queue", managed::without_queue(s).boxed()),
        ("left-alone", managed::left_alone(s).boxed()),
        ("labels-copied", managed::labels_copied(s).boxed()),
        ("classes", managed::priority_classes(s).boxed()),
        ("gpu-slices", counted::gpu_slices(s).boxed()),
        ("excluded", counted::excluded(s).boxed()),
        ("finished-goes", ends::finished(s).boxed()),
        ("deactivated-goes", ends::deactivated(s).boxed()),
        ("reactivated", ends::reactivated(s).boxed()),
        ("not-ready", ends::pods_not_ready(s).boxed()),
        ("namespace-ends", namespaces::every_kind_goes_with_its_namespace(s).boxed()),
        ("local-drain", ends::local_queue_drained(s).boxed()),
    ];
    let outcome = run_all(&stage, runs).await;
    drop(controller);
    stage.stop().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeclared_resources() -> Result<()> {
    let options =
        ManagerOptions { config: Some(IGNORES.to_owned()), configured_by_file: true, ..ManagerOptions::default() };
    let pools = [Pool::cpu("cpu", 1, Tier::OnDemand).offers("e2e.berth.dev/license", "4")];
    let plane = ControlPlane::start(Options::with_crds("life-undeclared")).await?;
    manager::grant_lease(&plane.client(), manager::NAMESPACE, "e2e-lease").await?;
    let stage = Stage::on(plane, &pools, options).await?;
    let s = &stage;
    let runs: Vec<Run<'_>> =
        vec![("undeclared", counted::undeclared(s).boxed()), ("told-by-file", managed::configured_by_file(s).boxed())];
    let outcome = run_all(&stage, runs).await;
    stage.stop().await;
    outcome
}
