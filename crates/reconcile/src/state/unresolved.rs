//! Unresolved writes: their outcome is unknown, and such a write may be applied after its quota was given to another Workload.
//!
//! If the answer to a write is lost, the write may have been applied, or refused, or may still be on its way; reading the object does not distinguish the
//! last two cases. A patch names the version of the object from which the patch was derived, so that the patch cannot be applied any more once the object is
//! observed at another version. As long as a patch is unresolved, its object gets only the same write again, or a write that changes the version
//! (`Purpose::WithdrawStart`), and the quota is kept. An unresolved creation names no version, so that its quota is kept until the server has given the
//! creation up.

use std::collections::BTreeMap;

use berth_cache::moments::after_seconds;
use jiff::Timestamp;

use crate::write::ObjectKey;

/// Time in seconds after a lost answer for which a creation may still be applied. The API server is asked to give up a write before the client does, and
/// gives up within seconds.
const CREATION_SECONDS: i64 = 20;

/// Writes whose outcome is unknown and that may still be applied.
#[derive(Debug, Default)]
pub struct UnresolvedWrites {
    /// For each object, the version that the object must still have for the unresolved patch to succeed.
    patches: BTreeMap<ObjectKey, u64>,
    creations: BTreeMap<ObjectKey, Creations>,
}

/// Creations of one object whose answers were lost.
#[derive(Clone, Copy, Debug)]
struct Creations {
    open: u32,
    until: Timestamp,
}

impl UnresolvedWrites {
    /// Notes that a patch which was derived from `version` may still be applied.
    pub fn note_unresolved(&mut self, key: ObjectKey, version: u64) {
        self.patches.insert(key, version);
    }

    /// Whether a patch of the object may still be applied.
    pub fn may_apply(&self, key: &ObjectKey) -> bool {
        self.patches.contains_key(key)
    }

    /// Notes that the object was observed at a version: an unresolved patch that was derived from an older version cannot be applied any more.
    pub fn seen(&mut self, key: &ObjectKey, version: u64) {
        if self.patches.get(key).is_some_and(|derived_from| *derived_from < version) {
            self.patches.remove(key);
        }
    }

    /// Forgets the unresolved patch of an object that is gone: a later object of the name has another uid, so that the patch is refused.
    pub fn vanished(&mut self, key: &ObjectKey) {
        self.patches.remove(key);
    }

    /// Notes that a creation of the object may still be applied.
    pub(crate) fn note_unresolved_creation(&mut self, key: ObjectKey, now: Timestamp) {
        let until = after_seconds(now, CREATION_SECONDS);
        let open = self.creations.get(&key).map_or(0, |creations| creations.open);
        self.creations.insert(key, Creations { open: open.saturating_add(1), until });
    }

    /// Notes that the object exists: one of its unresolved creations was applied, and only one, because an object is created once.
    pub fn note_applied(&mut self, key: &ObjectKey) {
        let Some(creations) = self.creations.get_mut(key) else { return };
        creations.open = creations.open.saturating_sub(1);
        if creations.open == 0 {
            self.creations.remove(key);
        }
    }

    /// Time until which a creation of the object may still be applied.
    pub(crate) fn creation_until(&self, key: &ObjectKey, now: Timestamp) -> Option<Timestamp> {
        self.creations.get(key).map(|creations| creations.until).filter(|until| *until > now)
    }

    /// Forgets the unresolved creations that the server has given up by `now`.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.creations.retain(|_, creations| creations.until > now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::write::{Kind, key};

    fn object() -> ObjectKey {
        key(Kind::JOB, &("team".to_owned(), "a".to_owned()))
    }

    #[test]
    fn unresolved_patch_is_over_once_object_has_newer_version() {
        let mut unresolved = UnresolvedWrites::default();
        unresolved.note_unresolved(object(), 7);
        for version in [6, 7] {
            unresolved.seen(&object(), version);
            assert!(unresolved.may_apply(&object()), "{version}");
        }
        unresolved.seen(&object(), 8);
        assert!(!unresolved.may_apply(&object()));
    }

    #[test]
    fn unresolved_creations_end_one_by_one_or_after_time_limit() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut unresolved = UnresolvedWrites::default();
        unresolved.note_unresolved_creation(object(), now);
        unresolved.note_unresolved_creation(object(), now);
        unresolved.note_applied(&object());
        assert!(unresolved.creation_until(&object(), now).is_some(), "the other one is on its way");
        unresolved.note_applied(&object());
        assert_eq!(unresolved.creation_until(&object(), now), None);
        unresolved.note_unresolved_creation(object(), now);
        let end = unresolved.creation_until(&object(), now).unwrap();
        assert_eq!(unresolved.creation_until(&object(), end), None);
        unresolved.forget_old(end);
        assert!(unresolved.creations.is_empty());
    }
}
