//! Queues of Volcano (`scheduling.volcano.sh/v1beta1`), as the import reads them.

use super::figures::{Figure, Figures};
use super::objects::LAST_APPLIED;
use super::report::Report;
use crate::decide::manifests::Manifest;
use berth_api::validation::qualified_name;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The queue that Volcano creates itself, and that is the parent of every queue without one.
pub(super) const ROOT: &str = "root";
/// Smallest and largest weight that a Queue of Volcano may have.
const WEIGHTS: std::ops::RangeInclusive<i64> = 1..=65_535;
/// Beginning of Volcano's names for amounts of a device class.
const DEVICE_CLASS: &str = "deviceclass/";
/// Fields of a Queue's spec that the import reads.
const FIELDS: [&str; 8] =
    ["weight", "capability", "deserved", "guarantee", "reclaimable", "parent", "dequeueStrategy", "state"];

/// A Queue of Volcano.
#[derive(Debug)]
pub(super) struct Queue<'m> {
    /// The Queue's manifest, for file and line in messages.
    pub(super) manifest: &'m Manifest,
    /// Name of the Queue's parent Queue; `None` for the root Queue.
    pub(super) parent: Option<String>,
    /// Weight of the Queue, if the manifest has one.
    pub(super) weight: Option<i64>,
    /// Amounts by resource.
    pub(super) figures: BTreeMap<String, Figures>,
    /// True if other Queues may take back, by preemption, the resources that the Queue uses above its deserved amount.
    pub(super) reclaimable: bool,
    /// Queueing strategy (`StrictFIFO` or `BestEffortFIFO`) for the Queue's jobs, if the manifest has a `dequeueStrategy`.
    pub(super) strategy: Option<&'static str>,
    /// True if the queue is closed to new jobs.
    pub(super) closed: bool,
}

impl<'m> Queue<'m> {
    /// Reads a Queue, and reports its fields without a counterpart.
    pub(super) fn read(manifest: &'m Manifest, name: &str, report: &mut Report) -> Self {
        let parent = report.text(manifest, "spec.parent");
        if name == ROOT
            && let Some(parent) = &parent
        {
            report.fault(manifest, "spec.parent", format!("{ROOT} has no parent, {parent} is below it"));
        }
        let parent = (name != ROOT).then(|| parent.unwrap_or_else(|| ROOT.to_owned()));
        without_counterpart(manifest, report);
        Self {
            manifest,
            parent,
            weight: weight(manifest, report),
            figures: figures(manifest, report),
            reclaimable: reclaimable(manifest, report),
            strategy: strategy(manifest, report),
            closed: closed(manifest, report),
        }
    }
}

fn weight(manifest: &Manifest, report: &mut Report) -> Option<i64> {
    let value = manifest.value("spec.weight").filter(|value| !value.is_null())?;
    let weight = value.as_i64().filter(|weight| WEIGHTS.contains(weight));
    if weight.is_none() {
        report.fault(manifest, "spec.weight", "a whole number from 1 to 65535 is needed");
    }
    weight
}

fn reclaimable(manifest: &Manifest, report: &mut Report) -> bool {
    match manifest.value("spec.reclaimable") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(reclaimable)) => *reclaimable,
        Some(_) => {
            report.fault(manifest, "spec.reclaimable", "true or false is needed");
            true
        }
    }
}

fn strategy(manifest: &Manifest, report: &mut Report) -> Option<&'static str> {
    match report.text(manifest, "spec.dequeueStrategy")?.as_str() {
        "fifo" => Some("StrictFIFO"),
        "traverse" => Some("BestEffortFIFO"),
        _ => {
            report.fault(manifest, "spec.dequeueStrategy", "fifo or traverse is needed");
            None
        }
    }
}

/// Whether the queue is closed. A Queue's state is a part of its status, and was a part of its spec in old versions of Volcano.
fn closed(manifest: &Manifest, report: &mut Report) -> bool {
    let mut closed = false;
    for path in ["spec.state", "status.state"] {
        match report.text(manifest, path).as_deref() {
            None | Some("Open") => {}
            Some("Closed" | "Closing") => closed = true,
            Some(_) => report.note(manifest, path, "no counterpart: only Open, Closed and Closing are; taken as Open"),
        }
    }
    closed
}

/// The amounts of a Queue by resource.
fn figures(manifest: &Manifest, report: &mut Report) -> BTreeMap<String, Figures> {
    let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
    for path in ["spec.deserved", "spec.capability", "spec.guarantee.resource"] {
        let Some(amounts) = amounts(manifest, path, report) else { continue };
        for (resource, value) in amounts {
            let place = format!("{path}[{resource}]");
            if resource.starts_with(DEVICE_CLASS) || resource.contains(&format!(".{DEVICE_CLASS}")) {
                report.note(manifest, &place, "no counterpart: Berth has no quota of device classes yet");
                continue;
            }
            if let Some(wrong) = qualified_name(resource) {
                report.fault(manifest, &place, format!("the name of a resource: {wrong}"));
                continue;
            }
            let figure = match Figure::read(value) {
                Ok(figure) => figure,
                Err(allowed) => {
                    report.fault(manifest, &place, allowed);
                    continue;
                }
            };
            if path == "spec.capability" && figure.nano == 0 && ["cpu", "memory"].contains(&resource.as_str()) {
                report.note(manifest, &place, "is no limit in Volcano, and none here");
                continue;
            }
            let of_resource = figures.entry(resource.clone()).or_default();
            match path {
                "spec.deserved" => of_resource.deserved = Some(figure),
                "spec.capability" => of_resource.capability = Some(figure),
                _ => of_resource.guarantee = Some(figure),
            }
        }
    }
    figures
}

fn amounts<'m>(manifest: &'m Manifest, path: &str, report: &mut Report) -> Option<&'m Map<String, Value>> {
    let value = manifest.value(path).filter(|value| !value.is_null())?;
    if !value.is_object() {
        report.fault(manifest, path, "a map of amounts by resource is needed");
    }
    value.as_object()
}

/// Reports the fields of a Queue that the import does not read.
fn without_counterpart(manifest: &Manifest, report: &mut Report) {
    for path in ["spec", "spec.guarantee"] {
        if manifest.value(path).is_some_and(|value| !value.is_object() && !value.is_null()) {
            report.fault(manifest, path, "a map is needed");
        }
    }
    for field in fields(manifest, "spec").filter(|field| !FIELDS.contains(field)) {
        report.note(manifest, &format!("spec.{field}"), reason(field));
    }
    for field in fields(manifest, "spec.guarantee").filter(|field| *field != "resource") {
        report.note(manifest, &format!("spec.guarantee.{field}"), reason(field));
    }
    annotations_without_counterpart(manifest, report);
    for key in fields(manifest, "metadata.labels") {
        report.note(manifest, &format!("metadata.labels[{key}]"), "labels of a Queue are not carried over");
    }
}

/// Reports the annotations of a Queue or PodGroup.
pub(super) fn annotations_without_counterpart(manifest: &Manifest, report: &mut Report) {
    for key in fields(manifest, "metadata.annotations").filter(|key| *key != LAST_APPLIED) {
        let why = match key {
            "volcano.sh/hierarchy" | "volcano.sh/hierarchy-weights" => {
                "no counterpart: the tree of queues is read from spec.parent and spec.weight"
            }
            "volcano.sh/sla-waiting-time" => {
                "no counterpart: set waitForPodsReady or waitingTimeBonus of a QueuePolicy"
            }
            _ => "annotations are not carried over",
        };
        report.note(manifest, &format!("metadata.annotations[{key}]"), why);
    }
}

/// Names of the fields of a map that have a value.
pub(super) fn fields<'m>(manifest: &'m Manifest, path: &str) -> impl Iterator<Item = &'m str> + use<'m> {
    let fields = manifest.value(path).and_then(Value::as_object);
    fields.into_iter().flatten().filter(|(_, value)| !is_blank(value)).map(|(name, _)| name.as_str())
}

/// Whether a value is the same as an absent one for the API of Volcano.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_blank),
    }
}

fn reason(field: &str) -> &'static str {
    match field {
        "affinity" => "no counterpart: nodes belong to a ResourceFlavor; give it their labels",
        "type" => "no counterpart: queues have no type",
        "extendClusters" => "no counterpart: Berth does not dispatch jobs to other clusters yet",
        "priority" => "no counterpart: queues have no priority; set weights, or priority classes of jobs",
        "dra" => "no counterpart: Berth has no quota of device classes yet",
        _ => "no counterpart",
    }
}
