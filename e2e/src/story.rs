//! The story of a training (examples/training-story), told on a control plane of its own with short waits; the demo and a test both
//! use it. Its machines do not exist and its pods only seem to run: what they would save is put into an S3 server on loopback.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::binaries::repository;
use crate::kinds::{
    self, CLUSTER_QUEUE, JOB, NODE, POD, TRAINING_JOB, WORKLOAD, condition, condition_object, items, text,
};
use crate::manager;
use crate::manifest::merge;
use crate::nodes::{Pool, Tier};
use crate::s3::{ACCESS_KEY, S3, SECRET_KEY};
use crate::wait::{self, Seen};

/// Its namespace.
pub const NAMESPACE: &str = "story";
/// Its hero.
pub const HERO: &str = "language-model";
/// Longest wait for one turn of it: the job controller alone makes a pause of ten seconds before it replaces a pod.
const LIMIT: Duration = Duration::from_secs(90);
/// Pause between two checkpoints while it is to climb.
const SAVES_EVERY: Duration = Duration::from_secs(3);

/// Four hosts of 8 GPUs in each tier.
#[must_use]
pub fn pools() -> Vec<Pool> {
    vec![
        Pool::gpu("story-reserved", 4, Tier::Reserved(NAMESPACE.to_owned())),
        Pool::gpu("story-demand", 4, Tier::OnDemand),
        Pool::gpu("story-spot", 4, Tier::Spot),
    ]
}

/// What the waits of the example are shortened to, by kind of object, and how its pods live.
fn shortened(object: &Value, endpoint: &str) -> Value {
    match text(object, "/kind") {
        "CheckpointStore" => json!({"spec": {"s3": {"endpoint": endpoint}}}),
        "QueuePolicy" => json!({"spec": {
            "capacityTiers": {
                "patience": {"spot": "3s"},
                "climbBack": {"minStay": "2s", "hysteresis": "1s"},
            },
            "preemption": {"gracePeriod": "30s"},
        }}),
        "TrainingJob" => {
            let lives = json!({"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "500"});
            let mut change = json!({"spec": {"template": {"metadata": {"annotations": lives}}}});
            if !object["spec"]["checkpoint"].is_null() {
                merge(&mut change, &json!({"spec": {"checkpoint": {"interval": "8s"}}}));
            }
            change
        }
        _ => json!({}),
    }
}

struct Story<'a> {
    client: &'a Client,
    s3: S3,
    say: &'a (dyn Fn(&str) + Sync),
}

/// Tells it from the beginning to the end; `say` gets a sentence for each turn.
///
/// # Errors
/// When a turn does not come.
pub async fn tell(client: &Client, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
    let story = Story { client, s3: S3::start("checkpoints").await?, say };
    story.begin().await?;
    story.spot().await?;
    story.nodes_taken_back().await?;
    story.production_comes().await?;
    story.production_goes().await?;
    story.climbs_back().await
}

impl Story<'_> {
    async fn apply(&self, file: &str) -> Result<()> {
        let path = repository().join("examples/training-story").join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for mut object in kinds::parse(&text)? {
            let change = shortened(&object, &self.s3.endpoint);
            merge(&mut object, &change);
            kinds::apply(self.client, &object).await?;
        }
        Ok(())
    }

    async fn job(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until(LIMIT, &format!("{name} {what}"), || async {
            Ok(match TRAINING_JOB.get(self.client, NAMESPACE, name).await? {
                Some(job) if check(&job) => Seen::Yes(job),
                Some(job) => Seen::NotYet(job["status"].to_string()),
                None => Seen::NotYet("absent".to_owned()),
            })
        })
        .await
    }

    /// Waits until the job runs in a tier, going on from that step.
    async fn runs(&self, name: &str, tier: &str, from: Option<u32>) -> Result<()> {
        self.job(name, &format!("runs on {tier} capacity"), |job| is_running(job, tier)).await?;
        if name == HERO {
            let begun = self.resume_step().await?;
            ensure!(begun == from, "{name} began at step {begun:?}, not at {from:?}");
        }
        Ok(())
    }

    /// The step that its pods are told to go on from.
    async fn resume_step(&self) -> Result<Option<u32>> {
        let job = JOB.get(self.client, NAMESPACE, &format!("{HERO}-worker")).await?.context("its Job")?;
        let all = items(&job, "/spec/template/spec/containers/0/env");
        let step = all.iter().find(|one| one["name"] == "BERTH_RESUME_STEP").and_then(|one| one["value"].as_str());
        Ok(step.and_then(|step| step.parse().ok()))
    }

    /// What its pods would leave in the store: the marker comes last.
    fn save(&self, step: u32) -> Result<()> {
        let folder = format!("runs/{NAMESPACE}/{HERO}/step-{step}");
        for rank in 0..4 {
            self.s3.put(&format!("{folder}/rank-{rank}.pt"), "weights")?;
        }
        self.s3.put(&format!("{folder}/checkpoint.json"), &json!({"step": step}).to_string())
    }

    async fn is_seen(&self, step: u32) -> Result<()> {
        let seen = |job: &Value| job["status"]["checkpoint"]["latest"]["step"] == json!(step);
        self.job(HERO, &format!("has saved step {step}"), seen).await.map(drop)
    }

    async fn begin(&self) -> Result<()> {
        kinds::apply(
            self.client,
            &json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "berth-checkpoint-credentials", "namespace": manager::NAMESPACE},
                "stringData": {"accessKeyId": ACCESS_KEY, "secretAccessKey": SECRET_KEY}}),
        )
        .await?;
        self.apply("01-flavors.yaml").await?;
        self.apply("02-queues.yaml").await?;
        for queue in ["story-research", "story-production"] {
            wait::until(LIMIT, &format!("ClusterQueue {queue} is active"), || async {
                let queue = CLUSTER_QUEUE.get(self.client, "", queue).await?.unwrap_or_default();
                Ok(Seen::when(condition(&queue, "Active") == "True", || queue["status"].to_string()))
            })
            .await?;
        }
        self.apply("03-benchmark.yaml").await?;
        self.runs("benchmark", "reserved", None).await?;
        (self.say)("benchmark (4 x 8 GPUs) holds the whole reservation");
        Ok(())
    }

    async fn spot(&self) -> Result<()> {
        self.apply("04-training.yaml").await?;
        self.runs(HERO, "spot", None).await?;
        self.save(100)?;
        self.is_seen(100).await?;
        (self.say)("language-model (4 x 8 GPUs) finds the reservation full, starts on spot, and saves step 100");
        Ok(())
    }

    async fn nodes_taken_back(&self) -> Result<()> {
        let gone = ["story-spot-0", "story-spot-1"];
        // A machine that is told of its end lets its pods fail before it goes.
        let failed = json!({"status": {"phase": "Failed", "reason": "Terminated",
            "message": "Pod was terminated in response to imminent node shutdown."}});
        for pod in POD.list(self.client, NAMESPACE).await? {
            if gone.contains(&text(&pod, "/spec/nodeName")) {
                let pods = POD.api(self.client, NAMESPACE);
                let (name, params) = (text(&pod, "/metadata/name"), PatchParams::default());
                pods.patch_status(name, &params, &Patch::Merge(&failed)).await?;
            }
        }
        for node in gone {
            NODE.delete(self.client, "", node).await?;
        }
        (self.say)("two spot machines are taken away, and none take their place");
        self.runs(HERO, "on-demand", Some(100)).await?;
        let workload = self.workload().await?;
        let reasons: Vec<&str> =
            items(&workload, "/status/schedulingStats/evictions").iter().map(|e| text(e, "/reason")).collect();
        ensure!(reasons == ["CapacityReclaimed"], "{reasons:?}");
        (self.say)(
            "language-model is stopped whole and goes on from step 100, on demand: machines that production lends",
        );
        Ok(())
    }

    async fn workload(&self) -> Result<Value> {
        let of_hero = |w: &&Value| items(w, "/metadata/ownerReferences").iter().any(|o| text(o, "/name") == HERO);
        let all = WORKLOAD.list(self.client, NAMESPACE).await?;
        all.iter().find(of_hero).cloned().context("its Workload")
    }

    async fn production_comes(&self) -> Result<()> {
        self.apply("05-production.yaml").await?;
        let asked = self.job(HERO, "is asked to save", |job| condition(job, "CheckpointRequested") == "True").await?;
        let why = condition_object(&asked, "CheckpointRequested").cloned().unwrap_or_default();
        ensure!(text(&why, "/reason") == "Preempted", "{why}");
        (self.say)("ranking, a production job, wants them back: language-model is asked to save first");
        self.save(200)?;
        self.runs("ranking", "on-demand", None).await?;
        let saved = |job: &Value| {
            condition_object(job, "CheckpointRequested").is_some_and(|c| text(c, "/reason") == "CheckpointSaved")
        };
        self.job(HERO, "is seen to have saved", saved).await?;
        self.job(HERO, "waits", |job| text(job, "/status/phase") == "Queued").await?;
        (self.say)("language-model saves step 200, is stopped at once, and waits; ranking runs");
        Ok(())
    }

    async fn production_goes(&self) -> Result<()> {
        TRAINING_JOB.delete(self.client, NAMESPACE, "ranking").await?;
        self.runs(HERO, "on-demand", Some(200)).await?;
        (self.say)("ranking is done: language-model goes on from step 200, on demand");
        Ok(())
    }

    async fn climbs_back(&self) -> Result<()> {
        TRAINING_JOB.delete(self.client, NAMESPACE, "benchmark").await?;
        (self.say)("benchmark is done: the reservation is free");
        let (mut step, begun, mut last) = (300, Instant::now(), None::<Instant>);
        loop {
            let job = TRAINING_JOB.get(self.client, NAMESPACE, HERO).await?.context("it is there")?;
            if is_running(&job, "reserved") {
                break;
            }
            ensure!(begun.elapsed() < LIMIT, "{HERO} did not climb: {}", job["status"]);
            if last.is_none_or(|at| at.elapsed() > SAVES_EVERY) && is_running(&job, "on-demand") {
                self.save(step)?;
                step += 1;
                last = Some(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let from = self.resume_step().await?.unwrap_or_default();
        ensure!((300..step).contains(&from), "it began at step {from}");
        let workload = self.workload().await?;
        let reasons: Vec<&str> =
            items(&workload, "/status/schedulingStats/evictions").iter().map(|e| text(e, "/reason")).collect();
        ensure!(reasons.contains(&"Preempted") && reasons.contains(&"ClimbedBack"), "{reasons:?}");
        (self.say)(&format!("language-model saves, goes back up to the reservation, and goes on from step {from}"));
        Ok(())
    }
}

fn is_running(job: &Value, tier: &str) -> bool {
    text(job, "/status/phase") == "Running" && text(job, "/status/capacityTier") == tier
}
