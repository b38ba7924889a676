//! Notes about one TrainingJob.

use std::collections::BTreeSet;

use berth_cache::moments::after_seconds;
use jiff::Timestamp;

use crate::training_job::listing::{Listing, ListingNews};
use crate::write::{Checkpoint, CheckpointPlace, ObjectKey};

/// Longest pause in seconds after failed scale-ups, unless the job's own cool-down is longer.
const LONGEST_PAUSE_SECONDS: i64 = 3_600;

/// Notes about one TrainingJob.
#[derive(Debug)]
pub struct TrainingNotes {
    /// Time since when quota has been idle into which the TrainingJob could grow.
    idle_since: Option<Timestamp>,
    /// Number of workers that the TrainingJob is to grow to, until its new slice exists.
    wanted: Option<i32>,
    /// Failed scale-ups since the last successful scale-up.
    failed: Option<FailedScaleUps>,
    /// Number of workers after the scale-up that is being taken back.
    taken_back: Option<i32>,
    /// Last listing of the TrainingJob's checkpoints.
    listing: Option<Box<Listing>>,
    begun: Option<Begun>,
    /// Objects that were applied for the TrainingJob's present run.
    prepared: BTreeSet<ObjectKey>,
}

/// Failed scale-ups of a TrainingJob in a row.
#[derive(Clone, Copy, Debug)]
struct FailedScaleUps {
    times: u32,
    /// Number of workers that the last failed scale-up was to reach.
    workers: i32,
    /// Time before which no further scale-up is tried.
    not_before: Timestamp,
}

/// Begin of the TrainingJob's present run.
#[derive(Debug)]
struct Begun {
    /// Id of the checkpoint from which the run began, `None` for a run that began without a checkpoint.
    checkpoint: Option<String>,
}

/// Empty notes, for a TrainingJob about which nothing is noted.
pub(crate) static NONE: TrainingNotes = TrainingNotes::NONE;

impl Default for TrainingNotes {
    fn default() -> Self {
        Self::NONE
    }
}

impl TrainingNotes {
    const NONE: Self = Self {
        idle_since: None,
        wanted: None,
        failed: None,
        taken_back: None,
        listing: None,
        begun: None,
        prepared: BTreeSet::new(),
    };

    /// Whether nothing is noted about the TrainingJob.
    pub fn is_empty(&self) -> bool {
        self.idle_since.is_none()
            && self.wanted.is_none()
            && self.failed.is_none()
            && self.taken_back.is_none()
            && self.listing.is_none()
            && self.begun.is_none()
            && self.prepared.is_empty()
    }

    /// Time since when quota has been idle into which the TrainingJob could grow.
    pub(crate) fn idle_since(&self) -> Option<Timestamp> {
        self.idle_since
    }

    /// Notes the time since when quota is idle into which the TrainingJob could grow, `None` if no quota is idle.
    pub(crate) fn note_idle(&mut self, since: Option<Timestamp>) {
        self.idle_since = since;
    }

    /// Number of workers that the TrainingJob is to grow to, until its new slice exists.
    pub fn wanted(&self) -> Option<i32> {
        self.wanted
    }

    /// Notes the number of workers that the TrainingJob is to grow to, `None` if the TrainingJob is not to grow.
    pub(crate) fn want(&mut self, workers: Option<i32>) {
        self.wanted = workers;
    }

    /// Whether the TrainingJob may not grow yet, because its last scale-up failed.
    pub(crate) fn waits_to_grow(&self, now: Timestamp) -> bool {
        self.failed.is_some_and(|failed| failed.not_before > now)
    }

    /// Notes that the TrainingJob did not reach a number of workers. Each failed scale-up in a row doubles the `pause` before the next try, in seconds, because
    /// adding pods and removing them again interrupts the training.
    pub(crate) fn note_failed_scale_up(&mut self, workers: i32, pause: i64, now: Timestamp) {
        let times = self.failed.map_or(0, |failed| failed.times);
        let doubled = pause.max(1).saturating_mul(1 << times.min(12));
        let pause = doubled.min(LONGEST_PAUSE_SECONDS.max(pause));
        let not_before = after_seconds(now, pause);
        self.failed = Some(FailedScaleUps { times: times.saturating_add(1), workers, not_before });
    }

    /// Notes that all of a number of workers are ready: a failed scale-up to this number or fewer is forgotten.
    pub(crate) fn note_ready_workers(&mut self, workers: i32) {
        if self.failed.is_some_and(|failed| failed.workers <= workers) {
            self.failed = None;
        }
    }

    /// Notes that the number of workers is about to change. A scale-up to `added` workers, which were never all ready, fails by this change.
    pub fn note_scaling(&mut self, added: Option<i32>) {
        self.taken_back = added;
    }

    /// Notes that the number of workers was changed, and returns the number of workers after a scale-up that the change took back.
    pub(crate) fn note_scaled(&mut self) -> Option<i32> {
        self.taken_back.take()
    }

    /// The last listing of the TrainingJob's checkpoints.
    pub(crate) fn listing(&self) -> Option<&Listing> {
        self.listing.as_deref()
    }

    /// Handles the result of a listing of checkpoints at a place in a store. An earlier listing of another place in a store is discarded.
    pub fn take_listing(
        &mut self,
        place: &CheckpointPlace,
        found: Result<Vec<Checkpoint>, String>,
        now: Timestamp,
    ) -> ListingNews {
        let known = self.listing.take().filter(|known| known.is_of(place));
        let listing = self.listing.insert(known.unwrap_or_else(|| Box::new(Listing::unseen(place, now))));
        listing.take(found, now)
    }

    /// Removes deleted checkpoints from the TrainingJob's listing.
    pub(crate) fn drop_checkpoints(&mut self, gone: &[String]) {
        if let Some(listing) = &mut self.listing {
            listing.drop_all(gone);
        }
    }

    /// Id of the checkpoint from which the present run began, `Some(None)` for a run that began without a checkpoint, `None` for a run whose begin this process
    /// has not observed.
    pub(crate) fn begun_from(&self) -> Option<Option<&String>> {
        self.begun.as_ref().map(|begun| begun.checkpoint.as_ref())
    }

    /// Notes the id of the checkpoint from which a run begins.
    pub(crate) fn note_begin(&mut self, checkpoint: Option<String>) {
        self.begun = Some(Begun { checkpoint });
    }

    /// Whether an object was applied for the present run.
    pub(crate) fn is_prepared(&self, object: &ObjectKey) -> bool {
        self.prepared.contains(object)
    }

    /// Notes that an object was applied for the present run.
    pub fn note_prepared(&mut self, object: ObjectKey) {
        self.prepared.insert(object);
    }

    /// Forgets the applied objects, so that they are applied again before the next Job is created.
    pub(crate) fn forget_prepared(&mut self) {
        self.prepared.clear();
    }
}
