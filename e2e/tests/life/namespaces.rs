//! Deletion of a namespace with all objects in it.

use anyhow::Result;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{POD, TRAINING_JOB, text};
use berth_e2e::manifest::merge;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

/// Cpus of the queue's quota.
const CPUS: &str = "8";

/// A pod that runs until it is deleted; the fields of `more` are merged into it.
fn endless(s: &Scenario<'_>, name: &str, more: &Value) -> Value {
    let mut pod = json!({"apiVersion": POD.api_version, "kind": POD.kind,
        "metadata": {"namespace": s.namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"},
            "annotations": {"e2e.berth.dev/outcome": "never"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "1"}}}]}});
    merge(&mut pod, more);
    pod
}

/// The command `kubectl delete namespace` ends, whatever job kinds run or wait in the namespace, and no quota stays reserved. Without Berth's part
/// Kubernetes would keep the pods of some jobs for ever: the pods of a Job that retries each index separately, as the Jobs of a TrainingJob do, and
/// the pods of a pod group.
pub(crate) async fn every_kind_goes_with_its_namespace(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("namespace-ends").await?;
    let s = &scenario;
    s.simple_queue(CPUS, &json!({})).await?;
    let by_index = json!({"completionMode": "Indexed", "backoffLimit": null, "backoffLimitPerIndex": 3});
    s.create(s.job("by-index").endless().spec(&by_index)).await?;
    s.create(s.job("plain").endless()).await?;
    let pod = endless(s, "", &json!({}));
    let template = json!({"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]});
    s.apply(&json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": "set", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"suspend": true, "replicatedJobs": [{"name": "job", "template": {"spec": {"template": template}}}]}}))
        .await?;
    s.apply(&json!({"apiVersion": TRAINING_JOB.api_version, "kind": TRAINING_JOB.kind,
        "metadata": {"namespace": s.namespace, "name": "training"},
        "spec": {"jobType": "PyTorchJob", "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1", "gpu": 0}},
            "schedulingConfig": {"queue": "queue"}, "template": {"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}},
                "spec": {"containers": [{"name": "main", "image": "e2e/none"}]}}}}))
    .await?;
    let of_group = json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}});
    for (name, more) in [("member-0", &of_group), ("member-1", &of_group), ("alone", &json!({}))] {
        s.apply(&endless(s, name, more)).await?;
    }
    wait::until(STEP, "pods of all kinds run", || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let run = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running").count();
        Ok(Seen::when(run == 8, || format!("{run} run")))
    })
    .await?;
    s.create(s.job("waits")).await?;
    s.apply(&endless(s, "gated", &json!({}))).await?;
    s.pending("waits").await?;
    s.ends_with_its_namespace().await?;
    scenario.conclude().await
}
