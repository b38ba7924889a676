//! Checkpoints in the status of a TrainingJob, and the wait of a start for the listing of checkpoints.

use berth_api::berth::{CheckpointInfo, CheckpointStatus, MAX_SHOWN_CHECKPOINTS};
use berth_api::conditions::{own_reasons, training_types};
use berth_cache::WorkloadView;
use berth_jobs::training::Saved;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

use super::TrainingCase;
use super::conditions::Words;
use crate::decision::Decision;
use crate::training_job::checkpoints::{patience_ends, shown};
use crate::training_job::growth::resumes_from;
use crate::workload::status::seconds;

/// Condition type of a job that has not saved for longer than its save interval.
const OVERDUE: &str = training_types::CHECKPOINT_OVERDUE;
/// Condition type of a job whose CheckpointStore cannot be read.
const UNAVAILABLE: &str = training_types::CHECKPOINT_STORE_UNAVAILABLE;

impl TrainingCase<'_> {
    /// The reason why the CheckpointStore of the TrainingJob cannot be used: the store does not exist.
    pub(super) fn missing_store(&self) -> Option<String> {
        self.ctx.missing_store(self.view)
    }

    /// The wait of a TrainingJob's start until the checkpoint to resume from is known, `None` if the checkpoint is known.
    pub(super) fn look_first(&self, workload: &WorkloadView) -> Option<Decision> {
        self.view.facts.store.as_ref()?;
        let begun = resumes_from(self.ctx.notes.workloads(), workload)?;
        if self.missing_store().is_some() {
            // When the store exists again, Berth decides about this TrainingJob again.
            return Some(Decision::Done);
        }
        let known = self.ctx.knows_where_to_resume(self.name, self.view, (begun, self.now));
        (!known).then(|| Decision::Wait(patience_ends(begun)))
    }

    /// Conditions about the save interval, kept or missed, and about the store, readable or not. The conditions about the save interval and about the store are
    /// shown after they were true for the first time.
    pub(super) fn checkpoint_conditions(&self, is_up: bool) -> [(&'static str, Words); 2] {
        let due = self.ctx.save_due(self.name, self.view).filter(|_| is_up);
        let listing = self.ctx.listing_of(self.name, self.view);
        let looked = match self.view.facts.store {
            Some(_) => listing.and_then(|listing| listing.at),
            None => Some(self.now),
        };
        let interval = self.view.facts.interval_seconds.unwrap_or_default();
        let late = match due {
            Some(due) if looked.is_some_and(|at| at >= due) && self.now >= due => {
                let message = format!("no checkpoint within {interval}s: the next one was due at {}", seconds(due));
                (true, own_reasons::INTERVAL_MISSED.to_owned(), message)
            }
            Some(_) => (false, own_reasons::INTERVAL_KEPT.to_owned(), format!("saves at least every {interval}s")),
            None => (false, own_reasons::NOT_RUNNING.to_owned(), "The job does not run".to_owned()),
        };
        let fault = match listing.and_then(|listing| listing.fault.clone()) {
            Some(fault) => (true, own_reasons::REQUEST_FAILED.to_owned(), fault),
            None => (false, own_reasons::AVAILABLE.to_owned(), "The store answers".to_owned()),
        };
        [(OVERDUE, late), (UNAVAILABLE, fault)]
    }

    /// Checkpoints of the job for its status, based on the previous status.
    pub(super) fn checkpoint_status(&self, old: Option<CheckpointStatus>) -> Option<CheckpointStatus> {
        let mut new = old.unwrap_or_default();
        let listing = self.ctx.listing_of(self.name, self.view).filter(|listing| listing.at.is_some());
        match (self.ctx.place_of(self.name, self.view), listing) {
            (Some(place), Some(listing)) => {
                let newest = listing.listed.iter().rev();
                new.count = i32::try_from(listing.listed.len()).ok();
                new.checkpoints = newest.take(MAX_SHOWN_CHECKPOINTS).map(|found| shown(&place, found)).collect();
            }
            (Some(place), None) => {
                // The status does not show checkpoints that are in another place than the TrainingJob's checkpoints are now.
                let shown = new.checkpoints.len();
                new.checkpoints.retain(|info| info.path.as_deref().is_none_or(|path| place.has(path)));
                new.count = new.count.filter(|_| new.checkpoints.len() == shown);
            }
            (None, _) => {}
        }
        if let Some(begun) = self.ctx.notes.jobs().of(&self.view.uid).training().begun_from() {
            new.resumed_from = begun.cloned();
        }
        let last = self.ctx.saved_of(self.name, self.view);
        let listed = new.checkpoints.first().cloned();
        new.latest = match last {
            Some(last) => listed.filter(|info| info.path == last.uri).or_else(|| Some(info_of(&last))),
            None => None,
        };
        (new != CheckpointStatus::default()).then_some(new)
    }
}

/// A checkpoint that only its job has reported.
fn info_of(saved: &Saved) -> CheckpointInfo {
    CheckpointInfo {
        id: None,
        time: Time(seconds(saved.at)),
        step: saved.step,
        epoch: None,
        path: saved.uri.clone(),
        size_bytes: None,
        metadata: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests;
