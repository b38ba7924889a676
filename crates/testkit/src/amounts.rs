//! Amounts and quantities as cases write them.

use crate::case::Cells;
use berth_engine::{Amount, FlavorResource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

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
pub fn cells(texts: &Cells) -> Result<BTreeMap<FlavorResource, Amount>, String> {
    let mut cells = BTreeMap::new();
    for (flavor, resources) in texts {
        for (resource, text) in resources {
            let cell = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
            cells.insert(cell, amount(resource, text)?);
        }
    }
    Ok(cells)
}
