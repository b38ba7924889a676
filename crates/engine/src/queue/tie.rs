//! The tie-break between workloads of equal priority and time (`docs/departures/0035-equal-times.md`).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::model::{Millis, WorkloadSpec};

/// The rule by which a world orders workloads of equal priority and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TieRule {
    /// As in Kueue.
    Uid,
    /// The order is by lot; the number is the salt of the cluster, zero as long as no salt is known.
    Lot(u64),
}

impl TieRule {
    /// The tie-break rule of a world that does not know the salt of the cluster yet.
    pub(crate) const fn new(by_lot: bool) -> Self {
        if by_lot { Self::Lot(0) } else { Self::Uid }
    }

    /// The tie-break rule with the salt that is made from `text`; Kueue's rule by UID has no salt.
    pub(crate) fn salted(self, text: &str) -> Self {
        match self {
            Self::Uid => Self::Uid,
            Self::Lot(_) => Self::Lot(salt(text)),
        }
    }
}

/// The tie-break between workloads of the same priority and time; smaller values go first in a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tie {
    /// The tie-break of Kueue: the workload with the smaller UID goes first.
    Uid(Arc<str>),
    /// The hash of namespace and second (the lot), followed by the workload's name: the order is fair between namespaces, and by name within a namespace.
    Lot(Arc<str>),
}

impl Tie {
    pub(crate) fn of(spec: &WorkloadSpec, uid: &Arc<str>, rule: TieRule) -> Self {
        match rule {
            TieRule::Uid => Self::Uid(Arc::clone(uid)),
            TieRule::Lot(salt) => Self::drawn(&spec.namespace, spec.queued_at, salt, &spec.name),
        }
    }

    fn drawn(namespace: &str, queued_at: Millis, salt: u64, name: &str) -> Self {
        Self::Lot(format!("{:016x}/{name}", lot(namespace, second(queued_at), salt)).into())
    }

    /// The tie-break of the same workload under another rule of the same kind, for example with another salt.
    pub(crate) fn drawn_again(&self, namespace: &str, queued_at: Millis, rule: TieRule) -> Self {
        match (self, rule) {
            (Self::Lot(word), TieRule::Lot(salt)) => {
                let name = word.split_once('/').map_or("", |(_, name)| name);
                Self::drawn(namespace, queued_at, salt, name)
            }
            _ => self.clone(),
        }
    }

    /// The text by which equal workloads are ordered: the UID, or the lot and the name.
    pub(crate) const fn word(&self) -> &Arc<str> {
        match self {
            Self::Uid(word) | Self::Lot(word) => word,
        }
    }

    /// The order in which equal workloads are searched as victims. With the tie-break by lot, the workload that is last in the queue is preempted first, so
    /// that the first of equal workloads runs on.
    pub(crate) fn compare_victims(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Lot(one), Self::Lot(other)) => other.cmp(one),
            _ => self.cmp(other),
        }
    }

    /// A number that decides most comparisons of victims: if the numbers of two workloads differ, the workloads are in the order of the numbers.
    pub(crate) fn start_of_victim(&self) -> u64 {
        match self {
            Self::Uid(uid) => start_of(uid),
            Self::Lot(word) => !start_of(word),
        }
    }
}

/// The first eight bytes of a name as a number: names that differ in these bytes are in the order of the numbers.
pub(crate) fn start_of(name: &str) -> u64 {
    let mut start = [0; 8];
    for (to, byte) in start.iter_mut().zip(name.bytes()) {
        *to = byte;
    }
    u64::from_be_bytes(start)
}

/// The second in which a workload entered its queue.
pub(crate) const fn second(at: Millis) -> i64 {
    at.0.div_euclid(1000)
}

/// The lot of a namespace in a second: each of two namespaces is first about equally often. A tenant cannot choose its lot, nor, without knowing the salt, a
/// second in which its lot is low. The function is written out because the order has to be the same after a restart, an upgrade and a change of leader.
pub(crate) fn lot(namespace: &str, second: i64, salt: u64) -> u64 {
    mixed(namespace.bytes().chain([0xff]).chain(second.to_le_bytes()), salt)
}

/// The salt that is made from a text.
fn salt(text: &str) -> u64 {
    mixed(text.bytes(), 0)
}

/// FNV-1a, which begins with the salt, with the last step of `SplitMix64`, without which similar names would have similar lots.
fn mixed(bytes: impl Iterator<Item = u8>, salt: u64) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325_u64 ^ salt;
    let mixed = bytes.fold(begin, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{lot, salt};

    /// A leader of an older version has to find the same order of workloads, so the expected numbers were computed apart from this code.
    #[test]
    fn tie_hash_of_namespace_and_second_never_changes() {
        assert_eq!(lot("", 0, 0), 0x80b1_ece3_5ca7_1072);
        assert_eq!(lot("team-a", 1_764_000_000, 0), 0xa4fc_43b0_825b_90fd);
        assert_eq!(lot("team-b", 1_764_000_000, 0), 0xf628_301b_c757_f90a);
        assert_eq!(lot("team-a", 1_764_000_001, 0), 0xd8af_77ca_965c_245f);
        let salt = salt("f6a1c0de-0000-4000-8000-000000000001");
        assert_eq!(salt, 0xf320_5dd4_78b6_2440);
        assert_eq!(lot("team-a", 1_764_000_000, salt), 0xc02c_4236_1b69_cefc);
        assert_eq!(lot("team-b", 1_764_000_000, salt), 0x93d5_aa65_76ce_04fd);
    }

    #[test]
    fn tie_hash_puts_neither_of_two_namespaces_always_first() {
        let first = |one: &str, other: &str| (0..1000).filter(|at| lot(one, *at, 0) < lot(other, *at, 0)).count();
        for (one, other) in [("team-a", "team-b"), ("a", "b"), ("prod", "dev"), ("default", "kube-system")] {
            assert!((400..600).contains(&first(one, other)), "{one} goes before {other} {} times", first(one, other));
        }
    }

    /// A tenant without the salt cannot name a second in which it is first: in each second it is first under about half of all salts.
    #[test]
    fn tie_hash_of_any_second_depends_on_the_salt() {
        for second in [0, 1_764_000_000, 1_764_000_001] {
            let is_first = |number: &u32| {
                let salt = salt(&format!("uid-{number}"));
                lot("team-a", second, salt) < lot("team-b", second, salt)
            };
            let firsts = (0..1000).filter(is_first).count();
            assert!((400..600).contains(&firsts), "in second {second} team-a goes first under {firsts} of 1000 salts");
        }
    }
}
