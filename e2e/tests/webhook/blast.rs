//! Tests of a control plane whose Berth is down. An object that names no queue, in a namespace that Berth does not manage, is created as if Berth were not
//! installed; a Job, JobSet, pod, Deployment or StatefulSet that names a queue is refused with Berth's name, or stored unchanged if `failurePolicy` is Ignore.
//! After Berth is back, Jobs and JobSets that were stored unchanged are suspended; pods stay if there is quota for them; and the pods of a Deployment or
//! StatefulSet wait if they are created after the next write of that Deployment or StatefulSet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{self, DEPLOYMENT, JOB, Kind, POD, STATEFUL_SET, WORKLOAD, condition, items, text};
use berth_e2e::manager;
use berth_e2e::manifest;
use berth_e2e::observer::Scope;
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::webhook::jobs;

/// Pods, and the kinds that create pods, are managed only if the configuration names them.
pub(crate) const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  \
                                 frameworks: [batch/job, jobset.x-k8s.io/jobset, pod, deployment, statefulset]\n";

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A JobSet that requests more than the quota, so that it stays suspended once it is suspended.
fn job_set(namespace: &str, name: &str, annotations: &Value) -> Value {
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "5"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": namespace, "name": format!("{name}-set"), "annotations": annotations},
        "spec": {"replicatedJobs": [{"name": "job", "template": {"spec": {"template": template}}}]}})
}

/// A pod that runs until it is deleted.
fn pod(name: &str, labels: &Value) -> Value {
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "1"}}});
    json!({"apiVersion": POD.api_version, "kind": POD.kind,
        "metadata": {"namespace": "blast", "name": format!("{name}-pod"), "labels": labels,
            "annotations": {"e2e.berth.dev/outcome": "never"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}})
}

/// Last parts of the names of the objects that [`parent`] makes, by kind.
const PARENTS: [(Kind, &str); 2] = [(DEPLOYMENT, "deployment"), (STATEFUL_SET, "statefulset")];

/// A Deployment or a StatefulSet with one pod that requests more than the quota; the pod template names no queue.
fn parent((kind, suffix): (Kind, &str), name: &str, labels: &Value) -> Value {
    let name = format!("{name}-{suffix}");
    let container = json!({"name": "main", "image": "e2e/none", "resources": {"requests": {"cpu": "5"}}});
    json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"namespace": "blast", "name": name, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}}})
}

/// Waits until a pod of a Deployment or a StatefulSet satisfies `check`.
pub(crate) async fn a_pod_of(s: &Scenario<'_>, parent: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
    wait::until(STEP, &format!("a pod of {parent} is {what}"), || async {
        let mut pods = POD.list(&s.client, &s.namespace).await?;
        pods.retain(|pod| text(pod, "/metadata/labels/app") == parent);
        Ok(Seen::when(pods.iter().any(&check), || format!("{} pods: {pods:?}", pods.len())))
    })
    .await
}

/// A Job, a JobSet, a pod, a Deployment and a StatefulSet that name a queue and are not suspended, each with the name of the webhook that the API
/// server calls for it at first.
fn opted_in(s: &Scenario<'_>, name: &str) -> [(Value, &'static str); 5] {
    let queue = json!({QUEUE: "queue"});
    let [deployment, set] = PARENTS.map(|kind| parent(kind, name, &queue));
    [
        (s.job(name).spec(&json!({"suspend": false})).endless().manifest(), "mjob.berth.dev"),
        (job_set("blast", name, &queue), "mjobset.berth.dev"),
        (pod(name, &queue), "mpod.berth.dev"),
        (deployment, "mdeployment.berth.dev"),
        (set, "mstatefulset.berth.dev"),
    ]
}

/// Whether an object is suspended, has a scheduling gate, or makes its pods wait.
fn waits(object: &Value) -> bool {
    let of_pods = object.pointer("/spec/template/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent");
    object["spec"]["suspend"] == json!(true) || gated(object) || of_pods.is_some()
}

pub(crate) fn gated(pod: &Value) -> bool {
    items(pod, "/spec/schedulingGates").iter().any(|gate| text(gate, "/name") == "kueue.x-k8s.io/admission")
}

pub(crate) fn runs(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && pod.pointer("/metadata/deletionTimestamp").is_none()
}

/// Checks that an object that names no queue, in a namespace that Berth does not manage, is created as fast as without Berth, runs, and can be changed.
async fn nothing_is_noticed(s: &Scenario<'_>) -> Result<()> {
    let job = manifest::Job::new("blast", "plain", "").spec(&json!({"suspend": false})).manifest();
    let [deployment, set] = PARENTS.map(|kind| parent(kind, "plain", &json!({})));
    for object in [job, job_set("blast", "plain", &json!({})), pod("plain", &json!({})), deployment, set] {
        let (kind, name) = (Kind::of(&object)?, text(&object, "/metadata/name"));
        let created = s.apply(&object).await.context("something that nothing opts in, with Berth down")?;
        let mut another = object.clone();
        another["metadata"]["name"] = json!(format!("{name}-again"));
        // The machine may be slow once, but a creation that waits for Berth would be slow each time.
        wait::until(STEP, &format!("another {name} takes less than a second"), || async {
            let (begun, params) = (Instant::now(), PostParams { dry_run: true, ..PostParams::default() });
            kind.api(&s.client, "blast").create(&params, &serde_json::from_value(another.clone())?).await?;
            let took = begun.elapsed();
            Ok(Seen::when(took < Duration::from_secs(1), || format!("{took:?}")))
        })
        .await?;
        ensure!(!waits(&created), "{name} was stored as {}", created["spec"]);
        kind.patch(&s.client, "blast", name, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    }
    s.job_is("plain", "Complete", |j| condition(j, "Complete") == "True").await?;
    s.object_is(POD, "plain-pod", "running", runs).await?;
    for (_, suffix) in PARENTS {
        a_pod_of(s, &format!("plain-{suffix}"), "running", runs).await?;
    }
    Ok(())
}

/// Namespaces for which the API server never calls Berth and whose objects Berth never changes, even if they name a queue, because a cluster's own
/// parts must start without Berth.
const SYSTEM: [&str; 2] = ["kube-system", manager::NAMESPACE];

/// Checks that a Job that names a queue is created in the namespaces of the cluster's and of Berth's own pods, and is stored as it was sent.
async fn let_in_beside_the_systems(s: &Scenario<'_>, name: &str) -> Result<()> {
    for namespace in SYSTEM {
        let job = manifest::Job::new(namespace, name, "queue").cpu("10m").spec(&json!({"suspend": false})).endless();
        let created = s.apply(&job.manifest()).await.with_context(|| format!("{name} in {namespace}"))?;
        ensure!(!waits(&created), "{name} was stored in {namespace} as {}", created["spec"]["suspend"]);
    }
    Ok(())
}

/// Checks that the Jobs `names` in the namespaces `SYSTEM` were neither suspended nor changed and have no Workloads, after Berth is back and has seen
/// other namespaces.
async fn left_alone_beside_the_systems(s: &Scenario<'_>, names: [&str; 2]) -> Result<()> {
    for namespace in SYSTEM {
        for name in names {
            let job = JOB.get(&s.client, namespace, name).await?.with_context(|| format!("{name} in {namespace}"))?;
            ensure!(!waits(&job), "{name} was suspended in {namespace}");
            // The generation of a Job counts the changes of its spec.
            ensure!(
                job["metadata"]["generation"] == json!(1),
                "{name} was changed in {namespace}: {}",
                job["metadata"]
            );
            JOB.delete(&s.client, namespace, name).await?;
        }
        let workloads = WORKLOAD.list(&s.client, namespace).await?.len();
        ensure!(workloads == 0, "{workloads} Workloads in {namespace}");
    }
    Ok(())
}

/// Checks that objects that Berth must review are refused while Berth is down, apart from deletions.
async fn what_is_opted_in_is_refused(s: &Scenario<'_>) -> Result<()> {
    // While Berth is down, a ClusterQueue is refused, because Berth's webhook checks rules that its schema does not have; a LocalQueue has no such webhook and
    // is accepted.
    s.apply(&manifest::local_queue("blast", "another", "blast-cq")).await?;
    let queue = manifest::cluster_queue("blast-other", &[], &json!({}));
    let error = format!("{:#}", s.apply(&queue).await.err().context("a ClusterQueue, with Berth down")?);
    ensure!(error.contains("vclusterqueue.berth.dev"), "{error}");
    for (object, webhook) in opted_in(s, "eager") {
        let name = text(&object, "/metadata/name");
        let refused = s.apply(&object).await.err();
        let error = format!("{:#}", refused.with_context(|| format!("{name} was let in, with Berth down"))?);
        ensure!(error.contains(webhook) && error.contains("failed calling webhook"), "{error}");
    }
    JOB.delete(&s.client, "blast", "running").await.context("deleting a managed job, with Berth down")?;
    wait::until(STEP, "the job is gone", || async {
        let there = JOB.get(&s.client, "blast", "running").await?.is_some();
        Ok(Seen::when(!there, || "there".to_owned()))
    })
    .await
}

/// Checks that the controller of JobSets can create Jobs without a queue in a namespace in which Berth manages all jobs, while Berth is down.
async fn jobs_of_job_sets_are_let_in(s: &Scenario<'_>, set: &Value) -> Result<()> {
    let mut part = manifest::Job::new(text(set, "/metadata/namespace"), "part", "").manifest();
    let refused = s.apply(&part).await.err();
    let error = format!("{:#}", refused.context("a Job of a namespace that opts in was let in, with Berth down")?);
    ensure!(error.contains("mjob-opted-in.berth.dev") && error.contains("failed calling webhook"), "{error}");
    part["metadata"]["ownerReferences"] = json!([{"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "name": set["metadata"]["name"], "uid": set["metadata"]["uid"], "controller": true}]);
    // The API server takes a Job for a part of a JobSet by its owner reference, by its name, which begins with the JobSet's name, and by the label with the
    // JobSet's uid; only Berth could also read the JobSet itself.
    part["metadata"]["name"] = json!(format!("{}-job-0", text(set, "/metadata/name")));
    part["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-uid": set["metadata"]["uid"]});
    s.apply(&part).await.context("a Job of a JobSet, with Berth down")?;
    pods_of_daemon_sets_are_let_in(s, text(set, "/metadata/namespace")).await?;
    // The garbage collector deletes the JobSet's Job after the test has deleted the JobSet.
    JOBSET.delete(&s.client, text(set, "/metadata/namespace"), text(set, "/metadata/name")).await
}

/// Checks that a pod without an owner is refused in the namespace while Berth is down, and that a DaemonSet's pod, which was created for its node, is
/// not.
async fn pods_of_daemon_sets_are_let_in(s: &Scenario<'_>, namespace: &str) -> Result<()> {
    let mut part = pod("part", &json!({}));
    part["metadata"]["namespace"] = json!(namespace);
    let refused = s.apply(&part).await.err();
    let error = format!("{:#}", refused.context("a pod of a namespace that opts in was let in, with Berth down")?);
    ensure!(error.contains("mpod-opted-in.berth.dev") && error.contains("failed calling webhook"), "{error}");
    part["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "uid": "gone", "controller": true}]);
    // The garbage collector deletes the pod, because its DaemonSet does not exist.
    s.apply(&part).await.context("a pod of a DaemonSet, with Berth down").map(drop)
}

/// Checks that an admitted Job of a queue ends while Berth is down: the API server does not call the webhook of its pods for writes of the job
/// controller, or for fields that do not matter to Berth.
async fn queued_job_ends(stage: &Stage, namespace: &str) -> Result<()> {
    let s = Scenario { stage, client: stage.client.clone(), namespace: namespace.to_owned() };
    let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "succeed"}}});
    for pod in s.pods_of("ends").await? {
        let name = text(&pod, "/metadata/name");
        ensure!(!text(&pod, "/metadata/labels/kueue.x-k8s.io~1podset").is_empty(), "{}", pod["metadata"]);
        let changed = POD.patch(&s.client, namespace, name, &ends).await;
        changed.context("an annotation of a pod of a queued job, with Berth down")?;
    }
    s.job_is("ends", "Complete", |job| condition(job, "Complete") == "True").await.map(drop)
}

/// Checks that objects that name a queue are created unchanged and run while Berth is down, because the webhooks' `failurePolicy` is Ignore.
async fn all_is_let_in(s: &Scenario<'_>) -> Result<()> {
    let [(job, _), others @ ..] = opted_in(s, "eager");
    // The API server applies a changed `failurePolicy` a moment after the write of the webhook configuration.
    wait::until(STEP, "an opted-in job is let in", || async {
        let created = kinds::apply(&s.client, &job).await?;
        ensure!(!waits(&created), "{}", created["spec"]["suspend"]);
        Ok(Seen::Yes(()))
    })
    .await?;
    for (object, _) in &others {
        let created = s.apply(object).await?;
        ensure!(!waits(&created), "{} was stored as {}", text(object, "/metadata/name"), created["spec"]);
    }
    s.create(s.job("second").spec(&json!({"suspend": false})).endless()).await?;
    s.nodes_of("second", 1).await?;
    // The pod has the label `kueue.x-k8s.io/managed`, as a pod has whose template Berth has written.
    let marked = s.apply(&pod("marked", &json!({QUEUE: "queue", "kueue.x-k8s.io/managed": "true"}))).await?;
    ensure!(!waits(&marked), "the marked pod was stored as {}", marked["spec"]);
    for name in ["eager-pod", "marked-pod"] {
        s.object_is(POD, name, "running", runs).await?;
    }
    for (_, suffix) in PARENTS {
        a_pod_of(s, &format!("eager-{suffix}"), "running", runs).await?;
    }
    Ok(())
}

/// A running pod cannot be made to wait any more: of the two pods that were created while Berth was down, with Berth's label and without, no more
/// stay than there is quota for.
async fn pods_keep_to_the_quota(s: &Scenario<'_>) -> Result<()> {
    let names = ["eager-pod", "marked-pod"];
    wait::until(STEP, "a pod without quota is gone", || async {
        let mut left = Vec::new();
        for name in names {
            if POD.get(&s.client, "blast", name).await?.is_some() {
                let admitted = s.workload_of(name).await?.is_some_and(|w| condition(&w, "Admitted") == "True");
                left.push((name, admitted));
            }
        }
        let right = left.len() < names.len() && left.iter().all(|(_, admitted)| *admitted);
        Ok(Seen::when(right, || format!("{left:?}")))
    })
    .await?;
    // The test deletes the pods that stayed, so that the jobs can get their quota.
    for name in names {
        if POD.get(&s.client, "blast", name).await?.is_some() {
            POD.delete(&s.client, "blast", name).await?;
        }
    }
    Ok(())
}

/// Only as many of the jobs that were created while Berth was down go on as there is quota for.
async fn jobs_are_suspended(s: &Scenario<'_>) -> Result<()> {
    // Berth creates the Workloads of the jobs `eager` and `second` in the same second, so either of the two jobs may be admitted.
    let both = ["eager", "second"];
    let waiting = wait::until(STEP, "one of the two is admitted", || async {
        for (job, other) in [(both[0], both[1]), (both[1], both[0])] {
            if s.workload_of(job).await?.is_some_and(|w| condition(&w, "Admitted") == "True") {
                return Ok(Seen::Yes(other));
            }
        }
        Ok(Seen::NotYet("neither".to_owned()))
    })
    .await?;
    s.pending(waiting).await?;
    wait::until(STEP, "the job without quota has no pods", || async {
        let pods = s.pods_of(waiting).await?.len();
        Ok(Seen::when(pods == 0, || format!("{pods} pods")))
    })
    .await?;
    s.object_is(JOBSET, "eager-set", "suspended", waits).await?;
    Ok(())
}

/// Checks that pods run on which a Deployment or a StatefulSet created while Berth was down, and that its new pods wait after its next write.
async fn parents_wait_from_their_next_write_on(s: &Scenario<'_>) -> Result<()> {
    for (kind, suffix) in PARENTS {
        let name = format!("eager-{suffix}");
        let there = kind.get(&s.client, &s.namespace, &name).await?.with_context(|| format!("{name} is gone"))?;
        ensure!(!waits(&there), "nobody has written {name}: {}", there["spec"]["template"]);
        a_pod_of(s, &name, "running on", runs).await?;
        let change = json!({"metadata": {"labels": {"a": "b"}}});
        let written = kind.patch(&s.client, &s.namespace, &name, &change).await?;
        ensure!(waits(&written), "{name} was stored as {}", written["spec"]["template"]);
        a_pod_of(s, &name, "behind the gate", gated).await?;
    }
    Ok(())
}

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let client = stage.client.clone();
    {
        let s = stage.scenario("blast").await?;
        s.simple_queue("1", &json!({})).await?;
        s.create(s.job("running").endless()).await?;
        s.admitted("running").await?;
        s.nodes_of("running", 1).await?;
    }
    let set = {
        let s = stage.scenario("opted").await?;
        s.simple_queue("1", &json!({})).await?;
        s.apply(&manifest::local_queue(&s.namespace, "default", &s.name("cq"))).await?;
        jobs::opted_in(&s, true).await?;
        s.create(s.job("ends").endless()).await?;
        s.admitted("ends").await?;
        s.nodes_of("ends", 1).await?;
        s.apply(&job_set(&s.namespace, "whole", &json!({QUEUE: "queue"}))).await?
    };
    let dead = manager::leader(&client).await?;
    stage.manager.kill();
    // Jobs that are let in run until Berth is back and leads, so the observer must not judge the time in which Berth is down.
    stage.observer.nobody_leads();
    {
        let s = Scenario { stage, client: client.clone(), namespace: "blast".to_owned() };
        nothing_is_noticed(&s).await?;
        let_in_beside_the_systems(&s, "while-down").await?;
        queued_job_ends(stage, "opted").await?;
        what_is_opted_in_is_refused(&s).await?;
        jobs_of_job_sets_are_let_in(&s, &set).await?;
        webhooks::install(&client, port, "Ignore").await?;
        all_is_let_in(&s).await?;
    }
    stage.manager.restart().await?;
    manager::leads_after(&client, &dead, STEP).await?;
    stage.observer.somebody_leads();
    let s = Scenario { stage, client: client.clone(), namespace: "blast".to_owned() };
    pods_keep_to_the_quota(&s).await?;
    jobs_are_suspended(&s).await?;
    parents_wait_from_their_next_write_on(&s).await?;
    for (object, _) in opted_in(&s, "third") {
        let created = s.apply(&object).await?;
        let name = text(&object, "/metadata/name");
        ensure!(waits(&created), "Berth is back, and {name} was stored as {}", created["spec"]);
    }
    let_in_beside_the_systems(&s, "afterwards").await?;
    let scope = Scope::of("blast");
    s.stage.observer.conclude_in(&scope, Duration::from_secs(2)).await?;
    s.stage.manager.recomputes_in(&scope).await?;
    left_alone_beside_the_systems(&s, ["while-down", "afterwards"]).await
}
