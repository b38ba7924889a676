//! Manifests: from files and folders to objects in the form in which the API server would store them.

use super::places::{Place, Source, steps};
use anyhow::{Context, anyhow, bail};
use berth_api::conversion::{Version, renamed_field};
use berth_control::offline::{self, examine};
use berth_control::write::Kind;
use berth_jobs::pods::{DEPLOYMENT_FRAMEWORK, POD_FRAMEWORK, STATEFUL_SET_FRAMEWORK};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File name extensions of manifests in a folder, equal to those of kubectl.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];
/// Namespaced kinds, beside the kinds of jobs, on which decisions depend.
const NAMESPACED: [&str; 7] =
    ["Deployment", "LimitRange", "LocalQueue", "Pod", "StatefulSet", "TrainingJob", "Workload"];
/// The label with the namespace's name, which the API server gives to every namespace.
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// An object of the manifests, with its file and line.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(super) place: Place,
    pub(crate) object: Value,
}

/// Manifests, sorted by their use for decisions.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// Objects on which decisions depend, in the form in which the API server would store them.
    pub(super) objects: Vec<Manifest>,
    /// Messages about fields that the API server would drop.
    pub(super) unknown: Vec<String>,
    /// Objects on which no decision depends, with the reason.
    pub(super) ignored: Vec<String>,
}

/// The manifests of files and folders; the path `-` is the standard input.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in paths {
        for file in files(path)? {
            manifests.extend(of_text(&file.display().to_string(), &content(&file)?)?);
        }
    }
    Ok(manifests)
}

/// A file as given, or the manifests in a folder without its subfolders.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
        let file = entry.with_context(|| format!("reading {}", path.display()))?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.contains(&ending) && file.is_file() {
            found.push(file);
        }
    }
    if found.is_empty() {
        bail!("{}: the folder has no *.yaml, *.yml or *.json (folders in it are not read)", path.display());
    }
    found.sort();
    Ok(found)
}

fn content(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading the standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The objects of a text with YAML documents; each item of a List is an object.
pub(crate) fn of_text(file: &str, content: &str) -> anyhow::Result<Vec<Manifest>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(content).map_err(|error| anyhow!("{file}: {error}"))?;
    let source = Source::new(file, content);
    let mut objects = Vec::new();
    for (document, value) in documents.into_iter().enumerate() {
        let place = |item| Place { source: Arc::clone(&source), document, item };
        match value.get("items") {
            Some(Value::Array(items)) if text(&value, "/kind").ends_with("List") => {
                let items = items.iter().cloned().enumerate();
                objects.extend(items.map(|(at, object)| Manifest { place: place(Some(at)), object }));
            }
            _ => objects.push(Manifest { place: place(None), object: value }),
        }
    }
    objects.retain(|manifest| !manifest.object.is_null());
    for Manifest { object, place } in &objects {
        let Some(fields) = object.as_object() else { bail!("{}: {object} is no Kubernetes object", place.of("")) };
        let is_given = |field: &str| fields.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if let Some(field) = ["apiVersion", "kind"].into_iter().find(|field| !is_given(field)) {
            let some: Vec<&str> = fields.keys().map(String::as_str).take(3).collect();
            bail!(
                "{}: {field}: a document with {}: apiVersion and kind must say what it is",
                place.of(field),
                if some.is_empty() { "no field".to_owned() } else { some.join(", ") }
            );
        }
    }
    Ok(objects)
}

/// Manifests of objects that an API server has listed; their place is a name without lines.
pub(crate) fn of_objects(name: &str, objects: Vec<Value>) -> Vec<Manifest> {
    let source = Source::new(name, "");
    let place = |document| Place { source: Arc::clone(&source), document, item: None };
    objects.into_iter().enumerate().map(|(at, object)| Manifest { place: place(at), object }).collect()
}

/// The text at a JSON pointer of an object, or an empty text.
pub(crate) fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The kind, namespace and name of an object, as messages show them.
pub(crate) fn named(object: &Value) -> String {
    shown(&text(object, "/kind"), &text(object, "/metadata/namespace"), &text(object, "/metadata/name"))
}

/// The form in which messages show an object's kind, namespace and name.
pub(super) fn shown(kind: &str, namespace: &str, name: &str) -> String {
    match (namespace.is_empty(), name.is_empty()) {
        (_, true) => kind.to_owned(),
        (true, false) => format!("{kind} {name}"),
        (false, false) => format!("{kind} {namespace}/{name}"),
    }
}

/// Separates objects that matter to decisions, with `managed` as the managed job kinds, from other objects.
///
/// # Errors
/// The error lists all objects that cannot be decoded. `berth decide` does not decide without the objects that cannot be decoded, because its decisions would
/// be about another cluster.
pub(super) fn sorted(manifests: &[Manifest], managed: &BTreeSet<Kind>) -> anyhow::Result<Sorted> {
    let mut sorted = Sorted::default();
    let mut faults = Vec::new();
    let mut taken: BTreeSet<String> =
        manifests.iter().map(|manifest| text(&manifest.object, "/metadata/name")).collect();
    for manifest in manifests {
        // Without the pod integration, Berth makes no Workload for Pods, Deployments and StatefulSets.
        if let Some(integration) = integration(&manifest.object).filter(|_| !managed.contains(&Kind::Pod)) {
            let why = format!("the configuration does not name the integration {integration}");
            sorted.ignored.push(format!("{}: {why}", named(&manifest.object)));
            continue;
        }
        let unknown = match examine(&manifest.object) {
            Ok(offline::Manifest::Read { unknown }) => unknown,
            Ok(offline::Manifest::Foreign) => {
                sorted.ignored.push(format!("{}: berth decide does not look at its kind", named(&manifest.object)));
                continue;
            }
            Err(error) => {
                faults.push(manifest.fault_at(error.path(), &error));
                continue;
            }
        };
        let object = placed(manifest.object.clone(), &mut taken);
        if text(&object, "/metadata/name").is_empty() {
            faults.push(manifest.fault("metadata.name: it has none"));
        }
        let placed = Manifest { place: manifest.place.clone(), object };
        sorted.unknown.extend(unknown.into_iter().map(|path| placed.dropped(&path)));
        sorted.objects.push(placed);
    }
    refused(&faults)?;
    Ok(sorted)
}

/// Name of the integration, in the configuration, of a kind that is admitted through pods.
fn integration(object: &Value) -> Option<&'static str> {
    let version = text(object, "/apiVersion");
    match (version.as_str(), text(object, "/kind").as_str()) {
        ("v1", "Pod") => Some(POD_FRAMEWORK),
        (version, "Deployment") if version.starts_with("apps/") => Some(DEPLOYMENT_FRAMEWORK),
        (version, "StatefulSet") if version.starts_with("apps/") => Some(STATEFUL_SET_FRAMEWORK),
        _ => None,
    }
}

impl Manifest {
    /// Text about a fault of the manifest, with file and line. The text `fault` begins with the path of the wrong field, if the fault is about a field.
    pub(crate) fn fault(&self, fault: &str) -> String {
        let path = fault.split(": ").next().filter(|path| !path.contains(' ')).unwrap_or_default();
        self.fault_at(path, fault)
    }

    /// Text about a fault of the manifest at a path, with file and line; the path may be empty.
    pub(super) fn fault_at(&self, path: &str, fault: impl Display) -> String {
        format!("{}: {}: {fault}", self.place.of(path), named(&self.object))
    }

    /// File, line of a field and number of the object in its file: an order that does not depend on the order in which files are read.
    pub(crate) fn position(&self, path: &str) -> (&str, u64, usize, Option<usize>) {
        let Place { source, document, item } = &self.place;
        (source.file.as_str(), self.place.line(path).unwrap_or_default(), *document, *item)
    }

    /// File and line of a field as `file:line`, or the file alone if its text is unknown.
    pub(crate) fn place_of(&self, path: &str) -> String {
        self.place.of(path)
    }

    /// The value of a field, by a path such as `spec.tasks[0].name` or `metadata.labels[example.com/a]`.
    pub(crate) fn value(&self, path: &str) -> Option<&Value> {
        steps(path).iter().try_fold(&self.object, |at, step| match at {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            other => other.get(step),
        })
    }

    /// Message about a field that the object's kind does not have.
    fn dropped(&self, path: &str) -> String {
        let (version, kind) = (text(&self.object, "/apiVersion"), text(&self.object, "/kind"));
        let hint = Version::of(&version).and_then(|version| renamed_field(&kind, version, path));
        let hint = hint.map(|name| format!("; in {version} it is {name}")).unwrap_or_default();
        self.fault(&format!("{path}: no such field, the API server drops it{hint}"))
    }
}

/// All faults of the manifests as one error.
pub(crate) fn refused(faults: &[String]) -> anyhow::Result<()> {
    match faults {
        [] => Ok(()),
        [fault] => bail!("{fault}"),
        faults => bail!("{} faults in the manifests:\n  {}", faults.len(), faults.join("\n  ")),
    }
}

/// An object as the API server would store it: namespaced kinds get a namespace, a Namespace gets the label with its name, and `generateName` gets a number
/// appended, so that equal input gives equal output.
fn placed(mut object: Value, taken: &mut BTreeSet<String>) -> Value {
    let (kind, name) = (text(&object, "/kind"), text(&object, "/metadata/name"));
    let beginning = text(&object, "/metadata/generateName");
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return object };
    if kind == "Namespace"
        && let Value::Object(labels) = metadata.entry("labels").or_insert_with(|| json!({}))
    {
        labels.insert(NAME_LABEL.to_owned(), json!(name));
    }
    if NAMESPACED.contains(&kind.as_str()) || Kind::jobs().any(|job| job.name() == kind) {
        metadata.entry("namespace").or_insert_with(|| json!("default"));
    }
    if name.is_empty() && !beginning.is_empty() {
        let mut all = (1_u32..).map(|number| format!("{beginning}{number}"));
        let free = all.find(|name| !taken.contains(name)).unwrap_or_default();
        metadata.insert("name".to_owned(), json!(free));
        taken.insert(free);
    }
    object
}

/// Namespaces that objects are in and that no manifest describes.
pub(super) fn absent_namespaces(objects: &[Manifest]) -> BTreeSet<String> {
    let objects: Vec<&Value> = objects.iter().map(|manifest| &manifest.object).collect();
    let namespaces = objects.iter().filter(|object| text(object, "/kind") == "Namespace");
    let given: BTreeSet<String> = namespaces.map(|object| text(object, "/metadata/name")).collect();
    let used = objects.iter().map(|object| text(object, "/metadata/namespace"));
    used.filter(|namespace| !namespace.is_empty() && !given.contains(namespace)).collect()
}
