//! Amounts and quantities in the notation of decision cases.

use crate::case::Cells;
use berth_engine::{Amount, FlavorResource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Puts quantities into their canonical text; a text that is no quantity is not changed.
pub fn canonical(quantities: &mut BTreeMap<String, Quantity>) {
    for (resource, quantity) in quantities {
        if let Ok(amount) = berth_quantity::value(resource, &quantity.0) {
            quantity.0 = berth_quantity::format(resource, amount);
        }
    }
}

/// An amount from its text in a case: a quantity, or `unlimited`.
///
/// # Errors
/// The text is no quantity.
pub fn amount(resource: &str, text: &str) -> Result<Amount, String> {
    if text == "unlimited" {
        return Ok(Amount::UNLIMITED);
    }
    berth_quantity::value(resource, text).map_err(|error| format!("{resource}: {error}"))
}

/// Amounts by resource from their texts in a case.
///
/// # Errors
/// A text is no quantity.
pub fn amounts(texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, Amount>, String> {
    texts.iter().map(|(resource, text)| Ok((resource.clone(), amount(resource, text)?))).collect()
}

/// Amounts by flavor and resource from their texts in a case.
///
/// # Errors
/// A text is no quantity.
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
