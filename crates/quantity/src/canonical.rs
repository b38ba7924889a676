//! The text of a quantity as Kubernetes writes it: the text that the API server stores, and from which hashes of its objects are made.

use crate::parse::{Scale, parts, scale};
use crate::{Nano, ParseError, parse_quantity};

const UNIT: i128 = 1_000_000_000;
/// Number of digits up to which Kubernetes reads a quantity without arithmetic on large numbers.
const PLAIN_DIGITS: usize = 18;
const DECIMAL: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The text that Kubernetes writes for a quantity that it has read. Kubernetes keeps some texts as it read them, although there is a shorter text.
///
/// # Errors
/// Returns a [`ParseError`] if the text is not a Kubernetes quantity.
pub fn canonical(text: &str) -> Result<String, ParseError> {
    let Nano(nano) = parse_quantity(text)?;
    let (_, integer, fraction, suffix) = parts(text);
    let scale = scale(text, suffix)?;
    if is_kept(integer, fraction, &scale) {
        return Ok(text.to_owned());
    }
    if nano == 0 {
        return Ok("0".to_owned());
    }
    Ok(match scale {
        Scale::Two(_) => {
            // A quantity with a binary suffix is cut at `i64::MAX` units, the largest amount that can be requested in bytes.
            let most = i128::from(i64::MAX).saturating_mul(UNIT);
            let nano = nano.clamp(most.saturating_neg(), most);
            let small = nano.unsigned_abs() < UNIT.unsigned_abs().saturating_mul(1024);
            if small || nano % UNIT != 0 { decimal(nano, false) } else { binary(nano / UNIT) }
        }
        Scale::Ten(_) => decimal(nano, has_exponent(suffix)),
    })
}

/// Whether a suffix is an exponent, as in `12e6`, in contrast to the suffix `E`.
fn has_exponent(suffix: &str) -> bool {
    suffix.len() > 1 && suffix.starts_with(['e', 'E'])
}

/// Whether Kubernetes takes the text for the shortest one without a closer check: it has only a few digits, and these do not end in digits that a larger suffix
/// could replace.
fn is_kept(integer: &str, fraction: &str, scale: &Scale) -> bool {
    let integer = match integer.trim_start_matches('0') {
        "" => "0",
        rest => rest,
    };
    let digits = integer.len().saturating_add(fraction.len());
    match *scale {
        Scale::Ten(exponent) => {
            let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
            let lowest = exponent.saturating_sub(places);
            let ends_in_thousands = format!("{integer}{fraction}").ends_with("000");
            digits <= PLAIN_DIGITS && lowest >= -9 && lowest % 3 == 0 && !ends_in_thousands && !integer.starts_with('0')
        }
        Scale::Two(exponent) => {
            let plain =
                usize::try_from(exponent.saturating_mul(3) / 10).is_ok_and(|taken| digits.saturating_add(taken) < 15);
            let odd = integer.parse::<u64>().is_ok_and(|value| value % 8 != 0);
            fraction.is_empty() && plain && odd
        }
    }
}

/// Writes an amount with the largest suffix or exponent that keeps the amount exact.
fn decimal(nano: i128, exponential: bool) -> String {
    let (mut amount, mut exponent) = (nano, -9_i32);
    while amount != 0 && amount % 1000 == 0 {
        amount /= 1000;
        exponent = exponent.saturating_add(3);
    }
    if exponential {
        return if exponent == 0 { amount.to_string() } else { format!("{amount}e{exponent}") };
    }
    let known = DECIMAL.iter().find(|(of, _)| *of == exponent);
    format!("{amount}{}", known.map_or("", |(_, suffix)| suffix))
}

fn binary(integer: i128) -> String {
    let (mut amount, mut suffixes) = (integer, BINARY.iter().peekable());
    while let Some(suffix) = suffixes.next() {
        if amount % 1024 != 0 || suffixes.peek().is_none() {
            return format!("{amount}{suffix}");
        }
        amount /= 1024;
    }
    amount.to_string()
}
