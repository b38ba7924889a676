//! A JobSet of two replicated jobs, as AxLearn makes it for Pathways: a head that needs a CPU, and workers that need accelerators. Only the workers'
//! resources come in tiers, and only the workers fall back to the next tier.

use anyhow::{Context, Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{POD, QUEUE_POLICY, condition, items, text};
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use crate::jobset::{START, all_run, governs, remove};

/// A JobSet with a head of one pod, and a slice of two worker hosts.
fn head_and_workers(s: &Scenario<'_>) -> Value {
    let pods = |resources: Value, selector: Value| {
        json!({"metadata": {"annotations": {"e2e.berth.dev/run-ms": "600000"}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "nodeSelector": selector,
                "containers": [{"name": "main", "image": "train", "resources": resources}]}})
    };
    let head = pods(json!({"requests": {"cpu": "2"}}), json!({}));
    let slice = json!({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x4"});
    let worker = pods(json!({"limits": {"google.com/tpu": "4"}}), slice);
    let jobs = json!([
        {"name": "head", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": head}}},
        {"name": "job", "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": worker}}},
    ]);
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": "train", "annotations": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"replicatedJobs": jobs}})
}

/// Creates a queue with cpu of a flavor without a tier, and with chips of two tiers: the reserved tier, which has no nodes, and the on-demand tier.
async fn queue(s: &Scenario<'_>) -> Result<()> {
    let (cpu, reserved, demand) = (s.name("cpu"), s.name("reserved"), s.name("on-demand"));
    s.apply(&manifest::flavor(&cpu, &[("cloud.google.com/gke-nodepool", "cpu")])).await?;
    for (name, tier, label) in [
        (&reserved, "reserved", ("cloud.google.com/reservation-name", "nowhere")),
        (&demand, "on-demand", ("e2e/pool", "on-demand")),
    ] {
        let mut flavor = manifest::flavor(name, &[label]);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        flavor["spec"]["tolerations"] = json!([{"key": label.0, "operator": "Exists"}]);
        s.apply(&flavor).await?;
    }
    let (cores, chips) = ([quota("cpu", "4")], [quota("google.com/tpu", "8")]);
    let groups = [group(&[(&*cpu, &cores[..])]), group(&[(&*reserved, &chips[..]), (&*demand, &chips)])];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &groups, &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    let tiers = json!({"default": ["reserved", "on-demand"], "patience": {"reserved": "4s"}});
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("policy")},
        "spec": {"clusterQueues": [s.name("cq")], "capacityTiers": tiers}}))
        .await?;
    governs(s, &s.name("policy")).await
}

pub(crate) async fn only_workers_fall_back(stage: &Stage) -> Result<()> {
    let s = stage.scenario("pathways").await?;
    queue(&s).await?;
    s.apply(&head_and_workers(&s)).await?;
    for pod in all_run(&s, "train", 2).await? {
        ensure!(text(&pod, "/spec/nodeName").starts_with("tpu-od"), "{}", pod["spec"]["nodeName"]);
    }
    let head = wait::until(START, "the head runs", || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let head = pods.into_iter().find(|pod| {
            text(pod, "/metadata/labels/kueue.x-k8s.io~1podset") == "head" && text(pod, "/status/phase") == "Running"
        });
        Ok(head.map_or_else(|| Seen::NotYet("no pod of the head runs".to_owned()), Seen::Yes))
    })
    .await?;
    ensure!(text(&head, "/spec/nodeName").starts_with("cpu"), "{}", head["spec"]["nodeName"]);
    let workload = s.workload("train", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    let flavor = |set: &str, resource: &str| {
        let sets = items(&workload, "/status/admission/podSetAssignments");
        sets.iter().find(|one| one["name"] == set).map(|one| one["flavors"][resource].clone()).context("its pod set")
    };
    ensure!(flavor("head", "cpu")? == json!(s.name("cpu")), "{}", workload["status"]["admission"]);
    ensure!(flavor("job", "google.com/tpu")? == json!(s.name("on-demand")), "{}", workload["status"]["admission"]);
    // Only the workers of the JobSet were tried in the reserved tier: the flavor of the head pod has no tier, and no back-off follows for it.
    let evictions = items(&workload, "/status/schedulingStats/evictions");
    ensure!(evictions.len() == 1 && text(&evictions[0], "/reason") == "StockOut", "{evictions:?}");
    let reserved = s.name("reserved");
    s.object_is(QUEUE_POLICY, &s.name("policy"), "shows the reservation alone out of stock", |policy| {
        let shown: Vec<&str> = items(policy, "/status/backoffs").iter().map(|one| text(one, "/flavor")).collect();
        shown == [reserved.as_str()]
    })
    .await?;
    remove(&s, "train").await?;
    s.conclude().await
}
