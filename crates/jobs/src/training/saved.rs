//! What a job says of its last checkpoint, and what a run is told of where to go on.

use berth_api::labels;
use berth_api::validation::FieldError;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// When it was complete.
    pub at: Timestamp,
    /// Step of the training, where it is known.
    pub step: Option<i64>,
    /// Where it is, where that is known.
    pub uri: Option<String>,
}

/// The checkpoint that annotations tell of; one without a time that can be read is none.
#[must_use]
pub fn saved_of(annotations: &BTreeMap<String, String>) -> Option<Saved> {
    let at = annotations.get(labels::LAST_CHECKPOINT_TIME)?.parse().ok()?;
    let step = annotations.get(labels::LAST_CHECKPOINT_STEP).and_then(|text| text.parse().ok());
    Some(Saved { at, step: step.filter(|step| *step >= 0), uri: annotations.get(labels::LAST_CHECKPOINT_URI).cloned() })
}

/// What is wrong with such annotations.
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

/// What a run is told of checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Continuation<'a> {
    /// Where it saves, when it names a store.
    pub save_to: Option<&'a str>,
    /// Where it goes on.
    pub saved: Option<&'a Saved>,
}

/// The variables by which it is told.
pub(super) fn checkpoint_variables(told: Continuation<'_>) -> Vec<(&'static str, String)> {
    let saved = told.saved;
    let place = told.save_to.map(|uri| ("BERTH_CHECKPOINT_URI", uri.to_owned()));
    let uri = saved.and_then(|saved| saved.uri.clone()).map(|uri| ("BERTH_RESUME_URI", uri));
    let step = saved.and_then(|saved| saved.step).map(|step| ("BERTH_RESUME_STEP", step.to_string()));
    place.into_iter().chain(uri).chain(step).collect()
}
