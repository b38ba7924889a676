//! Keys of objects by their names.

use super::{Kind, ObjectKey};

/// The key of an object by its namespace and name.
pub(crate) fn key(kind: Kind, name: &(String, String)) -> ObjectKey {
    ObjectKey { kind, namespace: name.0.clone(), name: name.1.clone() }
}

/// The key of an object without a namespace.
pub(crate) fn cluster_key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: String::new(), name: name.to_owned() }
}
