//! Stock-outs: quota promises capacity, but its nodes did not come lately. A flavor that is out of stock for pods of a shape is skipped by
//! every workload that asks for at least as many of them, until the stock-out ends.
//!
//! `control` detects stock-outs and sets their length; here they are data with an end.

mod deltas;

use std::collections::BTreeMap;

use crate::model::{Millis, StockOut};
use crate::world::ids::FlavorId;

/// The stock-outs that hold.
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
