//! The training in pods that only seem to run: where Berth tells a pod to, at the pace that its annotations set, checkpoints are
//! written through the API of an object store. As the code of users does it, it goes on from where the pod's environment says, saves at
//! once when it is told that it is to stop, and ends with its pod, whatever was on its way.
//!
//! What it never does: look at anything but pods and the store, or tell Berth of what it saved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::bucket::BucketClient;
use crate::kinds::{POD, items, text};
use crate::wait::{self, STEP, Seen};

/// Annotation of pods: they train, and save after so many milliseconds.
pub const SAVES_EVERY: &str = "e2e.berth.dev/saves-every-ms";
/// Annotation of pods: a checkpoint is on its way for so many milliseconds, none when absent.
pub const SAVING_TAKES: &str = "e2e.berth.dev/saving-takes-ms";
/// Steps of the training from one checkpoint to the next.
pub const STEPS: i64 = 100;
/// Longer than any test, for [`Trainer::pace`].
pub const NEVER_MS: u32 = 3_600_000;

/// Pause between two looks at the pods.
const PAUSE: Duration = Duration::from_millis(200);
/// Of pods that were listed longer ago it is not known that they run.
const FRESH: Duration = Duration::from_millis(500);
/// Berth counts in whole seconds: of two things within one it cannot tell which was first.
const SECOND: Duration = Duration::from_millis(1_050);

/// How a run began: the pods that one start of a job brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The step from which its environment told it to go on; that checkpoint was there.
    pub resumed: Option<i64>,
    /// The last step that the job had saved before.
    pub before: Option<i64>,
}

/// What was trained so far.
#[derive(Debug, Default)]
struct Diary {
    /// By the uid of the Job of the workers.
    runs: BTreeMap<String, Run>,
    /// The last step that was saved, and when, by the name of the TrainingJob.
    saved: BTreeMap<String, (i64, Instant)>,
    /// TrainingJobs with a checkpoint on its way.
    saving: BTreeSet<String>,
    /// Looks at the pods.
    looks: u64,
}

/// Trains in the pods of one namespace; it ends when it is dropped.
pub struct Trainer {
    client: Client,
    namespace: String,
    diary: Arc<Mutex<Diary>>,
    task: JoinHandle<()>,
}

impl Trainer {
    /// Starts to train in pods that carry [`SAVES_EVERY`]; they save to that server.
    #[must_use]
    pub fn start(client: &Client, namespace: &str, store: impl Into<BucketClient>) -> Trainer {
        let diary = Arc::new(Mutex::new(Diary::default()));
        let work = Work {
            client: client.clone(),
            namespace: namespace.to_owned(),
            store: store.into(),
            diary: Arc::clone(&diary),
            pods: BTreeMap::new(),
        };
        let task = tokio::spawn(work.train());
        Trainer { client: client.clone(), namespace: namespace.to_owned(), diary, task }
    }

    /// The last step that a TrainingJob has saved.
    #[must_use]
    pub fn saved(&self, job: &str) -> Option<i64> {
        lock(&self.diary).saved.get(job).map(|(step, _)| *step)
    }

    /// How a run began, once it has; `workers` is the Job of its workers.
    ///
    /// # Errors
    /// When it does not begin.
    pub async fn run(&self, workers: &Value) -> Result<Run> {
        let uid = text(workers, "/metadata/uid");
        wait::until(STEP, &format!("Job {} trains", text(workers, "/metadata/name")), || async {
            let begun = lock(&self.diary).runs.get(uid).copied();
            Ok(begun.map_or_else(|| Seen::NotYet("not yet".to_owned()), Seen::Yes))
        })
        .await
    }

    /// Sets another pace for the present pods of a TrainingJob.
    ///
    /// # Errors
    /// When none of them writes, or the API server refuses.
    pub async fn pace(&self, job: &str, saves_every_ms: u32, saving_takes_ms: u32) -> Result<()> {
        let pods = POD.list(&self.client, &self.namespace).await?;
        let writer = pods.iter().find(|pod| job_of(pod) == job && is_first(pod) && is_running(pod));
        let name = text(writer.with_context(|| format!("no pod of {job} writes"))?, "/metadata/name");
        let pace = json!({(SAVES_EVERY): saves_every_ms.to_string(), (SAVING_TAKES): saving_takes_ms.to_string()});
        POD.patch(&self.client, &self.namespace, name, &json!({"metadata": {"annotations": pace}})).await.map(drop)
    }

    /// Waits until a TrainingJob that was told to save no more does not, and its last checkpoint is older than a second.
    ///
    /// # Errors
    /// When it goes on.
    pub async fn rest(&self, job: &str) -> Result<()> {
        // The look that is under way may have begun before it was told.
        let known = lock(&self.diary).looks + 2;
        wait::until(STEP, &format!("{job} saves no more"), || async {
            let rests = lock(&self.diary).rests(job, known);
            Ok(Seen::when(rests, || "it does".to_owned()))
        })
        .await
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Diary {
    fn rests(&self, job: &str, known: u64) -> bool {
        let old = self.saved.get(job).is_none_or(|(_, at)| at.elapsed() > SECOND);
        self.looks >= known && !self.saving.contains(job) && old
    }
}

/// What the task of a [`Trainer`] has at hand.
struct Work {
    client: Client,
    namespace: String,
    store: BucketClient,
    diary: Arc<Mutex<Diary>>,
    /// How far the pods that write have come, by uid.
    pods: BTreeMap<String, Progress>,
}

/// How far a pod has come.
struct Progress {
    /// The step of its next checkpoint.
    next: i64,
    /// When it began, or saved last.
    since: Instant,
    /// Since when that checkpoint is on its way.
    saving: Option<Instant>,
    /// The requests to save that it has followed.
    told: String,
}

impl Work {
    async fn train(mut self) {
        loop {
            if let Err(error) = self.look().await {
                eprintln!("trainer of {}: {error:#}", self.namespace);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let listed = Instant::now();
        let pods = POD.list(&self.client, &self.namespace).await?;
        let running: Vec<&Value> = pods.iter().filter(|pod| is_running(pod)).collect();
        let writes = |pod: &&Value| number(pod, SAVES_EVERY).is_some() && is_first(pod);
        let writers: Vec<&Value> = running.iter().copied().filter(writes).collect();
        let (mut there, mut saving) = (BTreeSet::new(), BTreeSet::new());
        for pod in writers {
            let (uid, job) = (text(pod, "/metadata/uid"), job_of(pod));
            let begun = if self.pods.contains_key(uid) { None } else { Some(self.begin(pod).await?) };
            self.pods.extend(begun.map(|begun| (uid.to_owned(), begun)));
            let Some(progress) = self.pods.get_mut(uid) else { continue };
            there.insert(uid);
            // They make a step together: while some are missing there is none, and no rank to complete a checkpoint.
            if running.iter().filter(|other| run_of(other) == run_of(pod)).count() < workers(pod) {
                progress.since = Instant::now();
                progress.saving = None;
            } else if let Some(step) = progress.go_on(&self.store, pod, listed).await? {
                lock(&self.diary).saved.insert(job.to_owned(), (step, Instant::now()));
            }
            if progress.saving.is_some() {
                saving.insert(job.to_owned());
            }
        }
        self.pods.retain(|uid, _| there.contains(uid.as_str()));
        let mut diary = lock(&self.diary);
        diary.saving = saving;
        diary.looks += 1;
        Ok(())
    }

    /// A pod begins where it is told to, with what is there.
    async fn begin(&self, pod: &Value) -> Result<Progress> {
        let resumed = variable(pod, "BERTH_RESUME_STEP").and_then(|step| step.parse::<i64>().ok());
        if let Some(place) = variable(pod, "BERTH_RESUME_URI") {
            let there = self.store.has(&format!("{place}/checkpoint.json")).await?;
            ensure!(there, "{} is to go on from {place}, where nothing is", text(pod, "/metadata/name"));
        }
        let mut diary = lock(&self.diary);
        let before = diary.saved.get(job_of(pod)).map(|(step, _)| *step);
        diary.runs.entry(run_of(pod).to_owned()).or_insert(Run { resumed, before });
        let next = resumed.unwrap_or_default() + STEPS;
        Ok(Progress { next, since: Instant::now(), saving: None, told: String::new() })
    }
}

impl Progress {
    /// The next bit of the training; the step of a checkpoint that is complete by it.
    async fn go_on(&mut self, store: &BucketClient, pod: &Value, listed: Instant) -> Result<Option<i64>> {
        let place = variable(pod, "BERTH_CHECKPOINT_URI").context("a pod that saves is not told where")?;
        let folder = format!("{place}/step-{}", self.next);
        let stop = annotation(pod, "berth.dev/stop-at");
        let told = [stop, annotation(pod, "berth.dev/save-by")].concat();
        let Some(begun) = self.saving else {
            let asked = !told.is_empty() && told != self.told;
            // Who is to stop saves once more, and then waits for its end.
            if asked || (stop.is_empty() && self.since.elapsed() >= milliseconds(pod, SAVES_EVERY)) {
                for rank in 0..workers(pod) {
                    store.put(&format!("{folder}/rank-{rank}.pt"), "weights").await?;
                }
                self.saving = Some(Instant::now());
            }
            return Ok(None);
        };
        if begun.elapsed() < milliseconds(pod, SAVING_TAKES) || listed.elapsed() > FRESH {
            return Ok(None);
        }
        let step = self.next;
        let marker = json!({"step": step, "epoch": 1, "metadata": {"loss": "0.5"}});
        store.put(&format!("{folder}/checkpoint.json"), &marker.to_string()).await?;
        *self = Progress { next: step + STEPS, since: Instant::now(), saving: None, told };
        Ok(Some(step))
    }
}

/// A poisoned lock only means that a test has failed; the diary is still what happened.
fn lock(diary: &Mutex<Diary>) -> MutexGuard<'_, Diary> {
    diary.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a pod runs, and nobody has deleted it.
fn is_running(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && text(pod, "/metadata/deletionTimestamp").is_empty()
}

/// The TrainingJob of a pod.
fn job_of(pod: &Value) -> &str {
    pod["metadata"]["labels"]["berth.dev/training-job"].as_str().unwrap_or_default()
}

/// The uid of the Job that made a pod.
fn run_of(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/uid")
}

/// Whether it is the pod of a Job that writes for all.
fn is_first(pod: &Value) -> bool {
    annotation(pod, "batch.kubernetes.io/job-completion-index") == "0"
}

/// How many workers train together.
fn workers(pod: &Value) -> usize {
    variable(pod, "WORLD_SIZE").and_then(|size| size.parse().ok()).unwrap_or(1)
}

fn annotation<'a>(pod: &'a Value, key: &str) -> &'a str {
    pod["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

fn number(pod: &Value, key: &str) -> Option<u64> {
    annotation(pod, key).parse().ok()
}

fn milliseconds(pod: &Value, key: &str) -> Duration {
    Duration::from_millis(number(pod, key).unwrap_or_default())
}

/// A variable of the first container.
fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let all = items(pod, "/spec/containers/0/env");
    all.iter().find(|one| text(one, "/name") == name).map(|one| text(one, "/value"))
}
