//! Topology assignments: slices of domains in v1beta2, a plain list in v1beta1. The domains and their order stay the same.

use serde_json::{Value, json};

use super::Fields;

/// Values that one list in a slice may have.
const SLICE: usize = 100_000;
/// Domains that are written out for one question: a slice says in a few bytes how many it has.
pub(super) const DOMAINS: usize = 100_000;

/// Whether `flat` keeps everything: the slices are in order, and their domains not more than may be written out yet.
pub(super) fn fits(assignment: &Value, left: &mut usize) -> bool {
    let Value::Object(assignment) = assignment else { return true };
    let rest = slices(assignment)
        .and_then(|slices| slices.iter().try_fold(*left, |left, slice| left.checked_sub(slice.length)));
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// From v1beta2 to v1beta1, of an assignment that fits.
pub(super) fn flat(assignment: &mut Fields) {
    let domains = slices(assignment).map(|slices| slices.iter().flat_map(Slice::domains).collect());
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), Value::Array(domains.unwrap_or_default()));
}

/// From v1beta2 to v1beta1, of an assignment that does not: one without domains.
pub(super) fn blank(assignment: &mut Fields) {
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), Value::Array(Vec::new()));
}

/// From v1beta1 to v1beta2; a domain with another number of values than there are levels makes it one without slices.
pub(super) fn sliced(assignment: &mut Fields) {
    let slices = domains(assignment)
        .map(|(levels, domains)| domains.chunks(SLICE).map(|domains| encode(levels, domains)).collect::<Vec<_>>());
    assignment.remove("domains");
    assignment.insert("slices".to_owned(), Value::Array(slices.unwrap_or_default()));
}

/// A domain of v1beta1: its value of each level, and its pods.
type Domain<'a> = (Vec<&'a str>, i64);

/// One slice: for each level what its values have in common is written once.
fn encode(levels: usize, domains: &[Domain<'_>]) -> Value {
    let column = |level: usize| domains.iter().map(move |(values, _)| values.get(level).copied().unwrap_or_default());
    let values: Vec<Value> = (0..levels).map(|level| values_of_level(&column(level).collect::<Vec<_>>())).collect();
    let counts = match domains.split_first() {
        Some(((_, first), rest)) if rest.iter().all(|(_, count)| count == first) => json!({"universal": first}),
        _ => json!({"individual": domains.iter().map(|(_, count)| *count).collect::<Vec<_>>()}),
    };
    json!({"domainCount": domains.len(), "valuesPerLevel": values, "podCounts": counts})
}

fn values_of_level(values: &[&str]) -> Value {
    let Some((first, rest)) = values.split_first() else { return json!({"universal": ""}) };
    if rest.iter().all(|value| value == first) {
        return json!({"universal": first});
    }
    let prefix = rest.iter().fold(*first, |prefix, value| common(prefix, value, false));
    let ends: Vec<&str> = values.iter().map(|value| value.strip_prefix(prefix).unwrap_or_default()).collect();
    let suffix = ends.iter().copied().reduce(|suffix, end| common(suffix, end, true)).unwrap_or_default();
    let roots: Vec<&str> = ends.iter().map(|end| end.strip_suffix(suffix).unwrap_or_default()).collect();
    let mut individual = Fields::from_iter([("roots".to_owned(), json!(roots))]);
    for (name, text) in [("prefix", prefix), ("suffix", suffix)] {
        if !text.is_empty() {
            individual.insert(name.to_owned(), text.into());
        }
    }
    json!({"individual": individual})
}

/// What two texts have in common at their beginning, or at their end.
fn common<'a>(one: &'a str, other: &str, at_end: bool) -> &'a str {
    if at_end {
        let same = one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b);
        let length: usize = same.map(|(a, _)| a.len_utf8()).sum();
        one.get(one.len() - length..).unwrap_or_default()
    } else {
        let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        let length: usize = same.map(|(a, _)| a.len_utf8()).sum();
        one.get(..length).unwrap_or_default()
    }
}

/// The number of levels, and the domains with their counts.
fn domains(assignment: &Fields) -> Option<(usize, Vec<Domain<'_>>)> {
    let levels = assignment.get("levels")?.as_array()?.len();
    let domains = assignment.get("domains")?.as_array()?;
    let read: Vec<_> = domains.iter().map(|domain| read_domain(domain, levels)).collect::<Option<_>>()?;
    Some((levels, read))
}

fn read_domain(domain: &Value, levels: usize) -> Option<Domain<'_>> {
    let values: Vec<&str> = domain.get("values")?.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let count = domain.get("count")?.as_i64()?;
    (values.len() == levels).then_some((values, count))
}

/// A slice that is in order.
struct Slice<'a> {
    length: usize,
    levels: Vec<Values<'a>>,
    counts: Counts<'a>,
}

enum Values<'a> {
    Universal(&'a str),
    Individual { prefix: &'a str, roots: &'a [Value], suffix: &'a str },
}

enum Counts<'a> {
    Universal(&'a Value),
    Individual(&'a [Value]),
}

impl Slice<'_> {
    fn domains(&self) -> impl Iterator<Item = Value> {
        (0..self.length).map(|index| {
            let value = |level: &Values<'_>| match level {
                Values::Universal(value) => Value::from(*value),
                Values::Individual { prefix, roots, suffix } => {
                    let root = roots.get(index).and_then(Value::as_str).unwrap_or_default();
                    Value::from([*prefix, root, *suffix].concat())
                }
            };
            let count = match &self.counts {
                Counts::Universal(count) => (*count).clone(),
                Counts::Individual(counts) => counts.get(index).cloned().unwrap_or_default(),
            };
            let values: Vec<Value> = self.levels.iter().map(value).collect();
            Value::Object(Fields::from_iter([("count".to_owned(), count), ("values".to_owned(), Value::Array(values))]))
        })
    }
}

/// The slices of an assignment; nothing when one is not in order.
fn slices(assignment: &Fields) -> Option<Vec<Slice<'_>>> {
    let levels = assignment.get("levels")?.as_array()?.len();
    assignment.get("slices")?.as_array()?.iter().map(|slice| read_slice(slice, levels)).collect()
}

fn read_slice(slice: &Value, levels: usize) -> Option<Slice<'_>> {
    let length = usize::try_from(slice.get("domainCount")?.as_u64()?).ok()?;
    let values = slice.get("valuesPerLevel")?.as_array()?;
    let read: Vec<Values<'_>> = values.iter().map(|values| read_values(values, length)).collect::<Option<_>>()?;
    let counts = slice.get("podCounts")?;
    let counts = match (counts.get("universal"), counts.get("individual")) {
        (Some(count), None) if count.is_i64() => Counts::Universal(count),
        (None, Some(Value::Array(counts))) if counts.len() == length && counts.iter().all(Value::is_i64) => {
            Counts::Individual(counts)
        }
        _ => return None,
    };
    (read.len() == levels).then_some(Slice { length, levels: read, counts })
}

fn read_values(values: &Value, length: usize) -> Option<Values<'_>> {
    match (values.get("universal"), values.get("individual")) {
        (Some(Value::String(value)), None) => Some(Values::Universal(value)),
        (None, Some(individual)) => {
            let text = |field: &str| individual.get(field).map_or(Some(""), Value::as_str);
            let roots = individual.get("roots")?.as_array()?;
            let in_order = roots.len() == length && roots.iter().all(Value::is_string);
            in_order.then_some(Values::Individual { prefix: text("prefix")?, roots, suffix: text("suffix")? })
        }
        _ => None,
    }
}
