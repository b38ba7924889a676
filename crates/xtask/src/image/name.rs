//! Image names: the short form that people write, and the full form that containerd stores.

use anyhow::{Context, Result, ensure};

/// The registry and the folder of an image name that names neither.
const REGISTRY: &str = "docker.io";
const FOLDER: &str = "library";

/// The name of an image with its tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The image's name as the user wrote it.
    pub(super) short: String,
    /// The image's name with registry and folder.
    pub(super) full: String,
    /// The tag of the image: the part of its name after the last colon.
    pub(super) tag: String,
}

impl Name {
    /// Parses an image name `name:tag`, with or without a registry.
    pub(super) fn parse(text: &str) -> Result<Name> {
        let (path, tag) = text
            .rsplit_once(':')
            .filter(|(_, tag)| !tag.contains('/'))
            .with_context(|| format!("{text:?} is no name of an image: it needs a tag, for example {}", super::NAME))?;
        let of_tag = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let tagged = (1..=128).contains(&tag.len()) && tag.chars().all(of_tag) && !tag.starts_with(['.', '-']);
        ensure!(
            tagged,
            "{text:?}: the tag {tag:?} has other characters than letters, digits, `_`, `.` and `-`, or too many"
        );
        let (host, rest) = match path.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => (REGISTRY, path),
        };
        let of_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c);
        let named = |part: &str| {
            part.chars().all(of_path)
                && part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && !part.ends_with(['.', '-', '_'])
        };
        ensure!(
            rest.split('/').all(named),
            "{text:?}: parts of a name are of small letters, digits, and `_`, `.` and `-` between them"
        );
        let folder = if host == REGISTRY && !rest.contains('/') { format!("{FOLDER}/") } else { String::new() };
        Ok(Name { short: text.to_owned(), full: format!("{host}/{folder}{rest}:{tag}"), tag: tag.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_image_names_are_completed_as_containerd_does() {
        for (short, full, tag) in [
            ("berth:0.1.0", "docker.io/library/berth:0.1.0", "0.1.0"),
            ("team/berth:v1", "docker.io/team/berth:v1", "v1"),
            ("docker.io/berth:v1", "docker.io/library/berth:v1", "v1"),
            ("registry.example/berth:v1", "registry.example/berth:v1", "v1"),
            ("localhost/berth:v1", "localhost/berth:v1", "v1"),
            ("127.0.0.1:5000/a/b-c:A_1", "127.0.0.1:5000/a/b-c:A_1", "A_1"),
        ] {
            let name = Name::parse(short).unwrap();
            assert_eq!((name.short.as_str(), name.full.as_str(), name.tag.as_str()), (short, full, tag));
        }
    }

    #[test]
    fn image_name_that_no_registry_accepts_is_refused() {
        for text in [
            "berth",
            "",
            "berth:",
            ":1",
            "Berth:1",
            "localhost:5000/berth",
            "a//b:1",
            "berth:a b",
            "berth:.1",
            "berth-:1",
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
    }
}
