//! Tasks of the runtime: each task is a write or a query, and comes back with an outcome.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Body, CheckpointPlace, ObjectKey, PodsOf, Purpose, Query, QueryAnswer, QueryFailure, Term};

/// Identity of a task, unique in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// Part of the object that a patch addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself, without a subresource.
    None,
    /// The subresource `/status`.
    Status,
}

/// A JSON body as text: on a busy server hundreds of writes wait, and parsed JSON needs several times as much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed(Box<str>);

impl Packed {
    /// The JSON body as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The JSON body, parsed.
    ///
    /// # Errors
    /// The body is nested more deeply than serde_json reads, which is 128 levels.
    pub fn value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(&self.0)
    }
}

impl From<Value> for Packed {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

/// A write of control to an object. The bodies of writes have `metadata.uid` and, if the write was derived from a read, `metadata.resourceVersion`.
#[derive(Clone, Debug, PartialEq)]
pub enum Write<Body = Packed> {
    /// Creation of an object by POST.
    Create(Body),
    /// Server-side apply with `force`, under a field manager.
    Apply {
        /// Field manager of the apply.
        manager: &'static str,
        /// Part of the object that the apply addresses.
        subresource: Subresource,
        /// Body of the apply: complete for all fields that the field manager owns in this part of the object.
        body: Body,
    },
    /// RFC 7386 merge patch, under a field manager.
    Merge {
        /// Field manager of the merge patch.
        manager: &'static str,
        /// Part of the object that the merge patch addresses.
        subresource: Subresource,
        /// Body of the merge patch.
        body: Body,
    },
    /// Merge patches of the pods of a job that have not ended, one by one. The outcome of annotating pods is `Applied` if all pods have the annotations, and
    /// `Busy` if the patches need more time.
    AnnotatePods {
        /// Criteria for the pods.
        pods: PodsOf,
        /// Annotations for each pod.
        annotations: BTreeMap<String, String>,
    },
    /// Deletion of checkpoints in a store. The outcome of deleting checkpoints is `Applied` if the checkpoints are gone, and otherwise
    /// [`WriteOutcome::StoreFailed`].
    DeleteCheckpoints {
        /// Place of the checkpoints.
        place: CheckpointPlace,
        /// Ids of the checkpoints to delete.
        ids: Vec<String>,
    },
    /// Deletion of an object by DELETE with a uid precondition.
    Delete {
        /// Uid that the object to delete must still have.
        uid: String,
        /// True if owned objects are deleted before the object, also if finalizers of other clients keep the object (foreground propagation); false if they are
        /// deleted after the object.
        owned_first: bool,
    },
}

impl Write<Body> {
    /// The write with its body as text.
    pub fn pack(self) -> Write {
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

/// The action of a task: a write or a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<Body = Packed> {
    /// A write, which changes an object.
    Write(Write<Body>),
    /// A query, which changes nothing.
    Query(Query),
}

impl<B> Action<B> {
    /// The place in a checkpoint store that the action reads or writes.
    pub fn place(&self) -> Option<&CheckpointPlace> {
        match self {
            Self::Query(Query::ListCheckpoints { place }) | Self::Write(Write::DeleteCheckpoints { place, .. }) => {
                Some(place)
            }
            _ => None,
        }
    }

    /// Whether the action is a query, or is about the pods of a job: while such an action waits, writes to its object do not wait.
    pub const fn spares_its_object(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Write(Write::AnnotatePods { .. }))
    }
}

impl Action<Body> {
    /// The action with its body as text.
    pub fn pack(self) -> Action {
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

/// A task for the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Identity of the task, which the outcome refers to.
    pub id: TaskId,
    /// Term of leadership in which the task was decided.
    pub term: Term,
    /// Purpose of the task.
    pub purpose: Purpose,
    /// Object of the task.
    pub key: ObjectKey,
    /// Write or query of the task.
    pub action: Action,
}

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write was applied.
    Applied {
        /// New resourceVersion of the object, empty after a deletion.
        resource_version: String,
    },
    /// A precondition failed (409 on a patch): control decides again on the newest state.
    Conflict,
    /// A creation found an existing object of the name.
    AlreadyExists,
    /// Status 404, or an object with another uid under the name.
    Gone,
    /// The API server refused the write permanently (422, 403, 400): text for the user.
    Refused(String),
    /// The API server is too busy (429, 503): the write may be sent again after this number of milliseconds.
    Busy(u64),
    /// Time-out or broken connection: the write may or may not have been applied.
    Unknown(String),
    /// A checkpoint store has failed: text for the user.
    StoreFailed(String),
    /// The write was not sent, because the leadership term in which it was decided is over.
    NotSent,
}

/// Outcome of a task: a [`WriteOutcome`] of a write, or an answer or failure of a query. Control treats an outcome of another type than its task's, or an
/// answer of another kind, as a lost outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    /// Outcome of a write.
    Written(WriteOutcome),
    /// Answer to a query, or the reason why there is no answer.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn body_too_deep_to_read_is_an_error() {
        for (levels, is_read) in [(1, true), (100, true), (200, false)] {
            let body = (0..levels).fold(json!({}), |inner, _| json!({"in": inner}));
            let read = Packed::from(body.clone()).value();
            assert_eq!(read.ok(), is_read.then_some(body), "{levels}");
        }
    }
}
