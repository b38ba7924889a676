//! A listing of the checkpoints of one TrainingJob in its store.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::write::{Checkpoint, CheckpointPlace};

/// A listing of one TrainingJob's checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The place in a checkpoint store that was listed. If the job or its store is edited, the listing does not hold for the new place.
    place: CheckpointPlace,
    /// Complete checkpoints, the oldest first.
    pub(crate) listed: Vec<Checkpoint>,
    /// Time of the last successful listing of the checkpoints.
    pub(crate) at: Option<Timestamp>,
    /// Time of the last listing of the checkpoints, successful or not.
    pub(crate) tried: Timestamp,
    /// The reason why the last listing of the checkpoints failed.
    pub(crate) fault: Option<String>,
}

/// Difference between a listing of checkpoints and the previous listing.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListingNews {
    /// Number of checkpoints that appeared since the previous successful listing.
    pub fresh: usize,
    /// True if the list of checkpoints differs from the previous list.
    pub changed: bool,
}

impl Listing {
    /// The empty listing of a place in a checkpoint store that was not listed yet.
    pub(super) fn unseen(place: &CheckpointPlace, now: Timestamp) -> Self {
        Self { place: place.clone(), listed: Vec::new(), at: None, tried: now, fault: None }
    }

    /// Whether the listing is of the given place in a checkpoint store.
    pub(super) fn is_of(&self, place: &CheckpointPlace) -> bool {
        self.place == *place
    }

    /// Handles the result of a request to list the checkpoints.
    pub(super) fn take(&mut self, found: Result<Vec<Checkpoint>, String>, now: Timestamp) -> ListingNews {
        self.tried = now;
        match found {
            Ok(listed) => self.take_checkpoints(listed, now),
            Err(fault) => {
                self.fault = Some(fault);
                ListingNews::default()
            }
        }
    }

    fn take_checkpoints(&mut self, mut listed: Vec<Checkpoint>, now: Timestamp) -> ListingNews {
        let mut fresh = 0;
        listed.sort_by(|a, b| a.rank().cmp(&b.rank()));
        if self.at.is_some() {
            let known: BTreeSet<&String> = self.listed.iter().map(|checkpoint| &checkpoint.id).collect();
            fresh = listed.iter().filter(|checkpoint| !known.contains(&checkpoint.id)).count();
        }
        self.at = Some(now);
        self.fault = None;
        let changed = self.listed != listed;
        self.listed = listed;
        ListingNews { fresh, changed }
    }

    /// Removes deleted checkpoints from the listing.
    pub(super) fn drop_all(&mut self, gone: &[String]) {
        self.listed.retain(|checkpoint| !gone.contains(&checkpoint.id));
    }
}
