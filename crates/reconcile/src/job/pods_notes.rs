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

/// The pods that a query found to be gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gone {
    /// Pods may run.
    #[default]
    Unknown,
    /// No pod that a Job controls runs any more. As long as only controlled pods are known to be gone, pods that have lost their Job may still run.
    Controlled,
    /// No pod runs that has the labels of the job, with or without a Job.
    Labelled,
}

/// Notes about the pods of one Workload.
#[derive(Debug, Default)]
pub struct PodsNotes {
    gone: Gone,
    left: Option<Box<Left>>,
}

impl PodsNotes {
    /// Whether there are no notes about the pods of the Workload.
    pub fn is_empty(&self) -> bool {
        self.gone == Gone::Unknown && self.left.is_none()
    }

    /// Whether those pods of the Workload that Jobs control were observed to be gone.
    pub(crate) fn are_gone(&self) -> bool {
        self.gone >= Gone::Controlled
    }

    /// Whether all pods of the Workload were observed to be gone, also pods that have lost their Job.
    pub(crate) fn are_gone_without_job(&self) -> bool {
        self.gone == Gone::Labelled
    }

    /// Notes that those pods of the Workload that Jobs control were observed to be gone.
    pub fn note_gone(&mut self) {
        self.gone = self.gone.max(Gone::Controlled);
    }

    /// The pods that the deleted job has left behind, from the last query.
    pub fn left(&self) -> Option<&Left> {
        self.left.as_deref()
    }

    /// Notes the pods that the deleted job has left behind; if there are none, the pods of the job are noted as gone.
    pub fn note_left(&mut self, pods: Vec<LeftPod>, now: Timestamp) {
        if pods.is_empty() {
            self.left = None;
            self.gone = Gone::Labelled;
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
