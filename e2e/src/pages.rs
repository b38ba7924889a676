//! A test of the YAML in the pages of docs/: the API server must accept each complete object of Kueue's or Berth's kinds.

use std::fs;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::binaries::repository;
use crate::kinds::{self, Kind, USER, text};

/// Folders with pages.
const FOLDERS: [&str; 3] = ["docs", "docs/modes", "docs/capacity"];
/// Least number of objects, by the beginning of the page's path: a smaller number would mean that the test does not find the objects.
const LEAST: [(&str, usize); 6] = [
    ("docs/modes/", 4),
    ("docs/capacity/", 4),
    ("docs/admission-checks.md", 3),
    ("docs/quota.md", 9),
    ("docs/tiers.md", 1),
    ("docs/training-jobs.md", 1),
];
/// Namespace for the objects of the pages, because their own namespaces do not exist on the control plane.
const NAMESPACE: &str = "default";

/// Asks the API server about every object of the pages and leaves no object behind; returns the number of objects.
///
/// # Errors
/// Fails if the API server refuses an object, with all refused objects by page; and fails if a page has fewer objects than `LEAST`.
pub async fn accepted(client: &Client) -> Result<usize> {
    let (all, mut wrong) = (shown()?, Vec::new());
    for (page, object) in &all {
        if let Err(error) = try_out(client, object).await {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            wrong.push(format!("{page}: {kind} {name}: {error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} objects are refused:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    Ok(all.len())
}

async fn try_out(client: &Client, object: &Value) -> Result<()> {
    let kind = Kind::of(object)?;
    let mut object = object.clone();
    if kind.namespaced {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }
    let name = text(&object, "/metadata/name");
    ensure!(!name.is_empty(), "it has no name: a fragment is shown without apiVersion and kind");
    let params = PatchParams::apply(USER).force().dry_run().validation_strict();
    kind.api(client, NAMESPACE).patch(name, &params, &Patch::Apply(&object)).await?;
    Ok(())
}

/// Every complete object in the pages, with the path of its page.
fn shown() -> Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(repository().join(folder))?;
        let mut pages: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
        pages.sort();
        for path in pages {
            let page = format!("{folder}/{}", path.file_name().unwrap_or_default().display());
            for block in blocks(&fs::read_to_string(&path).with_context(|| page.clone())?) {
                let objects = kinds::parse(&block).with_context(|| format!("{page}:\n{block}"))?;
                found.extend(objects.into_iter().filter(is_ours).map(|object| (page.clone(), object)));
            }
        }
    }
    for (place, least) in LEAST {
        let count = found.iter().filter(|(page, _)| page.starts_with(place)).count();
        ensure!(count >= least, "{place} shows {count} objects, and had {least}");
    }
    Ok(found)
}

/// Whether `object` is a complete object of a kind whose schema is in crds/; a fragment has neither `apiVersion` nor `kind`.
fn is_ours(object: &Value) -> bool {
    let group = text(object, "/apiVersion").split_once('/').map(|(group, _)| group);
    matches!(group, Some("kueue.x-k8s.io" | "berth.dev")) && !text(object, "/kind").is_empty()
}

/// The YAML of a page: the blocks that are marked as YAML, and the input of the page's kubectl commands, from `<<END` to `END`.
fn blocks(page: &str) -> Vec<String> {
    let (mut found, mut fence, mut block) = (Vec::new(), None, None::<String>);
    for line in page.lines() {
        let word = line.trim();
        if let Some(language) = word.strip_prefix("```") {
            fence = fence.is_none().then_some(language);
            found.extend(block.take());
            block = (fence == Some("yaml")).then(String::new);
        } else if word == "END" {
            found.extend(block.take());
        } else if let Some(text) = &mut block {
            text.push_str(line);
            text.push('\n');
        } else if fence.is_some() && word.ends_with("<<END") {
            block = Some(String::new());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_manifests_are_parsed_and_not_fewer_than_expected() {
        shown().unwrap();
    }

    #[test]
    fn manifest_blocks_and_heredocs_of_a_page_are_found() {
        let page = "a\n```yaml\nkind: A\n---\nkind: B\n```\n<<END\nkind: C\n```\nkind: D\nkubectl apply -f - <<END\nkind: E\nEND\n\
                    kubectl get\n```\n";
        assert_eq!(blocks(page), ["kind: A\n---\nkind: B\n", "kind: E\n"]);
    }

    #[test]
    fn manifest_fragment_or_foreign_kind_in_a_page_is_skipped() {
        for (version, kind, ours) in [
            ("berth.dev/v1alpha1", "TrainingJob", true),
            ("kueue.x-k8s.io/v1beta2", "Cohort", true),
            ("config.berth.dev/v1alpha1", "CapacityTable", false),
            ("batch/v1", "Job", false),
            ("berth.dev/v1alpha1", "", false),
        ] {
            assert_eq!(is_ours(&json!({"apiVersion": version, "kind": kind})), ours, "{version} {kind}");
        }
        assert!(!is_ours(&json!({"spec": {}})));
    }
}
