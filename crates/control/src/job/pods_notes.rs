//! Notes about the pods of one Workload whose job was stopped or deleted.

use jiff::Timestamp;

use crate::write::LeftPod;

/// Result of the last look for pods that a deleted job has left behind.
#[derive(Debug)]
pub(crate) struct Left {
    /// Time of the look.
    pub(super) at: Timestamp,
    /// Pods about which something is to be done.
    pub(super) pods: Vec<LeftPod>,
}

impl Left {
    /// Number of these pods.
    pub(crate) fn count(&self) -> usize {
        self.pods.len()
    }
}

/// Notes about the pods of one Workload.
#[derive(Debug, Default)]
pub(crate) struct PodsNotes {
    /// The pods were seen gone.
    are_gone: bool,
    left: Option<Box<Left>>,
}

impl PodsNotes {
    pub(crate) fn is_empty(&self) -> bool {
        !self.are_gone && self.left.is_none()
    }

    /// Whether the pods were seen gone.
    pub(crate) fn are_gone(&self) -> bool {
        self.are_gone
    }

    pub(crate) fn note_gone(&mut self) {
        self.are_gone = true;
    }

    /// The pods that the deleted job has left behind, as they were seen last.
    pub(crate) fn left(&self) -> Option<&Left> {
        self.left.as_deref()
    }

    /// Notes the pods that the job has left behind.
    pub(crate) fn note_left(&mut self, pods: Vec<LeftPod>, now: Timestamp) {
        if pods.is_empty() {
            self.left = None;
            self.note_gone();
        } else {
            self.left = Some(Box::new(Left { at: now, pods }));
        }
    }

    /// Drops the pods that a decision about another object deletes.
    pub(crate) fn drop_left(&mut self, is_sent_off: impl Fn(&LeftPod) -> bool) {
        if let Some(left) = &mut self.left {
            left.pods.retain(|pod| !is_sent_off(pod));
        }
    }
}
