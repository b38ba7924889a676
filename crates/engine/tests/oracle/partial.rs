//! The size in which a workload could start in the oracle, as in Kueue: all its pods, or the largest number of pods that fits.

use std::ops::Range;

use super::assign::{Found, Search};

impl Search<'_> {
    /// Number of pods of each pod set in full size.
    pub(crate) fn all_pods(&self) -> Vec<i64> {
        self.spec.pod_sets.iter().map(|set| set.count).collect()
    }

    /// The assignment of the workload with its victims: in the only size that it may have, or in full size, or in the largest reduced size that is found.
    pub(crate) fn nominate(&self) -> Found {
        if let Some(counts) = self.how.counts {
            return self.nominate_as(counts);
        }
        let full = self.nominate_as(&self.all_pods());
        if full.has_room() || !self.options.partial_admission {
            return full;
        }
        // The search for a reduced size has one step for each pod above the minimum.
        let most: i64 = self.to_spare().iter().sum();
        if most == 0 {
            return full;
        }
        let (found, resumed) = self.largest(0..most + 1);
        // The scan of the full size or of any reduced size may have skipped flavors.
        found.unwrap_or(Found { resumed: full.resumed || resumed, ..full })
    }

    /// Number of pods above the minimum, by pod set.
    fn to_spare(&self) -> Vec<i64> {
        self.spec.pod_sets.iter().map(|set| set.min_count.map_or(0, |least| (set.count - least).max(0))).collect()
    }

    /// The size that is `steps` steps below the full size: each pod set gives its part of the steps, rounded down.
    fn below(&self, steps: i64) -> Vec<i64> {
        let spare = self.to_spare();
        let most: i64 = spare.iter().sum();
        self.all_pods().iter().zip(&spare).map(|(all, spare)| all - spare * steps / most).collect()
    }

    /// The assignment with the fewest steps that fits, found by bisection; and whether the scan of a size that does not fit began behind the first flavors. A
    /// smaller size does not always fit if a larger one fits, because other flavors and other victims come in. The result of the bisection depends on the sizes
    /// that are tried, which are the middles of ranges, as in Kueue.
    fn largest(&self, steps: Range<i64>) -> (Option<Found>, bool) {
        if steps.is_empty() {
            return (None, false);
        }
        let middle = steps.start.midpoint(steps.end);
        let found = self.nominate_as(&self.below(middle));
        if found.has_room() {
            let (larger, resumed) = self.largest(steps.start..middle);
            (larger.or(Some(found)), resumed)
        } else {
            let (smaller, resumed) = self.largest(middle + 1..steps.end);
            (smaller, resumed || found.resumed)
        }
    }
}
