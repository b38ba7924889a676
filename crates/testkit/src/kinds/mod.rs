//! One module per group of kinds: the decision that a case of the kind asks for, and the comparison of its result.

pub mod assignment;
pub mod classes;
pub mod cycle;
pub mod orders;
pub mod preemption;
pub mod progress;
pub mod queue;
pub mod queue_order;
pub mod quota;
pub mod requests;
pub mod requeue;
pub mod shares;
pub mod statuses;
pub mod usage;

use crate::case::Case;
use crate::diff::Diff;
use berth_engine::{Amount, FlavorResource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Runs a case of any kind.
///
/// # Errors
/// An unknown kind, key or value.
pub fn run(case: &Case) -> Result<Diff, String> {
    match case.kind.as_str() {
        "cycle" => cycle::run(case),
        "preemption-targets" => preemption::targets(case),
        "message" => preemption::message(case),
        "priority" => preemption::priority(case),
        "flavor-assignment" => assignment::run(case),
        "availability" => quota::availability(case),
        "snapshot" => quota::snapshot(case),
        "usage-status" => quota::usage_status(case),
        "readiness" => quota::readiness(case),
        "admission-checks" => quota::admission_checks(case),
        "queue-timestamp" => queue::timestamp(case),
        "quantity" => requests::quantity(case),
        "requests" => requests::run(case),
        "podset-counts" => requests::counts(case),
        "candidate-order" => orders::candidates(case),
        "target-order" => orders::targets(case),
        "preemption-policy" => orders::policy(case),
        "entry-order" => orders::entries(case),
        "flavor-preference" => orders::preference(case),
        "partial-admission" => orders::partial(case),
        "reserve" => orders::reserve(case),
        "usage" => usage::usage(case),
        "equivalence" => orders::equivalence(case),
        "fair-share" => shares::run(case),
        "queue-order" => queue_order::run(case),
        "requeue" => requeue::run(case),
        "scan-progress" => progress::scan(case),
        "entry-penalty" => shares::entry_penalty(case),
        other => Err(format!("unknown kind {other:?}")),
    }
}

/// Quantities in their canonical text; a text that is no quantity stays as it is.
pub fn canonical(quantities: &mut BTreeMap<String, Quantity>) {
    for (resource, quantity) in quantities {
        if let Ok(amount) = berth_quantity::value(resource, &quantity.0) {
            quantity.0 = berth_quantity::format(resource, amount);
        }
    }
}

/// An amount as cases write it.
///
/// # Errors
/// A text that is no quantity.
pub fn amount(resource: &str, text: &str) -> Result<Amount, String> {
    if text == "unlimited" {
        return Ok(Amount::UNLIMITED);
    }
    berth_quantity::value(resource, text).map_err(|error| format!("{resource}: {error}"))
}

/// Amounts by resource.
///
/// # Errors
/// A text that is no quantity.
pub fn amounts(texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, Amount>, String> {
    texts.iter().map(|(resource, text)| Ok((resource.clone(), amount(resource, text)?))).collect()
}

/// Amounts by cell.
///
/// # Errors
/// A text that is no quantity.
pub fn cells(texts: &crate::case::Cells) -> Result<BTreeMap<FlavorResource, Amount>, String> {
    let mut cells = BTreeMap::new();
    for (flavor, resources) in texts {
        for (resource, text) in resources {
            let cell = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
            cells.insert(cell, amount(resource, text)?);
        }
    }
    Ok(cells)
}

/// A Workload of the case.
///
/// # Errors
/// None of that key, or one that cannot be read.
pub fn workload(case: &Case, key: &str) -> Result<berth_api::Workload, String> {
    let found = case.of_kind("Workload").find(|object| crate::scene::key_of(object) == key);
    let object = found.ok_or_else(|| format!("objects: no workload {key}"))?;
    serde_json::from_value(object.clone()).map_err(|error| format!("objects: {key}: {error}"))
}
