//! Berth creates the Job of a TrainingJob for the TrainingJob's author, who must have the right to create Jobs himself; and Berth's own account may
//! create no other Jobs.

use anyhow::{Result, ensure};
use berth_e2e::control_plane::{client_from, token, write_kubeconfig};
use berth_e2e::kinds::{self, CONFIG_MAP, JOB, TRAINING_JOB, USER};
use berth_e2e::manager;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// A client of a new service account that has the verbs `verbs` on TrainingJobs in the scenario's namespace.
async fn author(stage: &Stage, s: &Scenario<'_>, name: &str, verbs: &[&str]) -> Result<Client> {
    s.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": s.namespace, "name": name}}))
        .await?;
    grant(
        s,
        name,
        "trainingjobs",
        &json!([{"apiGroups": ["berth.dev"], "resources": ["trainingjobs"], "verbs": verbs}]),
    )
    .await?;
    let path = stage.plane.folder().join(format!("{}-{name}.kubeconfig", s.namespace));
    let credentials = json!({"token": token(&s.client, &s.namespace, name).await?});
    write_kubeconfig(&path, stage.plane.url(), &stage.plane.authority(), name, &credentials)?;
    client_from(&path).await
}

async fn grant(s: &Scenario<'_>, account: &str, right: &str, rules: &Value) -> Result<()> {
    let (rbac, name) = ("rbac.authorization.k8s.io", format!("{account}-{right}"));
    let metadata = json!({"namespace": s.namespace, "name": name});
    s.apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": rules})).await?;
    s.apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": s.namespace}],
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name}}))
        .await
        .map(drop)
}

fn answer_text(answer: Result<Value>) -> String {
    answer.map_or_else(|error| format!("{error:#}"), |_| "accepted".to_owned())
}

/// An author without the right to create Jobs is refused with RBAC's words, and is accepted after he got the right.
pub(crate) async fn need_the_right(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("author-rights").await?;
    let s = &scenario;
    s.simple_queue("1", &json!({})).await?;
    let client = author(stage, s, "author", &["get", "create", "patch"]).await?;
    let editor = author(stage, s, "editor", &["get", "patch"]).await?;
    let job = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"namespace": s.namespace, "name": "made"},
        "spec": {"jobType": "PyTorchJob", "resources": {"maxReplicas": 1, "replicaResources": {"cpu": "1"}},
            "schedulingConfig": {"queue": "queue"},
            "template": {"metadata": {"annotations": {"e2e.berth.dev/run-ms": "500"}},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/nothing"}]}}}});
    let cannot = |account: &str| {
        format!(
            "User \"system:serviceaccount:author-rights:{account}\" cannot create resource \"jobs\" in API group \"batch\" in the \
             namespace \"author-rights\", which Berth does for the author of a TrainingJob"
        )
    };
    wait::until(STEP, "the author is refused for want of the right", || async {
        let message = answer_text(kinds::apply(&client, &job).await);
        ensure!(message != "accepted", "accepted of one who may not create Jobs");
        Ok(Seen::when(message.contains("vtrainingjob.berth.dev") && message.contains(&cannot("author")), || {
            message.clone()
        }))
    })
    .await?;
    grant(s, "author", "jobs", &json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}])).await?;
    // The author is refused until Berth's remembered refusal has expired.
    wait::until(STEP, "the author is accepted", || async {
        let message = answer_text(kinds::apply(&client, &job).await);
        Ok(Seen::when(message == "accepted", || message.clone()))
    })
    .await?;
    // An account without the right to create Jobs may change a label of a TrainingJob, but no field from which Berth would create different Jobs.
    let edit = |patch: Value| {
        let editor = &editor;
        async move { answer_text(TRAINING_JOB.patch(editor, "author-rights", "made", &patch).await) }
    };
    let message = edit(json!({"metadata": {"labels": {"team": "a"}}})).await;
    ensure!(message == "accepted", "a label: {message}");
    let message = edit(json!({"spec": {"backoffLimit": 7}})).await;
    ensure!(message.contains(&cannot("editor")), "other Jobs: {message}");
    wait::until(STEP, "it has run", || async {
        let job = TRAINING_JOB.get(&s.client, &s.namespace, "made").await?.unwrap_or_default();
        Ok(Seen::when(job["status"]["phase"] == json!("Succeeded"), || job["status"].to_string()))
    })
    .await?;
    scenario.conclude().await
}

/// Berth's own token may not create a Job in the namespaces of the cluster itself, nor a Job that no TrainingJob controls.
pub(crate) async fn own_account_makes_jobs_of_training_jobs_alone(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("own-account").await?;
    let s = &scenario;
    let path = stage.plane.folder().join("own-account.kubeconfig");
    manager::kubeconfig(&stage.plane, None, &path).await?;
    let client = client_from(&path).await?;
    let owned_by = |api_version: &str, kind: &str| {
        json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "5c0b4f5e-0000-4000-8000-000000000000",
            "controller": true}])
    };
    let training_jobs = owned_by("berth.dev/v1alpha1", "TrainingJob");
    let create = |client: &Client, namespace: &str, owners: Value| {
        let object = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": namespace, "name": "forged", "ownerReferences": owners},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "serviceAccountName": "admin",
                "containers": [{"name": "c", "image": "example.invalid/nothing"}]}}}});
        let api = JOB.api(client, namespace);
        async move {
            let params = PostParams { dry_run: true, field_manager: Some(USER.to_owned()) };
            let created = api.create(&params, &serde_json::from_value(object)?).await;
            anyhow::Ok(created.map_or_else(|error| error.to_string(), |_| "accepted".to_owned()))
        }
    };
    let elsewhere = "Berth makes nothing for TrainingJobs in the namespaces of the cluster itself and in its own";
    wait::until(STEP, "the policy is in force", || async {
        let message = create(&client, "kube-system", training_jobs.clone()).await?;
        Ok(Seen::when(message.contains(elsewhere), || message.clone()))
    })
    .await?;
    for namespace in ["kube-system", "kube-public", "kube-node-lease", manager::NAMESPACE] {
        let message = create(&client, namespace, training_jobs.clone()).await?;
        ensure!(message.contains(elsewhere), "in {namespace}: {message}");
    }
    let nobodys = "Berth makes Jobs, Services and ConfigMaps for TrainingJobs alone, which control them";
    for owners in [Value::Null, owned_by("batch/v1", "CronJob"), owned_by("berth.example/v1", "TrainingJob")] {
        let message = create(&client, &s.namespace, owners.clone()).await?;
        ensure!(message.contains(nobodys), "of {owners}: {message}");
    }
    let message = create(&client, &s.namespace, training_jobs.clone()).await?;
    ensure!(message == "accepted", "of a TrainingJob: {message}");
    let message = create(&s.client, "kube-system", Value::Null).await?;
    ensure!(message == "accepted", "of an administrator: {message}");
    // An object of another owner does not become a TrainingJob's object by an owner reference that Berth's account writes into it.
    s.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": s.namespace, "name": "theirs"},
        "data": {"a": "theirs"}}))
        .await?;
    let patch = json!({"metadata": {"ownerReferences": training_jobs}, "data": {"a": "ours"}});
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let api = CONFIG_MAP.api(&client, &s.namespace);
    let message = api.patch("theirs", &params, &Patch::Merge(&patch)).await;
    let message = message.map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
    ensure!(message.contains("Berth changes Services and ConfigMaps of TrainingJobs alone"), "{message}");
    scenario.conclude().await
}
