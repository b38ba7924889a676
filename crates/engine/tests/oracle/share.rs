//! Shares, compared as fractions of whole numbers: exact, where the engine divides.

use std::cmp::Ordering;

/// What a node takes beyond its own, as a part of what is lent to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Taken of the dominant resource.
    pub(crate) borrowed: i128,
    /// What of it may be lent, more than nothing.
    pub(crate) lendable: i128,
    /// In billionths.
    pub(crate) weight: i64,
    /// Something is taken, even if nothing of it may be lent.
    pub(crate) borrowing: bool,
}

/// Whether `a / b` is less than, equal to or greater than `c / d`; all are positive or zero, the divisors positive. Where the products
/// are too large, whole parts are compared first and then what is left, the other way round.
fn compare_ratios((a, b): (i128, i128), (c, d): (i128, i128)) -> Ordering {
    if let (Some(left), Some(right)) = (a.checked_mul(d), c.checked_mul(b)) {
        return left.cmp(&right);
    }
    let by_whole = (a / b).cmp(&(c / d));
    match (a % b, c % d) {
        _ if by_whole.is_ne() => by_whole,
        (0, 0) => Ordering::Equal,
        (0, _) => Ordering::Less,
        (_, 0) => Ordering::Greater,
        (left, right) => compare_ratios((d, right), (b, left)),
    }
}

impl Part {
    /// Nothing is taken.
    pub(crate) const fn none(weight: i64) -> Self {
        Self { borrowed: 0, lendable: 1, weight, borrowing: false }
    }

    /// Takes in another resource; the one of which the larger part is taken counts.
    pub(crate) fn with(mut self, borrowed: i128, lendable: i128) -> Self {
        self.borrowing |= borrowed > 0;
        if lendable > 0 && compare_ratios((borrowed, lendable), (self.borrowed, self.lendable)).is_gt() {
            (self.borrowed, self.lendable) = (borrowed, lendable);
        }
        self
    }

    /// Who borrows with no weight has no bound.
    pub(crate) const fn is_boundless(&self) -> bool {
        self.weight <= 0 && self.borrowed > 0
    }

    /// Smaller shares first; who has no bound comes last, and among those the part counts alone.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let plain = |part: &Self| (part.borrowed, part.lendable);
        // Who takes nothing has no share, whatever its weight.
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
fn fractions_are_compared_exactly() {
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
