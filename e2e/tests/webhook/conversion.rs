//! v1beta1 on a real API server: manifests that were written for v1beta1 can be applied and work, a write through v1beta1 loses no field, objects
//! that are stored as v1beta1 stay readable, and v1beta1 can be switched off.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{
    self, CLUSTER_QUEUE, COHORT, CRD, FLAVOR, Kind, LOCAL_QUEUE, USER, WORKLOAD, condition, items, text,
};
use berth_e2e::manifest::{self, cluster_queue, group, quota};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use kube::api::PostParams;
use serde_json::{Value, json};

const OLDER: &str = "kueue.x-k8s.io/v1beta1";
const OLDER_QUEUE: Kind = older(CLUSTER_QUEUE);
const OLDER_WORKLOAD: Kind = older(WORKLOAD);
/// Objects that are read and written in both API versions: the kind, the namespace and the name; the JSON pointer to one field in v1beta1 and in
/// v1beta2; and the field's value.
const WRITTEN: [(Kind, &str, &str, [&str; 2], &str); 5] = [
    (FLAVOR, "", "gpu-a100", ["/spec/nodeLabels/gpu-type"; 2], "a100"),
    (FLAVOR, "", "gpu-v100", ["/spec/nodeLabels/gpu-type"; 2], "v100"),
    (CLUSTER_QUEUE, "", "training", ["/spec/cohort", "/spec/cohortName"], "research"),
    (LOCAL_QUEUE, "team-b", "main", ["/spec/clusterQueue"; 2], "training"),
    (COHORT, "", "research", ["/spec/parentName"; 2], "all"),
];
const QUEUES: &str = "clusterqueues.kueue.x-k8s.io";
const CARRIES: &str = "berth.dev/not-in-v1beta1";
/// Time limit for the API server to replace its handlers after a change of a CRD.
const REBUILT: Duration = Duration::from_secs(90);

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let s = stage.scenario("conversion").await?;
    wait::until(REBUILT, "v1beta1 is served", || async {
        OLDER_QUEUE.list(&s.client, "").await?;
        OLDER_WORKLOAD.list(&s.client, "default").await?;
        for (kind, ..) in WRITTEN {
            older(kind).list(&s.client, "default").await?;
        }
        Ok(Seen::Yes(()))
    })
    .await?;
    manifests_work(&s).await.context("the manifests of the scenario")?;
    nothing_is_lost(&s).await.context("a write through v1beta1")?;
    stored_in_the_older_form(&s, port).await.context("an object stored as v1beta1")?;
    // The observer judges all namespaces, because the manifests create namespaces of their own.
    stage.observer.conclude(Duration::from_secs(2)).await?;
    stage.manager.recomputes().await?;
    let (name, label) = ("berth_webhook_duration_seconds", ["endpoint=\"convert\""]);
    let count = stage.manager.metric(&format!("{name}_count"), &label).await?.unwrap_or_default();
    let within = [label[0], "le=\"0.001\""];
    let quick = stage.manager.metric(&format!("{name}_bucket"), &within).await?.unwrap_or_default();
    println!("conversion: {count} reviews, {quick} of them within a millisecond");
    ensure!(count >= 20.0, "{count} conversions are counted");
    // Other suites use the cores at the same time, and a conversion that waits for a core takes longer.
    ensure!(2.0 * quick >= count, "{quick} of {count} conversions took a millisecond at most");
    Ok(())
}

async fn manifests_work(s: &Scenario<'_>) -> Result<()> {
    let apply = ["apply", "-f", "e2e/cases/v1beta1/scenario.yaml"];
    let first = s.stage.plane.kubectl(&apply).await?;
    ensure!(first.lines().filter(|line| line.ends_with(" created")).count() == 7, "{first}");
    let again = s.stage.plane.kubectl(&apply).await?;
    ensure!(again.lines().filter(|line| line.ends_with(" unchanged")).count() == 7, "not the same again: {again}");

    let cohort = json!({"apiVersion": OLDER, "kind": "Cohort", "metadata": {"name": "research"},
        "spec": {"parentName": "all"}});
    let params = PostParams { field_manager: Some(USER.to_owned()), ..PostParams::default() };
    older(COHORT).api(&s.client, "").create(&params, &serde_json::from_value(cohort)?).await?;
    for (kind, namespace, name, fields, value) in WRITTEN {
        listed_and_patched(s, (kind, namespace, name), fields, value)
            .await
            .with_context(|| format!("{} {name} through v1beta1", kind.kind))?;
    }
    OLDER_QUEUE.patch(&s.client, "", "training", &json!({"spec": {"cohort": "science"}})).await?;
    let queue = CLUSTER_QUEUE.get(&s.client, "", "training").await?.context("the queue")?;
    ensure!(queue["spec"]["cohortName"] == "science", "a patch through v1beta1 has no effect: {queue}");

    for team in ["team-a", "team-b"] {
        kinds::apply(
            &s.client,
            &manifest::Job::new(team, "train", "main").requests(&[("nvidia.com/gpu", "2")]).manifest(),
        )
        .await?;
        let what = format!("the job of {team} is admitted, as v1beta1 shows it");
        wait::until(wait::STEP, &what, || async {
            let found = OLDER_WORKLOAD.list(&s.client, team).await?;
            let flavor = "/status/admission/podSetAssignments/0/flavors/nvidia.com~1gpu";
            let admitted = found.iter().any(|w| condition(w, "Admitted") == "True" && text(w, flavor) == "gpu-a100");
            Ok(Seen::when(admitted, || format!("{found:?}")))
        })
        .await?;
    }
    Ok(())
}

/// The kind `kind` in its version v1beta1.
const fn older(kind: Kind) -> Kind {
    Kind { api_version: OLDER, ..kind }
}

/// An object that v1beta1 lists is patched through v1beta1, and v1beta2 shows the change; each version has the field only under its own name.
async fn listed_and_patched(
    s: &Scenario<'_>,
    (kind, namespace, name): (Kind, &str, &str),
    [before, now]: [&str; 2],
    value: &str,
) -> Result<()> {
    let listed = older(kind).list(&s.client, namespace).await?;
    let found = listed.iter().find(|object| text(object, "/metadata/name") == name).context("not listed")?;
    ensure!(text(found, "/apiVersion") == OLDER && text(found, before) == value, "{found}");
    ensure!(before == now || found.pointer(now).is_none(), "{found}");
    let label = json!({"metadata": {"labels": {"written-through": "v1beta1"}}});
    older(kind).patch(&s.client, namespace, name, &label).await?;
    let read = kind.get(&s.client, namespace, name).await?.context("gone")?;
    ensure!(text(&read, "/metadata/labels/written-through") == "v1beta1", "the patch has no effect: {read}");
    ensure!(text(&read, "/apiVersion") == kind.api_version && text(&read, now) == value, "{read}");
    ensure!(before == now || read.pointer(before).is_none(), "{read}");
    Ok(())
}

async fn nothing_is_lost(s: &Scenario<'_>) -> Result<()> {
    let gates = json!([{"name": "example.com/wait"}]);
    let constraints = json!([{"topology": "rack", "size": 2}]);
    let workload = json!({"apiVersion": WORKLOAD.api_version, "kind": "Workload",
    "metadata": {"namespace": s.namespace, "name": "gated"},
    "spec": {"queueName": "nowhere", "preemptionGates": gates, "priority": 5,
        "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
        "podSets": [{"name": "main", "count": 2,
            "topologyRequest": {"required": "block", "podsetSliceRequiredTopologyConstraints": constraints},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}]}});
    kinds::apply(&s.client, &workload).await?;
    let older = OLDER_WORKLOAD.get(&s.client, &s.namespace, "gated").await?.context("the workload")?;
    ensure!(older["spec"].get("preemptionGates").is_none(), "{older}");
    ensure!(older["spec"]["priorityClassName"] == "high", "{older}");
    ensure!(older["metadata"]["annotations"][CARRIES].is_string(), "{older}");
    OLDER_WORKLOAD.patch(&s.client, &s.namespace, "gated", &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    let resource = "workloads.v1beta1.kueue.x-k8s.io/gated";
    s.stage.plane.kubectl(&["-n", &s.namespace, "annotate", resource, "example.com/c=d"]).await?;
    let stored = WORKLOAD.get(&s.client, &s.namespace, "gated").await?.context("the workload")?;
    ensure!(stored["metadata"]["annotations"] == json!({"example.com/c": "d"}), "{}", stored["metadata"]);
    ensure!(stored["metadata"]["labels"]["a"] == "b", "{}", stored["metadata"]);
    for path in ["/spec/preemptionGates", "/spec/priorityClassRef", "/spec/podSets/0/topologyRequest"] {
        ensure!(stored.pointer(path) == workload.pointer(path), "{path} is lost: {}", stored["spec"]);
    }
    OLDER_WORKLOAD.patch(&s.client, &s.namespace, "gated", &json!({"spec": {"priority": 6}})).await?;
    // The Workload was patched through v1beta1: server-side apply through v1beta2 must convert the fields of both versions to compare them.
    kinds::apply(&s.client, &workload).await?;
    let stored = WORKLOAD.get(&s.client, &s.namespace, "gated").await?.context("the workload")?;
    ensure!(stored["spec"]["priority"] == 5 && stored["spec"]["preemptionGates"] == gates, "{stored}");
    WORKLOAD.delete(&s.client, &s.namespace, "gated").await
}

/// Stores a ClusterQueue while the API server stores v1beta1, as in clusters that ran an older Kueue.
async fn stored_in_the_older_form(s: &Scenario<'_>, port: u16) -> Result<()> {
    change(s, |spec| store_as(spec, "v1beta1")).await?;
    // An object gets the old form only if it is written after the API server has replaced its handlers for the changed CRD.
    let definition = CRD.get(&s.client, "", QUEUES).await?.context("the definition")?;
    ensure!(items(&definition, "/status/storedVersions").contains(&json!("v1beta1")), "{}", definition["status"]);
    let queue = cluster_queue("old", &[group(&[("gpu-a100", &[quota("cpu", "1")])])], &json!({"cohortName": "c"}));
    kinds::apply(&s.client, &queue).await?;
    activated(s).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    CLUSTER_QUEUE.patch(&s.client, "", "old", &json!({"metadata": {"labels": {"written": "last"}}})).await?;
    change(s, |spec| store_as(spec, "v1beta2")).await?;
    reads(s, json!("c")).await.context("after the change of the stored version")?;
    // Without conversion the cohort of the queue is not found, which proves that the queue is stored as v1beta1. Berth is paused, because a write by
    // Berth in that time would store the queue without the field permanently.
    s.stage.manager.pause()?;
    change(s, |spec| {
        serve(spec, false);
        spec["conversion"] = json!({"strategy": "None", "webhook": null});
    })
    .await?;
    reads(s, Value::Null).await.context("without conversion")?;
    berth_e2e::webhooks::convert(&s.client, port).await?;
    s.stage.manager.resume()?;
    change(s, |spec| serve(spec, false)).await?;
    reads(s, json!("c")).await.context("with v1beta1 switched off")?;
    wait::until(REBUILT, "v1beta1 is not served", || async {
        let served = OLDER_QUEUE.all(&s.client).list(&kube::api::ListParams::default()).await;
        Ok(Seen::when(matches!(&served, Err(kube::Error::Api(status)) if status.code == 404), || {
            format!("{:?}", served.map(|list| list.items.len()))
        }))
    })
    .await?;
    activated(s).await
}

async fn activated(s: &Scenario<'_>) -> Result<()> {
    wait::until(REBUILT, "Berth activates the old queue", || async {
        let queue = CLUSTER_QUEUE.get(&s.client, "", "old").await?.context("the queue")?;
        Ok(Seen::when(condition(&queue, "Active") == "True", || queue["status"].to_string()))
    })
    .await
}

async fn reads(s: &Scenario<'_>, cohort: Value) -> Result<()> {
    wait::until(REBUILT, &format!("the cohort of the old queue is {cohort}"), || async {
        // A request that the API server still answers by the older CRD needs a conversion by Berth, which may be paused.
        let asked = CLUSTER_QUEUE.get(&s.client, "", "old");
        let queue = tokio::time::timeout(Duration::from_secs(2), asked).await.context("no answer")??;
        let queue = queue.context("the queue")?;
        Ok(Seen::when(queue["spec"]["cohortName"] == cohort, || queue["spec"].to_string()))
    })
    .await
}

async fn change(s: &Scenario<'_>, edit: impl Fn(&mut Value)) -> Result<()> {
    let definition = CRD.get(&s.client, "", QUEUES).await?.context("the definition")?;
    let mut spec = json!({"versions": definition["spec"]["versions"]});
    edit(&mut spec);
    CRD.patch(&s.client, "", QUEUES, &json!({"spec": spec})).await?;
    Ok(())
}

fn store_as(spec: &mut Value, version: &str) {
    for entry in spec["versions"].as_array_mut().into_iter().flatten() {
        entry["storage"] = json!(entry["name"] == version);
    }
}

fn serve(spec: &mut Value, served: bool) {
    for entry in spec["versions"].as_array_mut().into_iter().flatten().filter(|entry| entry["name"] == "v1beta1") {
        entry["served"] = json!(served);
    }
}
