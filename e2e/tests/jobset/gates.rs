//! Scheduling gates of JobSets: gates that a user writes stay through starts and stops, and the real controller allows more gates to be added while a
//! JobSet is suspended. Berth itself adds no gates to JobSets.

use anyhow::{Context, Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{JOB, POD, WORKLOAD, condition, items, text};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, Seen};
use serde_json::{Value, json};

use crate::jobset::{START, queues, remove, running, slices};

/// Scheduling gates that only the test removes, in the order of their names.
const GATE: &str = "e2e.berth.dev/data";
const SECOND: &str = "e2e.berth.dev/licence";

/// JSON pointer to the pod template in a JobSet, and in a Job.
const OF_SET: &str = "/spec/replicatedJobs/0/template/spec/template";
const OF_JOB: &str = "/spec/template";

/// Names of the scheduling gates of a pod, or of the pod template at the pointer `at`, in the order of the alphabet.
fn gates<'a>(object: &'a Value, at: &str) -> Vec<&'a str> {
    let gates = items(object, &format!("{at}/spec/schedulingGates"));
    let mut names: Vec<&str> = gates.iter().map(|gate| text(gate, "/name")).collect();
    names.sort_unstable();
    names
}

fn describe(objects: &[Value], at: &str) -> String {
    let reported = objects.iter().map(|object| {
        let (name, phase) = (text(object, "/metadata/name"), text(object, "/status/phase"));
        format!("{name}: {:?} {phase}", gates(object, at))
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// The four pods of the JobSet of [`slices`], after they wait with the gates `wanted` and both Jobs have these gates.
async fn held_back(s: &Scenario<'_>, wanted: &[&str]) -> Result<Vec<Value>> {
    wait::until(START, &format!("four pods wait behind {wanted:?}"), || async {
        let mut pods = POD.list(&s.client, &s.namespace).await?;
        pods.retain(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let waits = |pod: &Value| {
            let nowhere = text(pod, "/spec/nodeName").is_empty() && text(pod, "/status/phase") == "Pending";
            nowhere && gates(pod, "") == wanted
        };
        if pods.len() == 4
            && jobs.len() == 2
            && jobs.iter().all(|job| gates(job, OF_JOB) == wanted)
            && pods.iter().all(waits)
        {
            return Ok(Seen::Yes(pods));
        }
        Ok(Seen::NotYet(format!("pods: {}; Jobs: {}", describe(&pods, ""), describe(&jobs, OF_JOB))))
    })
    .await
}

/// Waits until Berth has started the JobSet: its pods have the label of a start and wait with the gate of their user.
async fn started(s: &Scenario<'_>) -> Result<Vec<Value>> {
    let pods = held_back(s, &[GATE]).await?;
    for pod in &pods {
        ensure!(
            text(pod, "/metadata/labels/kueue.x-k8s.io~1podset") == "job",
            "not Berth's start: {}",
            pod["metadata"]
        );
        ensure!(pod["spec"]["nodeSelector"]["e2e/pool"] == json!("on-demand"), "{}", pod["spec"]["nodeSelector"]);
    }
    let set = JOBSET.get(&s.client, &s.namespace, "train").await?.context("the JobSet")?;
    ensure!(set["spec"]["suspend"] == json!(false), "{}", set["spec"]);
    ensure!(gates(&set, OF_SET) == [GATE], "{}", set["spec"]);
    Ok(pods)
}

/// A JobSet with a user's scheduling gate is started, stopped and started again, and only the user removes the gate.
pub(crate) async fn of_its_user_stay(stage: &Stage) -> Result<()> {
    let s = stage.scenario("gated").await?;
    queues(&s, "0", "16").await?;
    let mut set = slices(&s, "train", false, 600_000);
    // The JobSet is created suspended, as the webhook stores it, so that each of its pods comes from a start by Berth.
    set["spec"]["suspend"] = json!(true);
    set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulingGates"] =
        json!([{"name": GATE}]);
    s.apply(&set).await?;
    let workload = s.workload("train", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    started(&s).await?;
    let name = text(&workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.workload("train", "released", |w| condition(w, "QuotaReserved") == "False").await?;
    let stopped = s.object_is(JOBSET, "train", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    ensure!(gates(&stopped, OF_SET) == [GATE], "{}", stopped["spec"]);
    let selector = |set: &Value| set.pointer(&format!("{OF_SET}/spec/nodeSelector")).cloned();
    ensure!(selector(&stopped) == selector(&set), "not as its user wrote it: {}", stopped["spec"]);
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": true}})).await?;
    for pod in started(&s).await? {
        let open = json!({"spec": {"schedulingGates": null}});
        POD.patch(&s.client, &s.namespace, text(&pod, "/metadata/name"), &open).await?;
    }
    for pod in running(&s, "train").await? {
        ensure!(text(&pod, "/spec/nodeName").starts_with("tpu-od"), "{}", pod["spec"]["nodeName"]);
    }
    let set = JOBSET.get(&s.client, &s.namespace, "train").await?.context("the JobSet")?;
    ensure!(gates(&set, OF_SET) == [GATE], "{}", set["spec"]);
    remove(&s, "train").await?;
    s.conclude().await
}

/// Patches the spec of the JobSet `plain`, which is in no queue, as its user.
async fn write(s: &Scenario<'_>, spec: &Value) -> Result<Value> {
    JOBSET.patch(&s.client, &s.namespace, "plain", &json!({"spec": spec})).await
}

/// Checks that the webhook of the JobSet controller refuses the spec `spec`.
async fn is_refused(s: &Scenario<'_>, spec: &Value) -> Result<()> {
    let error = write(s, spec).await.err().with_context(|| format!("accepted: {spec}"))?;
    let error = format!("{error:#}");
    for words in ["validate.jobset.x-k8s.io", "spec.replicatedJobs", "field is immutable"] {
        ensure!(error.contains(words), "not {words:?}: {error}");
    }
    Ok(())
}

/// Changes that the JobSet controller itself allows in a suspended JobSet: scheduling gates, also in the write that resumes the JobSet, but no affinity. Berth
/// does nothing with the JobSet `plain` of this scenario, which is in no queue.
pub(crate) async fn its_controller_takes_more(stage: &Stage) -> Result<()> {
    let s = stage.scenario("gates-by-hand").await?;
    let mut set = slices(&s, "plain", false, 600_000);
    // The JobSet is in no queue, so Berth leaves it alone.
    set["metadata"] = json!({"namespace": s.namespace, "name": "plain"});
    set["spec"]["suspend"] = json!(true);
    let stored = s.apply(&set).await?;
    wait::until(START, "its Jobs are there, and have no gates", || async {
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let waits = |job: &Value| job["spec"]["suspend"] == json!(true) && gates(job, OF_JOB).is_empty();
        Ok(Seen::when(jobs.len() == 2 && jobs.iter().all(waits), || describe(&jobs, OF_JOB)))
    })
    .await?;
    let with = |field: &str, value: Value| {
        let mut jobs = stored["spec"]["replicatedJobs"].clone();
        jobs[0]["template"]["spec"]["template"]["spec"][field] = value;
        json!({"replicatedJobs": jobs})
    };
    let term = json!({"matchExpressions": [{"key": "e2e/pool", "operator": "Exists"}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    is_refused(&s, &with("affinity", json!({"nodeAffinity": required}))).await?;
    let one = with("schedulingGates", json!([{"name": GATE}]));
    let written = write(&s, &one).await?;
    ensure!(gates(&written, OF_SET) == [GATE], "{}", written["spec"]);
    // One write resumes the JobSet and adds gates to its template, as a start by Berth would do.
    let mut both = with("schedulingGates", json!([{"name": GATE}, {"name": SECOND}]));
    both["suspend"] = json!(false);
    write(&s, &both).await?;
    held_back(&s, &[GATE, SECOND]).await?;
    // The JobSet controller allows no change of the template while the JobSet runs.
    is_refused(&s, &one).await?;
    remove(&s, "plain").await?;
    s.conclude().await
}
