//! Story of the crash table: a JobSet whose selectors pin it to capacity that the policy of its queue does not give it.

use anyhow::Result;
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, POD, QUEUE_POLICY, WORKLOAD, condition, text};
use berth_e2e::manifest::{cluster_queue, flavor, group, local_queue, quota};
use berth_e2e::scenario::Scenario;
use berth_e2e::wait::{self, Seen};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::crash::{PATIENCE, StoryRun, comes};

const SPOT: &str = "cloud.google.com/gke-spot";

/// A JobSet of two Jobs of one pod, not suspended, with a selector for spot nodes, of which the cluster has none.
fn pinned(s: &Scenario<'_>) -> Value {
    let pods = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "nodeSelector": {(SPOT): "true"},
            "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": "1"}}}]}});
    let template = json!({"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pods}});
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": "train", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"replicatedJobs": [{"name": "job", "replicas": 2, "template": template}]}})
}

/// A queue that admits nothing yet, with quota on demand and on spot; its policy overrides the tiers to which jobs pin themselves.
async fn closed_queue(s: &Scenario<'_>) -> Result<()> {
    let (demand, spot, queue) = (s.name("on-demand"), s.name("spot"), s.name("cq"));
    let tiers = json!({"selectors": "Override", "default": ["on-demand", "spot"]});
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("policy")},
        "spec": {"clusterQueues": [queue], "capacityTiers": tiers}}))
        .await?;
    let labels = [(&demand, "on-demand", ("cloud.google.com/gke-nodepool", "cpu")), (&spot, "spot", (SPOT, "true"))];
    for (name, tier, label) in labels {
        let mut object = flavor(name, &[label]);
        object["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        object["spec"]["tolerations"] = json!([{"key": SPOT, "operator": "Exists"}]);
        s.apply(&object).await?;
    }
    let cpu = [quota("cpu", "2")];
    let groups = [group(&[(&*demand, &cpu[..]), (&*spot, &cpu[..])])];
    s.apply(&cluster_queue(&queue, &groups, &json!({"stopPolicy": "Hold"}))).await?;
    s.apply(&local_queue(&s.namespace, "queue", &queue)).await?;
    // Berth's watches of two kinds have no common order: a queue that opens before Berth has seen its policy would admit without the policy.
    let policy = s.name("policy");
    comes(s, QUEUE_POLICY, &policy, "Active", |policy| condition(policy, "Active") == "True").await
}

/// Waits until the two pods that Berth has placed run, and no others.
async fn both_run(s: &Scenario<'_>) -> Result<()> {
    wait::until(PATIENCE, "the JobSet's pods run on demand", || async {
        let pods = POD.list(&s.client, &s.namespace).await?;
        let describe = |pod: &Value| {
            let (phase, node) = (text(pod, "/status/phase"), text(pod, "/spec/nodeName"));
            format!("{phase} on {node:?} as {}", pod["metadata"]["labels"]["kueue.x-k8s.io/podset"])
        };
        let placed = |pod: &&Value| {
            text(pod, "/metadata/labels/kueue.x-k8s.io~1podset") == "job"
                && text(pod, "/status/phase") == "Running"
                && text(pod, "/spec/nodeName").starts_with("cpu-")
        };
        let run = pods.iter().filter(placed).count();
        Ok(Seen::when(run == 2 && pods.len() == 2, || format!("{:?}", pods.iter().map(describe).collect::<Vec<_>>())))
    })
    .await
}

/// Story: a JobSet runs in the tier that the policy gives it, is stopped, and then has the template that its user wrote.
pub(crate) fn runs_elsewhere<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        closed_queue(s).await?;
        s.apply(&pinned(s)).await?;
        let workload = s.workload("train", "there", |_| true).await?;
        wait::until(PATIENCE, "its controller has made its Jobs", || async {
            let jobs = JOB.list(&s.client, &s.namespace).await?.len();
            Ok(Seen::when(jobs == 2, || format!("{jobs} Jobs")))
        })
        .await?;
        s.edit_queue(&s.name("cq"), &json!({"stopPolicy": "None"})).await?;
        both_run(s).await?;
        let inactive = json!({"spec": {"active": false}});
        WORKLOAD.patch(&s.client, &s.namespace, text(&workload, "/metadata/name"), &inactive).await?;
        s.workload("train", "quota released", |w| condition(w, "QuotaReserved") == "False").await?;
        comes(s, JOBSET, "train", "suspended, and as its user wrote it", |set| {
            let pods = &set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
            set["spec"]["suspend"] == json!(true) && pods["spec"]["nodeSelector"] == json!({(SPOT): "true"})
        })
        .await?;
        JOBSET.delete(&s.client, &s.namespace, "train").await?;
        wait::until(PATIENCE, "the JobSet, its pods and its Workload are gone", || async {
            let pods = POD.list(&s.client, &s.namespace).await?.len();
            let workload = s.workload_of("train").await?.is_some();
            Ok(Seen::when(pods == 0 && !workload, || format!("{pods} pods, workload: {workload}")))
        })
        .await
    }
    .boxed()
}
