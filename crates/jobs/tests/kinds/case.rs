//! The format of a case file, and the comparison of results with expectations.

use berth_api::validation::FieldError;
use berth_jobs::{Facts, Placement, RequestRules, effective_pod_spec, parse_forbidden, quota_requests};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A case file: an object, and cases with changes of the object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    object: Value,
    cases: Vec<Case>,
}

/// Inputs of a case, and its expectations by name.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Case {
    /// Name of the case: its difference from the other cases.
    pub(crate) name: String,
    /// The case's object; in the file, the change of the file's object.
    #[serde(default, rename = "with")]
    pub(crate) object: Value,
    /// The update of the object, as a merge patch.
    #[serde(default)]
    then: Value,
    /// True if the namespace has a LocalQueue called default.
    #[serde(default)]
    pub(crate) default_queue: bool,
    /// Names of the facts about the cluster that are true.
    #[serde(default)]
    facts: Vec<String>,
    /// The job's admission, one entry per pod set.
    pub(crate) admission: Option<Vec<Admission>>,
    /// The object of which the job's Workload was made, as a change of the case file's object; `None` if the case has no Workload.
    original: Option<Value>,
    /// The StatefulSet of a pod, if known.
    pub(crate) set: Option<Value>,
    /// Pods of a group, each as a change of the file's object.
    #[serde(default)]
    pub(crate) pods: Vec<Value>,
    #[serde(skip)]
    base: Value,
    /// Expectations, by name.
    #[serde(flatten)]
    pub(crate) expected: BTreeMap<String, Value>,
}

/// The admission of a pod set.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Admission {
    pod_set: String,
    count: i32,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Value>,
    scheduling_gates: Vec<String>,
    overrides: bool,
    forbidden: String,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            pod_set: "main".to_owned(),
            count: 1,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            scheduling_gates: Vec::new(),
            overrides: false,
            forbidden: String::new(),
        }
    }
}

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        // With strict booleans, the YAML texts `y` and `n` are read as strings.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(&text, options).map_err(|error| error.to_string())
    }

    /// The cases of the file, each with its object.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = self.cases.clone();
        let mut names = BTreeSet::new();
        for case in &mut cases {
            assert!(names.insert(case.name.clone()), "two cases are called {:?}", case.name);
            case.base = self.object.clone();
            case.object = merged(&self.object, &case.object);
            assert!(!case.expected.is_empty(), "{:?} expects nothing", case.name);
        }
        cases
    }
}

impl Case {
    /// The case's object after the merge patch of the case's update.
    pub(crate) fn after(&self) -> Value {
        merged(&self.object, &self.then)
    }

    /// The object that the Workload was made of.
    pub(crate) fn original(&self) -> Option<Value> {
        Some(merged(&self.base, self.original.as_ref()?))
    }

    /// The pods of a case's pod group.
    pub(crate) fn members(&self) -> Vec<Value> {
        self.pods.iter().map(|pod| merged(&self.object, pod)).collect()
    }

    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for fact in &self.facts {
            let known = match fact.as_str() {
                "managedNamespace" => &mut facts.managed_namespace,
                "withoutQueueName" => &mut facts.without_queue_name,
                "defaultQueue" => &mut facts.default_queue,
                "defaultPriorityClass" => &mut facts.default_priority_class,
                "governed" => &mut facts.governed,
                "pods" => &mut facts.pods,
                "deployments" => &mut facts.deployments,
                "statefulSets" => &mut facts.stateful_sets,
                "unmanagedKind" => &mut facts.unmanaged_kind,
                other => panic!("{:?}: no fact is called {other}", self.name),
            };
            *known = true;
        }
        facts
    }

    pub(crate) fn placements(&self) -> Option<Vec<Placement>> {
        let placement = |admission: &Admission| Placement {
            pod_set: admission.pod_set.clone(),
            count: admission.count,
            labels: admission.labels.clone(),
            annotations: admission.annotations.clone(),
            node_selector: admission.node_selector.clone(),
            tolerations: admission.tolerations.iter().map(crate::kinds::read).collect(),
            scheduling_gates: admission.scheduling_gates.clone(),
            overrides: admission.overrides,
            forbidden: match admission.forbidden.as_str() {
                "" => Vec::new(),
                text => parse_forbidden(text).unwrap().into_iter().collect(),
            },
        };
        Some(self.admission.as_ref()?.iter().map(placement).collect())
    }
}

/// A result of a case, with its kind of comparison.
pub(crate) enum Found {
    /// The result must equal the expectation.
    Exact(Value),
    /// The expectation must be a part of the result.
    Part(Value),
    /// The result must contain the expected text; `None` means that there is no text.
    Text(Option<String>),
    /// Errors that are compared one by one with expected entries `field` or `field: words of the message`.
    Errors(Vec<FieldError>),
}

impl Found {
    pub(crate) fn of<T: serde::Serialize>(value: T) -> Self {
        Self::Exact(serde_json::to_value(value).unwrap())
    }

    /// The difference between the result and the expectation, if any.
    pub(crate) fn differs(&self, wanted: &Value) -> Option<String> {
        let differs = match self {
            Self::Exact(found) => found != wanted,
            Self::Part(found) => !contains(found, wanted),
            Self::Text(found) => match wanted.as_str() {
                Some(words) => !found.as_deref().is_some_and(|text| text.contains(words)),
                None => !wanted.is_null() || found.is_some(),
            },
            Self::Errors(found) => !errors_are(found, wanted),
        };
        let found = || match self {
            Self::Exact(found) | Self::Part(found) => found.to_string(),
            Self::Text(found) => format!("{found:?}"),
            Self::Errors(found) => found.iter().map(|error| format!("\n    {error}")).collect(),
        };
        differs.then(|| format!("expected {wanted}, found {}", found()))
    }
}

fn errors_are(found: &[FieldError], wanted: &Value) -> bool {
    let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |(error, entry): (&FieldError, &Value)| {
        let entry = entry.as_str().unwrap_or_default();
        // The first colon with a space ends the field of an expected error, because the paths of fields contain no colon with a space.
        let (field, words) = entry.split_once(": ").unwrap_or((entry, ""));
        error.field == field && error.to_string().contains(words)
    };
    found.len() == wanted.len() && found.iter().zip(wanted).all(is)
}

/// Whether `full` contains all of `part`; an absent value contains null.
fn contains(full: &Value, part: &Value) -> bool {
    match (full, part) {
        (Value::Object(full), Value::Object(part)) => {
            part.iter().all(|(key, part)| contains(full.get(key).unwrap_or(&Value::Null), part))
        }
        (Value::Array(full), Value::Array(part)) => {
            full.len() == part.len() && full.iter().zip(part).all(|(full, part)| contains(full, part))
        }
        _ => full == part,
    }
}

/// The value `target` after a merge patch (RFC 7386).
pub(crate) fn merged(target: &Value, patch: &Value) -> Value {
    let (mut result, changes) = match (target, patch) {
        (_, Value::Null) => return target.clone(),
        (Value::Object(target), Value::Object(changes)) => (target.clone(), changes),
        (_, Value::Object(changes)) => (Map::new(), changes),
        _ => return patch.clone(),
    };
    for (key, change) in changes {
        if change.is_null() {
            result.remove(key);
        } else {
            let old = result.get(key).cloned().unwrap_or(Value::Null);
            result.insert(key.clone(), merged(&old, change));
        }
    }
    Value::Object(result)
}

/// The object as an API server stores it, without empty values.
pub(crate) fn stored(object: &Value) -> Value {
    let mut object = object.clone();
    prune(&mut object);
    object
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            let empty = |v: &Value| v.as_object().is_some_and(Map::is_empty) || v.as_array().is_some_and(Vec::is_empty);
            fields.retain(|_, field| !empty(field) && !field.is_null());
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Pod sets in the form in which a case expects them, with the requests of one pod in place of the pod template.
pub(crate) fn pod_sets(sets: &[berth_api::PodSet]) -> Value {
    let reported = sets.iter().map(|set| {
        let mut reported = json!({"name": set.effective_name(), "count": set.effective_count()});
        let spec = effective_pod_spec(set.template.spec.as_ref().unwrap(), None, &Default::default());
        let requests = quota_requests(&spec, &RequestRules::default()).unwrap();
        let requests: BTreeMap<_, _> =
            requests.into_iter().map(|(name, amount)| (name.clone(), berth_quantity::format(&name, amount))).collect();
        if !requests.is_empty() {
            reported["requests"] = json!(requests);
        }
        if let Some(least) = set.min_count {
            reported["minCount"] = json!(least);
        }
        if let Some(request) = &set.topology_request {
            reported["topologyRequest"] = json!(request);
        }
        reported
    });
    reported.collect()
}
