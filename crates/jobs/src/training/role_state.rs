//! The state of the pods in one role of a TrainingJob.

use crate::finish::Finish;

/// State of the pods in one role of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleState {
    /// Wanted number of pods.
    pub wanted: i32,
    /// Number of ready pods.
    pub ready: i32,
    /// Number of existing pods that are not ready.
    pub pending: i32,
    /// Number of succeeded pods.
    pub succeeded: i32,
    /// Number of failed pods.
    pub failed: i32,
    /// Result of the role if its pods have ended it by success or failure, and not by their deletion; `None` for a role that has not ended.
    pub finish: Option<Finish>,
    /// Time, in seconds since 1970, of the first condition of the role's Job that decides its success or failure, if known.
    pub ended: Option<i64>,
    /// Digest of the requests of the role's pods; see [`crate::requests_digest`].
    pub asks: [u8; 16],
}

impl RoleState {
    /// Whether all wanted pods of the role exist or have succeeded.
    #[must_use]
    pub fn has_all_pods(&self) -> bool {
        self.ready.saturating_add(self.pending).saturating_add(self.succeeded) >= self.wanted
    }

    /// Whether every wanted pod of the role is ready or has succeeded.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.ready.saturating_add(self.succeeded) >= self.wanted
    }
}
