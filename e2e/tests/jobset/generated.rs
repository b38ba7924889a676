//! JobSets as AxLearn generates them (`axlearn/cloud/gcp/job.py` and `jobset_utils.py`): two slices of TPU v5e with four hosts each, which request
//! memory, with a sidecar that requests cpu, each slice on a node pool of its own. The queue is the preset for AxLearn as Berth ships it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{self, QUEUE_POLICY, condition, items, text};
use berth_e2e::manifest;
use berth_e2e::nodes::{Machine, Pool, Tier};
use berth_e2e::quota_tree::thousandths;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

use crate::jobset::{all_run, governs, preset, remove};

/// Number of pods of one generated JobSet.
const PODS: usize = 8;
const RESERVATION: &str = "cloud.google.com/reservation-name";
const PROJECT: &str = "cloud.google.com/reservation-project";
const SPOT: &str = "cloud.google.com/gke-spot";

/// The node pools that a provisioner creates for the generated JobSets: one pool for each slice, with the labels that the slice's pods select. The JobSet
/// `train` has node pools on spot only, and none in the reserved and the on-demand tier.
pub(crate) fn pools() -> Vec<Pool> {
    let reserved = Tier::Reserved("my-reservation".to_owned());
    let jobs = [("zero", "1", reserved), ("one", "5", Tier::Spot), ("train", "5", Tier::Spot)];
    let pool = |(job, priority, tier): &(&str, &str, Tier), slice: &str| {
        let (accelerator, topology) = ("tpu-v5-lite-podslice".to_owned(), "4x4".to_owned());
        let mut pool = Pool::tpu(&format!("ax-{job}-{slice}"), 4, tier.clone());
        pool.machine = Machine::Tpu { accelerator, topology, chips: 4 };
        pool.label("provisioner-nodepool-id", job).label("job-priority", priority).label(PROJECT, "my-project")
    };
    jobs.iter().flat_map(|job| ["a", "b"].map(|slice| pool(job, slice))).collect()
}

/// The container of a generated JobSet that trains.
fn main_container(name: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let env = json!([
        {"name": "JAX_PLATFORMS", "value": "tpu"},
        field("NODE_IP", "status.hostIP"),
        field("NODE_NAME", "spec.nodeName"),
        field("NUM_REPLICAS", "metadata.annotations['jobset.sigs.k8s.io/replicatedjob-replicas']"),
        field("REPLICA_ID", "metadata.annotations['jobset.sigs.k8s.io/job-index']"),
    ]);
    let ports: Vec<Value> = [8471, 8080, 8431, 9000].map(|port| json!({"containerPort": port})).to_vec();
    json!({"name": name, "image": "example.invalid/axlearn", "imagePullPolicy": "Always",
        "command": ["bash", "-c", "python3 -m axlearn.common.launch_trainer_main"],
        "securityContext": {"privileged": true}, "ports": ports, "env": env,
        "resources": {"limits": {"google.com/tpu": 4, "memory": "192Gi"}, "requests": {"memory": "153Gi"}},
        "volumeMounts": [{"name": "shared-output", "mountPath": "/output"}]})
}

/// The sidecar that copies the files that the job writes: an init container that goes on running.
fn uploader() -> Value {
    json!({"name": "output-uploader", "image": "google/cloud-sdk:alpine", "restartPolicy": "Always",
        "command": ["/bin/sh", "-c"], "args": ["while true; do gsutil -m rsync -r /output gs://bucket/output/$HOSTNAME/; sleep 60; done"],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "shared-output", "mountPath": "/output"}]})
}

/// The JobSet of a launch with `--queue=queue` for the tier `tier` that AxLearn's bastion sets: with selectors for GKE's reservation for tier 0, and for spot
/// nodes for any other tier.
fn generated(s: &Scenario<'_>, name: &str, tier: &str, priority: &str) -> Value {
    let mut selector = json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4", "provisioner-nodepool-id": name, "job-priority": priority});
    let mut labels = json!({"bastion-job-version": "1", "job-priority": priority, "user-id": "ann", "project-id": "vision",
        "num-replicas": "2"});
    let mut tolerations = json!([]);
    if tier == "0" {
        selector[RESERVATION] = json!("my-reservation");
        selector[PROJECT] = json!("my-project");
        labels["bastion-tier"] = json!("reserved");
    } else {
        selector[SPOT] = json!("true");
        tolerations = json!([{"key": SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}]);
        labels["bastion-tier"] = json!("spot");
    }
    // The annotation `e2e.berth.dev/outcome` is for kwok's simulated nodes: the pods run until they are deleted.
    let annotations = json!({"axlearn/main-container": name, "tpu-provisioner.cloud.google.com/disable-autoprovisioning": "false",
        "e2e.berth.dev/outcome": "never"});
    let metadata_server = json!({"ip": "169.254.169.254", "hostnames": ["metadata", "metadata.google.internal"]});
    let pods = json!({"terminationGracePeriodSeconds": 60, "restartPolicy": "Never", "hostAliases": [metadata_server],
        "nodeSelector": selector, "tolerations": tolerations, "containers": [main_container(name)],
        "initContainers": [uploader()], "serviceAccountName": "default",
        "volumes": [{"name": "shared-output", "emptyDir": {}}]});
    let balancer = json!({"axlearn/replicatedjob-load-balancer-service-name": format!("{name}-job-service"),
        "axlearn/replicatedjob-load-balancer-target-port": "9000", "axlearn/replicatedjob-load-balancer-port": "80"});
    let template = json!({"metadata": {"annotations": annotations, "labels": labels}, "spec": pods});
    let job = json!({"metadata": {"annotations": balancer, "labels": {}},
        "spec": {"parallelism": 4, "completions": 4, "backoffLimit": 0, "template": template}});
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": name, "labels": {}, "annotations": {
            "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
            "kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"failurePolicy": {"maxRestarts": 9, "restartStrategy": "BlockingRecreate"},
            "replicatedJobs": [{"name": "job", "replicas": 2, "template": job}]}})
}

/// Creates the objects of the preset under names of the scenario, with the policy's tiers changed by `more`, and the LocalQueue `queue`.
async fn queues(s: &Scenario<'_>, more: &Value) -> Result<()> {
    for mut object in kinds::parse(&preset()?.replace("axlearn", &s.namespace))? {
        if text(&object, "/kind") == "QueuePolicy" {
            manifest::merge(&mut object["spec"]["capacityTiers"], more);
        }
        s.apply(&object).await?;
    }
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.namespace)).await?;
    governs(s, &s.namespace).await
}

/// Checks the assignment of a Workload: its chips come from the flavor of the tier `tier`, and all other requests of its pods from the flavor `host`.
fn holds(s: &Scenario<'_>, workload: &Value, tier: &str) -> Result<()> {
    let set = &workload["status"]["admission"]["podSetAssignments"][0];
    let host = s.name("host");
    let flavors = json!({"google.com/tpu": s.name(tier), "cpu": host, "memory": host});
    ensure!(set["flavors"] == flavors && set["count"] == json!(PODS), "{set}");
    // The expected usage is that of eight pods, each with a container of 4 chips and 153Gi of memory and a sidecar of 100m cpu and 128Mi of memory.
    for (resource, amount) in [("google.com/tpu", "32"), ("cpu", "800m"), ("memory", "1225Gi")] {
        let used = thousandths(&set["resourceUsage"][resource]);
        ensure!(used.is_some() && used == thousandths(&json!(amount)), "{resource} is not {amount}: {set}");
    }
    Ok(())
}

/// Checks that pods are on the node pools of their JobSet, and each slice on a node pool of its own.
fn on_own_pools(pods: &[Value], name: &str) -> Result<()> {
    let mut slices: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pod in pods {
        let node = text(pod, "/spec/nodeName");
        ensure!(node.starts_with(&format!("ax-{name}-")), "{node} is no node of {name}");
        let pool = node.rsplit_once('-').map_or(node, |(pool, _)| pool);
        slices.entry(text(pod, "/metadata/labels/jobset.sigs.k8s.io~1job-index")).or_default().insert(pool);
    }
    let distinct: BTreeSet<&str> = slices.values().flatten().copied().collect();
    ensure!(slices.len() == 2 && slices.values().all(|pools| pools.len() == 1) && distinct.len() == 2, "{slices:?}");
    Ok(())
}

/// A generated JobSet of AxLearn's tier 0 is admitted to the reserved flavor and any other to the spot flavor, as their selectors say, and Berth changes no
/// field that AxLearn wrote.
pub(crate) async fn by_its_own_selectors(stage: &Stage) -> Result<()> {
    let s = stage.scenario("as-generated").await?;
    queues(&s, &json!({})).await?;
    let jobs = [("zero", "0", "1", "reserved", 5000), ("one", "1", "5", "spot", 1000)];
    for (name, tier, priority, _, _) in jobs {
        s.apply(&generated(&s, name, tier, priority)).await?;
    }
    for (name, tier, priority, expected, value) in jobs {
        let workload = s.workload(name, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        holds(&s, &workload, expected).with_context(|| name.to_owned())?;
        ensure!(workload["spec"]["priority"] == json!(value), "{name}: {}", workload["spec"]["priority"]);
        let pods = all_run(&s, name, PODS).await?;
        on_own_pools(&pods, name)?;
        let written = generated(&s, name, tier, priority);
        let template = &written["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        for pod in &pods {
            for field in ["/spec/nodeSelector", "/metadata/labels", "/metadata/annotations"] {
                for (key, value) in template.pointer(field).and_then(Value::as_object).into_iter().flatten() {
                    let has = pod.pointer(field).and_then(|all| all.get(key));
                    ensure!(has == Some(value), "{name}: {field} of a pod has {key}={has:?}, and not {value}");
                }
            }
        }
    }
    for (name, ..) in jobs {
        JOBSET.delete(&s.client, &s.namespace, name).await?;
    }
    for (name, ..) in jobs {
        remove(&s, name).await?;
    }
    s.conclude().await
}

/// Number of a Workload's evictions because of a stock-out.
fn stock_outs(workload: &Value) -> i64 {
    let evictions = items(workload, "/status/schedulingStats/evictions").iter();
    let lacked = evictions.filter(|eviction| text(eviction, "/reason") == "StockOut");
    lacked.filter_map(|eviction| eviction.get("count").and_then(Value::as_i64)).sum()
}

/// A JobSet that was generated for spot, in a queue whose policy overrides the selectors: reserved and on-demand capacity have quota but no nodes for
/// it, so that it falls back to spot.
pub(crate) async fn by_policy_alone(stage: &Stage) -> Result<()> {
    let s = stage.scenario("generated-ladder").await?;
    let order = json!(["reserved", "on-demand", "spot"]);
    let patience = json!({"reserved": "1s", "on-demand": "1s"});
    queues(&s, &json!({"selectors": "Override", "default": order, "patience": patience})).await?;
    s.apply(&generated(&s, "train", "1", "5")).await?;
    for (times, tier) in [(1, "reserved"), (2, "on-demand")] {
        let what = format!("{tier} had no machines");
        let workload = s.workload("train", &what, |w| stock_outs(w) >= times).await?;
        ensure!(stock_outs(&workload) == times, "{}", workload["status"]["schedulingStats"]);
    }
    let pods = all_run(&s, "train", PODS).await?;
    on_own_pools(&pods, "train")?;
    for pod in &pods {
        let selector = &pod["spec"]["nodeSelector"];
        ensure!(selector[SPOT] == json!("true") && selector.get(RESERVATION).is_none(), "{selector}");
        ensure!(selector.get("cloud.google.com/gke-provisioning").is_none(), "of the second tier: {selector}");
        ensure!(pod["metadata"]["labels"].get("bastion-tier").is_none(), "{}", pod["metadata"]["labels"]);
    }
    let workload = s.workload("train", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    holds(&s, &workload, "spot")?;
    ensure!(stock_outs(&workload) == 2, "{}", workload["status"]["schedulingStats"]);
    let names = [s.name("reserved"), s.name("on-demand")];
    let lacked: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    s.object_is(QUEUE_POLICY, &s.namespace, "shows both tiers out of stock", |policy| {
        let shown: BTreeSet<&str> = items(policy, "/status/backoffs").iter().map(|one| text(one, "/flavor")).collect();
        shown == lacked
    })
    .await?;
    remove(&s, "train").await?;
    s.conclude().await
}
