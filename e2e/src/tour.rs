//! Parts of the demo beside jobs and trainings: answers of the webhooks, a pod, a JobSet, and a TrainingJob that scales up.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, create_namespace, kubectl};
use crate::jobset::{self, JOBSET};
use crate::kinds::{self, JOB, POD, TRAINING_JOB, WORKLOAD, condition, items, text};
use crate::manifest::{self, Job, group, merge, quota};
use crate::process::Guarded;
use crate::wait::{self, STEP, Seen};

/// Namespace of the tour's objects.
pub const NAMESPACE: &str = "tour";
/// Berth's configuration file (in Kueue's format) for the tour, by which Berth manages Jobs, JobSets and pods.
pub const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: \
                          [batch/job, jobset.x-k8s.io/jobset, pod]\n";

/// Function that receives the demo's sentences for its audience.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Applies the CRD of JobSets before Berth starts, so that Berth watches JobSets when the tour creates one.
///
/// # Errors
/// Fails if the CRD of JobSets cannot be downloaded or is refused.
pub async fn define_job_sets(client: &Client) -> Result<()> {
    kinds::apply_crds(client, &jobset::definitions().await?).await?;
    Ok(())
}

/// Runs all steps of the tour; the controller of JobSets runs for as long as the caller keeps the returned value.
///
/// # Errors
/// Fails if a step of the tour does not come in time.
pub async fn run(plane: &ControlPlane, say: Say<'_>) -> Result<Guarded> {
    let tour = Tour { client: plane.client(), kubeconfig: plane.kubeconfig(), say };
    tour.begin().await?;
    tour.webhooks_answer().await.context("webhooks")?;
    tour.pod_waits_and_runs().await.context("a pod")?;
    (tour.say)("the controller of JobSets comes from its Go module: it is built now, where it was not before");
    let controller = jobset::start(plane).await?;
    tour.all_jobs_of_job_set_run().await.context("a JobSet")?;
    tour.training_grows().await.context("an elastic TrainingJob")?;
    Ok(controller)
}

struct Tour<'a> {
    client: Client,
    kubeconfig: &'a Path,
    say: Say<'a>,
}

impl Tour<'_> {
    /// Creates the tour's namespace and a queue of four cpus.
    async fn begin(&self) -> Result<()> {
        create_namespace(&self.client, NAMESPACE, &[]).await?;
        let groups = [group(&[("tour", &[quota("cpu", "4")])])];
        for object in [
            manifest::flavor("tour", &[]),
            manifest::cluster_queue("tour", &groups, &json!({})),
            manifest::local_queue(NAMESPACE, "queue", "tour"),
        ] {
            kinds::apply(&self.client, &object).await?;
        }
        Ok(())
    }

    /// Runs a kubectl command that a webhook must refuse; returns kubectl's message.
    async fn refused(&self, args: &[&str]) -> Result<String> {
        let output = kubectl(self.kubeconfig, &[&["--namespace", NAMESPACE], args].concat()).await;
        let Err(error) = output else { anyhow::bail!("kubectl {} was not refused", args.join(" ")) };
        let text = error.to_string();
        let line = text.lines().rev().find(|line| line.contains("denied the request"));
        Ok(line.with_context(|| format!("no review refused it: {text}"))?.trim().to_owned())
    }

    async fn is(&self, kind: kinds::Kind, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until(STEP, &format!("{} {name} {what}", kind.kind), || async {
            Ok(match kind.get(&self.client, NAMESPACE, name).await? {
                Some(object) if check(&object) => Seen::Yes(object),
                Some(object) => Seen::NotYet(object["status"].to_string()),
                None => Seen::NotYet("absent".to_owned()),
            })
        })
        .await
    }

    async fn webhooks_answer(&self) -> Result<()> {
        for (name, cpu) in [("runs", "3"), ("waits", "99")] {
            let job = Job::new(NAMESPACE, name, "queue").cpu(cpu).endless().manifest();
            kinds::apply(&self.client, &job).await?;
        }
        self.is(JOB, "runs", "runs", |job| job["status"]["ready"] == json!(1)).await?;
        let queue = ["label", "--overwrite", "job", "runs", "kueue.x-k8s.io/queue-name=other"];
        let message = self.refused(&queue).await?;
        (self.say)(&format!("$ kubectl {}\n           {message}", queue.join(" ")));
        JOB.patch(&self.client, NAMESPACE, "waits", &json!({"spec": {"suspend": false}})).await?;
        let job = self.is(JOB, "waits", "is there", |_| true).await?;
        ensure!(job["spec"]["suspend"] == json!(true), "a job without quota was started by its user: {}", job["spec"]);
        (self.say)("a job that waits for quota cannot be started by hand: suspend: false is stored as true");
        JOB.delete(&self.client, NAMESPACE, "waits").await
    }

    async fn pod_waits_and_runs(&self) -> Result<()> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "by-itself", "namespace": NAMESPACE,
                "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "any", "resources": {"requests": {"cpu": "2"}}}]}});
        kinds::apply(&self.client, &pod).await?;
        let gated = |pod: &Value| !items(pod, "/spec/schedulingGates").is_empty();
        self.is(POD, "by-itself", "waits behind its gate", gated).await?;
        (self.say)(
            "a pod with the label of a queue waits behind a scheduling gate: 3 of 4 cpus are in use, and it asks for 2",
        );
        JOB.delete(&self.client, NAMESPACE, "runs").await?;
        self.is(POD, "by-itself", "runs", |pod| text(pod, "/status/phase") == "Running").await?;
        (self.say)("the job is deleted: the gate is gone, the default scheduler binds the pod, and it runs");
        POD.delete(&self.client, NAMESPACE, "by-itself").await
    }

    async fn all_jobs_of_job_set_run(&self) -> Result<()> {
        let pods = json!({"metadata": {"annotations": {"e2e.berth.dev/run-ms": "2000"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "any", "resources": {"requests": {"cpu": "1"}}}]}});
        let jobs = |name: &str, replicas: u32| {
            json!({"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 1, "completions": 1,
                "backoffLimit": 0, "template": pods}}})
        };
        let set = json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
            "metadata": {"name": "set", "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": {"replicatedJobs": [jobs("leader", 1), jobs("worker", 3)]}});
        kinds::apply(&self.client, &set).await?;
        let sets = wait::until(STEP, "the JobSet is admitted", || async {
            let workloads = WORKLOAD.list(&self.client, NAMESPACE).await?;
            let of_set =
                |one: &&Value| items(one, "/metadata/ownerReferences").iter().any(|o| text(o, "/kind") == JOBSET.kind);
            let found = workloads.iter().find(of_set).cloned().unwrap_or_default();
            let admitted = condition(&found, "Admitted") == "True";
            let sets = items(&found, "/status/admission/podSetAssignments").to_vec();
            Ok(if admitted { Seen::Yes(sets) } else { Seen::NotYet(found["status"].to_string()) })
        })
        .await?;
        let sets: Vec<String> = sets.iter().map(|set| format!("{} {}", set["count"], text(set, "/name"))).collect();
        (self.say)(&format!("a JobSet is admitted as a whole by one Workload: {}", sets.join(", ")));
        self.is(JOBSET, "set", "completes", |set| condition(set, "Completed") == "True").await?;
        (self.say)("its four Jobs have run, and it is Completed");
        Ok(())
    }

    /// Shows `examples/elastic-training`, with short pauses, beside a job that holds half of the queue's quota.
    async fn training_grows(&self) -> Result<()> {
        const SPEECH: &str = "speech";
        let read = |file: &str| kinds::example(&format!("elastic-training/{file}"));
        for object in read("queues.yaml")? {
            kinds::apply(&self.client, &object).await?;
        }
        let neighbour =
            Job::new(SPEECH, "neighbour", "training").requests(&[("cpu", "2"), ("memory", "1Gi")]).endless();
        kinds::apply(&self.client, &neighbour.manifest()).await?;
        let ready = |job: &Value, count: i64| job["status"]["ready"] == json!(count);
        let runs = |name: &'static str, count: i64| async move {
            wait::until(STEP, &format!("{count} pods of {name} are ready"), || async {
                let job = JOB.get(&self.client, SPEECH, name).await?.unwrap_or_default();
                Ok(Seen::when(ready(&job, count), || job["status"].to_string()))
            })
            .await
        };
        runs("neighbour", 1).await?;
        for mut object in read("training.yaml")? {
            let lives = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}}});
            let short = json!({"scaleUpCooldown": "1s", "scaleDownCooldown": "1s"});
            merge(&mut object, &json!({"spec": {"template": lives, "elasticConfig": {"scalePolicy": short}}}));
            kinds::apply(&self.client, &object).await?;
        }
        runs("acoustic-model-worker", 2).await?;
        (self.say)(
            "a TrainingJob for two to four workers starts with two: a neighbour holds the other half of the queue",
        );
        JOB.delete(&self.client, SPEECH, "neighbour").await?;
        runs("acoustic-model-worker", 4).await?;
        (self.say)("the neighbour is gone: it grows to four workers while it runs, step by step");
        TRAINING_JOB.delete(&self.client, SPEECH, "acoustic-model").await
    }
}
