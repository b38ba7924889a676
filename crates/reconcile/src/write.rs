//! Tasks of the runtime: writes with their preconditions, queries, and the types that both use.

mod body;
mod checkpoint;
mod lane;
mod pods;
mod purpose;
mod query;
mod task;

use berth_api::labels;
pub use berth_cache::object::{Kind, ObjectKey, ResourceKind, TRAINING_REPORTER, WORKLOADS, cluster_key, key};
pub use berth_lease::Term;
pub(crate) use body::Body;
pub use checkpoint::{Checkpoint, CheckpointPlace, Rank, rank};
pub use lane::Lane;
pub use pods::{LeftPod, PodOnNode, PodsOf};
pub use purpose::Purpose;
pub use query::{PodsLeft, Query, QueryAnswer, QueryFailure, QueryKind};
pub use task::{Action, Packed, Subresource, Task, TaskId, TaskOutcome, Write, WriteOutcome};

/// Reporting controller of events about admission.
pub(crate) const SCHEDULER: &str = labels::FIELD_MANAGER_ADMISSION;

/// A pod for which the scheduler found no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckPod {
    /// Name of the pod's pod set.
    pub pod_set: String,
    /// The scheduler's message about the pod.
    pub message: String,
    /// Message of an autoscaler that creates no node for the pod; `None` if no autoscaler says so, or if no events were queried.
    pub refused: Option<String>,
}

/// Type of a Kubernetes event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// An event of type Normal.
    Normal,
    /// An event of type Warning.
    Warning,
}

/// A Kubernetes event to publish, with the lowest urgency; the runtime may drop the event, and counts dropped events.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Object that the event is about.
    pub key: ObjectKey,
    /// Uid of the object.
    pub uid: String,
    /// Type of the event: Normal or Warning.
    pub event_type: EventType,
    /// Reason of the event.
    pub reason: String,
    /// Message of the event; the runtime cuts the message at 1024 bytes.
    pub message: String,
    /// Name of the reporting controller, as in Kueue.
    pub reporter: &'static str,
}

impl Notice {
    /// Whether the event says why a Workload or its job waits: such an event is of no use after the wait.
    #[must_use]
    pub fn explains_waiting(&self) -> bool {
        // The scheduler's events about a job say why the job waits; its events about flavors, queues, Cohorts and checks report faults.
        let is_reported = match self.key.kind {
            Kind::Workload => self.event_type == EventType::Warning,
            Kind::ResourceFlavor | Kind::Cohort | Kind::AdmissionCheck | Kind::ClusterQueue => false,
            _ => true,
        };
        self.reporter == SCHEDULER && is_reported
    }
}
