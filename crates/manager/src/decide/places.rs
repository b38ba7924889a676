//! Lines of objects and their fields in the text of a file: read only when a message needs one.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The text of a file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: String,
    content: String,
    documents: OnceLock<Vec<Spanned<Node>>>,
}

impl Source {
    pub(super) fn new(file: &str, content: &str) -> Arc<Self> {
        Arc::new(Self { file: file.to_owned(), content: content.to_owned(), documents: OnceLock::new() })
    }

    fn documents(&self) -> &[Spanned<Node>] {
        // A text that cannot be read once more has no lines.
        self.documents.get_or_init(|| serde_saphyr::from_multiple(&self.content).unwrap_or_default())
    }
}

/// An object in a file: in which document, and where that is a list, which item.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) source: Arc<Source>,
    pub(super) document: usize,
    pub(super) item: Option<usize>,
}

impl Place {
    /// File and line of a field, as `file:line`; of the enclosing field where the text does not have it.
    pub(super) fn of(&self, path: &str) -> String {
        let file = &self.source.file;
        let Some(document) = self.source.documents().get(self.document) else { return file.clone() };
        let list = self.item.map(|item| ["items".to_owned(), item.to_string()]);
        let mut line = document.referenced.line();
        let mut at = &document.value;
        for step in list.into_iter().flatten().chain(steps(path)) {
            let Some((_, found)) = at.0.iter().find(|(name, _)| *name == step) else { break };
            line = found.referenced.line();
            at = &found.value;
        }
        format!("{file}:{line}")
    }
}

/// The names and numbers of a path, as `spec.resourceGroups[0].flavors[1].name` or `metadata.labels[example.com/a]`.
fn steps(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut is_within = false;
    for letter in path.chars() {
        match letter {
            '.' if !is_within => steps.push(String::new()),
            '[' if !is_within => {
                is_within = true;
                steps.push(String::new());
            }
            ']' => is_within = false,
            _ => steps.last_mut().into_iter().for_each(|step| step.push(letter)),
        }
    }
    steps.retain(|step| !step.is_empty());
    steps
}

/// The fields or items of a value, each with its place.
#[derive(Debug, Default)]
struct Node(Vec<(String, Spanned<Node>)>);

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Node(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push((all.len().to_string(), item));
        }
        Ok(Node(all))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Node::default())
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Node, E> {
        Ok(Node::default())
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Source};

    const YAML: &str = "# Two queues.
kind: List
items:
- kind: ClusterQueue
  metadata: {name: a}
- kind: ClusterQueue
  metadata:
    name: b
    labels:
      example.com/a: x
  spec:
    resourceGroups:
    - coveredResources: [cpu]
      flavors:
      - name: one
      - name: two
---
kind: Job
";

    #[test]
    fn field_path_is_located_at_its_yaml_line() {
        let place = |document, item, path: &str| {
            let source = Source::new("queues.yaml", YAML);
            Place { source, document, item }.of(path)
        };
        let rows = [
            (0, Some(1), "spec.resourceGroups[0].flavors[1].name", 16),
            (0, Some(1), "metadata.labels[example.com/a]", 10),
            (0, Some(0), "metadata.name", 5),
            // A missing field has the line of the enclosing one.
            (0, Some(1), "spec.resourceGroups[0].flavors[7].name", 15),
            (0, Some(1), "", 6),
            (1, None, "kind", 18),
        ];
        for (document, item, path, line) in rows {
            assert_eq!(place(document, item, path), format!("queues.yaml:{line}"), "{path}");
        }
        assert_eq!(place(9, None, "kind"), "queues.yaml");
    }

    #[test]
    fn field_path_in_json_is_located_at_its_line() {
        let source = Source::new("-", "{\n \"kind\": \"Job\",\n \"spec\": {\n  \"parallelism\": 1}}\n");
        assert_eq!(Place { source, document: 0, item: None }.of("spec.parallelism"), "-:4");
    }
}
