//! Labels of a series in compact form, because a cluster of a thousand queues has fifty thousand series.

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use std::fmt;

/// Separator between the key and the value of a metric label in the packed text.
const KEY_END: char = '\u{1f}';
/// Separator after the value of each metric label in the packed text.
const PAIR_END: char = '\u{1e}';

/// Labels of one metric series, sorted by key, in one text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Labels(Box<str>);

impl Labels {
    /// Packs the labels of a metric series into one text. The separators [`KEY_END`] and [`PAIR_END`] occur in no key and no value of a label.
    pub(super) fn of<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut pairs: Vec<(&str, &str)> = labels.into_iter().collect();
        pairs.sort_unstable();
        let mut text = String::with_capacity(pairs.iter().map(|(key, value)| key.len() + value.len() + 2).sum());
        for (key, value) in pairs {
            text.push_str(key);
            text.push(KEY_END);
            text.extend(value.chars().map(|c| if matches!(c, KEY_END | PAIR_END) { ' ' } else { c }));
            text.push(PAIR_END);
        }
        Self(text.into_boxed_str())
    }

    /// Keys and values of the series' labels, sorted by key.
    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split_terminator(PAIR_END).filter_map(|pair| pair.split_once(KEY_END))
    }

    /// The values of the series' labels with the given keys; `None` if the series lacks one of these labels.
    pub(super) fn values(&self, keys: &[&str]) -> Option<Vec<&str>> {
        keys.iter().map(|wanted| self.pairs().find(|(key, _)| key == wanted).map(|(_, value)| value)).collect()
    }
}

/// Labels of a metric series with one more label, which is inserted in the order of keys.
#[derive(Debug)]
pub(super) struct With<'a>(pub(super) &'a Labels, pub(super) Option<(&'static str, &'static str)>);

impl With<'_> {
    /// Whether the metric series has no labels.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.0.is_empty() && self.1.is_none()
    }
}

impl EncodeLabelSet for With<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let mut more = self.1;
        for pair in self.0.pairs() {
            if let Some(extra) = more.take_if(|extra| extra.0 < pair.0) {
                extra.encode(encoder.encode_label())?;
            }
            pair.encode(encoder.encode_label())?;
        }
        more.map_or(Ok(()), |extra| extra.encode(encoder.encode_label()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_labels_are_sorted_and_found_by_name() {
        let labels = Labels::of([("status", "active"), ("cluster_queue", "a")]);
        assert_eq!(labels, Labels::of([("cluster_queue", "a"), ("status", "active")]));
        assert_eq!(labels.pairs().collect::<Vec<_>>(), [("cluster_queue", "a"), ("status", "active")]);
        assert_eq!(labels.values(&["status", "cluster_queue"]), Some(vec!["active", "a"]));
        assert_eq!((labels.values(&["status", "cluster"]), labels.values(&[])), (None, Some(Vec::new())));
    }

    #[test]
    fn metric_label_keeps_any_text_and_replaces_separator_characters() {
        for value in ["", "a\u{1e}b\u{1f}c", "\"\\\n", "ü"] {
            let labels = Labels::of([("a", value), ("b", "")]);
            let shown = value.replace(['\u{1e}', '\u{1f}'], " ");
            assert_eq!(labels.pairs().collect::<Vec<_>>(), [("a", shown.as_str()), ("b", "")]);
        }
        assert_eq!(Labels::of([]).pairs().count(), 0);
    }
}
