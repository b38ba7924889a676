//! Notes about the pods of one Workload whose job was stopped or deleted.

use jiff::Timestamp;

use crate::write::LeftPod;

/// The result of the last query for pods that a deleted job has left behind.
#[derive(Debug)]
pub struct Left {
    /// The time of the query for left pods.
    pub(super) at: Timestamp,
    /// The left pods that are still to be deleted or awaited.
    pub(super) pods: Vec<LeftPod>,
}

impl Left {
    /// The number of left pods.
    pub fn count(&self) -> usize {
        self.pods.len()
    }
}

/// Notes about the pods of one Workload.
#[derive(Debug, Default)]
pub struct PodsNotes {
    /// True if the pods were observed to be gone.
    are_gone: bool,
    left: Option<Box<Left>>,
}

impl PodsNotes {
    /// Whether there are no notes about the pods.
    pub fn is_empty(&self) -> bool {
        !self.are_gone && self.left.is_none()
    }

    /// Whether the pods were observed to be gone.
    pub(crate) fn are_gone(&self) -> bool {
        self.are_gone
    }

    /// Notes that the pods were observed to be gone.
    pub fn note_gone(&mut self) {
        self.are_gone = true;
    }

    /// The pods that the deleted job has left behind, from the last query.
    pub fn left(&self) -> Option<&Left> {
        self.left.as_deref()
    }

    /// Notes the pods that the deleted job has left behind; if there are none, the pods of the job are noted as gone.
    pub fn note_left(&mut self, pods: Vec<LeftPod>, now: Timestamp) {
        if pods.is_empty() {
            self.left = None;
            self.note_gone();
        } else {
            self.left = Some(Box::new(Left { at: now, pods }));
        }
    }

    /// Drops the left pods that a decision about another object deletes.
    pub(crate) fn drop_left(&mut self, is_sent_off: impl Fn(&LeftPod) -> bool) {
        if let Some(left) = &mut self.left {
            left.pods.retain(|pod| !is_sent_off(pod));
        }
    }
}
