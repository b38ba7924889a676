//! Planted bugs: each bug alters the data that a process receives, sends or relies on, so that a test can show that the simulation finds the bug.
//!
//! Control itself has no switch for bugs: a bug inside control or the engine takes a patch of its sources.

use berth_control::event::{Change, Observation};
use berth_control::write::{Action, Packed, Task, TaskOutcome, Write, WriteOutcome};
use serde_json::{Value, json};

use crate::api_server::ApiServer;

/// A planted bug of a process, outside of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The writer sends a write without a check that the process still leads in the write's term.
    DroppedTermCheck,
    /// The writer ignores the end of the lease, and the process leads on after that end.
    OutlivedLease,
    /// A new leader decides on lists from before its election.
    StaleLists,
    /// A list shows a state that is some revisions old.
    StaleRelist,
    /// The end of a list does not say which objects are gone.
    KeptGone,
    /// Some changes of objects never reach the process.
    LostWakeUp,
    /// Patches have no preconditions.
    NoPreconditions,
    /// A deletion applies to any object that has the name now.
    NoUidOfDeletion,
    /// A write without an answer counts as a write that was not applied.
    UnknownTakenForRefused,
    /// Reservations are charged twice.
    DoubleCharge,
    /// Reservations are charged with half of their amounts.
    HalfCharge,
    /// The query about pods that are left always gets the answer that no pods are left.
    ForgottenPods,
}

impl Planted {
    /// All planted bugs.
    pub const ALL: [Self; 12] = [
        Self::DroppedTermCheck,
        Self::OutlivedLease,
        Self::StaleLists,
        Self::StaleRelist,
        Self::KeptGone,
        Self::LostWakeUp,
        Self::NoPreconditions,
        Self::NoUidOfDeletion,
        Self::UnknownTakenForRefused,
        Self::DoubleCharge,
        Self::HalfCharge,
        Self::ForgottenPods,
    ];

    /// The task in the form in which a process with the planted bug sends it.
    pub(super) fn sent(self, mut task: Task, api: &ApiServer) -> Task {
        match (self, &mut task.action) {
            (Self::NoPreconditions, Action::Write(Write::Apply { body, .. } | Write::Merge { body, .. })) => {
                let mut value = body.value().expect("a JSON body");
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    metadata.remove("uid");
                    metadata.remove("resourceVersion");
                }
                *body = Packed::from(value);
            }
            (Self::NoUidOfDeletion, Action::Write(Write::Delete { uid, .. })) => {
                let there = api.get(&task.key).and_then(|object| object["metadata"]["uid"].as_str());
                if let Some(there) = there {
                    there.clone_into(uid);
                }
            }
            _ => {}
        }
        task
    }

    /// The outcome in the form in which a process with the planted bug receives it.
    pub(super) fn taken(self, outcome: TaskOutcome) -> TaskOutcome {
        match (self, outcome) {
            (Self::UnknownTakenForRefused, TaskOutcome::Written(WriteOutcome::Unknown(_))) => {
                WriteOutcome::Busy(100).into()
            }
            (_, outcome) => outcome,
        }
    }

    /// Changes an object into the form in which a process with the planted bug reads it.
    pub(super) fn read(self, object: &mut Value) {
        let (times, by) = match self {
            Self::DoubleCharge => (2, 1),
            Self::HalfCharge => (1, 2),
            _ => return,
        };
        let sets = object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
        for set in sets.into_iter().flatten() {
            let usage = set.get_mut("resourceUsage").and_then(Value::as_object_mut);
            for amount in usage.into_iter().flat_map(|map| map.values_mut()) {
                if let Some(cpus) = amount.as_str().and_then(|text| text.parse::<i64>().ok()) {
                    *amount = json!(format!("{}m", cpus * 1_000 * times / by));
                }
            }
        }
    }

    /// Whether a process with the planted bug handles an observation.
    pub(super) const fn takes(self, observation: &Observation) -> bool {
        !(matches!(self, Self::KeptGone) && is_end_of_list(observation))
    }
}

const fn is_end_of_list(observation: &Observation) -> bool {
    matches!(
        observation,
        Observation::Job(_, Change::Only(_))
            | Observation::Workload(Change::Only(_))
            | Observation::ClusterQueue(Change::Only(_))
            | Observation::LocalQueue(Change::Only(_))
            | Observation::TrainingJob(Change::Only(_))
            | Observation::Pod(Change::Only(_))
            | Observation::JobPod(Change::Only(_))
    )
}
