//! Q3: the figures in the statuses of queues and cohorts are the sums over the workloads. A ClusterQueue may in addition be charged with
//! running pods of its jobs beyond the quota that these hold.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Judge;
use super::requests::{Requests, add};
use super::workload::Workload;
use crate::kinds::text;
use crate::quota_tree::{Cell, Usage, usage_in_status};

/// Whether a status has the usage that is held, with a part of the usage beyond it.
fn is_charged_beyond(reported: &Usage, held: &Usage, beyond: &Requests) -> bool {
    let mut charged = Requests::new();
    for cell in reported.keys().chain(held.keys()).collect::<BTreeSet<_>>() {
        let more = reported.get(cell).unwrap_or(&0) - held.get(cell).unwrap_or(&0);
        if more < 0 {
            return false;
        }
        *charged.entry(cell.1.clone()).or_default() += more;
    }
    charged.iter().all(|(resource, more)| more <= beyond.get(resource).unwrap_or(&0))
}

fn count(queue: &Value, figure: &str) -> Option<usize> {
    let reported = queue.pointer(&format!("/status/{figure}")).and_then(Value::as_u64).unwrap_or(0);
    usize::try_from(reported).ok()
}

/// A weighted share in a status that is not zero.
fn share(object: &Value) -> Option<i64> {
    object.pointer("/status/fairSharing/weightedShare").and_then(Value::as_i64).filter(|share| *share != 0)
}

impl Judge {
    /// Q3: queues and cohorts whose statuses differ from the sum of the workloads, by key; empty when all agree.
    pub fn unbalanced(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (name, queue) in &self.cluster_queues {
            let what = format!("ClusterQueue {name}");
            let mine = |w: &&Workload| w.cluster_queue == *name;
            let beyond = self.beyond_in(name);
            let mut texts = self.compare(queue, &what, &mine, &beyond);
            texts.extend(self.compare_borrowed(queue, name, &what, &beyond));
            let feeding: BTreeSet<String> = self
                .local_queues
                .iter()
                .filter(|(_, local)| text(local, "/spec/clusterQueue") == name)
                // A stopped LocalQueue does not feed its ClusterQueue.
                .filter(|(_, local)| matches!(text(local, "/spec/stopPolicy"), "" | "None"))
                .map(|(key, _)| key.clone())
                .collect();
            texts.extend(self.compare_pending(queue, &what, &|key| feeding.contains(key)));
            found.extend(texts.into_iter().map(|text| (name.clone(), text)));
        }
        for (key, queue) in &self.local_queues {
            let what = format!("LocalQueue {key}");
            // It may name another ClusterQueue now than the one whose quota its workloads hold.
            let named = text(queue, "/spec/clusterQueue");
            let is_there = self.cluster_queues.contains_key(named);
            let mine = |w: &&Workload| w.local_queue() == *key && w.cluster_queue == named && is_there;
            let mut texts = self.compare(queue, &what, &mine, &self.running_again(&mine));
            texts.extend(self.compare_pending(queue, &what, &|local| local == key));
            found.extend(texts.into_iter().map(|text| (key.clone(), text)));
        }
        found.extend(self.idle_shares());
        found
    }

    /// Requests of pods of JobSets that run again after quota of ended pods was given back: Berth charges such pods to the Workload again, as no other pods
    /// beyond quota, so that the LocalQueue counts them.
    fn running_again(&self, mine: &dyn Fn(&&Workload) -> bool) -> Requests {
        let mut sum = Requests::new();
        let gave_back = |w: &&Workload| w.reserved && !w.finished && w.left < w.pods;
        for workload in self.workloads.values().filter(gave_back).filter(mine) {
            if self.job_sets.contains_key(&workload.owner) {
                add(&mut sum, &self.living_beyond(&workload.owner));
            }
        }
        sum
    }

    fn compare(&self, queue: &Value, what: &str, mine: &dyn Fn(&&Workload) -> bool, beyond: &Requests) -> Vec<String> {
        let mut found = Vec::new();
        let reserving: Vec<&Workload> =
            self.workloads.values().filter(|w| w.reserved && !w.finished).filter(mine).collect();
        let admitted: Vec<&Workload> = reserving.iter().copied().filter(|w| w.admitted).collect();
        let sides = [
            ("flavorsReservation", "reservingWorkloads", &reserving),
            ("flavorsUsage", "admittedWorkloads", &admitted),
        ];
        // Berth charges pods that a JobSet's status counts. The status of a JobSet that is being deleted does not change any more, nor does the status of a
        // JobSet with a Job that has no number of an attempt: the controller of JobSets reports an error for such a Job.
        let is_counted = |uid: &str| !self.jobs.values().any(|job| job.owner == uid && !job.has_attempt);
        let is_known = |w: &&Workload| self.job_sets.get(&w.owner).is_none_or(|set| !set.ended && is_counted(&w.owner));
        let compares = reserving.iter().all(is_known);
        for (list, figure, workloads) in sides {
            let mut expected = Usage::new();
            for (cell, amount) in workloads.iter().flat_map(|w| &w.charge) {
                *expected.entry(cell.clone()).or_default() += amount;
            }
            expected.retain(|_, amount| *amount != 0);
            let reported = usage_in_status(queue, list, "total");
            if compares && reported != expected && !is_charged_beyond(&reported, &expected, beyond) {
                found.push(format!("{what}: {list} is {reported:?}, the workloads add up to {expected:?}"));
            }
            if count(queue, figure) != Some(workloads.len()) {
                let reported = count(queue, figure).unwrap_or_default();
                found.push(format!("{what}: {figure} is {reported}, counted {}", workloads.len()));
            }
        }
        found
    }

    /// `borrowed` in a status is usage above the nominal quota; usage beyond quota is borrowed from no queue.
    fn compare_borrowed(&self, queue: &Value, name: &str, what: &str, beyond: &Requests) -> Vec<String> {
        let differences = ["flavorsReservation", "flavorsUsage"].into_iter().filter_map(|list| {
            let used = usage_in_status(queue, list, "total");
            let over = |(cell, used): (&Cell, &i128)| (cell.clone(), self.forest.borrowed(name, cell, *used));
            let expected: Usage = used.iter().map(over).filter(|(_, over)| *over != 0).collect();
            let reported = usage_in_status(queue, list, "borrowed");
            let is_right = |(cell, over): (&Cell, &i128)| {
                let beyond = beyond.get(&cell.1).copied().unwrap_or(0);
                (over - beyond..=*over).contains(&reported.get(cell).copied().unwrap_or(0))
            };
            let right = reported.keys().all(|cell| expected.contains_key(cell)) && expected.iter().all(is_right);
            (!right).then(|| format!("{what}: borrowed of {list} is {reported:?}, above nominal is {expected:?}"))
        });
        differences.collect()
    }

    /// A waiting workload is counted in its LocalQueue, and in the ClusterQueue that this names.
    fn compare_pending(&self, queue: &Value, what: &str, feeds: &dyn Fn(&str) -> bool) -> Vec<String> {
        let waits = |w: &&Workload| !w.reserved && !w.finished && !w.deleting && w.active && !w.held_back;
        let waiting = self.workloads.values().filter(waits).filter(|w| feeds(&w.local_queue()));
        let names: Vec<&str> = waiting.map(|w| w.key.as_str()).collect();
        if count(queue, "pendingWorkloads") == Some(names.len()) {
            return Vec::new();
        }
        let reported = count(queue, "pendingWorkloads").unwrap_or_default();
        let some: Vec<&str> = names.iter().copied().take(5).collect();
        vec![format!("{what}: pendingWorkloads is {reported}, {} wait: {}", names.len(), some.join(", "))]
    }

    /// A queue without usage has no share of borrowed quota.
    fn idle_shares(&self) -> Vec<(String, String)> {
        let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
        for w in self.workloads.values().filter(|w| w.reserved && !w.finished) {
            usage.entry(w.cluster_queue.clone()).or_default().extend(w.charge.clone());
        }
        let idle = |name: &str| usage.get(name).is_none_or(|used| used.values().all(|amount| *amount == 0));
        let queues = self.cluster_queues.iter().filter(|(name, _)| idle(name));
        let queues = queues.map(|(name, object)| ("ClusterQueue", name, object));
        let cohorts = self.cohorts.iter().filter(|(name, _)| self.forest.queues_below(name).iter().all(|q| idle(q)));
        let cohorts = cohorts.map(|(name, object)| ("Cohort", name, object));
        let reported = queues.chain(cohorts).filter_map(|(kind, name, object)| {
            let share = share(object)?;
            Some((name.clone(), format!("{kind} {name}: weightedShare is {share}, and nothing below it is used")))
        });
        reported.collect()
    }
}
