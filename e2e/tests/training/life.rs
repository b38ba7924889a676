//! Scenarios of TrainingJobs from the queue to their end.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, JOB, POD, condition, condition_object, items, text};
use berth_e2e::manifest::{self, group, merge, quota};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::training::{ACCELERATOR, LIMIT, endless, is, phase, pods, pods_of, training};
use berth_e2e::wait::{self, Seen};

/// Creates a queue with 32 GPUs of a flavor whose nodes have a taint.
async fn gpu_queue(s: &Scenario<'_>) -> Result<()> {
    let flavor = s.name("h100");
    let mut object = manifest::flavor(&flavor, &[("cloud.google.com/gke-nodepool", "gpu")]);
    object["metadata"]["labels"] = json!({"berth.dev/capacity-tier": "on-demand"});
    object["spec"]["tolerations"] = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    s.apply(&object).await?;
    let quotas = [quota("cpu", "200"), quota("memory", "2Ti"), quota("nvidia.com/gpu", "32")];
    let held = json!({"stopPolicy": "Hold"});
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&[(&flavor, &quotas)])], &held)).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    Ok(())
}

/// A PyTorchJob of 4 workers with 8 GPUs each passes the phases Pending, Queued, Running and Succeeded.
pub(crate) async fn pytorch(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("pytorch").await?;
    let s = &scenario;
    gpu_queue(s).await?;
    let class = s.name("production");
    s.apply(&training(
        s,
        "gpt",
        "PyTorchJob",
        &json!({
            "resources": {"maxReplicas": 4, "gpuType": ACCELERATOR,
                "replicaResources": {"gpu": 8, "cpu": "32", "memory": "256Gi"}},
            "schedulingConfig": {"priority": class},
            "sharedMemory": "16Gi",
            "template": pods(&json!({"e2e.berth.dev/outcome": "never"})),
        }),
    ))
    .await?;
    // The job's priority class does not exist yet.
    phase(s, "gpt", "Pending").await?;
    s.apply(&manifest::priority_class(&class, 100)).await?;
    let queued = phase(s, "gpt", "Queued").await?;
    ensure!(
        condition(&queued, "Queued") == "True" && condition(&queued, "Admitted") == "False",
        "{}",
        queued["status"]
    );
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
    let running = phase(s, "gpt", "Running").await?;
    let status = &running["status"];
    let mut given = status["allocatedResources"].clone();
    // The number of nodes is left out of the comparison, because Berth counts the nodes a moment after the pods run.
    if let Some(given) = given.as_object_mut() {
        given.remove("nodes");
    }
    ensure!(given == json!({"gpus": 32, "cpu": "128", "memory": "1Ti"}), "{status}");
    ensure!(
        text(&running, "/status/workers") == "4/4" && text(&running, "/status/capacityTier") == "on-demand",
        "{status}"
    );
    ensure!(status["replicaStatuses"]["worker"]["running"] == json!(4), "{status}");
    let all = pods_of(s, "gpt").await?;
    ensure!(all.len() == 4, "{} pods", all.len());
    for pod in &all {
        rendezvous(pod)?;
        ensure!(text(pod, "/spec/nodeName").starts_with("gpu-"), "{}", pod["spec"]["nodeName"]);
        let selector = &pod["spec"]["nodeSelector"];
        ensure!(selector["cloud.google.com/gke-nodepool"] == json!("gpu"), "{selector}");
        ensure!(selector["nvidia.com/gpu.product"] == json!(ACCELERATOR), "{selector}");
        ensure!(pod["spec"].to_string().contains(r#""mountPath":"/dev/shm""#), "no shared memory");
    }
    let workload = s.workload_of("gpt").await?.context("its workload")?;
    let owner = &workload["metadata"]["ownerReferences"][0];
    ensure!(owner["kind"] == json!("TrainingJob") && owner["uid"] == running["metadata"]["uid"], "{owner}");
    ensure!(text(&workload, "/metadata/name").starts_with("trainingjob-gpt-"), "{}", workload["metadata"]["name"]);
    ends(s, "gpt", &["0", "1", "2", "3"], "succeed").await?;
    let done = phase(s, "gpt", "Succeeded").await?;
    ensure!(condition(&done, "Succeeded") == "True" && condition(&done, "Running") == "False", "{}", done["status"]);
    let reasons: Vec<&str> = items(&done, "/status/events").iter().map(|event| text(event, "/reason")).collect();
    for wanted in ["Queued", "Admitted", "Running", "Succeeded"] {
        ensure!(reasons.contains(&wanted), "{wanted} is not in {reasons:?}");
    }
    ensure!(items(&done, "/status/conditions").iter().all(|c| text(c, "/type") != "Ready"), "a condition Ready");
    s.workload("gpt", "Finished", |w| condition(w, "Finished") == "True").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    for (kind, words) in [
        ("trainingjobs", &["PyTorchJob", "Succeeded", "32"][..]),
        ("workloads.kueue.x-k8s.io", &["4 pods, nvidia.com/gpu 32, cpu 128, memory 1Ti", "on-demand"]),
        ("clusterqueues", &["nvidia.com/gpu 0/", "cpu 0/"]),
    ] {
        let output = stage.plane.kubectl(&["-n", &s.namespace, "get", kind, "-o", "wide"]).await?;
        ensure!(words.iter().all(|word| output.contains(word)), "{words:?}: {output}");
    }
    scenario.conclude().await
}

/// Checks that a pod finds the other pods by their names below the headless Service.
fn rendezvous(pod: &Value) -> Result<()> {
    let service = text(pod, "/spec/subdomain").to_owned();
    ensure!(text(pod, "/spec/hostname").starts_with("gpt-worker-") && service.starts_with("gpt-"), "{}", pod["spec"]);
    let env = items(pod, "/spec/containers/0/env");
    let value = |name: &str| env.iter().find(|v| text(v, "/name") == name).map(|v| text(v, "/value").to_owned());
    for (name, wanted) in [
        ("MASTER_ADDR", format!("gpt-worker-0.{service}")),
        ("WORLD_SIZE", "4".to_owned()),
        ("RANK", "$(JOB_COMPLETION_INDEX)".to_owned()),
        ("PET_NNODES", "4".to_owned()),
        ("PET_NPROC_PER_NODE", "8".to_owned()),
    ] {
        ensure!(value(name).as_deref() == Some(wanted.as_str()), "{name}: {:?}", value(name));
    }
    let index = env.iter().filter(|v| text(v, "/name") == "JOB_COMPLETION_INDEX").count();
    ensure!(index == 1, "{index} indexes");
    Ok(())
}

/// Runs a TrainingJob of each framework other than PyTorch to its end; parameter servers and MPI workers do not end by themselves.
pub(crate) async fn frameworks(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("frameworks").await?;
    let s = &scenario;
    s.simple_queue("20", &json!({})).await?;
    let forever = pods(&json!({"e2e.berth.dev/outcome": "never"}));
    let roles = json!([{"name": "chief"}, {"name": "ps", "template": forever}]);
    s.apply(&training(s, "tf", "TFJob", &json!({"roles": roles}))).await?;
    let launcher = json!([{"name": "launcher", "template": pods(&json!({"e2e.berth.dev/run-ms": "1500"})),
        "replicaResources": {"cpu": "1"}}]);
    s.apply(&training(s, "mpi", "MPIJob", &json!({"roles": launcher, "template": forever}))).await?;
    for (name, job_type) in [("xgb", "XGBoostJob"), ("paddle", "PaddleJob"), ("jax", "JAXJob")] {
        s.apply(&training(s, name, job_type, &json!({}))).await?;
    }
    for name in ["tf", "mpi", "xgb", "paddle", "jax"] {
        phase(s, name, "Succeeded").await?;
    }
    for (gone, kept) in [("tf-ps", "tf-chief"), ("mpi-worker", "mpi-launcher")] {
        ensure!(JOB.get(&s.client, &s.namespace, gone).await?.is_none(), "{gone} is left");
        ensure!(JOB.get(&s.client, &s.namespace, kept).await?.is_some(), "{kept} has gone");
    }
    scenario.conclude().await
}

/// A worker that fails, and may not be started again, makes its TrainingJob fail.
pub(crate) async fn failing(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("failing-worker").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    let failing = pods(&json!({"e2e.berth.dev/outcome": "fail"}));
    s.apply(&training(s, "bad", "JAXJob", &json!({"backoffLimit": 0, "template": failing}))).await?;
    s.apply(&training(s, "good", "JAXJob", &json!({}))).await?;
    let failed = phase(s, "bad", "Failed").await?;
    let why = condition_object(&failed, "Failed").cloned().unwrap_or_default();
    ensure!(text(&why, "/reason") == "Failed" && text(&why, "/message").starts_with("worker: "), "{why}");
    phase(s, "good", "Succeeded").await?;
    wait::until(LIMIT, "no pod of the failed job lives", || async {
        let all = pods_of(s, "bad").await?;
        let live = all.iter().filter(|pod| !["Failed", "Succeeded"].contains(&text(pod, "/status/phase"))).count();
        Ok(Seen::when(live == 0, || format!("{live} pods")))
    })
    .await?;
    is(s, "bad", "counted", |job| job["status"]["replicaStatuses"]["worker"]["failed"].as_i64() >= Some(1)).await?;
    scenario.conclude().await
}

/// A worker that fails is started again up to the back-off limit: of two TrainingJobs with the same limit, the one whose worker fails once succeeds,
/// and the one whose worker always fails does not.
pub(crate) async fn starts_again(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("restarted-worker").await?;
    let s = &scenario;
    s.simple_queue("3", &json!({})).await?;
    let failing = pods(&json!({"e2e.berth.dev/outcome": "fail"}));
    let hopeless = json!({"backoffLimit": 1, "resources": {"maxReplicas": 1}, "template": failing});
    s.apply(&training(s, "hopeless", "JAXJob", &hopeless)).await?;
    let mut unlucky = endless();
    merge(&mut unlucky, &json!({"backoffLimit": 1}));
    s.apply(&training(s, "unlucky", "PyTorchJob", &unlucky)).await?;
    phase(s, "unlucky", "Running").await?;
    ends(s, "unlucky", &["1"], "fail").await?;
    let struck = is(s, "unlucky", "told of a restart", |job| job["status"]["restarts"] == json!(1)).await?;
    ensure!(text(&struck, "/status/phase") == "Running", "{}", struck["status"]);
    // The job controller pauses for ten seconds before it replaces a pod.
    wait::until(LIMIT, "another pod in its place", || async {
        let all = pods_of(s, "unlucky").await?;
        let phases: Vec<&str> = all.iter().map(|pod| text(pod, "/status/phase")).collect();
        let running = phases.iter().filter(|phase| **phase == "Running").count();
        Ok(Seen::when(running == 2, || format!("{phases:?}")))
    })
    .await?;
    ends(s, "unlucky", &["0", "1"], "succeed").await?;
    let done = phase(s, "unlucky", "Succeeded").await?;
    ensure!(done["status"]["restarts"] == json!(1), "{}", done["status"]);
    is(s, "unlucky", "counted", |job| {
        let worker = &job["status"]["replicaStatuses"]["worker"];
        worker["failed"] == json!(1) && worker["succeeded"] == json!(2)
    })
    .await?;
    let failed = phase(s, "hopeless", "Failed").await?;
    let why = condition_object(&failed, "Failed").cloned().unwrap_or_default();
    ensure!(text(&why, "/message").starts_with("worker: "), "{why}");
    is(s, "hopeless", "counted", |job| job["status"]["replicaStatuses"]["worker"]["failed"] == json!(2)).await?;
    scenario.conclude().await
}

/// A pod that is lost with its node does not count as a failure of its TrainingJob, and another pod replaces it.
pub(crate) async fn loses_a_node(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("lost-node").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    let mut steady = endless();
    merge(&mut steady, &json!({"backoffLimit": 0}));
    s.apply(&training(s, "steady", "JAXJob", &steady)).await?;
    phase(s, "steady", "Running").await?;
    let pods = pods_of(s, "steady").await?;
    let lost = pods.first().map(|pod| text(pod, "/metadata/name").to_owned()).unwrap_or_default();
    // The controller that evicts pods from a node with a taint writes the reason, and the kubelet, or the pod garbage collector after it, ends the
    // pods.
    let disrupted = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "its node goes", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ended = json!({"status": {"phase": "Failed", "conditions": [disrupted]}});
    let api = POD.api(&s.client, &s.namespace);
    api.patch_status(&lost, &PatchParams::default(), &Patch::Strategic(&ended)).await?;
    wait::until(LIMIT, "another pod in its place", || async {
        let all = pods_of(s, "steady").await?;
        let running =
            all.iter().filter(|pod| text(pod, "/status/phase") == "Running" && text(pod, "/metadata/name") != lost);
        let running = running.count();
        let reported = JOB.get(&s.client, &s.namespace, "steady-worker").await?.unwrap_or_default();
        Ok(Seen::when(running == 2, || format!("{running} run, {}", reported["status"])))
    })
    .await?;
    ends(s, "steady", &["0", "1"], "succeed").await?;
    phase(s, "steady", "Succeeded").await?;
    scenario.conclude().await
}

/// Lets the running pods of a TrainingJob with the indexes `indexes` end with `outcome`: kwok follows the pods' annotation.
pub(crate) async fn ends(s: &Scenario<'_>, name: &str, indexes: &[&str], outcome: &str) -> Result<()> {
    let how = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": outcome}}});
    for pod in pods_of(s, name).await? {
        let index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str();
        let concerned = index.is_some_and(|index| indexes.contains(&index));
        if concerned && text(&pod, "/status/phase") == "Running" {
            POD.patch(&s.client, &s.namespace, text(&pod, "/metadata/name"), &how).await?;
        }
    }
    Ok(())
}
