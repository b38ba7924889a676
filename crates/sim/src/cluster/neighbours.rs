//! The law of namespaces for every event and every status message: a text about an object of one namespace names no object of another namespace, because not
//! every reader of the one namespace may read the other. Texts about objects without a namespace have readers in every namespace, and name no object of any
//! namespace.

use berth_control::write::ObjectKey;
use serde_json::Value;

use super::Cluster;

impl Cluster {
    /// Checks a text about an object against the law of namespaces.
    pub(super) fn names_no_neighbour(&self, about: &ObjectKey, text: &str) {
        let is_here = |key: &ObjectKey| key.namespace.is_empty() || key.namespace == about.namespace;
        // Only a name with a hyphen can be distinguished from the words of a sentence.
        let unmistakable =
            |name: &str| name.contains('-') && !self.objects().keys().any(|k| is_here(k) && *k.name == *name);
        for other in self.objects().keys().filter(|key| !is_here(key)) {
            let (namespace, name) = (&*other.namespace, &*other.name);
            let named = text.contains(&format!("{namespace}/{name}"))
                || has_word(text, name) && unmistakable(name)
                || has_word(text, namespace) && unmistakable(namespace) && *about.namespace != *namespace;
            assert!(!named, "what is said of {about:?} names {other:?}: {text}");
        }
    }

    /// Checks every message in the body of a write against the law of namespaces.
    pub(super) fn messages_name_no_neighbour(&self, about: &ObjectKey, body: &Value) {
        match body {
            Value::Object(fields) => {
                if let Some(text) = fields.get("message").and_then(Value::as_str) {
                    self.names_no_neighbour(about, text);
                }
                fields.values().for_each(|field| self.messages_name_no_neighbour(about, field));
            }
            Value::Array(list) => list.iter().for_each(|one| self.messages_name_no_neighbour(about, one)),
            _ => {}
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}
