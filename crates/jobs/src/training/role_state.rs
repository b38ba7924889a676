//! The state of the pods of one role of a TrainingJob.

use crate::finish::Finish;

/// State of the pods of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleState {
    /// Pods that are wanted.
    pub wanted: i32,
    /// Ready pods.
    pub ready: i32,
    /// Pods that are there and not ready.
    pub pending: i32,
    /// Pods that succeeded.
    pub succeeded: i32,
    /// Pods that failed.
    pub failed: i32,
    /// The end of the role by itself, once it has ended.
    pub finish: Option<Finish>,
    /// Time at which its end was decided, in seconds since 1970, if known.
    pub ended: Option<i64>,
    /// Digest of the requests of its pods, see [`crate::requests_digest`].
    pub asks: [u8; 16],
}

impl RoleState {
    /// All its pods are there, whatever they wait for, or have succeeded.
    #[must_use]
    pub fn has_all_pods(&self) -> bool {
        self.ready.saturating_add(self.pending).saturating_add(self.succeeded) >= self.wanted
    }

    /// Every pod is ready or has succeeded.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.ready.saturating_add(self.succeeded) >= self.wanted
    }
}
