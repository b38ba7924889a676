//! Capacity that Berth requests from an autoscaler before a job starts. The CRD is the cluster autoscaler's own; the autoscaler is scripted.

use anyhow::{Context, Result, ensure};
use berth_e2e::autoscaler::{self, POD_TEMPLATE, PROVISIONING_REQUEST, SCRIPT, ScriptedAutoscaler};
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::kinds::{Kind, WORKLOAD, condition, condition_object, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{self, group, merge, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Run, Scenario, Stage, run_all};
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use serde_json::{Value, json};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const POOL: &str = "e2e.berth.dev/pool";

fn kind(name: &str) -> Result<Kind> {
    Kind::of(&json!({"apiVersion": KUEUE, "kind": name}))
}

/// Creates a queue of four cpus whose jobs need capacity from the autoscaler; `more` is merged into the configuration of the queue's admission check.
async fn asking_queue(s: &Scenario<'_>, more: &Value) -> Result<()> {
    let check = s.name("asks");
    s.simple_queue("4", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}})).await?;
    ask(s, more).await
}

/// Creates the admission check and its configuration, and waits until Berth reports the check as active.
async fn ask(s: &Scenario<'_>, more: &Value) -> Result<()> {
    let (check, config) = (s.name("asks"), s.name("config"));
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config});
    s.apply(&json!({"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": check},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}}))
        .await?;
    s.object_is(kind("AdmissionCheck")?, &check, "Active=False, BadParametersRef", |check| {
        condition_object(check, "Active").is_some_and(|c| text(c, "/reason") == "BadParametersRef")
    })
    .await?;
    let mut spec = json!({"provisioningClassName": "queued.e2e.berth.dev", "parameters": {"zone": "a"},
        "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 5}});
    merge(&mut spec, more);
    s.apply(&json!({"apiVersion": KUEUE, "kind": "ProvisioningRequestConfig", "metadata": {"name": config},
        "spec": spec}))
        .await?;
    s.object_is(kind("AdmissionCheck")?, &check, "Active", |check| condition(check, "Active") == "True").await?;
    Ok(())
}

/// Ends the scenario: deletes the admission check and its configuration as well, and checks that no ProvisioningRequest and no PodTemplate is left.
async fn conclude(s: Scenario<'_>) -> Result<()> {
    for job in berth_e2e::kinds::JOB.list(&s.client, &s.namespace).await? {
        s.remove(text(&job, "/metadata/name")).await?;
    }
    wait::until(STEP, "no ProvisioningRequest and no PodTemplate is left", || async {
        let requests = PROVISIONING_REQUEST.list(&s.client, &s.namespace).await?;
        let templates = POD_TEMPLATE.list(&s.client, &s.namespace).await?;
        let left: Vec<String> = requests.iter().chain(&templates).map(berth_e2e::kinds::key).collect();
        Ok(Seen::when(left.is_empty(), || left.join(", ")))
    })
    .await?;
    kind("AdmissionCheck")?.delete(&s.client, "", &s.name("asks")).await?;
    kind("ProvisioningRequestConfig")?.delete(&s.client, "", &s.name("config")).await?;
    s.conclude().await
}

/// Name of the ProvisioningRequest for a job's attempt with the number `attempt`.
async fn request_name(s: &Scenario<'_>, job: &str, attempt: u32) -> Result<String> {
    let workload = s.workload_of(job).await?.context("the job has a Workload")?;
    Ok(format!("{}-{}-{attempt}", text(&workload, "/metadata/name"), s.name("asks")))
}

async fn provisioned(stage: &Stage) -> Result<()> {
    let s = stage.scenario("provisioned").await?;
    let selector = json!([{"key": POOL, "valueFromProvisioningClassDetail": "Pool"}]);
    asking_queue(&s, &json!({"podSetUpdates": {"nodeSelector": selector}})).await?;
    s.create(s.job("train").pods(2).endless().annotation(SCRIPT, "accepted")).await?;
    let waiting = s
        .workload("train", "the autoscaler's words", |w| {
            items(w, "/status/admissionChecks").iter().any(|c| text(c, "/message") == "expected in an hour")
        })
        .await?;
    ensure!(condition(&waiting, "QuotaReserved") == "True" && condition(&waiting, "Admitted") != "True", "{waiting}");
    let name = request_name(&s, "train", 1).await?;
    let request = PROVISIONING_REQUEST.get(&s.client, &s.namespace, &name).await?.context("the request")?;
    let template = format!("ppt-{name}-main");
    let pods = json!([{"podTemplateRef": {"name": template}, "count": 2}]);
    ensure!(request["spec"]["podSets"] == pods, "{request}");
    ensure!(request["spec"]["parameters"] == json!({"zone": "a", "script": "accepted"}), "{request}");
    let owned = |object: &Value, owner: &Value| {
        items(object, "/metadata/ownerReferences").iter().any(|o| o["uid"] == owner["metadata"]["uid"])
    };
    ensure!(owned(&request, &waiting), "the Workload owns its request: {request}");
    s.object_is(POD_TEMPLATE, &template, "it goes with the request", |template| owned(template, &request)).await?;
    autoscaler::say(&s.client, &request, &[("Accepted", "True", ""), ("Provisioned", "True", "nodes are there")])
        .await?;
    s.admitted("train").await?;
    let pods = s.get_job("train").await?["spec"]["template"].clone();
    let annotations = &pods["metadata"]["annotations"];
    ensure!(annotations["autoscaling.x-k8s.io/consume-provisioning-request"] == json!(name), "{annotations}");
    ensure!(annotations["autoscaling.x-k8s.io/provisioning-class-name"] == "queued.e2e.berth.dev", "{annotations}");
    let nodes = s.nodes_of("train", 2).await?;
    ensure!(nodes.iter().all(|node| node.starts_with("blue")), "the autoscaler named the blue pool: {nodes:?}");
    conclude(s).await
}

async fn second_attempt(stage: &Stage) -> Result<()> {
    let s = stage.scenario("second-attempt").await?;
    asking_queue(&s, &json!({})).await?;
    for (job, script) in [("fails-first", "failed,provisioned"), ("expires-first", "expired,provisioned")] {
        s.create(s.job(job).annotation(SCRIPT, script)).await?;
        let name = request_name_later(&s, job, 2).await?;
        s.admitted(job).await?;
        let pods = s.get_job(job).await?["spec"]["template"].clone();
        let consumed = &pods["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"];
        ensure!(*consumed == json!(name), "{pods}");
        s.finished(job).await?;
        let workload = s.workload_of(job).await?.context("its Workload")?;
        let evicted = &items(&workload, "/status/schedulingStats/evictions")[0];
        ensure!(evicted["reason"] == "AdmissionCheck" && evicted["count"] == 1, "{}", workload["status"]);
    }
    conclude(s).await
}

/// Waits until the job has a Workload; returns the name of the job's ProvisioningRequest, as [`request_name`] does.
async fn request_name_later(s: &Scenario<'_>, job: &str, attempt: u32) -> Result<String> {
    s.workload(job, "made", |_| true).await?;
    request_name(s, job, attempt).await
}

async fn no_more_attempts(stage: &Stage) -> Result<()> {
    let s = stage.scenario("no-more-attempts").await?;
    asking_queue(&s, &json!({})).await?;
    s.create(s.job("train").annotation(SCRIPT, "failed")).await?;
    let ended = s
        .workload("train", "deactivated and without quota", |w| {
            w["spec"]["active"] == json!(false)
                && condition(w, "QuotaReserved") == "False"
                && condition_object(w, "Evicted")
                    .is_some_and(|c| text(c, "/reason") == "DeactivatedDueToAdmissionCheck")
                && condition(w, "DeactivationTarget").is_empty()
        })
        .await?;
    let check = &items(&ended, "/status/admissionChecks")[0];
    let sent_back = items(&ended, "/status/schedulingStats/evictions").iter().find(|e| e["reason"] == "AdmissionCheck");
    ensure!(sent_back.is_some_and(|e| e["count"] == 1), "one attempt more, as the configuration says: {ended}");
    ensure!(check["retryCount"] == json!(0), "whoever tries again has them all: {check}");
    ensure!(s.get_job("train").await?["spec"]["suspend"] == json!(true), "a rejected job must not run");
    // A user may activate the Workload again after its attempts are used up: all attempts are then available anew.
    let name = text(&ended, "/metadata/name");
    let script = json!({"metadata": {"annotations": {(SCRIPT): "provisioned"}}, "spec": {"active": true}});
    WORKLOAD.patch(&s.client, &s.namespace, name, &script).await?;
    s.finished("train").await?;
    conclude(s).await
}

async fn revoked(stage: &Stage) -> Result<()> {
    let s = stage.scenario("revoked").await?;
    asking_queue(&s, &json!({})).await?;
    s.create(s.job("train").endless().annotation(SCRIPT, "provisioned")).await?;
    s.admitted("train").await?;
    s.nodes_of("train", 1).await?;
    let name = request_name(&s, "train", 1).await?;
    let request = PROVISIONING_REQUEST.get(&s.client, &s.namespace, &name).await?.context("the request")?;
    let conditions = [("Provisioned", "True", "nodes are there"), ("CapacityRevoked", "True", "maintenance")];
    autoscaler::say(&s.client, &request, &conditions).await?;
    s.workload("train", "deactivated and without quota", |w| {
        w["spec"]["active"] == json!(false) && condition(w, "QuotaReserved") == "False"
    })
    .await?;
    let job = s.get_job("train").await?;
    ensure!(job["spec"]["suspend"] == json!(true), "{job}");
    let annotations = &job["spec"]["template"]["metadata"]["annotations"];
    ensure!(annotations.get("autoscaling.x-k8s.io/consume-provisioning-request").is_none(), "{annotations}");
    conclude(s).await
}

async fn not_needed(stage: &Stage) -> Result<()> {
    let s = stage.scenario("not-needed").await?;
    asking_queue(&s, &json!({"managedResources": ["nvidia.com/gpu"]})).await?;
    s.create(s.job("small")).await?;
    s.finished("small").await?;
    let workload = s.workload_of("small").await?.context("its Workload")?;
    let check = &items(&workload, "/status/admissionChecks")[0];
    ensure!(check["message"] == "the provisioning request is not needed", "{check}");
    conclude(s).await
}

/// If the autoscaler cannot get capacity in one tier, Berth requests it in the next tier at once.
async fn fallback(stage: &Stage) -> Result<()> {
    let s = stage.scenario("down-the-ladder").await?;
    let (first, second) = (s.name("reserved"), s.name("on-demand"));
    for (name, pool, tier) in [(&first, "blue", "reserved"), (&second, "green", "on-demand")] {
        let mut flavor = manifest::flavor(name, &[(POOL, pool)]);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        s.apply(&flavor).await?;
    }
    let group = group(&[(&first, &[quota("cpu", "4")]), (&second, &[quota("cpu", "4")])]);
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": s.name("asks")}]}});
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group], &strategy)).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    let slow = json!({"retryStrategy": {"backoffLimitCount": 5, "backoffBaseSeconds": 600, "backoffMaxSeconds": 600}});
    ask(&s, &slow).await?;
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("policy")},
        "spec": {"clusterQueues": [s.name("cq")], "capacityTiers": {"default": ["reserved", "on-demand"]}}}))
        .await?;
    s.create(s.job("train").endless().annotation(SCRIPT, "failed,provisioned")).await?;
    s.admitted("train").await?;
    let nodes = s.nodes_of("train", 1).await?;
    ensure!(nodes.iter().all(|node| node.starts_with("green")), "the second tier: {nodes:?}");
    s.object_is(berth_e2e::kinds::QUEUE_POLICY, &s.name("policy"), "the first tier is out of stock", |policy| {
        items(policy, "/status/backoffs").iter().any(|backoff| text(backoff, "/flavor") == first)
    })
    .await?;
    conclude(s).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provisioning_requests() -> Result<()> {
    let pool = |name: &str| Pool::cpu(name, 2, Tier::OnDemand).label(POOL, name);
    let mut options = Options::with_crds("provisioning");
    options.crds.push(autoscaler::definitions().await?);
    let plane = ControlPlane::start(options).await?;
    let stage = Stage::on(plane, &[pool("blue"), pool("green")], ManagerOptions::default()).await?;
    let autoscaler = ScriptedAutoscaler::start(stage.client.clone());
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("provisioned", provisioned(s).boxed()),
        ("second-attempt", second_attempt(s).boxed()),
        ("no-more-attempts", no_more_attempts(s).boxed()),
        ("revoked", revoked(s).boxed()),
        ("not-needed", not_needed(s).boxed()),
        ("down-the-ladder", fallback(s).boxed()),
    ];
    let outcome = run_all(&stage, runs).await;
    drop(autoscaler);
    stage.stop().await;
    outcome
}
