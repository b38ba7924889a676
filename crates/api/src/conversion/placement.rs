//! Conversion of topology assignments: slices of domains in v1beta2, a plain list of domains in v1beta1. The topology domains and their order stay
//! the same in a conversion.
//!
//! An assignment is read from the text in a review (`rewritten`) or from a decoded object (`fits`, `flat`, `blank` and `sliced`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::braces::InBraces;
use super::fields::Fields;
use super::version::Version;
use crate::json::to_value;

/// Largest number of values in one list of a slice.
const SLICE: usize = 100_000;
/// Largest number of domains that are written out for one review: a slice of a few bytes can stand for very many domains.
pub(super) const DOMAINS: usize = 100_000;
/// Bytes that each domain of a slice may repeat from the slice. A domain that repeats more than `REPEATED` bytes counts as several domains, because
/// it makes the answer as long as several domains do.
const REPEATED: usize = 256;
/// Bytes of JSON syntax around one value of a domain.
const AROUND: usize = 3;

/// Whether `flat` loses nothing: the slices are valid, and their domains are within the number `left` that may still be written out. The number of
/// the assignment's domains is subtracted from `left`.
pub(super) fn fits(assignment: &Value, left: &mut usize) -> bool {
    let Value::Object(assignment) = assignment else { return true };
    let rest = slices(assignment).and_then(|slices| left_after(*left, &slices));
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// The number of topology domains that may still be written out after the domains of `slices`; `None` if `slices` have too many domains.
fn left_after(left: usize, slices: &[InBraces<Slice<'_>>]) -> Option<usize> {
    slices.iter().try_fold(left, |left, InBraces(slice)| left.checked_sub(slice.counts_as()))
}

/// Converts an assignment for which `fits` is true from v1beta2 to v1beta1.
pub(super) fn flat(assignment: &mut Fields) {
    let domains = slices(assignment).and_then(|slices| {
        let mut text = Vec::new();
        list(&slices, &mut text).and_then(|()| serde_json::from_slice(&text)).ok()
    });
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), domains.unwrap_or_else(|| json!([])));
}

/// Converts an assignment for which `fits` is false from v1beta2 to v1beta1: the result has no domains.
pub(super) fn blank(assignment: &mut Fields) {
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), Value::Array(Vec::new()));
}

/// Converts an assignment from v1beta1 to v1beta2. If a topology domain does not have exactly one value for each level, the result has no slices.
pub(super) fn sliced(assignment: &mut Fields) {
    let slices = domains(assignment).map(|(levels, domains)| to_value(&encoded(levels, &domains)));
    assignment.remove("domains");
    assignment.insert("slices".to_owned(), slices.unwrap_or_else(|| json!([])));
}

/// An assignment that is converted to the other version while it is written.
pub(super) enum Rewritten<'a> {
    Flat(InSlices<'a>),
    Sliced(InDomains<'a>),
}

/// A topology assignment in v1beta2.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InSlices<'a> {
    #[serde(borrow)]
    levels: Vec<&'a RawValue>,
    #[serde(borrow)]
    slices: Vec<InBraces<Slice<'a>>>,
}

/// A topology assignment in v1beta1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InDomains<'a> {
    #[serde(borrow)]
    levels: Vec<&'a RawValue>,
    #[serde(borrow)]
    domains: Vec<InBraces<Domain<'a>>>,
}

/// Converts an assignment from its JSON text, with the result of `flat` or `sliced`; `None` if the assignment is not valid or has further fields.
pub(super) fn rewritten<'a>(text: &'a RawValue, to: Version, left: &mut usize) -> Option<Rewritten<'a>> {
    match to {
        Version::V1beta1 => {
            let InBraces(read) = serde_json::from_str::<InBraces<InSlices<'a>>>(text.get()).ok()?;
            let in_order = read.slices.iter().all(|InBraces(slice)| slice.in_order(read.levels.len()));
            *left = left_after(*left, &read.slices).filter(|_| in_order)?;
            Some(Rewritten::Flat(read))
        }
        Version::V1beta2 => {
            let InBraces(read) = serde_json::from_str::<InBraces<InDomains<'a>>>(text.get()).ok()?;
            let in_order = read.domains.iter().all(|InBraces(domain)| domain.values.len() == read.levels.len());
            // An assignment in v1beta1 without domains may stand for slices that the annotation carries, so it is not converted here.
            (in_order && !read.domains.is_empty()).then_some(Rewritten::Sliced(read))
        }
    }
}

impl Rewritten<'_> {
    /// Writes the converted assignment as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match self {
            Self::Flat(read) => {
                out.extend_from_slice(b"{\"domains\":");
                list(&read.slices, out)?;
                out.extend_from_slice(b",\"levels\":");
                serde_json::to_writer(&mut *out, &read.levels)?;
            }
            Self::Sliced(read) => {
                out.extend_from_slice(b"{\"levels\":");
                serde_json::to_writer(&mut *out, &read.levels)?;
                out.extend_from_slice(b",\"slices\":");
                serde_json::to_writer(&mut *out, &encoded(read.levels.len(), &read.domains))?;
            }
        }
        out.push(b'}');
        Ok(())
    }
}

/// A string, borrowed from the JSON if the JSON has no escapes in it.
#[derive(Default, Deserialize, Serialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

/// A domain of v1beta1: its value for each level, and the number of its pods.
#[derive(Deserialize)]
struct Domain<'a> {
    count: i64,
    #[serde(borrow)]
    values: Vec<Text<'a>>,
}

/// A slice of v1beta2: a group of domains, in which a common part of the values of a level is written once.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Slice<'a> {
    domain_count: usize,
    pod_counts: Counts,
    #[serde(borrow)]
    values_per_level: Vec<Values<'a>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum Counts {
    Universal(i64),
    Individual(Vec<i64>),
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum Values<'a> {
    Universal(#[serde(borrow)] Text<'a>),
    Individual(#[serde(borrow)] InBraces<Individual<'a>>),
}

#[derive(Deserialize, Serialize)]
struct Individual<'a> {
    #[serde(borrow, default, skip_serializing_if = "Text::is_empty")]
    prefix: Text<'a>,
    #[serde(borrow)]
    roots: Vec<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Text::is_empty")]
    suffix: Text<'a>,
}

fn encoded<'l>(levels: usize, domains: &'l [InBraces<Domain<'l>>]) -> Vec<Slice<'l>> {
    domains.chunks(SLICE).map(|domains| encode(levels, domains)).collect()
}

fn encode<'l>(levels: usize, domains: &'l [InBraces<Domain<'l>>]) -> Slice<'l> {
    let column = |level: usize| -> Vec<&'l str> {
        domains.iter().map(|InBraces(domain)| domain.values.get(level).map_or("", |value| value.0.as_ref())).collect()
    };
    let pod_counts = match domains.split_first() {
        Some((InBraces(first), rest)) if rest.iter().all(|InBraces(domain)| domain.count == first.count) => {
            Counts::Universal(first.count)
        }
        _ => Counts::Individual(domains.iter().map(|InBraces(domain)| domain.count).collect()),
    };
    let values_per_level = (0..levels).map(|level| values_of_level(&column(level))).collect();
    Slice { domain_count: domains.len(), pod_counts, values_per_level }
}

fn values_of_level<'l>(values: &[&'l str]) -> Values<'l> {
    let Some((first, rest)) = values.split_first() else { return Values::Universal(Text::default()) };
    if rest.iter().all(|value| value == first) {
        return Values::Universal(Text::from(*first));
    }
    let prefix = rest.iter().fold(*first, |prefix, value| common(prefix, value, false));
    let ends: Vec<&str> = values.iter().map(|value| value.strip_prefix(prefix).unwrap_or_default()).collect();
    let suffix = ends.iter().copied().reduce(|suffix, end| common(suffix, end, true)).unwrap_or_default();
    let roots = ends.iter().map(|end| Text::from(end.strip_suffix(suffix).unwrap_or_default())).collect();
    Values::Individual(InBraces(Individual { prefix: prefix.into(), roots, suffix: suffix.into() }))
}

/// The common end of two texts if `at_end` is true, else their common beginning.
fn common<'a>(one: &'a str, other: &str, at_end: bool) -> &'a str {
    let all = if at_end { other.ends_with(one) } else { other.starts_with(one) };
    if all {
        one
    } else if at_end {
        let same = one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b);
        let length: usize = same.map(|(a, _)| a.len_utf8()).sum();
        one.get(one.len() - length..).unwrap_or_default()
    } else {
        let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        let length: usize = same.map(|(a, _)| a.len_utf8()).sum();
        one.get(..length).unwrap_or_default()
    }
}

/// Writes the domains of valid slices as v1beta1 lists them.
fn list(slices: &[InBraces<Slice<'_>>], out: &mut Vec<u8>) -> serde_json::Result<()> {
    out.push(b'[');
    let mut is_first = true;
    for InBraces(slice) in slices {
        // The beginning of each domain in JSON is the same for all domains of a slice, so it is made once for each slice.
        let mut same = Vec::from(*b"{\"count\":");
        let counts = match &slice.pod_counts {
            Counts::Universal(count) => {
                serde_json::to_writer(&mut same, count)?;
                None
            }
            Counts::Individual(counts) => Some((std::mem::take(&mut same), counts)),
        };
        same.extend_from_slice(b",\"values\":[");
        let mut columns = Vec::new();
        for (level, values) in slice.values_per_level.iter().enumerate() {
            if level > 0 {
                same.push(b',');
            }
            same.push(b'"');
            match values {
                Values::Universal(value) => put(&value.0, &mut same)?,
                Values::Individual(InBraces(values)) => {
                    put(&values.prefix.0, &mut same)?;
                    columns.push((std::mem::take(&mut same), &values.roots));
                    put(&values.suffix.0, &mut same)?;
                }
            }
            same.push(b'"');
        }
        same.extend_from_slice(b"]}");
        for index in 0..slice.domain_count {
            if !is_first {
                out.push(b',');
            }
            is_first = false;
            if let Some((before, counts)) = &counts {
                out.extend_from_slice(before);
                serde_json::to_writer(&mut *out, &counts.get(index))?;
            }
            for (before, roots) in &columns {
                out.extend_from_slice(before);
                put(roots.get(index).map_or("", |root| root.0.as_ref()), out)?;
            }
            out.extend_from_slice(&same);
        }
    }
    out.push(b']');
    Ok(())
}

/// Whether a byte is written without an escape in a JSON string.
fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

/// Largest number of bytes that a text takes as a part of a JSON string.
fn size(text: &str) -> usize {
    text.bytes().map(|byte| if is_plain(byte) { 1 } else { r"\u0000".len() }).sum()
}

/// Writes a text as a part of a JSON string.
fn put(text: &str, out: &mut Vec<u8>) -> serde_json::Result<()> {
    if text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    let quoted = serde_json::to_string(text)?;
    let escaped = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    out.extend_from_slice(escaped.unwrap_or_default().as_bytes());
    Ok(())
}

/// The number of levels of an assignment in v1beta1, and its domains; `None` if a domain is not valid.
fn domains(assignment: &Fields) -> Option<(usize, Vec<InBraces<Domain<'_>>>)> {
    let levels = assignment.get("levels")?.as_array()?.len();
    let domains = assignment.get("domains")?.as_array()?;
    let read = domains.iter().map(|domain| read_domain(domain, levels).map(InBraces)).collect::<Option<_>>()?;
    Some((levels, read))
}

fn read_domain(domain: &Value, levels: usize) -> Option<Domain<'_>> {
    let values = texts(domain.get("values")?.as_array()?)?;
    let count = domain.get("count")?.as_i64()?;
    (values.len() == levels).then_some(Domain { count, values })
}

fn texts(values: &[Value]) -> Option<Vec<Text<'_>>> {
    values.iter().map(|value| value.as_str().map(Text::from)).collect()
}

impl Slice<'_> {
    /// Number of domains that the slice counts as, which grows with the bytes that each domain repeats.
    fn counts_as(&self) -> usize {
        let repeated = self.values_per_level.iter().map(|values| match values {
            Values::Universal(value) => size(&value.0),
            Values::Individual(InBraces(values)) => size(&values.prefix.0).saturating_add(size(&values.suffix.0)),
        });
        let repeated = repeated.fold(0_usize, |sum, one| sum.saturating_add(one).saturating_add(AROUND));
        self.domain_count.saturating_mul(repeated.saturating_div(REPEATED).saturating_add(1))
    }

    fn in_order(&self, levels: usize) -> bool {
        let of_each = |values: &Values<'_>| match values {
            Values::Universal(_) => true,
            Values::Individual(InBraces(values)) => values.roots.len() == self.domain_count,
        };
        let counts = match &self.pod_counts {
            Counts::Universal(_) => true,
            Counts::Individual(counts) => counts.len() == self.domain_count,
        };
        counts && self.values_per_level.len() == levels && self.values_per_level.iter().all(of_each)
    }
}

/// The slices of an assignment in v1beta2; `None` if a slice is not valid.
fn slices(assignment: &Fields) -> Option<Vec<InBraces<Slice<'_>>>> {
    let levels = assignment.get("levels")?.as_array()?.len();
    let slices = assignment.get("slices")?.as_array()?.iter().map(|slice| {
        let read = read_slice(slice).filter(|slice| slice.in_order(levels));
        read.map(InBraces)
    });
    slices.collect()
}

fn read_slice(slice: &Value) -> Option<Slice<'_>> {
    let domain_count = usize::try_from(slice.get("domainCount")?.as_u64()?).ok()?;
    let values = slice.get("valuesPerLevel")?.as_array()?;
    let counts = slice.get("podCounts")?;
    let pod_counts = match (counts.get("universal"), counts.get("individual")) {
        (Some(count), None) => Counts::Universal(count.as_i64()?),
        (None, Some(Value::Array(counts))) => {
            Counts::Individual(counts.iter().map(Value::as_i64).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some(Slice { domain_count, pod_counts, values_per_level: values.iter().map(read_values).collect::<Option<_>>()? })
}

fn read_values(values: &Value) -> Option<Values<'_>> {
    match (values.get("universal"), values.get("individual")) {
        (Some(Value::String(value)), None) => Some(Values::Universal(Text::from(value.as_str()))),
        (None, Some(individual)) => {
            let text = |field: &str| individual.get(field).map_or(Some(""), Value::as_str).map(Text::from);
            let roots = texts(individual.get("roots")?.as_array()?)?;
            Some(Values::Individual(InBraces(Individual { prefix: text("prefix")?, roots, suffix: text("suffix")? })))
        }
        _ => None,
    }
}
