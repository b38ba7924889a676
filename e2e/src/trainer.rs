//! The training in pods that execute nothing. The trainer writes checkpoints through the API of an object store, at the URI that Berth gives a pod,
//! and at the intervals in the pod's annotations. Like users' code, the training goes on from the checkpoint in the pod's environment, saves at once
//! when it is asked to stop, and ends with its pod, even if a checkpoint is being written.
//!
//! The trainer reads only pods and the store, and never informs Berth of a checkpoint.

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

/// Annotation of pods that train: the interval between two checkpoints in milliseconds.
pub const SAVES_EVERY: &str = "e2e.berth.dev/saves-every-ms";
/// Annotation of pods: the time in milliseconds that a checkpoint takes to be written; 0 if absent.
pub const SAVING_TAKES: &str = "e2e.berth.dev/saving-takes-ms";
/// Number of steps of a training from one checkpoint to the next.
pub const STEPS: i64 = 100;
/// An interval in milliseconds that is longer than any test.
pub const NEVER_MS: u32 = 3_600_000;

/// Pause after which the trainer lists the pods again.
const PAUSE: Duration = Duration::from_millis(200);
/// Age beyond which the trainer's list of the pods is too old: the pods may not run any more.
const FRESH: Duration = Duration::from_millis(500);
/// Time between two events by which Berth can order them: a little more than a second, because Berth's times have a resolution of a second.
const SECOND: Duration = Duration::from_millis(1_050);

/// The begin of a run of a training; one start of a TrainingJob, with its pods, is one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The step from which the training goes on by the pods' environment; the checkpoint of this step existed.
    pub resumed: Option<i64>,
    /// The last step that the TrainingJob had saved before this run.
    pub before: Option<i64>,
}

/// Progress of all trainings so far.
#[derive(Debug, Default)]
struct Diary {
    /// Begun runs of trainings, by the uid of the Job that made the workers' pods.
    runs: BTreeMap<String, Run>,
    /// The last step that was saved, with its time, by the name of the TrainingJob.
    saved: BTreeMap<String, (i64, Instant)>,
    /// TrainingJobs whose checkpoint is being written.
    saving: BTreeSet<String>,
    /// Number of times that the trainer has listed the pods.
    looks: u64,
}

/// Simulates the training in the pods of one namespace; the simulation ends when the value is dropped.
pub struct Trainer {
    client: Client,
    namespace: String,
    diary: Arc<Mutex<Diary>>,
    task: JoinHandle<()>,
}

impl Trainer {
    /// Starts to simulate the training in pods that have the annotation [`SAVES_EVERY`]; checkpoints go to `store`.
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

    /// Waits until the run of a training has begun, and returns its begin; `workers` is the Job that made the run's worker pods.
    ///
    /// # Errors
    /// Fails if the run does not begin within the usual time.
    pub async fn run(&self, workers: &Value) -> Result<Run> {
        let uid = text(workers, "/metadata/uid");
        wait::until(STEP, &format!("Job {} trains", text(workers, "/metadata/name")), || async {
            let begun = lock(&self.diary).runs.get(uid).copied();
            Ok(begun.map_or_else(|| Seen::NotYet("not yet".to_owned()), Seen::Yes))
        })
        .await
    }

    /// Sets other intervals between checkpoints at the running pod that writes the checkpoints of a TrainingJob.
    ///
    /// # Errors
    /// Fails if no pod of the TrainingJob writes checkpoints, or if the API server refuses the change.
    pub async fn set_intervals(&self, job: &str, saves_every_ms: u32, saving_takes_ms: u32) -> Result<()> {
        let pods = POD.list(&self.client, &self.namespace).await?;
        let writer = pods.iter().find(|pod| job_of(pod) == job && is_first(pod) && is_running(pod));
        let name = text(writer.with_context(|| format!("no pod of {job} writes"))?, "/metadata/name");
        let intervals = json!({(SAVES_EVERY): saves_every_ms.to_string(), (SAVING_TAKES): saving_takes_ms.to_string()});
        POD.patch(&self.client, &self.namespace, name, &json!({"metadata": {"annotations": intervals}})).await.map(drop)
    }

    /// Waits until a TrainingJob whose regular checkpoints were switched off writes no checkpoint, and its last checkpoint is older than a second.
    ///
    /// # Errors
    /// Fails if the job continues to save.
    pub async fn rest(&self, job: &str) -> Result<()> {
        // The trainer's present round over the pods may have begun before the regular checkpoints were switched off, so the function waits for the end of the
        // next round.
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

/// State of the task that a [`Trainer`] runs.
struct Work {
    client: Client,
    namespace: String,
    store: BucketClient,
    diary: Arc<Mutex<Diary>>,
    /// Progress of the pods that write checkpoints, by the pod's uid.
    pods: BTreeMap<String, Progress>,
}

/// Progress of a pod that writes checkpoints.
struct Progress {
    /// The step of the pod's next checkpoint.
    next: i64,
    /// Time at which the pod began to train, or saved last.
    since: Instant,
    /// Time at which the pod began to write its next checkpoint; `None` while it writes none.
    saving: Option<Instant>,
    /// Berth's last request to save a checkpoint that the pod has followed, as in the pod's annotations.
    request: String,
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
            // All workers make a step together: while some workers are missing there is no step, and not enough ranks to complete a checkpoint.
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

    /// The progress of a pod at its begin: the pod goes on from the step and the checkpoint in its environment.
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
        Ok(Progress { next, since: Instant::now(), saving: None, request: String::new() })
    }
}

impl Progress {
    /// Continues the training of a pod; returns the step of a checkpoint that is complete now.
    async fn go_on(&mut self, store: &BucketClient, pod: &Value, listed: Instant) -> Result<Option<i64>> {
        let place = variable(pod, "BERTH_CHECKPOINT_URI").context("a pod that saves is not told where")?;
        let folder = format!("{place}/step-{}", self.next);
        let stop = annotation(pod, "berth.dev/stop-at");
        let request = [stop, annotation(pod, "berth.dev/save-by")].concat();
        let Some(begun) = self.saving else {
            let asked = !request.is_empty() && request != self.request;
            // A pod that is asked to stop saves once more, and then waits until it is deleted.
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
        *self = Progress { next: step + STEPS, since: Instant::now(), saving: None, request };
        Ok(Some(step))
    }
}

/// A poisoned lock only means that a test has failed; the progress in the lock is still right.
fn lock(diary: &Mutex<Diary>) -> MutexGuard<'_, Diary> {
    diary.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a pod runs and is not being deleted.
fn is_running(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && text(pod, "/metadata/deletionTimestamp").is_empty()
}

/// The TrainingJob of a pod.
fn job_of(pod: &Value) -> &str {
    pod["metadata"]["labels"]["berth.dev/training-job"].as_str().unwrap_or_default()
}

/// The uid of the Job that created a pod.
fn run_of(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/uid")
}

/// Whether a pod is the pod of its Job that writes the checkpoints for all workers.
fn is_first(pod: &Value) -> bool {
    annotation(pod, "batch.kubernetes.io/job-completion-index") == "0"
}

/// Number of workers that train together with a pod.
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

/// The value of a variable in the environment of the pod's first container.
fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let all = items(pod, "/spec/containers/0/env");
    all.iter().find(|one| text(one, "/name") == name).map(|one| text(one, "/value"))
}
