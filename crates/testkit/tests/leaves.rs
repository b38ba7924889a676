//! The runner compares all expectations of a case. A passing case fails after any scalar, list item or key of its expectations is changed, left out or doubled.
//! The changes of expectations that the runner may overlook are in [`EXEMPT`], with reasons.
//!
//! In Berth's own cases, the test changes the expectations at every place. In Kueue's cases, each field of each kind is tried in a few places, spread over the
//! cases; `BERTH_LEAVES` sets the number of places, and 0 means all.

use berth_testkit::case::{self, Case};
use berth_testkit::conformance::{files, judge_case};
use berth_testkit::diff::Verdict;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Number of places at which each change of a field is tried in Kueue's cases.
const PLACES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// A scalar gets another value; an empty value gets content.
    Altered,
    /// A list item or a key is removed.
    Removed,
    /// A list item occurs twice.
    Doubled,
}

use Change::{Altered, Doubled, Removed};

/// A change of an expectation that the runner may overlook, with the reason.
struct Exempt {
    /// Kind of the cases with this exemption; an empty kind means all kinds.
    kind: &'static str,
    /// Path of the exempt field below `expect`, in which `*` stands for a name and `[]` for a list item.
    field: &'static str,
    /// The exempt change; `None` means all changes.
    change: Option<Change>,
    /// Part of the path of the cases with this exemption; an empty part means all cases.
    case: &'static str,
    why: &'static str,
}

const fn exempt(kind: &'static str, field: &'static str, change: Change, why: &'static str) -> Exempt {
    Exempt { kind, field, change: Some(change), case: "", why }
}

const fn within(case: &'static str, exempt: Exempt) -> Exempt {
    Exempt { case, ..exempt }
}

const ABSENT: &str = "what is absent was not asserted";
const NAMED_ONES: &str = "the ones that a case names are looked up, each by itself";
const BY_KEY: &str = "items are a set, told apart by their key";
const HOW: &str = "says how to compare";
const CLASS: &str = "the class of an error counts, and its text need not match";
const MAY_FIT: &str = "upstream takes a fit where a flavor is wanted to lack a resource of its group";
const GROUP_CASE: &str = "multiple-flavors-leader-worker-set-workers-request-gpu-leader-does-not-request-gpu-fits.yaml";

static EXEMPT: [Exempt; 55] = [
    exempt("cycle", "eventsCompare/messages", Altered, HOW),
    exempt("cycle", "eventsCompare/messages", Removed, HOW),
    exempt("cycle", "eventsCompare/order", Altered, HOW),
    exempt("cycle", "eventsCompare/order", Removed, HOW),
    exempt("cycle", "assignedFlavor/*", Removed, NAMED_ONES),
    exempt("cycle", "preemptionTargetRecomputations/*", Removed, NAMED_ONES),
    // Statuses of Workloads occur in the kinds cycle, preemption-targets and requeue.
    exempt("", "workloads/[]", Doubled, BY_KEY),
    exempt("", "workloads/[]/status/conditions/[]", Doubled, BY_KEY),
    exempt("", "workloads/[]/status/conditions/[]/lastTransitionTime", Removed, ABSENT),
    exempt("", "workloads/[]/status/conditions/[]/message", Removed, ABSENT),
    exempt("", "workloads/[]/status/conditions/[]/observedGeneration", Removed, ABSENT),
    exempt("", "workloads/[]/status/conditions/[]/reason", Removed, ABSENT),
    exempt("", "workloads/[]/status/conditions/[]/status", Removed, ABSENT),
    exempt("availability", "available/*", Removed, NAMED_ONES),
    exempt("availability", "available/*/*", Removed, NAMED_ONES),
    exempt("availability", "available/*/*/*", Removed, NAMED_ONES),
    exempt("availability", "potentiallyAvailable/*", Removed, NAMED_ONES),
    exempt("availability", "potentiallyAvailable/*/*", Removed, NAMED_ONES),
    exempt("availability", "potentiallyAvailable/*/*/*", Removed, NAMED_ONES),
    exempt("fair-share", "shares/[]", Removed, NAMED_ONES),
    exempt("fair-share", "shares/[]", Doubled, NAMED_ONES),
    exempt("fair-share", "shares/[]/borrowing", Removed, ABSENT),
    exempt("fair-share", "shares/[]/dominantResource", Removed, ABSENT),
    exempt("fair-share", "shares/[]/weightedShare", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/attempts", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/attempts/[]", Doubled, BY_KEY),
    exempt("flavor-assignment", "podSets/[]/attempts/[]/noFitReason", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/attempts/[]/preemptionPossibility", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/count", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/flavors", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/flavors/*/mode", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/flavors/*/name", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/reasons", Removed, ABSENT),
    exempt("flavor-assignment", "podSets/[]/requests", Removed, ABSENT),
    exempt("flavor-assignment", "error", Altered, CLASS),
    exempt("flavor-assignment", "podSets/[]/error", Altered, CLASS),
    exempt("flavor-assignment", "attemptNoFitReasons/*", Removed, NAMED_ONES),
    within(
        GROUP_CASE,
        Exempt { change: None, ..exempt("flavor-assignment", "podSets/[]/attempts/[]/borrow", Altered, MAY_FIT) },
    ),
    within(
        GROUP_CASE,
        Exempt { change: None, ..exempt("flavor-assignment", "podSets/[]/attempts/[]/reasons/[]", Altered, MAY_FIT) },
    ),
    within(
        "flavor-spanning-multiple-resource-groups.yaml",
        exempt("flavor-assignment", "attemptNoFitReasons/*", Altered, "a flavor that does not match is not tried"),
    ),
    // In this case, flavor-a fits, so the engine does not try flavor-b, which the case also names, and the runner compares only flavors that were tried.
    Exempt {
        change: None,
        ..within(
            "succeeds-to-schedule-on-flavor-a.yaml",
            exempt("flavor-assignment", "attemptNoFitReasons/*", Altered, "a flavor after one that fits is not tried"),
        )
    },
    exempt("queue-order", "members/*", Removed, NAMED_ONES),
    exempt("queue-order", "order/*", Removed, NAMED_ONES),
    exempt("queue-timestamp", "timestamp/*", Removed, ABSENT),
    exempt("requests", "summary/*/type", Altered, "the type of a summary is its key"),
    exempt("requests", "totalRequests/[]/name", Removed, "the API's default for an absent name is main"),
    exempt("snapshot", "clusterQueues/*/cohort", Removed, ABSENT),
    exempt("snapshot", "clusterQueues/*/fairWeight", Removed, ABSENT),
    exempt("snapshot", "clusterQueues/*/quotas", Removed, ABSENT),
    exempt("snapshot", "clusterQueues/*/status", Removed, ABSENT),
    exempt("snapshot", "clusterQueues/*/workloads", Removed, ABSENT),
    exempt("snapshot", "cohorts/*/quotas", Removed, ABSENT),
    exempt("snapshot", "cohorts/*/fairWeight", Removed, ABSENT),
    within(
        "TestSnapshot/cohort.yaml",
        exempt("snapshot", "cohorts/*/fairWeight", Altered, "a cohort without an object has no weight of its own"),
    ),
    within(
        "remove-all-then-add-all.yaml",
        exempt("snapshot", "clusterQueues/*/workloads/[]", Removed, "where workloads come and go, no list is no list"),
    ),
];

/// Fields of `expect` whose keys are names, each with its number of layers of names.
const NAMED: [(&str, usize); 38] = [
    ("annotations", 1),
    ("assigned", 1),
    ("assignedFlavor", 1),
    ("assignments", 1),
    ("attemptNoFitReasons", 1),
    ("available", 3),
    ("clusterQueues", 1),
    ("cohorts", 1),
    ("counts", 1),
    ("default", 1),
    ("defaultRequest", 1),
    ("flavors", 1),
    ("inadmissibleLeft", 1),
    ("labels", 1),
    ("lastTriedFlavorIdx", 2),
    ("left", 1),
    ("lendable", 1),
    ("limits", 1),
    ("max", 1),
    ("maxLimitRequestRatio", 1),
    ("members", 1),
    ("min", 1),
    ("newAssignments", 1),
    ("order", 1),
    ("overhead", 1),
    ("potentiallyAvailable", 3),
    ("preemptionTargetRecomputations", 1),
    ("quotas", 2),
    ("requests", 1),
    ("reserved", 2),
    ("resourceUsage", 1),
    ("resources", 1),
    ("skippedPreemptions", 1),
    ("subtreeQuota", 2),
    ("summary", 1),
    ("timestamp", 1),
    ("unassignedUsage", 1),
    ("usage", 2),
];

/// A place in the expectations of a case, at which the test changes a value.
struct At {
    pointer: String,
    /// The pointer of the place, with `*` for names and `[]` for list items.
    field: String,
    /// Number of levels of maps below the place whose keys are names, such as those of flavors.
    named: usize,
    /// True if the place is the root of the expectations, of which a case may leave out every key.
    root: bool,
}

impl At {
    fn root() -> Self {
        Self { pointer: String::new(), field: String::new(), named: 0, root: true }
    }

    fn below(&self, token: &str, segment: &str) -> (String, String) {
        let separator = if self.field.is_empty() { "" } else { "/" };
        (format!("{}/{token}", self.pointer), format!("{}{separator}{segment}", self.field))
    }

    fn key(&self, key: &str) -> Self {
        let (pointer, field) = self.below(&escaped(key), if self.named > 0 { "*" } else { key });
        if self.field == "after" {
            // The expectations after a step have the form of the expectations at the end.
            return Self { pointer, ..Self::root() };
        }
        let layers = NAMED.iter().find(|(field, _)| *field == key).map_or(0, |(_, layers)| *layers);
        let named = self.named.checked_sub(1).unwrap_or(layers);
        Self { pointer, field, named, root: self.root && key == "after" }
    }

    fn with(&self, change: Change) -> (String, String, Change) {
        (self.pointer.clone(), self.field.clone(), change)
    }

    fn item(&self, index: usize) -> Self {
        let (pointer, field) = self.below(&index.to_string(), "[]");
        Self { pointer, field, named: 0, root: false }
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Whether a JSON value means the same as its absence.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
    }
}

/// Whether a flavor's attempt was not made because another flavor fits; Kueue lists such a flavor without a reason.
fn is_untried(attempts: &[Value], attempt: &Value) -> bool {
    let has_mode = |attempt: &Value, mode: &str| attempt["mode"] == mode;
    has_mode(attempt, "NoFit")
        && attempt.get("reasons").is_none_or(is_nothing)
        && attempts.iter().any(|other| has_mode(other, "Fit"))
}

/// All changes of the expectations: pointer, field and change.
fn changes(value: &Value, at: &At, found: &mut Vec<(String, String, Change)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, child) in map.iter().filter(|(key, _)| key.as_str() != "internal") {
                let inner = at.key(key);
                if !at.root && !is_nothing(child) {
                    found.push(inner.with(Removed));
                }
                changes(child, &inner, found);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (index, child) in list.iter().enumerate() {
                if at.field.ends_with("/attempts") && is_untried(list, child) {
                    continue;
                }
                let inner = at.item(index);
                found.extend([inner.with(Removed), inner.with(Doubled)]);
                changes(child, &inner, found);
            }
        }
        _ if at.field.is_empty() => {}
        _ => found.push(at.with(Altered)),
    }
}

/// Whether a case marks a field as one that is not compared.
fn is_ignored(expect: &Value, field: &str) -> bool {
    let is_silent = expect.pointer("/eventsCompare/messages") != Some(&json!(true));
    let ignored = expect.pointer("/internal/ignoredFields").and_then(Value::as_array).into_iter().flatten();
    let mut ignored = ignored.filter_map(Value::as_str);
    (is_silent && field == "events/[]/message") || ignored.any(|name| field.split('/').any(|part| part == name))
}

/// A quantity such as `500m` or `2Gi` with its number increased by one.
fn more(quantity: &str) -> Option<String> {
    let digits = quantity.len() - quantity.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = quantity.split_at(digits);
    let is_unit = unit.len() <= 2 && unit.chars().all(|c| c.is_ascii_alphabetic());
    let number: i64 = number.parse().ok().filter(|_| is_unit)?;
    Some(format!("{}{unit}", number.checked_add(1).unwrap_or(number - 1)))
}

/// Another JSON value in place of `value`, such as a number increased by one, a longer text, or the opposite of a boolean.
fn altered(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!(!value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => json!(value.checked_add(1).unwrap_or(value - 1)),
            None => json!(number.as_f64().unwrap_or_default() + 1.0),
        },
        Value::String(text) => match text.as_str() {
            "True" => json!("False"),
            "False" => json!("True"),
            time if time.len() == 20 && time.ends_with('Z') => json!("2001-01-01T00:00:00Z"),
            text => json!(more(text).unwrap_or_else(|| format!("{text}x"))),
        },
        Value::Null => json!("x"),
        Value::Array(_) => json!(["x"]),
        Value::Object(_) => json!({"x": ["x"]}),
    }
}

fn apply(expect: &mut Value, pointer: &str, change: Change) {
    if change == Altered {
        let place = expect.pointer_mut(pointer).unwrap();
        *place = altered(place);
        return;
    }
    let (parent, token) = pointer.rsplit_once('/').unwrap();
    match expect.pointer_mut(parent).unwrap() {
        Value::Object(map) => {
            map.remove(&token.replace("~1", "/").replace("~0", "~")).unwrap();
        }
        Value::Array(list) => {
            let index: usize = token.parse().unwrap();
            let item = list.remove(index);
            if change == Doubled {
                list.insert(index, item.clone());
                list.insert(index, item);
            }
        }
        other => panic!("{parent}: {other} has no parts"),
    }
}

/// A decision case that passes.
struct Passed {
    path: String,
    case: Case,
}

impl Passed {
    /// A description of the change if the changed case still passes.
    fn unnoticed(&self, pointer: &str, change: Change) -> Option<String> {
        let mut expect = self.case.expect.clone();
        let before = expect.pointer(pointer).cloned().unwrap_or_default();
        apply(&mut expect, pointer, change);
        let after = if change == Altered { expect.pointer(pointer).cloned() } else { None };
        let verdict = judge_case(&Case { expect, ..self.case.clone() });
        let became = after.map_or_else(String::new, |after| format!(" -> {after}"));
        let Passed { path, case, .. } = self;
        (!matches!(verdict, Verdict::Failed(_)))
            .then(|| format!("{path} (kind {}): {pointer} {change:?}: {before}{became}", case.kind))
    }
}

/// The passing cases below a folder. Cases of the family `tas` are left out, because none of them applies to Berth.
fn passing(root: &Path) -> Vec<Passed> {
    let read = |file: PathBuf| {
        let path = file.strip_prefix(root).unwrap().display().to_string();
        if path.starts_with("tas/") {
            return None;
        }
        let case = case::read(&std::fs::read_to_string(&file).unwrap()).ok()?;
        (judge_case(&case) == Verdict::Passed).then_some(Passed { path, case })
    };
    files(root).unwrap().into_iter().filter_map(read).collect()
}

fn own() -> Vec<Passed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let passed = passing(&folder);
    assert_eq!(passed.len(), files(&folder).unwrap().len(), "all of our own pass");
    passed
}

/// Places at which each field of a kind can be changed: the index of the case and the pointer.
type Places = BTreeMap<(String, String, Change), Vec<(usize, String)>>;

/// Exempt changes that occur in cases, by the index of the entry in [`EXEMPT`].
type Exempted = BTreeMap<usize, Vec<(usize, String, Change)>>;

fn places(cases: &[Passed]) -> (Places, Exempted) {
    let (mut places, mut exempt) = (Places::new(), Exempted::new());
    for (index, Passed { path, case, .. }) in cases.iter().enumerate() {
        let mut found = Vec::new();
        changes(&case.expect, &At::root(), &mut found);
        for (pointer, field, change) in found.into_iter().filter(|(_, field, _)| !is_ignored(&case.expect, field)) {
            let covers = |line: &Exempt| {
                (line.kind.is_empty() || line.kind == case.kind)
                    && line.field == field
                    && line.change.is_none_or(|exempted| exempted == change)
                    && path.contains(line.case)
            };
            match EXEMPT.iter().position(covers) {
                Some(line) => exempt.entry(line).or_default().push((index, pointer, change)),
                None => places.entry((case.kind.clone(), field, change)).or_default().push((index, pointer)),
            }
        }
    }
    (places, exempt)
}

/// At most `most` entries of a list, evenly spread; all entries if `most` is 0.
fn spread<T>(list: &[T], most: usize) -> impl Iterator<Item = &T> {
    let count = if most == 0 { list.len() } else { most.min(list.len()) };
    (0..count).map(move |at| &list[at * list.len() / count])
}

/// Tries each change of each field of each kind in at most `most` places, and fails with all changes after which the case still passes.
fn each_counts(cases: &[Passed], most: usize) -> usize {
    let (fields, _) = places(cases);
    let (mut tried, mut unnoticed) = (0, Vec::new());
    for ((_, _, change), list) in &fields {
        for (index, pointer) in spread(list, most) {
            tried += 1;
            unnoticed.extend(cases[*index].unnoticed(pointer, *change));
        }
    }
    println!("{tried} changes of {} fields", fields.len());
    assert!(
        unnoticed.is_empty(),
        "{} of {tried} changes went without notice:\n{}",
        unnoticed.len(),
        unnoticed.join("\n")
    );
    tried
}

#[test]
fn own_case_with_any_changed_leaf_fails() {
    let tried = each_counts(&own(), 0);
    assert!(tried >= 300, "only {tried} changes");
}

#[test]
fn kueue_case_with_any_changed_leaf_fails() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let most = std::env::var("BERTH_LEAVES").ok().and_then(|text| text.parse().ok()).unwrap_or(PLACES);
    let mut cases = passing(&folder);
    assert!(cases.len() >= 500, "only {} cases", cases.len());
    let tried = each_counts(&cases, most);
    assert!(tried >= 500, "only {tried} changes");
    // The test fails if an entry of [`EXEMPT`] is needed by no case.
    cases.extend(own());
    let (_, exempt) = places(&cases);
    let needed = |line: &usize| {
        let mut places = exempt.get(line).into_iter().flatten();
        places.any(|(index, pointer, change)| cases[*index].unnoticed(pointer, *change).is_some())
    };
    let needless: Vec<String> = (0..EXEMPT.len())
        .filter(|line| !needed(line))
        .map(|line| {
            let Exempt { kind, field, change, case, why } = &EXEMPT[line];
            format!("{kind} {field} {change:?} {case}: {why}")
        })
        .collect();
    assert!(needless.is_empty(), "no change needs these exemptions:\n{}", needless.join("\n"));
}
