//! Strict decoding of YAML or JSON documents with `apiVersion` and `kind`; errors name the line.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::Spanned;

/// An optional value with its line in the document.
pub type Marked<T> = Option<Spanned<T>>;

/// The header of a document, by which its version is known before the rest is decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Header {
    /// `apiVersion`, as the document has it.
    pub api_version: Option<String>,
    /// `kind`, as the document has it.
    pub kind: Option<String>,
}

/// Decodes a document.
///
/// # Errors
/// Fails if the text does not decode as a `T`; the error has one line with the fault and its place.
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
