//! Metrics of trainings under the names that users' dashboards know (docs/metrics.md). Changes of trainings are counted in metrics when they are observed;
//! gauges are computed on request.

use std::collections::BTreeMap;

use berth_api::berth::TrainingJobStatus;
use berth_api::conditions::{own_reasons, reasons, training_types, types};
use berth_cache::deltas;
use berth_cache::training_view::TrainingView;
use berth_cache::{Name, WorkloadView};
use berth_quantity::Amount;
use jiff::Timestamp;

use crate::context::Context;
use crate::measure::{Labels, Measure};
use crate::queues::figures::{Gauges, shown};
use crate::training_job::elastic::{REPLACED, grew};
use crate::workload::evictions::queued_since;
use crate::workload::status::{find, is_true, since};

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(key, value)| (key, value.to_owned())).to_vec()
}

fn count(name: &'static str, labels: Labels) -> Measure {
    Measure::Count { name, labels, by: 1 }
}

impl Context<'_> {
    /// The metrics of a change of a TrainingJob's Workload from `old` to `new`, observed at `now`.
    pub(crate) fn training_measures(&self, old: &WorkloadView, new: &WorkloadView, now: Timestamp) -> Vec<Measure> {
        let Some(job) = new.training_job().and_then(|name| self.view.training().get(&name)) else { return Vec::new() };
        let job_type = job.facts.job_type.as_str();
        let became = |kind: &str| new.is(kind) && !old.is(kind);
        let queue =
            self.queue_of(if new.status.admission.is_some() { new } else { old }).unwrap_or_default().to_owned();
        let mut measures = Vec::new();
        let scheduled = |result: &str, since: Timestamp| Measure::Observe {
            name: "training_job_scheduling_duration_seconds",
            labels: labels([("queue", &queue), ("job_type", job_type), ("result", result)]),
            millis: self.view.timeline().millis_between(since, now),
        };
        // A scale-up is no second scheduling of its job.
        if became(types::ADMITTED) && !grew(new) {
            measures.push(scheduled("admitted", queued_since(new)));
        }
        let end = find(&new.status.conditions, types::FINISHED).filter(|_| became(types::FINISHED));
        match end.map(|end| end.reason.as_str()) {
            // The job continues under another slice.
            Some(REPLACED) => {}
            Some(own_reasons::MAX_WAIT_TIME_EXCEEDED) => measures.push(scheduled("timeout", queued_since(new))),
            Some(reason) => measures.push(Measure::Observe {
                name: "training_job_completion_seconds",
                labels: labels([
                    ("queue", &queue),
                    ("job_type", job_type),
                    ("status", if reason == reasons::SUCCEEDED { "succeeded" } else { "failed" }),
                ]),
                millis: now.as_millisecond().saturating_sub(job.created).max(0),
            }),
            None => {}
        }
        let preempted = find(&new.status.conditions, types::PREEMPTED).filter(|_| became(types::PREEMPTED));
        if let Some(preempted) = preempted {
            let path = self.notes_of(new).plan().eviction().map(|eviction| eviction.preemptor_path.as_str());
            let by = path.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            measures.push(count(
                "training_job_preemptions",
                labels([("preemptor_queue", by), ("victim_queue", &queue), ("reason", &preempted.reason)]),
            ));
        }
        measures
    }

    /// Adds the gauges of trainings.
    pub(crate) fn training_gauges(&self, gauges: &mut Gauges) {
        for ((queue, priority), waiting) in self.waiting_trainings() {
            let at = labels([("queue", &queue), ("priority", &priority)]);
            gauges.count("training_job_queue_length", at, waiting);
        }
        let holdings: BTreeMap<&String, Holding> =
            self.view.cluster_queues().keys().filter_map(|name| Some((name, self.holding(name)?))).collect();
        for (queue, holding) in &holdings {
            for (resource, nominal) in &holding.nominal {
                let used = holding.used.get(resource).copied().unwrap_or_default();
                if *nominal > 0.0 {
                    let at = labels([("resource_type", resource), ("queue", queue)]);
                    gauges.put("training_cluster_resource_utilization", at, used / nominal);
                }
            }
        }
        for (queue, deviation) in deviations(&holdings) {
            gauges.put("training_queue_fairshare_deviation", labels([("queue", queue)]), deviation);
        }
    }

    /// Numbers of waiting TrainingJobs by ClusterQueue and priority; 0 if only admitted jobs have that priority.
    fn waiting_trainings(&self) -> BTreeMap<(String, String), usize> {
        let mut waiting = BTreeMap::new();
        for job in self.view.training().values() {
            let Some(workload) = self.view.slice_of(&job.uid).filter(|workload| !workload.is_finished()) else {
                continue;
            };
            let class = workload.priority_class.as_ref().map(|class| class.name.clone());
            let priority = class.unwrap_or_else(|| workload.priority.to_string());
            let sum: &mut usize =
                waiting.entry((self.queue_of(workload).unwrap_or_default().to_owned(), priority)).or_default();
            *sum = sum.saturating_add(usize::from(!workload.reserved() && workload.active));
        }
        waiting
    }

    /// Quota and usage of a ClusterQueue, over all flavors.
    fn holding(&self, name: &str) -> Option<Holding> {
        let queue = self.view.cluster_queues().get(name)?;
        let figures = self.quota.world().figures(name)?;
        let mut holding = Holding {
            root: self.above(name).pop(),
            weight: deltas::weight_of(queue),
            asks: figures.pending_active.saturating_add(figures.pending_inadmissible) > 0,
            ..Holding::default()
        };
        for group in deltas::groups(&queue.spec.resource_groups).unwrap_or_default() {
            for flavor in &group.flavors {
                for (resource, quota) in group.covered.iter().zip(&flavor.quotas) {
                    *holding.nominal.entry(resource.clone()).or_default() += shown(resource, quota.nominal);
                }
            }
        }
        for cell in figures.reservation.iter().filter(|cell| cell.total > Amount::ZERO) {
            holding.asks = true;
            *holding.used.entry(cell.resource.clone()).or_default() += shown(&cell.resource, cell.total);
        }
        Some(holding)
    }
}

/// Quota and usage of a ClusterQueue.
#[derive(Clone, Debug, Default)]
struct Holding {
    root: Option<String>,
    weight: f64,
    /// True if a workload of the ClusterQueue runs or waits.
    asks: bool,
    nominal: BTreeMap<String, f64>,
    used: BTreeMap<String, f64>,
}

/// Distance of each ClusterQueue from its fair share of the quota in its cohort tree: its part of all dominant shares, minus its part of the weights of
/// ClusterQueues with running or waiting workloads. The distance of a ClusterQueue without a cohort is 0.
fn deviations<'a>(holdings: &BTreeMap<&'a String, Holding>) -> Vec<(&'a str, f64)> {
    let mut trees = BTreeMap::<Option<&str>, Vec<(&'a str, &Holding)>>::new();
    for (queue, holding) in holdings {
        trees.entry(holding.root.as_deref()).or_default().push((queue, holding));
    }
    let alone = trees.remove(&None).unwrap_or_default().into_iter().map(|(queue, _)| (queue, 0.0));
    let in_trees = trees.into_values().flat_map(deviations_of_tree);
    alone.chain(in_trees).collect()
}

/// Distance of each ClusterQueue of one cohort tree from its fair share.
fn deviations_of_tree<'a>(peers: Vec<(&'a str, &Holding)>) -> Vec<(&'a str, f64)> {
    let mut totals = BTreeMap::<&str, f64>::new();
    for (resource, nominal) in peers.iter().flat_map(|(_, peer)| &peer.nominal) {
        *totals.entry(resource).or_default() += nominal;
    }
    let dominant = |holding: &Holding| {
        let parts = holding.used.iter().map(|(resource, used)| {
            totals.get(resource.as_str()).filter(|total| **total > 0.0).map_or(0.0, |total| used / total)
        });
        parts.fold(0.0, f64::max)
    };
    let used: f64 = peers.iter().map(|(_, peer)| dominant(peer)).sum();
    let weights: f64 = peers.iter().filter(|(_, peer)| peer.asks).map(|(_, peer)| peer.weight).sum();
    let deviation = |own: &Holding| {
        let fair = if own.asks && weights > 0.0 { own.weight / weights } else { 0.0 };
        if used > 0.0 { dominant(own) / used - fair } else { 0.0 }
    };
    peers.into_iter().map(|(queue, own)| (queue, deviation(own))).collect()
}

/// The metrics of a change of a TrainingJob from `old` to `new`.
pub fn status_measures(name: &Name, old: &TrainingView, new: &TrainingView) -> Vec<Measure> {
    let is = |status: &TrainingJobStatus, kind: &str| is_true(&status.conditions, kind);
    let became = |kind: &str| is(&new.status, kind) && !is(&old.status, kind);
    let mut measures = Vec::new();
    if new.facts.scheduling_timeout_seconds.is_some() {
        let left = is(&old.status, types::ADMITTED)
            && !is(&new.status, types::ADMITTED)
            && !is(&old.status, training_types::RUNNING);
        let ended = new.is_over();
        // A single status write may report that a job that ran before has stopped and runs again.
        let runs_since = |status: &TrainingJobStatus| since(&status.conditions, training_types::RUNNING, "True");
        let result = if runs_since(&new.status) > runs_since(&old.status) {
            Some(("success", "false"))
        } else if became(training_types::SCHEDULING_TIMEOUT) && !is(&old.status, training_types::RUNNING) {
            Some(("failure", "true"))
        } else if left && !ended && !is(&new.status, training_types::SCHEDULING_TIMEOUT) {
            Some(("failure", "false"))
        } else {
            None
        };
        let counted = result.map(|(result, timeout)| labels([("result", result), ("timeout", timeout)]));
        measures.extend(counted.map(|labels| count("training_gang_scheduling", labels)));
    }
    let mut save = |reason: &str, status: &str| measures.push(saves(name, (reason, status), 1));
    let latest = |status: &TrainingJobStatus| Some(status.checkpoint.as_ref()?.latest.as_ref()?.time.0);
    let asked = |status: &TrainingJobStatus| is(status, training_types::CHECKPOINT_REQUESTED);
    // Checkpoints in a store are counted when a listing finds them.
    if new.facts.store.is_none() && latest(&new.status) > latest(&old.status) {
        save(if asked(&old.status) || asked(&new.status) { "preemption" } else { "interval" }, "saved");
    }
    let condition =
        find(&new.status.conditions, training_types::CHECKPOINT_REQUESTED).map(|condition| condition.reason.as_str());
    if asked(&old.status) && condition == Some(own_reasons::NO_CHECKPOINT_IN_TIME) {
        save("preemption", "missed");
    }
    if became(training_types::CHECKPOINT_OVERDUE) {
        save("interval", "missed");
    }
    measures
}

/// Metric of a listing that has found a number of new checkpoints of a TrainingJob.
pub fn saved(name: &Name, status: &TrainingJobStatus, number: usize) -> Measure {
    let asked = is_true(&status.conditions, training_types::CHECKPOINT_REQUESTED);
    saves(name, (if asked { "preemption" } else { "interval" }, "saved"), u64::try_from(number).unwrap_or(u64::MAX))
}

/// Metric of a number of checkpoints with a reason and a result.
fn saves(name: &Name, (reason, status): (&str, &str), by: u64) -> Measure {
    let job = format!("{}/{}", name.0, name.1);
    let labels = labels([("job", &job), ("reason", reason), ("status", status)]);
    Measure::Count { name: "training_checkpoint_saves", labels, by }
}

/// The removal of the metric series of a TrainingJob that is gone.
pub fn forget(name: &Name) -> Measure {
    Measure::Forget { labels: vec![("job", format!("{}/{}", name.0, name.1))] }
}

#[cfg(test)]
mod tests;
