//! Tests of every folder of `examples/`: the files are applied as the README says, on the nodes that they need, all their jobs finish, and the clean-up of the
//! README removes their objects; two examples have tests of their own. For each preset without jobs of its own the tests create jobs, which fall back through
//! the preset's tiers, on nodes as the pages of docs/capacity describe them. The API server accepts every object of Kueue's or Berth's kinds in the pages of
//! docs/.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::examples::{clean_up, files_to_apply, folders};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, NODE, POD, TRAINING_JOB, WORKLOAD, condition, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest;
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::pages;
use berth_e2e::quickstart;
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, Seen};
use kube::Client;
use serde_json::{Map, Value, json};

const LIMIT: Duration = Duration::from_secs(180);
/// Namespace of the jobs that use the presets.
const PRESETS: &str = "presets";
/// Label of nodes, whose value is the name of the nodes' flavor.
const FLAVOR: &str = "e2e.berth.dev/flavor";

/// The nodes that all examples together need.
fn pools() -> Vec<Pool> {
    let mut pools = quickstart::pools();
    pools.push(Pool::cpu("cpu", 2, Tier::OnDemand));
    // The label names the flavor `gke-gpu-on-demand` of the preset for GPUs on GKE, so that its jobs run on the test's GPU nodes.
    pools.push(Pool::gpu("gpu", 2, Tier::OnDemand).label(FLAVOR, "gke-gpu-on-demand"));
    pools
}

type Pairs = &'static [(&'static str, &'static str)];

/// A preset: its file, its ClusterQueue, and its tiers, with the best tier at the beginning. A tier has the flavor, the number of nodes of eight GPUs
/// in the quota that the test fills (one is enough in the last tier), and the nodes' labels and taints as the preset's page gives them.
type Preset = (&'static str, &'static str, [(&'static str, u32, Pairs, Pairs); 3]);

const GPU_TAINT: (&str, &str) = ("nvidia.com/gpu", "present");
const H100: (&str, &str) = ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb");
const P5: (&str, &str) = ("node.kubernetes.io/instance-type", "p5.48xlarge");
const RESERVATION: (&str, &str) = ("cloud.google.com/reservation-name", "h100");
const STANDARD: (&str, &str) = ("cloud.google.com/gke-provisioning", "standard");
const GKE_SPOT: (&str, &str) = ("cloud.google.com/gke-spot", "true");
const AKS_SPOT: (&str, &str) = ("kubernetes.azure.com/scalesetpriority", "spot");
const RECALLABLE: (&str, &str) = ("example.com/capacity", "recallable");

static PRESET_NODES: [Preset; 4] = [
    (
        "gke-gpu",
        "gke-gpu",
        [
            ("gke-gpu-reserved", 8, &[H100, STANDARD, RESERVATION], &[GPU_TAINT, RESERVATION]),
            ("gke-gpu-on-demand", 4, &[H100, STANDARD], &[GPU_TAINT]),
            (
                "gke-gpu-spot",
                1,
                &[H100, ("cloud.google.com/gke-provisioning", "spot"), GKE_SPOT],
                &[GPU_TAINT, GKE_SPOT],
            ),
        ],
    ),
    (
        "eks-karpenter",
        "eks-gpu",
        [
            ("eks-gpu-reserved", 8, &[P5, ("karpenter.sh/capacity-type", "reserved")], &[("nvidia.com/gpu", "true")]),
            ("eks-gpu-on-demand", 4, &[P5, ("karpenter.sh/capacity-type", "on-demand")], &[("nvidia.com/gpu", "true")]),
            ("eks-gpu-spot", 1, &[P5, ("karpenter.sh/capacity-type", "spot")], &[("nvidia.com/gpu", "true")]),
        ],
    ),
    (
        "aks",
        "aks-gpu",
        [
            ("aks-gpu-reserved", 8, &[("capacity", "reserved")], &[GPU_TAINT]),
            ("aks-gpu-on-demand", 4, &[("capacity", "on-demand")], &[GPU_TAINT]),
            ("aks-gpu-spot", 1, &[AKS_SPOT], &[GPU_TAINT, AKS_SPOT]),
        ],
    ),
    (
        "bare-metal",
        "metal",
        [
            ("metal-owned", 8, &[("example.com/capacity", "owned")], &[]),
            ("metal-lent", 4, &[("example.com/capacity", "lent")], &[]),
            ("metal-recalled", 1, &[RECALLABLE], &[RECALLABLE]),
        ],
    ),
];

/// A node with eight GPUs.
fn machine(flavor: &str, index: u32, labels: Pairs, taints: Pairs) -> Value {
    let name = format!("{flavor}-{index}");
    let mut all: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    all.insert("kubernetes.io/hostname".to_owned(), json!(name));
    all.insert(FLAVOR.to_owned(), json!(flavor));
    let taint = |(key, value): &(&str, &str)| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let taints: Vec<Value> = taints.iter().map(taint).collect();
    let offers =
        json!({"cpu": "192", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": "8"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all}, "spec": {"taints": taints},
        "status": {"capacity": offers, "allocatable": offers}})
}

/// Tests the presets that no other test gives nodes and jobs: the presets for GPUs of all clouds and for machines of one's own.
async fn presets(client: &Client) -> Result<()> {
    let machines = PRESET_NODES.iter().flat_map(|(_, _, tiers)| tiers).flat_map(|(flavor, count, labels, taints)| {
        (0..*count).map(move |index| machine(flavor, index, labels, taints))
    });
    nodes::join(client, &machines.collect::<Vec<_>>()).await?;
    berth_e2e::control_plane::create_namespace(client, PRESETS, &[]).await?;
    futures::future::try_join_all(PRESET_NODES.iter().map(|preset| async move {
        let (file, ..) = preset;
        falls_through_tiers(client, preset).await.with_context(|| format!("preset {file}"))
    }))
    .await?;
    Ok(())
}

/// Creates jobs without annotations about tiers, of which each fills one tier of the preset: each next job falls back to the next tier and runs on
/// that tier's nodes.
async fn falls_through_tiers(client: &Client, (file, queue, tiers): &Preset) -> Result<()> {
    let path = repository().join(format!("examples/capacity-tiers/{file}.yaml"));
    kinds::apply_yaml(client, &std::fs::read_to_string(path)?).await?;
    kinds::apply(client, &manifest::local_queue(PRESETS, file, queue)).await?;
    let requests = [("nvidia.com/gpu", "8"), ("cpu", "64"), ("memory", "512Gi")];
    for (flavor, machines, ..) in tiers {
        let job = manifest::Job::new(PRESETS, flavor, file).requests(&requests).pods(*machines).endless();
        kinds::apply(client, &job.manifest()).await?;
        let owned = |w: &Value| text(w, "/metadata/ownerReferences/0/name") == *flavor;
        wait::until(LIMIT, &format!("job {flavor} is admitted to the flavor of its name"), || async {
            let workload = WORKLOAD.list(client, PRESETS).await?.into_iter().find(owned).unwrap_or_default();
            let given = workload.pointer("/status/admission/podSetAssignments/0/flavors/nvidia.com~1gpu");
            let there = condition(&workload, "Admitted") == "True" && given == Some(&json!(flavor));
            Ok(Seen::when(there, || workload["status"].to_string()))
        })
        .await?;
    }
    for (flavor, machines, ..) in tiers {
        let owned = |pod: &Value| text(pod, "/metadata/labels/batch.kubernetes.io~1job-name") == *flavor;
        let nodes = wait::until(LIMIT, &format!("the pods of job {flavor} have nodes"), || async {
            let pods = POD.list(client, PRESETS).await?;
            let bound = pods.iter().filter(|pod| owned(pod)).map(|pod| text(pod, "/spec/nodeName").to_owned());
            let bound: Vec<String> = bound.filter(|node| !node.is_empty()).collect();
            let all = bound.len() == usize::try_from(*machines)?;
            Ok(if all { Seen::Yes(bound) } else { Seen::NotYet(format!("on {bound:?}")) })
        })
        .await?;
        for name in nodes {
            let node = NODE.get(client, "", &name).await?.context("the pod's node")?;
            let label = node.pointer("/metadata/labels").and_then(|labels| labels.get(FLAVOR));
            ensure!(label == Some(&json!(flavor)), "a pod of job {flavor} is on {name}");
        }
    }
    for (flavor, ..) in tiers {
        JOB.delete(client, PRESETS, flavor).await?;
    }
    wait::until(LIMIT, &format!("queue {queue} holds nothing"), || async {
        let queue = CLUSTER_QUEUE.get(client, "", queue).await?.unwrap_or_default();
        Ok(Seen::when(reserved(&queue, "total") == 0, || queue["status"].to_string()))
    })
    .await?;
    println!("preset {file}: a job in each tier");
    Ok(())
}

/// A user who tries one example after the other has the objects of both, so objects of the same name must be equal.
#[test]
fn examples_agree_on_objects_of_the_same_name() -> Result<()> {
    let mut seen: BTreeMap<[String; 3], (PathBuf, Value)> = BTreeMap::new();
    for folder in folders()? {
        for file in files_to_apply(&folder)? {
            for object in kinds::parse(&std::fs::read_to_string(&file)?).with_context(|| file.display().to_string())? {
                let key = ["/kind", "/metadata/namespace", "/metadata/name"].map(|path| text(&object, path).to_owned());
                let (other, before) = seen.entry(key.clone()).or_insert_with(|| (file.clone(), object.clone()));
                ensure!(*before == object, "{} of {} and {}", key.join(" "), other.display(), file.display());
            }
        }
    }
    ensure!(!seen.is_empty(), "no examples were found");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_are_applied_and_finish() -> Result<()> {
    let stage = Stage::start("examples", &pools(), ManagerOptions::default()).await?;
    let mut folders = folders()?;
    // The example training-story needs nodes that come and go, and `story.rs` tests it. The example co-location has servers, which never end, and
    // needs the webhooks; the suite `pods` tests it.
    folders.retain(|path| !["training-story", "co-location"].iter().any(|other| path.ends_with(other)));
    let outcome = match applied(&stage, &folders).await {
        Ok(()) => judged(&stage).await,
        Err(e) => Err(e),
    };
    let outcome = match outcome {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow!(stage.failure("", &e).await)),
    };
    stage.stop().await;
    outcome
}

/// Applies the objects of the pages, the examples, and the presets to the API server.
async fn applied(stage: &Stage, folders: &[PathBuf]) -> Result<()> {
    // The pages are tested before any object with the names of their objects exists.
    let count = pages::accepted(&stage.client).await?;
    println!("docs: {count} objects of the pages are accepted");
    ensure!(!folders.is_empty(), "no examples were found");
    let runs = folders
        .iter()
        .map(|folder| async move { example(stage, folder).await.with_context(|| folder.display().to_string()) });
    futures::future::try_join_all(runs).await?;
    presets(&stage.client).await?;
    // All examples are cleaned up at the same time: an object of two examples goes with the last example that uses it.
    futures::future::try_join_all(folders.iter().map(|folder| clean_up(&stage.plane, folder))).await?;
    Ok(())
}

async fn judged(stage: &Stage) -> Result<()> {
    stage.observer.conclude(Duration::from_secs(6)).await?;
    stage.manager.recomputes().await
}

async fn example(stage: &Stage, folder: &Path) -> Result<()> {
    let client = &stage.client;
    let (mut jobs, mut training, mut queues) = (Vec::new(), Vec::new(), Vec::new());
    for file in files_to_apply(folder)? {
        for object in kinds::parse(&std::fs::read_to_string(&file)?).with_context(|| file.display().to_string())? {
            match text(&object, "/kind") {
                "Namespace" => {
                    berth_e2e::control_plane::create_namespace(client, text(&object, "/metadata/name"), &[]).await?;
                    continue;
                }
                "Job" => jobs.push((
                    text(&object, "/metadata/namespace").to_owned(),
                    text(&object, "/metadata/name").to_owned(),
                )),
                "TrainingJob" => training.push((
                    text(&object, "/metadata/namespace").to_owned(),
                    text(&object, "/metadata/name").to_owned(),
                )),
                "ClusterQueue" => queues.push(text(&object, "/metadata/name").to_owned()),
                _ => {}
            }
            kinds::apply(client, &object).await?;
        }
    }
    ensure!(!jobs.is_empty() || !training.is_empty(), "an example shows at least one job");
    for (namespace, name) in &training {
        wait::until(LIMIT, &format!("training job {namespace}/{name} has succeeded"), || async {
            let job = TRAINING_JOB.get(client, namespace, name).await?.unwrap_or_default();
            Ok(Seen::when(text(&job, "/status/phase") == "Succeeded", || job["status"].to_string()))
        })
        .await?;
    }
    let mut wrong = Vec::new();
    for (namespace, name) in &jobs {
        wait::until(LIMIT, &format!("job {namespace}/{name} is done"), || async {
            let job = JOB.get(client, namespace, name).await?.unwrap_or_default();
            Ok(Seen::when(condition(&job, "Complete") == "True", || job["status"].to_string()))
        })
        .await?;
        let owned = |o: &Value| items(o, "/metadata/ownerReferences").iter().any(|r| text(r, "/name") == name);
        let workload = WORKLOAD.list(client, namespace).await?.into_iter().find(owned).context("its workload")?;
        ensure!(!quickstart::flavor_of(&workload).is_empty(), "{name} ran without having been admitted");
        let flavor = quickstart::flavor_of(&workload).to_owned();
        for pod in POD.list(client, namespace).await?.iter().filter(|p| owned(p)) {
            let node = NODE.get(client, "", text(pod, "/spec/nodeName")).await?.context("the pod's node")?;
            let tier = quickstart::tier_of(&node);
            if ["reserved", "on-demand", "spot"].contains(&flavor.as_str()) && tier != flavor {
                wrong.push(format!("{name} was admitted to {flavor} and ran on {tier}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    for queue in &queues {
        wait::until(LIMIT, &format!("queue {queue} holds nothing"), || async {
            let queue = CLUSTER_QUEUE.get(client, "", queue).await?.unwrap_or_default();
            Ok(Seen::when(reserved(&queue, "total") == 0, || queue["status"].to_string()))
        })
        .await?;
    }
    println!("example {}: {} jobs finished", folder.display(), jobs.len() + training.len());
    Ok(())
}
