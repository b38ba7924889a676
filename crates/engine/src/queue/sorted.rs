//! Items in order, with fast access to the first item, which is read most often.

use std::cmp::Ordering;
use std::collections::{BTreeSet, btree_set};
use std::iter::Chain;
use std::option;

/// A sorted set of items. The first item is stored outside of the tree of the other items, so that reading it needs no walk, and a single item needs no tree.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    /// The first item of the sorted items; `None` if there are no items.
    first: Option<T>,
    others: BTreeSet<T>,
}

/// The items of a [`Sorted`], in order.
pub(crate) type Iter<'a, T> = Chain<option::Iter<'a, T>, btree_set::Iter<'a, T>>;

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { first: None, others: BTreeSet::new() }
    }
}

impl<T: Ord> Sorted<T> {
    pub(crate) fn insert(&mut self, item: T) {
        match self.first.as_ref().map(|first| item.cmp(first)) {
            None => self.first = Some(item),
            Some(Ordering::Less) => self.others.extend(self.first.replace(item)),
            Some(Ordering::Equal) => {}
            Some(Ordering::Greater) => {
                self.others.insert(item);
            }
        }
    }

    pub(crate) fn remove(&mut self, item: &T) {
        if self.first.as_ref() == Some(item) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(item);
        }
    }

    pub(crate) fn contains(&self, item: &T) -> bool {
        self.first.as_ref() == Some(item) || self.others.contains(item)
    }
}

impl<T> Sorted<T> {
    pub(crate) const fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.others.len().saturating_add(usize::from(self.first.is_some()))
    }

    pub(crate) fn iter(&self) -> Iter<'_, T> {
        self.first.iter().chain(&self.others)
    }
}

impl<'a, T> IntoIterator for &'a Sorted<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::Sorted;

    #[test]
    fn sorted_items_stay_in_order_through_inserts_and_removals() {
        let mut items: Sorted<i32> = Sorted::default();
        assert!(items.is_empty() && items.first().is_none());
        for item in [5, 7, 3, 3, 9, 5, 1] {
            items.insert(item);
        }
        assert_eq!((items.iter().copied().collect::<Vec<i32>>(), items.len()), (vec![1, 3, 5, 7, 9], 5));
        assert!(items.contains(&1) && items.contains(&7) && !items.contains(&4));
        // The items that are removed: the first item, an item behind it, and an item that is not in the set.
        for item in [1, 7, 4] {
            items.remove(&item);
        }
        assert_eq!((items.iter().copied().collect::<Vec<i32>>(), items.len()), (vec![3, 5, 9], 3));
        for item in [5, 3, 9] {
            assert!(!items.is_empty());
            items.remove(&item);
        }
        assert_eq!((items.is_empty(), items.len(), items.first()), (true, 0, None));
    }
}
