//! `berth decide`: what Berth would do with the objects in some manifests, by the same control that runs in a cluster.

mod account;

use crate::configuration::{self, Given};
use crate::flags::{DecideFlags, Output};
use anyhow::{Context, anyhow, bail};
use berth_control::offline::{Offline, Taken};
use berth_control::write::Kind;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

/// One workload and what came of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decision {
    workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// `admitted`, `reserved`, `evicted`, `pending` or `finished`.
    decision: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster_queue: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_sets: Vec<PodSet>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// The engine's account, but for finished workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<account::Account>,
}

#[derive(Debug, Serialize)]
struct PodSet {
    name: String,
    count: i64,
    flavors: BTreeMap<String, String>,
}

/// Everything that is said.
#[derive(Debug, Serialize)]
struct Answer {
    decisions: Vec<Decision>,
    /// What the manifests leave out and is taken to be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
    /// Objects that take no part, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored: Vec<String>,
}

/// Reads, decides, prints.
pub(crate) fn run(flags: &DecideFlags) -> anyhow::Result<()> {
    let config = match &flags.config {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?,
        None => String::new(),
    };
    let mut objects = Vec::new();
    for path in &flags.files {
        let text = read(path)?;
        objects.extend(documents(&text).with_context(|| format!("reading {}", path.display()))?);
    }
    let now = match &flags.now {
        Some(text) => text.parse().with_context(|| format!("--now: {text:?}"))?,
        None => latest(&objects),
    };
    print!("{}", answer(&objects, &config, now, flags.output)?);
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading the standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The objects of a text of several documents; lists are taken apart.
fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| anyhow!("{error}"))?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(map)
                if map.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List")) =>
            {
                let items = map.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
                objects.extend(items);
            }
            Value::Object(_) => objects.push(document),
            other => bail!("{other} is no Kubernetes object"),
        }
    }
    Ok(objects)
}

fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The latest time at which an object was created; the epoch when none says so.
fn latest(objects: &[Value]) -> Timestamp {
    let created = |object: &Value| text(object, "/metadata/creationTimestamp").parse().ok();
    objects.iter().filter_map(created).max().unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Kinds without a namespace.
const CLUSTER_WIDE: [&str; 11] = [
    "Namespace",
    "ClusterQueue",
    "Cohort",
    "ResourceFlavor",
    "AdmissionCheck",
    "PriorityClass",
    "WorkloadPriorityClass",
    "RuntimeClass",
    "Topology",
    "QueuePolicy",
    "CheckpointStore",
];

/// The label that every namespace has.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Namespaces of objects that are no objects themselves.
fn unnamed(objects: &[Value]) -> BTreeSet<String> {
    let is_namespace = |object: &&Value| text(object, "/kind") == "Namespace";
    let given: BTreeSet<String> =
        objects.iter().filter(is_namespace).map(|object| text(object, "/metadata/name")).collect();
    let used = objects.iter().map(|object| text(&placed(object.clone()), "/metadata/namespace"));
    used.filter(|namespace| !namespace.is_empty() && !given.contains(namespace)).collect()
}

/// An object as the API server would store it: in a namespace, where its kind has one, and a namespace with its own label.
fn placed(mut object: Value) -> Value {
    let (kind, name) = (text(&object, "/kind"), text(&object, "/metadata/name"));
    if kind == "Namespace" {
        let labels = object
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .map(|metadata| metadata.entry("labels").or_insert_with(|| json!({})));
        if let Some(Value::Object(labels)) = labels {
            labels.insert(NAME_LABEL.to_owned(), json!(name));
        }
    }
    let namespaced = !CLUSTER_WIDE.contains(&kind.as_str());
    if let (true, Some(Value::Object(metadata))) = (namespaced, object.get_mut("metadata")) {
        metadata.entry("namespace").or_insert_with(|| json!("default"));
    }
    object
}

fn answer(objects: &[Value], config: &str, now: Timestamp, output: Output) -> anyhow::Result<String> {
    let given = Given { home: "kueue-system".to_owned(), ..Given::default() };
    let loaded = configuration::load(config, &given).map_err(|error| anyhow!("configuration: {error}"))?;
    let mut settings = loaded.settings;
    // No write is ever under way here.
    settings.max_unacknowledged = usize::MAX;
    let mut offline = Offline::new(settings, now);
    let mut ignored = Vec::new();
    let mut assumed = Vec::new();
    for namespace in unnamed(objects) {
        // Without it its jobs are not managed, and it matches no selector: in no cluster could they be stored.
        let labels = json!({ NAME_LABEL: namespace });
        let object = json!({"kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        offline.put(&object).map_err(|error| anyhow!("Namespace {namespace}: {error}"))?;
        assumed.push(format!("Namespace {namespace}: it is not in the manifests, so it has no label but {NAME_LABEL}"));
    }
    // What is decided on comes after what it is decided by.
    for late in [false, true] {
        for object in objects {
            let object = placed(object.clone());
            let kind = text(&object, "/kind");
            if matches!(kind.as_str(), "Job" | "Workload") != late {
                continue;
            }
            let name = format!("{kind} {}/{}", text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            match offline.put(&object) {
                Ok(Taken::Used) => {}
                Ok(Taken::Ignored) => ignored.push(format!("{name}: Berth does not look at it")),
                Err(error) => ignored.push(format!("{name}: {error}")),
            }
        }
    }
    offline.run(u64::MAX);
    let decisions = decisions(&mut offline);
    for key in offline.objects().keys().filter(|key| key.kind == Kind::Job) {
        let name = format!("{}/{}", key.namespace, key.name);
        if !decisions.iter().any(|decision| decision.job.as_ref() == Some(&name)) {
            ignored.push(format!("Job {name}: it has no Workload (no queue name, or not suspended yet)"));
        }
    }
    let answer = Answer { decisions, assumed, ignored };
    match output {
        Output::Text => Ok(as_text(&answer)),
        Output::Yaml => serde_saphyr::to_string(&answer).map_err(|error| anyhow!("{error}")),
    }
}

fn decisions(offline: &mut Offline) -> Vec<Decision> {
    let now = berth_engine::Millis(offline.now().as_millisecond());
    let workloads = offline.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    let uids: Vec<String> = workloads.clone().map(|(_, object)| text(object, "/metadata/uid")).collect();
    let mut found: Vec<Decision> =
        workloads.map(|(key, object)| decision(format!("{}/{}", key.namespace, key.name), object)).collect();
    let names = uids.iter().cloned().zip(found.iter().map(|decision| decision.workload.clone())).collect();
    for (decision, uid) in found.iter_mut().zip(uids) {
        decision.account = account::of(offline, &uid, &names);
        // Nothing was written about one that no cycle has come to.
        if decision.reason.is_empty()
            && let Some(verdict) = offline.control().world().explain(&uid, now)
        {
            decision.reason = verdict.reason.as_str().to_owned();
            decision.message = verdict.message.to_string();
        }
    }
    found
}

fn decision(workload: String, object: &Value) -> Decision {
    let empty = Map::new();
    let status = object.get("status").and_then(Value::as_object).unwrap_or(&empty);
    let conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let condition = |kind: &str, state: &str| {
        conditions.iter().find(|c| text(c, "/type") == kind && text(c, "/status") == state).cloned()
    };
    let sets = object.pointer("/status/admission/podSetAssignments").and_then(Value::as_array).cloned();
    let pod_sets = sets.into_iter().flatten().map(|set| PodSet {
        name: text(&set, "/name"),
        count: set.get("count").and_then(Value::as_i64).unwrap_or_default(),
        flavors: set
            .get("flavors")
            .and_then(|flavors| serde_json::from_value(flavors.clone()).ok())
            .unwrap_or_default(),
    });
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
    let job = owners
        .iter()
        .find(|owner| text(owner, "/kind") == "Job")
        .map(|owner| format!("{}/{}", text(object, "/metadata/namespace"), text(owner, "/name")));
    let (decision, about) = if let Some(found) = condition("Finished", "True") {
        ("finished", Some(found))
    } else if let Some(found) = condition("Evicted", "True") {
        ("evicted", Some(found))
    } else if condition("Admitted", "True").is_some() {
        ("admitted", None)
    } else if condition("QuotaReserved", "True").is_some() {
        ("reserved", condition("Admitted", "False"))
    } else {
        ("pending", condition("QuotaReserved", "False"))
    };
    let about = about.unwrap_or_default();
    Decision {
        workload,
        job,
        decision,
        cluster_queue: text(object, "/status/admission/clusterQueue"),
        pod_sets: pod_sets.collect(),
        reason: text(&about, "/reason"),
        message: text(&about, "/message"),
        account: None,
    }
}

fn as_text(answer: &Answer) -> String {
    let mut out = String::new();
    for found in &answer.decisions {
        let job = found.job.as_ref().map(|job| format!(" (Job {job})")).unwrap_or_default();
        let queue = if found.cluster_queue.is_empty() { String::new() } else { format!(" in {}", found.cluster_queue) };
        let reason = if found.reason.is_empty() { String::new() } else { format!(": {}", found.reason) };
        let _ = writeln!(out, "{}{job}: {}{queue}{reason}", found.workload, found.decision);
        for set in &found.pod_sets {
            let flavors: Vec<String> =
                set.flavors.iter().map(|(resource, flavor)| format!("{resource}={flavor}")).collect();
            let _ = writeln!(out, "    {} x{}: {}", set.name, set.count, flavors.join(", "));
        }
        if !found.message.is_empty() {
            let _ = writeln!(out, "    {}", found.message);
        }
        if let Some(account) = &found.account {
            let held = found.pod_sets.iter().map(|set| (set.name.clone(), set.flavors.clone())).collect();
            account.lines(&held, &mut out);
        }
    }
    for line in &answer.assumed {
        let _ = writeln!(out, "assumed: {line}");
    }
    for line in &answer.ignored {
        let _ = writeln!(out, "ignored: {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each folder: manifests, perhaps a configuration, and both forms of the answer. `UPDATE=1` rewrites the answers.
    #[test]
    fn golden_answers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decide");
        let mut count = 0;
        for entry in std::fs::read_dir(&root).unwrap() {
            let folder = entry.unwrap().path();
            let objects = documents(&std::fs::read_to_string(folder.join("objects.yaml")).unwrap()).unwrap();
            let config = std::fs::read_to_string(folder.join("configuration.yaml")).unwrap_or_default();
            for (output, name) in [(Output::Text, "answer.txt"), (Output::Yaml, "answer.yaml")] {
                count += 1;
                let got = answer(&objects, &config, latest(&objects), output).unwrap();
                assert_eq!(got, answer(&objects, &config, latest(&objects), output).unwrap(), "the same twice");
                let path = folder.join(name);
                if std::env::var_os("UPDATE").is_some() {
                    std::fs::write(&path, &got).unwrap();
                }
                assert_eq!(got, std::fs::read_to_string(&path).unwrap(), "{}", path.display());
            }
        }
        assert!(count >= 4, "only {count} answers");
    }

    /// On paper the example ends as its README says that it does in a cluster.
    #[test]
    fn examples_are_decided_as_in_a_cluster() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-teams-borrowing");
        let read = |name: &str| documents(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap();
        let objects = [read("queues.yaml"), read("jobs.yaml")].concat();
        let told = answer(&objects, "", latest(&objects), Output::Text).unwrap();
        let admitted = |job: &str| told.lines().any(|line| line.contains(job) && line.contains("admitted"));
        for (job, runs) in [("sweep-1", true), ("sweep-2", true), ("sweep-3", false), ("batch-scoring", true)] {
            assert_eq!(admitted(job), runs, "{job}:\n{told}");
        }
    }

    #[test]
    fn lists_are_read_and_objects_have_a_namespace() {
        let objects = documents(
            "apiVersion: v1\nkind: List\nitems:\n- {kind: ClusterQueue, metadata: {name: a}}\n---\n---\n\
             {kind: LocalQueue, metadata: {name: q}}\n",
        )
        .unwrap();
        let objects: Vec<Value> = objects.into_iter().map(placed).collect();
        assert_eq!(objects[0]["metadata"], json!({"name": "a"}));
        assert_eq!(objects[1]["metadata"], json!({"name": "q", "namespace": "default"}));
        assert!(documents("- 1\n").is_err());
    }
}
