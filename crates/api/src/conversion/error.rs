//! The reasons why an object cannot be converted.

use std::fmt;

use super::version::both;

/// Reason why an object cannot be converted. The text of the error is a sentence for the user, without the object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversionError {
    /// The object is not a JSON object.
    NoObject,
    /// The `apiVersion` of the object is not one of the two versions v1beta1 and v1beta2.
    Version(String),
    /// The kind of the object is not one of the five kinds whose versions differ.
    Kind(String),
    /// A field of the object cannot be read.
    Field {
        /// Name of the field.
        name: &'static str,
        /// Fault in the JSON of the field.
        fault: String,
    },
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoObject => f.write_str("is not an object"),
            Self::Version(given) => write!(f, "apiVersion {given:?} cannot be converted, {} can", both()),
            Self::Kind(kind) => {
                write!(f, "kind {kind:?} has no conversion: its versions are alike, or it is not of this group")
            }
            Self::Field { name, fault } => write!(f, "{name} cannot be read: {fault}"),
        }
    }
}

impl std::error::Error for ConversionError {}
