//! Values that the fields of Berth's own kinds must not have. The files in `cases/fields` have at least one bad value for every rule of the schemas,
//! and the API server's message about each value must name the field, the value and the allowed values.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, anyhow, bail, ensure};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::binaries::repository;
use crate::kinds::{self, CHECKPOINT_STORE, Kind, QUEUE_POLICY, TRAINING_JOB, USER, items, text};
use crate::manifest::patch;

/// The kinds of the API group berth.dev, whose schemas are Berth's own.
const KINDS: [Kind; 3] = [TRAINING_JOB, QUEUE_POLICY, CHECKPOINT_STORE];

/// Bad values by field: each entry has the value, a part of the API server's refusal, and optionally the value as the refusal shows it.
type Listed = BTreeMap<String, Vec<Vec<Value>>>;

/// A group of cases: a good spec, bad values for its fields, and values to which a field must not be changed after the object was created.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    good: Value,
    #[serde(default)]
    bad: Listed,
    #[serde(default)]
    changed: Listed,
}

/// A case: one bad value of one field.
#[derive(Debug)]
struct Case {
    /// Path of the field with the bad value, as the API server writes it.
    field: String,
    value: Value,
    /// The object with the bad value, or the change that gives the bad value to an existing object.
    object: Value,
    /// True if the bad value is allowed in a new object, and the API server refuses only the change of an existing object to this value.
    change: bool,
    /// The part of the API server's message that says which values are allowed.
    words: String,
    /// The form in which the API server's message shows the bad value.
    value_in_message: ValueInMessage,
}

/// The form in which the API server's message shows a bad value.
#[derive(Debug, PartialEq)]
enum ValueInMessage {
    /// The message shows the value itself, before the words about the allowed values.
    AsIs,
    /// The message does not show the bad value, which is an object or a list, but a text about the value, after the words about the allowed values.
    Behind(String),
}

/// Asks the API server about every case and leaves no object behind; returns the number of cases.
///
/// # Errors
/// Fails with every rule that has no case, and with every answer of the API server that differs from the expected one.
pub async fn refused(client: &Client, namespace: &str) -> Result<usize> {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for kind in KINDS {
        let groups = groups(kind)?;
        let asks = Asks { client, namespace, kind };
        for group in &groups {
            if let Some(refusal) = asks.create(&object(kind, &group.good)).await? {
                wrong.push(format!("{} {}: good, but told {}", kind.kind, group.good, text(&refusal, "/message")));
            }
            wrong.extend(asks.wrong_answers(group).await?);
        }
        let cases = cases(kind, &groups)?;
        wrong.extend(uncovered(&schema(kind)?, &cases).into_iter().map(|gap| format!("{} {gap}", kind.kind)));
        count += cases.len();
    }
    ensure!(
        wrong.is_empty(),
        "{} of {count} bad values are not told as they should:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(count)
}

/// Sends the requests about objects of one kind to the API server.
struct Asks<'a> {
    client: &'a Client,
    namespace: &'a str,
    kind: Kind,
}

impl Asks<'_> {
    /// The cases of a group for which the API server gave a wrong answer.
    async fn wrong_answers(&self, group: &Group) -> Result<Vec<String>> {
        let Self { client, namespace, kind } = *self;
        let cases = cases(kind, std::slice::from_ref(group))?;
        let mut wrong = Vec::new();
        let there = cases.iter().any(|case| case.change);
        if there {
            let object = serde_json::from_value(object(kind, &group.good))?;
            kind.api(client, namespace).create(&PostParams::default(), &object).await?;
        }
        for case in &cases {
            let refusal = if case.change { self.patch(&case.object).await? } else { self.create(&case.object).await? };
            if let Err(why) = judge(case, refusal.as_ref()) {
                wrong.push(format!("{} {}: {}: {why}", kind.kind, case.field, short(&case.value)));
            }
        }
        if there {
            kind.delete(client, namespace, NAME).await?;
        }
        Ok(wrong)
    }

    /// The status with which the API server refuses to create an object; `None` if the API server would create the object.
    async fn create(&self, object: &Value) -> Result<Option<Value>> {
        let params = PostParams { dry_run: true, field_manager: Some(USER.to_owned()) };
        let object = serde_json::from_value(object.clone())?;
        self.refusal(self.kind.api(self.client, self.namespace).create(&params, &object).await)
    }

    /// Patches the existing object in a dry run; `None` if the API server accepts the change, otherwise the API server's refusal.
    async fn patch(&self, change: &Value) -> Result<Option<Value>> {
        let params = PatchParams { dry_run: true, field_manager: Some(USER.to_owned()), ..PatchParams::default() };
        let api = self.kind.api(self.client, self.namespace);
        self.refusal(api.patch(NAME, &params, &Patch::Merge(change)).await)
    }

    fn refusal<T>(&self, answer: kube::Result<T>) -> Result<Option<Value>> {
        match answer {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(serde_json::to_value(status)?)),
            Err(e) => Err(e).with_context(|| format!("asking for a {}", self.kind.kind)),
        }
    }
}

fn groups(kind: Kind) -> Result<Vec<Group>> {
    let path = repository().join("e2e/cases/fields").join(format!("{}.yaml", kind.kind));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// Schema of the spec of a kind, from the kind's CRD.
fn schema(kind: Kind) -> Result<Value> {
    let path = repository().join("crds").join(format!("{}.berth.dev.yaml", kind.plural));
    let definition = kinds::parse(&fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?)?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    definition
        .first()
        .and_then(|crd| crd.pointer(spec))
        .cloned()
        .with_context(|| format!("{spec} of {}", path.display()))
}

/// Name of every object about which the test asks the API server.
const NAME: &str = "bad-field";

fn object(kind: Kind, spec: &Value) -> Value {
    json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": NAME}, "spec": spec})
}

fn cases(kind: Kind, groups: &[Group]) -> Result<Vec<Case>> {
    let mut all = Vec::new();
    for group in groups {
        let bad = group.bad.iter().map(|listed| (listed, false));
        for ((field, list), change) in bad.chain(group.changed.iter().map(|listed| (listed, true))) {
            for entry in list {
                let [value, Value::String(words), how @ ..] = entry.as_slice() else {
                    bail!("{field}: a case is a value, words, and perhaps how the value is told: {entry:?}");
                };
                let value_in_message = value_in_message(how).with_context(|| format!("{field}: {how:?}"))?;
                let value = spelled(value);
                let mut object = if change { json!({}) } else { object(kind, &group.good) };
                put(&mut object, &steps(field), &value).with_context(|| format!("{field}: {value}"))?;
                all.push(Case { field: field.clone(), value, object, change, words: words.clone(), value_in_message });
            }
        }
    }
    Ok(all)
}

/// The form in which the API server's message shows a bad value, read from a case of the file: a case ends with `tells` and a text if the message does not show
/// the value.
fn value_in_message(how: &[Value]) -> Result<ValueInMessage> {
    match how {
        [] => Ok(ValueInMessage::AsIs),
        [part] if !text(part, "/tells").is_empty() => Ok(ValueInMessage::Behind(text(part, "/tells").to_owned())),
        _ => bail!("not `tells` and words"),
    }
}

/// The value that a case's short form stands for: the keys `long`, `many` and `entries` in the file of cases stand for a long text, a long list and a large
/// map.
fn spelled(written: &Value) -> Value {
    let number = |key: &str| written.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    match (number("long"), number("many"), number("entries")) {
        (Some(letters), ..) => Value::from("a".repeat(letters)),
        (_, Some(entries), _) => (0..entries).map(|entry| format!("n{entry}")).collect(),
        (.., Some(entries)) => Value::Object((0..entries).map(|entry| (format!("n{entry}"), json!("x"))).collect()),
        _ => written.clone(),
    }
}

pub(crate) fn steps(field: &str) -> Vec<&str> {
    field.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect()
}

/// Merges a value into the field at the end of the path `steps`; a new entry of a list is added at the end of the list.
fn put(into: &mut Value, steps: &[&str], value: &Value) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        patch(into, value);
        return Ok(());
    };
    let index = step.parse::<usize>();
    if into.is_null() {
        *into = if index.is_ok() { json!([]) } else { json!({}) };
    }
    match (into, index) {
        (Value::Array(list), Ok(index)) => {
            if index == list.len() {
                list.push(Value::Null);
            }
            put(list.get_mut(index).with_context(|| format!("no entry {index}"))?, rest, value)
        }
        (Value::Object(map), _) if rest.is_empty() && value.is_null() => {
            map.remove(*step).map(drop).context("not there")
        }
        (Value::Object(map), _) => put(map.entry(*step).or_insert(Value::Null), rest, value),
        (other, _) => bail!("{step} is no place in {other}"),
    }
}

/// Compares an answer of the API server with the answer that a case expects.
fn judge(case: &Case, refusal: Option<&Value>) -> std::result::Result<(), String> {
    let refusal = refusal.ok_or("accepted")?;
    let causes = items(refusal, "/details/causes");
    let value_of =
        |cause: &&Value| text(cause, "/field") == case.field && text(cause, "/message").contains(&case.words);
    let Some(cause) = causes.iter().find(value_of) else {
        return Err(format!("expected {:?} of the field, told {}", case.words, short(&refusal["details"]["causes"])));
    };
    let message = text(cause, "/message");
    let line = format!("{}: {message}", text(cause, "/field"));
    if !text(refusal, "/message").contains(&line) {
        return Err(format!("{line:?} is not what a user is shown: {}", text(refusal, "/message")));
    }
    if let ValueInMessage::Behind(part) = &case.value_in_message {
        let behind = message.split_once(&case.words).map_or("", |(_, rest)| rest);
        return if behind.contains(part) { Ok(()) } else { Err(format!("{part:?} is not told: {message}")) };
    }
    if case.words.starts_with(MOST_BYTES) {
        // For a text that is too long the expected message has only the limit of the length, because Kubernetes never repeats a value that is too long and may
        // have megabytes.
        let expected = format!("Too long: {}", case.words);
        return if message == expected { Ok(()) } else { Err(format!("expected {expected:?}, told {message}")) };
    }
    let Some(shown) = shown(case) else { return Ok(()) };
    let after = message.split_once(": ").and_then(|(_, rest)| rest.strip_prefix(shown.as_str()));
    if after.is_some_and(|rest| rest.is_empty() || rest.starts_with(':')) {
        return Ok(());
    }
    Err(format!("the value {} is not told: {message}", short(&Value::from(shown))))
}

/// The bad value as the API server prints it: a type if the type is wrong, a number of entries if there are too many or too few entries. The shown
/// value is `None` if the case has no value, because the case only removes a field.
fn shown(case: &Case) -> Option<String> {
    let kind = match &case.value {
        Value::Null => return None,
        Value::Object(taken) if !taken.is_empty() && taken.values().all(Value::is_null) => return None,
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let entries = case.value.as_array().map(Vec::len).or(case.value.as_object().map(serde_json::Map::len));
    Some(match entries {
        Some(entries) if [MOST_ENTRIES, LEAST_ENTRIES].iter().any(|words| case.words.starts_with(*words)) => {
            entries.to_string()
        }
        _ if case.words.starts_with(TYPE) => format!("{kind:?}"),
        _ => case.value.to_string(),
    })
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 400 { format!("{}...", text.chars().take(400).collect::<String>()) } else { text }
}

pub(crate) const TYPE: &str = "must be of type";
const MOST_ENTRIES: &str = "must have at most";
const LEAST_ENTRIES: &str = "should have at least";
const MOST_BYTES: &str = "may not be more than";

/// Rules of a schema that no case breaks, and cases about fields that the schema does not have.
fn uncovered(schema: &Value, cases: &[Case]) -> Vec<String> {
    let mut rules = Rules::new();
    collect(schema, "spec", &mut rules);
    let mut gaps = Vec::new();
    for case in cases {
        let place = place(schema, &case.field).unwrap_or_default();
        match rules.get_mut(&place) {
            // A rule has a case if the case's expected message begins with the rule's message: the message of a case may go on with parts that the API server
            // computes.
            Some(left) => {
                left.retain(|rule| rule.of_changes != case.change || !case.words.starts_with(rule.refusal.as_str()));
            }
            None => gaps.push(format!("{}: the schema has no such field", case.field)),
        }
    }
    for (field, left) in &rules {
        let case = |rule: &Rule| if rule.of_changes { "change" } else { "case" };
        gaps.extend(left.iter().map(|rule| format!("{field}: no {} of: {}", case(rule), rule.refusal)));
    }
    gaps
}

/// The place of a field in its schema: the field's path, with `[]` for the entries of a list and `{}` for the values of a map.
fn place(schema: &Value, field: &str) -> Option<String> {
    let (mut node, mut place) = (schema, "spec".to_owned());
    for step in steps(field.strip_prefix("spec")?).into_iter().skip(1) {
        if let Some(child) = node["properties"].get(step) {
            (node, place) = (child, format!("{place}.{step}"));
        } else if step.parse::<usize>().is_ok() && node["items"].is_object() {
            (node, place) = (&node["items"], format!("{place}[]"));
        } else if node["additionalProperties"].is_object() {
            (node, place) = (&node["additionalProperties"], format!("{place}{{}}"));
        } else {
            return None;
        }
    }
    Some(place)
}

/// A rule of a schema, with the beginning of the API server's message about it.
struct Rule {
    refusal: String,
    /// True if the rule compares a value with the value in the old object, so that the rule does not apply to a new object.
    of_changes: bool,
}

impl Rule {
    fn new(refusal: impl Into<String>) -> Self {
        Self { refusal: refusal.into(), of_changes: false }
    }
}

/// The rules of a schema, by the place of the field in the schema.
type Rules = BTreeMap<String, Vec<Rule>>;

fn collect(node: &Value, place: &str, into: &mut Rules) {
    into.entry(place.to_owned()).or_default().extend(rules(node).into_iter().map(Rule::new));
    for rule in items(node, "/x-kubernetes-validations") {
        let at_field = format!("{place}{}", text(rule, "/fieldPath"));
        let of_changes = text(rule, "/rule").contains("oldSelf");
        into.entry(at_field).or_default().push(Rule { refusal: text(rule, "/message").to_owned(), of_changes });
    }
    // The rules below a pod template are Kubernetes' own rules, so no case breaks them.
    if place.ends_with(".template") || node["x-kubernetes-preserve-unknown-fields"].as_bool() == Some(true) {
        return;
    }
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let below = format!("{place}.{name}");
        collect(child, &below, into);
        if items(node, "/required").iter().any(|required| required == name) {
            into.entry(below).or_default().push(Rule::new("Required value"));
        }
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[key].is_object() {
            collect(&node[key], &format!("{place}{suffix}"), into);
        }
    }
    if matches!(text(node, "/x-kubernetes-list-type"), "set" | "map") {
        into.entry(format!("{place}[]")).or_default().push(Rule::new("Duplicate value"));
    }
}

/// Messages of the API server about values that break a rule of the schema `node`.
pub(crate) fn rules(node: &Value) -> Vec<String> {
    let number = |key: &str| node[key].as_i64();
    let mut refusal = Vec::new();
    match (node["x-kubernetes-int-or-string"].as_bool() == Some(true), text(node, "/type")) {
        (true, _) => refusal.push(format!("{TYPE} integer,string")),
        (false, "") => {}
        (false, kind) => refusal.push(format!("{TYPE} {kind}")),
    }
    let choice: Vec<String> = items(node, "/enum").iter().map(ToString::to_string).collect();
    if !choice.is_empty() {
        refusal.push(format!("supported values: {}", choice.join(", ")));
    }
    refusal.extend(node["pattern"].as_str().map(|pattern| format!("should match '{pattern}'")));
    refusal.extend(number("minLength").map(|n| format!("should be at least {n} chars long")));
    refusal.extend(number("maxLength").map(|n| format!("{MOST_BYTES} {n} bytes")));
    refusal.extend(number("minimum").map(|n| format!("should be greater than or equal to {n}")));
    refusal.extend(number("maximum").map(|n| format!("should be less than or equal to {n}")));
    if text(node, "/format") == "int32" && (number("minimum").is_none() || number("maximum").is_none()) {
        // No case can break the rule that an int32 has both bounds, because the API server's message about an integer that does not fit into 32 bits
        // does not name the field.
        refusal.push("an int32 without both bounds".to_owned());
    }
    refusal.extend(number("minItems").map(|n| format!("{LEAST_ENTRIES} {n} items")));
    for key in ["maxItems", "maxProperties"] {
        refusal.extend(number(key).map(|n| format!("{MOST_ENTRIES} {n} items")));
    }
    let keys = node.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    refusal.extend(keys.filter(|key| !KNOWN.contains(key)).map(|key| format!("{key}, which this test does not know")));
    refusal
}

/// Keywords that a schema may have, because the function [`rules`] or [`collect`] reads them or because they allow every value.
const KNOWN: [&str; 24] = [
    "additionalProperties",
    "anyOf",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

#[cfg(test)]
#[path = "bad_fields_tests.rs"]
mod tests;
