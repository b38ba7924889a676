//! The marker file of a checkpoint, with which a job declares that the checkpoint is complete.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Name of the marker file.
pub(super) const MARKER: &str = "checkpoint.json";
/// Largest size of a marker file in bytes.
pub(super) const MOST_MARKER_BYTES: u64 = 65_536;
/// Largest number of a marker's metadata entries that are shown in the status of a TrainingJob.
const MOST_METADATA: usize = 16;
/// Longest key or value of a marker's metadata that is shown in the status of a TrainingJob.
const MOST_TEXT: usize = 256;
/// Longest id of a checkpoint.
const MOST_ID: usize = 128;

/// The content of a checkpoint's marker file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) step: i64,
    pub(super) epoch: Option<i64>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// The marker file as training code writes it: metadata may be numbers, and the training step may be a float or a text.
#[derive(Deserialize)]
struct Written {
    step: Value,
    #[serde(default)]
    epoch: Value,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

/// Fault of a marker file.
#[derive(Debug, thiserror::Error)]
pub(super) enum MarkerError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("{field} is {value}; a whole number, 0 or more, is allowed")]
    Number { field: &'static str, value: Value },
}

/// A nonnegative integer in any JSON notation.
fn integer(field: &'static str, value: &Value) -> Result<i64, MarkerError> {
    let fault = || MarkerError::Number { field, value: value.clone() };
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_i64().or_else(|| float(number.as_f64()?)),
        _ => None,
    };
    number.filter(|number| *number >= 0).ok_or_else(fault)
}

/// The integer value of a float without a fractional part.
fn float(number: f64) -> Option<i64> {
    // Up to this limit, a 64-bit float represents every integer exactly.
    const MOST: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within bounds")]
    let integer = number as i64;
    (number.fract() == 0.0 && number.abs() <= MOST).then_some(integer)
}

impl Marker {
    /// Reads a marker file, and keeps the metadata entries that are short enough for the status of a TrainingJob.
    pub(super) fn read(text: &[u8]) -> Result<Self, MarkerError> {
        let written: Written = serde_json::from_slice(text)?;
        let step = integer("step", &written.step)?;
        let epoch = (!written.epoch.is_null()).then(|| integer("epoch", &written.epoch)).transpose()?;
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let metadata = written.metadata.into_iter().map(|(key, value)| (key, text(value))).collect();
        let mut marker = Self { step, epoch, metadata };
        let short = |text: &str| text.len() <= MOST_TEXT;
        marker.metadata.retain(|key, value| short(key) && short(value));
        while marker.metadata.len() > MOST_METADATA {
            marker.metadata.pop_last();
        }
        Ok(marker)
    }
}

/// Whether the name of a folder may be the id of a checkpoint.
pub(super) fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
    !text.is_empty() && text.len() <= MOST_ID && !text.starts_with('.') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_accepts_loose_numbers_and_refuses_invalid_step_or_epoch() {
        let read = |text: &str| Marker::read(text.as_bytes());
        let full = read(r#"{"step": 7, "epoch": 2, "metadata": {"loss": "0.1"}, "more": []}"#).unwrap();
        assert_eq!((full.step, full.epoch, full.metadata.len()), (7, Some(2), 1));
        assert_eq!(read(r#"{"step": 0}"#).unwrap().epoch, None);
        let loose =
            read(r#"{"step": "7", "epoch": 2.0, "metadata": {"loss": 0.25, "done": true, "at": {"k": [1]}}}"#).unwrap();
        assert_eq!((loose.step, loose.epoch), (7, Some(2)));
        let shown: Vec<&str> = loose.metadata.values().map(String::as_str).collect();
        assert_eq!(shown, [r#"{"k":[1]}"#, "true", "0.25"]);
        for bad in [
            "",
            "{}",
            r#"{"step": -1}"#,
            r#"{"step": 7.5}"#,
            r#"{"step": "x"}"#,
            r#"{"step": null}"#,
            r#"{"step": 1, "epoch": -1}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let many: BTreeMap<String, String> = (0..40).map(|key| (format!("{key:02}"), "x".into())).collect();
        let text = serde_json::json!({"step": 1, "metadata": many}).to_string();
        assert_eq!(read(&text).unwrap().metadata.len(), MOST_METADATA);
    }

    #[test]
    fn checkpoint_id_that_is_no_plain_name_is_invalid() {
        for good in ["step-100", "checkpoint_7", "7", "epoch=3.ckpt"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", ".", "..", ".tmp", "a/b", "a\\b", "a b", &"x".repeat(129)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
