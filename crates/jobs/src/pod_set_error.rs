//! The reasons why no pod sets can be made of a job.

/// Reason why no pod sets can be made of a job, of a pod or of a StatefulSet. The error's text names the wrong field or annotation, and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodSetError {
    /// A field of the job that is needed to make its pod sets is missing; `0` is the field's path.
    #[error("{0}: missing")]
    Missing(String),
    /// The parallelism, completions or another number of pods in the object's spec is negative.
    #[error("spec.{field}: {given} must be greater than or equal to 0")]
    Negative {
        /// Name of the field in `spec`.
        field: &'static str,
        /// Value of the field.
        given: i32,
    },
    /// A number of pods in a replicated job of a JobSet is negative, or no number; `0` is the index of the replicated job.
    #[error(
        "spec.replicatedJobs[{0}]: replicas, parallelism and completions must be whole numbers greater than or equal to 0"
    )]
    Counts(usize),
    /// A field of the object, such as a pod template, does not decode as its type.
    #[error("{field}: {fault}")]
    Field {
        /// Path of the field.
        field: String,
        /// Fault of the field.
        fault: String,
    },
    /// The text of an annotation does not parse as the annotation's type, such as a number.
    #[error("annotation {key}: {text:?}: {fault}")]
    Annotation {
        /// Key of the annotation.
        key: &'static str,
        /// Text of the annotation.
        text: String,
        /// Fault of the text.
        fault: String,
    },
    /// The text of an annotation that must be a boolean is neither true nor false.
    #[error("annotation {key}: {text:?} is not true or false")]
    NoBool {
        /// Key of the annotation.
        key: &'static str,
        /// Text of the annotation.
        text: String,
    },
    /// The annotation with the smallest accepted number of pods is not a number from 1 to the pod set's number of pods.
    #[error("annotation {key}: {text:?} is not a number from 1 to {most}")]
    OutOfRange {
        /// Key of the annotation.
        key: &'static str,
        /// Text of the annotation.
        text: String,
        /// Largest allowed number.
        most: i32,
    },
    /// A pod group has no pods.
    #[error("the group has no pods")]
    NoPods,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_set_error_text_names_field_and_value() {
        let (key, text) = ("a/b", "x".to_owned());
        for (error, expected) in [
            (PodSetError::Missing("spec".to_owned()), "spec: missing"),
            (
                PodSetError::Negative { field: "parallelism", given: -1 },
                "spec.parallelism: -1 must be greater than or equal to 0",
            ),
            (
                PodSetError::Counts(2),
                "spec.replicatedJobs[2]: replicas, parallelism and completions must be whole numbers greater than or equal to 0",
            ),
            (PodSetError::Field { field: "spec.a".to_owned(), fault: "bad".to_owned() }, "spec.a: bad"),
            (
                PodSetError::Annotation { key, text: text.clone(), fault: "bad".to_owned() },
                "annotation a/b: \"x\": bad",
            ),
            (PodSetError::NoBool { key, text: text.clone() }, "annotation a/b: \"x\" is not true or false"),
            (PodSetError::OutOfRange { key, text, most: 3 }, "annotation a/b: \"x\" is not a number from 1 to 3"),
            (PodSetError::NoPods, "the group has no pods"),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
