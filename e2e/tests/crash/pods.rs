//! Stories of the crash table: pods by themselves and in groups, in the form in which the webhook would have stored them.

use anyhow::Result;
use berth_e2e::kinds::{POD, WORKLOAD, condition, items, key, text};
use berth_e2e::manifest::merge;
use berth_e2e::scenario::Scenario;
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::crash::StoryRun;

/// Finalizer that keeps a pod until Berth has accounted for its end, and label of a managed pod.
const MANAGED: &str = "kueue.x-k8s.io/managed";

/// A pod with a scheduling gate that waits for one cpu of the LocalQueue `queue`; the fields of `more` are merged into it.
fn waiting(s: &Scenario<'_>, name: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": s.namespace, "name": name, "finalizers": [MANAGED],
            "labels": {"kueue.x-k8s.io/queue-name": "queue", (MANAGED): "true"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [{"name": "main", "image": "work", "resources": {"requests": {"cpu": "1"}}}]}});
    merge(&mut object, more);
    object
}

/// A pod of a group of two pods; the annotations `life` say how long it runs.
fn member(s: &Scenario<'_>, name: &str, life: &Value) -> Value {
    let mut more = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": "worker"}}});
    merge(&mut more["metadata"]["annotations"], life);
    waiting(s, name, &more)
}

/// Annotations of a pod that ends soon.
fn brief() -> Value {
    json!({"e2e.berth.dev/run-ms": "300"})
}

fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

fn held(pod: &Value) -> bool {
    items(pod, "/metadata/finalizers").iter().any(|name| name == MANAGED)
}

async fn succeeds(s: &Scenario<'_>, name: &str) -> Result<()> {
    let over = |pod: &Value| text(pod, "/status/phase") == "Succeeded" && !held(pod);
    s.object_is(POD, name, "succeeded and let go", over).await.map(drop)
}

/// Waits until neither pods nor Workloads are left in the namespace.
async fn nothing_is_left(s: &Scenario<'_>) -> Result<()> {
    wait::until(STEP, "no pods and no Workloads are left", || async {
        let mut left = POD.list(&s.client, &s.namespace).await?;
        left.extend(WORKLOAD.list(&s.client, &s.namespace).await?);
        Ok(Seen::when(left.is_empty(), || format!("{:?}", left.iter().map(key).collect::<Vec<_>>())))
    })
    .await
}

async fn clear(s: &Scenario<'_>) -> Result<()> {
    for pod in POD.list(&s.client, &s.namespace).await? {
        POD.delete(&s.client, &s.namespace, text(&pod, "/metadata/name")).await?;
    }
    nothing_is_left(s).await
}

/// Story: two pods run one after the other.
pub(crate) fn run_in_turn<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        for name in ["one", "two"] {
            s.apply(&waiting(s, name, &json!({"metadata": {"annotations": brief()}}))).await?;
        }
        for name in ["one", "two"] {
            succeeds(s, name).await?;
            s.workload(name, "Finished", |w| condition(w, "Finished") == "True").await?;
        }
        clear(s).await
    }
    .boxed()
}

/// Story: a running pod is evicted because its queue is drained, and takes some time to end; after its end another pod gets the quota.
pub(crate) fn are_drained<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        let slow = json!({"metadata": {"annotations": {"e2e.berth.dev/termination-ms": "500"}}});
        s.apply(&waiting(s, "running", &slow)).await?;
        s.object_is(POD, "running", "running", |pod| text(pod, "/status/phase") == "Running").await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "HoldAndDrain"})).await?;
        nothing_is_left(s).await?;
        s.apply(&waiting(s, "next", &json!({"metadata": {"annotations": brief()}}))).await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
        succeeds(s, "next").await?;
        clear(s).await
    }
    .boxed()
}

/// Story: one of two pods of a group fails, and a new pod takes its place.
pub(crate) fn are_replaced<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("2", &json!({})).await?;
        let fails = json!({"e2e.berth.dev/run-ms": "300", "e2e.berth.dev/outcome": "fail"});
        let runs_on = json!({"e2e.berth.dev/run-ms": "300", "e2e.berth.dev/outcome": "never"});
        s.apply(&member(s, "bad", &fails)).await?;
        s.apply(&member(s, "good", &runs_on)).await?;
        let waits = |w: &Value| condition(w, "WaitingForReplacementPods") == "True";
        s.object_is(WORKLOAD, "group", "waiting for a replacement", waits).await?;
        s.apply(&member(s, "better", &brief())).await?;
        s.object_is(POD, "bad", "let go", |pod| !held(pod)).await?;
        let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "succeed"}}});
        POD.patch(&s.client, &s.namespace, "good", &ends).await?;
        s.object_is(WORKLOAD, "group", "Finished", |w| condition(w, "Finished") == "True").await?;
        for name in ["good", "better"] {
            succeeds(s, name).await?;
        }
        WORKLOAD.delete(&s.client, &s.namespace, "group").await?;
        clear(s).await
    }
    .boxed()
}

/// Story: two pods have no scheduling gate, as if they had been created while Berth did not answer. The queue has quota for one of the two pods without a gate,
/// which stays; Berth deletes the other pod.
pub(crate) fn are_let_in<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        s.simple_queue("1", &json!({})).await?;
        let mut bare = waiting(s, "fits", &json!({}));
        bare["metadata"] =
            json!({"namespace": s.namespace, "name": "fits", "labels": {"kueue.x-k8s.io/queue-name": "queue"}});
        bare["spec"]["schedulingGates"] = json!([]);
        s.apply(&bare).await?;
        let reported_by = |pod: &Value| label(pod, "kueue.x-k8s.io/podset") == "main" && held(pod);
        s.object_is(POD, "fits", "marked and told its admission", reported_by).await?;
        s.workload("fits", "Admitted", |w| condition(w, "Admitted") == "True").await?;
        bare["metadata"]["name"] = json!("beyond");
        s.apply(&bare).await?;
        wait::until(STEP, "the pod for which there is no room is gone", || async {
            let pod = POD.get(&s.client, &s.namespace, "beyond").await?;
            Ok(Seen::when(pod.is_none(), || pod.unwrap_or_default()["status"].to_string()))
        })
        .await?;
        s.object_is(POD, "fits", "running", |pod| text(pod, "/status/phase") == "Running").await?;
        clear(s).await
    }
    .boxed()
}
