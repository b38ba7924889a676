//! The book of stock-outs: per flavor and shape how often capacity failed to turn up, and until when it is not asked for.
//! One failed gang spares the next, and a failure that is long ago is forgotten.

use std::collections::BTreeMap;

use berth_engine::model as engine;
use berth_engine::model::Shape;
use jiff::{SignedDuration, Timestamp};

use super::rules::Backoff;
use crate::core::millis;
use crate::status::seconds;

/// What is known of one flavor and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Stock-outs in a row.
    pub(crate) failures: u32,
    /// So many pods at once were not to be had.
    pub(crate) pods: i64,
    /// When that was.
    pub(crate) last: Timestamp,
    /// Until then it is not asked for.
    pub(crate) until: Timestamp,
    /// When nothing of it is remembered any more.
    pub(crate) forgotten: Timestamp,
}

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct StockBook(BTreeMap<(String, Shape), Entry>);

fn after(time: Timestamp, ms: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_millis(ms)).unwrap_or(time)
}

impl StockBook {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Capacity did not turn up at that time. A failure while an earlier one still holds tells of the same outage. `None`
    /// when that was known.
    pub(crate) fn ran_out(
        &mut self,
        flavor: String,
        shape: Shape,
        pods: i64,
        at: Timestamp,
        backoff: Backoff,
    ) -> Option<engine::StockOut> {
        self.0.retain(|_, entry| entry.forgotten > at);
        let key = (flavor, shape);
        let entry = match self.0.get(&key) {
            Some(known) if known.until > at && known.pods <= pods => return None,
            Some(known) if known.until > at => Entry { pods, ..known.clone() },
            Some(known) if known.last >= at => return None,
            known => {
                let quiet = known.map_or(0, |known| at.as_millisecond() - known.until.as_millisecond());
                let forgotten = u32::try_from(quiet / backoff.decay_ms.max(1)).unwrap_or(u32::MAX);
                let failures = known.map_or(0, |known| known.failures).saturating_sub(forgotten).saturating_add(1);
                let until = seconds(after(at, backoff.delay_ms(failures).max(1_000)));
                let memory = backoff.decay_ms.saturating_mul(i64::from(failures));
                Entry { failures, pods, last: at, until, forgotten: after(until, memory) }
            }
        };
        let out = stock_out(&key, &entry);
        self.0.insert(key, entry);
        Some(out)
    }

    /// So many pods of the shape got their nodes; tells whether that ends a stock-out.
    pub(crate) fn turned_up(&mut self, flavor: &str, shape: &Shape, pods: i64, now: Timestamp) -> bool {
        let key = (flavor.to_owned(), shape.clone());
        let Some(entry) = self.0.get_mut(&key).filter(|entry| entry.until > now && entry.pods <= pods) else {
            return false;
        };
        entry.until = now;
        true
    }
}

fn stock_out((flavor, shape): &(String, Shape), entry: &Entry) -> engine::StockOut {
    let until = entry.until;
    let times = if entry.failures > 1 { format!(", stock-out {} in a row", entry.failures) } else { String::new() };
    let pods = entry.pods;
    engine::StockOut {
        flavor: flavor.clone(),
        shape: shape.clone(),
        pods,
        until: millis(until),
        text: format!("is out of stock until {until}: {pods} pods of this shape got no nodes at {}{times}", entry.last),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const BACKOFF: Backoff = Backoff { initial_ms: 10_000, factor: 2, max_ms: 60_000, decay_ms: 100_000 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// For how long each failure keeps the flavor away, in seconds; 0 when it is no news.
    fn delays(times: &[(i64, i64)]) -> Vec<i64> {
        let mut book = StockBook::default();
        let delay = |(second, pods): &(i64, i64)| {
            let out = book.ran_out("f".into(), Shape::default(), *pods, at(*second), BACKOFF);
            out.map_or(0, |out| (out.until.0 - at(*second).as_millisecond()) / 1000)
        };
        times.iter().map(delay).collect()
    }

    #[test]
    fn failures_in_a_row_keep_it_away_longer_and_are_forgotten() {
        assert_eq!(delays(&[(0, 4), (20, 4), (50, 4), (100, 4), (170, 4)]), [10, 20, 40, 60, 60]);
        // One outage is one failure, whoever hits it; the smaller one keeps more jobs away.
        assert_eq!(delays(&[(0, 4), (1, 4), (2, 9), (3, 2), (9, 3)]), [10, 0, 0, 7, 0]);
        // After the third: 60 s end at 150 s; 100 s later one is forgotten, 200 s later two.
        assert_eq!(delays(&[(0, 4), (20, 4), (50, 4), (190, 4)]), [10, 20, 40, 40]);
        assert_eq!(delays(&[(0, 4), (20, 4), (50, 4), (2_000, 4)]), [10, 20, 40, 10]);
        // The same failure seen again after its end is no second one.
        assert_eq!(delays(&[(0, 4), (20, 4), (20, 4), (10, 4)]), [10, 20, 0, 0]);
    }

    #[test]
    fn capacity_that_turns_up_ends_it_for_as_many_pods() {
        let mut book = StockBook::default();
        book.ran_out("f".into(), Shape::default(), 4, at(0), BACKOFF).unwrap();
        assert!(!book.turned_up("f", &Shape::default(), 3, at(1)), "fewer pods tell nothing");
        assert!(!book.turned_up("g", &Shape::default(), 4, at(1)));
        assert!(book.turned_up("f", &Shape::default(), 4, at(2)));
        assert!(!book.turned_up("f", &Shape::default(), 4, at(3)), "it is over already");
        let again = book.ran_out("f".into(), Shape::default(), 4, at(5), BACKOFF).unwrap();
        assert_eq!(again.until, millis(at(25)), "the next one counts as the second");
        assert!(again.text.ends_with(", stock-out 2 in a row"), "{}", again.text);
    }
}
