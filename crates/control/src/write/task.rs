//! Tasks of the runtime: each is a write or a query, and comes back with an outcome.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Body, CheckpointPlace, ObjectKey, PodsOf, Purpose, Query, QueryAnswer, QueryFailure, Term};

/// Identity of a task, unique in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// Part of the object that a patch addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    None,
    /// `/status`.
    Status,
}

/// A JSON body as text: on a busy server writes wait by the hundred, and a tree of values takes several times as much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed(Box<str>);

impl Packed {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tree.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<Value> for Packed {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

/// A write. Bodies carry `metadata.uid` and, when derived from a read, `metadata.resourceVersion`.
#[derive(Clone, Debug, PartialEq)]
pub enum Write<Body = Packed> {
    /// POST.
    Create(Body),
    /// Server-side apply with `force`, under a field manager.
    Apply {
        /// Field manager.
        manager: &'static str,
        /// Addressed part.
        subresource: Subresource,
        /// Body: complete for everything the manager owns there.
        body: Body,
    },
    /// RFC 7386 merge patch, under a field manager.
    Merge {
        /// Field manager.
        manager: &'static str,
        /// Addressed part.
        subresource: Subresource,
        /// Body.
        body: Body,
    },
    /// Merge patches of the pods of a job that have not ended, one by one. `Applied` when all carry the annotations, `Busy` when
    /// that takes more time.
    AnnotatePods {
        /// Which pods.
        pods: PodsOf,
        /// Annotations.
        annotations: BTreeMap<String, String>,
    },
    /// Deletes checkpoints in a store. `Applied` when they are gone, else [`WriteOutcome::StoreFailed`].
    DeleteCheckpoints {
        /// Where.
        place: CheckpointPlace,
        /// Which.
        ids: Vec<String>,
    },
    /// DELETE with a uid precondition.
    Delete {
        /// Uid that must still be the object's.
        uid: String,
        /// Objects that it owns go before it, also where finalizers of others keep it (foreground propagation); else after it.
        owned_first: bool,
    },
}

impl Write<Body> {
    pub(crate) fn pack(self) -> Write {
        match self {
            Self::Create(body) => Write::Create(body.into_value().into()),
            Self::Apply { manager, subresource, body } => {
                Write::Apply { manager, subresource, body: body.into_value().into() }
            }
            Self::Merge { manager, subresource, body } => {
                Write::Merge { manager, subresource, body: body.into_value().into() }
            }
            Self::AnnotatePods { pods, annotations } => Write::AnnotatePods { pods, annotations },
            Self::DeleteCheckpoints { place, ids } => Write::DeleteCheckpoints { place, ids },
            Self::Delete { uid, owned_first } => Write::Delete { uid, owned_first },
        }
    }
}

/// The action of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<Body = Packed> {
    /// A change.
    Write(Write<Body>),
    /// A query, which changes nothing.
    Query(Query),
}

impl<B> Action<B> {
    /// The place in a store that the action goes to.
    pub(crate) fn place(&self) -> Option<&CheckpointPlace> {
        match self {
            Self::Query(Query::ListCheckpoints { place }) | Self::Write(Write::DeleteCheckpoints { place, .. }) => {
                Some(place)
            }
            _ => None,
        }
    }

    /// Whether the action reads, or is about the pods of a job: when it has to wait, writes to its object do not.
    pub(crate) const fn spares_its_object(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Write(Write::AnnotatePods { .. }))
    }
}

impl Action<Body> {
    pub(crate) fn pack(self) -> Action {
        match self {
            Self::Write(write) => Action::Write(write.pack()),
            Self::Query(query) => Action::Query(query),
        }
    }
}

impl<B> From<Write<B>> for Action<B> {
    fn from(write: Write<B>) -> Self {
        Self::Write(write)
    }
}

impl<B> From<Query> for Action<B> {
    fn from(query: Query) -> Self {
        Self::Query(query)
    }
}

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Identity; its outcome comes back under it.
    pub id: TaskId,
    /// Term of the decision.
    pub term: Term,
    /// Why.
    pub purpose: Purpose,
    /// Object.
    pub key: ObjectKey,
    /// Action.
    pub action: Action,
}

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Done; the resourceVersion of the object afterwards (empty after a delete).
    Applied {
        /// New resourceVersion.
        resource_version: String,
    },
    /// Precondition failed (409 on patch): decide again on the newest state.
    Conflict,
    /// Create found an object of that name.
    AlreadyExists,
    /// 404, or another uid under that name.
    Gone,
    /// Refused for good (422, 403, 400): text for the user.
    Refused(String),
    /// Too busy (429, 503): again after that many milliseconds.
    Busy(u64),
    /// Time-out or broken connection: the write may or may not have happened.
    Unknown(String),
    /// A store of checkpoints has failed: text for the user.
    StoreFailed(String),
    /// Not sent: the term is over.
    NotSent,
}

/// Outcome of a task: a [`WriteOutcome`] of a write, an answer or a failure of a query. Control takes an outcome of another type than its task's, or an
/// answer of another kind, as a lost one.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    /// Outcome of a write.
    Written(WriteOutcome),
    /// Answer to a query, or why there is none.
    Answered(Result<QueryAnswer, QueryFailure>),
}

impl From<WriteOutcome> for TaskOutcome {
    fn from(outcome: WriteOutcome) -> Self {
        Self::Written(outcome)
    }
}

impl From<QueryAnswer> for TaskOutcome {
    fn from(answer: QueryAnswer) -> Self {
        Self::Answered(Ok(answer))
    }
}

impl From<QueryFailure> for TaskOutcome {
    fn from(failure: QueryFailure) -> Self {
        Self::Answered(Err(failure))
    }
}
