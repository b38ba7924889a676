//! Tests of every rule of every field of Kueue's kinds, in both API versions: a rule is broken on a good object of `cases/kueue-fields`, and kept at
//! its limit.
//!
//! The test breaks the rules of a schema about numbers, patterns, lists of words and required fields mechanically, wherever a good object has the field; and it
//! leaves fields with a default out. A rule in CEL has a written case in the file `cases/kueue-fields` of its kind. The function `uncovered` names the rules
//! that have neither a mechanical test nor a case. Cases about a status, and about rules that compare with the old object, need an existing object: the test
//! stores this object before it sends a case, and no case changes it.

mod asked;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, anyhow, ensure};
use futures::StreamExt;
use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bad_fields::{self, TYPE};
use crate::binaries::repository;
use crate::kinds::{self, items, text};

use asked::{ask, judge, short};
use paths::{changed, join, place};

/// Number of requests that the test sends at once.
const AT_ONCE: usize = 8;
/// Kueue's kinds, by the plural that the names of their files contain.
const PLURALS: [&str; 11] = [
    "admissionchecks",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "multikueueclusters",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
    "workloads",
];
/// Messages of the API server about a field that is missing, and about an entry that occurs twice.
const REQUIRED: &str = "Required value";
const DUPLICATE: &str = "Duplicate value";
/// Both API versions of Kueue's kinds, with the newer one at the beginning.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A group of cases: a good object of a kind, with changes that rules in CEL refuse.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// API versions in which the good object of the group is sent; both versions if the field is absent.
    versions: Option<Vec<String>>,
    good: Value,
    #[serde(default)]
    refused: Vec<Written>,
    /// Changes of the good object that go up to the limit of a rule in CEL and must be accepted, with the new values by path.
    #[serde(default)]
    accepted: Vec<BTreeMap<String, Value>>,
}

/// A case of the file: a rule in CEL that a change breaks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    field: String,
    says: String,
    /// The new values of the fields that the case changes, by path; `null` removes a field.
    change: BTreeMap<String, Value>,
    /// Changes of the good object that give the old object, which exists when the case's change is sent; absent if the case has no old object.
    of: Option<BTreeMap<String, Value>>,
}

/// A case: one request to the API server and the expected answer.
#[derive(Debug)]
struct Case {
    /// Path of the field that the case changes, as the API server writes it.
    field: String,
    /// Path of the field in the schema, without indexes.
    place: String,
    /// The words in the API server's message that identify the rule.
    says: String,
    expected: Expected,
    /// Index, among the groups of cases of the kind, of the group of this case; the case changes the good object of that group.
    group: usize,
    change: Vec<(String, Value)>,
    of: Option<Vec<(String, Value)>>,
}

/// The answer that a case expects from the API server.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    /// The API server refuses the field with the words in `says`.
    Refused,
    /// The API server's answer does not have the words in `says` about the field, because the rule is kept.
    Kept,
    /// The case expects that the API server accepts the object.
    Accepted,
    /// The API server accepts the object and fills in this default value for the field.
    Filled(Value),
}

/// A kind of Kueue in one API version, with its schema and its groups of cases.
struct Subject {
    kind: String,
    version: String,
    /// Path of the collection of the kind's objects at the API server.
    base: String,
    schema: Value,
    groups: Vec<Group>,
}

impl Subject {
    fn read(plural: &str, version: &str) -> Result<Self> {
        let path = repository().join("crds").join(format!("{plural}.kueue.x-k8s.io.yaml"));
        let text_of =
            |path: &std::path::Path| fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
        let definition = kinds::parse(&text_of(&path)?)?.into_iter().next().context("a definition")?;
        let kind = text(&definition, "/spec/names/kind").to_owned();
        let found = items(&definition, "/spec/versions").iter().find(|one| one["name"] == version);
        let found = found.with_context(|| format!("{kind} has no {version}"))?;
        let namespace = if text(&definition, "/spec/scope") == "Namespaced" { "namespaces/default/" } else { "" };
        let path = repository().join("e2e/cases/kueue-fields").join(format!("{kind}.yaml"));
        let groups: Vec<Group> =
            serde_saphyr::from_str(&text_of(&path)?).map_err(|e| anyhow!("{}: {e}", path.display()))?;
        let groups = groups
            .into_iter()
            .filter(|group| group.versions.as_ref().is_none_or(|all| all.iter().any(|v| v == version)));
        Ok(Self {
            base: format!("/apis/kueue.x-k8s.io/{version}/{namespace}{plural}"),
            schema: found["schema"]["openAPIV3Schema"].clone(),
            groups: groups.collect(),
            version: version.to_owned(),
            kind,
        })
    }

    /// Every case of the kind; each rule of each field has one case.
    fn cases(&self) -> Result<Vec<Case>> {
        let mut all = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let mut made = Mechanical { group: number, known: all.iter().map(rule_of).collect(), cases: Vec::new() };
            made.below(&self.schema, &group.good, "", "");
            all.append(&mut made.cases);
            let pairs = |change: &BTreeMap<String, Value>| change.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            for change in &group.accepted {
                let field = change.keys().next().cloned().unwrap_or_default();
                all.push(Case {
                    place: place(&field),
                    field,
                    says: "at the limit".to_owned(),
                    expected: Expected::Accepted,
                    group: number,
                    change: pairs(change),
                    of: None,
                });
            }
            for written in &group.refused {
                all.push(Case {
                    field: written.field.clone(),
                    place: place(&written.field),
                    says: written.says.clone(),
                    expected: Expected::Refused,
                    group: number,
                    change: pairs(&written.change),
                    of: written.of.as_ref().map(pairs),
                });
            }
        }
        Ok(all)
    }

    /// The good object of a group with the changes `changes`, under the name `name`.
    fn object(&self, group: usize, name: &str, changes: &[(String, Value)]) -> Result<Value> {
        let mut object = self.groups.get(group).context("a group")?.good.clone();
        object["apiVersion"] = json!(format!("kueue.x-k8s.io/{}", self.version));
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": name});
        changed(object, changes)
    }
}

fn rule_of(case: &Case) -> (String, String) {
    (case.place.clone(), case.says.clone())
}

/// The fields of an object with their schemas, and whether each field is required. At the root of an object, the fields `apiVersion`, `kind` and
/// `metadata` of Kubernetes itself are left out.
fn fields<'a>(node: &'a Value, place: &str) -> impl Iterator<Item = (&'a str, &'a Value, bool)> {
    let is_root = place.is_empty();
    let all = node["properties"].as_object().into_iter().flatten().map(|(name, child)| (name.as_str(), child));
    let ours = all.filter(move |(name, _)| !(is_root && ["apiVersion", "kind", "metadata"].contains(name)));
    // A required field with a default cannot be missing, because the API server fills it in.
    let must = |name: &str| items(node, "/required").iter().any(|one| one == name);
    ours.map(move |(name, child)| (name, child, must(name) && child.get("default").is_none()))
}

/// Cases that follow from a schema mechanically.
struct Mechanical {
    group: usize,
    /// Rules of the schema that have a case already, each by the place of its field and the words of its message.
    known: BTreeSet<(String, String)>,
    cases: Vec<Case>,
}

impl Mechanical {
    /// Adds a case that gives a field another value.
    fn add(&mut self, (field, place): (&str, &str), says: &str, expected: Expected, value: Value) {
        let change = vec![(field.to_owned(), value)];
        let (field, place, says) = (field.to_owned(), place.to_owned(), says.to_owned());
        self.cases.push(Case { field, place, says, expected, group: self.group, change, of: None });
    }

    /// Adds cases about a field of a good object and about the fields below it.
    fn walk(&mut self, node: &Value, good: Option<&Value>, field: &str, place: &str) {
        let Some(good) = good else { return };
        for says in rules(node) {
            if self.known.insert((place.to_owned(), says.clone())) {
                for (value, refused) in values(node, good, &says) {
                    let expected = if refused { Expected::Refused } else { Expected::Kept };
                    self.add((field, place), &says, expected, value);
                }
            }
        }
        if let Some((says, value)) = default(node)
            && self.known.insert((place.to_owned(), says.clone()))
        {
            self.add((field, place), &says, Expected::Filled(value), Value::Null);
        }
        if !ends(node, place) {
            self.below(node, good, field, place);
        }
    }

    fn below(&mut self, node: &Value, good: &Value, field: &str, place: &str) {
        self.unique(node, good, field, place);
        for (name, child, must) in fields(node, place) {
            let (field, place) = (join(field, name), join(place, name));
            if must && self.known.insert((place.clone(), REQUIRED.to_owned())) {
                self.add((&field, &place), REQUIRED, Expected::Refused, Value::Null);
            }
            self.walk(child, good.get(name), &field, &place);
        }
        if node["items"].is_object() {
            for (index, entry) in good.as_array().into_iter().flatten().enumerate() {
                self.walk(&node["items"], Some(entry), &format!("{field}[{index}]"), &format!("{place}[]"));
            }
        }
        if node["additionalProperties"].is_object() {
            for (key, entry) in good.as_object().into_iter().flatten() {
                self.walk(
                    &node["additionalProperties"],
                    Some(entry),
                    &format!("{field}[{key}]"),
                    &format!("{place}{{}}"),
                );
            }
        }
    }

    /// Adds a case about an entry that occurs twice, in a set or in a list with keys.
    fn unique(&mut self, node: &Value, good: &Value, field: &str, place: &str) {
        let place = format!("{place}[]");
        let (Some(list), true) = (good.as_array(), is_unique(node)) else { return };
        if let Some(first) = list.first()
            && self.known.insert((place.clone(), DUPLICATE.to_owned()))
        {
            let at = format!("{field}[{}]", list.len());
            self.add((&at, &place), DUPLICATE, Expected::Refused, first.clone());
        }
    }
}

fn is_unique(node: &Value) -> bool {
    matches!(text(node, "/x-kubernetes-list-type"), "set" | "map")
}

/// Whether the fields below a schema node belong to Kubernetes: the fields of a pod template, and of objects without a schema.
fn ends(node: &Value, place: &str) -> bool {
    place.ends_with(".template") || node["x-kubernetes-preserve-unknown-fields"].as_bool() == Some(true)
}

/// Words of the API server's messages about values that break a rule of the schema `node`.
fn rules(node: &Value) -> Vec<String> {
    let mut reported = bad_fields::rules(node);
    // The rule that an int32 has both bounds is left out for Kueue's kinds: no case can break it, because the API server's message about a too large integer
    // names no field, and Kueue itself chose the bounds.
    reported.retain(|says| !says.starts_with("an int32 without"));
    if text(node, "/format") == "date-time" {
        // The API server reports a wrong type of a field of the format `date-time` with the word `date-time`.
        reported.retain(|says| !says.starts_with(TYPE));
        reported.push(format!("{TYPE} date-time"));
    }
    reported
}

/// The default of a field, with a name for the rule that fills it in.
fn default(node: &Value) -> Option<(String, Value)> {
    let value = node.get("default")?.clone();
    Some((format!("default {value}"), value))
}

/// Values that test a rule, each with whether the rule refuses the value.
fn values(node: &Value, good: &Value, says: &str) -> Vec<(Value, bool)> {
    let number = |key: &str| node[key].as_i64();
    let length = |key: &str| node[key].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
    let list = |entries: usize| Value::from((0..entries).map(|index| entry(node, good, index)).collect::<Vec<_>>());
    let map = |entries: usize| {
        let value = good.as_object().and_then(|map| map.values().next()).cloned().unwrap_or_default();
        Value::from_iter((0..entries).map(|index| (format!("k{index}"), value.clone())))
    };
    let word = |says: &str| says.split(' ').take(3).collect::<Vec<_>>().join(" ");
    match word(says).as_str() {
        "must be of" if says.ends_with("date-time") => vec![(json!("soon"), true), (another_type(node), true)],
        "must be of" => vec![(another_type(node), true)],
        // The API server accepts each word of a field's `enum` and refuses another word.
        _ if says.starts_with("supported values") => {
            let all = items(node, "/enum").iter().map(|value| (value.clone(), false));
            std::iter::once((json!("no-such-word"), true)).chain(all).collect()
        }
        _ if says.starts_with("should match") => vec![(json!("a b!"), true)],
        "should be at" => vec![(json!("a".repeat(length("minLength").saturating_sub(1))), true)],
        "may not be" => vec![(json!("a".repeat(length("maxLength") + 1)), true)],
        "should be greater" => {
            number("minimum").map_or_else(Vec::new, |n| vec![(json!(n - 1), true), (json!(n), false)])
        }
        "should be less" => number("maximum").map_or_else(Vec::new, |n| vec![(json!(n + 1), true), (json!(n), false)]),
        "should have at" => vec![(list(length("minItems").saturating_sub(1)), true), (list(length("minItems")), false)],
        "must have at" if node.get("maxItems").is_some() => {
            vec![(list(length("maxItems") + 1), true), (list(length("maxItems")), false)]
        }
        "must have at" => vec![(map(length("maxProperties") + 1), true), (map(length("maxProperties")), false)],
        _ => Vec::new(),
    }
}

fn another_type(node: &Value) -> Value {
    match text(node, "/type") {
        "string" => json!(5),
        "integer" | "boolean" | "array" | "object" => json!("text"),
        _ => json!(true),
    }
}

/// The entry at `index` of a long list, in which no two entries are equal.
fn entry(node: &Value, good: &Value, index: usize) -> Value {
    let first = good.as_array().and_then(|list| list.first()).cloned().unwrap_or_default();
    let mut made = match &first {
        Value::String(_) => return json!(format!("n{index}")),
        other => other.clone(),
    };
    for key in items(node, "/x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
        made[key] = json!(format!("n{index}"));
    }
    made
}

/// Rules of a schema that no case breaks, and cases about rules that the schema does not have.
fn uncovered(subject: &Subject, cases: &[Case]) -> Vec<String> {
    let mut wanted = BTreeSet::new();
    collect_below(&subject.schema, "", &mut wanted);
    let had: BTreeSet<(String, String)> = cases
        .iter()
        .filter(|case| !matches!(case.expected, Expected::Kept | Expected::Accepted))
        .map(rule_of)
        .collect();
    let name =
        |(place, says): &(String, String)| format!("{} {} {place:?}", subject.kind, subject.version) + ": " + says;
    let missing = wanted.difference(&had).map(|rule| format!("no case of {}", name(rule)));
    let strange = had.difference(&wanted).map(|rule| format!("the schema has no rule {}", name(rule)));
    missing.chain(strange).collect()
}

/// Collects every rule of a schema by its place, whether or not the good objects have the field.
fn collect(node: &Value, place: &str, into: &mut BTreeSet<(String, String)>) {
    let default = default(node).map(|(says, _)| says);
    into.extend(rules(node).into_iter().chain(default).map(|says| (place.to_owned(), says)));
    if !ends(node, place) {
        collect_below(node, place, into);
    }
}

fn collect_below(node: &Value, place: &str, into: &mut BTreeSet<(String, String)>) {
    let cel = items(node, "/x-kubernetes-validations").iter();
    let of = |rule: &Value| format!("{place}{}", text(rule, "/fieldPath")).trim_start_matches('.').to_owned();
    into.extend(cel.map(|rule| (of(rule), text(rule, "/message").to_owned())));
    for (name, child, must) in fields(node, place) {
        let place = join(place, name);
        if must {
            into.insert((place.clone(), REQUIRED.to_owned()));
        }
        collect(child, &place, into);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[key].is_object() {
            collect(&node[key], &format!("{place}{suffix}"), into);
        }
    }
    if is_unique(node) {
        into.insert((format!("{place}[]"), DUPLICATE.to_owned()));
    }
}

/// Asks the API server about every case of one API version, in which the API server must store the objects; returns the numbers of refused and of
/// accepted cases.
///
/// # Errors
/// Fails with every rule that has no case, and with every answer of the API server that differs from the expected one.
pub async fn judge_answers(client: &Client, version: &str) -> Result<[usize; 2]> {
    let (mut wrong, mut count) = (Vec::new(), [0, 0]);
    for plural in PLURALS {
        let subject = &Subject::read(plural, version)?;
        let cases = subject.cases()?;
        wrong.extend(uncovered(subject, &cases));
        for group in 0..subject.groups.len() {
            // The API server must accept the good object.
            let name = format!("good-{group}");
            subject.stored(client, group, &name, &[]).await?;
            let path = format!("{}/{name}", subject.base);
            ask(client, Method::DELETE, &path, &json!({})).await?.map_err(|status| anyhow!("{path}: {status}"))?;
        }
        let asked = futures::stream::iter(cases.iter().enumerate()).map(|(number, case)| async move {
            subject.answer(client, number, case).await.map(|reported| (case, reported))
        });
        for answer in asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            let (case, reported) = answer?;
            count[usize::from(case.expected != Expected::Refused)] += 1;
            if let Err(why) = judge(case, &reported) {
                let change = short(&serde_json::to_string(&case.change)?);
                wrong.push(format!("{} {version} {}: {}: {change}: {why}", subject.kind, case.field, case.says));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {count:?} answers in {version} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(count)
}

#[cfg(test)]
#[path = "kueue_fields_tests.rs"]
mod tests;
