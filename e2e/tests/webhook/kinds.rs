//! The webhooks of Kueue's own kinds: faults that the schemas cannot express are refused by field, as kubectl prints it.

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::kinds::text;
use berth_e2e::manifest::{self, cluster_queue, cohort, flavor, group, quota};
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

/// The annotation that names controllers which keep a Workload from being admitted.
pub(crate) const GATES: &str = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]";

/// Invalid objects, each with the field and the words of its refusal. Objects that the schema refuses before any webhook is called are in
/// `cases/kueue-fields`.
fn bad(s: &Scenario<'_>) -> Vec<(Value, &'static str, &'static str)> {
    let cpu = |quota: manifest::Quota<'_>| group(&[("f", &[quota])]);
    let queue = |groups: &[Value], more: &Value| cluster_queue(&s.name("bad"), groups, more);
    let one = || cpu(quota("cpu", "1"));
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
    let labelled = |key: &str, value: &str| flavor(&s.name("bad"), &[(key, value)]);
    let gates = |names: &str| {
        workload(json!([set("a", json!({"cpu": "1"}))]), json!({"kueue.x-k8s.io/admission-gated-by": names}))
    };
    let large = json!({"metadata": {"annotations": {"a": "x".repeat(256 * 1024)}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                alphanumeric character";
    let term = json!({"matchExpressions": [{"key": "a b", "operator": "Exists"}]});
    let check = json!({"admissionChecks": [{"name": "c", "onFlavors": ["x"]}]});
    let concurrent = |groups: &[Value], more: &Value, policy: Value| {
        let mut queue = queue(groups, more);
        queue["spec"]["concurrentAdmissionPolicy"] = json!({"migration": policy});
        queue
    };
    let moves = || json!({"mode": "TryPreferredFlavors"});
    vec![
        (
            queue(&[cpu(quota("cpu", "1").lending("2"))], &json!({"cohortName": "c"})),
            "resources[0].lendingLimit",
            "must be less than or equal to the nominalQuota",
        ),
        (
            cohort(&s.name("bad"), "", &[one(), one()]),
            "spec.resourceGroups[1].coveredResources[0]",
            "must be covered by one group only, and once",
        ),
        (
            cohort(&s.name("bad"), "", &[one(), group(&[("f", &[quota("memory", "1Gi")])])]),
            "spec.resourceGroups[1].flavors[0].name",
            "must be in one group only, and once",
        ),
        (queue(&[one()], &json!({"namespaceSelector": term})), "spec.namespaceSelector.matchExpressions[0].key", name),
        (
            queue(&[one()], &json!({"admissionChecksStrategy": check})),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]",
            "supported values: \"f\"",
        ),
        (
            queue(&[group(&[("f", &[quota("a b", "1")])])], &json!({})),
            "spec.resourceGroups[0].coveredResources[0]",
            name,
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
        (taints(json!({"tolerations": [{"key": "a b", "operator": "Exists"}]})), "spec.tolerations[0].key", name),
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
        (gates("a.io/b,"), GATES, "must not have empty entries"),
        (gates("plain"), GATES, "must have a domain prefix, such as example.com/name"),
        (gates("a.io/b c"), GATES, "path part must consist of characters that a URL may have in its path"),
        (gates("a.io/b,a.io/b"), GATES, "\"a.io/b\" is listed twice"),
        (gates(&format!("a.io/{}", "x".repeat(59))), GATES, "x\" must be no more than 63 characters"),
        (
            workload(json!([set("a", json!({"cpu": "1"}))]), json!({"kueue.x-k8s.io/priority-boost": "x"})),
            "metadata.annotations[kueue.x-k8s.io/priority-boost]",
            "must be a whole number from -2147483648 to 2147483647",
        ),
        (
            workload(json!([with_member(set("a", json!({})), "template", large)]), json!({})),
            "spec.podSets[0].template.metadata.annotations",
            "must be no more than 262144 bytes together",
        ),
        (
            workload(
                json!([with_member(set("a", json!({})), "template", json!({"spec": {"containers": []}}))]),
                json!({}),
            ),
            "spec.podSets[0].template.spec.containers",
            "must have at least one container",
        ),
        (labelled("/a", "c"), "spec.nodeLabels", "prefix part must not be empty"),
        (labelled("a/", "c"), "spec.nodeLabels", "name part must not be empty"),
        (labelled(&"x".repeat(64), "c"), "spec.nodeLabels", "name part must be no more than 63 characters"),
        (labelled("a", &"x".repeat(64)), "spec.nodeLabels[a]", "must be no more than 63 characters"),
        (
            labelled("A.io/x", "c"),
            "spec.nodeLabels",
            "prefix part must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character",
        ),
        (
            labelled(&format!("{}/x", "x".repeat(254)), "c"),
            "spec.nodeLabels",
            "prefix part must be no more than 253 characters",
        ),
        (
            concurrent(&wide(1, 17, 1), &json!({}), moves()),
            "spec.resourceGroups[0].flavors",
            "must be at most 16 with spec.concurrentAdmissionPolicy",
        ),
        (
            concurrent(&wide(2, 1, 1), &json!({}), moves()),
            "spec.resourceGroups",
            "must be exactly one resourceGroup with spec.concurrentAdmissionPolicy",
        ),
        (
            concurrent(&[one()], &json!({"queueingStrategy": "StrictFIFO"}), moves()),
            "spec.queueingStrategy",
            "must not be StrictFIFO with spec.concurrentAdmissionPolicy; BestEffortFIFO is allowed",
        ),
        (
            concurrent(
                &[one()],
                &json!({}),
                json!({"mode": "RetainFirstAdmission", "constraints": {"lastAcceptableFlavorName": "f"}}),
            ),
            "spec.concurrentAdmissionPolicy.migration.constraints",
            "may only be set when migration.mode is TryPreferredFlavors, not RetainFirstAdmission",
        ),
    ]
}

/// A list of `groups` resource groups, each with `flavors` flavors and `resources` resources of its own.
fn wide(groups: usize, flavors: usize, resources: usize) -> Vec<Value> {
    let one = |at: usize| {
        let names: Vec<String> = (0..resources).map(|number| format!("r{at}-{number}")).collect();
        let quotas: Vec<Value> = names.iter().map(|name| json!({"name": name, "nominalQuota": "1"})).collect();
        let flavors: Vec<Value> =
            (0..flavors).map(|number| json!({"name": format!("f{at}-{number}"), "resources": quotas})).collect();
        json!({"coveredResources": names, "flavors": flavors})
    };
    (0..groups).map(one).collect()
}

fn with_member(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

pub(crate) async fn refused(stage: &Stage) -> Result<()> {
    let s = stage.scenario("refused-kinds").await?;
    let mut wrong = Vec::new();
    for (object, field, allowed) in bad(&s) {
        // Every wrong field is a cause of its own in the refusal, and kubectl prints the causes.
        match s.apply(&object).await {
            Ok(_) => wrong.push(format!("accepted, {field}: {object}")),
            Err(error) => {
                let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() else { return Err(error) };
                let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
                // Kueue's kinds are refused as Kueue's webhooks refuse them; Berth's own kinds are refused as by a schema.
                let own = text(&object, "/apiVersion").starts_with("berth.dev/");
                let wanted = if own { (422, "Invalid") } else { (403, "Forbidden") };
                ensure!((status.code, &*status.reason) == wanted, "{status:?}");
                let named = causes.iter().any(|cause| cause.field.contains(field) && cause.message.contains(allowed));
                let reported = status.message.contains("berth.dev") && status.message.contains(allowed);
                if !named || !reported {
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
    ensure!(printed.contains("is forbidden") && printed.contains("spec.nodeLabels"), "kubectl prints: {printed}");
    // A valid object is accepted, and invalid changes of it are refused.
    s.simple_queue("1", &json!({"cohortName": s.name("cohort")})).await?;
    s.apply(&cohort(&s.name("cohort"), "", &[])).await?;
    s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "Hold"})).await?;
    let group = json!([group(&[("f", &[quota("cpu", "-1")])])]);
    ensure!(s.edit_queue(&s.name("cq"), &json!({"resourceGroups": group})).await.is_err(), "a negative quota");
    let policy = |mode: &str| json!({"concurrentAdmissionPolicy": {"migration": {"mode": mode}}});
    s.apply(&cluster_queue(&s.name("moving"), &wide(1, 2, 1), &policy("TryPreferredFlavors"))).await?;
    let changed = s.edit_queue(&s.name("moving"), &policy("RetainFirstAdmission")).await;
    let reported = format!("{:#}", changed.err().context("the policy of a queue was changed")?);
    for words in ["spec.concurrentAdmissionPolicy", "is immutable: make the ClusterQueue anew"] {
        ensure!(reported.contains(words), "{words:?} not in {reported}");
    }
    s.conclude().await
}
