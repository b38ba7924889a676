//! Queries of control to the runtime, with an answer type of its own for each kind of query. Queries change nothing.

use super::{Checkpoint, CheckpointPlace, LeftPod, PodOnNode, PodsOf, StuckPod};

/// A query. Like a write it belongs to an object, has its turn in a term, and comes back with an outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// GET of pods of a job that have not ended. Answered with [`QueryAnswer::PodsLeft`].
    ProbePods {
        /// Which pods.
        pods: PodsOf,
        /// Number of pods that are allowed.
        most: usize,
    },
    /// GET of some pods of a job that are on no node, and of events about some of them. Answered with [`QueryAnswer::Stuck`].
    FindStuckPods {
        /// Which pods.
        pods: PodsOf,
    },
    /// GET of events about pods that are known to be on no node. Answered with [`QueryAnswer::Stuck`].
    AskAutoscalers {
        /// The pods with their uids.
        pods: Vec<(String, StuckPod)>,
    },
    /// GET of the pods on a node that have not ended. Answered with [`QueryAnswer::OnNode`].
    FindPodsOnNode,
    /// GET of some of the pods that a job has left behind and that have not ended. Answered with [`QueryAnswer::Left`].
    FindLeftPods {
        /// The labels by which pods may name the uid of the job.
        labels: Vec<&'static str>,
        /// That uid.
        uid: String,
    },
    /// GET of the pods of a job that have not ended. Answered with [`QueryAnswer::Nodes`].
    CountNodes {
        /// Which pods.
        pods: PodsOf,
    },
    /// GET of the object itself. Answered with [`QueryAnswer::Object`]; [`QueryFailure::Gone`] where it is not there.
    ReadObject,
    /// Not of the API server: the complete checkpoints of a job. Answered with [`QueryAnswer::Checkpoints`].
    ListCheckpoints {
        /// Where.
        place: CheckpointPlace,
    },
}

/// Kinds of queries by the type of their answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// Whether more pods than allowed have not ended.
    PodsLeft,
    /// Pods that no node takes.
    Stuck,
    /// Pods on a node.
    OnNode,
    /// Pods that a job has left behind.
    Left,
    /// Number of nodes.
    Nodes,
    /// An object.
    Object,
    /// Listing of a store.
    Checkpoints,
}

impl Query {
    /// Kind of the answer that the query expects.
    #[must_use]
    pub const fn kind(&self) -> QueryKind {
        match self {
            Self::ProbePods { .. } => QueryKind::PodsLeft,
            Self::FindStuckPods { .. } | Self::AskAutoscalers { .. } => QueryKind::Stuck,
            Self::FindPodsOnNode => QueryKind::OnNode,
            Self::FindLeftPods { .. } => QueryKind::Left,
            Self::CountNodes { .. } => QueryKind::Nodes,
            Self::ReadObject => QueryKind::Object,
            Self::ListCheckpoints { .. } => QueryKind::Checkpoints,
        }
    }
}

/// Pods of a job that have not ended, compared with the number that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsLeft {
    /// At most the allowed number.
    Allowed,
    /// More.
    TooMany,
}

/// Answer to a query: one variant for each [`QueryKind`].
#[derive(Clone, Debug, PartialEq)]
pub enum QueryAnswer {
    /// Whether more pods than allowed have not ended.
    PodsLeft(PodsLeft),
    /// The pods that the scheduler found no node for, some of them where there are many.
    Stuck(Vec<StuckPod>),
    /// The pods on a node.
    OnNode(Vec<PodOnNode>),
    /// The pods that a job has left behind, some of them where there are many.
    Left(Vec<LeftPod>),
    /// How many nodes the pods of a job are on.
    Nodes(usize),
    /// An object, as JSON, as a watch would show it.
    Object(Box<str>),
    /// The listing of a store, or why it failed.
    Checkpoints(Result<Vec<Checkpoint>, String>),
}

impl QueryAnswer {
    /// Kind of the queries that it answers.
    #[must_use]
    pub const fn kind(&self) -> QueryKind {
        match self {
            Self::PodsLeft(_) => QueryKind::PodsLeft,
            Self::Stuck(_) => QueryKind::Stuck,
            Self::OnNode(_) => QueryKind::OnNode,
            Self::Left(_) => QueryKind::Left,
            Self::Nodes(_) => QueryKind::Nodes,
            Self::Object(_) => QueryKind::Object,
            Self::Checkpoints(_) => QueryKind::Checkpoints,
        }
    }
}

/// Reason why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryFailure {
    /// 404: the object is not there.
    Gone,
    /// Refused for good (422, 403, 400): text for the user.
    Refused(String),
    /// Too busy, or not readable now: again after that many milliseconds.
    Busy(u64),
    /// The answer was lost in Berth: text for the log.
    Lost(String),
    /// Not sent: the term is over.
    NotSent,
}
