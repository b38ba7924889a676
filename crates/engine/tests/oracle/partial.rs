//! In which size a workload could start (kueue.md 6.10): with all its pods or, where they find no room, with as many as do.

use std::ops::Range;

use super::assign::{Found, Search};

impl Search<'_> {
    /// All pods of each pod set.
    pub(crate) fn all_pods(&self) -> Vec<i64> {
        self.spec.pod_sets.iter().map(|set| set.count).collect()
    }

    /// What the workload could have, and who would have to leave: in the size to which it is held, else in full size, else in the
    /// largest reduced one that is found.
    pub(crate) fn nominate(&self) -> Found {
        if let Some(counts) = self.how.counts {
            return self.nominate_as(counts);
        }
        let full = self.nominate_as(&self.all_pods());
        if full.has_room() || !self.options.partial_admission {
            return full;
        }
        // One step for each pod that it can do without.
        let most: i64 = self.to_spare().iter().sum();
        if most == 0 {
            return full;
        }
        let (found, resumed) = self.largest(0..most + 1);
        // Any size may be the one that room was not looked for in all flavors for.
        found.unwrap_or(Found { resumed: full.resumed || resumed, ..full })
    }

    /// How many pods of each pod set it can do without.
    fn to_spare(&self) -> Vec<i64> {
        self.spec.pod_sets.iter().map(|set| set.min_count.map_or(0, |least| (set.count - least).max(0))).collect()
    }

    /// The size so many steps below the full one: each pod set gives its part of them, rounded down.
    fn below(&self, steps: i64) -> Vec<i64> {
        let spare = self.to_spare();
        let most: i64 = spare.iter().sum();
        self.all_pods().iter().zip(&spare).map(|(all, spare)| all - spare * steps / most).collect()
    }

    /// What the first of these steps down gives that finds room, if the more steps, the more room; and whether the scan of one that finds
    /// none went on behind the first flavors. More steps do not always give more room, since other flavors and other victims come in:
    /// then the sizes that are tried decide, and they are the middles, as in Kueue, not one after another.
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
