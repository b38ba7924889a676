//! Records by the uid of their object, with an index for each mark that a record may have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// The notes about one object.
pub trait Record: Debug + Default {
    /// The type of a mark, by which the records (notes about objects) that have the mark are found.
    type Mark: Copy + Debug + Ord + 'static;
    /// The place of a record in the queue of records for which an action is due.
    type Place: Copy + Debug + Ord;
    /// All marks that a record may have, at most 32.
    const MARKS: &'static [Self::Mark];

    /// Whether the record has a mark now.
    fn has(&self, mark: Self::Mark) -> bool;

    /// The place of the record in the queue of due records; `None` if the record is not queued.
    fn place(&self) -> Option<Self::Place>;

    /// Whether the record has no notes; such a record is not kept.
    fn is_empty(&self) -> bool;
}

/// The records of one kind of object. Each change of a record updates the indexes, so that callers need not.
#[derive(Debug)]
pub struct Records<R: Record> {
    all: FxHashMap<Arc<str>, R>,
    /// Uids of the records that have a mark.
    marked: BTreeMap<R::Mark, BTreeSet<Arc<str>>>,
    /// Uids of the queued records.
    queue: BTreeSet<(R::Place, Arc<str>)>,
    /// The empty record, for an object without notes.
    none: R,
}

/// The part of a record that the indexes show: a bit for each mark, and the place in the queue.
#[derive(Debug)]
struct Shown<P> {
    marks: u32,
    place: Option<P>,
}

impl<P> Shown<P> {
    const NOWHERE: Self = Self { marks: 0, place: None };

    fn of<R: Record<Place = P>>(record: &R) -> Self {
        let marks = R::MARKS.iter().rev().fold(0, |bits, mark| (bits << 1) | u32::from(record.has(*mark)));
        Self { marks, place: record.place() }
    }
}

impl<R: Record> Default for Records<R> {
    fn default() -> Self {
        Self { all: FxHashMap::default(), marked: BTreeMap::new(), queue: BTreeSet::new(), none: R::default() }
    }
}

impl<R: Record> Records<R> {
    /// The record of an object; an empty record if the object has no notes.
    pub fn of(&self, uid: &str) -> &R {
        self.all.get(uid).unwrap_or(&self.none)
    }

    /// Changes the record of an object.
    pub fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut R) -> T) -> T {
        if let Some(record) = self.all.get_mut(uid) {
            let before = Shown::of(record);
            let result = change(record);
            let (after, is_empty) = (Shown::of(record), record.is_empty());
            self.index(uid, &before, &after);
            if is_empty {
                self.all.remove(uid);
            }
            return result;
        }
        let mut record = R::default();
        let result = change(&mut record);
        if !record.is_empty() {
            let after = Shown::of(&record);
            self.all.insert(uid.into(), record);
            self.index(uid, &Shown::NOWHERE, &after);
        }
        result
    }

    /// Changes the record of an object, if the object has notes.
    pub fn change_known<T>(&mut self, uid: &str, change: impl FnOnce(&mut R) -> T) -> Option<T> {
        if self.all.contains_key(uid) { Some(self.change(uid, change)) } else { None }
    }

    /// Removes the record of an object that is gone.
    pub fn remove(&mut self, uid: &str) -> Option<R> {
        let before = Shown::of(self.all.get(uid)?);
        self.index(uid, &before, &Shown::NOWHERE);
        self.all.remove(uid)
    }

    /// The records that have a mark, in the order of their uids.
    pub fn marked(&self, mark: R::Mark) -> impl Iterator<Item = (&str, &R)> {
        let uids = self.marked.get(&mark).into_iter().flatten();
        uids.filter_map(|uid| Some((&**uid, self.all.get(uid)?)))
    }

    /// The uids of the records that have a mark, in ascending order.
    pub(crate) fn uids(&self, mark: R::Mark) -> Vec<String> {
        self.marked.get(&mark).into_iter().flatten().map(ToString::to_string).collect()
    }

    /// The number of records that have a mark.
    pub fn count(&self, mark: R::Mark) -> usize {
        self.marked.get(&mark).map_or(0, BTreeSet::len)
    }

    /// The place and the uid of the first queued record. Records of one place are in the order of their uids.
    pub(crate) fn first_queued(&self) -> Option<(R::Place, Arc<str>)> {
        self.queue.first().cloned()
    }

    /// The first queued record at the given place or behind it.
    pub(crate) fn first_queued_from(&self, place: R::Place) -> Option<(R::Place, Arc<str>)> {
        self.queue.range((place, Arc::from(""))..).next().cloned()
    }

    /// Updates the indexes from the earlier state of a record to the later state.
    fn index(&mut self, uid: &str, before: &Shown<R::Place>, after: &Shown<R::Place>) {
        if before.marks == after.marks && before.place == after.place {
            return;
        }
        let Some((uid, _)) = self.all.get_key_value(uid) else { return };
        let (mut was, mut is) = (before.marks, after.marks);
        for mark in R::MARKS {
            match (was & 1, is & 1) {
                (0, 1) => drop(self.marked.entry(*mark).or_default().insert(Arc::clone(uid))),
                (1, 0) => drop(self.marked.get_mut(mark).map(|uids| uids.remove(uid))),
                _ => {}
            }
            (was, is) = (was >> 1, is >> 1);
        }
        if before.place != after.place {
            if let Some(place) = before.place {
                self.queue.remove(&(place, Arc::clone(uid)));
            }
            if let Some(place) = after.place {
                self.queue.insert((place, Arc::clone(uid)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Numbers(Vec<i32>);

    impl Record for Numbers {
        type Mark = bool;
        type Place = i32;
        const MARKS: &'static [bool] = &[false, true];

        /// True for a record with odd numbers if `odd`, otherwise for a record with even numbers.
        fn has(&self, odd: bool) -> bool {
            self.0.iter().any(|number| (number % 2 == 1) == odd)
        }

        fn place(&self) -> Option<i32> {
            self.0.first().copied()
        }

        fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }

    #[test]
    fn record_index_follows_each_change_and_removal() {
        let mut records = Records::<Numbers>::default();
        records.change("b", |record| record.0.push(1));
        records.change("a", |record| record.0.extend([1, 2]));
        assert_eq!((records.uids(true), records.uids(false)), (vec!["a".into(), "b".into()], vec!["a".into()]));
        records.change("a", |record| record.0.retain(|number| *number == 2));
        assert_eq!((records.uids(true), records.uids(false)), (vec!["b".into()], vec!["a".into()]));
        assert!(records.remove("b").is_some() && records.remove("b").is_none());
        assert_eq!((records.count(true), records.count(false)), (0, 1));
    }

    #[test]
    fn queued_record_has_one_place_until_it_is_removed() {
        let mut records = Records::<Numbers>::default();
        records.change("b", |record| record.0.push(1));
        records.change("a", |record| record.0.push(2));
        records.change("b", |record| record.0.insert(0, 3));
        let uid = |found: Option<(i32, Arc<str>)>| found.map(|(place, uid)| (place, uid.to_string()));
        assert_eq!(uid(records.first_queued()), Some((2, "a".into())));
        assert_eq!(uid(records.first_queued_from(3)), Some((3, "b".into())));
        records.remove("a");
        assert_eq!(uid(records.first_queued()), Some((3, "b".into())));
        records.remove("b");
        assert_eq!(records.first_queued(), None);
    }

    #[test]
    fn record_without_notes_is_not_kept() {
        let mut records = Records::<Numbers>::default();
        records.change("a", |_| ());
        assert!(records.all.is_empty() && records.of("a").is_empty());
        assert_eq!(records.change_known("a", |record| record.0.push(1)), None);
        records.change("a", |record| record.0.push(1));
        assert_eq!(records.change_known("a", |record| record.0.clear()), Some(()));
        assert!(records.all.is_empty() && records.marked(true).next().is_none());
    }
}
