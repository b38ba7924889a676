//! The preference among flavors, and the flavor at which a scan stops.

use crate::assign::mode::Granular;
use crate::model::{FlavorFungibility, Fungibility};

/// Mode and borrowing level of one flavor, by which two flavors are compared.
pub(super) type Level = (Granular, u32);

/// Whether a flavor with mode and borrowing level `a` is preferred to a flavor with mode and borrowing level `b`.
pub(crate) fn is_preferred(a: Level, b: Level, preemption_over_borrowing: bool) -> bool {
    if a.0 == Granular::NoFit || b.0 == Granular::NoFit {
        return a.0 != Granular::NoFit;
    }
    let (a_viable, b_viable) = (a.0 != Granular::NoCandidates, b.0 != Granular::NoCandidates);
    if a_viable != b_viable {
        return a_viable;
    }
    if preemption_over_borrowing {
        if a.1 != b.1 { a.1 < b.1 } else { a.0 > b.0 }
    } else if a.0 != b.0 {
        a.0 > b.0
    } else {
        a.1 < b.1
    }
}

pub(super) fn should_try_next(level: Level, policy: &FlavorFungibility) -> bool {
    match level.0 {
        Granular::NoFit | Granular::NoCandidates => true,
        Granular::Preempt | Granular::Reclaim if policy.when_can_preempt == Fungibility::TryNextFlavor => true,
        _ => level.1 > 0 && policy.when_can_borrow == Fungibility::TryNextFlavor,
    }
}
