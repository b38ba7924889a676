//! Resource transformations of the configuration: a requested resource is counted as other resources.

use crate::requests::Exact;
use berth_quantity::{Nano, ParseError, parse_quantity};
use std::collections::BTreeMap;

const NANO: i128 = 1_000_000_000;

/// A rule in `resources.transformations` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformation {
    /// Name of the resource that is transformed.
    pub input: String,
    /// Name of the resource whose requested quantity multiplies the input, if that resource is requested.
    pub multiply_by: Option<String>,
    /// Factor by name of the resulting resource, in nano units; a factor may be negative.
    pub outputs: BTreeMap<String, i128>,
    /// True if the input is kept (`Retain`) instead of replaced (`Replace`).
    pub retain: bool,
}

impl Transformation {
    /// A rule with output factors in the notation of the configuration.
    ///
    /// # Errors
    /// A factor is not a quantity; see [`ParseError`].
    pub fn new<'a>(
        input: &str,
        multiply_by: Option<&str>,
        outputs: impl IntoIterator<Item = (&'a str, &'a str)>,
        retain: bool,
    ) -> Result<Self, ParseError> {
        let outputs = outputs
            .into_iter()
            .map(|(resource, factor)| parse_quantity(factor).map(|Nano(nano)| (resource.to_owned(), nano)))
            .collect::<Result<_, _>>()?;
        Ok(Self { input: input.to_owned(), multiply_by: multiply_by.map(str::to_owned), outputs, retain })
    }
}

/// Requests after the transformation rules. The outputs of all rules for one resource are summed up, with zero as the smallest sum, and added to the request
/// for this resource that the rules keep.
pub(crate) fn transform(requests: Exact, rules: &[Transformation]) -> Exact {
    let mut generated = Exact::new();
    let mut result = Exact::new();
    for (resource, quantity) in &requests {
        let rule = rules.iter().find(|rule| rule.input == *resource);
        if rule.is_none_or(|rule| rule.retain) {
            result.insert(resource.clone(), *quantity);
        }
        let Some(rule) = rule else { continue };
        let multiplier = rule.multiply_by.as_ref().and_then(|by| requests.get(by));
        let base = multiplier.map_or(*quantity, |by| product(*quantity, *by));
        for (output, factor) in &rule.outputs {
            let sum = generated.entry(output.clone()).or_default();
            *sum = sum.saturating_add(product(base, *factor));
        }
    }
    for (resource, nano) in generated {
        let sum = result.entry(resource).or_default();
        *sum = sum.saturating_add(nano.max(0));
    }
    result
}

/// Product of two nano amounts, rounded away from zero, so that no amount disappears by rounding.
fn product(a: i128, b: i128) -> i128 {
    match a.checked_mul(b) {
        Some(value) => value / NANO + if value % NANO == 0 { 0 } else { value.signum() },
        // A product that overflows 128 bits in nano units exceeds every amount that quota can count.
        None if (a < 0) == (b < 0) => i128::MAX,
        None => i128::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'a str, i128)];

    fn check(requests: Pairs<'_>, rules: &[Transformation], expected: Pairs<'_>) {
        let exact = |pairs: Pairs<'_>| pairs.iter().map(|(k, v)| ((*k).to_owned(), v * NANO)).collect::<Exact>();
        assert_eq!(transform(exact(requests), rules), exact(expected));
    }

    fn rule(input: &str, by: Option<&str>, outputs: &[(&str, &str)], retain: bool) -> Transformation {
        Transformation::new(input, by, outputs.iter().copied(), retain).expect("factors")
    }

    #[test]
    fn transformation_rules_replace_keep_and_multiply_requests() {
        check(&[("a", 2)], &[], &[("a", 2)]);
        check(&[("a", 2)], &[rule("a", None, &[("b", "3")], true)], &[("a", 2), ("b", 6)]);
        check(&[("a", 2)], &[rule("a", None, &[("b", "3")], false)], &[("b", 6)]);
        check(&[("a", 2), ("n", 4)], &[rule("a", Some("n"), &[("b", "3")], false)], &[("b", 24), ("n", 4)]);
        check(&[("a", 2)], &[rule("a", Some("n"), &[("b", "3")], false)], &[("b", 6)]);
        check(&[("a", 3), ("b", 8)], &[rule("a", None, &[("b", "-1")], false)], &[("b", 8)]);
        let both = [rule("a", None, &[("x", "-1")], false), rule("b", None, &[("x", "2")], false)];
        check(&[("a", 3), ("b", 8)], &both, &[("x", 13)]);
    }

    #[test]
    fn transformation_product_saturates_with_its_sign() {
        assert_eq!(product(i128::MAX / 2, 4), i128::MAX);
        assert_eq!(product(i128::MAX / 2, -4), i128::MIN);
        assert_eq!(product(1, 1), 1);
        assert!(Transformation::new("a", None, [("b", "x")], true).is_err());
    }
}
