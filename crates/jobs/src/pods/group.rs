//! Counts of a pod group's pods, and the choice of its excess and replaced pods.

use super::state::{Phase, PodState};
use crate::finish::Finish;
use berth_api::ReclaimablePod;
use std::collections::BTreeMap;

/// Counts of a pod group's pods of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleTally {
    /// Number of the role's pods that wait, run or have succeeded.
    pub counting: i32,
    /// Number of the role's pods that wait, run or have succeeded, and are being deleted; another pod may replace each of these pods after its end.
    pub leaving: i32,
    /// Number of the role's pods with Berth's finalizer that neither wait, run nor have succeeded: they have failed, or their deletion has stopped them.
    pub inactive: i32,
    /// Number of succeeded pods.
    pub succeeded: i32,
    /// Number of pods that are ready or have succeeded.
    pub ready: i32,
    /// Number of started pods that have not ended.
    pub running: i32,
}

/// Counts of a pod group's pods, updated by adding and removing single pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    roles: BTreeMap<Box<str>, RoleTally>,
    /// Number of all pods of the group.
    pub pods: i32,
    /// Number of pods that are not being deleted.
    pub staying: i32,
    /// Number of pods that have ended, are being deleted, and have Berth's finalizer.
    pub kept: i32,
    /// Number of pods that have ended without success, are being deleted, and have Berth's finalizer.
    pub kept_failed: i32,
    /// Number of started pods that have not ended.
    pub running: i32,
    /// Number of pods that have neither succeeded nor failed.
    pub unfinished: i32,
    /// Number of pods whose annotation `retriable-in-group` is false, so that none of the group's failed pods may be replaced.
    pub unretriable: i32,
    /// Number of pods that declare that the group serves and never ends.
    pub serving: i32,
    /// Number of pods that declare fast admission, in which the Workload is made of the first pod.
    pub fast: i32,
}

impl Tally {
    /// Counts a new pod.
    pub fn add(&mut self, pod: &PodState) {
        self.change(pod, 1);
    }

    /// Removes a pod from the counts, because the pod is gone or has changed.
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
        add(&mut role.running, pod.runs());
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

    /// Counts of the pods of one role.
    #[must_use]
    pub fn role(&self, name: &str) -> RoleTally {
        self.roles.get(name).copied().unwrap_or_default()
    }

    /// The roles that have pods which wait, run or have succeeded, each with the number of these pods.
    pub fn counting_roles(&self) -> impl Iterator<Item = (&str, i32)> {
        self.roles.iter().filter(|(_, role)| role.counting > 0).map(|(name, role)| (&**name, role.counting))
    }

    /// Number of pods that wait, run or have succeeded.
    #[must_use]
    pub fn counting(&self) -> i32 {
        self.roles.values().fold(0, |sum, role| sum.saturating_add(role.counting))
    }

    /// Number of pods that wait, run or have succeeded, and are being deleted.
    #[must_use]
    pub fn leaving(&self) -> i32 {
        self.roles.values().fold(0, |sum, role| sum.saturating_add(role.leaving))
    }

    /// Whether the group has a pod with Berth's finalizer that neither runs nor will run.
    #[must_use]
    pub fn has_inactive(&self) -> bool {
        self.roles.values().any(|role| role.inactive > 0)
    }

    /// Number of missing pods of a Workload's pod sets. The later pods of a group with fast admission may be created at any time, so such a group misses one
    /// pod for each pod set without any pod.
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

    /// Result of a pod group of `size` pods that has finished, because `size` pods have succeeded, or because all its pods have ended and one of them declares
    /// that failed pods are not replaced; `None` for a group that has not finished or that serves.
    #[must_use]
    pub fn finish(&self, size: i32) -> Option<Finish> {
        let succeeded = self.roles.values().fold(0_i32, |sum, role| sum.saturating_add(role.succeeded));
        let all = succeeded >= size;
        let given_up = self.unfinished == 0 && self.unretriable > 0;
        let over = self.serving == 0 && self.pods > 0 && (all || given_up);
        over.then(|| Finish { success: all, message: format!("Pods succeeded: {succeeded}/{size}."), at: None })
    }

    /// Number of succeeded pods by role, whose quota is free. A group that serves keeps its quota.
    #[must_use]
    pub fn reclaimable(&self) -> Vec<ReclaimablePod> {
        if self.serving > 0 {
            return Vec::new();
        }
        let done = self.roles.iter().filter(|(_, role)| role.succeeded > 0);
        done.map(|(name, role)| ReclaimablePod { name: name.to_string(), count: role.succeeded }).collect()
    }
}

/// Position of a pod in its group's order: pods with Berth's finalizer before others, started before waiting, bound before unbound, older before younger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    state: (bool, bool, bool, i64),
    name: Box<str>,
}

impl Place {
    /// The position of a pod in its group's order.
    #[must_use]
    pub fn of(name: &str, pod: &PodState) -> Self {
        let (unheld, gated, unbound, created, name) = place(name, pod);
        Self { state: (unheld, gated, unbound, created), name: name.into() }
    }
}

/// Key of a group's order of pods. Only an older version of Berth added the finalizer to pods of a Deployment or StatefulSet, so these pods count as if they
/// had it.
fn place<'a>(name: &'a str, pod: &PodState) -> (bool, bool, bool, i64, &'a str) {
    let counts_as_held = pod.held || pod.parent.is_some();
    (!counts_as_held, pod.gated, !pod.bound, pod.created, name)
}

/// The pods that wait, run or have succeeded and are not being deleted, in the group's order.
fn in_order<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>) -> Vec<(&'a str, &'a PodState)> {
    let mut all: Vec<_> = pods.into_iter().filter(|(_, pod)| pod.counts() && !pod.deleting()).collect();
    all.sort_by_key(|&(name, pod)| place(name, pod));
    all
}

/// The excess pod of a role that is deleted first: the last pod in the group's order behind the first `size` pods that count. Pods with a controller are not
/// chosen, because the controller would create them again at once; no other pod goes in their place.
#[must_use]
pub fn excess<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>, size: i32) -> Option<&'a str> {
    let behind = in_order(pods).into_iter().skip(usize::try_from(size).unwrap_or_default()).rev();
    let mut going = behind.filter(|(_, pod)| pod.phase != Phase::Succeeded && pod.owner.is_none());
    going.next().map(|(name, _)| name)
}

/// The first `size` pods in the group's order among the pods that wait, run or have succeeded and are not being deleted.
#[must_use]
pub fn placed<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>, size: i32) -> Vec<(&'a str, &'a PodState)> {
    let mut all = in_order(pods);
    all.truncate(usize::try_from(size).unwrap_or_default());
    all
}

/// Position of the pod that is number `size`, or the last one, in the group's order of the pods that wait, run or have succeeded. `None` if the group has no
/// such pod, or if `size` is zero. The position is found without sorting all pods, in time proportional to their number.
#[must_use]
pub fn last_place<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>, size: i32) -> Option<Place> {
    let mut counting: Vec<_> = pods.into_iter().filter(|(_, pod)| pod.counts()).collect();
    let last = counting.len().min(usize::try_from(size).unwrap_or_default()).checked_sub(1)?;
    let (_, &mut (name, pod), _) = counting.select_nth_unstable_by_key(last, |&(name, pod)| place(name, pod));
    Some(Place::of(name, pod))
}

/// The pod of a group that another pod replaces and that is the first to lose Berth's finalizer: among ended pods, the pod that failed or was deleted first.
#[must_use]
pub fn replaced<'a>(pods: impl IntoIterator<Item = (&'a str, &'a PodState)>) -> Option<&'a str> {
    let inactive = pods.into_iter().filter(|(_, pod)| pod.held && !pod.counts());
    let went = |pod: &PodState| [pod.failed, pod.deleted].into_iter().flatten().min();
    let first = inactive.min_by_key(|(name, pod)| (went(pod).is_none(), went(pod), pod.created, *name));
    first.map(|(name, _)| name)
}
