//! Topology assignments: slices of domains in v1beta2, a plain list in v1beta1. The domains and their order stay the same.
//!
//! They are read from the text of a review (`rewritten`) or from an object (`fits` and what follows), and written into either.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::scan::{Scan, once};
use super::{Fields, Version};

/// Values that one list in a slice may have.
const SLICE: usize = 100_000;
/// Domains that are written out for one question: a slice says in a few bytes how many it has.
pub(super) const DOMAINS: usize = 100_000;
/// Bytes that all domains of a slice may repeat; with more of them a domain counts as several, since the answer would be as long.
const REPEATED: usize = 256;
/// Bytes that stand around one value of a domain.
const AROUND: usize = 3;

/// Whether `flat` keeps everything: the slices are in order, and their domains not more than may be written out yet.
pub(super) fn fits(assignment: &Value, left: &mut usize) -> bool {
    let Value::Object(assignment) = assignment else { return true };
    let rest = slices(assignment).and_then(|slices| left_after(*left, &slices));
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// What is left when the domains of the slices are written out.
fn left_after(left: usize, slices: &[Slice<'_>]) -> Option<usize> {
    slices.iter().try_fold(left, |left, slice| left.checked_sub(slice.counts_as()))
}

/// From v1beta2 to v1beta1, of an assignment that fits.
pub(super) fn flat(assignment: &mut Fields) {
    let domains = slices(assignment).and_then(|slices| {
        let mut text = Vec::new();
        list(&slices, &mut text).and_then(|()| serde_json::from_slice(&text)).ok()
    });
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), domains.unwrap_or_else(|| json!([])));
}

/// From v1beta2 to v1beta1, of an assignment that does not: one without domains.
pub(super) fn blank(assignment: &mut Fields) {
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), Value::Array(Vec::new()));
}

/// From v1beta1 to v1beta2; a domain with another number of values than there are levels makes it one without slices.
pub(super) fn sliced(assignment: &mut Fields) {
    let slices = domains(assignment).and_then(|domains| {
        let mut text = Vec::new();
        domains.write(&mut text).and_then(|()| serde_json::from_slice(&text)).ok()
    });
    assignment.remove("domains");
    assignment.insert("slices".to_owned(), slices.unwrap_or_else(|| json!([])));
}

/// An assignment that becomes one of the other version while it is written: its levels as they came, and the rest.
pub(super) enum Rewritten<'a> {
    Flat(&'a str, Vec<Slice<'a>>),
    Sliced(&'a str, Domains<'a>),
}

/// What `flat` or `sliced` make of an assignment, from its text; nothing of one that is anything but in order, or that says more.
pub(super) fn rewritten<'a>(text: &'a RawValue, to: Version, left: &mut usize) -> Option<Rewritten<'a>> {
    let mut scan = Scan::of(text)?;
    match to {
        Version::V1beta1 => {
            let (levels, count, slices) = scan.assignment("slices", |scan| scan.each(Slice::scanned))?;
            let in_order = slices.iter().all(|slice| slice.in_order(count));
            *left = left_after(*left, &slices).filter(|_| in_order)?;
            Some(Rewritten::Flat(levels, slices))
        }
        Version::V1beta2 => {
            let (levels, count, domains) = scan.assignment("domains", Domains::scanned)?;
            // One without domains may stand for what is carried.
            let in_order = domains.levels == count && !domains.counts.is_empty();
            in_order.then_some(Rewritten::Sliced(levels, domains))
        }
    }
}

impl<'a> Scan<'a> {
    /// An assignment: its levels, how many there are, and what its other field has.
    fn assignment<T>(
        &mut self,
        field: &str,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<(&'a str, usize, T)> {
        let (mut levels, mut other) = (None, None);
        self.object(|scan, name| match name {
            "levels" => once(&mut levels, scan.whole(|scan| scan.each(Self::text).map(|levels| levels.len()))?),
            _ if name == field => once(&mut other, read(scan)?),
            _ => None,
        })?;
        let (text, count) = levels?;
        Some((text, count, other?))
    }
}

impl Rewritten<'_> {
    /// Writes it down as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        match self {
            Self::Flat(levels, slices) => {
                out.extend_from_slice(b"{\"domains\":");
                list(slices, out)?;
                out.extend_from_slice(b",\"levels\":");
                out.extend_from_slice(levels.as_bytes());
            }
            Self::Sliced(levels, domains) => {
                out.extend_from_slice(b"{\"levels\":");
                out.extend_from_slice(levels.as_bytes());
                out.extend_from_slice(b",\"slices\":");
                domains.write(out)?;
            }
        }
        out.push(b'}');
        Ok(())
    }
}

/// The domains of v1beta1, each with a value of every level; they stand in two lists, as thousands of small ones take longer.
pub(super) struct Domains<'a> {
    levels: usize,
    /// The pods of each.
    counts: Vec<i64>,
    /// The values of the first, then those of the second, and so on.
    values: Vec<&'a str>,
}

/// A slice of v1beta2: for each level what its values have in common is written once.
pub(super) struct Slice<'a> {
    domain_count: usize,
    pod_counts: Counts,
    values_per_level: Vec<Values<'a>>,
}

enum Counts {
    Universal(i64),
    Individual(Vec<i64>),
}

enum Values<'a> {
    Universal(&'a str),
    Individual(Individual<'a>),
}

struct Individual<'a> {
    prefix: &'a str,
    roots: Vec<&'a str>,
    suffix: &'a str,
}

impl<'a> Domains<'a> {
    /// Those of a list that all have as many values as the first.
    fn scanned(scan: &mut Scan<'a>) -> Option<Self> {
        let mut read = Self { levels: 0, counts: Vec::new(), values: Vec::new() };
        scan.list(|scan| {
            let (mut count, mut values) = (None, None);
            let before = read.values.len();
            scan.object(|scan, name| match name {
                "count" => once(&mut count, scan.number()?),
                "values" => {
                    scan.list(|scan| {
                        read.values.push(scan.text()?);
                        Some(())
                    })?;
                    once(&mut values, read.values.len() - before)
                }
                _ => None,
            })?;
            if read.counts.is_empty() {
                read.levels = values?;
            }
            read.counts.push(count?);
            (values? == read.levels).then_some(())
        })?;
        Some(read)
    }

    /// Writes them down as slices.
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        out.push(b'[');
        for (index, counts) in self.counts.chunks(SLICE).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let from = index * SLICE * self.levels;
            let values = self.values.get(from..from + counts.len() * self.levels).unwrap_or_default();
            self.write_slice(counts, values, out)?;
        }
        out.push(b']');
        Ok(())
    }

    fn write_slice(&self, counts: &[i64], values: &[&str], out: &mut Vec<u8>) -> serde_json::Result<()> {
        out.extend_from_slice(b"{\"domainCount\":");
        serde_json::to_writer(&mut *out, &counts.len())?;
        out.extend_from_slice(b",\"podCounts\":");
        match counts.split_first() {
            Some((first, rest)) if rest.iter().all(|count| count == first) => {
                out.extend_from_slice(b"{\"universal\":");
                serde_json::to_writer(&mut *out, first)?;
            }
            _ => {
                out.extend_from_slice(b"{\"individual\":");
                serde_json::to_writer(&mut *out, counts)?;
            }
        }
        out.extend_from_slice(b"},\"valuesPerLevel\":[");
        for level in 0..self.levels {
            if level > 0 {
                out.push(b',');
            }
            write_level(values.get(level..).unwrap_or_default().iter().copied().step_by(self.levels), out)?;
        }
        out.extend_from_slice(b"]}");
        Ok(())
    }
}

/// Writes the values of one level.
fn write_level<'v>(values: impl Iterator<Item = &'v str> + Clone, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let first = values.clone().next().unwrap_or_default();
    if values.clone().all(|value| value == first) {
        out.extend_from_slice(b"{\"universal\":\"");
        put(first, out)?;
        out.extend_from_slice(b"\"}");
        return Ok(());
    }
    let prefix = values.clone().fold(first, |prefix, value| common(prefix, value, false));
    let ends = values.map(|value| value.get(prefix.len()..).unwrap_or_default());
    let suffix = ends.clone().reduce(|suffix, end| common(suffix, end, true)).unwrap_or_default();
    out.extend_from_slice(b"{\"individual\":{");
    if !prefix.is_empty() {
        out.extend_from_slice(b"\"prefix\":\"");
        put(prefix, out)?;
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(b"\"roots\":[");
    for (index, end) in ends.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.push(b'"');
        put(end.get(..end.len() - suffix.len()).unwrap_or_default(), out)?;
        out.push(b'"');
    }
    out.push(b']');
    if !suffix.is_empty() {
        out.extend_from_slice(b",\"suffix\":\"");
        put(suffix, out)?;
        out.push(b'"');
    }
    out.extend_from_slice(b"}}");
    Ok(())
}

/// What two texts have in common at their beginning, or at their end.
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

/// Writes the domains of slices that are in order, as v1beta1 lists them.
fn list(slices: &[Slice<'_>], out: &mut Vec<u8>) -> serde_json::Result<()> {
    out.push(b'[');
    let mut is_first = true;
    for slice in slices {
        // All that the domains of a slice have in common is put together once.
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
                Values::Universal(value) => put(value, &mut same)?,
                Values::Individual(values) => {
                    put(values.prefix, &mut same)?;
                    columns.push((std::mem::take(&mut same), &values.roots));
                    put(values.suffix, &mut same)?;
                }
            }
            same.push(b'"');
        }
        same.extend_from_slice(b"]}");
        let around: usize = columns.iter().map(|(before, _)| before.len()).sum();
        let roots: usize = columns.iter().flat_map(|(_, roots)| *roots).map(|root| root.len()).sum();
        let before_count = counts.as_ref().map_or(0, |(before, _)| before.len());
        // No more is reserved than is written: of a count its digits are not.
        out.reserve(slice.domain_count * (before_count + around + same.len() + 1) + roots);
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
                put(roots.get(index).copied().unwrap_or_default(), out)?;
            }
            out.extend_from_slice(&same);
        }
    }
    out.push(b']');
    Ok(())
}

/// Whether a byte stands for itself in a JSON string.
fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

/// Bytes that a part of a JSON string takes at most.
fn size(text: &str) -> usize {
    text.bytes().map(|byte| if is_plain(byte) { 1 } else { r"\u0000".len() }).sum()
}

/// Writes a part of a JSON string.
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

/// The domains with their counts, where each has a value of every level.
fn domains(assignment: &Fields) -> Option<Domains<'_>> {
    let levels = assignment.get("levels")?.as_array()?.len();
    let mut read = Domains { levels, counts: Vec::new(), values: Vec::new() };
    for domain in assignment.get("domains")?.as_array()? {
        let values = texts(domain.get("values")?.as_array()?)?;
        if values.len() != levels {
            return None;
        }
        read.counts.push(domain.get("count")?.as_i64()?);
        read.values.extend(values);
    }
    Some(read)
}

fn texts(values: &[Value]) -> Option<Vec<&str>> {
    values.iter().map(Value::as_str).collect()
}

impl<'a> Slice<'a> {
    fn scanned(scan: &mut Scan<'a>) -> Option<Self> {
        let (mut domain_count, mut pod_counts, mut values) = (None, None, None);
        scan.object(|scan, name| match name {
            "domainCount" => once(&mut domain_count, usize::try_from(scan.number()?).ok()?),
            "podCounts" => once(&mut pod_counts, scan.only(Counts::scanned)?),
            "valuesPerLevel" => once(&mut values, scan.each(|scan| scan.only(Values::scanned))?),
            _ => None,
        })?;
        Some(Self { domain_count: domain_count?, pod_counts: pod_counts?, values_per_level: values? })
    }
}

impl Counts {
    fn scanned(scan: &mut Scan<'_>, name: &str) -> Option<Self> {
        match name {
            "universal" => scan.number().map(Self::Universal),
            "individual" => scan.each(Scan::number).map(Self::Individual),
            _ => None,
        }
    }
}

impl<'a> Values<'a> {
    fn scanned(scan: &mut Scan<'a>, name: &str) -> Option<Self> {
        match name {
            "universal" => scan.text().map(Self::Universal),
            "individual" => Individual::scanned(scan).map(Self::Individual),
            _ => None,
        }
    }
}

impl<'a> Individual<'a> {
    fn scanned(scan: &mut Scan<'a>) -> Option<Self> {
        let (mut prefix, mut roots, mut suffix) = (None, None, None);
        scan.object(|scan, name| match name {
            "prefix" => once(&mut prefix, scan.text()?),
            "roots" => once(&mut roots, scan.each(Scan::text)?),
            "suffix" => once(&mut suffix, scan.text()?),
            _ => None,
        })?;
        Some(Self { prefix: prefix.unwrap_or_default(), roots: roots?, suffix: suffix.unwrap_or_default() })
    }
}

impl Slice<'_> {
    /// Domains that it takes from what may be written out.
    fn counts_as(&self) -> usize {
        let repeated = self.values_per_level.iter().map(|values| match values {
            Values::Universal(value) => size(value),
            Values::Individual(values) => size(values.prefix).saturating_add(size(values.suffix)),
        });
        let repeated = repeated.fold(0_usize, |sum, one| sum.saturating_add(one).saturating_add(AROUND));
        self.domain_count.saturating_mul(repeated.saturating_div(REPEATED).saturating_add(1))
    }

    fn in_order(&self, levels: usize) -> bool {
        let of_each = |values: &Values<'_>| match values {
            Values::Universal(_) => true,
            Values::Individual(values) => values.roots.len() == self.domain_count,
        };
        let counts = match &self.pod_counts {
            Counts::Universal(_) => true,
            Counts::Individual(counts) => counts.len() == self.domain_count,
        };
        counts && self.values_per_level.len() == levels && self.values_per_level.iter().all(of_each)
    }
}

/// The slices of an assignment; nothing when one is not in order.
fn slices(assignment: &Fields) -> Option<Vec<Slice<'_>>> {
    let levels = assignment.get("levels")?.as_array()?.len();
    let slices = assignment.get("slices")?.as_array()?.iter();
    slices.map(|slice| read_slice(slice).filter(|slice| slice.in_order(levels))).collect()
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
        (Some(Value::String(value)), None) => Some(Values::Universal(value)),
        (None, Some(individual)) => {
            let text = |field: &str| individual.get(field).map_or(Some(""), Value::as_str);
            let roots = texts(individual.get("roots")?.as_array()?)?;
            Some(Values::Individual(Individual { prefix: text("prefix")?, roots, suffix: text("suffix")? }))
        }
        _ => None,
    }
}
