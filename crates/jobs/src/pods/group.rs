//! The state of a group of pods, and its excess and replaced pods.

use super::state::{Phase, PodState};
use crate::finish::Finish;
use berth_api::ReclaimablePod;
use std::collections::BTreeMap;

/// Pods of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleTally {
    /// Waiting, running or succeeded.
    pub counting: i32,
    /// Counting pods that are being deleted: another pod may take the place of each once it has ended.
    pub leaving: i32,
    /// Held pods that do not count: failed, or deleted before they ran.
    pub inactive: i32,
    /// Succeeded.
    pub succeeded: i32,
    /// Ready or succeeded.
    pub ready: i32,
}

/// Counts of a group, kept by adding and removing its pods one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    roles: BTreeMap<Box<str>, RoleTally>,
    /// All pods that are there.
    pub pods: i32,
    /// Pods that are not being deleted.
    pub staying: i32,
    /// Pods that have ended, are being deleted, and are held.
    pub kept: i32,
    /// Kept pods that have not succeeded.
    pub kept_failed: i32,
    /// Started and not ended.
    pub running: i32,
    /// Neither succeeded nor failed.
    pub unfinished: i32,
    /// Pods that let the whole group fail.
    pub unretriable: i32,
    /// Pods that say that the group serves.
    pub serving: i32,
    /// Pods that let the Workload be made of the first of them.
    pub fast: i32,
}

impl Tally {
    /// A pod came.
    pub fn add(&mut self, pod: &PodState) {
        self.change(pod, 1);
    }

    /// A pod is gone, or is about to be counted anew.
    pub fn remove(&mut self, pod: &PodState) {
        self.change(pod, -1);
        if self.role(pod.role()) == RoleTally::default() {
            self.roles.remove(pod.role());
        }
    }

    fn change(&mut self, pod: &PodState, by: i32) {
        let add = |count: &mut i32, counts: bool| {
            if counts {
                *count = count.saturating_add(by);
            }
        };
        let succeeded = pod.succeeded();
        let role = self.roles.entry(pod.role().into()).or_default();
        let kept = pod.held && pod.deleting() && pod.ended();
        add(&mut role.counting, pod.counts());
        add(&mut role.leaving, pod.counts() && pod.deleting());
        add(&mut role.inactive, pod.held && !pod.counts());
        add(&mut role.succeeded, succeeded);
        add(&mut role.ready, succeeded || (pod.ready && pod.runs()));
        add(&mut self.pods, true);
        add(&mut self.staying, !pod.deleting());
        add(&mut self.kept, kept);
        add(&mut self.kept_failed, kept && !succeeded);
        add(&mut self.running, pod.runs());
        add(&mut self.unfinished, !matches!(pod.phase, Phase::Succeeded | Phase::Failed));
        let group = pod.group.as_ref();
        add(&mut self.unretriable, group.is_some_and(|group| !group.retriable));
        add(&mut self.serving, group.is_some_and(|group| group.serving));
        add(&mut self.fast, group.is_some_and(|group| group.fast));
    }

    /// Pods of a role.
    #[must_use]
    pub fn role(&self, name: &str) -> RoleTally {
        self.roles.get(name).copied().unwrap_or_default()
    }

    /// The roles that have pods that count.
    pub fn counting_roles(&self) -> impl Iterator<Item = (&str, i32)> {
        self.roles.iter().filter(|(_, role)| role.counting > 0).map(|(name, role)| (&**name, role.counting))
    }

    /// Pods that wait, run, or have succeeded.
    #[must_use]
    pub fn counting(&self) -> i32 {
        self.roles.values().fold(0, |sum, role| sum.saturating_add(role.counting))
    }

    /// Pods that are being deleted of those that wait, run, or have succeeded.
    #[must_use]
    pub fn leaving(&self) -> i32 {
        self.roles.values().fold(0, |sum, role| sum.saturating_add(role.leaving))
    }

    /// Whether no pod is held that neither runs nor will: the Workload can be made of what is there.
    #[must_use]
    pub fn has_inactive(&self) -> bool {
        self.roles.values().any(|role| role.inactive > 0)
    }

    /// Pods of a Workload's pod sets that are absent. The later pods of a group with fast admission may come at any time: such a group lacks one
    /// pod of each pod set that has none at all.
    #[must_use]
    pub fn absent<'a>(&self, sets: impl IntoIterator<Item = (&'a str, i32)>) -> i32 {
        let lacking = |(name, count): (&str, i32)| {
            let lacks = count.saturating_sub(self.role(name).counting).max(0);
            if self.fast > 0 { i32::from(lacks > 0 && lacks == count) } else { lacks }
        };
        sets.into_iter().map(lacking).fold(0, i32::saturating_add)
    }

    /// Whether all pods of a Workload's pod sets are ready or have succeeded.
    #[must_use]
    pub fn is_ready<'a>(&self, sets: impl IntoIterator<Item = (&'a str, i32)>) -> bool {
        sets.into_iter().all(|(name, count)| self.role(name).ready >= count)
    }

    /// The end of a group of that size, once it has ended: all pods have succeeded, or none goes on and none may be replaced.
    #[must_use]
    pub fn finish(&self, size: i32) -> Option<Finish> {
        let succeeded = self.roles.values().fold(0_i32, |sum, role| sum.saturating_add(role.succeeded));
        let all = succeeded >= size;
        let given_up = self.unfinished == 0 && self.unretriable > 0;
        let over = self.serving == 0 && self.pods > 0 && (all || given_up);
        over.then(|| Finish { success: all, message: format!("Pods succeeded: {succeeded}/{size}."), at: None })
    }

    /// Pods that have succeeded: their quota is free. A group that serves keeps what it has.
    #[must_use]
    pub fn reclaimable(&self) -> Vec<ReclaimablePod> {
        if self.serving > 0 {
            return Vec::new();
        }
        let done = self.roles.iter().filter(|(_, role)| role.succeeded > 0);
        done.map(|(name, role)| ReclaimablePod { name: name.to_string(), count: role.succeeded }).collect()
    }
}

/// Position of a pod in its group: held before not held, started before waiting, bound before unbound, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    state: (bool, bool, bool, i64),
    name: Box<str>,
}

impl Place {
    /// The position of a pod.
    #[must_use]
    pub fn of(name: &str, pod: &PodState) -> Self {
        let (unheld, gated, unbound, created, name) = place(name, pod);
        Self { state: (unheld, gated, unbound, created), name: name.into() }
    }
}

/// Key of the order of pods in a group. Pods of a Deployment or StatefulSet are held only if an older Berth made them.
fn place<'a>(name: &'a str, pod: &PodState) -> (bool, bool, bool, i64, &'a str) {
    let counts_as_held = pod.held || pod.parent.is_some();
    (!counts_as_held, pod.gated, !pod.bound, pod.created, name)
}

/// The pod that is the first to go where there are too many of them: the last one in the order of places. A controller would make its pod
/// again at once: such pods are not among those to choose from.
#[must_use]
pub fn excess<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>) -> Option<&'a str> {
    let goes = |pod: &PodState| pod.counts() && pod.phase != Phase::Succeeded && !pod.deleting() && pod.owner.is_none();
    let going = pods.into_iter().filter(|(_, pod)| goes(pod));
    going.max_by_key(|(name, pod)| place(name, pod)).map(|(name, _)| name)
}

/// The first `size` pods in the order of places, of those that count and stay.
#[must_use]
pub fn placed<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>, size: i32) -> Vec<(&'a str, &'a PodState)> {
    let mut all: Vec<_> = pods.into_iter().filter(|(_, pod)| pod.counts() && !pod.deleting()).collect();
    all.sort_by_key(|&(name, pod)| place(name, pod));
    all.truncate(usize::try_from(size).unwrap_or_default());
    all
}

/// The last of the first `size` positions of the pods that count: pods that are not behind it are among these. `None` where there are none.
/// Costs one walk over the pods.
#[must_use]
pub fn last_place<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>, size: i32) -> Option<Place> {
    let mut counting: Vec<_> = pods.into_iter().filter(|(_, pod)| pod.counts()).collect();
    let last = counting.len().min(usize::try_from(size).unwrap_or_default()).checked_sub(1)?;
    let (_, &mut (name, pod), _) = counting.select_nth_unstable_by_key(last, |&(name, pod)| place(name, pod));
    Some(Place::of(name, pod))
}

/// The pod whose place is taken by another one, and which is therefore let go first: the one that went first, whether it failed or was
/// deleted.
#[must_use]
pub fn replaced<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>) -> Option<&'a str> {
    let inactive = pods.into_iter().filter(|(_, pod)| pod.held && !pod.counts());
    let went = |pod: &PodState| [pod.failed, pod.deleted].into_iter().flatten().min();
    let first = inactive.min_by_key(|(name, pod)| (went(pod).is_none(), went(pod), pod.created, *name));
    first.map(|(name, _)| name)
}
