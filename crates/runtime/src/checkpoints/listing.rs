//! The checkpoints of a job, collected file by file, so that the list of a huge folder is never in memory.

use std::collections::BTreeMap;

use berth_control::write::CheckpointPlace;
use jiff::Timestamp;

use super::error::StoreError;
use super::marker::{MARKER, is_id};

/// Largest number of a job's checkpoints that are read, which is above the number that a job may keep, so that surplus checkpoints can still be deleted.
pub(super) const MOST_CHECKPOINTS: usize = 2_000;

/// Modification time and size of a marker file; a marker file with equal modification time and size is not read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) modified: Timestamp,
    pub(super) bytes: u64,
}

/// The checkpoints in the folder of a job.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Name of the job's checkpoint folder, for messages.
    name: String,
    /// Number of files so far.
    pub(super) files: usize,
    /// Versions of marker files by the id of their checkpoint.
    pub(super) markers: BTreeMap<String, Version>,
    /// Sizes in bytes of folders that may be checkpoints.
    sizes: BTreeMap<String, u64>,
}

impl Listing {
    pub(super) fn new(place: &CheckpointPlace) -> Self {
        Self { name: format!("{}/{}", place.namespace, place.job), ..Self::default() }
    }

    /// Adds a file by its path below the job's checkpoint folder. More checkpoints than Berth reads are an error.
    pub(super) fn add(&mut self, path: &str, version: Version) -> Result<(), StoreError> {
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
            return Err(StoreError::TooManyCheckpoints { folder: self.name.clone(), most: MOST_CHECKPOINTS });
        }
        Ok(())
    }

    /// Size of all files of a checkpoint in bytes.
    pub(super) fn size(&self, id: &str) -> u64 {
        self.sizes.get(id).copied().unwrap_or_default()
    }
}
