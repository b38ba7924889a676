//! The migration of StatefulSets: the template of a StatefulSet that Kueue began only says that its pods wait, and no write under Berth adds to the
//! template, so that nothing restarts. A new pod gets a scheduling gate and the name of its group, and starts on the flavor of the Workload that
//! Kueue made.

use anyhow::{Context, Result, ensure};
use berth_e2e::control_plane::create_namespace;
use berth_e2e::kinds::{self, POD, STATEFUL_SET, WORKLOAD, condition, text};
use berth_e2e::manifest::{self, group, quota};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{is_in, runs};
use crate::migration::World;
use crate::migration::kueue::{self, IN_USE, Kueue};

/// Namespace of the StatefulSets, and the name of their ClusterQueue.
const NAMESPACE: &str = "sets";
/// The StatefulSet that Kueue has started.
const SET: &str = "web";
/// The StatefulSet that Berth starts.
const YOUNG: &str = "young";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

fn kueue(world: &World) -> Kueue<'_> {
    let (client, manager) = (&world.client, &world.as_kueue);
    Kueue { client, manager, namespace: NAMESPACE, cluster_queue: NAMESPACE, flavor: "flavor" }
}

/// A StatefulSet as its user writes it; if `waits`, its template has the annotation that Kueue's webhook adds.
fn set(name: &str, replicas: i32, waits: bool) -> Value {
    let mut annotations = json!({"e2e.berth.dev/outcome": "never"});
    if waits {
        annotations["kueue.x-k8s.io/pod-suspending-parent"] = json!("statefulset");
    }
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "1"}}});
    json!({"apiVersion": STATEFUL_SET.api_version, "kind": STATEFUL_SET.kind,
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}, "annotations": annotations},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}}})
}

/// The Workload that Kueue makes for a StatefulSet: the Workload of the group of its pods, which the StatefulSet owns and does not control.
fn workload_of(set: &Value) -> Value {
    let (metadata, uid) = (&set["metadata"], text(set, "/metadata/uid"));
    let notes = json!({"kueue.x-k8s.io/is-group-workload": "true", "kueue.x-k8s.io/job-owner-gvk": "apps/v1, Kind=StatefulSet",
        "kueue.x-k8s.io/job-owner-name": metadata["name"]});
    let owner = json!({"apiVersion": STATEFUL_SET.api_version, "kind": STATEFUL_SET.kind, "name": metadata["name"], "uid": uid});
    let pods = json!({"name": "main", "count": set["spec"]["replicas"], "template": {"spec": set["spec"]["template"]["spec"]},
        "topologyRequest": {"podIndexLabel": "apps.kubernetes.io/pod-index"}});
    json!({"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind,
        "metadata": {"namespace": NAMESPACE, "name": kueue::name_of(STATEFUL_SET, set), "finalizers": [IN_USE],
            "labels": {"kueue.x-k8s.io/job-uid": uid}, "annotations": notes, "ownerReferences": [owner]},
        "spec": {"active": true, "priority": 0, "queueName": "queue", "podSets": [pods]}})
}

/// Metadata that Kueue adds to a pod of a StatefulSet after the pod's creation.
fn kueue_metadata(workload: &str, replicas: i32) -> Value {
    let labels = json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "queue", GROUP: workload});
    let annotations = json!({GROUP: workload, "kueue.x-k8s.io/prebuilt-workload-name": workload,
        "kueue.x-k8s.io/pod-group-total-count": replicas.to_string(),
        "kueue.x-k8s.io/pod-group-fast-admission": "true", "kueue.x-k8s.io/pod-group-serving": "true",
        "kueue.x-k8s.io/pod-group-pod-index-label": "apps.kubernetes.io/pod-index", "kueue.x-k8s.io/role-hash": "main"});
    json!({"labels": labels, "annotations": annotations})
}

/// Creates a StatefulSet whose two pods run. No webhook adds gates to the pods in this test, so they have no node selector of their flavor.
pub(super) async fn as_kueue_leaves_them(world: &World) -> Result<()> {
    create_namespace(&world.client, NAMESPACE, &[]).await?;
    let groups = [group(&[("flavor", &[quota("cpu", "4")])])];
    let mut queue = manifest::cluster_queue(NAMESPACE, &groups, &json!({}));
    queue["metadata"]["finalizers"] = json!([IN_USE]);
    kinds::apply(&world.client, &queue).await?;
    kinds::apply(&world.client, &manifest::local_queue(NAMESPACE, "queue", NAMESPACE)).await?;
    let kueue = kueue(world);
    let set = kinds::apply(&world.client, &set(SET, 2, true)).await?;
    let workload = kueue.record(workload_of(&set)).await?;
    kueue.status(&workload, "kueue-admission", &kueue.admission_of("main", 2, "2")).await?;
    for name in ["web-0", "web-1"] {
        is_in(world, NAMESPACE, POD, name, "running", runs).await?;
        let mut metadata = kueue.marks("main", &workload);
        manifest::merge(&mut metadata, &kueue_metadata(&workload, 2));
        kueue.merge(POD, name, &json!({"metadata": metadata})).await?;
    }
    kueue.ready(&workload).await
}

/// Whether a pod runs where Berth has placed it, as a pod of the group `workload`.
fn started(pod: &Value, workload: &str) -> bool {
    let metadata = &pod["metadata"];
    runs(pod)
        && pod["spec"]["nodeSelector"]["e2e/pool"] == json!("cpu")
        && metadata["labels"]["kueue.x-k8s.io/queue-name"] == json!("queue")
        && metadata["annotations"][GROUP] == json!(workload)
}

async fn stored(world: &World) -> Result<Value> {
    STATEFUL_SET.get(&world.client, NAMESPACE, SET).await?.context("the StatefulSet")
}

async fn uid_of(world: &World, name: &str) -> Result<Value> {
    let pod = POD.get(&world.client, NAMESPACE, name).await?.with_context(|| format!("pod {name}"))?;
    Ok(pod["metadata"]["uid"].clone())
}

/// Writes the scale of the StatefulSet by the subresource, which no webhook reviews, as `kubectl scale` does.
async fn scale(world: &World, replicas: i32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    STATEFUL_SET.api(&world.client, NAMESPACE).patch_scale(SET, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Berth leads: the StatefulSet is written, loses a pod, and is scaled to zero and back, always in its old revision.
pub(super) async fn taken_over(world: &World) -> Result<()> {
    let before =
        is_in(world, NAMESPACE, STATEFUL_SET, SET, "ready", |set| set["status"]["readyReplicas"] == json!(2)).await?;
    let revision = before["status"]["updateRevision"].clone();
    let workload = kueue::name_of(STATEFUL_SET, &before);
    let [first, second] = [uid_of(world, "web-0").await?, uid_of(world, "web-1").await?];
    let note = json!({"metadata": {"annotations": {"note": "written under Berth"}}});
    let written = STATEFUL_SET.patch(&world.client, NAMESPACE, SET, &note).await?;
    ensure!(written["spec"] == before["spec"], "its spec became {}", written["spec"]);
    POD.delete(&world.client, NAMESPACE, "web-1").await?;
    let another = |pod: &Value| pod["metadata"]["uid"] != second && started(pod, &workload);
    is_in(world, NAMESPACE, POD, "web-1", "made anew, and started by Berth", another).await?;
    ensure!(uid_of(world, "web-0").await? == first, "the pod that ran was made anew");

    scale(world, 0).await?;
    is_in(world, NAMESPACE, STATEFUL_SET, SET, "at zero", |set| set["status"]["replicas"] == json!(0)).await?;
    let on_hold = |workload: &Value| condition(workload, "QuotaReserved") == "False";
    is_in(world, NAMESPACE, WORKLOAD, &workload, "on hold", on_hold).await?;
    scale(world, 1).await?;
    is_in(world, NAMESPACE, POD, "web-0", "started by Berth", |pod| started(pod, &workload)).await?;
    let of_one = |workload: &Value| {
        condition(workload, "Admitted") == "True" && workload["spec"]["podSets"][0]["count"] == json!(1)
    };
    is_in(world, NAMESPACE, WORKLOAD, &workload, "admitted for one pod", of_one).await?;
    let workloads = WORKLOAD.list(&world.client, NAMESPACE).await?.len();
    ensure!(workloads == 1, "{workloads} Workloads of one StatefulSet");
    let after = stored(world).await?;
    let now = &after["status"]["updateRevision"];
    ensure!(*now == revision, "revision {revision} became {now}: {}", after["spec"]["template"]);
    Ok(())
}

/// Creates a StatefulSet that Berth starts, for the way back to Kueue.
pub(super) async fn begun_by_berth(world: &World) -> Result<()> {
    // The pods of the StatefulSet may be created before Berth has seen the StatefulSet, and then get the name of the queue at their start.
    kinds::apply(&world.client, &set(YOUNG, 2, false)).await?;
    for name in ["young-0", "young-1"] {
        is_in(world, NAMESPACE, POD, name, "running", runs).await?;
    }
    Ok(())
}

/// After Berth has ended, the Workload and the pods of its StatefulSet are as Kueue would have written them, so that Kueue can recreate the pod
/// group.
pub(super) async fn as_kueue_writes_them(world: &World) -> Result<()> {
    let set = STATEFUL_SET.get(&world.client, NAMESPACE, YOUNG).await?.context("what Berth began")?;
    let waits = json!({"e2e.berth.dev/outcome": "never", "kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    let template = &set["spec"]["template"]["metadata"];
    ensure!(
        template["annotations"] == waits && template["labels"] == json!({"app": YOUNG}),
        "its template: {template}"
    );
    let wanted = workload_of(&set);
    let workload = text(&wanted, "/metadata/name");
    let found = WORKLOAD.get(&world.client, NAMESPACE, workload).await?.context("its Workload")?;
    let strange = kueue::strange(&found, &wanted);
    ensure!(strange.is_empty(), "Workload {workload}: {}", strange.join("; "));
    for name in ["young-0", "young-1"] {
        let pod = POD.get(&world.client, NAMESPACE, name).await?.with_context(|| format!("pod {name}"))?;
        let kueues = kueue_metadata(workload, 2);
        for field in ["labels", "annotations"] {
            for (key, value) in kueues[field].as_object().context("what Kueue writes")? {
                let is = &pod["metadata"][field][key];
                ensure!(is == value, "{key} of pod {name} is {is}, Kueue writes {value}");
            }
        }
    }
    Ok(())
}
