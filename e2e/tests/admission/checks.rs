//! Admission checks of a controller that Berth does not know; the test acts as the controller. Berth reserves quota and then waits for the answer of the
//! check's controller: the answer Ready starts the job with the check's additions, Retry requeues the job, and Rejected deactivates it.

use std::time::Duration;

use anyhow::{Result, ensure};
use berth_e2e::kinds::{CLUSTER_QUEUE, Kind, WORKLOAD, condition, condition_object, items, text};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::admission::POOL;

const CONTROLLER: &str = "e2e.berth.dev/budget";

fn check_kind() -> Result<Kind> {
    Kind::of(&json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck"}))
}

/// Writes the status of an AdmissionCheck or Workload as the check's controller does, with a field manager of its own.
async fn set_status(s: &Scenario<'_>, kind: Kind, name: &str, status: &Value) -> Result<()> {
    let body = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind.kind, "metadata": {"name": name}, "status": status});
    let params = PatchParams::apply(CONTROLLER).force();
    kind.api(&s.client, &s.namespace).patch_status(name, &params, &Patch::Apply(&body)).await?;
    Ok(())
}

/// Sets the condition Active of the scenario's admission check.
async fn set_active(s: &Scenario<'_>, active: &str) -> Result<()> {
    let condition = json!({"type": "Active", "status": active, "reason": "Told", "message": "by the test",
        "lastTransitionTime": Timestamp::now().to_string()});
    set_status(s, check_kind()?, &s.name("check"), &json!({"conditions": [condition]})).await
}

/// A queue of one cpu whose Workloads need the scenario's admission check, which is active.
async fn checked_queue(s: &Scenario<'_>) -> Result<()> {
    let name = s.name("check");
    s.simple_queue("1", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}})).await?;
    inactive(s, "AdmissionCheckNotFound", &format!("references missing AdmissionCheck(s): {name}")).await?;
    s.apply(&json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name},
        "spec": {"controllerName": CONTROLLER}}))
        .await?;
    inactive(s, "AdmissionCheckInactive", &format!("references inactive AdmissionCheck(s): {name}")).await?;
    set_active(s, "True").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "Active", |q| condition(q, "Active") == "True").await?;
    Ok(())
}

async fn inactive(s: &Scenario<'_>, reason: &str, message: &str) -> Result<()> {
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), &format!("Active=False, {reason}: {message}"), |q| {
        let active = condition_object(q, "Active").cloned().unwrap_or_default();
        condition(q, "Active") == "False"
            && text(&active, "/reason") == reason
            && text(&active, "/message").contains(message)
    })
    .await
    .map(drop)
}

/// State of the only admission check of a Workload.
fn state(workload: &Value) -> &str {
    match items(workload, "/status/admissionChecks") {
        [only] => text(only, "/state"),
        _ => "",
    }
}

/// Waits until the job's Workload has quota and its admission check is Pending, and checks that the job does not start.
async fn asked(s: &Scenario<'_>, job: &str) -> Result<Value> {
    let workload = s
        .workload(job, "quota reserved and the check Pending", |w| {
            condition(w, "QuotaReserved") == "True" && state(w) == "Pending"
        })
        .await?;
    wait::stays(Duration::from_secs(1), &format!("job {job} waits for its check"), || async {
        let workload = s.workload_of(job).await?.unwrap_or_default();
        let suspended = s.get_job(job).await?["spec"]["suspend"] == json!(true);
        let waits =
            suspended && condition(&workload, "QuotaReserved") == "True" && condition(&workload, "Admitted") != "True";
        Ok(Seen::when(waits, || format!("suspended={suspended} {}", workload["status"])))
    })
    .await?;
    Ok(workload)
}

/// Writes the answer of the check's controller about a Workload.
async fn answer(s: &Scenario<'_>, workload: &Value, state: &str, more: &[(&str, Value)]) -> Result<()> {
    let mut check = json!({"name": s.name("check"), "state": state, "message": format!("{state}, says the budget"),
        "lastTransitionTime": Timestamp::now().to_string()});
    for (key, value) in more {
        check[*key] = value.clone();
    }
    set_status(s, WORKLOAD, text(workload, "/metadata/name"), &json!({"admissionChecks": [check]})).await
}

/// Ends the scenario and deletes its admission check as well.
async fn conclude(s: Scenario<'_>) -> Result<()> {
    check_kind()?.delete(&s.client, "", &s.name("check")).await?;
    s.conclude().await
}

pub(crate) async fn ready(stage: &Stage) -> Result<()> {
    let s = stage.scenario("check-ready").await?;
    checked_queue(&s).await?;
    s.create(s.job("first").endless()).await?;
    let workload = asked(&s, "first").await?;
    let updates = json!([{"name": "main", "labels": {"e2e.berth.dev/budget": "granted"},
        "annotations": {"e2e.berth.dev/ticket": "7"}, "nodeSelector": {POOL: "blue"},
        "tolerations": [{"key": "e2e.berth.dev/budget", "operator": "Exists", "effect": "NoSchedule"}]}]);
    answer(&s, &workload, "Ready", &[("podSetUpdates", updates)]).await?;
    s.admitted("first").await?;
    let template = s.get_job("first").await?["spec"]["template"].clone();
    ensure!(template["metadata"]["labels"]["e2e.berth.dev/budget"] == "granted", "{template}");
    ensure!(template["metadata"]["annotations"]["e2e.berth.dev/ticket"] == "7", "{template}");
    ensure!(template["spec"]["nodeSelector"] == json!({POOL: "blue"}), "{template}");
    ensure!(items(&template, "/spec/tolerations").iter().any(|t| t["key"] == "e2e.berth.dev/budget"), "{template}");
    let nodes = s.nodes_of("first", 1).await?;
    ensure!(nodes.iter().all(|node| node.starts_with("blue")), "the check asked for a blue node: {nodes:?}");
    // While the queue's check is inactive, the queue admits no Workload, but it stops no running Workload.
    set_active(&s, "False").await?;
    inactive(&s, "AdmissionCheckInactive", "references inactive AdmissionCheck(s)").await?;
    s.create(s.job("second")).await?;
    let waiting = s.pending("second").await?;
    let condition = condition_object(&waiting, "QuotaReserved").cloned().unwrap_or_default();
    let expected = format!("ClusterQueue {} is inactive: Can't admit new workloads: references inactive", s.name("cq"));
    ensure!(
        text(&condition, "/reason") == "Suspended" && text(&condition, "/message").starts_with(&expected),
        "{condition}"
    );
    ensure!(s.get_job("first").await?["spec"]["suspend"] == json!(false), "the first job was stopped");
    set_active(&s, "True").await?;
    s.remove("first").await?;
    let workload = asked(&s, "second").await?;
    answer(&s, &workload, "Ready", &[]).await?;
    s.finished("second").await?;
    conclude(s).await
}

pub(crate) async fn retry(stage: &Stage) -> Result<()> {
    let s = stage.scenario("check-retry").await?;
    checked_queue(&s).await?;
    s.create(s.job("first").endless()).await?;
    let workload = asked(&s, "first").await?;
    // While the job's check is in Retry, another job gets the quota.
    s.create(s.job("second").endless()).await?;
    s.pending("second").await?;
    answer(&s, &workload, "Retry", &[("requeueAfterSeconds", json!(2))]).await?;
    let evicted = s.workload("first", "evicted and without quota", |w| {
        condition_object(w, "Evicted").is_some_and(|c| text(c, "/reason") == "AdmissionCheck")
            && condition(w, "QuotaReserved") == "False"
    });
    let evicted = evicted.await?;
    let check = &items(&evicted, "/status/admissionChecks")[0];
    ensure!(state(&evicted) == "Pending" && check["retryCount"] == json!(1), "{check}");
    let other = asked(&s, "second").await?;
    answer(&s, &other, "Ready", &[]).await?;
    s.admitted("second").await?;
    s.remove("second").await?;
    // The job `first`, whose check answered Retry, gets quota again when the delay in that answer is over.
    let again = asked(&s, "first").await?;
    answer(&s, &again, "Ready", &[]).await?;
    s.admitted("first").await?;
    conclude(s).await
}

pub(crate) async fn rejected(stage: &Stage) -> Result<()> {
    let s = stage.scenario("check-rejected").await?;
    checked_queue(&s).await?;
    s.create(s.job("first").endless()).await?;
    let workload = asked(&s, "first").await?;
    answer(&s, &workload, "Rejected", &[]).await?;
    s.workload("first", "deactivated and without quota", |w| {
        w["spec"]["active"] == json!(false)
            && condition(w, "QuotaReserved") == "False"
            && condition_object(w, "Evicted").is_some_and(|c| text(c, "/reason") == "DeactivatedDueToAdmissionCheck")
    })
    .await?;
    ensure!(s.get_job("first").await?["spec"]["suspend"] == json!(true), "a rejected job must not run");
    // The rejected job's quota is free for another job.
    s.create(s.job("second")).await?;
    let workload = asked(&s, "second").await?;
    answer(&s, &workload, "Ready", &[]).await?;
    s.finished("second").await?;
    conclude(s).await
}
