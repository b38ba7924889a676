//! Documents of a configuration, read strictly: YAML or JSON with `apiVersion` and `kind`, whose errors name the line.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::Spanned;

/// A value that remembers its line.
pub type Marked<T> = Option<Spanned<T>>;

/// Only the header, to learn the version.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Header {
    /// `apiVersion`, as the document has it.
    pub api_version: Option<String>,
    /// `kind`, as the document has it.
    pub kind: Option<String>,
}

/// Reads a file.
///
/// # Errors
/// The fault in one line, with its place.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error: serde_saphyr::Error| {
        let text = error.without_snippet().to_string();
        let first = text.lines().next().unwrap_or_default().to_owned();
        match error.location() {
            Some(place) if !first.contains("line ") => format!("line {}: {first}", place.line()),
            _ => first,
        }
    })
}
