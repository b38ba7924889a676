//! Arithmetic of one quota cell, with Kueue's rules of borrowing and lending. Amounts have 128 bits, so sums of any real usage are exact, and adding and
//! removing are exact inverses. The amount [`INF`] stands for "unlimited".

use crate::model::Amount;
use crate::world::ids::CellId;

/// The type of amounts of quota and usage inside the engine.
pub(crate) type Units = i128;

/// Unlimited.
pub(crate) const INF: Units = i64::MAX as Units;

pub(crate) fn units(amount: Amount) -> Units {
    Units::from(amount.get())
}

pub(crate) fn amount(units: Units) -> Amount {
    Amount::clamped(units)
}

pub(crate) const fn plus(a: Units, b: Units) -> Units {
    let sum = a.saturating_add(b);
    if a >= INF || b >= INF || sum >= INF { INF } else { sum }
}

/// Adds two amounts. The sum of two amounts may exceed [`INF`], in contrast to [`plus`], because an amount that is subtracted later has to be the amount that
/// was added.
pub(crate) const fn add_to(total: &mut Units, value: Units) {
    *total = total.saturating_add(value);
}

/// Rest of `quota` after `used`; an unlimited quota stays unlimited, whatever amount is used.
pub(crate) const fn left(quota: Units, used: Units) -> Units {
    if quota >= INF { INF } else { quota.saturating_sub(used) }
}

/// Usage of a workload or an assignment: pairs of cell and amount, sorted by cell, with each cell at most once.
pub(crate) type Usage = Vec<(CellId, Units)>;

/// Adds an amount to one cell of a usage.
pub(crate) fn accumulate(usage: &mut Usage, cell: CellId, value: Units) {
    match usage.binary_search_by_key(&cell, |(c, _)| *c) {
        Ok(at) => {
            if let Some((_, total)) = usage.get_mut(at) {
                add_to(total, value);
            }
        }
        Err(at) => usage.insert(at, (cell, value)),
    }
}

/// Amount of one cell of a usage.
pub(crate) fn in_usage(usage: &[(CellId, Units)], cell: CellId) -> Units {
    usage.binary_search_by_key(&cell, |(c, _)| *c).ok().and_then(|at| usage.get(at)).map_or(0, |(_, value)| *value)
}

/// Quota and usage of one flavor and resource at one node of the cohort tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) key: CellId,
    /// Own nominal quota of the queue or cohort.
    pub(crate) nominal: Units,
    /// [`INF`] when absent.
    pub(crate) borrowing_limit: Units,
    /// [`INF`] when absent.
    pub(crate) lending_limit: Units,
    /// Quota of the subtree: the node's own quota and the quota that its children lend.
    pub(crate) subtree: Units,
    /// Usage of the cell: at a queue its own usage, at a cohort the usage that the children take from the cohort.
    pub(crate) usage: Units,
    /// True if the queue or cohort itself defines a quota of the cell, even a quota of zero.
    pub(crate) own: bool,
    /// True if the queue or cohort, or one below it, defines a quota of the cell. If no quota is defined, usage of the cell is left over from an earlier quota
    /// and counts for no share.
    pub(crate) has_quota: bool,
}

impl Cell {
    pub(crate) const fn empty(key: CellId) -> Self {
        Self {
            key,
            nominal: 0,
            borrowing_limit: INF,
            lending_limit: INF,
            subtree: 0,
            usage: 0,
            own: false,
            has_quota: false,
        }
    }

    /// Part of the quota of a queue or cohort that its parent never sees, because it is not lent.
    pub(crate) fn local(&self) -> Units {
        if self.lending_limit >= INF { 0 } else { left(self.subtree, self.lending_limit).max(0) }
    }

    pub(crate) fn local_available(&self) -> Units {
        left(self.local(), self.usage).max(0)
    }

    /// Part of an additional usage `value` at a queue or cohort that its parent would see; 0 if the queue or cohort keeps an unlimited quota back, however much
    /// is in use.
    pub(crate) fn above_local(&self, value: Units) -> Units {
        if self.local() >= INF { 0 } else { value.saturating_sub(self.local_available()) }
    }

    /// Part of the quota of a queue or cohort that it lends to its parent.
    pub(crate) fn lent(&self) -> Units {
        match self.local() {
            INF => 0,
            local => left(self.subtree, local),
        }
    }

    /// Amount of the usage of a queue or cohort that counts at its parent.
    pub(crate) fn used_in_parent(&self) -> Units {
        match self.local() {
            INF => 0,
            local => self.usage.saturating_sub(local).max(0),
        }
    }

    /// The largest amount that a queue or cohort may take from its parent in addition to the amount that it takes already.
    pub(crate) fn bound_from_parent(&self) -> Units {
        if self.borrowing_limit >= INF {
            INF
        } else {
            plus(left(self.lent(), self.used_in_parent()), self.borrowing_limit)
        }
    }

    /// Whether an additional usage `extra` of a queue or cohort would exceed its own quota and the quota that is lent to it from below.
    pub(crate) const fn exceeds_with(&self, extra: Units) -> bool {
        self.subtree < INF && self.usage.saturating_add(extra) > self.subtree
    }
}
