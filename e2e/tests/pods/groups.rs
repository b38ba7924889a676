//! Groups of pods.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{POD, WORKLOAD, condition, condition_object, items, text};
use berth_e2e::manifest::{self, merge};
use berth_e2e::scenario::Stage;
use serde_json::{Value, json};

use crate::pods::{all_run, all_wait, conclude, counts, ends, gated, held, member, pod, run_ms};

fn with(mut base: Value, more: &Value) -> Value {
    merge(&mut base, more);
    base
}

/// A pod group with one driver and two workers: no pod of the group starts while one of them has no quota.
pub(crate) async fn two_roles_all_or_none(stage: &Stage) -> Result<()> {
    let s = stage.scenario("roles").await?;
    s.simple_queue("4", &json!({})).await?;
    s.apply(&pod(&s, "other", "1", &json!({}))).await?;
    all_run(&s, &["other"]).await?;
    s.apply(&member(&s, "driver", "2", 3, &run_ms(400))).await?;
    s.apply(&member(&s, "worker-0", "1", 3, &run_ms(400))).await?;
    all_wait(&s, &["driver", "worker-0"]).await?;
    ensure!(WORKLOAD.get(&s.client, &s.namespace, "group").await?.is_none(), "one pod is missing");
    s.apply(&member(&s, "worker-1", "1", 3, &run_ms(400))).await?;
    let workload = s.object_is(WORKLOAD, "group", "pending", |w| condition(w, "QuotaReserved") == "False").await?;
    let mut sizes: Vec<i64> =
        items(&workload, "/spec/podSets").iter().filter_map(|set| set["count"].as_i64()).collect();
    sizes.sort_unstable();
    ensure!(sizes == [1, 2], "{sizes:?}");
    ensure!(items(&workload, "/metadata/ownerReferences").len() == 3, "{}", workload["metadata"]);
    all_wait(&s, &["driver", "worker-0", "worker-1"]).await?;
    POD.delete(&s.client, &s.namespace, "other").await?;
    s.object_is(WORKLOAD, "group", "Finished", |w| condition(w, "Finished") == "True").await?;
    for name in ["driver", "worker-0", "worker-1"] {
        s.object_is(POD, name, "succeeded and let go", |p| text(p, "/status/phase") == "Succeeded" && !held(p)).await?;
    }
    conclude(s).await
}

pub(crate) async fn a_failed_pod_is_replaced(stage: &Stage) -> Result<()> {
    let s = stage.scenario("replaced").await?;
    s.simple_queue("2", &json!({})).await?;
    let fails = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "fail", "e2e.berth.dev/run-ms": "300"}}});
    s.apply(&member(&s, "bad", "1", 2, &fails)).await?;
    s.apply(&member(&s, "good", "1", 2, &json!({}))).await?;
    let waits = |w: &Value| condition(w, "WaitingForReplacementPods") == "True";
    s.object_is(WORKLOAD, "group", "waiting for a replacement", waits).await?;
    ensure!(POD.get(&s.client, &s.namespace, "bad").await?.is_some_and(|pod| held(&pod)), "its place is not taken");
    s.apply(&member(&s, "better", "1", 2, &run_ms(300))).await?;
    s.object_is(POD, "bad", "let go", |pod| !held(pod)).await?;
    ends(&s, "good").await?;
    s.object_is(WORKLOAD, "group", "Finished", |w| condition(w, "Finished") == "True").await?;
    conclude(s).await
}

pub(crate) async fn one_too_many(stage: &Stage) -> Result<()> {
    let s = stage.scenario("excess").await?;
    s.simple_queue("4", &json!({})).await?;
    for name in ["a", "b"] {
        s.apply(&member(&s, name, "1", 2, &json!({}))).await?;
    }
    all_run(&s, &["a", "b"]).await?;
    s.apply(&member(&s, "c", "1", 2, &json!({}))).await?;
    counts(&s, 2, 0).await?;
    all_run(&s, &["a", "b"]).await?;
    conclude(s).await
}

/// A pod of higher priority preempts a pod group; all pods of the group end, and the group is admitted again when its user recreates it.
pub(crate) async fn preempted_and_back(stage: &Stage) -> Result<()> {
    let s = stage.scenario("preempted").await?;
    s.apply(&manifest::priority_class(&s.name("high"), 100)).await?;
    s.simple_queue("2", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    let slow = json!({"metadata": {"annotations": {"e2e.berth.dev/termination-ms": "4000"}}});
    for name in ["a", "b"] {
        s.apply(&member(&s, name, "1", 2, &slow)).await?;
    }
    all_run(&s, &["a", "b"]).await?;
    let high = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": s.name("high")}}});
    s.apply(&pod(&s, "urgent", "2", &high)).await?;
    let found_condition = s.object_is(POD, "a", "told why", |p| condition(p, "TerminationTarget") == "True").await?;
    let why = condition_object(&found_condition, "TerminationTarget").context("the condition")?;
    ensure!(text(why, "/reason") == "WorkloadEvictedDueToPreempted", "{why}");
    all_run(&s, &["urgent"]).await?;
    let waits =
        |w: &Value| condition(w, "WaitingForReplacementPods") == "True" && condition(w, "QuotaReserved") == "False";
    s.object_is(WORKLOAD, "group", "waiting for its pods", waits).await?;
    ends(&s, "urgent").await?;
    s.apply(&member(&s, "c", "1", 2, &run_ms(300))).await?;
    ensure!(s.object_is(POD, "c", "there", |_| true).await.is_ok_and(|pod| gated(&pod)), "one is not the group");
    s.apply(&member(&s, "d", "1", 2, &run_ms(300))).await?;
    s.object_is(WORKLOAD, "group", "Finished", |w| condition(w, "Finished") == "True").await?;
    conclude(s).await
}

/// A pod group that serves: pods end and other pods replace them without another admission, and the group has no end.
pub(crate) async fn serving_without_an_end(stage: &Stage) -> Result<()> {
    let s = stage.scenario("serving").await?;
    s.simple_queue("2", &json!({})).await?;
    let serves = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}}});
    let put = async |name: &str, more: &Value| s.apply(&member(&s, name, "1", 2, &with(serves.clone(), more))).await;
    let fails = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "fail", "e2e.berth.dev/run-ms": "600"}}});
    put("goes", &fails).await?;
    put("stays", &json!({})).await?;
    let workload = s.object_is(WORKLOAD, "group", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    let admitted_at = |workload: &Value| {
        condition_object(workload, "Admitted")
            .map(|one| text(one, "/lastTransitionTime").to_owned())
            .unwrap_or_default()
    };
    s.object_is(POD, "goes", "failed", |p| text(p, "/status/phase") == "Failed").await?;
    s.next_second().await;
    put("bad", &fails).await?;
    s.object_is(POD, "bad", "failed", |p| text(p, "/status/phase") == "Failed").await?;
    s.object_is(POD, "goes", "let go", |pod| !held(pod)).await?;
    put("better", &json!({})).await?;
    all_run(&s, &["stays", "better"]).await?;
    s.object_is(POD, "bad", "let go", |pod| !held(pod)).await?;
    let now = WORKLOAD.get(&s.client, &s.namespace, "group").await?.context("the Workload")?;
    ensure!(condition(&now, "Finished").is_empty(), "it has no end: {}", now["status"]);
    ensure!(condition(&now, "Admitted") == "True" && admitted_at(&now) == admitted_at(&workload), "{}", now["status"]);
    conclude(s).await
}

/// If an annotation asks for it, Berth creates the Workload of a group with the group's first pod, for all pods of the group's size.
pub(crate) async fn admitted_with_its_first_pod(stage: &Stage) -> Result<()> {
    let s = stage.scenario("fast-admission").await?;
    s.simple_queue("3", &json!({})).await?;
    s.apply(&pod(&s, "other", "1", &json!({}))).await?;
    all_run(&s, &["other"]).await?;
    let fast = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true"}}});
    let put = async |name: &str| s.apply(&member(&s, name, "1", 3, &fast)).await;
    put("a").await?;
    let waiting = s.object_is(WORKLOAD, "group", "pending", |w| condition(w, "QuotaReserved") == "False").await?;
    ensure!(waiting["spec"]["podSets"][0]["count"] == json!(3), "for all that will come: {}", waiting["spec"]);
    all_wait(&s, &["a"]).await?;
    POD.delete(&s.client, &s.namespace, "other").await?;
    // The first pod of the group starts before the other two pods exist, and the group's Workload holds quota for three pods.
    all_run(&s, &["a"]).await?;
    let admitted = s.object_is(WORKLOAD, "group", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    let set = &admitted["status"]["admission"]["podSetAssignments"][0];
    ensure!(set["resourceUsage"]["cpu"] == json!("3"), "{set}");
    for name in ["b", "c"] {
        put(name).await?;
    }
    all_run(&s, &["b", "c"]).await?;
    for name in ["a", "b", "c"] {
        ends(&s, name).await?;
    }
    s.object_is(WORKLOAD, "group", "Finished", |w| condition(w, "Finished") == "True").await?;
    conclude(s).await
}
