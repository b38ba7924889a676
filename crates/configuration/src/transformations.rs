//! `resources.transformations`: rules by which requests for one resource count as requests for other resources.

use crate::document::Marked;
use crate::fault::Fault;
use crate::schema::Transformation as Written;
use berth_jobs::Transformation;
use serde_json::Value;
use std::collections::BTreeSet;

/// Reads the rules; each input resource may have only one rule.
pub(crate) fn read(rules: &Marked<Vec<Written>>) -> Result<Vec<Transformation>, Fault> {
    let mut inputs = BTreeSet::new();
    let mut read = Vec::new();
    for (index, written) in rules.iter().flat_map(|rules| &rules.value).enumerate() {
        let place = format!("resources.transformations[{index}]");
        let input = written.input.as_str();
        if input.is_empty() {
            let text = format!("{place}.input is missing; allowed is the name of a resource");
            return Err(Fault::of(format!("{place}.input"), text));
        }
        if !inputs.insert(input) {
            let text = format!("{place}.input is `{input}`, which has a rule already; allowed is one for each");
            return Err(Fault::of(format!("{place}.input"), text));
        }
        read.push(rule(written, &place)?);
    }
    Ok(read)
}

/// Warnings about outputs that `excludeResourcePrefixes` excludes, one for each: an excluded output counts no quota.
pub(crate) fn excluded(rules: &[Transformation], prefixes: &[String]) -> Vec<String> {
    let excludes = |output: &&String| prefixes.iter().any(|prefix| output.starts_with(prefix.as_str()));
    let of_rule = |rule: &Transformation| -> Vec<String> {
        let outputs = rule.outputs.keys().filter(excludes);
        let warning = |output: &String| {
            format!(
                "resources.transformations: output `{output}` of input `{}` counts nothing, as resources.excludeResourcePrefixes \
                 excludes it",
                rule.input
            )
        };
        outputs.map(warning).collect()
    };
    rules.iter().flat_map(of_rule).collect()
}

fn rule(written: &Written, place: &str) -> Result<Transformation, Fault> {
    let retain = match written.strategy.as_deref() {
        None | Some("" | "Retain") => true,
        Some("Replace") => false,
        Some(other) => {
            let text = format!("{place}.strategy is `{other}`; allowed are Retain, Replace");
            return Err(Fault::of(format!("{place}.strategy"), text));
        }
    };
    let mut outputs = Vec::new();
    for (resource, amount) in &written.outputs {
        let amount = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => {
                let text = format!("{place}.outputs of {resource} is `{other}`; allowed is a quantity");
                return Err(Fault::of(format!("{place}.outputs.{resource}"), text));
            }
        };
        outputs.push((resource.as_str(), amount));
    }
    let multiply_by = written.multiply_by.as_deref().filter(|name| !name.is_empty());
    let pairs = outputs.iter().map(|(resource, amount)| (*resource, amount.as_str()));
    Transformation::new(&written.input, multiply_by, pairs, retain).map_err(|error| {
        Fault::of(format!("{place}.outputs"), format!("{place}.outputs: {error}; allowed are quantities"))
    })
}
