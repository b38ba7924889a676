//! AxLearn's quota file in TOML, of schema version 1 as AxLearn's `axlearn/cloud/common/quota.py` defines it.

use super::shares::Decimal;
use std::collections::BTreeMap;
use std::ops::Range;
use toml_edit::{Document, Item, Key, TableLike, Value};

/// Top-level keys of the quota file that AxLearn reads.
const KEYS: [&str; 4] = ["toml-schema", "total_resources", "project_resources", "project_membership"];
/// Largest number of tiers in a quota file; with the limits `MOST_TIERS`, `MOST_PROJECTS` and `MOST_OF_A_TYPE`, no sum of amounts overflows.
const MOST_TIERS: usize = 64;
/// Largest number of projects in a quota file.
const MOST_PROJECTS: usize = 1000;
/// Largest amount of a resource type in one tier, in AxLearn's unit.
const MOST_OF_A_TYPE: i128 = 1_000_000_000_000;

/// Content of an AxLearn quota file.
#[derive(Debug, Default)]
pub(crate) struct QuotaFile {
    /// Amounts by resource type in each tier, best tier first.
    pub(crate) tiers: Vec<BTreeMap<String, Total>>,
    /// Fractions of the total by project and resource type.
    pub(crate) projects: BTreeMap<String, BTreeMap<String, Decimal>>,
    /// Regular expressions of members' user ids by project.
    pub(crate) members: BTreeMap<String, Vec<String>>,
    /// Warnings about keys of the file that AxLearn does not read.
    pub(crate) unknown: Vec<String>,
}

/// Amount of a resource type in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    /// The amount in AxLearn's unit: cores or chips, by resource type.
    pub(crate) amount: i128,
    /// Line of the quota file that has the amount.
    pub(crate) line: usize,
}

/// The text of the quota file, for line numbers in error messages.
#[derive(Clone, Copy)]
struct Source<'t>(&'t str);

impl Source<'_> {
    /// The line number, from 1, of a byte range in the quota file.
    fn line(self, span: Option<Range<usize>>) -> usize {
        let before = self.0.get(..span.map_or(0, |span| span.start)).unwrap_or_default();
        before.matches('\n').count() + 1
    }

    /// An error about a value of the quota file, with the line, the field, the value and the allowed values.
    fn fault(self, item: &Item, path: &str, allowed: &str) -> String {
        let found = match item.as_value() {
            Some(Value::InlineTable(_)) => "a table",
            Some(Value::Array(_)) => "a list",
            Some(value) => self.written(value),
            None if item.is_array_of_tables() => "a list of tables",
            None => "a table",
        };
        format!("line {}: {path} is {found}; {allowed}", self.line(item.span()))
    }

    /// A value of the quota file as its text is written there.
    fn written(&self, value: &Value) -> &str {
        value.span().and_then(|span| self.0.get(span)).unwrap_or_default()
    }
}

/// Reads a quota file.
///
/// # Errors
/// The error is one sentence with the line and the field, the value and what is allowed.
pub(crate) fn read(text: &str) -> Result<QuotaFile, String> {
    let source = Source(text);
    let document = Document::parse(text)
        .map_err(|error| format!("line {}: {}", source.line(error.span()), error.message().trim_end()))?;
    let root = document.as_table();
    let required =
        |key: &str| root.get(key).ok_or_else(|| format!("{key} is missing; AxLearn reads {}", KEYS.join(", ")));
    let schema = table(source, required("toml-schema")?, "toml-schema")?;
    let version = schema.get("version").ok_or("toml-schema.version is missing; the text \"1\" is read")?;
    if version.as_str() != Some("1") {
        return Err(source.fault(version, "toml-schema.version", "the text \"1\" is read"));
    }
    let mut file = QuotaFile { tiers: tiers(source, required("total_resources")?)?, ..QuotaFile::default() };
    for (project, item) in table(source, required("project_resources")?, "project_resources")?.iter() {
        let path = format!("project_resources.{project}");
        let fractions = table(source, item, &path)?.iter().map(|(kind, item)| {
            let read = fraction(source, item);
            let read = read.map_err(|allowed| source.fault(item, &format!("{path}.{kind}"), &allowed))?;
            Ok::<_, String>((kind.to_owned(), read))
        });
        file.projects.insert(project.to_owned(), fractions.collect::<Result<_, _>>()?);
    }
    for (project, item) in table(source, required("project_membership")?, "project_membership")?.iter() {
        let path = format!("project_membership.{project}");
        let list = item.as_array().ok_or_else(|| source.fault(item, &path, "a list of user ids is needed"))?;
        let members = list.iter().map(|member| {
            let (line, written) = (source.line(member.span()), source.written(member));
            let wrong = || format!("line {line}: {path} has {written}; texts are needed");
            member.as_str().map(str::to_owned).ok_or_else(wrong)
        });
        file.members.insert(project.to_owned(), members.collect::<Result<_, _>>()?);
    }
    if file.projects.len() + file.members.len() > MOST_PROJECTS {
        return Err(format!(
            "project_resources and project_membership have more than {MOST_PROJECTS} entries together"
        ));
    }
    let unknown = root.iter().filter(|(key, _)| !KEYS.contains(key));
    file.unknown = unknown
        .map(|(key, _)| {
            let line = source.line(root.key(key).and_then(Key::span));
            format!("line {line}: {key:?} is nothing that AxLearn reads")
        })
        .collect();
    Ok(file)
}

/// The table at a field of the quota file, written as a TOML section or inline.
fn table<'i>(source: Source<'_>, item: &'i Item, path: &str) -> Result<&'i dyn TableLike, String> {
    item.as_table_like().ok_or_else(|| source.fault(item, path, "a table is needed"))
}

/// Amounts by tier. `total_resources` may be one table, a list of tables, or several tables of that name.
fn tiers(source: Source<'_>, item: &Item) -> Result<Vec<BTreeMap<String, Total>>, String> {
    let path = "total_resources";
    let allowed = "a table of whole numbers by type is needed, or a list of such tables, best tier first";
    let tables: Vec<&dyn TableLike> = if let Some(tables) = item.as_array_of_tables() {
        tables.iter().map(|table| table as &dyn TableLike).collect()
    } else if let Some(list) = item.as_array() {
        let inline = list.iter().map(|value| value.as_inline_table().map(|table| table as &dyn TableLike));
        inline.collect::<Option<_>>().ok_or_else(|| source.fault(item, path, allowed))?
    } else {
        vec![item.as_table_like().ok_or_else(|| source.fault(item, path, allowed))?]
    };
    if tables.is_empty() || tables.len() > MOST_TIERS {
        let (line, count) = (source.line(item.span()), tables.len());
        return Err(format!("line {line}: {path} has {count} tiers; 1 to {MOST_TIERS} are allowed"));
    }
    let mut tiers = Vec::new();
    for (tier, table) in tables.into_iter().enumerate() {
        let totals = table.iter().map(|(kind, item)| total(source, item, tier, kind));
        tiers.push(totals.collect::<Result<_, String>>()?);
    }
    Ok(tiers)
}

fn total(source: Source<'_>, item: &Item, tier: usize, kind: &str) -> Result<(String, Total), String> {
    let amount = match item.as_value() {
        Some(Value::Integer(number)) => Some(i128::from(*number.value())),
        // A float below 2^53 without a fractional part is an exact integer, so an amount in the quota file may be written as such a float.
        Some(Value::Float(number)) if number.value().fract() == 0.0 && number.value().abs() <= 1e12 => {
            Some(*number.value() as i128)
        }
        _ => None,
    };
    let amount = amount.filter(|amount| (0..=MOST_OF_A_TYPE).contains(amount)).ok_or_else(|| {
        let allowed = format!("a whole number from 0 to {MOST_OF_A_TYPE} is needed");
        source.fault(item, &format!("total_resources[{tier}].{kind}"), &allowed)
    })?;
    Ok((kind.to_owned(), Total { amount, line: source.line(item.span()) }))
}

/// A project's fraction with its decimal digits as written; parsing the text as a float would change the number.
fn fraction(source: Source<'_>, item: &Item) -> Result<Decimal, String> {
    match item.as_value() {
        Some(Value::Integer(number)) => Decimal::read(&number.value().to_string()),
        Some(value @ Value::Float(_)) => Decimal::read(source.written(value)),
        _ => Err("a number is needed".to_owned()),
    }
}
