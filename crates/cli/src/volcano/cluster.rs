//! Documents from a cluster. The import has no client of its own: it runs `kubectl get`, which reads the user's kubeconfig.

use crate::decide::manifests::{Manifest, of_objects};
use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use std::process::Command;

/// Name of the cluster in messages, in place of a file.
const PLACE: &str = "cluster";
/// The resources that are read, each with the selector of its fields, and whether a cluster with Volcano always has the resource.
const RESOURCES: [(&str, &str, bool); 8] = [
    ("queues.scheduling.volcano.sh", "", true),
    ("podgroups.scheduling.volcano.sh", "", true),
    ("jobs.batch.volcano.sh", "", true),
    ("cronjobs.batch.volcano.sh", "", false),
    ("pods", "spec.schedulerName=volcano", true),
    ("namespaces", "", true),
    ("priorityclasses.scheduling.k8s.io", "", true),
    ("resourceflavors.kueue.x-k8s.io", "", false),
];
/// Words of kubectl about a resource that the API server does not have.
const NO_RESOURCE: &str = "the server doesn't have a resource type";

/// Output and success of a run of kubectl.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) success: bool,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// Runs kubectl with arguments.
///
/// # Errors
/// The program cannot be started.
pub(super) fn kubectl(arguments: &[String]) -> anyhow::Result<Answer> {
    let output =
        Command::new("kubectl").args(arguments).output().context("running kubectl, which has to be in PATH")?;
    let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Ok(Answer { success: output.status.success(), stdout: output.stdout, stderr })
}

/// The objects of a cluster that the import reads. The parameter `kubectl` is the function that runs kubectl with arguments.
///
/// # Errors
/// The error has kubectl's message.
pub(super) fn read(
    context: Option<&str>,
    kubectl: &dyn Fn(&[String]) -> anyhow::Result<Answer>,
) -> anyhow::Result<Vec<Manifest>> {
    let mut objects = Vec::new();
    for (resource, selector, always) in RESOURCES {
        let mut arguments = vec!["get".to_owned(), resource.to_owned(), "--all-namespaces".to_owned()];
        arguments.push("--output=json".to_owned());
        if !selector.is_empty() {
            arguments.push(format!("--field-selector={selector}"));
        }
        arguments.extend(context.map(|context| format!("--context={context}")));
        let answer = kubectl(&arguments)?;
        if !answer.success && !always && answer.stderr.contains(NO_RESOURCE) {
            continue;
        }
        if !answer.success {
            bail!("kubectl {}: {}", arguments.join(" "), answer.stderr);
        }
        let list: Value = serde_json::from_slice(&answer.stdout).with_context(|| format!("kubectl get {resource}"))?;
        let items = list.get("items").and_then(Value::as_array);
        let items = items.ok_or_else(|| anyhow!("kubectl get {resource}: the answer has no items"))?;
        objects.extend(items.iter().cloned());
    }
    Ok(of_objects(PLACE, objects))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(success: bool, stdout: &str, stderr: &str) -> anyhow::Result<Answer> {
        Ok(Answer { success, stdout: stdout.as_bytes().to_vec(), stderr: stderr.to_owned() })
    }

    #[test]
    fn cluster_objects_are_read_where_the_resource_exists() {
        let run = |arguments: &[String]| {
            assert_eq!(arguments.last().map(String::as_str), Some("--context=prod"));
            match arguments[1].as_str() {
                "queues.scheduling.volcano.sh" => {
                    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}});
                    answer(true, &json!({"items": [queue]}).to_string(), "")
                }
                "cronjobs.batch.volcano.sh" | "resourceflavors.kueue.x-k8s.io" => {
                    answer(false, "", "error: the server doesn't have a resource type")
                }
                _ => answer(true, "{\"items\": []}", ""),
            }
        };
        let manifests = read(Some("prod"), &run).unwrap();
        assert_eq!(manifests.len(), 1);
        assert_eq!(manifests[0].place_of("metadata.name"), "cluster", "a cluster has no lines");
    }

    #[test]
    fn cluster_without_volcano_is_refused_with_kubectls_message() {
        let run = |_: &[String]| answer(false, "", "error: the server doesn't have a resource type \"queues\"");
        let error = read(None, &run).unwrap_err().to_string();
        let begin = "kubectl get queues.scheduling.volcano.sh --all-namespaces --output=json: error: the server";
        assert!(error.starts_with(begin), "{error}");
    }
}
