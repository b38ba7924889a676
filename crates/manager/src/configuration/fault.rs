//! Faults of the configuration file: the field that is wrong, by which the line is found, and a sentence about it.

use crate::schema;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// Something in the file that Berth does not accept.
#[derive(Debug)]
pub(super) struct Fault {
    /// Path of the field, such as `waitForPodsReady.timeout` or `resources.transformations[0].input`; `None` where the text names a line, or the
    /// fault is in no line of the file.
    field: Option<String>,
    text: String,
}

impl Fault {
    pub(super) fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self { field: Some(field.into()), text: text.into() }
    }

    /// The sentence behind the line of its field in the file; a field that is absent is sought in the innermost block around it that is there.
    pub(super) fn with_line(self, file: &str) -> String {
        let tree: Option<Node> = self.field.as_ref().and_then(|_| schema::parse(file).ok());
        let line = tree.zip(self.field.as_deref()).and_then(|(tree, field)| tree.line_of(field));
        line.map_or_else(|| self.text.clone(), |line| format!("line {line}: {}", self.text))
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { field: None, text }
    }
}

/// A node of a YAML file, with the lines of its keys and entries.
#[derive(Debug)]
enum Node {
    Map(Vec<(Spanned<String>, Node)>),
    List(Vec<Spanned<Node>>),
    Scalar,
}

impl Node {
    /// Line of a field, or of the innermost block around it that is there. A key may have dots: the longest one that the path begins with is meant.
    fn line_of(&self, path: &str) -> Option<u64> {
        let (line, node, rest) = match self {
            Self::Map(entries) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                let fits = entries.iter().filter_map(|(key, node)| {
                    let rest = path.strip_prefix(key.value.as_str())?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((key, node, rest))
                });
                let (key, node, rest) = fits.max_by_key(|(key, ..)| key.value.len())?;
                (key.referenced.line(), node, rest)
            }
            Self::List(entries) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let entry = entries.get(index.parse::<usize>().ok()?)?;
                (entry.referenced.line(), &entry.value, rest)
            }
            Self::Scalar => return None,
        };
        Some(node.line_of(rest).unwrap_or(line))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any YAML")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Node::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
# A comment.
waitForPodsReady:
  # Another one.
  requeuingStrategy: {timestamp: Later,
    backoffLimitCount: -1}
resources:
  transformations:
  - input: a
    outputs:
      example.com/memory: 1Gi
      example: 2
  -
    input: b
  - {input: c, outputs: {d: 1}}
webhook: {host: \"::1\", port: 70000}
";

    #[test]
    fn configuration_field_is_found_at_the_line_of_its_key() {
        for (field, line) in [
            ("waitForPodsReady", Some(3)),
            ("waitForPodsReady.timeout", Some(3)),
            ("waitForPodsReady.requeuingStrategy.timestamp", Some(5)),
            ("waitForPodsReady.requeuingStrategy.backoffLimitCount", Some(6)),
            ("resources.transformations", Some(8)),
            ("resources.transformations[0]", Some(9)),
            ("resources.transformations[0].outputs.example.com/memory", Some(11)),
            ("resources.transformations[0].outputs.example", Some(12)),
            ("resources.transformations[1].input", Some(14)),
            ("resources.transformations[2].outputs.d", Some(15)),
            ("resources.transformations[7].input", Some(8)),
            ("webhook.port", Some(16)),
            ("web", None),
            ("leaderElection.leaseDuration", None),
        ] {
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            assert_eq!(Fault::of(field, "wrong").with_line(FILE), format!("{line}wrong"), "{field}");
        }
        assert_eq!(Fault::from("wrong".to_owned()).with_line(FILE), "wrong");
        assert_eq!(Fault::of("webhook", "wrong").with_line(""), "wrong");
    }
}
