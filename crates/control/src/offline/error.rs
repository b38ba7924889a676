//! The reasons why control without a cluster does not take an object or manifest.

use std::fmt;

use berth_api::conversion::ConversionError;
use berth_reconcile::write::Kind;

/// Reason why control without a cluster does not take a manifest or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// A part of the object does not have the form of its kind.
    Malformed {
        /// Path of the part; empty if the path is not known.
        path: String,
        /// Fault of the part.
        fault: String,
    },
    /// Berth does not read the `apiVersion` of the object.
    Version {
        /// The `apiVersion` of the object.
        given: String,
        /// The API versions of the kind that Berth reads, joined by `or`.
        read: String,
    },
    /// The object cannot be converted to the version that the API server stores.
    Conversion(ConversionError),
    /// Control without a cluster takes no object of this kind.
    UnknownKind(String),
    /// An object of the kind has no pods to create.
    NoPods(Kind),
}

impl ObjectError {
    /// Path of the part of the object that is at fault; empty if no single part is, or if the path is not known.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Malformed { path, .. } => path,
            Self::Version { .. } => "apiVersion",
            Self::Conversion(_) | Self::UnknownKind(_) | Self::NoPods(_) => "",
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { path, fault } if path.is_empty() => f.write_str(fault),
            Self::Malformed { path, fault } => write!(f, "{path}: {fault}"),
            Self::Version { given, read } => write!(f, "apiVersion: {given:?} is not read, {read} is"),
            Self::Conversion(error) => fmt::Display::fmt(error, f),
            Self::UnknownKind(kind) => write!(f, "unknown kind {kind:?}"),
            Self::NoPods(kind) => write!(f, "a {} has no pods of its own", kind.name()),
        }
    }
}

impl std::error::Error for ObjectError {}

impl From<serde_json::Error> for ObjectError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed { path: String::new(), fault: error.to_string() }
    }
}

impl From<ConversionError> for ObjectError {
    fn from(error: ConversionError) -> Self {
        Self::Conversion(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_error_begins_with_the_path_of_the_fault() {
        let malformed = |path: &str| ObjectError::Malformed { path: path.to_owned(), fault: "is bad".to_owned() };
        let version = ObjectError::Version { given: "a/v2".to_owned(), read: "a/v1 or a/v0".to_owned() };
        for (error, path, text) in [
            (malformed("spec.a b"), "spec.a b", "spec.a b: is bad"),
            (malformed(""), "", "is bad"),
            (version, "apiVersion", "apiVersion: \"a/v2\" is not read, a/v1 or a/v0 is"),
            (ConversionError::NoObject.into(), "", "is not an object"),
            (ObjectError::UnknownKind("Queue".to_owned()), "", "unknown kind \"Queue\""),
            (ObjectError::NoPods(Kind::Workload), "", "a Workload has no pods of its own"),
        ] {
            assert_eq!((error.path(), error.to_string().as_str()), (path, text));
        }
    }
}
