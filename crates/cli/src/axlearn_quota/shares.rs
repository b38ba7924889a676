//! Exact division of integer totals by fractions: the parts add up to the total.

/// Largest number of digits after the decimal point of a fraction; a 64-bit float prints no more.
const MOST_PLACES: i64 = 18;
/// Largest number of digits before the decimal point of a fraction.
const MOST_BEFORE: i64 = 3;

/// A decimal number as written, with the value of `digits` divided by ten to the power of `places`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decimal {
    digits: i128,
    places: u32,
}

impl Decimal {
    /// Reads a nonnegative number in a notation of TOML, such as `0.6`, `1`, `1_0.5` or `6e-1`.
    ///
    /// # Errors
    /// The error text states the allowed form of the number.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "a number, 0 or more, of at most {MOST_BEFORE} digits before the point and {MOST_PLACES} after it is needed"
            )
        };
        let plain = text.replace('_', "").to_ascii_lowercase();
        let plain = plain.strip_prefix('+').unwrap_or(&plain);
        let (mantissa, exponent) = plain.split_once('e').unwrap_or((plain, "0"));
        let (full, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: i64 = exponent.parse().map_err(|_| refused())?;
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{full}{fraction}");
        let digits = digits.trim_start_matches('0');
        if full.is_empty() || !full.bytes().chain(fraction.bytes()).all(|c| c.is_ascii_digit()) {
            return Err(refused());
        }
        if digits.is_empty() {
            return Ok(Self { digits: 0, places: 0 });
        }
        // Number of the fraction's digits after the decimal point; negative if the exponent appends zeros to its digits.
        let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX).saturating_sub(exponent);
        let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        if places > MOST_PLACES || length.saturating_sub(places) > MOST_BEFORE {
            return Err(refused());
        }
        let digits: i128 = digits.parse().map_err(|_| refused())?;
        match u32::try_from(places) {
            Ok(places) => Ok(Self { digits, places }),
            // Each step multiplies `digits` by ten for one power of ten of the exponent; because of `MOST_BEFORE`, there are fewer than three steps.
            Err(_) => Ok(Self { digits: (places..0).fold(digits, |digits, _| digits * 10), places: 0 }),
        }
    }
}

/// Fractions as integer weights in equal proportions.
pub(crate) fn weights(fractions: &[Decimal]) -> Vec<i128> {
    let places = fractions.iter().map(|fraction| fraction.places).max().unwrap_or(0);
    fractions.iter().map(|fraction| fraction.digits * 10_i128.pow(places - fraction.places)).collect()
}

/// Divides the total of each tier among projects by their weights. The returned list has a list for each tier, with the part of each project. Each project's
/// part of a tier is its exact share rounded down or up, and the parts of a tier add up to the tier's total. The remainder of rounding down goes, one unit at a
/// time, to the project that is furthest below its share of all tiers so far; of equal projects the first one gets the unit. The parts of all projects are zero
/// if all weights are zero.
///
/// Totals up to 10^12, 64 tiers, 1000 projects and weights below 10^21 do not overflow.
pub(crate) fn shares(totals: &[i128], weights: &[i128]) -> Vec<Vec<i128>> {
    let full: i128 = weights.iter().sum();
    let mut given = vec![0_i128; weights.len()];
    let mut so_far = 0_i128;
    let mut tiers = Vec::new();
    for total in totals {
        if full == 0 {
            tiers.push(vec![0; weights.len()]);
            continue;
        }
        so_far += total;
        let mut parts: Vec<i128> = weights.iter().map(|weight| total * weight / full).collect();
        let left = total - parts.iter().sum::<i128>();
        for (given, part) in given.iter_mut().zip(&parts) {
            *given += part;
        }
        let rounded = weights.iter().enumerate().filter(|(_, weight)| total * **weight % full != 0);
        let mut behind: Vec<(i128, usize)> =
            rounded.map(|(index, weight)| (given[index] * full - so_far * weight, index)).collect();
        behind.sort_unstable();
        for (_, index) in behind.into_iter().take(usize::try_from(left).unwrap_or_default()) {
            parts[index] += 1;
            given[index] += 1;
        }
        tiers.push(parts);
    }
    tiers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_fraction_is_read_exactly_or_refused() {
        let read = |text: &str| Decimal::read(text).map(|number| (number.digits, number.places));
        for (text, expected) in [
            ("0.6", (6, 1)),
            ("0.30000000000000004", (30_000_000_000_000_004, 17)),
            ("1", (1, 0)),
            ("1.0", (1, 0)),
            ("+1_0.50", (105, 1)),
            ("6e-1", (6, 1)),
            ("1E-05", (1, 5)),
            ("2.5e2", (250, 0)),
            ("0.0", (0, 0)),
            ("0e99", (0, 0)),
            ("0.000000000000000001", (1, 18)),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for text in
            ["-0.5", "inf", "nan", "0.0000000000000000001", "1000", "1e3", "1e99999999999999999999", "x", "", "."]
        {
            assert!(read(text).unwrap_err().contains("0 or more"), "{text}");
        }
    }

    #[test]
    fn quota_weights_keep_the_proportions_of_fractions() {
        let fractions = ["0.25", "1", "0.5e-2"].map(|text| Decimal::read(text).unwrap());
        assert_eq!(weights(&fractions), [250, 1000, 5]);
        assert_eq!(weights(&[]), [0; 0]);
    }

    #[test]
    fn quota_remainder_goes_to_projects_furthest_below_their_share() {
        assert_eq!(shares(&[8, 16], &[6, 4]), [[5, 3], [9, 7]]);
        assert_eq!(shares(&[1, 1, 1], &[1, 1]), [[1, 0], [0, 1], [1, 0]], "no project wins every tier");
        assert_eq!(shares(&[10], &[1, 1, 1]), [[4, 3, 3]]);
        assert_eq!(shares(&[1024], &[6, 4]), [[614, 410]]);
        assert_eq!(shares(&[5, 0], &[0, 1]), [[0, 5], [0, 0]]);
        assert_eq!(shares(&[5], &[0, 0]), [[0, 0]]);
    }

    /// In random quota files, the parts of every tier add up to its total, and every part is the exact share rounded down or up.
    #[test]
    fn quota_shares_add_up_exactly_in_every_tier() {
        let mut state = 1_u64;
        let mut next = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i128::from((state >> 33) % most)
        };
        for _ in 0..2_000 {
            let projects = 1 + next(7);
            let weights: Vec<i128> = (0..projects).map(|_| next(50)).collect();
            let totals: Vec<i128> = (0..=next(3)).map(|_| next(1_000)).collect();
            let full: i128 = weights.iter().sum();
            for (total, parts) in totals.iter().zip(shares(&totals, &weights)) {
                assert_eq!(parts.iter().sum::<i128>(), if full == 0 { 0 } else { *total }, "{totals:?} {weights:?}");
                for (part, weight) in parts.iter().zip(&weights).filter(|_| full > 0) {
                    let off = part * full - total * weight;
                    assert!(off.abs() < full, "{totals:?} {weights:?}: {part}");
                }
            }
        }
    }
}
