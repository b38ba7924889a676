//! Queries of control to the runtime, with a separate answer type for each kind of query. Queries change nothing.

use super::{Checkpoint, CheckpointPlace, LeftPod, PodOnNode, PodsOf, StuckPod};

/// A query of control to the runtime. Like a write, a query belongs to an object and a term of leadership, and comes back with an outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// GET of a job's pods that have not ended, answered by [`QueryAnswer::PodsLeft`].
    ProbePods {
        /// Criteria for the pods.
        pods: PodsOf,
        /// Number of pods of the job that may be left.
        most: usize,
    },
    /// GET of some pods of a job that are on no node, and of events about some of these pods, answered by [`QueryAnswer::Stuck`].
    FindStuckPods {
        /// Criteria for the pods.
        pods: PodsOf,
    },
    /// GET of autoscalers' events about pods that are known to be on no node, answered by [`QueryAnswer::Stuck`].
    AskAutoscalers {
        /// The uids and pod sets of the pods that the query is about.
        pods: Vec<(String, StuckPod)>,
    },
    /// GET of the pods on a node that have not ended, answered by [`QueryAnswer::OnNode`].
    FindPodsOnNode,
    /// GET of some of the pods that a job has left behind and that have not ended, answered by [`QueryAnswer::Left`].
    FindLeftPods {
        /// The labels by which pods may name the uid of the job.
        labels: Vec<&'static str>,
        /// Uid of the job.
        uid: String,
    },
    /// GET of the nodes of a job's pods that have not ended, answered by [`QueryAnswer::Nodes`].
    CountNodes {
        /// Criteria for the pods.
        pods: PodsOf,
    },
    /// GET of the object of the task, answered by [`QueryAnswer::Object`], or by the failure [`QueryFailure::Gone`] if the object does not exist.
    ReadObject,
    /// Listing of a job's complete checkpoints in a store, without the API server, answered by [`QueryAnswer::Checkpoints`].
    ListCheckpoints {
        /// Place of the checkpoints.
        place: CheckpointPlace,
    },
}

/// Kinds of queries by the type of their answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// Query whether more pods than allowed have not ended.
    PodsLeft,
    /// Query for the pods that no node takes.
    Stuck,
    /// Query for the pods on a node.
    OnNode,
    /// Query for the pods that a job has left behind.
    Left,
    /// Query for the number of nodes of a job's pods.
    Nodes,
    /// Query for an object.
    Object,
    /// Query for the checkpoints in a store.
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

/// Number of a job's pods that have not ended, compared with the number that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsLeft {
    /// At most the allowed number of pods has not ended.
    Allowed,
    /// More than the allowed number of pods have not ended.
    TooMany,
}

/// Answer to a query: one variant for each [`QueryKind`].
#[derive(Clone, Debug, PartialEq)]
pub enum QueryAnswer {
    /// The answer whether more pods than allowed have not ended.
    PodsLeft(PodsLeft),
    /// The pods for which the scheduler found no node; only some of these pods if there are many.
    Stuck(Vec<StuckPod>),
    /// The pods on a node that have not ended.
    OnNode(Vec<PodOnNode>),
    /// The pods that a job has left behind; only some of these pods if there are many.
    Left(Vec<LeftPod>),
    /// The number of nodes on which the pods of a job run.
    Nodes(usize),
    /// An object as JSON, as a watch would show it.
    Object(Box<str>),
    /// The listing of a checkpoint store, or the reason why the listing failed.
    Checkpoints(Result<Vec<Checkpoint>, String>),
}

impl QueryAnswer {
    /// Kind of the queries that this type of answer belongs to.
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
    /// Status 404: the object does not exist.
    Gone,
    /// The API server refused the query permanently (422, 403, 400): text for the user.
    Refused(String),
    /// The server is too busy, or the object is not readable now: the query may be sent again after this number of milliseconds.
    Busy(u64),
    /// Berth lost the answer: text for the log.
    Lost(String),
    /// The query was not sent, because the leadership term in which it was decided is over.
    NotSent,
}
