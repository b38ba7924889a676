//! Training and inference on the same machines: the files of `examples/co-location`, on nodes with the labels and taints for which the files are
//! written.

use anyhow::{Context, Result, ensure};
use berth_e2e::examples;
use berth_e2e::kinds::{
    self, DEPLOYMENT, JOB, Kind, POD, TRAINING_JOB, VALIDATING_ADMISSION_POLICY, condition, condition_object, items,
    text,
};
use berth_e2e::manifest::{Job, merge};
use berth_e2e::nodes;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use jiff::Timestamp;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::pods::{conclude, running};

const USAGE: &str = "example.com/node.usage";
const ACCELERATOR: &str = "nvidia.com/gpu.product";
const LARGE: &str = "NVIDIA-H100-80GB-HBM3";
const SMALL: &str = "NVIDIA-L40S";
/// Name of the scenario, of its namespace and of the example, and beginning of the names of its nodes.
const NAME: &str = "co-location";
/// Nodes of the scenario by pool: their usage, the type of their GPU, and their number. The nodes with small GPUs are for inference alone.
static NODES: [(&str, &str, &str, u32); 4] = [
    ("training", "training", LARGE, 2),
    ("hybrid", "hybrid", LARGE, 1),
    ("inference", "inference", LARGE, 1),
    ("small", "inference", SMALL, 1),
];
const POLICIES: [&str; 2] = ["co-location-pods", "co-location-trainings"];
const CHAT: (&str, &str) = ("app", "chat");
const PRETRAIN: (&str, &str) = ("berth.dev/training-job", "pretrain");
const FINETUNE: (&str, &str) = ("berth.dev/training-job", "finetune");

/// Training falls back to the hybrid node, gives the node back to inference after it has saved a checkpoint, and returns to it later, without any
/// field about this in a manifest.
pub(crate) async fn training_and_inference_share_nodes(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario(NAME).await?;
    let s = &scenario;
    let machines = NODES.iter().flat_map(|(pool, usage, accelerator, count)| {
        (0..*count).map(move |index| machine(&format!("{NAME}-{pool}-{index}"), usage, accelerator))
    });
    nodes::join(&s.client, &machines.collect::<Vec<_>>()).await?;
    put(s, "queues.yaml").await?;
    put(s, "cards.yaml").await?;
    accelerators_are_named(s).await?;
    each_on_its_own(s).await?;
    inference_takes_back(s).await?;
    training_comes_back(s).await?;
    without_accelerators(s).await?;
    // The clean-up deletes the jobs while they run.
    examples::clean_up(&stage.plane, &examples::folder(NAME)).await?;
    conclude(scenario).await
}

/// A node with eight GPUs.
fn machine(name: &str, usage: &str, accelerator: &str) -> Value {
    let taint = |(key, value): (&str, &str)| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let taints = [(USAGE, usage), (ACCELERATOR, accelerator)].map(taint);
    let offers =
        json!({"cpu": "192", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": "8"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {(USAGE): usage, (ACCELERATOR): accelerator, "kubernetes.io/hostname": name}},
        "spec": {"taints": taints}, "status": {"capacity": offers, "allocatable": offers}})
}

/// The objects in a file of the example.
fn objects(file: &str) -> Result<Vec<Value>> {
    kinds::example(&format!("co-location/{file}"))
}

/// Applies a file of the example co-location. The simulated nodes execute nothing, so the example's trainings go on until they are asked to end.
async fn put(s: &Scenario<'_>, file: &str) -> Result<()> {
    for mut object in objects(file)? {
        let pod = &object["spec"]["template"]["spec"];
        ensure!(pod["affinity"].is_null() && pod["tolerations"].is_null(), "{file} writes by hand what it need not");
        if text(&object, "/kind") == TRAINING_JOB.kind {
            let lives = json!({"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "700"});
            merge(&mut object, &json!({"spec": {"template": {"metadata": {"annotations": lives}}}}));
        }
        s.apply(&object).await.with_context(|| file.to_owned())?;
    }
    Ok(())
}

/// Waits until as many pods with the label `key=value` run as `pools` has entries, each on a node of its pool; the pools are listed in the order of
/// the alphabet.
async fn run_on(s: &Scenario<'_>, (key, value): (&str, &str), pools: &[&str]) -> Result<Vec<Value>> {
    wait::until(STEP, &format!("pods of {value} run on {pools:?}"), || async {
        let mut pods = POD.list(&s.client, &s.namespace).await?;
        pods.retain(|pod| pod["metadata"]["labels"][key] == json!(value) && running(pod));
        let mut found: Vec<String> = pods.iter().map(|pod| pool(pod).to_owned()).collect();
        found.sort_unstable();
        Ok(if found == pools { Seen::Yes(pods) } else { Seen::NotYet(format!("{found:?}")) })
    })
    .await
}

/// The pool of a pod's node.
fn pool(pod: &Value) -> &str {
    let node = text(pod, "/spec/nodeName");
    let pool = node.rsplit_once('-').map_or(node, |(pool, _)| pool);
    pool.strip_prefix(NAME).map_or(pool, |own| own.trim_start_matches('-'))
}

/// The message with which the API server refuses a dry run of an object; empty if it accepts the object.
async fn refusal(s: &Scenario<'_>, object: &Value) -> Result<String> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let api = Kind::of(object)?.api(&s.client, &s.namespace);
    let answer = api.create(&params, &serde_json::from_value(object.clone())?).await;
    Ok(answer.err().map(|e| e.to_string()).unwrap_or_default())
}

/// The example's ValidatingAdmissionPolicies refuse an object that requests GPUs without the type of the GPU, and the message says how to name the type. A node
/// affinity that the user writes also counts as naming the type. The API server checks the types in a ValidatingAdmissionPolicy's expressions, but not in its
/// variables, so a fault of a variable shows only when an object of each kind is tried.
async fn accelerators_are_named(s: &Scenario<'_>) -> Result<()> {
    for name in POLICIES {
        let looked_at = |policy: &Value| policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
        let policy = s.object_is(VALIDATING_ADMISSION_POLICY, name, "its types checked", looked_at).await?;
        let warnings = items(&policy, "/status/typeChecking/expressionWarnings");
        ensure!(warnings.is_empty(), "{name}: {warnings:?}");
    }
    let nameless = objects("refused.yaml")?;
    ensure!(nameless.len() == 3, "a Job, a Deployment and a TrainingJob");
    for object in &nameless {
        let kind = text(object, "/kind");
        let (policy, words) = if kind == TRAINING_JOB.kind {
            (POLICIES[1], "who asks for cards names their type in spec.resources.gpuType")
        } else {
            (
                POLICIES[0],
                "who asks for nvidia.com/gpu names the type of card by the node selector nvidia.com/gpu.product",
            )
        };
        let wanted = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}");
        // The API server applies a new policy only after a moment.
        wait::until(STEP, &format!("a {kind} that names no card is refused"), || async {
            let message = refusal(s, object).await?;
            Ok(Seen::when(message.contains(&wanted), || message))
        })
        .await?;
    }
    let mut by_hand =
        nameless.into_iter().find(|object| text(object, "/kind") == DEPLOYMENT.kind).context("the Deployment")?;
    let is = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [is(USAGE, &["inference", "hybrid"]), is(ACCELERATOR, &[SMALL])]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [is(USAGE, &["inference"])]}}]}});
    let tolerations = [USAGE, ACCELERATOR].map(|key| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
    let pod = json!({"affinity": affinity, "tolerations": tolerations});
    merge(&mut by_hand, &json!({"spec": {"template": {"spec": pod}}}));
    s.apply(&by_hand).await?;
    run_on(s, ("app", text(&by_hand, "/metadata/name")), &["small"]).await.map(drop)
}

/// Training fills its own nodes and then the hybrid node; inference is on its own nodes, each model on the type of GPU that it names.
async fn each_on_its_own(s: &Scenario<'_>) -> Result<()> {
    put(s, "training.yaml").await?;
    run_on(s, PRETRAIN, &["training", "training"]).await?;
    put(s, "more-training.yaml").await?;
    run_on(s, FINETUNE, &["hybrid"]).await?;
    // The training must run before inference takes the hybrid node back: until then it has nothing to save, and would get no time to save it.
    s.object_is(TRAINING_JOB, FINETUNE.1, "running", |job| condition(job, "Running") == "True").await?;
    put(s, "inference.yaml").await?;
    run_on(s, CHAT, &["inference", "inference"]).await?;
    run_on(s, ("app", "embed"), &["small"]).await.map(drop)
}

/// When inference needs more than its own nodes, Berth asks the training on the hybrid node to save a checkpoint, and stops it after it has saved. The
/// trainings on the training nodes run on.
async fn inference_takes_back(s: &Scenario<'_>) -> Result<()> {
    let (_, name) = FINETUNE;
    scale(s, 3).await?;
    let requested = |job: &Value| condition(job, "CheckpointRequested") == "True";
    let asked = s.object_is(TRAINING_JOB, name, "asked to save", requested).await?;
    let why = condition_object(&asked, "CheckpointRequested").cloned().unwrap_or_default();
    ensure!(text(&why, "/reason") == "Preempted", "{why}");
    for words in ["due to reclamation within the cohort", "preemptor path: /co-location/co-location-inference"] {
        ensure!(text(&why, "/message").contains(words), "{words:?}: {why}");
    }
    wait::until(STEP, "its pod is told until when it may go on", || async {
        let pods = run_on(s, FINETUNE, &["hybrid"]).await?;
        let reported = pods.iter().all(|pod| pod["metadata"]["annotations"]["berth.dev/stop-at"].is_string());
        Ok(Seen::when(reported, || "not told".to_owned()))
    })
    .await?;
    let job = JOB.get(&s.client, &s.namespace, "finetune-worker").await?.context("its Job")?;
    ensure!(job["metadata"]["deletionTimestamp"].is_null(), "stopped before it has saved: {job}");
    run_on(s, CHAT, &["inference", "inference"]).await?;
    let saved = json!({"metadata": {"annotations": {
        "berth.dev/last-checkpoint-time": Timestamp::now().to_string(),
        "berth.dev/last-checkpoint-step": "1200",
        "berth.dev/last-checkpoint-uri": "s3://checkpoints/finetune/step-1200",
    }}});
    TRAINING_JOB.patch(&s.client, &s.namespace, name, &saved).await?;
    // The training is stopped after it has saved, long before its two minutes to save are over.
    run_on(s, CHAT, &["hybrid", "inference", "inference"]).await?;
    let waits = |job: &Value| {
        let request = condition_object(job, "CheckpointRequested");
        request.is_some_and(|one| text(one, "/reason") == "CheckpointSaved") && text(job, "/status/phase") == "Queued"
    };
    s.object_is(TRAINING_JOB, name, "saved and waiting", waits).await?;
    run_on(s, PRETRAIN, &["training", "training"]).await.map(drop)
}

/// Inference needs less again: the training gets the hybrid node back, goes on from its checkpoint, and ends as the other training does.
async fn training_comes_back(s: &Scenario<'_>) -> Result<()> {
    let serving = run_on(s, CHAT, &["hybrid", "inference", "inference"]).await?;
    let on_hybrid = serving.iter().find(|one| pool(one) == "hybrid").context("the one on the hybrid node")?;
    // Without a deletion cost the ReplicaSet would delete one of the two pods that share a node.
    let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}});
    POD.patch(&s.client, &s.namespace, text(on_hybrid, "/metadata/name"), &cost).await?;
    scale(s, 2).await?;
    run_on(s, CHAT, &["inference", "inference"]).await?;
    run_on(s, FINETUNE, &["hybrid"]).await?;
    let job = JOB.get(&s.client, &s.namespace, "finetune-worker").await?.context("its Job")?;
    let variables = items(&job, "/spec/template/spec/containers/0/env");
    for (name, value) in [("BERTH_RESUME_STEP", "1200"), ("BERTH_RESUME_URI", "s3://checkpoints/finetune/step-1200")] {
        ensure!(variables.contains(&json!({"name": name, "value": value})), "{name}: {variables:?}");
    }
    let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "succeed"}}});
    for (training, pools) in [(PRETRAIN, &["training", "training"][..]), (FINETUNE, &["hybrid"])] {
        for one in run_on(s, training, pools).await? {
            POD.patch(&s.client, &s.namespace, text(&one, "/metadata/name"), &ends).await?;
        }
        let succeeded = |job: &Value| text(job, "/status/phase") == "Succeeded";
        s.object_is(TRAINING_JOB, training.1, "succeeded", succeeded).await?;
    }
    Ok(())
}

/// Workloads without GPUs run on none of the GPU nodes, whatever their queue.
async fn without_accelerators(s: &Scenario<'_>) -> Result<()> {
    put(s, "cpu.yaml").await?;
    s.create(Job::new(&s.namespace, "astray", "training").run_ms(2_000)).await?;
    for name in ["tokenize", "astray"] {
        for node in s.nodes_of(name, 1).await? {
            ensure!(node.starts_with("cpu-"), "{name} is on {node}");
        }
        s.finished(name).await?;
    }
    Ok(())
}

async fn scale(s: &Scenario<'_>, replicas: u32) -> Result<()> {
    let (_, name) = CHAT;
    DEPLOYMENT.patch(&s.client, &s.namespace, name, &json!({"spec": {"replicas": replicas}})).await.map(drop)
}
