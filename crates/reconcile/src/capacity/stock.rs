//! Stock-outs: for each flavor and shape of pods, how often nodes were missing, and until when no job is admitted there. The stock-out that one gang met keeps
//! the next gang from the same failure, and a stock-out is forgotten after a while.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use berth_api::berth::StockBackoffStatus;
use berth_cache::deltas::quantity;
use berth_cache::moments::{after, millis};
use berth_cache::tier_rules::BackoffRules;
use berth_engine::model as engine;
use berth_engine::model::Shape;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::workload::status::seconds;

/// The greatest number of stock-outs in a status.
const MOST_SHOWN: usize = 64;

/// The stock-outs of one flavor and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The number of stock-outs in a row.
    pub(crate) failures: u32,
    /// The number of pods that got no nodes together.
    pub(crate) pods: i64,
    /// Time of the last stock-out.
    pub(crate) last: Timestamp,
    /// The time until which no job of this shape is admitted to the flavor.
    pub(crate) until: Timestamp,
    /// Time at which the stock-outs are forgotten.
    pub(crate) forgotten: Timestamp,
}

/// All known stock-outs.
#[derive(Debug, Default)]
pub(crate) struct StockIndex(BTreeMap<(String, Shape), Entry>);

impl StockIndex {
    /// Whether no stock-out is known. A stock-out that has ended is known, too, and a forgotten stock-out is removed when the next stock-out is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a stock-out between two times. A failure while an earlier stock-out still holds belongs to the same outage. The result of `ran_out` is `None` if
    /// the stock-out was known.
    pub(crate) fn ran_out(
        &mut self,
        flavor: String,
        shape: Shape,
        pods: i64,
        (started, at): (Timestamp, Timestamp),
        backoff: BackoffRules,
    ) -> Option<engine::StockOut> {
        self.0.retain(|_, entry| entry.forgotten > started);
        let key = (flavor, shape);
        let entry = match self.0.get(&key) {
            Some(known) if known.until > at && known.pods <= pods => return None,
            Some(known) if known.until > at => Entry { pods, ..known.clone() },
            Some(known) if known.last >= at => return None,
            known => {
                let quiet = known.map_or(0, |known| started.as_millisecond() - known.until.as_millisecond()).max(0);
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

    /// Whether one of the given flavors has a stock-out that is not forgotten.
    pub(crate) fn remembers(&self, flavors: &[String], now: Timestamp) -> bool {
        let recent =
            |((flavor, _), entry): (&(String, Shape), &Entry)| flavors.contains(flavor) && entry.forgotten > now;
        self.0.iter().any(recent)
    }

    /// The stock-outs of some flavors, for the status of a QueuePolicy. If there are more stock-outs than a status shows, the stock-outs that hold longest come
    /// first, and then the stock-outs that ended last. Stock-outs that are over are shown until they are forgotten, because the next leader needs the number of
    /// stock-outs in a row.
    pub(crate) fn shown(&self, flavors: &BTreeSet<&str>, now: Timestamp) -> Vec<StockBackoffStatus> {
        let here = |(flavor, _): &(String, Shape)| flavors.contains(flavor.as_str());
        let known = self.0.iter().filter(|(key, entry)| here(key) && entry.forgotten > now);
        let mut known: Vec<(&(String, Shape), &Entry)> = known.collect();
        // Stock-outs that are over at the same time stay in the order of the names of their flavors.
        known.sort_by_key(|(_, entry)| Reverse(entry.until));
        let shown = |((flavor, shape), entry): (&(String, Shape), &Entry)| StockBackoffStatus {
            flavor: flavor.clone(),
            requests: shape.requests.iter().map(|(name, one)| (name.clone(), quantity(name, *one))).collect(),
            node_selector: shape.node_selector.clone(),
            constraints: constraints_text(shape.constraints),
            pods: entry.pods,
            failures: i32::try_from(entry.failures).unwrap_or(i32::MAX),
            last_failure_time: Time(seconds(entry.last)),
            until: Time(seconds(entry.until)),
            forgotten_at: Time(seconds(entry.forgotten)),
        };
        known.into_iter().take(MOST_SHOWN).map(shown).collect()
    }

    /// Adopts the stock-outs in a QueuePolicy's status that are newer than the known stock-outs; returns the stock-outs that still hold. A stock-out whose
    /// shape cannot be read is left out, because under another shape it would keep other pods from the flavor.
    pub(crate) fn restore(&mut self, shown: &[StockBackoffStatus], now: Timestamp) -> Vec<engine::StockOut> {
        let mut outs = Vec::new();
        for backoff in shown {
            let Some(shape) = shape_of(backoff) else { continue };
            let key = (backoff.flavor.clone(), shape);
            let entry = Entry {
                failures: u32::try_from(backoff.failures).unwrap_or_default(),
                pods: backoff.pods,
                last: backoff.last_failure_time.0,
                until: backoff.until.0,
                forgotten: backoff.forgotten_at.0,
            };
            // A stock-out in the status may show fewer pods than the known stock-out of the same outage, because a later request had fewer pods.
            let is_known = |known: &Entry| (known.last, entry.pods) >= (entry.last, known.pods);
            if entry.forgotten <= now || self.0.get(&key).is_some_and(is_known) {
                continue;
            }
            if entry.until > now {
                outs.push(stock_out(&key, &entry));
            }
            self.0.insert(key, entry);
        }
        outs
    }

    /// Records that a number of pods of a shape got their nodes; true if this ends a stock-out.
    pub(crate) fn turned_up(&mut self, flavor: &str, shape: &Shape, pods: i64, now: Timestamp) -> bool {
        let key = (flavor.to_owned(), shape.clone());
        let Some(entry) = self.0.get_mut(&key).filter(|entry| entry.until > now && entry.pods <= pods) else {
            return false;
        };
        // A stock-out that ends early is remembered for the same time as before, counted from its early end. If the time of memory began at the planned end of
        // the stock-out, jobs would move back too late to capacity that is there again.
        let memory = entry.forgotten.duration_since(entry.until);
        entry.until = now;
        entry.forgotten = now.checked_add(memory).unwrap_or(entry.forgotten);
        true
    }
}

/// The digest of placement constraints as text for a status.
fn constraints_text(digest: u64) -> String {
    if digest == 0 { String::new() } else { format!("{digest:016x}") }
}

/// The shape of the pods in a status; `None` if an amount or the digest is not as Berth writes it.
fn shape_of(backoff: &StockBackoffStatus) -> Option<Shape> {
    let request = |(name, amount): (&String, &Quantity)| {
        let amount = berth_quantity::request(name, &amount.0).ok()?;
        Some((name.clone(), amount))
    };
    let constraints = match backoff.constraints.as_str() {
        "" => 0,
        text => u64::from_str_radix(text, 16).ok()?,
    };
    let requests = backoff.requests.iter().map(request).collect::<Option<_>>()?;
    Some(Shape { requests, node_selector: backoff.node_selector.clone(), constraints })
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

    const BACKOFF: BackoffRules = BackoffRules { initial_ms: 10_000, factor: 2, max_ms: 60_000, decay_ms: 100_000 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// The seconds for which each failure keeps jobs from the flavor; 0 if the failure was known.
    fn delays(times: &[(i64, i64)]) -> Vec<i64> {
        let mut index = StockIndex::default();
        let delay = |(second, pods): &(i64, i64)| {
            let when = (at(*second), at(*second));
            let out = index.ran_out("f".into(), Shape::default(), *pods, when, BACKOFF);
            out.map_or(0, |out| (out.until.0 - at(*second).as_millisecond()) / 1000)
        };
        times.iter().map(delay).collect()
    }

    #[test]
    fn consecutive_stock_outs_lengthen_backoff_and_are_forgotten_with_time() {
        assert_eq!(delays(&[(0, 4), (20, 4), (50, 4), (100, 4), (170, 4)]), [10, 20, 40, 60, 60]);
        // An outage counts as one failure, whichever job fails; a failure with fewer pods keeps more jobs from the flavor.
        assert_eq!(delays(&[(0, 4), (1, 4), (2, 9), (3, 2), (9, 3)]), [10, 0, 0, 7, 0]);
        // The delay of 60 s after the third failure ends at 150 s; 100 s later one failure is forgotten, and 200 s later two failures.
        assert_eq!(delays(&[(0, 4), (20, 4), (50, 4), (190, 4)]), [10, 20, 40, 40]);
        assert_eq!(delays(&[(0, 4), (20, 4), (50, 4), (2_000, 4)]), [10, 20, 40, 10]);
        // A failure that is observed again after its end does not count as a second failure.
        assert_eq!(delays(&[(0, 4), (20, 4), (20, 4), (10, 4)]), [10, 20, 0, 0]);
    }

    #[test]
    fn status_shows_longest_backoffs_and_next_leader_restores_them() {
        let mut index = StockIndex::default();
        let flavors: Vec<String> = (0..70).map(|number| format!("f{number:02}")).collect();
        // The flavors run out of stock in the order of their names: ten stock-outs are over when the last flavor runs out, and no stock-out is forgotten.
        for (flavor, second) in flavors.iter().zip(0..) {
            let when = (at(second), at(second));
            index
                .ran_out(flavor.clone(), Shape::default(), 4, when, BackoffRules { initial_ms: 60_000, ..BACKOFF })
                .unwrap();
        }
        let all: BTreeSet<&str> = flavors.iter().map(String::as_str).collect();
        let shown = index.shown(&all, at(69));
        let names: Vec<&str> = shown.iter().map(|one| one.flavor.as_str()).collect();
        let expected: Vec<&str> = flavors.iter().rev().take(MOST_SHOWN).map(String::as_str).collect();
        assert_eq!(names, expected, "the longest first");
        let mut another = StockIndex::default();
        let held: Vec<String> = another.restore(&shown, at(69)).into_iter().map(|out| out.flavor).collect();
        assert_eq!(held, expected.into_iter().take(60).collect::<Vec<_>>(), "all that hold");
        assert!(another.remembers(&["f07".to_owned()], at(69)), "and what is over and not forgotten");
        assert!(index.shown(&all, at(10_000)).is_empty());
    }

    #[test]
    fn follower_restores_stock_out_of_fewer_pods_from_status() {
        let flavors = BTreeSet::from(["f"]);
        let (mut index, mut follower) = (StockIndex::default(), StockIndex::default());
        for (pods, news) in [(9, 1), (4, 1), (6, 0)] {
            let _ = index.ran_out("f".into(), Shape::default(), pods, (at(0), at(0)), BACKOFF);
            assert_eq!(follower.restore(&index.shown(&flavors, at(1)), at(1)).len(), news, "{pods} pods");
            assert_eq!(follower.shown(&flavors, at(1)), index.shown(&flavors, at(1)));
        }
    }

    #[test]
    fn stock_out_with_unreadable_shape_is_not_restored() {
        let mut index = StockIndex::default();
        index.ran_out("f".into(), Shape { constraints: 7, ..Shape::default() }, 4, (at(0), at(0)), BACKOFF).unwrap();
        let shown = index.shown(&BTreeSet::from(["f"]), at(1)).remove(0);
        let amount = |text: &str| BTreeMap::from([("cpu".to_owned(), Quantity(text.to_owned()))]);
        for (constraints, requests, restored) in [
            (shown.constraints.as_str(), amount("2"), 1),
            ("", amount("2"), 1),
            ("seven", amount("2"), 0),
            ("", amount("two"), 0),
        ] {
            let written = StockBackoffStatus { constraints: constraints.to_owned(), requests, ..shown.clone() };
            let mut follower = StockIndex::default();
            assert_eq!(follower.restore(&[written], at(1)).len(), restored, "{constraints:?}");
            assert_eq!(follower.is_empty(), restored == 0, "{constraints:?}");
        }
    }

    #[test]
    fn stock_out_ends_when_as_many_pods_find_capacity() {
        let mut index = StockIndex::default();
        index.ran_out("f".into(), Shape::default(), 4, (at(0), at(0)), BACKOFF).unwrap();
        assert!(!index.turned_up("f", &Shape::default(), 3, at(1)), "fewer pods tell nothing");
        assert!(!index.turned_up("g", &Shape::default(), 4, at(1)));
        assert!(index.turned_up("f", &Shape::default(), 4, at(2)));
        assert!(!index.turned_up("f", &Shape::default(), 4, at(3)), "it is over already");
        let again = index.ran_out("f".into(), Shape::default(), 4, (at(2), at(5)), BACKOFF).unwrap();
        assert_eq!(again.until, millis(at(25)), "the next one counts as the second");
        assert!(again.text.ends_with(", stock-out 2 in a row"), "{}", again.text);
    }
}
