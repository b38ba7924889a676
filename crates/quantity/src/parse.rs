/// An exact number of nano units (10⁻⁹); the number saturates far beyond the range of any quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nano(pub i128);

/// Reason why a text is not a usable quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is empty.
    #[error("a quantity must not be empty")]
    Empty,
    /// The text is not a number with an optional suffix.
    #[error("{0:?} is not a quantity: a decimal number with an optional suffix is needed, such as 500m or 2Gi")]
    Format(String),
    /// The suffix is no suffix of Kubernetes.
    #[error("{text:?} has the unknown suffix {suffix:?}")]
    Suffix {
        /// The full text.
        text: String,
        /// Suffix of the text.
        suffix: String,
    },
    /// The value is negative where no negative value is allowed.
    #[error("{0:?} must not be negative")]
    Negative(String),
}

/// Multiplier named by a suffix.
pub(crate) enum Scale {
    Ten(i64),
    Two(u32),
}

/// Reads a quantity in any form that Kubernetes accepts; digits beyond nano units round away from zero.
///
/// # Errors
/// Returns [`ParseError::Empty`], [`ParseError::Format`] or [`ParseError::Suffix`] if the text is no quantity.
pub fn parse_quantity(text: &str) -> Result<Nano, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Empty);
    }
    let (negative, integer, fraction, suffix) = parts(text);
    let magnitude = match scale(text, suffix)? {
        Scale::Ten(exponent) => decimal(integer, fraction, exponent),
        Scale::Two(exponent) => binary(integer, fraction, exponent),
    };
    Ok(Nano(if negative { magnitude.saturating_neg() } else { magnitude }))
}

/// Parts of a quantity's text: sign (true if negative), digits before and after the point, and suffix.
pub(crate) fn parts(text: &str) -> (bool, &str, &str, &str) {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (integer, rest) = split_digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    (negative, integer, fraction, suffix)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

pub(crate) fn scale(text: &str, suffix: &str) -> Result<Scale, ParseError> {
    Ok(match suffix {
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "" => Scale::Ten(0),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        _ => return exponent(text, suffix),
    })
}

fn exponent(text: &str, suffix: &str) -> Result<Scale, ParseError> {
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseError::Format(text.to_owned()));
    }
    let number = suffix.strip_prefix(['e', 'E']).filter(|n| *n == letters && !digits.is_empty());
    let Some(number) = number else {
        return Err(ParseError::Suffix { text: text.to_owned(), suffix: suffix.to_owned() });
    };
    // An exponent that does not fit into the number type is clamped, because it can only mean "huge" or "tiny".
    let bound = if number.starts_with('-') { -1_000_000 } else { 1_000_000 };
    Ok(Scale::Ten(number.parse::<i64>().map_or(bound, |e| e.clamp(-1_000_000, 1_000_000))))
}

fn digit(byte: u8) -> i128 {
    i128::from(byte.saturating_sub(b'0'))
}

fn decimal(integer: &str, fraction: &str, exponent: i64) -> i128 {
    let length = |s: &str| i64::try_from(s.len()).unwrap_or(i64::MAX);
    let kept = length(integer).saturating_add(exponent).saturating_add(9);
    let mut value: i128 = 0;
    let mut lost = false;
    let mut position: i64 = 0;
    for byte in integer.bytes().chain(fraction.bytes()) {
        if position < kept {
            value = value.saturating_mul(10).saturating_add(digit(byte));
        } else {
            lost |= byte != b'0';
        }
        position = position.saturating_add(1);
    }
    while value != 0 && value != i128::MAX && position < kept {
        value = value.saturating_mul(10);
        position = position.saturating_add(1);
    }
    value.saturating_add(i128::from(lost))
}

fn binary(integer: &str, fraction: &str, exponent: u32) -> i128 {
    let unit = 1_000_000_000_i128 << exponent;
    let integer = integer.bytes().fold(0_i128, |v, b| v.saturating_mul(10).saturating_add(digit(b)));
    // The fraction's digits are multiplied one by one, beginning with the last digit: the number `carry` is the whole number of nano units at the end, and
    // `lost` is true if there is a remainder.
    let (carry, lost) = fraction.bytes().rev().fold((0_i128, false), |(carry, lost), byte| {
        let product = digit(byte).saturating_mul(unit).saturating_add(carry);
        (product / 10, lost || product % 10 != 0)
    });
    integer.saturating_mul(unit).saturating_add(carry).saturating_add(i128::from(lost))
}
