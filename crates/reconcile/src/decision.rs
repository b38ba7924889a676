//! Result of a decision: a write, a query, an event, or the time of the next decision about the object.

use berth_jobs::{ObjectApply, ObjectPatch};
use jiff::Timestamp;

use crate::write::{Action, Body, Notice, ObjectKey, Purpose, Query, Subresource, Write};

/// A write or query that a decision asks for, before it gets an identity as a task.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The purpose of the write or query.
    pub purpose: Purpose,
    /// The object of the write or query.
    pub key: ObjectKey,
    /// The action that the decision asks for: a write or a query.
    pub action: Action<Body>,
    /// The resourceVersion that the decision was derived from, 0 if the write depends on no version.
    pub based_on: u64,
    /// Events to publish after the API server has applied the write.
    pub notices: Vec<Notice>,
}

impl Draft {
    /// A query about an object.
    pub fn ask(purpose: Purpose, key: ObjectKey, query: Query) -> Self {
        Self { purpose, key, action: query.into(), based_on: 0, notices: Vec::new() }
    }

    /// A write that depends on no version of its object.
    pub(crate) fn of_any_version(purpose: Purpose, key: ObjectKey, write: Write<Body>) -> Self {
        Self { purpose, key, action: write.into(), based_on: 0, notices: Vec::new() }
    }

    /// A merge patch that was derived from a version of its object, 0 for no version. A patch of the status goes to the URL of the status subresource.
    pub fn merge(purpose: Purpose, key: ObjectKey, patch: ObjectPatch, based_on: u64) -> Self {
        Self { based_on, ..Self::of_any_version(purpose, key, merge_patch(MANAGER, patch)) }
    }

    /// The draft of a merge patch or server-side apply, under another field manager.
    pub(crate) fn managed_by(mut self, name: &'static str) -> Self {
        if let Action::Write(Write::Merge { manager, .. } | Write::Apply { manager, .. }) = &mut self.action {
            *manager = name;
        }
        self
    }

    /// The server-side apply of a status under a field manager, derived from a version of its object.
    pub fn apply_status(
        purpose: Purpose,
        key: ObjectKey,
        (manager, body): (&'static str, ObjectApply),
        based_on: u64,
    ) -> Self {
        let write = Write::Apply { manager, subresource: Subresource::Status, body: body.into() };
        Self { based_on, ..Self::of_any_version(purpose, key, write) }
    }

    /// The deletion of the object with a uid; the garbage collector deletes owned objects after their owner.
    pub(crate) fn delete(purpose: Purpose, key: ObjectKey, uid: &str) -> Self {
        Self::of_any_version(purpose, key, Write::Delete { uid: uid.to_owned(), owned_first: false })
    }

    /// The deletion of the object with a uid; the garbage collector deletes owned objects before their owner.
    pub(crate) fn delete_owned_first(purpose: Purpose, key: ObjectKey, uid: &str) -> Self {
        Self::of_any_version(purpose, key, Write::Delete { uid: uid.to_owned(), owned_first: true })
    }

    /// Adds an event to a write.
    pub fn with_event(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }
}

/// Field manager of merge patches: the field manager of Kueue's client.
const MANAGER: &str = "kueue";

fn merge_patch(manager: &'static str, patch: ObjectPatch) -> Write<Body> {
    let subresource = if patch.is_of_status() { Subresource::Status } else { Subresource::None };
    Write::Merge { manager, subresource, body: patch.into() }
}

/// Result of control's decision about an object.
#[derive(Clone, Debug)]
pub enum Decision {
    /// No write or event is needed until an observation changes.
    Done,
    /// Control decides about the object again at a set time.
    Wait(Timestamp),
    /// Control decides about the object again when fewer Workloads are being created.
    WaitForCreations,
    /// Control decides about the object again when another object is created or changes.
    WaitFor(ObjectKey),
    /// A write or query is to be performed.
    Write(Box<Draft>),
    /// An event for the user is to be published, once per text. After a decision that publishes an event, control decides about the object again immediately,
    /// because the object may need a write, too.
    Event(Box<Notice>),
}

impl Decision {
    /// The decision to perform a write or query.
    pub fn write(draft: Draft) -> Self {
        Self::Write(Box::new(draft))
    }

    /// The decision to publish an event.
    pub fn event(notice: Notice) -> Self {
        Self::Event(Box::new(notice))
    }

    /// The decision `first` if there is one that does not only wait; otherwise the decision `next`, evaluated again at the time of `first` at the latest.
    pub(crate) fn first_or_earliest(first: Option<Self>, next: impl FnOnce() -> Self) -> Self {
        match first {
            None => next(),
            Some(Self::Wait(until)) => next().not_later_than(until),
            Some(decision) => decision,
        }
    }

    /// The first decision if it is a write or event, otherwise `next`, evaluated again at the time of the first decision at the latest.
    pub fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        let first = if let Self::Done = self { None } else { Some(self) };
        Self::first_or_earliest(first, next)
    }

    /// The decision, with another evaluation at the given time at the latest.
    pub(crate) fn not_later_than(self, until: Timestamp) -> Self {
        match self {
            Self::Done => Self::Wait(until),
            Self::Wait(at) => Self::Wait(at.min(until)),
            decision => decision,
        }
    }
}
