//! Bodies of the writes of decisions. Only builders that know the preconditions construct bodies.

use berth_jobs::{ObjectApply, ObjectPatch};
use serde_json::Value;

/// Body of a write, before the body is packed as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Body(Value);

impl Body {
    /// The body for an object without a uid or version: an object that is created, or that is applied under a name that no other client uses.
    pub(crate) const fn of_new(object: Value) -> Self {
        Self(object)
    }

    /// The body as JSON.
    pub(crate) fn into_value(self) -> Value {
        self.0
    }

    /// A field of the write's body, by its JSON path.
    pub fn pointer(&self, path: &str) -> Option<&Value> {
        self.0.pointer(path)
    }

    /// A mutable field of the write's body, by its JSON path.
    pub(crate) fn pointer_mut(&mut self, path: &str) -> Option<&mut Value> {
        self.0.pointer_mut(path)
    }
}

impl From<ObjectPatch> for Body {
    fn from(patch: ObjectPatch) -> Self {
        Self(patch.into_body())
    }
}

impl From<ObjectApply> for Body {
    fn from(apply: ObjectApply) -> Self {
        Self(apply.into_body())
    }
}
