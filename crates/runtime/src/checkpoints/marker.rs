//! The file by which a job says that a checkpoint is complete.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Its name.
pub(super) const MARKER: &str = "checkpoint.json";
/// Its longest size.
pub(super) const MOST_MARKER_BYTES: u64 = 65_536;
/// Entries of its metadata that are shown.
const MOST_METADATA: usize = 16;
/// Longest key or value of its metadata.
const MOST_TEXT: usize = 256;
/// Longest name of a checkpoint.
const MOST_ID: usize = 128;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Marker {
    pub(super) step: i64,
    #[serde(default)]
    pub(super) epoch: Option<i64>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

impl Marker {
    /// Reads one; of its metadata what is short enough to be shown.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let mut marker: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if marker.step < 0 || marker.epoch.is_some_and(|epoch| epoch < 0) {
            return Err(format!("step {} and epoch {:?} must be 0 or more", marker.step, marker.epoch));
        }
        let short = |text: &str| text.len() <= MOST_TEXT;
        marker.metadata.retain(|key, value| short(key) && short(value));
        while marker.metadata.len() > MOST_METADATA {
            marker.metadata.pop_last();
        }
        Ok(marker)
    }
}

/// Whether a folder may be a checkpoint: a plain name.
pub(super) fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte);
    !text.is_empty() && text.len() <= MOST_ID && !text.starts_with('.') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_say_a_step() {
        let read = |text: &str| Marker::read(text.as_bytes());
        let full = read(r#"{"step": 7, "epoch": 2, "metadata": {"loss": "0.1"}, "more": []}"#).unwrap();
        assert_eq!((full.step, full.epoch, full.metadata.len()), (7, Some(2), 1));
        assert_eq!(read(r#"{"step": 0}"#).unwrap().epoch, None);
        for bad in ["", "{}", r#"{"step": -1}"#, r#"{"step": "7"}"#, r#"{"step": 1, "epoch": -1}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let many: BTreeMap<String, String> = (0..40).map(|key| (format!("{key:02}"), "x".into())).collect();
        let text = serde_json::json!({"step": 1, "metadata": many}).to_string();
        assert_eq!(read(&text).unwrap().metadata.len(), MOST_METADATA);
    }

    #[test]
    fn names_lead_nowhere_else() {
        for good in ["step-100", "checkpoint_7", "7", "epoch=3.ckpt"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", ".", "..", ".tmp", "a/b", "a\\b", "a b", &"x".repeat(129)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
