//! Usage beyond quota of the job kinds whose pods are not in Berth's view: the pods that the jobs' statuses count, the pods for which no Workload holds quota,
//! and the pods that are larger than their share of the admission.

use std::collections::BTreeMap;

use berth_cache::WorkloadView;
use berth_cache::job_pods::{Look, OddPod};
use berth_engine::model as engine;
use berth_engine::model::Amount;
use berth_jobs::training::role_of_child;
use berth_jobs::{JobState, PodSetNeeds};

use super::Found;
use super::left::sets_of_uncovered_odd_pods;
use super::pods::place;
use crate::context::Context;
use crate::job::altered::excess;
use crate::job::is_started_by;
use crate::pod::job_pods::uncovered_odd_pods;
use crate::write::{Kind, ObjectKey, key};

/// Requests of a pod since its spec was changed, if the pod's Job counts the pod.
fn asked_by(odd: &OddPod) -> Option<&PodSetNeeds> {
    match &odd.look {
        Some((_, _, Look::Runs { asks: Some(asks), .. })) if !odd.is_beside() && odd.pod.is_changed() => Some(asks),
        _ => None,
    }
}

impl<'a> Context<'a> {
    /// Number of pods that run beyond the Workloads of a job and that no Job counts.
    fn count_uncovered_odd_pods(&self, uid: &str) -> i64 {
        if self.view.odd_pods().is_empty() {
            return 0;
        }
        let owned = self.view.workloads().owned_by(uid);
        i64::try_from(owned.map(|workload| uncovered_odd_pods(self, workload).count()).sum::<usize>())
            .unwrap_or(i64::MAX)
    }

    /// Running pods of a job, and their usage beyond quota; `None` if the usage cannot be known, or if nothing runs beyond quota.
    pub(super) fn overrun_of_job(&self, object: &ObjectKey) -> Option<Found> {
        let job = self.view.jobs().get(object)?;
        let is_parent = object.kind.is_made_of_jobs();
        let runs = i64::from(job.pods).saturating_add(self.count_uncovered_odd_pods(&job.uid));
        let covered = || self.covers(&job.uid, runs) && !self.has_resized(&job.uid);
        if !is_parent && (runs <= 0 || covered() || self.runs_as_part(object, job)) {
            return None;
        }
        let asks = self.manages_job(object.kind, job) && self.manages(&object.namespace);
        let (mut found, workload) = self.answering(object, &job.uid, asks.then_some(job.queue_name.as_deref()))?;
        if is_parent {
            self.count_parts(&mut found, object, (&job.uid, workload), |name| {
                job.part_called(&object.name, name).map(|(part, _)| part.name.to_string())
            });
            return Some(found);
        }
        match workload.and_then(|workload| workload.shape.pod_sets.first()) {
            Some(set) => {
                let held = self.held_by(&job.uid);
                found.count(self, &held, set, runs);
                self.charge_resized(&mut found, workload, &held);
            }
            None => self.charge_itself(&mut found, object, job),
        }
        Some(found)
    }

    /// Whether quota is held for this number of pods of a Job. Quota is held for the pods of nearly every Job, and then no usage beyond quota is computed.
    fn covers(&self, uid: &str, pods: i64) -> bool {
        let mut held = self.view.workloads().owned_by(uid).filter(|workload| workload.holds_quota());
        held.any(|workload| {
            let mut given = workload.given();
            let count = given.next().and_then(|set| set.count).filter(|_| given.next().is_none());
            workload.status.reclaimable_pods.is_empty() && count.is_some_and(|count| i64::from(count) >= pods)
        })
    }

    /// Running pods of a TrainingJob, and their usage beyond quota; `None` if nobody can be charged for the pods.
    pub(super) fn overrun_of_training(&self, object: &ObjectKey) -> Option<Found> {
        let view = self.view.training().get(&(object.namespace.clone(), object.name.clone()))?;
        let asks = self.manages(&object.namespace);
        let (mut found, workload) =
            self.answering(object, &view.uid, asks.then_some(Some(view.facts.queue.as_str())))?;
        self.count_parts(&mut found, object, (&view.uid, workload), |name| {
            role_of_child(&object.name, name).map(str::to_owned)
        });
        Some(found)
    }

    /// The Workload or job that the engine charges with a job's usage beyond quota: the Workload by which the job runs or waits, or the job itself if the job
    /// has no Workload. The argument `asked` is the LocalQueue that the job names, `None` if the job does not request quota from Berth. The result of
    /// `answering` is `None` if neither a Workload nor the job itself can be charged.
    fn answering(
        &self,
        object: &ObjectKey,
        uid: &str,
        asked: Option<Option<&str>>,
    ) -> Option<(Found, Option<&'a WorkloadView>)> {
        let live = || self.view.workloads().owned_by(uid).filter(|workload| !workload.is_finished());
        if live().any(|workload| workload.unreadable) {
            // The quota of an unreadable Workload is unknown.
            return None;
        }
        let newest = |workload: &&WorkloadView| (workload.created, workload.uid.clone());
        let holds = live().filter(|workload| workload.reserved()).max_by_key(newest);
        let workload = holds.or_else(|| live().max_by_key(newest).filter(|_| asked.is_some()));
        let mut found = Found::default();
        match (workload, asked) {
            (Some(workload), _) => {
                found.carrier.clone_from(&workload.uid);
                found.queue = self.charged_for(workload);
            }
            (None, Some(Some(queue))) => {
                uid.clone_into(&mut found.carrier);
                found.queue = self.charged_behind(&(object.namespace.clone(), queue.to_owned()));
            }
            (None, _) => return None,
        }
        Some((found, workload))
    }

    /// Counts the pods of the Jobs that are parts of another job. All pods of a Job that differs from its admission run beyond quota.
    fn count_parts(
        &self,
        found: &mut Found,
        object: &ObjectKey,
        (uid, workload): (&str, Option<&WorkloadView>),
        set_of: impl Fn(&str) -> Option<String>,
    ) {
        let mut runs: BTreeMap<String, i64> = BTreeMap::new();
        let parts = self.view.jobs().controlled_by(&object.namespace, uid);
        // A Job that only names the owner as its controller is charged as a job of its own.
        for (name, part) in parts.filter(|(name, part)| part.pods > 0 && self.runs_as_part(name, part)) {
            let is_admitted = |set: &String| {
                let Some(workload) = workload else { return false };
                let altered = part
                    .size
                    .as_ref()
                    .is_some_and(|size| excess(self, workload, set, (part, Some(&size.asks))).is_some());
                workload.shape.pod_sets.iter().any(|known| known.name == *set) && !altered
            };
            match set_of(&name.name).filter(is_admitted) {
                Some(set) => {
                    let sum = runs.entry(set).or_default();
                    *sum = sum.saturating_add(i64::from(part.pods));
                }
                None => self.charge_itself(found, name, part),
            }
        }
        for set in workload.into_iter().flat_map(|workload| sets_of_uncovered_odd_pods(self, workload)) {
            let sum = runs.entry(set.to_owned()).or_default();
            *sum = sum.saturating_add(1);
        }
        for (set, left) in self.view.ending_pods().left_of(&object.namespace, uid) {
            let sum = runs.entry(set.to_owned()).or_default();
            *sum = sum.saturating_add(left);
        }
        let held = self.held_by(uid);
        for set in workload.iter().flat_map(|workload| &workload.shape.pod_sets) {
            found.count(self, &held, set, runs.get(&set.name).copied().unwrap_or_default());
        }
        self.charge_resized(found, workload, &held);
    }

    /// Whether pods of a job's Workloads have been resized in place.
    fn has_resized(&self, uid: &str) -> bool {
        let resized = |workload| self.odd_pods_of(workload).any(|(_, odd)| asked_by(odd).is_some());
        !self.view.odd_pods().is_empty() && self.view.workloads().owned_by(uid).any(resized)
    }

    /// Charges the requests by which resized pods exceed their share of the admission.
    fn charge_resized(&self, found: &mut Found, workload: Option<&WorkloadView>, held: &[engine::PodSetAssignment]) {
        let Some(workload) = workload.filter(|_| !self.view.odd_pods().is_empty()) else { return };
        for (_, odd) in self.odd_pods_of(workload) {
            let set = workload.shape.pod_sets.iter().find(|set| set.name == *odd.pod.set);
            let given = held.iter().find(|given| given.name == *odd.pod.set);
            let (Some(asks), Some(set), Some(given)) = (asked_by(odd), set, given) else { continue };
            let place = place(set, given);
            let beyond = asks.requests.iter().map(|(resource, asked)| {
                let place = place.get(resource).copied().unwrap_or_default().max(Amount::ZERO);
                (resource.clone(), asked.sub(place))
            });
            found.charge_amounts(self, Some(&given.flavors), beyond.collect());
        }
    }

    /// Charges all pods of a Job whose requests are in no Workload.
    fn charge_itself(&self, found: &mut Found, object: &ObjectKey, job: &JobState) {
        let sets = job.decode().and_then(|job| job.pod_sets().ok()).unwrap_or_default();
        let needs = self.needs_of(&object.namespace, &sets);
        let pods = i64::from(job.pods);
        found.pods[0] = found.pods[0].saturating_add(pods);
        if let Some(each) = needs.first() {
            found.charge(self, None, &each.requests, pods);
        }
    }

    /// The reservations of a job's Workloads. If one workload slice replaces another, each slice holds the quota of the complete job.
    pub(super) fn held_by(&self, uid: &str) -> Vec<engine::PodSetAssignment> {
        let mut held: Vec<engine::PodSetAssignment> = Vec::new();
        let holds = |workload: &&WorkloadView| workload.holds_quota();
        for set in self.view.workloads().owned_by(uid).filter(holds).flat_map(|workload| self.given_to(workload)) {
            match held.iter_mut().find(|known| known.name == set.name) {
                Some(known) if known.count < set.count => *known = set,
                Some(_) => {}
                None => held.push(set),
            }
        }
        held
    }

    /// Whether a Job runs under the quota of a controlling job that consists of Jobs: the Job's pods are counted with the controlling job.
    fn runs_as_part(&self, object: &ObjectKey, job: &JobState) -> bool {
        let owner = job.owner.as_ref().filter(|_| object.kind == Kind::JOB && !self.holds_itself(job));
        let Some(owner) = owner else { return false };
        match Kind::of_owner(&owner.kind).filter(|kind| kind.is_made_of_jobs()) {
            Some(Kind::TrainingJob) => self.view.training_of(object, job).is_some(),
            Some(kind) => {
                let owner_key = key(kind, &(object.namespace.clone(), owner.name.to_string()));
                let Some(set) = self.view.jobs().get(&owner_key).filter(|set| *set.uid == *owner.uid) else {
                    return false;
                };
                // The Jobs of an unmanaged controlling job run without quota, and other Jobs that name the controlling job wait for quota of their own.
                self.manages_job(kind, set) || self.holds_itself(set) || is_started_by((&owner_key, set), (object, job))
            }
            None => false,
        }
    }

    /// Whether a Workload holds quota for a job itself, independent of the object that controls the job now.
    fn holds_itself(&self, job: &JobState) -> bool {
        let mut own = self.view.workloads().owned_by(&job.uid);
        own.any(|workload| workload.holds_quota())
    }
}

#[cfg(test)]
mod tests;
