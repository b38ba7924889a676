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
    /// The end of the role that its own pods caused; `None` before.
    pub finish: Option<Finish>,
    /// Time at which the role's end was decided, in seconds since 1970, if known.
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
