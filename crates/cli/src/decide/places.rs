//! Line numbers of objects and fields in a manifest file; the text is parsed only when a message needs a line.

use berth_configuration::lines::Node;
use serde_saphyr::Spanned;
use std::sync::{Arc, OnceLock};

/// The text of a manifest file.
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
        // If the text of a manifest file does not parse, no line numbers are known for its objects.
        self.documents.get_or_init(|| serde_saphyr::from_multiple(&self.content).unwrap_or_default())
    }
}

/// The position of an object in a file: the index of its document, and the index of its item if the document is a List.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) source: Arc<Source>,
    pub(super) document: usize,
    pub(super) item: Option<usize>,
}

impl Place {
    /// File and line of a field as `file:line`. A field that the manifest lacks has the line of the innermost enclosing field that the manifest has.
    pub(super) fn of(&self, path: &str) -> String {
        let file = &self.source.file;
        self.line(path).map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
    }

    /// Line of a field, from 1; none if the text of the file is unknown.
    pub(super) fn line(&self, path: &str) -> Option<u64> {
        let document = self.source.documents().get(self.document)?;
        let list = self.item.map(|item| ["items".to_owned(), item.to_string()]);
        let mut line = document.referenced.line();
        let mut at = &document.value;
        for step in list.into_iter().flatten().chain(steps(path)) {
            let Some(found) = at.0.iter().find(|entry| entry.name == step) else { break };
            line = found.value.referenced.line();
            at = &found.value.value;
        }
        Some(line)
    }
}

/// The names and indices in a field path such as `spec.resourceGroups[0].flavors[1].name` or `metadata.labels[example.com/a]`.
pub(super) fn steps(path: &str) -> Vec<String> {
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
            // A field that the manifest lacks has the line of the innermost enclosing field that the manifest has.
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
