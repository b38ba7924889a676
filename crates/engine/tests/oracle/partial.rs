//! The size in which a workload could start, as in Kueue: all its pods, or if they find no room, the largest number that does.

use std::ops::Range;

use super::assign::{Found, Search};

impl Search<'_> {
    /// All pods of each pod set.
    pub(crate) fn all_pods(&self) -> Vec<i64> {
        self.spec.pod_sets.iter().map(|set| set.count).collect()
    }

    /// The assignment of the workload with its victims: in the size that it is restricted to, else in full size, else in the largest reduced size
    /// that is found.
    pub(crate) fn nominate(&self) -> Found {
        if let Some(counts) = self.how.counts {
            return self.nominate_as(counts);
        }
        let full = self.nominate_as(&self.all_pods());
        if full.has_room() || !self.options.partial_admission {
            return full;
        }
        // There is one step for each pod above the minimum.
        let most: i64 = self.to_spare().iter().sum();
        if most == 0 {
            return full;
        }
        let (found, resumed) = self.largest(0..most + 1);
        // The scan of any size may have skipped flavors.
        found.unwrap_or(Found { resumed: full.resumed || resumed, ..full })
    }

    /// Pods above the minimum, by pod set.
    fn to_spare(&self) -> Vec<i64> {
        self.spec.pod_sets.iter().map(|set| set.min_count.map_or(0, |least| (set.count - least).max(0))).collect()
    }

    /// The size `steps` below the full one: each pod set gives its part of the steps, rounded down.
    fn below(&self, steps: i64) -> Vec<i64> {
        let spare = self.to_spare();
        let most: i64 = spare.iter().sum();
        self.all_pods().iter().zip(&spare).map(|(all, spare)| all - spare * steps / most).collect()
    }

    /// The assignment of the smallest of these steps that finds room, by bisection; and whether the scan of a size without room began behind the
    /// first flavors. More steps do not always find room, since other flavors and other victims come in. The tried sizes decide then, and they
    /// are the middles, as in Kueue.
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
