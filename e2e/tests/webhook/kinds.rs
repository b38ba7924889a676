//! Kueue's own kinds: what their schemas cannot say is refused by field, as kubectl prints it.

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::kinds::{self, TRAINING_JOB, WORKLOAD, condition, text};
use berth_e2e::manifest::{self, cluster_queue, cohort, flavor, group, quota};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    if let Some(at) = object.pointer_mut(pointer) {
        *at = value;
    }
    object
}

/// Objects, and what the refusal says: the field, and what is allowed there.
fn bad(s: &Scenario<'_>) -> Vec<(Value, &'static str, &'static str)> {
    let cpu = |quota: manifest::Quota<'_>| group(&[("f", &[quota])]);
    let queue = |groups: &[Value], more: &Value| cluster_queue(&s.name("bad"), groups, more);
    let one = || cpu(quota("cpu", "1"));
    let two = || group(&[("f", &[quota("cpu", "1"), quota("memory", "1Gi")])]);
    let swapped = with(two(), "/flavors/0/resources/0/name", json!("memory"));
    let swapped = with(swapped, "/flavors/0/resources/1/name", json!("cpu"));
    let set = |name: &str, requests: Value| {
        json!({"name": name, "count": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": requests}}]}}})
    };
    let workload = |sets: Value, annotations: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": s.namespace, "name": "bad", "annotations": annotations},
            "spec": {"queueName": "queue", "podSets": sets}})
    };
    let fewer = |name: &str| with_member(set(name, json!({"cpu": "1"})), "minCount", json!(1));
    let taints = |spec: Value| with_member(flavor(&s.name("bad"), &[]), "spec", spec);
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.'";
    let term = json!({"matchExpressions": [{"key": "a b", "operator": "Exists"}]});
    let check = json!({"admissionChecks": [{"name": "c", "onFlavors": ["x"]}]});
    let gated = json!({"kueue.x-k8s.io/admission-gated-by": "a.io/b,"});
    vec![
        (
            queue(&[cpu(quota("cpu", "1").lending("2"))], &json!({"cohortName": "c"})),
            "resources[0].lendingLimit",
            "must be less than or equal to the nominalQuota",
        ),
        (queue(&[one(), one()], &json!({})), "spec.resourceGroups[1]", "must be covered by one group only, and once"),
        (
            queue(&[swapped], &json!({})),
            "spec.resourceGroups[0].flavors[0].resources[0].name",
            "must match the name in coveredResources",
        ),
        (
            queue(&[one()], &json!({"fairSharing": {"weight": "1n"}})),
            "spec.fairSharing.weight",
            "must be 0 or greater than 1n",
        ),
        (queue(&[one()], &json!({"namespaceSelector": term})), "spec.namespaceSelector.matchExpressions[0].key", name),
        (
            queue(&[one()], &json!({"admissionChecksStrategy": check})),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]",
            "supported values: \"f\"",
        ),
        (
            cohort(&s.name("bad"), "", &[cpu(quota("cpu", "1").lending("1"))]),
            "resources[0].lendingLimit",
            "must be nil when parent is empty",
        ),
        (
            queue(&[group(&[("f", &[quota("a b", "1")])])], &json!({})),
            "spec.resourceGroups[0].coveredResources[0]",
            name,
        ),
        (
            queue(&[one()], &json!({"fairSharing": {"weight": "-1"}})),
            "spec.fairSharing.weight",
            "must be greater than or equal to 0",
        ),
        (
            queue(&[one()], &json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})),
            "spec.namespaceSelector.matchExpressions[0].values",
            "must be specified when the operator is In",
        ),
        (
            queue(&[one()], &json!({"namespaceSelector": {"matchLabels": {"a": "b c"}}})),
            "spec.namespaceSelector.matchLabels[a]",
            "a valid label value must consist of alphanumeric characters",
        ),
        (flavor(&s.name("bad"), &[("a b", "c")]), "spec.nodeLabels", name),
        (
            flavor(&s.name("bad"), &[("a", "b c")]),
            "spec.nodeLabels[a]",
            "a valid label value must consist of alphanumeric characters",
        ),
        (taints(json!({"nodeTaints": [{"key": "a b", "effect": "NoSchedule"}]})), "spec.nodeTaints[0].key", name),
        (
            taints(json!({"nodeTaints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]})),
            "spec.nodeTaints[0].value",
            "a valid label value must consist of alphanumeric characters",
        ),
        (
            with_member(
                flavor(&s.name("bad"), &[]),
                "metadata",
                json!({"name": s.name("bad"), "labels": {"berth.dev/capacity-tier": "gold"}}),
            ),
            "metadata.labels[berth.dev/capacity-tier]",
            "reserved, on-demand and spot",
        ),
        (
            taints(json!({"nodeTaints": [{"key": "k", "effect": "NoSchedule", "value": "a"},
                {"key": "k", "effect": "NoSchedule", "value": "b"}]})),
            "spec.nodeTaints[1]",
            "taints must be unique by key and effect pair",
        ),
        (taints(json!({"tolerations": [{"key": "a b", "operator": "Exists"}]})), "spec.tolerations[0].key", name),
        (workload(json!([fewer("a"), fewer("b")]), json!({})), "spec.podSets", "at most one podSet can use minCount"),
        (
            workload(json!([fewer("a")]), json!({"kueue.x-k8s.io/elastic-job": "true"})),
            "spec.podSets",
            "partial admission and elastic job cannot be used together",
        ),
        (
            workload(json!([set("a", json!({"pods": "1"}))]), json!({})),
            "requests[pods]",
            "the key is reserved for internal kueue use",
        ),
        (
            workload(json!([set("a", json!({"cpu": "-1"}))]), json!({})),
            "requests[cpu]",
            "must be greater than or equal to 0",
        ),
        (
            workload(json!([set("a", json!({"cpu": "1"}))]), gated),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]",
            "must not have empty entries",
        ),
    ]
}

fn with_member(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

pub(crate) async fn refused(stage: &Stage) -> Result<()> {
    let s = stage.scenario("refused-kinds").await?;
    let mut wrong = Vec::new();
    for (object, field, allowed) in bad(&s) {
        // Every field that is wrong is a cause of its own, and that is what kubectl prints.
        match s.apply(&object).await {
            Ok(_) => wrong.push(format!("accepted, {field}: {object}")),
            Err(error) => {
                let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() else { return Err(error) };
                let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
                ensure!(status.code == 422 && status.reason == "Invalid", "{status:?}");
                let named = causes.iter().any(|cause| cause.field.contains(field) && cause.message.contains(allowed));
                let told = status.message.contains("berth.dev") && status.message.contains(allowed);
                if !named || !told {
                    wrong.push(format!("{field} with {allowed:?} not among {causes:?} of {}", status.message));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = stage.plane.folder().join("bad-flavor.json");
    let bad = flavor(&s.name("bad"), &[("a b", "c")]);
    std::fs::write(&path, bad.to_string())?;
    let printed = match stage.plane.kubectl(&["apply", "-f", &path.display().to_string()]).await {
        Ok(text) => bail!("kubectl says {text}"),
        Err(error) => format!("{error:#}"),
    };
    ensure!(printed.contains("is invalid") && printed.contains("spec.nodeLabels"), "kubectl prints: {printed}");
    // What is right is accepted, and what was right stays so when it is changed.
    s.simple_queue("1", &json!({"cohortName": s.name("cohort")})).await?;
    s.apply(&cohort(&s.name("cohort"), "", &[])).await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "Hold"})).await?;
    let group = json!([group(&[("f", &[quota("cpu", "-1")])])]);
    ensure!(s.edit_queue(&s.name("cq"), &json!({"resourceGroups": group})).await.is_err(), "a negative quota");
    s.conclude().await
}

/// A condition of that name.
fn condition_of(name: &str) -> Value {
    json!({"type": name, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// What holds quota keeps its pod sets and its books, whoever writes.
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
    for (status, field) in [
        (json!({"reclaimablePods": [{"name": "other", "count": 1}]}), "status.reclaimablePods[other].name"),
        (json!({"reclaimablePods": [{"name": "main", "count": 9}]}), "status.reclaimablePods[main].count"),
        (json!({"conditions": [condition_of(&"x".repeat(64))]}), "status.conditions[0].type"),
        (json!({"admission": null}), "status.admission"),
        (json!({"admission": {"clusterQueue": "other"}}), "status.admission"),
    ] {
        let written = api.patch_status(&name, &params, &Patch::Merge(json!({"status": status}))).await;
        let error = written.err().with_context(|| format!("accepted: {status}"))?.to_string();
        ensure!(error.contains(field), "{field} not in {error}");
    }
    // A label is nobody's business.
    WORKLOAD.patch(&s.client, &s.namespace, &name, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    s.conclude().await
}

/// The label that may name a queue.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A TrainingJob of one worker that runs until it is deleted, in LocalQueue `queue`, which its field names, or else its label.
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

/// Changes of TrainingJobs of which two are admitted and one waits, and the field that a refusal names.
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

/// A TrainingJob that is admitted keeps its queue; one that waits, or is suspended, moves.
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
                let told = format!("{error:#}");
                for words in [field, "\"other\"", "must stay \"queue\" while the job is admitted"] {
                    ensure!(told.contains(words), "{name}, {patch}: expected {words:?}, got {told}");
                }
            }
        }
    }
    // The place of the one that was suspended is free.
    let moved = |w: &Value| text(w, "/spec/queueName") == "other";
    s.workload("waiting", "admitted in its new queue", |w| moved(w) && condition(w, "Admitted") == "True").await?;
    s.workload("by-field", "in its new queue", moved).await?;
    s.conclude().await
}
