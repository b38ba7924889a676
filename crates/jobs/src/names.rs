//! Names that Kueue's users and tools compute themselves, so Berth must compute equal names.

use sha1::{Digest, Sha1};
use std::fmt::Write as _;

/// Longest name of an object that is a DNS-1123 subdomain.
const MAX_NAME: usize = 253;
const HASH_DIGITS: usize = 5;

/// Name of the Workload of a job, in the form `<kind>-<owner name>-<hash>` with at most 253 characters. The hash in the name is the beginning of the SHA-1 of
/// kind, API group, name and UID, so that a job re-created under an earlier name gets another Workload.
#[must_use]
pub fn workload_name(kind: &str, group: &str, owner_name: &str, uid: &str) -> String {
    let mut name = format!("{}-{owner_name}", kind.to_lowercase());
    let mut end = MAX_NAME - 1 - HASH_DIGITS;
    while !name.is_char_boundary(end.min(name.len())) {
        end -= 1;
    }
    name.truncate(end);
    name.push('-');
    name.push_str(&hash(&format!("{kind}\n{group}\n{owner_name}\n{uid}")));
    name
}

/// A name within the length limit: a longer name is cut and gets the beginning of its SHA-1 as suffix.
pub(crate) fn cut_name(mut name: String) -> String {
    let most = MAX_NAME - 1 - HASH_DIGITS;
    if name.len() > most {
        let digits = hash(&name);
        let end = (0..=most).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
        name.truncate(end);
        name.push('-');
        name.push_str(&digits);
    }
    name
}

/// A short suffix from an object's uid, which differs between successive objects of one name.
pub(crate) fn uid_suffix(uid: &str) -> String {
    hash(uid)
}

fn hash(text: &str) -> String {
    let digest = Sha1::digest(text);
    let mut hex = String::with_capacity(HASH_DIGITS + 1);
    for byte in digest.iter().take(HASH_DIGITS.div_ceil(2)) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex.truncate(HASH_DIGITS);
    hex
}

/// Whether `text` is a valid label value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_part(text)
}

/// Whether `text` is a valid label key: an optional DNS-1123 subdomain with a slash, and a name.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_qualified_part(text),
        Some((prefix, name)) => {
            let domain = |part: &str| {
                let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
                let bytes = part.as_bytes();
                edge(bytes.first())
                    && edge(bytes.last())
                    && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
            };
            prefix.len() <= MAX_NAME && prefix.split('.').all(domain) && is_qualified_part(name)
        }
    }
}

fn is_qualified_part(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_name_matches_hash_computed_by_python() {
        let long = "a".repeat(250);
        let cases = [
            ("Job", "batch", "sample", "7b1d6f8a-1111-4222-8333-444455556666", "job-sample-fb8ff".to_owned()),
            ("JobSet", "jobset.x-k8s.io", "js", "u1", "jobset-js-5a95d".to_owned()),
            ("Pod", "", "p", "u3", "pod-p-faf6c".to_owned()),
            ("Job", "batch", &long, "u2", format!("job-{}-d7bb8", "a".repeat(243))),
        ];
        for (kind, group, name, uid, expected) in cases {
            assert_eq!(workload_name(kind, group, name, uid), expected);
        }
        assert_eq!(workload_name("Job", "batch", &long, "u2").len(), 253);
    }

    #[test]
    fn label_values_and_keys_follow_kubernetes_syntax() {
        for (text, value, key) in [
            ("", true, false),
            ("a", true, true),
            ("a.b_c-d", true, true),
            ("-a", false, false),
            ("a-", false, false),
            ("a/b", false, true),
            ("cloud.google.com/gke-spot", false, true),
            ("Cloud.google.com/gke-spot", false, false),
            ("a b", false, false),
            ("a//b", false, false),
        ] {
            assert_eq!(is_label_value(text), value, "value {text:?}");
            assert_eq!(is_label_key(text), key, "key {text:?}");
        }
        assert!(is_label_value(&"a".repeat(63)));
        assert!(!is_label_value(&"a".repeat(64)));
    }
}
