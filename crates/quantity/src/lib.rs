//! Exact Kubernetes quantities and the saturating [`Amount`] in which quota is counted.
//!
//! The units of amounts are Kueue's: milli units for `cpu`, whole units for other resources. The crate uses no floats, no clock and no serde. Entry points for
//! a reader are [`quota`] and [`request`]; the rules of texts are in `parse`, `format` and `canonical`.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        clippy::arithmetic_side_effects,
        clippy::float_arithmetic,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )
)]

mod amount;
mod canonical;
mod format;
mod parse;

pub use amount::Amount;
pub use canonical::canonical;
pub use format::{format, format_nano};
pub use parse::{Nano, ParseError, parse_quantity};

const NANO_PER_MILLI: i128 = 1_000_000;
const NANO_PER_UNIT: i128 = 1_000_000_000;
/// Number of cores from which on Kueue takes a quota of `cpu` for unlimited.
const MOST_CPU: Nano = Nano(9_223_372_036_854_775_000_000_000);

const fn is_cpu(resource: &str) -> bool {
    matches!(resource.as_bytes(), b"cpu")
}

/// Value of a quantity text in the unit of `resource`, rounded away from zero and clamped to the range of `i64`.
///
/// # Errors
/// Returns a [`ParseError`] if the text is not a Kubernetes quantity.
pub fn value(resource: &str, text: &str) -> Result<Amount, ParseError> {
    Ok(in_units(resource, parse_quantity(text)?))
}

fn in_units(resource: &str, Nano(nano): Nano) -> Amount {
    let (units, rest) = if is_cpu(resource) {
        (nano / NANO_PER_MILLI, nano % NANO_PER_MILLI)
    } else {
        (nano / NANO_PER_UNIT, nano % NANO_PER_UNIT)
    };
    // The remainder of a division has the sign of the value, so adding the remainder's sign rounds away from zero.
    Amount::clamped(units.saturating_add(rest.signum()))
}

/// Number of [`Nano`] units in one unit of `resource`.
#[must_use]
pub const fn nano_per_unit(resource: &str) -> i128 {
    if is_cpu(resource) { NANO_PER_MILLI } else { NANO_PER_UNIT }
}

/// Exact value of an amount of `resource` in [`Nano`] units.
#[must_use]
pub fn to_nano(resource: &str, amount: Amount) -> Nano {
    Nano(i128::from(amount.get()).saturating_mul(nano_per_unit(resource)))
}

/// A quota (nominal quota, borrowing limit or lending limit). A quota beyond the range of `i64` is [`Amount::UNLIMITED`]; for `cpu`, the unlimited range begins
/// with the last full core that `i64` can hold in milli units.
///
/// # Errors
/// Returns a [`ParseError`] if the text is not a Kubernetes quantity, or [`ParseError::Negative`] if it is negative.
pub fn quota(resource: &str, text: &str) -> Result<Amount, ParseError> {
    let nano = parse_quantity(text)?;
    if is_cpu(resource) && nano >= MOST_CPU {
        return Ok(Amount::UNLIMITED);
    }
    non_negative(in_units(resource, nano), text)
}

/// A pod's request; a request beyond the range of `i64` is clamped to the largest value, as in Kueue.
///
/// # Errors
/// Returns a [`ParseError`] if the text is not a Kubernetes quantity, or [`ParseError::Negative`] if it is negative.
pub fn request(resource: &str, text: &str) -> Result<Amount, ParseError> {
    non_negative(value(resource, text)?, text)
}

fn non_negative(amount: Amount, text: &str) -> Result<Amount, ParseError> {
    if amount < Amount::ZERO { Err(ParseError::Negative(text.to_owned())) } else { Ok(amount) }
}
