//! Settings of a TrainingJob that are not about its pods, such as queue, priority, timeouts and checkpoints.

use berth_api::berth::{TrainingJob, duration_seconds};
use berth_api::labels::LAST_CHECKPOINT_TIME;

use super::elastic::{Elastic, elastic};
use crate::metadata::{max_execution_seconds, queue_name, workload_priority_class};

/// Default time in which all pods of a gang must be ready, in seconds.
const SCHEDULING_TIMEOUT_SECONDS: i64 = 600;

/// Default number of checkpoints that are kept.
const MAX_CHECKPOINTS: i32 = 3;

/// Settings of a TrainingJob, such as queue, priority and timeouts, with defaults filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingFacts {
    /// Name of the framework, such as PyTorchJob.
    pub job_type: String,
    /// LocalQueue of the TrainingJob; empty if it names none.
    pub queue: String,
    /// WorkloadPriorityClass of the TrainingJob.
    pub priority_class: Option<String>,
    /// True if `spec.suspend` is true.
    pub suspended: bool,
    /// Maximum execution time, in seconds.
    pub max_execution_seconds: Option<i32>,
    /// Longest time in the queue, in seconds.
    pub max_wait_seconds: Option<i64>,
    /// Time in which all pods must be ready, in seconds; `None` without gang scheduling.
    pub scheduling_timeout_seconds: Option<i64>,
    /// Name of the CheckpointStore.
    pub store: Option<String>,
    /// Longest time between two checkpoints, in seconds.
    pub interval_seconds: Option<i64>,
    /// Number of checkpoints that are kept.
    pub max_checkpoints: i32,
    /// Limits and steps of the number of workers, if the TrainingJob is elastic.
    pub elastic: Option<Elastic>,
    /// True if the job saves checkpoints: its spec has `checkpoint`, or the job has reported a checkpoint.
    pub saves: bool,
}

/// Reads the settings of a TrainingJob. A setting of a TrainingJob that cannot be read counts as absent, and the validation of the TrainingJob reports it.
#[must_use]
pub fn training_facts(job: &TrainingJob) -> TrainingFacts {
    let scheduling = &job.spec.scheduling_config;
    let seconds = |text: &Option<String>| text.as_deref().and_then(duration_seconds);
    let gang = scheduling.gang_scheduling.unwrap_or(true);
    let timeout = seconds(&scheduling.scheduling_timeout).unwrap_or(SCHEDULING_TIMEOUT_SECONDS);
    let or_label = |field: &Option<String>, label: Option<&str>| field.clone().or_else(|| label.map(str::to_owned));
    let checkpoint = job.spec.checkpoint.as_ref();
    let message = job.metadata.annotations.as_ref();
    TrainingFacts {
        job_type: job.spec.job_type.clone(),
        queue: or_label(&scheduling.queue, queue_name(&job.metadata)).unwrap_or_default(),
        priority_class: or_label(&scheduling.priority, workload_priority_class(&job.metadata)),
        suspended: job.spec.suspend.unwrap_or(false),
        max_execution_seconds: max_execution_seconds(&job.metadata),
        max_wait_seconds: seconds(&scheduling.max_wait_time),
        scheduling_timeout_seconds: gang.then_some(timeout),
        store: checkpoint.and_then(|checkpoint| checkpoint.store.clone()),
        interval_seconds: checkpoint.and_then(|checkpoint| seconds(&checkpoint.interval)),
        max_checkpoints: checkpoint.and_then(|checkpoint| checkpoint.max_checkpoints).unwrap_or(MAX_CHECKPOINTS),
        elastic: elastic(job),
        saves: job.spec.checkpoint.is_some()
            || message.is_some_and(|message| message.contains_key(LAST_CHECKPOINT_TIME)),
    }
}
