//! Stored objects of every kind that today's rules would refuse never stop the other objects' work, neither if they are created while Berth runs nor
//! if Berth finds them at its start.
//!
//! The bad objects are stored while the CRDs have no schemas, as if an older version of the CRDs had accepted them.

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{self, CLUSTER_QUEUE, Kind, WORKLOAD, condition, condition_object, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{cluster_queue, merge};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Kind, name and content of each bad object. Namespaced bad objects are in the namespace of the good jobs.
fn bad() -> Vec<(&'static str, &'static str, Value)> {
    let group = |quota: Value| {
        json!([{"coveredResources": ["cpu"], "flavors": [{"name": "bad-flavor", "resources": [
            {"name": "cpu", "nominalQuota": quota}]}]}])
    };
    let good = group(json!("5"));
    let queue = |more: Value| {
        let mut spec = json!({"namespaceSelector": {}, "resourceGroups": good, "cohortName": "bad-cohort"});
        merge(&mut spec, &more);
        json!({"spec": spec})
    };
    let template = |requests: Value| {
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i",
            "resources": {"requests": requests}}]}})
    };
    let sets = |set: Value| json!({"spec": {"queueName": "queue", "active": true, "podSets": [set]}});
    let fine = template(json!({"cpu": "1"}));
    vec![
        ("ResourceFlavor", "spec-is-text", json!({"spec": "text"})),
        ("ResourceFlavor", "labels-are-a-list", json!({"spec": {"nodeLabels": ["a"]}})),
        ("ResourceFlavor", "label-is-a-number", json!({"spec": {"nodeLabels": {"a": 5}}})),
        ("ResourceFlavor", "no-such-effect", json!({"spec": {"nodeTaints": [{"key": "k", "effect": "Never"}]}})),
        ("ResourceFlavor", "no-such-operator", json!({"spec": {"tolerations": [{"key": "k", "operator": "Near"}]}})),
        ("ClusterQueue", "no-spec", json!({})),
        ("ClusterQueue", "groups-are-text", json!({"spec": {"resourceGroups": "x"}})),
        ("ClusterQueue", "quota-is-no-quantity", queue(json!({"resourceGroups": group(json!("9 cores"))}))),
        ("ClusterQueue", "quota-is-negative", queue(json!({"resourceGroups": group(json!("-5"))}))),
        ("ClusterQueue", "quota-is-an-object", queue(json!({"resourceGroups": group(json!({"cpu": 1}))}))),
        (
            "ClusterQueue",
            "quota-is-missing",
            queue(json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "bad-flavor", "resources": [{"name": "cpu"}]}]}]})),
        ),
        (
            "ClusterQueue",
            "covers-something-else",
            queue(json!({"resourceGroups": [{"coveredResources": ["gpu"], "flavors": [
            {"name": "bad-flavor", "resources": [{"name": "cpu", "nominalQuota": 1}]}]}]})),
        ),
        (
            "ClusterQueue",
            "flavor-twice",
            queue(json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "bad-flavor", "resources": [{"name": "cpu", "nominalQuota": 1}]},
            {"name": "bad-flavor", "resources": [{"name": "cpu", "nominalQuota": 2}]}]}]})),
        ),
        ("ClusterQueue", "no-such-stop", queue(json!({"stopPolicy": "Perhaps"}))),
        ("ClusterQueue", "no-such-strategy", queue(json!({"queueingStrategy": "LIFO"}))),
        (
            "ClusterQueue",
            "no-such-selector",
            queue(json!({"namespaceSelector": {"matchExpressions": [
            {"key": "a", "operator": "Near"}]}})),
        ),
        ("ClusterQueue", "cohort-is-a-number", queue(json!({"cohortName": 5}))),
        (
            "ClusterQueue",
            "limit-without-cohort",
            queue(json!({"cohortName": "", "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "bad-flavor", "resources": [
                {"name": "cpu", "nominalQuota": 1, "borrowingLimit": 1}]}]}]})),
        ),
        ("ClusterQueue", "below-a-cycle", queue(json!({"cohortName": "bad-own-parent", "resourceGroups": []}))),
        ("Cohort", "own-parent", json!({"spec": {"parentName": "bad-own-parent"}})),
        ("Cohort", "parent-is-a-list", json!({"spec": {"parentName": ["a"]}})),
        ("Cohort", "quota-is-no-quantity", json!({"spec": {"resourceGroups": group(json!("much"))}})),
        ("Cohort", "weight-is-negative", json!({"spec": {"fairSharing": {"weight": "-1"}}})),
        ("LocalQueue", "queue-is-no-name", json!({"spec": {"clusterQueue": "A_b"}})),
        ("LocalQueue", "queue-is-a-number", json!({"spec": {"clusterQueue": 7}})),
        ("LocalQueue", "no-queue", json!({"spec": {}})),
        ("LocalQueue", "no-such-stop", json!({"spec": {"clusterQueue": "bad-input-cq", "stopPolicy": "Perhaps"}})),
        ("Workload", "sets-are-text", json!({"spec": {"queueName": "queue", "podSets": "x"}})),
        ("Workload", "no-sets-at-all", json!({"spec": {"queueName": "queue", "active": true}})),
        ("Workload", "no-sets", json!({"spec": {"queueName": "queue", "active": true, "podSets": []}})),
        ("Workload", "negative-count", sets(json!({"name": "main", "count": -3, "template": fine}))),
        ("Workload", "huge-count", sets(json!({"name": "main", "count": 3_000_000_000_000_i64, "template": fine}))),
        ("Workload", "no-template", sets(json!({"name": "main", "count": 1}))),
        (
            "Workload",
            "no-quantity",
            sets(json!({"name": "main", "count": 1, "template": template(json!({"cpu": "many"}))})),
        ),
        (
            "Workload",
            "negative-request",
            sets(json!({"name": "main", "count": 1, "template": template(json!({"cpu": "-1"}))})),
        ),
        (
            "Workload",
            "same-name-twice",
            json!({"spec": {"queueName": "queue", "active": true, "podSets": [
            {"name": "main", "count": 1, "template": fine}, {"name": "main", "count": 1, "template": fine}]}}),
        ),
        (
            "Workload",
            "queue-is-a-number",
            json!({"spec": {"queueName": 5, "podSets": [
            {"name": "main", "count": 1, "template": fine}]}}),
        ),
        ("WorkloadPriorityClass", "value-is-text", json!({"value": "high"})),
        ("WorkloadPriorityClass", "no-value", json!({})),
        ("AdmissionCheck", "spec-is-text", json!({"spec": "x"})),
        ("AdmissionCheck", "no-controller", json!({"spec": {}})),
        ("Topology", "levels-are-text", json!({"spec": {"levels": "x"}})),
        ("Topology", "level-is-no-label", json!({"spec": {"levels": [{"nodeLabel": "a b"}]}})),
        ("Topology", "level-twice", json!({"spec": {"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}})),
        ("ProvisioningRequestConfig", "spec-is-a-list", json!({"spec": []})),
        ("ProvisioningRequestConfig", "no-class", json!({"spec": {"retryStrategy": {"backoffLimitCount": 1}}})),
        (
            "ProvisioningRequestConfig",
            "backoff-is-negative",
            json!({"spec": {"provisioningClassName": "c", "retryStrategy": {
                "backoffLimitCount": -1, "backoffBaseSeconds": -1, "backoffMaxSeconds": -1}}}),
        ),
        ("MultiKueueConfig", "clusters-are-text", json!({"spec": {"clusters": "x"}})),
        ("MultiKueueConfig", "cluster-twice", json!({"spec": {"clusters": ["a", "a"]}})),
        ("MultiKueueCluster", "no-source", json!({"spec": {"clusterSource": {}}})),
        ("MultiKueueCluster", "spec-is-a-number", json!({"spec": 1})),
    ]
}

fn is_namespaced(kind: &str) -> bool {
    matches!(kind, "LocalQueue" | "Workload")
}

fn manifest(namespace: &str, (kind, name, more): &(&str, &str, Value)) -> Value {
    let mut object = json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": format!("bad-{name}")}});
    if is_namespaced(kind) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    merge(&mut object, more);
    object
}

/// Creates an object without changing it; `Err` has the API server's message.
async fn create(s: &Scenario<'_>, object: &Value, dry: bool) -> std::result::Result<(), String> {
    let kind = Kind::of(object).map_err(|e| e.to_string())?;
    let params = PostParams { dry_run: dry, field_manager: Some(kinds::USER.to_owned()) };
    let typed = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
    kind.api(&s.client, &s.namespace).create(&params, &typed).await.map(drop).map_err(|e| e.to_string())
}

/// Removes the schemas of all CRDs.
async fn loosen(s: &Scenario<'_>) -> Result<()> {
    let crds = Kind::of(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}))?;
    for crd in crds.list(&s.client, "").await? {
        let mut versions = crd["spec"]["versions"].clone();
        for version in versions.as_array_mut().into_iter().flatten() {
            version["schema"] =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            if let Some(map) = version.as_object_mut() {
                map.remove("selectableFields");
                map.remove("additionalPrinterColumns");
            }
        }
        crds.patch(&s.client, "", text(&crd, "/metadata/name"), &json!({"spec": {"versions": versions}})).await?;
    }
    Ok(())
}

/// Names of bad objects that the CRDs' schemas accept today as well: only Berth can detect that they make no sense.
const BEYOND_SCHEMA: [&str; 8] = [
    "no-spec",
    "no-queue",
    "below-a-cycle",
    "own-parent",
    "no-value",
    "no-sets-at-all",
    "negative-request",
    "backoff-is-negative",
];

async fn tighten(s: &Scenario<'_>) -> Result<()> {
    kinds::apply_crds(&s.client, &repository().join("crds")).await?;
    wait::until(wait::STEP, "today's rules hold again", || async {
        let mut accepted = Vec::new();
        for case in bad().iter().filter(|case| !BEYOND_SCHEMA.contains(&case.1)) {
            let mut object = manifest(&s.namespace, case);
            object["metadata"]["name"] = json!("refused");
            if create(s, &object, true).await.is_ok() {
                accepted.push(format!("{} {}", case.0, case.1));
            }
        }
        Ok(Seen::when(accepted.is_empty(), || format!("accepted: {}", accepted.join(", "))))
    })
    .await
}

/// Creates a job and waits until it has finished, which shows that Berth goes on.
async fn others_go_on(s: &Scenario<'_>, name: &str) -> Result<()> {
    s.create(s.job(name)).await?;
    s.finished(name).await.with_context(|| format!("good job {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_objects_never_stop_the_others() -> Result<()> {
    let options = ManagerOptions { config: Some(CONFIG.to_owned()), ..ManagerOptions::default() };
    let mut stage = Stage::start("bad-input", &[Pool::cpu("cpu", 2, Tier::OnDemand)], options).await?;
    let outcome = match all(&mut stage).await {
        Ok(()) => Ok(()),
        Err(e) => Err(anyhow::anyhow!(stage.failure("bad-input", &e).await)),
    };
    stage.stop().await;
    outcome
}

async fn all(stage: &mut Stage) -> Result<()> {
    while_it_runs(stage).await?;
    let holder = holder_turns_bad(&again(stage)).await?;
    stage.manager.restart().await?;
    holder_turns_good(&again(stage), &holder).await.context("after a restart on a holder that cannot be read")?;
    rules_hold_again(&again(stage)).await?;
    stage.manager.restart().await?;
    after_a_restart(stage).await
}

/// Leader election is off, because a restarted Berth must not wait for the lease of the killed process.
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
";

fn again(stage: &Stage) -> Scenario<'_> {
    Scenario { stage, client: stage.client.clone(), namespace: "bad-input".to_owned() }
}

async fn while_it_runs(stage: &Stage) -> Result<()> {
    let s = &stage.scenario("bad-input").await?;
    // The queue of the good jobs is in the same cohort as the bad queues.
    s.simple_queue("2", &json!({"cohortName": "bad-cohort"})).await?;
    others_go_on(s, "before").await?;
    s.create(s.job("running").endless()).await?;
    s.admitted("running").await?;
    loosen(s).await?;
    for case in bad() {
        let object = manifest(&s.namespace, &case);
        wait::until(wait::STEP, &format!("{} {} is stored", case.0, case.1), || async {
            Ok(match create(s, &object, false).await {
                Ok(()) => Seen::Yes(()),
                Err(e) if e.contains("already exists") => Seen::Yes(()),
                Err(e) => Seen::NotYet(e),
            })
        })
        .await?;
    }
    others_go_on(s, "beside").await?;
    // A good ClusterQueue becomes bad and is deleted: it must not remain in Berth's view.
    let turned = s.name("turned");
    s.apply(&cluster_queue(&turned, &[], &json!({}))).await?;
    s.object_is(CLUSTER_QUEUE, &turned, "Active", |q| condition(q, "Active") == "True").await?;
    CLUSTER_QUEUE.patch(&s.client, "", &turned, &json!({"spec": "text", "metadata": {"finalizers": null}})).await?;
    CLUSTER_QUEUE.delete(&s.client, "", &turned).await?;
    stage.manager.recomputes().await
}

async fn rules_hold_again(s: &Scenario<'_>) -> Result<()> {
    tighten(s).await?;
    others_go_on(s, "after").await?;
    judged(s).await
}

/// Makes a Workload that holds quota unreadable: its quota stays charged and its job goes on. Returns the Workload as it was before it became
/// unreadable.
async fn holder_turns_bad(s: &Scenario<'_>) -> Result<Value> {
    let before = s.workload_of("running").await?.context("workload of the running job")?;
    let name = text(&before, "/metadata/name").to_owned();
    let undecodable = undecodable_workloads(s.stage).await?;
    WORKLOAD.patch(&s.client, &s.namespace, &name, &json!({"spec": {"podSets": "x"}})).await?;
    wait::until(wait::STEP, "Berth has met the bad workload", || async {
        let now = undecodable_workloads(s.stage).await?;
        Ok(Seen::when(now > undecodable, || format!("{now} undecodable workloads")))
    })
    .await?;
    s.create(s.job("too-much").cpu("2").endless()).await?;
    s.pending("too-much").await?;
    still_charged(s).await?;
    Ok(before)
}

/// Checks that the quota of the unreadable Workload goes to no other job, and that the Workload's own job goes on.
async fn still_charged(s: &Scenario<'_>) -> Result<()> {
    s.stays_pending("too-much").await?;
    // A fresh list of the unreadable Workload must agree with the watch.
    s.stage.manager.recomputes().await?;
    let running = s.get_job("running").await?;
    ensure!(running["spec"]["suspend"] == json!(false), "its job was stopped");
    Ok(())
}

/// A restarted Berth that never saw the Workload in its readable state charges its quota as well; when the Workload becomes readable again, its state
/// is as it was before.
async fn holder_turns_good(s: &Scenario<'_>, before: &Value) -> Result<()> {
    // Finished jobs show that the restarted Berth decides.
    others_go_on(s, "beside-the-holder").await?;
    still_charged(s).await?;
    let name = text(before, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"podSets": before["spec"]["podSets"]}})).await?;
    others_go_on(s, "small").await?;
    s.remove("too-much").await?;
    let after = s.workload_of("running").await?.context("workload of the running job, afterwards")?;
    ensure!(text(&after, "/metadata/uid") == text(before, "/metadata/uid"), "it was made anew");
    ensure!(condition(&after, "Admitted") == "True", "it lost its admission: {}", after["status"]);
    Ok(())
}

async fn undecodable_workloads(stage: &Stage) -> Result<f64> {
    let count = stage.manager.metric("berth_undecodable_objects_total", &["resource=\"workloads\""]).await?;
    Ok(count.unwrap_or(0.0))
}

async fn after_a_restart(stage: &Stage) -> Result<()> {
    let s = &again(stage);
    others_go_on(s, "restarted").await?;
    judged(s).await?;
    stage.manager.recomputes().await?;
    let undecodable = stage.manager.metric("berth_undecodable_objects_total", &[]).await?.unwrap_or(0.0);
    ensure!(undecodable >= 5.0, "{undecodable} objects could not be read, more were stored");
    s.remove("running").await?;
    for case in bad() {
        let object = manifest(&s.namespace, &case);
        let (kind, name) = (Kind::of(&object)?, text(&object, "/metadata/name").to_owned());
        kind.api(&s.client, &s.namespace).delete(&name, &DeleteParams::background()).await?;
        wait::until(wait::STEP, &format!("{} {name} is gone", case.0), || async {
            let left = kind.get(&s.client, &s.namespace, &name).await?;
            Ok(Seen::when(left.is_none(), || format!("{}", left.unwrap_or_default()["metadata"])))
        })
        .await?;
    }
    others_go_on(s, "at-last").await?;
    stage.manager.recomputes().await?;
    again(stage).conclude().await
}

/// Checks that no bad Workload is admitted, that three bad objects have a message about their fault, and that no invariant is broken.
async fn judged(s: &Scenario<'_>) -> Result<()> {
    for workload in WORKLOAD.list(&s.client, &s.namespace).await? {
        let name = text(&workload, "/metadata/name");
        ensure!(
            !name.starts_with("bad-") || condition(&workload, "QuotaReserved") != "True",
            "{name} was admitted: {}",
            workload["status"]
        );
    }
    for (kind, name, expected) in [
        ("Workload", "bad-negative-request", "spec.podSets[0]"),
        ("ClusterQueue", "bad-quota-is-negative", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
        (
            "ClusterQueue",
            "bad-below-a-cycle",
            "Can't admit new workloads: is below a cycle of cohorts (bad-own-parent -> bad-own-parent).",
        ),
    ] {
        let (kind, type_) = if kind == "Workload" { (WORKLOAD, "QuotaReserved") } else { (CLUSTER_QUEUE, "Active") };
        wait::until(wait::STEP, &format!("{name} is told why"), || async {
            let object = kind.get(&s.client, &s.namespace, name).await?.unwrap_or_default();
            let found_condition = condition_object(&object, type_).cloned().unwrap_or_default();
            let there =
                text(&found_condition, "/status") == "False" && text(&found_condition, "/message").contains(expected);
            Ok(Seen::when(there, || format!("{found_condition}")))
        })
        .await?;
    }
    let good = CLUSTER_QUEUE.get(&s.client, "", &s.name("cq")).await?.context("the good queue")?;
    ensure!(condition(&good, "Active") == "True", "the good queue: {}", good["status"]);
    ensure!(!items(&good, "/status/conditions").is_empty(), "the good queue has no conditions");
    s.stage.observer.violations(&berth_e2e::observer::Scope::all()).await.and_then(|broken| {
        ensure!(broken.is_empty(), "{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        Ok(())
    })?;
    Ok(())
}
