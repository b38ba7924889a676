//! Notes about the capacity of one Workload.

use jiff::Timestamp;

use super::loss::Loss;
use super::promotions::Better;
use crate::write::StuckPod;

/// The answer to the query which pods of a started Workload no node takes.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The time at which control got the answer about the pods.
    pub at: Timestamp,
    /// The pods that no node takes; empty if the query found none.
    pub stuck: Vec<StuckPod>,
}

/// Notes about the capacity of one Workload.
#[derive(Debug, Default)]
pub struct CapacityNotes {
    /// The last answer about the pods of the started Workload.
    answer: Option<Box<Answer>>,
    /// The capacity that the Workload lost with a node that is being taken away.
    loss: Option<Box<Loss>>,
    /// The better tier to which the running Workload could move.
    better_tier: Option<Box<Better>>,
}

impl CapacityNotes {
    /// Whether nothing is noted about the Workload's capacity.
    pub fn is_empty(&self) -> bool {
        self.answer.is_none() && self.loss.is_none() && self.better_tier.is_none()
    }

    /// The last answer about the Workload's pods that no node takes, if the answer is not older than `time`.
    pub(crate) fn answer_since(&self, time: Timestamp) -> Option<&Answer> {
        self.answer().filter(|answer| answer.at >= time)
    }

    /// The last answer about the Workload's pods that no node takes.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_deref()
    }

    /// Records an answer about the Workload's pods that no node takes.
    pub fn note_answer(&mut self, answer: Answer) {
        self.answer = Some(Box::new(answer));
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_deref()
    }

    pub(crate) fn note_loss(&mut self, loss: Loss) {
        self.loss = Some(Box::new(loss));
    }

    /// Forgets the capacity that the Workload lost with a node, after the Workload has given up its capacity.
    pub(crate) fn forget_loss(&mut self) {
        self.loss = None;
    }

    /// Forgets the answer about pods that no node takes, and the capacity that was lost with a node, after the Workload was evicted because of them.
    pub fn forget_pods(&mut self) {
        self.answer = None;
        self.loss = None;
    }

    /// The better tier that was last found free for the running Workload; `None` if none was found.
    pub fn better_tier(&self) -> Option<&Better> {
        self.better_tier.as_deref()
    }

    pub(crate) fn note_better_tier(&mut self, better: Option<Better>) {
        self.better_tier = better.map(Box::new);
    }
}
