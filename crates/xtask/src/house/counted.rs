//! Counts of a measure.

use crate::tidy::Finding;

/// Findings of one measure in one package, and the number of examined items.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(super) of: usize,
    pub(super) found: Vec<Finding>,
}
