//! Faults of the configuration file: the wrong field, by which its line is found, and a sentence about the fault.

use crate::document;
use crate::lines::Node;

/// A fault in the configuration file, which Berth does not accept.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Path of the wrong field, such as `waitForPodsReady.timeout` or `resources.transformations[0].input`; `None` if the text already names a line,
    /// or if no line of the file has the fault.
    field: Option<String>,
    text: String,
}

impl Fault {
    pub(crate) fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self { field: Some(field.into()), text: text.into() }
    }

    /// The sentence about the fault, after the line of its field in the file; for a field that is absent, the line of the innermost block around it
    /// that the file has.
    pub(crate) fn with_line(self, file: &str) -> String {
        let tree: Option<Node> = self.field.as_ref().and_then(|_| document::parse(file).ok());
        let line = tree.zip(self.field.as_deref()).and_then(|(tree, field)| line_of(&tree, field));
        line.map_or_else(|| self.text.clone(), |line| format!("line {line}: {}", self.text))
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { field: None, text }
    }
}

/// The line of a field, or of the innermost block around it that the file has. A key of the configuration file may contain dots, so if a field's path begins
/// with several keys of a block, the longest of these keys is used.
fn line_of(node: &Node, path: &str) -> Option<u64> {
    let (entry, rest) = if let Some((item, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        (node.0.iter().find(|entry| entry.name == item)?, rest)
    } else {
        let path = path.strip_prefix('.').unwrap_or(path);
        let fits = node.0.iter().filter_map(|entry| {
            let rest = path.strip_prefix(entry.name.as_str())?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then_some((entry, rest))
        });
        fits.max_by_key(|(entry, _)| entry.name.len())?
    };
    Some(line_of(&entry.value.value, rest).unwrap_or(entry.line))
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
