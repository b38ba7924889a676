//! Counts of a measure.

use crate::tidy::Finding;

/// Findings of one measure of `xtask house` in one package, and the number of items that the measure has examined.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(super) of: usize,
    pub(super) found: Vec<Finding>,
}
