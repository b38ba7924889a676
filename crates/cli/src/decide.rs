//! `berth decide`: Berth's decisions about the objects in manifests, made by the control code that also runs in a cluster.

mod account;
#[cfg(test)]
mod generated_tests;
mod ignored;
mod invalid;
pub(crate) mod manifests;
mod places;
mod pods;
#[cfg(test)]
mod pods_tests;
#[cfg(test)]
mod tests;

use crate::flags::{DecideFlags, Output};
use anyhow::{Context, anyhow};
use berth_api::conditions::types;
use berth_api::labels;
use berth_configuration::Given;
use berth_control::offline::Offline;
use berth_control::preemptor_named;
use berth_control::write::{Kind, ObjectKey};
use berth_engine::Selector;
use berth_jobs::training::Accelerators;
use jiff::Timestamp;
use manifests::{Manifest, NAME_LABEL, Sorted, shown, text};
use pods::Pods;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

/// A Workload with the decision about its admission.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decision {
    workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Kind (`Job`, `JobSet`, `TrainingJob`, `Pod`, `PodGroup`, `Deployment` or `StatefulSet`) of the Workload's job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_kind: Option<&'static str>,
    /// The decision (`admitted`, `reserved`, `evicted`, `pending` or `finished`) about the Workload.
    decision: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster_queue: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_sets: Vec<PodSet>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// Uid of the preemptor that the Workload's condition names.
    #[serde(skip)]
    preempted_for: Option<String>,
    /// The engine's account of the Workload; finished Workloads have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<account::Account>,
}

#[derive(Debug, Serialize)]
struct PodSet {
    name: String,
    count: i64,
    flavors: BTreeMap<String, String>,
}

/// A queue that admits no Workload, with the reason and message of its condition `Active`.
#[derive(Debug, Serialize)]
struct Inactive {
    queue: String,
    reason: &'static str,
    message: String,
}

/// The answer that `berth decide` prints.
#[derive(Debug, Serialize)]
struct Answer {
    decisions: Vec<Decision>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inactive: Vec<Inactive>,
    /// Objects that the API server or a webhook would refuse, with the field at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid: Vec<String>,
    /// Fields of the manifests that the objects' kinds do not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
    /// Objects that the decisions assume although no manifest has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
    /// Objects that decisions do not depend on, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored: Vec<String>,
}

/// Reads manifests, decides, and prints the answer. With `--strict`, the exit code of `berth decide` is 1 if an object, a field or a queue of the manifests is
/// at fault.
pub(crate) fn run(flags: &DecideFlags) -> anyhow::Result<ExitCode> {
    let config = match &flags.config {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?,
        None => String::new(),
    };
    let manifests = manifests::read(&flags.files)?;
    let now = match &flags.now {
        Some(text) => text.parse().with_context(|| format!("--now: {text:?}"))?,
        None => latest(&manifests),
    };
    let accelerators = flags.accelerators.accelerators().map_err(anyhow::Error::msg)?;
    let answer = answered(&manifests, &config, accelerators, now)?;
    print!("{}", in_words(&answer, flags.output)?);
    Ok(if flags.strict && answer.is_wrong() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The latest creation time of all manifests; the epoch if no object has a creation time.
fn latest(manifests: &[Manifest]) -> Timestamp {
    let created = |manifest: &Manifest| text(&manifest.object, "/metadata/creationTimestamp").parse().ok();
    manifests.iter().filter_map(created).max().unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Answer {
    /// Whether an object, a field or a queue of the manifests is at fault. A job that waits for quota does not count as a fault of the manifests.
    fn is_wrong(&self) -> bool {
        !self.invalid.is_empty() || !self.unknown.is_empty() || !self.inactive.is_empty()
    }
}

#[cfg(test)]
fn answer(
    manifests: &[Manifest],
    config: &str,
    accelerators: Accelerators,
    now: Timestamp,
    output: Output,
) -> anyhow::Result<String> {
    in_words(&answered(manifests, config, accelerators, now)?, output)
}

fn in_words(answer: &Answer, output: Output) -> anyhow::Result<String> {
    match output {
        Output::Text => Ok(as_text(answer)),
        Output::Yaml => serde_saphyr::to_string(answer).map_err(|error| anyhow!("{error}")),
    }
}

fn answered(
    manifests: &[Manifest],
    config: &str,
    accelerators: Accelerators,
    now: Timestamp,
) -> anyhow::Result<Answer> {
    let given = Given { home: "kueue-system".to_owned(), accelerators, ..Given::default() };
    let loaded = berth_configuration::load(config, &given).map_err(|error| anyhow!("configuration: {error}"))?;
    let mut settings = loaded.settings;
    // `berth decide` sets no limit on writes whose result the watch has not shown yet, because it applies each write to its objects at once.
    settings.max_unacknowledged = usize::MAX;
    let managed = settings.managed_namespaces.clone();
    let Sorted { objects, unknown, mut ignored } = manifests::sorted(manifests, &settings.job_kinds)?;
    let absent = manifests::absent_namespaces(&objects);
    let mut offline = Offline::new(settings, now);
    put(&mut offline, &absent, &objects)?;
    let mut pods = Pods::create(&mut offline, &objects)?;
    let mut invalid = invalid::lines(&offline, &objects);
    invalid.append(&mut pods.invalid);
    let mut assumed: Vec<String> = assumed(&mut offline, &managed, absent).into_iter().collect();
    assumed.extend(invalid::assumed_cohorts(&offline));
    assumed.append(&mut pods.assumed);
    offline.run(u64::MAX);
    let decisions = decisions(&mut offline, &pods);
    ignored.extend(ignored::lines(&offline, &objects, &pods, &decisions));
    let inactive = inactive(&mut offline);
    Ok(Answer { decisions, inactive, invalid, unknown, assumed, ignored })
}

/// Gives all objects to the control, except the kinds that are admitted through pods. Control gets the Jobs and Workloads of the manifests after the queues and
/// other objects, on which decisions about Workloads depend.
fn put(offline: &mut Offline, absent: &BTreeSet<String>, objects: &[Manifest]) -> anyhow::Result<()> {
    for namespace in absent {
        // A namespace without the label with its name matches no selector, and its jobs would not be managed.
        let labels = json!({ NAME_LABEL: namespace });
        let object = json!({"kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        offline.put(&object).map_err(|error| anyhow!("Namespace {namespace}: {error}"))?;
    }
    let mut faults = Vec::new();
    for late in [false, true] {
        for manifest in objects.iter().filter(|manifest| pods::kind(&manifest.object).is_none()) {
            if matches!(text(&manifest.object, "/kind").as_str(), "Job" | "Workload") == late
                && let Err(error) = offline.put(&manifest.object)
            {
                faults.push(manifest.fault_at(error.path(), &error));
            }
        }
    }
    manifests::refused(&faults)
}

/// The assumption about namespaces that the manifests use but do not have. Every cluster has the namespace `default`, so `default` is only named if a selector
/// could match other labels of it.
fn assumed(offline: &mut Offline, managed: &Selector, mut absent: BTreeSet<String>) -> Option<String> {
    let by_label = |selector: &Selector| selector.0.iter().any(|requirement| requirement.key != NAME_LABEL);
    let queues: Vec<String> = keys(offline, &[Kind::ClusterQueue]).into_iter().map(|key| key.name).collect();
    let mut selectors = queues.iter().filter_map(|name| offline.control().cluster_queue_spec(name)?.namespace_selector);
    if !by_label(managed) && !selectors.any(|selector| by_label(&selector)) {
        absent.remove("default");
    }
    let names: Vec<String> = absent.into_iter().collect();
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("Namespace {name}: it is not in the manifests, so it has no label but {NAME_LABEL}")),
        names => Some(format!(
            "Namespaces {}: they are not in the manifests, so they have no label but {NAME_LABEL}",
            names.join(", ")
        )),
    }
}

fn keys(offline: &Offline, kinds: &[Kind]) -> Vec<ObjectKey> {
    offline.objects().keys().filter(|key| kinds.contains(&key.kind)).cloned().collect()
}

/// Queues that admit no Workload, with the message of their condition `Active`.
fn inactive(offline: &mut Offline) -> Vec<Inactive> {
    let queues = keys(offline, &[Kind::ClusterQueue, Kind::LocalQueue]);
    let world = offline.control().world();
    let of = |key: ObjectKey| {
        let found = match key.kind {
            Kind::ClusterQueue => world.readiness(&key.name),
            _ => world.local_queue_readiness(&key.namespace, &key.name),
        };
        let found = found.filter(|found| !found.active)?;
        let queue = shown(key.kind.name(), &key.namespace, &key.name);
        Some(Inactive { queue, reason: found.reason, message: found.message })
    };
    queues.into_iter().filter_map(of).collect()
}

/// The kind of this name, if objects of the kind get a Workload in `berth decide`.
fn job_kind(name: &str) -> Option<Kind> {
    let others = [Kind::TrainingJob, Kind::Pod, Kind::Deployment, Kind::StatefulSet];
    Kind::jobs().chain(others).find(|kind| kind.name() == name)
}

fn decisions(offline: &mut Offline, pods: &Pods) -> Vec<Decision> {
    let now = berth_engine::Millis(offline.now().as_millisecond());
    let workloads = offline.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
    let uids: Vec<String> = workloads.clone().map(|(_, object)| text(object, "/metadata/uid")).collect();
    let mut found: Vec<Decision> =
        workloads.map(|(key, object)| decision(format!("{}/{}", key.namespace, key.name), object, pods)).collect();
    let names = uids.iter().cloned().zip(found.iter().map(|decision| decision.workload.clone())).collect();
    let mut accounted = BTreeSet::new();
    for (decision, uid) in found.iter_mut().zip(uids) {
        if decision.of_many().is_none_or(|of_many| accounted.insert(of_many)) {
            decision.account = account::of(offline, &uid, &names, decision.preempted_for.take());
        }
        // A Workload that no scheduling cycle has tried has no reason in its status yet.
        if decision.reason.is_empty()
            && let Some(verdict) = offline.control().world().explain(&uid, now)
        {
            decision.reason = verdict.reason.as_str().to_owned();
            decision.message = verdict.message.to_string();
        }
    }
    found
}

impl Decision {
    /// Text that is equal for pods of one Deployment or StatefulSet with equal decisions, of which only the first one gets an account; `None` for other job
    /// kinds, and for a pod that was evicted for a preemptor.
    fn of_many(&self) -> Option<String> {
        let alike = matches!(self.job_kind, Some("Deployment" | "StatefulSet")) && self.preempted_for.is_none();
        let Self { job_kind, job, decision, cluster_queue, pod_sets, reason, .. } = self;
        alike.then(|| format!("{job_kind:?} {job:?} {decision} {cluster_queue} {pod_sets:?} {reason}"))
    }
}

/// The job of a Workload. For the Workload of a single pod of a Deployment or StatefulSet, the job is the Deployment or StatefulSet.
fn job_of(object: &Value, pods: &Pods) -> Option<(Kind, String)> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let known = |owner: &Value| Some((job_kind(&text(owner, "/kind"))?, text(owner, "/name")));
    let owners: Vec<(Kind, String)> = owners.into_iter().flatten().filter_map(known).collect();
    let owning_job = owners.iter().find(|(kind, _)| *kind != Kind::Pod);
    let (kind, name) = owning_job.or_else(|| owners.first()).cloned()?;
    if kind != Kind::Pod {
        return Some((kind, name));
    }
    let notes = object.pointer("/metadata/annotations");
    if notes.and_then(|notes| notes.get(labels::IS_GROUP_WORKLOAD)).and_then(Value::as_str) == Some("true") {
        return Some((Kind::PodGroup, text(object, "/metadata/name")));
    }
    let parent = pods.parent(&ObjectKey { kind, namespace: text(object, "/metadata/namespace"), name: name.clone() });
    Some(parent.map_or((kind, name), |parent| (parent.kind, parent.name.clone())))
}

fn decision(workload: String, object: &Value, pods: &Pods) -> Decision {
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
    let job = job_of(object, pods);
    let (decision, about) = if let Some(found) = condition(types::FINISHED, "True") {
        ("finished", Some(found))
    } else if let Some(found) = condition(types::EVICTED, "True") {
        ("evicted", Some(found))
    } else if condition(types::ADMITTED, "True").is_some() {
        ("admitted", None)
    } else if condition(types::QUOTA_RESERVED, "True").is_some() {
        ("reserved", condition(types::ADMITTED, "False"))
    } else {
        ("pending", condition(types::QUOTA_RESERVED, "False"))
    };
    let about = about.unwrap_or_default();
    let preempted = condition(types::PREEMPTED, "True");
    Decision {
        workload,
        job_kind: job.as_ref().map(|(kind, _)| kind.name()),
        job: job.map(|(_, name)| format!("{}/{name}", text(object, "/metadata/namespace"))),
        decision,
        cluster_queue: text(object, "/status/admission/clusterQueue"),
        pod_sets: pod_sets.collect(),
        reason: text(&about, "/reason"),
        message: text(&about, "/message"),
        preempted_for: preempted.and_then(|output| preemptor_named(&text(&output, "/message")).map(str::to_owned)),
        account: None,
    }
}

fn as_text(answer: &Answer) -> String {
    let mut out = String::new();
    for found in &answer.decisions {
        let job = found.job_kind.zip(found.job.as_ref()).map(|(kind, job)| format!(" ({kind} {job})"));
        let job = job.unwrap_or_default();
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
    for Inactive { queue, reason, message } in &answer.inactive {
        let _ = writeln!(out, "inactive: {queue}: {reason}: {message}");
    }
    for (word, lines) in [
        ("invalid", &answer.invalid),
        ("unknown", &answer.unknown),
        ("assumed", &answer.assumed),
        ("ignored", &answer.ignored),
    ] {
        for line in lines {
            let _ = writeln!(out, "{word}: {line}");
        }
    }
    out
}
