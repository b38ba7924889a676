//! Running pods against the quota that their jobs hold.
//!
//! - Q6 (excess): the running pods of a queued job or group request no more than its Workloads hold, for each resource of which these have ever held
//!   quota. If the Workloads of a job have never held quota, but wait for some, each resource counts that their ClusterQueue covers: none of the job's
//!   pods may run. An excess ends within the bound, or the ClusterQueue of the job is charged with it: its `flavorsReservation` is then at
//!   least the sum of its Workloads and of the excess.
//! - L5 (eviction): quota can be reclaimed. Berth stops the job of a Workload that is evicted and still reserved, or deletes the pods that no controller
//!   deletes, within the bound; after the last of these pods the Workload gives its quota back.
//!
//! A pod counts for the job or group for which it was made: labels and owner references that are changed later do not move it. It is judged
//! if that job was queued when the pod was first seen; a pod that Berth marks later, because no review went over it, counts from then on. A
//! job without a Workload asks for no quota (its namespace is not managed, or it is of a kind that Berth does not look at). Pods of a job that
//! Berth has stopped are their controllers' to delete, which L3 judges at rest. An excess that ends with the grace periods of pods that are
//! being deleted breaks nothing here. Only time with a leader counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::pods::Pod;
use super::read::annotation;
use super::requests::{self, Requests, add};
use super::workload::Workload;
use super::{Judge, Rule};
use crate::kinds::{items, text};
use crate::quota_tree::usage_in_status;

/// Bound of an excess.
const BOUND: Duration = Duration::from_secs(10);
/// Time in which Berth stops an evicted job, or deletes the pods of an evicted group, on a busy machine.
const STOPPED: Duration = Duration::from_secs(20);
/// Time for a checkpoint of a TrainingJob where no policy sets one, until its pods are annotated.
const TIME_TO_SAVE: Duration = Duration::from_secs(30);
/// Time in which an evicted Workload without pods gives its quota back: Berth keeps it for 20 s where the answer to a creation was lost, and
/// that of a pod until the garbage collector has deleted the Workload.
const RELEASED: Duration = Duration::from_secs(60);
/// Time within which the quota of an evicted JobSet is free after its last pod: the JobSet controller makes only a few requests a second for all
/// JobSets together.
const JOB_SET_RELEASED: Duration = Duration::from_secs(150);

/// Part of a pod that counts for the quota of its job.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are read off an object")]
pub(super) struct Claim {
    /// Job or group for which the pod was made.
    pub(super) origin: String,
    /// True: that job was queued when the pod was first seen.
    queued: bool,
    /// True: the pod waits behind a gate.
    waiting: bool,
    /// True: the pod has neither ended nor waits.
    lives: bool,
    /// True: the pod has a node.
    bound: bool,
    /// Grace period of its deletion.
    grace: Option<Duration>,
    /// End of its time to save a checkpoint before an eviction.
    stop_at: Option<Timestamp>,
    requests: Requests,
}

/// A job or group whose pods were seen, or whose Workloads have held quota.
#[derive(Debug, Default)]
struct Holder {
    /// Uids of the pods that were made for it.
    pods: BTreeSet<String>,
    /// True: it has had pods that did not wait.
    ran: bool,
    /// Resources of which its Workloads have held quota.
    resources: BTreeSet<String>,
    /// The ClusterQueue of that quota.
    cluster_queue: String,
}

/// Requests of running pods beyond what is held.
#[derive(Debug)]
struct Excess {
    /// Begin of the time that counts: that of the excess, or the last moment at which the excess was in order.
    since: Duration,
    amounts: Requests,
    reported: bool,
}

/// A Workload that is evicted and still reserved.
#[derive(Debug)]
struct Eviction {
    holder: String,
    /// Time of the condition, by Berth's clock.
    written: Option<Timestamp>,
    /// Begin of the time in which pods of it are not being deleted.
    staying: Option<Duration>,
    /// Begin of the time in which no pod of it lives.
    idle: Option<Duration>,
    reported: bool,
}

/// State of both rules beside pods and Workloads.
#[derive(Debug, Default)]
pub(super) struct Held {
    holders: BTreeMap<String, Holder>,
    /// By job or group.
    excesses: BTreeMap<String, Excess>,
    /// By uid of the Workload.
    evictions: BTreeMap<String, Eviction>,
}

impl Claim {
    /// The claim of a state of a pod that is `of` a job or group today, and perhaps has Berth's mark, after an earlier state.
    fn of(object: &Value, (of, managed): (&str, bool), before: Option<&Claim>) -> Claim {
        let waiting = text(object, "/spec/nodeName").is_empty() && !items(object, "/spec/schedulingGates").is_empty();
        let ended = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
        let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
        let grace = deleting.then(|| Duration::from_secs(grace.unwrap_or(0)));
        // A user may put a waiting pod into another group, but not a started one. A pod that comes to be managed is a job of its own.
        let kept = before.filter(|before| !(before.waiting && waiting) && (before.queued || !managed));
        // A grace period of zero is the kubelet's sign that no container runs any more.
        let over = ended || grace.is_some_and(|grace| grace.is_zero());
        Claim {
            origin: kept.map_or_else(|| of.to_owned(), |before| before.origin.clone()),
            queued: kept.is_some_and(|before| before.queued),
            waiting,
            lives: !waiting && !over,
            bound: !text(object, "/spec/nodeName").is_empty(),
            grace,
            stop_at: annotation(object, "berth.dev/stop-at").parse().ok(),
            requests: requests::of_pod(object),
        }
    }
}

/// Whether a pod counts for an excess: it is on a node and has not ended.
fn runs(pod: &Pod) -> bool {
    pod.claim.queued && pod.claim.lives && pod.claim.bound
}

/// Whether a pod counts for an eviction: it is not being deleted.
fn stays(pod: &Pod) -> bool {
    pod.claim.queued && pod.claim.lives && pod.claim.grace.is_none()
}

/// Whether the controller of its job is not responsible for a pod any more.
fn is_released(pod: &Pod) -> bool {
    pod.owner != pod.claim.origin
}

impl Judge {
    /// The claim of a state of a pod; `of` is the job or group to which it belongs by its labels and its controller.
    pub(super) fn claim(&self, object: &Value, (of, managed): (&str, bool), before: Option<&Claim>) -> Claim {
        let mut claim = Claim::of(object, (of, managed), before);
        let is_new = before.is_none_or(|before| before.origin != claim.origin || (before.waiting && claim.waiting));
        if is_new {
            claim.queued = !self.blind && (managed || self.is_queued(&claim.origin));
        }
        claim
    }

    /// Whether a job asks for quota, or holds some.
    fn is_queued(&self, owner: &str) -> bool {
        self.jobs.get(owner).is_some_and(|job| job.managed)
            || self.job_sets.get(owner).is_some_and(|set| set.managed)
            || self.training_jobs.contains_key(owner)
            || self.holding(owner).next().is_some()
    }

    /// Workloads of a job or group that hold quota.
    fn holding<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a Workload> {
        let named = self.jobs.get(owner).map_or("", |job| job.prebuilt.as_str());
        let is_of = move |w: &&Workload| w.origin == owner || (!named.is_empty() && w.key == named);
        self.workloads.values().filter(|w| w.reserved && !w.finished).filter(is_of)
    }

    /// A pod has come, changed or gone.
    pub(super) fn weigh_pod(&mut self, uid: &str, before: Option<&Claim>, at: Duration) {
        let now = self.pods.get(uid).map(|pod| (pod.claim.origin.clone(), pod.claim.queued && pod.claim.lives));
        let was = before.map(|claim| claim.origin.clone()).filter(|was| now.as_ref().is_none_or(|(now, _)| now != was));
        if let Some(was) = was {
            if let Some(holder) = self.held.holders.get_mut(&was) {
                holder.pods.remove(uid);
            }
            self.weigh(&was, at);
        }
        let Some((origin, lives)) = now.filter(|(origin, _)| !origin.is_empty()) else { return };
        let holder = self.held.holders.entry(origin.clone()).or_default();
        holder.pods.insert(uid.to_owned());
        holder.ran |= lives;
        self.weigh(&origin, at);
    }

    /// A Workload has come, changed or gone.
    pub(super) fn weigh_workload(&mut self, uid: &str, before: &Workload, at: Duration) {
        let after = self.workloads.get(uid).cloned().unwrap_or_default();
        let holds = |w: &Workload| w.reserved && !w.finished;
        if holds(&after) && !after.origin.is_empty() {
            let holder = self.held.holders.entry(after.origin.clone()).or_default();
            holder.resources.extend(after.charge.keys().map(|(_, resource)| resource.clone()));
            holder.cluster_queue.clone_from(&after.cluster_queue);
        }
        if !(holds(&after) && after.evicted && after.of_known_kind) {
            self.held.evictions.remove(uid);
        } else if holds(before) && !before.evicted {
            let (holder, written) = (after.origin.clone(), after.evicted_at);
            let eviction = Eviction { holder, written, staying: None, idle: None, reported: false };
            self.held.evictions.insert(uid.to_owned(), eviction);
        }
        if before.origin != after.origin {
            self.weigh(&before.origin, at);
        }
        self.weigh(&after.origin, at);
    }

    fn pods_of(&self, origin: &str) -> impl Iterator<Item = &Pod> {
        let uids = self.held.holders.get(origin).into_iter().flat_map(|holder| &holder.pods);
        uids.filter_map(move |uid| self.pods.get(uid))
    }

    /// The Workload of a job or group that waits for quota, although none of its Workloads has held any yet.
    fn waiting(&self, origin: &str) -> Option<&Workload> {
        self.held.holders.get(origin).filter(|holder| holder.resources.is_empty())?;
        let waits = |w: &&Workload| w.origin == origin && !w.reserved && !w.finished && !w.deleting;
        self.workloads.values().find(waits)
    }

    /// The ClusterQueue whose quota a job has held, or waits for; empty if it is unknown.
    fn queue_of<'a>(&'a self, origin: &str) -> &'a str {
        let held = self.held.holders.get(origin).map_or("", |holder| holder.cluster_queue.as_str());
        if !held.is_empty() {
            return held;
        }
        let local = self.waiting(origin).and_then(|workload| self.local_queues.get(&workload.local_queue()));
        local.map_or("", |local| text(local, "/spec/clusterQueue"))
    }

    /// The resources of which a job needs quota: those of which it has held some, and before that those that its ClusterQueue covers, if a
    /// Workload of it waits there.
    fn needed(&self, origin: &str) -> BTreeSet<String> {
        let held = self.held.holders.get(origin).map(|holder| &holder.resources).filter(|held| !held.is_empty());
        if let Some(held) = held {
            return held.clone();
        }
        let Some(queue) = self.waiting(origin).and_then(|_| self.cluster_queues.get(self.queue_of(origin))) else {
            return BTreeSet::new();
        };
        let covered = items(queue, "/spec/resourceGroups").iter().flat_map(|group| items(group, "/coveredResources"));
        covered.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// Requests of some pods of a job beyond the quota that its Workloads hold.
    fn beyond(&self, origin: &str, counts: impl Fn(&Pod) -> bool) -> Requests {
        let (mut requested, mut pods) = (Requests::new(), 0);
        for pod in self.pods_of(origin).filter(|pod| counts(pod)) {
            add(&mut requested, &pod.claim.requests);
            pods += 1;
        }
        if pods == 0 {
            return requested;
        }
        let needed = self.needed(origin);
        for workload in self.holding(origin) {
            for (cell, amount) in &workload.charge {
                *requested.entry(cell.1.clone()).or_default() -= (amount - self.handed_over(workload, cell)).max(0);
            }
        }
        // The share of each pod in a charge may be rounded.
        requested.retain(|resource, amount| needed.contains(resource) && *amount > pods);
        requested
    }

    /// Brings the excess of a job up to date, and the pods of its evictions.
    fn weigh(&mut self, origin: &str, at: Duration) {
        let amounts = self.beyond(origin, runs);
        if amounts.is_empty() {
            self.held.excesses.remove(origin);
        } else {
            let new = || Excess { since: at, amounts: Requests::new(), reported: false };
            self.held.excesses.entry(origin.to_owned()).or_insert_with(new).amounts = amounts;
        }
        let lives = self.pods_of(origin).any(|pod| pod.claim.lives);
        let stays = self.pods_of(origin).any(stays);
        for eviction in self.held.evictions.values_mut().filter(|eviction| eviction.holder == origin) {
            eviction.staying = eviction.staying.or(Some(at)).filter(|_| stays);
            eviction.idle = eviction.idle.or(Some(at)).filter(|_| !lives);
        }
    }

    /// Requests of pods of a job beyond what its Workloads hold, of pods without a node, too.
    pub(super) fn living_beyond(&self, origin: &str) -> Requests {
        self.beyond(origin, |pod| pod.claim.lives)
    }

    /// Requests of pods beyond what the jobs of a ClusterQueue hold, of pods without a node, too: Berth may charge them.
    pub(super) fn beyond_in(&self, queue: &str) -> Requests {
        let mut sum = Requests::new();
        let with_pods = self.held.holders.iter().filter(|(_, holder)| !holder.pods.is_empty());
        for (origin, _) in with_pods.filter(|(origin, _)| self.queue_of(origin) == queue) {
            add(&mut sum, &self.living_beyond(origin));
        }
        sum
    }

    /// Whether the status of its ClusterQueue counts an excess, beside the Workloads and the other excesses of that queue.
    fn is_charged(&self, origin: &str) -> bool {
        let queue = self.queue_of(origin);
        let Some(object) = self.cluster_queues.get(queue) else { return false };
        let mut owed = Requests::new();
        for (_, excess) in self.held.excesses.iter().filter(|(other, _)| self.queue_of(other) == queue) {
            add(&mut owed, &excess.amounts);
        }
        for ((_, resource), amount) in self.usage().remove(queue).unwrap_or_default() {
            *owed.entry(resource).or_default() += amount;
        }
        let mut charged = Requests::new();
        for ((_, resource), amount) in usage_in_status(object, "flavorsReservation", "total") {
            *charged.entry(resource).or_default() += amount;
        }
        let mut own = self.held.excesses.get(origin).into_iter().flat_map(|excess| excess.amounts.keys());
        own.all(|resource| charged.get(resource) >= owed.get(resource))
    }

    /// Judges excesses and evictions up to a time, by the state that has stood until then.
    pub(super) fn check_clocks(&mut self, at: Duration) {
        let origins: Vec<String> = self.held.excesses.keys().cloned().collect();
        for origin in origins {
            self.check_excess(&origin, at);
        }
        let uids: Vec<String> = self.held.evictions.keys().cloned().collect();
        for uid in uids {
            self.check_eviction(&uid, at);
        }
    }

    /// States up to a time are missing: how long excesses and evictions have lasted until then is not known.
    pub(super) fn restart_clocks(&mut self, at: Duration) {
        self.held.excesses.values_mut().for_each(|excess| excess.since = at);
        for eviction in self.held.evictions.values_mut() {
            eviction.staying = eviction.staying.map(|_| at);
            eviction.idle = eviction.idle.map(|_| at);
        }
    }

    /// Whether Berth has stopped a job, so that its pods, but for released ones, are deleted by their controllers or the garbage collector.
    /// A pod by itself and the pods of a group are deleted by Berth.
    fn is_stopped(&self, origin: &str) -> bool {
        if let Some(job) = self.jobs.get(origin) {
            return job.suspended || job.leaves;
        }
        if let Some(set) = self.job_sets.get(origin) {
            return set.suspended;
        }
        if self.training_jobs.contains_key(origin) {
            return !self.jobs.values().any(|job| job.owner == origin && !job.leaves);
        }
        !origin.starts_with("group ") && !self.pods.contains_key(origin)
    }

    fn check_excess(&mut self, origin: &str, at: Duration) {
        let is_stopped = self.is_stopped(origin);
        let is_left = is_stopped && self.beyond(origin, |pod| runs(pod) && is_released(pod)).is_empty();
        let is_right = is_left || self.is_charged(origin);
        let Some(excess) = self.held.excesses.get_mut(origin) else { return };
        if is_right {
            excess.since = at;
            return;
        }
        let (since, reported, amounts) = (excess.since, excess.reported, excess.amounts.clone());
        let mut bound = BOUND;
        if self.beyond(origin, |pod| runs(pod) && pod.claim.grace.is_none()).is_empty() {
            bound += self.pods_of(origin).filter_map(|pod| pod.claim.grace).max().unwrap_or_default();
        }
        let lasted = self.led_between(since, at);
        if reported || lasted <= bound {
            return;
        }
        let pods = self.pods_of(origin).filter(|pod| runs(pod)).map(|pod| pod.key.as_str());
        let pods = pods.collect::<Vec<_>>().join(", ");
        let what =
            format!("pods {pods} run with {amounts:?}m more than the workloads of {origin} hold, for {lasted:?}");
        self.fail(Rule::Excess, what);
        if let Some(excess) = self.held.excesses.get_mut(origin) {
            excess.reported = true;
        }
    }

    fn check_eviction(&mut self, uid: &str, at: Duration) {
        let (Some(eviction), Some(workload)) = (self.held.evictions.get(uid), self.workloads.get(uid)) else { return };
        let (origin, key) = (&eviction.holder, &workload.key);
        let what = if let Some(since) = eviction.staying {
            let is_stopped = self.is_stopped(origin);
            let staying = self.pods_of(origin).filter(|pod| stays(pod) && (!is_stopped || is_released(pod)));
            let staying: Vec<&Pod> = staying.collect();
            let announced = staying.iter().filter_map(|pod| {
                let time = pod.claim.stop_at?.duration_since(eviction.written?);
                Duration::try_from(time).ok()
            });
            let mut to_save = announced.max().unwrap_or_default();
            if self.training_jobs.contains_key(origin) {
                to_save = to_save.max(TIME_TO_SAVE);
            }
            let lasted = self.led_between(since, at);
            let pods = staying.iter().map(|pod| pod.key.as_str()).collect::<Vec<_>>().join(", ");
            let is_late = !staying.is_empty() && lasted > to_save + STOPPED;
            is_late.then(|| format!("workload {key} was evicted, and nobody stops its pods {pods} for {lasted:?}"))
        } else {
            let ran = self.held.holders.get(origin).is_some_and(|holder| holder.ran);
            let bound = if self.job_sets.contains_key(origin) { JOB_SET_RELEASED } else { RELEASED };
            let idle = eviction.idle.filter(|idle| ran && self.led_between(*idle, at) > bound);
            idle.map(|_| format!("workload {key} was evicted, no pod of it is left, and it holds its quota"))
        };
        let Some(what) = what.filter(|_| !eviction.reported) else { return };
        self.fail(Rule::Eviction, what);
        if let Some(eviction) = self.held.evictions.get_mut(uid) {
            eviction.reported = true;
        }
    }
}
