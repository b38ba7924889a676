//! Capacity fallback: stock-outs that were observed, and started jobs that still wait for nodes.
//!
//! If the pods of a job with quota have no nodes within the patience of their tier, Berth looks at the pods (`watch`). Pods that no node takes put their flavor
//! out of stock (`stock`) for every job that requests at least as many pods, and the job moves to its next tier. The order of the tiers, the patience and the
//! back-off are in `rules`.

pub mod capacity_notes;
mod fallback;
pub mod figures;
pub(crate) mod lack;
mod loss;
pub mod losses;
mod pauses;
mod pods;
pub mod promotion;
pub mod promotions;
pub mod reclaim;
pub(crate) mod stock;
mod tier_assignment;
mod tier_assignments;
pub mod watch;

use berth_api::AdmissionCheckState;
use berth_api::conditions::reasons::{self as kueue, DEACTIVATED_DUE_TO_PREFIX};
use berth_api::conditions::types;
use berth_jobs::JobState;
use berth_jobs::training::child_job_name;
use jiff::Timestamp;

use crate::context::Context;
use crate::training_job::restarts::reported_start;
use crate::workload::status::{find, since};
use crate::write::{Kind, ObjectKey};
use berth_cache::WorkloadView;
use berth_cache::admission_checks::{Check, have_failed};
use berth_cache::tier_reasons::{RECLAIMED, STOCK_OUT};
pub use fallback::{CapacityFallback, StockOuts};
pub use lack::WantedPods;
use loss::Loss;
use tier_assignment::TierAssignment;
pub(crate) use tier_assignments::tier_assignments;

/// The tier assignments of a job all of whose pods have nodes, with the numbers of the pods.
pub fn turned_up(ctx: &Context<'_>, object: &ObjectKey, job: &JobState) -> Vec<TierAssignment> {
    let training = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name());
    let owner_uid = training.map_or(job.uid.as_str(), |owner| &*owner.uid);
    // A TrainingJob has a Job for each pod set.
    let concerned = |assignment: &TierAssignment| {
        training.is_none_or(|owner| child_job_name(&owner.name, &assignment.pod_set) == object.name)
    };
    // An evicted Workload may have its nodes a moment longer, which does not show whether another job would get nodes.
    let runs = |workload: &&WorkloadView| workload.is(types::ADMITTED) && !workload.is(types::EVICTED);
    let started = ctx.view.workloads().owned_by(owner_uid).find(runs);
    let assignments = started.map(|workload| tier_assignments(ctx, workload)).unwrap_or_default();
    // A job that gives up workers has all its pods without these workers, even before its Workload shows the lower number.
    let wanted = job.role.as_ref().map_or(i64::MAX, |role| i64::from(role.wanted));
    let assignments = assignments.into_iter().filter(concerned);
    assignments.map(|assignment| TierAssignment { pods: assignment.pods.min(wanted), ..assignment }).collect()
}

/// The stock-outs that caused the last eviction of a Workload; `None` if no tier rules apply to the Workload. A replica that does not lead has not asked about
/// the Workload's pods, and follows the stock-outs that the leader writes into the policy's status, if there is a policy.
pub fn stock_outs(ctx: &Context<'_>, workload: &WorkloadView, at: Timestamp) -> Option<StockOuts> {
    let rules = ctx.tier_rules(workload)?;
    let (backoff, signals) = (rules.backoff, rules.signals);
    let conditions = &workload.status.conditions;
    let started = reported_start(workload).or_else(|| since(conditions, types::QUOTA_RESERVED, "True"));
    let late = started.map(|started| watch::late(ctx, workload, (started, at))).unwrap_or_default();
    let noted = ctx.notes_of(workload).capacity();
    let (answer, reclaimed) = (noted.answer(), noted.loss());
    // A Workload that ran had its capacity until the time of the loss.
    let lost = reclaimed.map(Loss::at).or_else(|| watch::lost_at(ctx, workload));
    let times = (lost.or(started).unwrap_or(at), at);
    if !ctx.leads() && ctx.rules_for(workload).is_some() {
        return Some(StockOuts { assignments: Vec::new(), times, backoff });
    }
    let concerned = tier_assignments(ctx, workload).into_iter().filter(|assignment| {
        if let Some(reclaimed) = reclaimed {
            return reclaimed.concerns(assignment);
        }
        let stuck = answer.map(|answer| answer.stuck.as_slice());
        let refused =
            signals.scale_up_failed && stuck.is_some_and(|stuck| stuck.iter().any(|pod| pod.refused.is_some()));
        if !refused && !late.is_empty() {
            // The patience was over only for the pod sets in `late`, so no other pod set of the Workload ran out of stock.
            return late.contains(&assignment.pod_set);
        }
        // A replica that has not asked about the pods cannot know which pod set lacked nodes.
        let Some(stuck) = stuck else { return true };
        stuck.iter().any(|pod| pod.pod_set == assignment.pod_set && (pod.refused.is_some() || !refused))
    });
    Some(StockOuts { assignments: concerned.collect(), times, backoff })
}

impl Context<'_> {
    /// The time at which a Workload was evicted for lack of capacity, if the eviction happened between the states `old` and `new` of the Workload.
    pub fn stock_out_between(&self, old: &WorkloadView, new: &WorkloadView) -> Option<Timestamp> {
        let evicted = find(&new.status.conditions, types::EVICTED).filter(|_| !old.is(types::EVICTED))?;
        let counts = match evicted.reason.as_str() {
            STOCK_OUT | RECLAIMED => true,
            reason if reason.strip_prefix(DEACTIVATED_DUE_TO_PREFIX).unwrap_or(reason) == kueue::ADMISSION_CHECK => {
                let signals = self.tier_rules(old).map(|rules| rules.signals);
                signals.is_some_and(|signals| signals.provisioning_failed)
                    && old.status.admission_checks.iter().any(|check| self.found_no_capacity(check))
            }
            _ => false,
        };
        (counts && evicted.status == "True").then_some(evicted.last_transition_time.0)
    }

    /// Whether an autoscaler could not provide the capacity that the check of a Workload has requested.
    fn found_no_capacity(&self, check: &AdmissionCheckState) -> bool {
        let asks = self.view.checks().get(&check.name).is_some_and(Check::asks_autoscaler);
        asks && have_failed(std::slice::from_ref(check))
    }
}

#[cfg(test)]
mod tests;
