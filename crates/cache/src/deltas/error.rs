//! The reasons why a spec cannot be translated for the engine.

use std::fmt;

use berth_quantity::ParseError;

/// Reason why the spec of a ClusterQueue or Cohort, or a label selector, cannot be translated. The text of a `SpecError` begins with the path of the faulty
/// field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// A quota cannot be read.
    Quota {
        /// Path of the quota.
        field: String,
        /// Fault of the quota.
        fault: ParseError,
    },
    /// A requirement of a label selector has an unknown operator.
    Operator {
        /// Label of the requirement.
        key: String,
        /// The unknown operator of a label selector's requirement.
        operator: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { field, fault } => write!(f, "{field}: {fault}"),
            Self::Operator { key, operator } => {
                write!(f, "matchExpressions[{key}].operator {operator:?} must be In, NotIn, Exists or DoesNotExist")
            }
        }
    }
}

impl std::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_error_text_begins_with_the_path() {
        let fault = ParseError::Negative("-1".to_owned());
        let text = format!("spec.a: {fault}");
        for (error, expected) in [
            (SpecError::Quota { field: "spec.a".to_owned(), fault }, text.as_str()),
            (
                SpecError::Operator { key: "k".to_owned(), operator: "Gt".to_owned() },
                "matchExpressions[k].operator \"Gt\" must be In, NotIn, Exists or DoesNotExist",
            ),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
