//! The loss of a Workload's capacity with a node that is being taken away.

use jiff::Timestamp;

use super::tier_assignment::TierAssignment;

/// The loss of a Workload's capacity with a node.
#[derive(Debug)]
pub(crate) struct Loss {
    at: Timestamp,
    assignment: TierAssignment,
    node: String,
    taint: String,
}

impl Loss {
    /// The loss of an assignment with a node that has a taint.
    pub(super) fn new(assignment: TierAssignment, (node, taint): (&str, &str), at: Timestamp) -> Self {
        Self { at, assignment, node: node.to_owned(), taint: taint.to_owned() }
    }

    /// The time at which the loss was observed.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether the loss concerns the capacity of a tier assignment.
    pub(super) fn concerns(&self, assignment: &TierAssignment) -> bool {
        self.assignment.pod_set == assignment.pod_set && self.assignment.flavor == assignment.flavor
    }

    pub(super) fn message(&self) -> String {
        format!("{} takes node {} back: it has the taint {}", self.assignment.name(), self.node, self.taint)
    }
}
