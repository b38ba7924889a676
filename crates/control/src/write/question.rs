//! Questions of control to the runtime. They change nothing.

use super::{CheckpointPlace, PodsOf, StuckPod};

/// A question. Like a write it belongs to an object, has its turn in a term, and comes back with an outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// GET of pods of a job that have not ended. `Applied` when there are no more than allowed, `Busy` while there are.
    ProbePods {
        /// Which pods.
        pods: PodsOf,
        /// Number of pods that are allowed.
        most: usize,
    },
    /// GET of some pods of a job that are on no node, and of events about some of them. Answered with [`super::Outcome::Stuck`].
    FindStuckPods {
        /// Which pods.
        pods: PodsOf,
    },
    /// GET of events about pods that are known to be on no node. Answered with [`super::Outcome::Stuck`].
    AskAutoscalers {
        /// The pods with their uids.
        pods: Vec<(String, StuckPod)>,
    },
    /// GET of the pods on a node that have not ended. Answered with [`super::Outcome::OnNode`].
    FindPodsOnNode,
    /// GET of some of the pods that a job has left behind and that have not ended. Answered with [`super::Outcome::Left`].
    FindLeftPods {
        /// The labels by which pods may name the uid of the job.
        labels: Vec<&'static str>,
        /// That uid.
        uid: String,
    },
    /// GET of the pods of a job that have not ended. Answered with [`super::Outcome::Nodes`].
    CountNodes {
        /// Which pods.
        pods: PodsOf,
    },
    /// GET of the object itself. Answered with [`super::Outcome::Object`], or [`super::Outcome::Gone`] where it is not there.
    ReadObject,
    /// Not of the API server: the complete checkpoints of a job. Answered with [`super::Outcome::Checkpoints`].
    ListCheckpoints {
        /// Where.
        place: CheckpointPlace,
    },
}
