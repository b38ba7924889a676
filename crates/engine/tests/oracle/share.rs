//! The oracle's fair shares, compared as fractions of integers: the comparison is exact, whereas the engine divides floats.

use std::cmp::Ordering;

/// Usage of a queue or cohort above its own quota, as a part of the lendable quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Borrowed amount of the dominant resource.
    pub(crate) borrowed: i128,
    /// Lendable amount of the dominant resource, above 0.
    pub(crate) lendable: i128,
    /// In billionths.
    pub(crate) weight: i64,
    /// True if an amount of a resource is borrowed, even if no quota of this resource may be lent.
    pub(crate) borrowing: bool,
}

/// Compares `a / b` with `c / d`; all numbers are positive or zero, and the divisors are positive. If the products are too large, the integer parts are
/// compared, and if these are equal, the inverted remainders.
fn compare_ratios((a, b): (i128, i128), (c, d): (i128, i128)) -> Ordering {
    if let (Some(left), Some(right)) = (a.checked_mul(d), c.checked_mul(b)) {
        return left.cmp(&right);
    }
    let by_integer = (a / b).cmp(&(c / d));
    match (a % b, c % d) {
        _ if by_integer.is_ne() => by_integer,
        (0, 0) => Ordering::Equal,
        (0, _) => Ordering::Less,
        (_, 0) => Ordering::Greater,
        (left, right) => compare_ratios((d, right), (b, left)),
    }
}

impl Part {
    /// A part of zero.
    pub(crate) const fn none(weight: i64) -> Self {
        Self { borrowed: 0, lendable: 1, weight, borrowing: false }
    }

    /// Takes another resource into the share; the resource with the larger part counts.
    pub(crate) fn with(mut self, borrowed: i128, lendable: i128) -> Self {
        self.borrowing |= borrowed > 0;
        if lendable > 0 && compare_ratios((borrowed, lendable), (self.borrowed, self.lendable)).is_gt() {
            (self.borrowed, self.lendable) = (borrowed, lendable);
        }
        self
    }

    /// Whether the share is infinite: the queue or cohort borrows and has the weight 0.
    pub(crate) const fn is_boundless(&self) -> bool {
        self.weight <= 0 && self.borrowed > 0
    }

    /// Compares two shares, the smaller share first; infinite shares come last, and among infinite shares the part alone counts.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let plain = |part: &Self| (part.borrowed, part.lendable);
        // A node that borrows nothing has no share, whatever its weight is.
        let weighted = |part: &Self| {
            let weight = if part.borrowed == 0 { 1 } else { i128::from(part.weight) };
            (part.borrowed, part.lendable.saturating_mul(weight))
        };
        match (self.is_boundless(), other.is_boundless()) {
            (true, true) => compare_ratios(plain(self), plain(other)),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_ratios(weighted(self), weighted(other)),
        }
    }
}

#[test]
fn share_ratios_are_compared_without_rounding() {
    let large = i128::MAX / 3;
    for ((left, right), expected) in [
        (((1, 3), (333, 1000)), Ordering::Greater),
        (((2, 6), (1, 3)), Ordering::Equal),
        (((0, 5), (0, 1)), Ordering::Equal),
        (((large, large - 1), (large - 1, large - 2)), Ordering::Less),
        (((large, 2), (large, 2)), Ordering::Equal),
        (((large, 7), (large - 7, 7)), Ordering::Greater),
    ] {
        assert_eq!(compare_ratios(left, right), expected, "{left:?} {right:?}");
        assert_eq!(compare_ratios(right, left), expected.reverse(), "{right:?} {left:?}");
    }
    let part = |borrowed, lendable, weight| Part { borrowed, lendable, weight, borrowing: borrowed > 0 };
    assert_eq!(part(1, 3, 1).compare(&part(2, 3, 2)), Ordering::Equal);
    assert_eq!(part(1, 3, 0).compare(&part(9, 3, 1)), Ordering::Greater);
    assert_eq!(part(0, 3, 0).compare(&part(0, 3, 1)), Ordering::Equal);
    assert_eq!(part(1, 3, 0).compare(&part(2, 3, 0)), Ordering::Less);
}
