//! The story of a training (examples/training-story), run on a control plane of its own with short waits, for the demo and a test. The nodes of the
//! control plane are simulated and its pods execute nothing: a [`Trainer`] saves checkpoints in place of the pods, to an S3 server on loopback.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::kinds::{
    self, CLUSTER_QUEUE, JOB, NODE, POD, TRAINING_JOB, WORKLOAD, condition, condition_object, items, text,
};
use crate::manager;
use crate::manifest::merge;
use crate::nodes::{Pool, Tier};
use crate::s3::{ACCESS_KEY, S3, SECRET_KEY};
use crate::trainer::{NEVER_MS, SAVES_EVERY, SAVING_TAKES, STEPS, Trainer};
use crate::wait::{self, Seen};

/// Namespace of the story.
pub const NAMESPACE: &str = "story";
/// Name of the main TrainingJob of the story.
pub const HERO: &str = "language-model";
/// Longest wait for one step of the story: the job controller alone pauses for ten seconds before it replaces a pod.
const LIMIT: Duration = Duration::from_secs(180);
/// Time in milliseconds for which the training runs from one checkpoint to the next.
const SAVES_EVERY_MS: u32 = 1_000;
/// Time in milliseconds that each checkpoint takes to be written.
const SAVING_TAKES_MS: u32 = 600;

/// Nodes of the story: four hosts of 8 GPUs in each tier.
#[must_use]
pub fn pools() -> Vec<Pool> {
    vec![
        Pool::gpu("story-reserved", 4, Tier::Reserved(NAMESPACE.to_owned())),
        Pool::gpu("story-demand", 4, Tier::OnDemand),
        Pool::gpu("story-spot", 4, Tier::Spot),
    ]
}

/// The patch of an object of examples/training-story for a run of the story: a QueuePolicy and a TrainingJob get shorter times, and a CheckpointStore gets the
/// address of the S3 server.
fn shortened(object: &Value, endpoint: &str) -> Value {
    match text(object, "/kind") {
        "CheckpointStore" => json!({"spec": {"s3": {"endpoint": endpoint}}}),
        "QueuePolicy" => json!({"spec": {
            "capacityTiers": {
                "patience": {"spot": "8s"},
                "climbBack": {"minStay": "2s", "hysteresis": "1s"},
            },
            "preemption": {"gracePeriod": "30s"},
        }}),
        "TrainingJob" => {
            let lives = json!({"e2e.berth.dev/outcome": "never", "e2e.berth.dev/termination-ms": "500"});
            let mut change = json!({"spec": {"template": {"metadata": {"annotations": lives}}}});
            if !object["spec"]["checkpoint"].is_null() {
                // The training's pods take three seconds to end, so that Berth sees their last checkpoint before the training starts again.
                let lives = json!({(SAVES_EVERY): SAVES_EVERY_MS.to_string(),
                    (SAVING_TAKES): SAVING_TAKES_MS.to_string(), "e2e.berth.dev/termination-ms": "3000"});
                let saves = json!({"checkpoint": {"interval": "8s"}, "template": {"metadata": {"annotations": lives}}});
                merge(&mut change, &json!({"spec": saves}));
            }
            change
        }
        _ => json!({}),
    }
}

struct Story<'a> {
    client: &'a Client,
    trainer: Trainer,
    s3: S3,
    say: &'a (dyn Fn(&str) + Sync),
}

/// The trainer, which saves in place of the pods, and the bucket to which it saves: the training of the story needs both as long as it is watched.
pub struct Props {
    _trainer: Trainer,
    _s3: S3,
}

/// Runs the story from the beginning to the end; the function `say` gets a sentence for each step. The training of the story goes on for as long as
/// the caller keeps the returned value.
///
/// # Errors
/// Fails if a step of the story does not come in time.
pub async fn run(client: &Client, say: &(dyn Fn(&str) + Sync)) -> Result<Props> {
    let s3 = S3::start("checkpoints").await?;
    let story = Story { client, trainer: Trainer::start(client, NAMESPACE, &s3), s3, say };
    story.begin().await?;
    let step = story.spot().await?;
    story.nodes_taken_back(step).await?;
    let step = story.production_comes().await?;
    story.production_goes(step).await?;
    story.moves_back(step).await?;
    Ok(Props { _trainer: story.trainer, _s3: story.s3 })
}

impl Story<'_> {
    async fn apply(&self, file: &str) -> Result<()> {
        for mut object in kinds::example(&format!("training-story/{file}"))? {
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

    async fn runs(&self, name: &str, tier: &str) -> Result<()> {
        self.job(name, &format!("runs on {tier} capacity"), |job| is_running(job, tier)).await.map(drop)
    }

    /// Waits until the training runs in the tier `tier`; returns the step from which the training goes on, which must be the last step that it saved.
    async fn goes_on(&self, tier: &str) -> Result<Option<i64>> {
        self.runs(HERO, tier).await?;
        let workers = JOB.get(self.client, NAMESPACE, &format!("{HERO}-worker")).await?.context("its Job")?;
        let run = self.trainer.run(&workers).await?;
        ensure!(run.resumed == run.before, "{HERO} began at {:?} and had saved {:?}", run.resumed, run.before);
        Ok(run.resumed)
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
        self.runs("benchmark", "reserved").await?;
        (self.say)("benchmark (4 x 8 GPUs) holds the whole reservation");
        Ok(())
    }

    async fn spot(&self) -> Result<i64> {
        self.apply("04-training.yaml").await?;
        let begun = self.goes_on("spot").await?;
        ensure!(begun.is_none(), "it began at step {begun:?}");
        let latest = |job: &Value| job["status"]["checkpoint"]["latest"]["step"].as_i64();
        let seen = self.job(HERO, "is seen to have saved", |job| latest(job).is_some()).await?;
        let step = latest(&seen).unwrap_or_default();
        (self.say)(&format!(
            "language-model (4 x 8 GPUs) finds the reservation full, starts on spot, and saves step {step}"
        ));
        Ok(step)
    }

    async fn nodes_taken_back(&self, saved: i64) -> Result<()> {
        let gone = ["story-spot-0", "story-spot-1"];
        // The test imitates a cloud that takes spot nodes back: the kubelet gets notice and ends the pods as Failed before the node is gone.
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
        let from = self.goes_on("on-demand").await?.unwrap_or_default();
        ensure!(from >= saved, "it had saved step {saved} and began at {from}");
        let workload = self.workload().await?;
        let reasons: Vec<&str> =
            items(&workload, "/status/schedulingStats/evictions").iter().map(|e| text(e, "/reason")).collect();
        ensure!(reasons == ["CapacityReclaimed"], "{reasons:?}");
        (self.say)(&format!(
            "language-model is stopped whole and goes on from step {from}, on demand: machines that production lends"
        ));
        Ok(())
    }

    async fn workload(&self) -> Result<Value> {
        let of_hero = |w: &&Value| items(w, "/metadata/ownerReferences").iter().any(|o| text(o, "/name") == HERO);
        let all = WORKLOAD.list(self.client, NAMESPACE).await?;
        all.iter().find(of_hero).cloned().context("its Workload")
    }

    async fn production_comes(&self) -> Result<i64> {
        // The training of the story saves so often that a regular checkpoint could be taken for the checkpoint that Berth requests, so the regular checkpoints
        // are switched off.
        self.trainer.set_intervals(HERO, NEVER_MS, SAVING_TAKES_MS).await?;
        self.trainer.rest(HERO).await?;
        let last = self.trainer.saved(HERO).context("it has saved")?;
        self.apply("05-production.yaml").await?;
        let request = |job: &Value| condition_object(job, "CheckpointRequested").cloned().unwrap_or_default();
        let has_saved = |job: &Value| text(&request(job), "/reason") == "CheckpointSaved";
        let is_asked = |job: &Value| condition(job, "CheckpointRequested") == "True" || has_saved(job);
        let asked = self.job(HERO, "is asked to save", is_asked).await?;
        let why = request(&asked);
        ensure!(["Preempted", "CheckpointSaved"].contains(&text(&why, "/reason")), "{why}");
        (self.say)("ranking, a production job, wants them back: language-model is asked to save first");
        self.runs("ranking", "on-demand").await?;
        self.job(HERO, "is seen to have saved", has_saved).await?;
        self.job(HERO, "waits", |job| text(job, "/status/phase") == "Queued").await?;
        let step = self.trainer.saved(HERO).unwrap_or_default();
        ensure!(step == last + STEPS, "it was told to save once: it had saved {last}, and then {step}");
        (self.say)(&format!("language-model saves step {step}, is stopped at once, and waits; ranking runs"));
        Ok(step)
    }

    async fn production_goes(&self, saved: i64) -> Result<()> {
        TRAINING_JOB.delete(self.client, NAMESPACE, "ranking").await?;
        let from = self.goes_on("on-demand").await?;
        ensure!(from == Some(saved), "it had saved step {saved} and began at {from:?}");
        (self.say)(&format!("ranking is done: language-model goes on from step {saved}, on demand"));
        Ok(())
    }

    async fn moves_back(&self, saved: i64) -> Result<()> {
        TRAINING_JOB.delete(self.client, NAMESPACE, "benchmark").await?;
        (self.say)("benchmark is done: the reservation is free");
        let from = self.goes_on("reserved").await?.unwrap_or_default();
        ensure!(from > saved, "it saved nothing after step {saved} and began at {from}");
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
