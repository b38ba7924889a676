//! The checkpoints of a job as its files show them: gathered file by file, so that the list of a huge folder is never held.

use std::collections::BTreeMap;

use berth_control::write::CheckpointPlace;
use jiff::Timestamp;

use super::marker::{MARKER, is_id};

/// Most checkpoints of one job that are read: above the number that a job may ask to keep, so that the surplus can still be deleted.
pub(super) const MOST_CHECKPOINTS: usize = 2_000;

/// A marker as it was listed: it is not read again while both stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) modified: Timestamp,
    pub(super) bytes: u64,
}

/// The checkpoints in the folder of a job.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Name of the folder in messages.
    name: String,
    /// Files so far, of whatever kind.
    pub(super) files: usize,
    /// Markers by the name of their checkpoint.
    pub(super) markers: BTreeMap<String, Version>,
    /// Sizes of folders that may be checkpoints.
    sizes: BTreeMap<String, u64>,
}

impl Listing {
    pub(super) fn new(place: &CheckpointPlace) -> Self {
        Self { name: format!("{}/{}", place.namespace, place.job), ..Self::default() }
    }

    /// Takes a file by its path below the folder of the job; an error when there are too many checkpoints.
    pub(super) fn add(&mut self, path: &str, version: Version) -> Result<(), String> {
        self.files = self.files.saturating_add(1);
        let Some((id, rest)) = path.split_once('/').filter(|(id, _)| is_id(id)) else { return Ok(()) };
        match self.sizes.get_mut(id) {
            Some(size) => *size = size.saturating_add(version.bytes),
            None => {
                self.sizes.insert(id.to_owned(), version.bytes);
            }
        }
        if rest == MARKER {
            self.markers.insert(id.to_owned(), version);
        }
        if self.markers.len() > MOST_CHECKPOINTS {
            let name = &self.name;
            let what = format!("{name} has more than {MOST_CHECKPOINTS} checkpoints; none of them is looked at");
            return Err(format!("{what} until its oldest folders are deleted by hand"));
        }
        Ok(())
    }

    /// The size of all files of a checkpoint.
    pub(super) fn size(&self, id: &str) -> u64 {
        self.sizes.get(id).copied().unwrap_or_default()
    }
}
