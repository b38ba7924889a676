//! Capacity fallback: observations of capacity that did not turn up, and started jobs that still wait for theirs.
//!
//! Pods of a job that has quota but no nodes within the patience of its tier are looked at (`watch`). Pods that no node takes make their flavor count
//! as out of stock (`stock`) for every job that asks for as much, and the job goes on to its next tier. The order of tiers, the patience and the
//! back-off are in `rules`.

pub(crate) mod climb;
mod figures;
mod pods;
pub(crate) mod reclaim;
pub(crate) mod rules;
pub(crate) mod stock;
pub(crate) mod watch;

use std::collections::BTreeMap;

use berth_api::AdmissionCheckState;
use berth_api::berth::StockBackoffStatus;
use berth_api::conditions::reasons::{self, DEACTIVATED_DUE_TO_PREFIX};
use berth_api::conditions::types;
use berth_engine::model as engine;
use berth_jobs::JobState;
use berth_jobs::training::child_job_name;
use jiff::Timestamp;

use crate::cache::WorkloadView;
use crate::context::Context;
use crate::controller::Control;
use crate::measure::TierMove;
use crate::queues::checks::{Check, have_failed};
use crate::training_job::restarts::told_from;
use crate::workload::status::{find, since};
use crate::write::{Kind, ObjectKey, StuckPod};
use rules::{Backoff, TierRules};
use stock::StockBook;

/// State of the capacity fallback beside the objects.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    pub(crate) stock: StockBook,
    /// The last answer about the pods of a started workload, by its uid.
    pub(crate) answers: BTreeMap<String, Answer>,
    /// Started jobs that are seen to lack pods, by uid.
    pub(crate) lacking: BTreeMap<String, Lack>,
    /// Running workloads that could have a better tier, by uid.
    pub(crate) better: BTreeMap<String, climb::Better>,
    /// Workloads on the way to a better tier.
    pub(crate) climbers: Vec<climb::Climber>,
    /// Nodes that are being taken away, and whose pods run there.
    pub(crate) reclaims: reclaim::Reclaims,
    /// Time of the next look for better tiers.
    pub(crate) next_climb: Option<Timestamp>,
    /// Log entries still to be written about workloads that came to tiers, or left them.
    pub(crate) moves: Vec<TierMove>,
}

impl Ladder {
    /// A Workload is gone.
    pub(crate) fn forget_workload(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.reclaims.forget(uid);
        self.better.remove(uid);
    }
}

/// Time since when a started job lacks pods, as far as that was seen: not before the first look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lack {
    pub(crate) since: Timestamp,
    /// The job had all of them before.
    pub(crate) had: bool,
}

/// Pods that no node takes.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) at: Timestamp,
    pub(crate) stuck: Vec<StuckPod>,
}

/// State of the pods that a job should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pods {
    /// The job does not run.
    NotWanted,
    /// The job runs, and some pods are not ready.
    Lacking,
    /// All pods are ready, or have succeeded.
    Ready,
}

impl Pods {
    pub(crate) fn of(job: &JobState) -> Self {
        if job.suspended || job.finished.is_some() {
            Self::NotWanted
        } else if job.ready {
            Self::Ready
        } else {
            Self::Lacking
        }
    }
}

impl Control {
    /// Takes note of what a job's new state shows of capacity.
    pub(crate) fn note_capacity(&mut self, object: &ObjectKey, job: &JobState, before: Option<Pods>, now: Timestamp) {
        let pods = Pods::of(job);
        let had = before == Some(Pods::Ready);
        match (pods, before) {
            (Pods::Lacking, Some(Pods::Ready) | None) => {
                self.capacity.lacking.insert(job.uid.clone(), Lack { since: now, had });
            }
            (Pods::Lacking, _) => {}
            (Pods::Ready | Pods::NotWanted, _) => drop(self.capacity.lacking.remove(&job.uid)),
        }
        if pods == Pods::Ready && !had && !self.capacity.stock.is_empty() {
            self.capacity_turned_up(object, job, now);
        }
    }

    fn capacity_turned_up(&mut self, object: &ObjectKey, job: &JobState, now: Timestamp) {
        let training = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name());
        let whole = training.map_or(job.uid.as_str(), |owner| &*owner.uid);
        // A TrainingJob has a Job for each of its pod sets.
        let concerned =
            |rung: &watch::Rung| training.is_none_or(|owner| child_job_name(&owner.name, &rung.pod_set) == object.name);
        // An evicted workload may have the capacity for a moment more, which says nothing of what others would get.
        let runs = |workload: &&WorkloadView| workload.is(types::ADMITTED) && !workload.is(types::EVICTED);
        let started = self.view.workloads.owned_by(whole).find(runs);
        let rungs = started.map(|workload| watch::rungs(&self.context(), workload)).unwrap_or_default();
        // A job that gives workers up is complete without them, before its Workload says so.
        let wanted = job.role.as_ref().map_or(i64::MAX, |role| i64::from(role.wanted));
        for rung in rungs.into_iter().filter(concerned) {
            if self.capacity.stock.turned_up(&rung.flavor, &rung.shape, rung.pods.min(wanted), now) {
                self.engine(engine::Delta::InStock(rung.flavor, rung.shape));
                self.mark_policies(now);
            }
        }
    }

    /// Records the stock-out for which a workload was just evicted. A replica that does not lead has not asked about its pods: it follows what the
    /// leader writes into the policy's status, where there is one.
    pub(crate) fn note_stock_out(&mut self, workload: &WorkloadView, at: Timestamp, now: Timestamp) {
        let Some(rules) = self.context().tier_rules(workload) else { return };
        let (backoff, signals) = (rules.backoff, rules.signals);
        let conditions = &workload.status.conditions;
        let started = told_from(workload).or_else(|| since(conditions, types::QUOTA_RESERVED, "True"));
        let late = started.map(|started| watch::late(&self.context(), workload, (started, at))).unwrap_or_default();
        let answer = self.capacity.answers.remove(&workload.uid);
        let reclaimed = self.capacity.reclaims.take(&workload.uid);
        if !self.context().leads() && self.context().rules_for(workload).is_some() {
            return;
        }
        // A workload that ran had its capacity until it lost it.
        let lost = reclaimed.as_ref().map(reclaim::Loss::at).or_else(|| watch::lost_at(&self.context(), workload));
        let started = lost.or(started).unwrap_or(at);
        let rungs = watch::rungs(&self.context(), workload).into_iter();
        let concerned = rungs.filter(|rung| {
            if let Some(reclaimed) = &reclaimed {
                return reclaimed.concerns(rung);
            }
            let stuck = answer.as_ref().map(|answer| answer.stuck.as_slice());
            let refused =
                signals.scale_up_failed && stuck.is_some_and(|stuck| stuck.iter().any(|pod| pod.refused.is_some()));
            if !refused && !late.is_empty() {
                // The patience with the other pod sets was not over.
                return late.contains(&rung.pod_set);
            }
            // A replica that has not asked itself cannot know which pod set it was.
            let Some(stuck) = stuck else { return true };
            stuck.iter().any(|pod| pod.pod_set == rung.pod_set && (pod.refused.is_some() || !refused))
        });
        for rung in concerned.collect::<Vec<_>>() {
            self.book_stock_out(rung, (started, at), backoff, now);
        }
    }

    /// Records that the capacity for a pod set did not turn up between these times.
    fn book_stock_out(&mut self, rung: watch::Rung, times: (Timestamp, Timestamp), backoff: Backoff, now: Timestamp) {
        if let Some(out) = self.capacity.stock.ran_out(rung.flavor, rung.shape, rung.pods, times, backoff) {
            self.engine(engine::Delta::StockOut(out));
            self.mark_policies(now);
        }
    }

    /// Takes over the stock-outs in a policy's status.
    pub(crate) fn restore_stock(&mut self, shown: &[StockBackoffStatus], now: Timestamp) {
        for out in self.capacity.stock.restore(shown, now) {
            self.engine(engine::Delta::StockOut(out));
        }
    }

    /// Marks the statuses of policies, which show stock-outs.
    fn mark_policies(&mut self, now: Timestamp) {
        for policy in self.view.policies.keys() {
            self.reports.schedule.mark(Kind::QueuePolicy, "", policy, now);
        }
    }
}

impl<'a> Context<'a> {
    /// Time at which a workload was evicted for lack of capacity, if it was between these two states.
    pub(crate) fn stock_out_between(&self, old: &WorkloadView, new: &WorkloadView) -> Option<Timestamp> {
        let evicted = find(&new.status.conditions, types::EVICTED).filter(|_| !old.is(types::EVICTED))?;
        let counts = match evicted.reason.as_str() {
            watch::STOCK_OUT | watch::RECLAIMED => true,
            reason if reason.strip_prefix(DEACTIVATED_DUE_TO_PREFIX).unwrap_or(reason) == reasons::ADMISSION_CHECK => {
                let signals = self.tier_rules(old).map(|rules| rules.signals);
                signals.is_some_and(|signals| signals.provisioning_failed)
                    && old.status.admission_checks.iter().any(|check| self.found_no_capacity(check))
            }
            _ => false,
        };
        (counts && evicted.status == "True").then_some(evicted.last_transition_time.0)
    }

    /// Whether an autoscaler that was asked for the capacity of a workload did not get it.
    fn found_no_capacity(&self, check: &AdmissionCheckState) -> bool {
        let asks = self.view.checks.get(&check.name).is_some_and(Check::asks_autoscaler);
        asks && have_failed(std::slice::from_ref(check))
    }

    /// The rules of tiers that hold for a workload: its queue's policy, else the default ones where it names tiers itself.
    pub(crate) fn tier_rules(&self, workload: &WorkloadView) -> Option<&'a TierRules> {
        let own = self.rules_for(workload).and_then(|rules| rules.tiers.as_ref());
        own.or_else(|| workload.tiers.is_some().then_some(&rules::USUAL))
    }
}
