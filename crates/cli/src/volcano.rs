//! `berth import volcano` turns Volcano's Queues into a tree of Cohorts and ClusterQueues, and gives Volcano's jobs and pods their queue.
//!
//! The translation is a function of the documents and starts in [`import`]. The files `queues.rs` and `groups.rs` read Volcano's objects, and `tree.rs`,
//! `jobs.rs`, `pods.rs` and `uses.rs` make the manifests. The file `check.rs` refuses manifests that Berth would refuse, and `cluster.rs` reads the documents
//! from a cluster.

mod check;
mod cluster;
mod documents;
mod figures;
mod groups;
mod jobs;
mod objects;
mod pods;
mod queues;
mod report;
#[cfg(test)]
mod tests;
mod tree;
mod uses;

use crate::decide::manifests::{self, Manifest, named, text};
use crate::flags::VolcanoFlags;
use crate::generated;
use anyhow::bail;
use berth_api::API_VERSION;
use documents::{Documents, by_name};
use groups::{Group, Key};
use objects::{Made, OutputKey, output_key};
use queues::Queue;
use report::Report;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use tree::Tree;
use uses::Uses;

/// Name of the ResourceFlavor that the import makes if the documents have none.
const FLAVOR: &str = "default";

/// Facts that the documents do not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'o> {
    /// Namespace of the objects whose documents name no namespace.
    pub(crate) namespace: &'o str,
    /// Name of the ResourceFlavor of all quotas.
    pub(crate) flavor: Option<&'o str>,
}

/// Manifests as a text, and the lines of the report.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) text: String,
    pub(crate) report: Vec<String>,
}

/// Reads the documents, writes the manifests, and writes the report to the standard error. With `--strict`, the exit code of `berth import volcano` is 1 if the
/// report has a line.
pub(crate) fn run(flags: &VolcanoFlags) -> anyhow::Result<ExitCode> {
    let manifests = if flags.from_cluster {
        cluster::read(flags.context.as_deref(), &cluster::kubectl)?
    } else {
        manifests::read(&flags.files)?
    };
    let imported = import(&manifests, Options { namespace: &flags.namespace, flavor: flags.flavor.as_deref() })?;
    for line in &imported.report {
        eprintln!("berth: {line}");
    }
    generated::deliver(&imported.text, flags.output.as_deref())?;
    Ok(if flags.strict && !imported.report.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Translates the documents. The manifests and the report do not depend on the order of the documents, and are the same if the documents include the manifests
/// of an earlier import.
///
/// # Errors
/// The error lists the faults of the documents, each with file, line, field, value and what is allowed.
pub(crate) fn import(manifests: &[Manifest], options: Options<'_>) -> anyhow::Result<Imported> {
    let mut report = Report::default();
    let documents = Documents::of(manifests, &mut report);
    if report.has_faults() {
        // The translation is skipped if a document has a fault, such as an unknown version, because such a document would only cause further faults.
        report.lines()?;
        bail!("the documents have faults");
    }
    let mut uses = Uses::of(&documents.namespaces, options.namespace, &mut report);
    let queues = queues(&documents, &mut report);
    let jobs: Vec<Made<'_>> = documents.jobs.iter().map(|&job| jobs::job(job, &mut uses, &mut report)).collect();
    let mut groups = groups(&documents, &mut uses, &mut report);
    let (pods, classes) = pods::pods(&documents.pods, &mut groups, &mut uses, &mut report);
    pods::note_missing(&groups, &mut report);
    let mut made = pods::priority_classes(classes, &documents.priority_classes(&mut report), &mut report);
    made.extend(jobs);
    made.extend(pods);
    let resources: BTreeSet<String> = queues.values().flat_map(|queue| queue.figures.keys().cloned()).collect();
    let mut flavor = options.flavor.unwrap_or(FLAVOR).to_owned();
    if !resources.is_empty()
        && let Some(chosen) = flavor_of(&documents, options, &mut report)
    {
        flavor = text(&chosen.object, "/metadata/name");
        made.push(chosen);
    }
    let used = uses.queues();
    let tree = Tree { queues: &queues, used: &used, resources: &resources, flavor: &flavor };
    made.extend(tree.objects(&mut report));
    let mut known = documents.cluster_queues();
    known.extend(made.iter().filter(|made| text(&made.object, "/kind") == "ClusterQueue").map(name_of));
    made.extend(uses.local_queues(&known, &mut report));
    let objects = ordered(made, &mut report);
    documents.compare(&objects, &mut report);
    let report = report.lines()?;
    if objects.is_empty() {
        bail!("nothing to import: no Queue, PodGroup, Job, CronJob or Pod of Volcano is among the documents");
    }
    let comments = ["Made by `berth import volcano`.".to_owned()];
    let text = generated::documents(&comments, objects.into_values().collect())?;
    Ok(Imported { text, report })
}

fn name_of(made: &Made<'_>) -> String {
    text(&made.object, "/metadata/name")
}

/// The Queues by name.
fn queues<'m>(documents: &Documents<'m>, report: &mut Report) -> BTreeMap<String, Queue<'m>> {
    let name = |manifest: &Manifest| text(&manifest.object, "/metadata/name");
    let manifests = by_name(&documents.queues, name, report);
    manifests.into_iter().map(|(name, manifest)| (name.clone(), Queue::read(manifest, &name, report))).collect()
}

/// The PodGroups by namespace and name.
fn groups<'m>(documents: &Documents<'m>, uses: &mut Uses<'m>, report: &mut Report) -> BTreeMap<Key, Group<'m>> {
    let jobs = groups::keys(&documents.jobs, uses);
    let key = |manifest: &Manifest| (uses.namespace(&manifest.object), text(&manifest.object, "/metadata/name"));
    let manifests = by_name(&documents.pod_groups, key, report);
    let mut groups = BTreeMap::new();
    for (key, manifest) in manifests {
        let group = Group::read(manifest, &key, &jobs, uses, report);
        groups.insert(key, group);
    }
    groups
}

/// The ResourceFlavor of all quotas: the one that the options name, the only one of the documents, or a new one; `None` if the documents lack the one that the
/// options name, or if they have several and the options name none.
fn flavor_of<'m>(documents: &Documents<'m>, options: Options<'_>, report: &mut Report) -> Option<Made<'m>> {
    let name = |manifest: &Manifest| text(&manifest.object, "/metadata/name");
    let given = by_name(&documents.flavors, name, report);
    let names: Vec<&str> = given.keys().map(String::as_str).collect();
    let name = match (options.flavor, names.as_slice()) {
        (Some(name), _) => name,
        (None, []) => {
            let object =
                json!({"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}, "spec": {}});
            return Some(Made { object, source: None });
        }
        (None, [name]) => *name,
        (None, names) => {
            report.fault_all(format!("--flavor is missing, and the documents have several: {}", names.join(", ")));
            return None;
        }
    };
    let Some(&manifest) = given.get(name) else {
        report.note_all(format!("ResourceFlavor {name} is not among the documents: it has to exist"));
        return None;
    };
    Some(Made { object: objects::authored(&manifest.object), source: Some(manifest) })
}

/// The objects in the order of the output. Every object of the output is checked as an API server with Berth would check it, and two different contents for one
/// object are a fault.
fn ordered(made: Vec<Made<'_>>, report: &mut Report) -> BTreeMap<OutputKey, Value> {
    let mut first: BTreeMap<OutputKey, Made<'_>> = BTreeMap::new();
    for made in made {
        let key = output_key(&made.object);
        let Some(other) = first.get(&key) else {
            if let Err(why) = check::check(&made.object) {
                refuse(&made, &why, report);
            }
            first.insert(key, made);
            continue;
        };
        if other.object != made.object {
            let at = other.source.map(|source| source.place_of("")).unwrap_or_default();
            refuse(&made, &format!("the import makes it of {at}, too, with another content; one is allowed"), report);
        }
    }
    first.into_iter().map(|(key, made)| (key, made.object)).collect()
}

fn refuse(made: &Made<'_>, why: &str, report: &mut Report) {
    let what = format!("the import makes {} of it: {why}", named(&made.object));
    match made.source {
        Some(source) => report.fault(source, "", what),
        None => report.fault_all(what),
    }
}
