//! Checkpoints in tasks and in answers to queries.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::berth::CheckpointStoreSpec;
use jiff::Timestamp;

/// The place of a job's checkpoints in a store.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointPlace {
    /// Name of the CheckpointStore.
    pub store: String,
    /// Spec of the CheckpointStore.
    pub spec: Arc<CheckpointStoreSpec>,
    /// Namespace of the job.
    pub namespace: String,
    /// Name of the job.
    pub job: String,
}

impl CheckpointPlace {
    /// URI of a checkpoint, as pods know it.
    pub(crate) fn uri_of(&self, id: &str) -> String {
        format!("{}/{id}", self.uri())
    }

    /// Whether a checkpoint's URI lies at this place.
    pub(crate) fn has(&self, uri: &str) -> bool {
        uri.strip_prefix(&self.uri()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// URI under which the job saves its checkpoints.
    pub(crate) fn uri(&self) -> String {
        self.spec.uri(&self.namespace, &self.job)
    }
}

/// A complete checkpoint of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the checkpoint in the job's folder.
    pub id: String,
    /// Time at which the checkpoint was complete.
    pub at: Timestamp,
    /// Step of the training at the checkpoint.
    pub step: i64,
    /// Epoch of the training at the checkpoint.
    pub epoch: Option<i64>,
    /// Size in bytes of all files of the checkpoint.
    pub bytes: u64,
    /// Metadata that the job gave the checkpoint.
    pub metadata: BTreeMap<String, String>,
}

/// Order of the checkpoints of a job: the job resumes from the checkpoint with the highest rank.
pub type Rank<'a> = (Timestamp, i64, &'a str);

/// The rank of a checkpoint by its completion time, step and name.
#[must_use]
pub const fn rank(at: Timestamp, step: i64, id: &str) -> Rank<'_> {
    (at, step, id)
}

impl Checkpoint {
    /// Rank of the checkpoint among those of its job.
    #[must_use]
    pub fn rank(&self) -> Rank<'_> {
        rank(self.at, self.step, &self.id)
    }
}
