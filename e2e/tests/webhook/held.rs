//! An object that holds quota keeps its pod sets, its accounted usage, the node selectors of its admission checks and its queue, whoever writes.

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::kinds::{self, Kind, POD, TRAINING_JOB, WORKLOAD, condition, items, text};
use berth_e2e::manifest;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::webhook::kinds::GATES;

/// Name of the controller that answers the admission checks of these tests.
const CONTROLLER: &str = "e2e.berth.dev/answers";

/// A condition of the type `name` with the status True.
fn condition_of(name: &str) -> Value {
    json!({"type": name, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// A Workload that holds quota keeps its pod sets and its accounted usage, whoever writes.
pub(crate) async fn workloads_that_hold_quota(stage: &Stage) -> Result<()> {
    let s = stage.scenario("held-workloads").await?;
    s.simple_queue("4", &json!({})).await?;
    s.create(s.job("running").pods(2).endless()).await?;
    let workload = s.admitted("running").await?;
    let name = text(&workload, "/metadata/name").to_owned();
    let mut sets = workload["spec"]["podSets"].clone();
    sets[0]["count"] = json!(3);
    let changed = WORKLOAD.patch(&s.client, &s.namespace, &name, &json!({"spec": {"podSets": sets}})).await;
    let error = format!("{:#}", changed.err().context("pod sets of a running job were changed")?);
    ensure!(error.contains("spec.podSets") && error.contains("is immutable while quota is reserved"), "{error}");
    let api = WORKLOAD.api(&s.client, &s.namespace);
    let params = PatchParams { field_manager: Some(kinds::USER.to_owned()), ..PatchParams::default() };
    let mut uneven = workload["status"]["admission"]["podSetAssignments"].clone();
    uneven[0]["resourceUsage"]["cpu"] = json!("1m");
    let mut renamed = workload["status"]["admission"]["podSetAssignments"].clone();
    renamed[0]["name"] = json!("other");
    let counted = |count: i32| {
        let mut sets = workload["status"]["admission"]["podSetAssignments"].clone();
        sets[0]["count"] = json!(count);
        json!({"admission": {"podSetAssignments": sets}})
    };
    let count = "status.admission.podSetAssignments[0].count";
    for (status, field, words) in [
        (
            json!({"reclaimablePods": [{"name": "other", "count": 1}]}),
            "status.reclaimablePods[other].name",
            "supported values: \"main\"",
        ),
        (
            json!({"reclaimablePods": [{"name": "main", "count": 9}]}),
            "status.reclaimablePods[main].count",
            "should be less or equal to 2",
        ),
        (
            json!({"conditions": [condition_of(&"x".repeat(64))]}),
            "status.conditions[0].type",
            "name part must be no more than 63 characters",
        ),
        (json!({"admission": null}), "status.admission", "must be set while the QuotaReserved condition is true"),
        (
            json!({"admission": {"clusterQueue": "other"}}),
            "status.admission",
            "is immutable, except that it may be set and cleared",
        ),
        (
            json!({"admission": {"podSetAssignments": uneven}}),
            "status.admission.podSetAssignments[0].resourceUsage[cpu]",
            "is not a multiple of 2",
        ),
        (
            json!({"admission": {"podSetAssignments": renamed}}),
            "status.admission.podSetAssignments",
            "must have one for each pod set: none is for \"main\"",
        ),
        (counted(3), count, "must not be more than its pod set has: 2"),
        (counted(1), count, "must be enough for its pod set: at least 2"),
        (
            json!({"conditions": [condition_of("Admitted")]}),
            "status.conditions[Admitted].status",
            "must not be True while QuotaReserved is not",
        ),
    ] {
        let written = api.patch_status(&name, &params, &Patch::Merge(json!({"status": status}))).await;
        refused_with(written, &status, [field, words])?;
    }
    let gated = json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "a.io/b"}}});
    let written = api.patch(&name, &params, &Patch::Merge(&gated)).await;
    refused_with(written, &gated, [GATES, "\"a.io/b\" must not be added after creation; names may only be removed"])?;
    // Any user may change a label of the Workload.
    WORKLOAD.patch(&s.client, &s.namespace, &name, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    given_back(&s).await.context("what was given back")?;
    s.conclude().await
}

/// Checks that a write is refused, and that the refusal contains both of `words`, which name the field and the reason.
fn refused_with(written: kube::Result<DynamicObject>, patch: &Value, words: [&str; 2]) -> Result<()> {
    let error = written.err().with_context(|| format!("accepted: {patch}"))?.to_string();
    for words in words {
        ensure!(error.contains(words), "{patch}: {words:?} not in {error}");
    }
    Ok(())
}

/// The quota that ended pods gave back cannot be taken again: two of a job's three pods have ended, and another job has their quota.
async fn given_back(s: &Scenario<'_>) -> Result<()> {
    s.create(s.job("waves").endless().spec(&json!({"parallelism": 2, "completions": 3}))).await?;
    s.admitted("waves").await?;
    s.nodes_of("waves", 2).await?;
    s.create(s.job("next")).await?;
    let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "succeed"}}});
    for pod in s.pods_of("waves").await? {
        POD.patch(&s.client, &s.namespace, text(&pod, "/metadata/name"), &ends).await?;
    }
    let over = |w: &Value| w["status"]["reclaimablePods"] == json!([{"name": "main", "count": 1}]);
    let workload = s.workload("waves", "told of a pod that is over", over).await?;
    let api = WORKLOAD.api(&s.client, &s.namespace);
    let params = PatchParams { field_manager: Some(kinds::USER.to_owned()), ..PatchParams::default() };
    for (pods, words) in [
        (json!([]), "must not be removed while quota is reserved"),
        (json!([{"name": "main", "count": 0}]), "must not become less than 1 while quota is reserved"),
    ] {
        let status = json!({"status": {"reclaimablePods": pods}});
        let name = text(&workload, "/metadata/name");
        let written = api.patch_status(name, &params, &Patch::Merge(&status)).await;
        refused_with(written, &status, ["status.reclaimablePods[main].count", words])?;
    }
    s.finished("next").await
}

/// Writes the status of a Workload or AdmissionCheck with a field manager of its own, as the check's controller does.
async fn set_status(s: &Scenario<'_>, kind: Kind, name: &str, status: &Value) -> kube::Result<DynamicObject> {
    let object =
        json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "status": status});
    let params = PatchParams::apply(CONTROLLER).force();
    kind.api(&s.client, &s.namespace).patch_status(name, &params, &Patch::Apply(&object)).await
}

/// The fields that an admission check in state Ready adds to the pods stay, whoever writes.
pub(crate) async fn checks_that_are_ready(stage: &Stage) -> Result<()> {
    let s = stage.scenario("held-checks").await?;
    let check = s.name("check");
    let object = json!({"apiVersion": WORKLOAD.api_version, "kind": "AdmissionCheck", "metadata": {"name": check},
        "spec": {"controllerName": CONTROLLER}});
    let kind = Kind::of(&object)?;
    s.apply(&object).await?;
    set_status(&s, kind, &check, &json!({"conditions": [condition_of("Active")]})).await?;
    s.simple_queue("1", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}})).await?;
    s.create(s.job("checked").endless()).await?;
    let asked = |w: &Value| condition(w, "QuotaReserved") == "True" && !items(w, "/status/admissionChecks").is_empty();
    let workload = s.workload("checked", "its check is asked", asked).await?;
    let name = text(&workload, "/metadata/name");
    let ready = |team: &str| {
        json!({"admissionChecks": [{"name": check, "state": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "podSetUpdates": [{"name": "main", "labels": {"team": team}}]}]})
    };
    set_status(&s, WORKLOAD, name, &ready("a")).await?;
    s.admitted("checked").await?;
    let words = ["status.admissionChecks[0].podSetUpdates", "is immutable while the check stays Ready"];
    refused_with(set_status(&s, WORKLOAD, name, &ready("b")).await, &ready("b"), words)?;
    kind.delete(&s.client, "", &check).await?;
    s.conclude().await
}

/// The label by which an object names its queue.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A TrainingJob of one worker that runs until it is deleted, in the LocalQueue `queue`, which it names by its field if `by_field`, and otherwise by
/// its label.
fn training(s: &Scenario<'_>, name: &str, by_field: bool) -> Value {
    let mut job = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"namespace": s.namespace, "name": name},
        "spec": {"jobType": "PyTorchJob", "resources": {"maxReplicas": 1, "replicaResources": {"cpu": "1"}},
            "template": {"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}}, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "example.invalid/nothing"}]}}}});
    if by_field {
        job["spec"]["schedulingConfig"] = json!({"queue": "queue"});
    } else {
        job["metadata"]["labels"] = json!({QUEUE: "queue"});
    }
    job
}

/// Changes of three TrainingJobs, of which two are admitted and one waits; each change has the field that its refusal names, or none if it is
/// accepted.
fn moves() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let field = |queue: &str| json!({"spec": {"schedulingConfig": {"queue": queue}}});
    let label = |queue: &str| json!({"metadata": {"labels": {QUEUE: queue}}});
    let suspended = |queue: &str| json!({"spec": {"suspend": true, "schedulingConfig": {"queue": queue}}});
    vec![
        ("by-field", field("other"), Some("spec.schedulingConfig.queue")),
        ("by-label", label("other"), Some("metadata.labels[kueue.x-k8s.io/queue-name]")),
        ("by-label", field("queue"), None),
        ("by-field", json!({"metadata": {"labels": {"team": "a"}}}), None),
        ("waiting", field("other"), None),
        ("by-field", suspended("other"), None),
    ]
}

/// An admitted TrainingJob cannot change its queue; a waiting or suspended TrainingJob can.
pub(crate) async fn queue_of_training_jobs(stage: &Stage) -> Result<()> {
    let s = stage.scenario("held-trainings").await?;
    s.simple_queue("2", &json!({})).await?;
    s.apply(&manifest::local_queue(&s.namespace, "other", &s.name("cq"))).await?;
    for name in ["by-field", "by-label"] {
        s.apply(&training(&s, name, name == "by-field")).await?;
        wait::until(STEP, &format!("{name} is admitted"), || async {
            let job = TRAINING_JOB.get(&s.client, &s.namespace, name).await?.unwrap_or_default();
            Ok(Seen::when(condition(&job, "Admitted") == "True", || job["status"].to_string()))
        })
        .await?;
    }
    s.apply(&training(&s, "waiting", true)).await?;
    s.workload("waiting", "there", |w| condition(w, "QuotaReserved") == "False").await?;
    for (name, patch, refused) in moves() {
        let answer = TRAINING_JOB.patch(&s.client, &s.namespace, name, &patch).await;
        match (answer, refused) {
            (Ok(_), None) => {}
            (Ok(_), Some(field)) => bail!("{name}, {patch}: accepted, and not refused at {field}"),
            (Err(error), None) => bail!("{name}, {patch}: {error:#}"),
            (Err(error), Some(field)) => {
                let message = format!("{error:#}");
                for words in [field, "\"other\"", "must stay \"queue\" while the job is admitted"] {
                    ensure!(message.contains(words), "{name}, {patch}: expected {words:?}, got {message}");
                }
            }
        }
    }
    // The quota of the suspended TrainingJob is free for the waiting one.
    let moved = |w: &Value| text(w, "/spec/queueName") == "other";
    s.workload("waiting", "admitted in its new queue", |w| moved(w) && condition(w, "Admitted") == "True").await?;
    s.workload("by-field", "in its new queue", moved).await?;
    s.conclude().await
}
