//! Rules about labels, annotations and tolerations of any object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Toleration;

use super::field_error::FieldError;
use super::names::{domain_prefixed_path, label_value, qualified_name};
use crate::labels::ADMISSION_GATED_BY;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const GATE_LIMIT: usize = 63;

/// Checks the keys and values of labels.
pub(super) fn labels(labels: &BTreeMap<String, String>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        errors.extend(qualified_name(key).map(|wrong| FieldError::new(path, key, wrong)));
        errors.extend(label_value(value).map(|wrong| FieldError::new(format!("{path}[{key}]"), value, wrong)));
    }
}

/// Checks the keys of annotations, whose prefixes may have upper-case letters, and the size of all annotations together.
pub(super) fn annotations(annotations: &BTreeMap<String, String>, path: &str, errors: &mut Vec<FieldError>) {
    for key in annotations.keys() {
        errors.extend(qualified_name(&key.to_lowercase()).map(|wrong| FieldError::new(path, key, wrong)));
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::new(
            path,
            size.to_string(),
            format!("must be no more than {ANNOTATIONS_LIMIT} bytes together"),
        ));
    }
}

/// Checks the keys of tolerations; the schema has the other rules about tolerations.
pub(super) fn tolerations(tolerations: &[Toleration], path: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let key = toleration.key.as_deref().unwrap_or_default();
        if !key.is_empty() {
            errors.extend(qualified_name(key).map(|wrong| FieldError::new(format!("{path}[{index}].key"), key, wrong)));
        }
    }
}

/// The names in the annotation admission-gated-by, in their order; empty if the annotation is absent or empty.
///
/// # Errors
/// Fails if the value has an empty entry, a duplicate, or a name without a domain prefix or of more than 63 bytes.
pub fn admission_gates(annotations: &BTreeMap<String, String>) -> Result<Vec<&str>, FieldError> {
    let Some(value) = annotations.get(ADMISSION_GATED_BY).filter(|value| !value.is_empty()) else {
        return Ok(Vec::new());
    };
    let refuse =
        |message: String| FieldError::new(format!("metadata.annotations[{ADMISSION_GATED_BY}]"), value, message);
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for name in value.split(',').map(str::trim) {
        if name.is_empty() {
            return Err(refuse("must not have empty entries".into()));
        }
        if name.len() > GATE_LIMIT {
            return Err(refuse(format!("{name:?} must be no more than {GATE_LIMIT} characters")));
        }
        if let Some(wrong) = domain_prefixed_path(name) {
            return Err(refuse(format!("{name:?}: {wrong}")));
        }
        if !seen.insert(name) {
            return Err(refuse(format!("{name:?} is listed twice")));
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_gates_annotation_is_parsed_or_refused_with_reason() {
        let read = |value: &str| {
            let annotations = BTreeMap::from([(ADMISSION_GATED_BY.to_owned(), value.to_owned())]);
            admission_gates(&annotations).map(|names| names.join("|")).map_err(|error| error.message)
        };
        assert_eq!(admission_gates(&BTreeMap::new()), Ok(Vec::new()));
        assert_eq!(read(""), Ok(String::new()));
        assert_eq!(read("a.io/x"), Ok("a.io/x".into()));
        assert_eq!(read("a.io/x,b.io/y"), Ok("a.io/x|b.io/y".into()));
        // Kueue accepts the gate names `a.io/team/x` and `a.io/_x~1`, although they are not valid label keys.
        assert_eq!(read("a.io/team/x, a.io/_x~1"), Ok("a.io/team/x|a.io/_x~1".into()));
        for (bad, word) in
            [("a.io/x,", "empty"), ("x", "domain"), ("a.io/x,a.io/x", "twice"), ("A/x", "prefix"), ("a.io/x y", "path")]
        {
            assert!(read(bad).unwrap_err().contains(word), "{bad}");
        }
        assert!(read(&format!("a.io/{}", "x".repeat(60))).unwrap_err().contains("63"));
    }
}
