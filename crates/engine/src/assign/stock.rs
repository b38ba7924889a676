//! Stock-outs: quota promised capacity, but nodes of the flavor were not created lately. A flavor that is out of stock for pods of a shape is skipped, until
//! the stock-out ends, by every workload that requests at least as many pods of that shape as the stock-out concerns.
//!
//! The crate `reconcile` detects stock-outs and sets their length; the engine only stores until when each stock-out lasts.

mod deltas;

use std::collections::BTreeMap;

use crate::model::{Millis, StockOut};
use crate::world::ids::FlavorId;

/// The stock-outs that have not ended, by flavor.
#[derive(Debug, Default)]
pub(crate) struct StockOuts(BTreeMap<FlavorId, Vec<StockOut>>);

impl StockOuts {
    /// End of the stock-out that ends next.
    pub(crate) fn next_end(&self) -> Option<Millis> {
        self.0.values().flatten().map(|out| out.until).min()
    }

    fn take_over(&mut self, now: Millis) -> Vec<FlavorId> {
        let mut freed = Vec::new();
        self.0.retain(|flavor, known| {
            let before = known.len();
            known.retain(|out| out.until > now);
            if known.len() < before {
                freed.push(*flavor);
            }
            !known.is_empty()
        });
        freed
    }
}
