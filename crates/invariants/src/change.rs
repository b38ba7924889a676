//! The steps of a history: changes of objects, in the order of their revisions.

use std::time::Duration;

use serde_json::Value;

use crate::kinds::{self, text};

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Revision of the store; orders changes of all kinds.
    pub revision: u64,
    /// Kind of the object.
    pub kind: kinds::Kind,
    /// The new state, or the last one when it was deleted.
    pub object: Value,
    /// True when the object is gone.
    pub deleted: bool,
    /// Time of the change, counted from any moment that is the same for all changes of a history.
    pub at: Duration,
    /// True when some states of this time are missing: a watch had to list again, and shows only the objects that were left at the end.
    /// A blind change adds to the state, and nothing is judged by it.
    pub blind: bool,
}

impl Change {
    /// A change of an object that names its kind and its version, with no state missing before it. `None` if the judge does not read objects of that
    /// kind, or if the version is no number.
    #[must_use]
    pub fn of(object: Value, deleted: bool, at: Duration) -> Option<Change> {
        let kind = kinds::Kind::of(text(&object, "/apiVersion"), text(&object, "/kind"))?;
        let revision = text(&object, "/metadata/resourceVersion").parse().ok()?;
        Some(Change { revision, kind, object, deleted, at, blind: false })
    }
}
