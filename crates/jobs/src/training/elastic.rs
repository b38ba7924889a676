//! The number of workers of an elastic TrainingJob, and its changes while the job runs. The Job that runs the workers of a TrainingJob is an Indexed Job. A
//! change of the number of workers adds or removes the highest completion indexes, so worker 0, to which the other workers connect, stays. If pods learn the
//! number of workers only at their start, all Jobs of the run are created again with the new number.

use berth_api::berth::{TrainingJob, duration_seconds};
use berth_api::json::to_text;
use berth_api::labels;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::role::worker_bounds;
use crate::object_patch::ObjectPatch;

/// The framework whose workers find each other again after a change of their number.
const FIND_EACH_OTHER: &str = "PyTorchJob";
/// Default number of workers that are added or removed at once.
const STEP: i32 = 1;
/// Default pause before workers are added, in seconds.
const UP_COOLDOWN_SECONDS: i64 = 300;
/// Default pause before workers are removed, in seconds.
const DOWN_COOLDOWN_SECONDS: i64 = 60;

/// The way in which the number of workers changes while a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescale {
    /// Workers are added to the running workers, or removed from them.
    InPlace,
    /// Each pod learned the number of workers at its start, so all pods start again with the new number.
    ByRestart,
}

/// Limits and steps of an elastic TrainingJob's number of workers, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elastic {
    /// Smallest number of workers.
    pub min: i32,
    /// Largest number of workers.
    pub max: i32,
    /// The way in which the number of workers changes during a run.
    pub rescale: Rescale,
    /// Number of workers that are added at once.
    pub up_step: i32,
    /// Number of workers that are removed at once.
    pub down_step: i32,
    /// Pause before workers are added, in seconds.
    pub up_cooldown_seconds: i64,
    /// Pause before workers are removed, in seconds.
    pub down_cooldown_seconds: i64,
}

/// The elastic settings of a TrainingJob; `None` if the job is not elastic.
pub(super) fn elastic(job: &TrainingJob) -> Option<Elastic> {
    let config = job.spec.elastic_config.as_ref().filter(|config| config.enabled == Some(true))?;
    let policy = config.scale_policy.clone().unwrap_or_default();
    let seconds = |text: &Option<String>, default: i64| text.as_deref().and_then(duration_seconds).unwrap_or(default);
    let (min, max) = worker_bounds(job);
    Some(Elastic {
        min,
        max,
        rescale: if job.spec.job_type == FIND_EACH_OTHER { Rescale::InPlace } else { Rescale::ByRestart },
        up_step: policy.scale_up_step.unwrap_or(STEP).max(1),
        down_step: policy.scale_down_step.unwrap_or(STEP).max(1),
        up_cooldown_seconds: seconds(&policy.scale_up_cooldown, UP_COOLDOWN_SECONDS),
        down_cooldown_seconds: seconds(&policy.scale_down_cooldown, DOWN_COOLDOWN_SECONDS),
    })
}

impl Elastic {
    /// The limits of the number of workers as text, for an annotation on the workers' Job: the limits that its pods got.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}:{}", self.min, self.max)
    }

    /// The limits for a run whose Job has the annotation `text`: the limits that its pods got at their start, narrowed by the current spec.
    #[must_use]
    pub fn within(&self, text: &str) -> Option<(i32, i32)> {
        let (least, most) = text.split_once(':')?;
        let (least, most): (i32, i32) = (least.parse().ok()?, most.parse().ok()?);
        let max = self.max.min(most);
        Some((self.min.max(least).min(max), max))
    }
}

/// Times that the replacement slice of a scale-up takes over from the old slice, because a scale-up does not renew the job or its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// Time at which the job was queued.
    pub queued: Timestamp,
    /// Time at which the job's run was admitted.
    pub admitted: Timestamp,
}

impl Past {
    /// Parses the times from a text of [`Self::text`]; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The times as a text, for an annotation.
    #[must_use]
    pub fn text(&self) -> String {
        to_text(self)
    }
}

/// The last change of a run's number of workers. The annotation `berth.dev/last-scale` with the change is on the Job of the workers, or on the Workload if each
/// change creates the run's Jobs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    /// Wanted number of workers after the change.
    pub workers: i32,
    /// Time of the change.
    pub at: Timestamp,
    /// Uid of the Workload that held the workers' quota.
    pub workload: String,
    /// Number of the Workload's evictions at the time of the change, if the annotation `berth.dev/last-scale` is on the Workload. An annotation
    /// `berth.dev/last-scale` on a Workload is no longer valid after the Workload's next eviction.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evictions: i32,
}

/// Whether a number of evictions is zero; serde passes a reference.
const fn is_zero(evictions: &i32) -> bool {
    *evictions == 0
}

impl Scale {
    /// Parses the change from the annotation `berth.dev/last-scale`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Adds the annotation with the change to a patch of the Job of the workers or of the Workload.
    #[must_use]
    pub fn note(&self, patch: ObjectPatch) -> ObjectPatch {
        patch.annotation(labels::LAST_SCALE, Some(&to_text(self)))
    }

    /// The merge patch of the Job that runs the workers, with its uid and version: their number and the annotation with the change, in one write.
    #[must_use]
    pub fn patch(&self, uid: &str, version: u64) -> ObjectPatch {
        let patch = self.note(ObjectPatch::of_version(uid, version.to_string()));
        // The API server takes a change of an Indexed Job's completions only together with its parallelism.
        patch.spec("completions", self.workers).spec("parallelism", self.workers)
    }
}
