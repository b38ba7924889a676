//! Manifests that Berth writes for users to apply, which are YAML documents with sorted keys after a comment. Equal input gives manifests of equal bytes, so
//! that the history of a user's repository shows only real changes.

use anyhow::{Context, anyhow};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// The name of an input file for messages, and the file's content; the path `-` is the standard input.
///
/// # Errors
/// The file cannot be read, or is no text.
pub(crate) fn source(path: &Path) -> anyhow::Result<(String, String)> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading the standard input")?;
        return Ok(("the standard input".to_owned(), text));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    // The input file is named without its folder, so that the output does not depend on the file's location.
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((name, text))
}

/// Writes a text to a file, or to the standard output.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn deliver(text: &str, output: Option<&Path>) -> anyhow::Result<()> {
    match output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("writing {}", path.display())),
        None => std::io::stdout().write_all(text.as_bytes()).context("writing to the standard output"),
    }
}

/// Objects as YAML documents, after comments of one line each.
///
/// # Errors
/// An object cannot be written as YAML.
pub(crate) fn documents(comments: &[String], objects: Vec<Value>) -> anyhow::Result<String> {
    let mut text = String::new();
    for comment in comments {
        text.push_str(format!("# {}", one_line(comment)).trim_end());
        text.push('\n');
    }
    for (index, object) in objects.into_iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        // A long annotation is written on one line instead of as a YAML block scalar, as people would write it.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        let document = serde_saphyr::to_string_with_options(&sorted(object), options);
        text.push_str(&document.map_err(|error| anyhow!("{error}"))?);
    }
    Ok(text)
}

/// Replaces control characters and line separators by spaces: text from the user's file cannot end the comment.
fn one_line(comment: &str) -> String {
    let ends = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    comment.chars().map(|c| if ends(c) { ' ' } else { c }).collect()
}

/// A JSON value with the keys of every map in order, whichever map type serde_json was built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(name, inner)| (name, sorted(inner))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_documents_are_sorted_and_comments_stay_on_one_line() {
        let long = "example.com/a=1,".repeat(9);
        let objects = vec![json!({"b": {"d": "true", "c": ["64", "x"]}, "a": long}), json!({"spec": {}})];
        let text = documents(&["from \"a\"\nkind: Secret\u{2028}x".to_owned(), String::new()], objects).unwrap();
        let expected = format!(
            "# from \"a\" kind: Secret x\n#\na: {long}\nb:\n  c:\n  - \"64\"\n  - x\n  d: \"true\"\n---\nspec: {{}}\n"
        );
        assert_eq!(text, expected);
    }
}
