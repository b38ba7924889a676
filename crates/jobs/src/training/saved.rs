//! The last checkpoint of a TrainingJob, and the environment variables with which a run continues from it.

use berth_api::labels;
use berth_api::validation::FieldError;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A checkpoint of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Time at which the checkpoint was completed.
    pub at: Timestamp,
    /// Training step of the checkpoint, if known.
    pub step: Option<i64>,
    /// Location of the checkpoint, if known.
    pub uri: Option<String>,
}

/// The checkpoint in a TrainingJob's annotations; `None` if their time cannot be read.
#[must_use]
pub fn saved_of(annotations: &BTreeMap<String, String>) -> Option<Saved> {
    let at = annotations.get(labels::LAST_CHECKPOINT_TIME)?.parse().ok()?;
    let step = annotations.get(labels::LAST_CHECKPOINT_STEP).and_then(|text| text.parse().ok());
    Some(Saved { at, step: step.filter(|step| *step >= 0), uri: annotations.get(labels::LAST_CHECKPOINT_URI).cloned() })
}

/// Faults of the annotations with a checkpoint.
pub(super) fn faults(annotations: &BTreeMap<String, String>) -> Vec<FieldError> {
    let field = |key: &str| format!("metadata.annotations[{key}]");
    let mut errors = Vec::new();
    let time = annotations.get(labels::LAST_CHECKPOINT_TIME);
    if let Some(text) = time.filter(|text| text.parse::<Timestamp>().is_err()) {
        let message = "must be a time such as 2026-01-31T12:00:00Z";
        errors.push(FieldError::new(field(labels::LAST_CHECKPOINT_TIME), text.clone(), message));
    }
    let step = annotations.get(labels::LAST_CHECKPOINT_STEP);
    if let Some(text) = step.filter(|text| text.parse::<i64>().map_or(true, |step| step < 0)) {
        errors.push(FieldError::new(field(labels::LAST_CHECKPOINT_STEP), text.clone(), "must be a number, 0 or more"));
    }
    errors
}

/// Checkpoint settings of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Continuation<'a> {
    /// Location for the run's checkpoints, if the TrainingJob names a store.
    pub save_to: Option<&'a str>,
    /// Checkpoint from which the run continues.
    pub saved: Option<&'a Saved>,
}

/// Environment variables that tell the training program where to save, and from which checkpoint to resume.
pub(super) fn checkpoint_variables(continuation: Continuation<'_>) -> Vec<(&'static str, String)> {
    let saved = continuation.saved;
    let place = continuation.save_to.map(|uri| ("BERTH_CHECKPOINT_URI", uri.to_owned()));
    let uri = saved.and_then(|saved| saved.uri.clone()).map(|uri| ("BERTH_RESUME_URI", uri));
    let step = saved.and_then(|saved| saved.step).map(|step| ("BERTH_RESUME_STEP", step.to_string()));
    place.into_iter().chain(uri).chain(step).collect()
}
