//! Result of a decision: the write that it asks for, or the time of the next look.

use berth_jobs::{ObjectApply, ObjectPatch};
use jiff::Timestamp;

use crate::write::{Action, Body, Notice, ObjectKey, Purpose, Query, Subresource, Write};

/// A decision to write, before it has an identity.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) purpose: Purpose,
    pub(crate) key: ObjectKey,
    pub(crate) action: Action<Body>,
    /// resourceVersion the decision was derived from, 0 if none.
    pub(crate) based_on: u64,
    /// Events to publish once it is applied.
    pub(crate) notices: Vec<Notice>,
}

impl Draft {
    /// A query, registered on that object.
    pub(crate) fn ask(purpose: Purpose, key: ObjectKey, query: Query) -> Self {
        Self { purpose, key, action: query.into(), based_on: 0, notices: Vec::new() }
    }

    /// A write that depends on no version of its object.
    pub(crate) fn of_any_version(purpose: Purpose, key: ObjectKey, write: Write<Body>) -> Self {
        Self { purpose, key, action: write.into(), based_on: 0, notices: Vec::new() }
    }

    /// A merge patch that was derived from that version of its object, 0 if none. A patch of the status goes to the URL of the status.
    pub(crate) fn merge(purpose: Purpose, key: ObjectKey, patch: ObjectPatch, based_on: u64) -> Self {
        Self { based_on, ..Self::of_any_version(purpose, key, merge_patch(MANAGER, patch)) }
    }

    /// As [`Self::merge`], under the field manager of that name.
    pub(crate) fn managed_by(mut self, name: &'static str) -> Self {
        if let Action::Write(Write::Merge { manager, .. } | Write::Apply { manager, .. }) = &mut self.action {
            *manager = name;
        }
        self
    }

    /// The server-side apply of a status under the field manager of that name, derived from that version of its object.
    pub(crate) fn apply_status(
        purpose: Purpose,
        key: ObjectKey,
        (manager, body): (&'static str, ObjectApply),
        based_on: u64,
    ) -> Self {
        let write = Write::Apply { manager, subresource: Subresource::Status, body: body.into() };
        Self { based_on, ..Self::of_any_version(purpose, key, write) }
    }

    /// The deletion of the object of that uid; objects that it owns go after it.
    pub(crate) fn delete(purpose: Purpose, key: ObjectKey, uid: &str) -> Self {
        Self::of_any_version(purpose, key, Write::Delete { uid: uid.to_owned(), owned_first: false })
    }

    /// The deletion of the object of that uid; objects that it owns go before it.
    pub(crate) fn delete_owned_first(purpose: Purpose, key: ObjectKey, uid: &str) -> Self {
        Self::of_any_version(purpose, key, Write::Delete { uid: uid.to_owned(), owned_first: true })
    }

    /// Adds an event to the write.
    pub(crate) fn telling(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }
}

/// Field manager of merge patches, the one of Kueue's client.
const MANAGER: &str = "kueue";

fn merge_patch(manager: &'static str, patch: ObjectPatch) -> Write<Body> {
    let subresource = if patch.is_of_status() { Subresource::Status } else { Subresource::None };
    Write::Merge { manager, subresource, body: patch.into() }
}

/// Result of a decision.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Nothing to do until something changes.
    Done,
    /// Look again at that time.
    Wait(Timestamp),
    /// Look again when fewer Workloads are being created.
    WaitForCreations,
    /// Look again when this object comes or changes.
    WaitFor(ObjectKey),
    /// Write.
    Write(Box<Draft>),
    /// An event for the user, once per text. The object is looked at again at once, for anything else there is to do.
    Tell(Box<Notice>),
}

impl Decision {
    pub(crate) fn write(draft: Draft) -> Self {
        Self::Write(Box::new(draft))
    }

    pub(crate) fn tell(notice: Notice) -> Self {
        Self::Tell(Box::new(notice))
    }

    /// The decision `first`; where that is `None`, or only waits, the decision `next`, looked at again not later than `first` wants it.
    pub(crate) fn first_or_earliest(first: Option<Self>, next: impl FnOnce() -> Self) -> Self {
        match first {
            None => next(),
            Some(Self::Wait(until)) => next().not_later_than(until),
            Some(decision) => decision,
        }
    }

    /// The first decision if it does something, else `next`, looked at again not later than the first one asks for.
    pub(crate) fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        let first = if let Self::Done = self { None } else { Some(self) };
        Self::first_or_earliest(first, next)
    }

    /// The decision, with another evaluation at that time at the latest.
    pub(crate) fn not_later_than(self, until: Timestamp) -> Self {
        match self {
            Self::Done => Self::Wait(until),
            Self::Wait(at) => Self::Wait(at.min(until)),
            decision => decision,
        }
    }
}
