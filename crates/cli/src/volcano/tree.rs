//! The tree of Volcano's queues as Cohorts and ClusterQueues.
//!
//! In Volcano, the amounts of a Queue include the amounts of its child Queues. In Kueue, the quota of a Cohort adds to the quotas of its children, so the
//! import gives a Cohort the Queue's amounts without those of its child Queues. A Queue with child Queues becomes a Cohort, a Queue that jobs name becomes a
//! ClusterQueue, and one Queue may become both.

use super::figures::{Figure, Figures, Share, resource_quota};
use super::objects::Made;
use super::queues::{Queue, ROOT};
use super::report::Report;
use berth_api::{API_VERSION, berth};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of queues between a queue and the root.
const MOST_LEVELS: usize = 64;
/// Time for which jobs of a queue that is not reclaimable are not preempted: longer than any job runs.
const PROTECTED: &str = "99999h";

/// Volcano's Queues, and facts that their translation into Cohorts and ClusterQueues needs.
pub(super) struct Tree<'m> {
    /// The Queues by name.
    pub(super) queues: &'m BTreeMap<String, Queue<'m>>,
    /// Names of queues that jobs, pods or namespaces name.
    pub(super) used: &'m BTreeSet<String>,
    /// All resources of which a Queue has an amount.
    pub(super) resources: &'m BTreeSet<String>,
    /// Name of the ResourceFlavor of all quotas.
    pub(super) flavor: &'m str,
}

/// Sums of the quota of one resource over the child Queues of a Queue, in billionths of the resource's unit.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    nominal: i128,
    /// Sum of the quota that the child Queues, with the Queues below each of them, do not lend to other Queues.
    guaranteed: i128,
}

/// Sums over child Queues, by the name of the parent Queue, then by resource.
type Totals = BTreeMap<String, BTreeMap<String, Sums>>;

impl<'m> Tree<'m> {
    /// The Cohorts, ClusterQueues and QueuePolicies.
    pub(super) fn objects(&self, report: &mut Report) -> Vec<Made<'m>> {
        let parents: BTreeSet<&str> = self.queues.values().filter_map(|queue| queue.parent.as_deref()).collect();
        let mut order: Vec<(Reverse<usize>, &'m str, &'m Queue<'m>)> = Vec::new();
        for (name, queue) in self.queues {
            match self.depth(name) {
                Some(depth) => order.push((Reverse(depth), name.as_str(), queue)),
                None => {
                    let allowed =
                        format!("must lead to {ROOT} in at most {MOST_LEVELS} steps, and not back to the queue");
                    report.fault(queue.manifest, "spec.parent", allowed);
                }
            }
        }
        // Queues are translated before their parent Queue, which needs the sums over its child Queues.
        order.sort_by_key(|(depth, name, _)| (*depth, *name));
        let mut totals = Totals::new();
        let mut made = Vec::new();
        for (_, name, queue) in order {
            self.note_parent(queue, report);
            let is_cohort = name == ROOT || parents.contains(name);
            if is_cohort {
                made.push(self.cohort(name, queue, &mut totals, report));
            }
            if !is_cohort || self.used.contains(name) {
                let quotas = if is_cohort { self.borrowed() } else { self.owned(queue, &mut totals, report) };
                let cohort = if is_cohort { name } else { queue.parent.as_deref().unwrap_or(ROOT) };
                made.push(self.cluster_queue(name, queue, cohort, quotas));
                made.extend(policy(name, queue, report));
            } else if !queue.reclaimable && name != ROOT {
                report.note(
                    queue.manifest,
                    "spec.reclaimable",
                    "no counterpart: Volcano reads it of queues without children",
                );
            }
            if is_cohort && name != ROOT && self.used.contains(name) {
                let why =
                    "is named by jobs, and is the parent of other queues: it becomes a Cohort and a ClusterQueue in it";
                report.note(queue.manifest, "metadata.name", why);
            }
        }
        if parents.contains(ROOT) && !self.queues.contains_key(ROOT) {
            made.push(Made { object: cohort(ROOT, Map::new()), source: None });
        }
        if parents.contains(ROOT) && !self.has_limit(ROOT) && !self.resources.is_empty() {
            report.note_all(format!(
                "Queue {ROOT} has no capability: its queues together have the quota that they own, and resources of the \
                 cluster beyond it are not used; give the Cohort {ROOT} the rest as nominalQuota"
            ));
        }
        made
    }

    /// Number of queues between a queue and the root; `None` if there are too many, or if the parents lead back to the queue.
    fn depth(&self, name: &str) -> Option<usize> {
        let mut at = name;
        for depth in 0..=MOST_LEVELS {
            match self.queues.get(at).and_then(|queue| queue.parent.as_deref()) {
                Some(parent) => at = parent,
                None => return Some(depth),
            }
        }
        None
    }

    fn has_limit(&self, name: &str) -> bool {
        self.queues.get(name).is_some_and(|queue| queue.figures.values().any(|figures| figures.capability.is_some()))
    }

    fn note_parent(&self, queue: &Queue<'_>, report: &mut Report) {
        if let Some(parent) = queue.parent.as_deref().filter(|parent| *parent != ROOT)
            && !self.queues.contains_key(parent)
        {
            let why = format!("is not among the documents: the Cohort {parent} has no quota and no parent");
            report.note(queue.manifest, "spec.parent", why);
        }
    }

    /// Quotas of a ClusterQueue whose nominal quota is made of the amounts of its Queue.
    fn owned(&self, queue: &Queue<'_>, totals: &mut Totals, report: &mut Report) -> Vec<Value> {
        let mut quotas = Vec::new();
        let (mut unlimited, mut by_capability) = (Vec::new(), Vec::new());
        for resource in self.resources {
            let figures = queue.figures.get(resource).cloned().unwrap_or_else(|| {
                unlimited.push(resource.as_str());
                Figures::default()
            });
            if figures.owns_its_limit() {
                by_capability.push(resource.as_str());
            }
            let share = adjusted(queue, resource, &figures, report);
            add(totals, queue, resource, &share, Sums::default());
            match share.quota(resource) {
                Ok(quota) => quotas.push(quota),
                Err(why) => report.fault(queue.manifest, "spec", why),
            }
        }
        if !by_capability.is_empty() {
            let why = format!(
                "nominalQuota of {} is the capability, because there is no deserved; the nominal quotas of all queues \
                 should not exceed the cluster",
                by_capability.join(", ")
            );
            report.note(queue.manifest, "spec.capability", why);
        }
        if !unlimited.is_empty() {
            let why = format!(
                "no deserved, capability or guarantee of {}: the queue owns nothing of it, and borrows what is idle without limit",
                unlimited.join(", ")
            );
            report.note(queue.manifest, "spec", why);
        }
        if self.resources.is_empty() {
            let why = "no Queue has an amount: the ClusterQueue has no quota, and admits no job with requests until you give it one";
            report.note(queue.manifest, "spec", why);
        }
        quotas
    }

    /// Quotas of a ClusterQueue whose nominal quota is zero, so that it borrows everything from its Cohort.
    fn borrowed(&self) -> Vec<Value> {
        let quota = |resource: &String| json!({"name": resource, "nominalQuota": "0"});
        self.resources.iter().map(quota).collect()
    }

    /// The Cohort of a queue with children. The quota of the Cohort is the Queue's quota minus the quotas of its child Queues.
    fn cohort(&self, name: &str, queue: &Queue<'m>, totals: &mut Totals, report: &mut Report) -> Made<'m> {
        let below = totals.get(name).cloned().unwrap_or_default();
        let mut quotas = Vec::new();
        for (resource, figures) in &queue.figures {
            let sums = below.get(resource).copied().unwrap_or_default();
            let quota = if name == ROOT {
                root_quota(queue, resource, figures, sums, report)
            } else {
                let share = adjusted(queue, resource, figures, report);
                add(totals, queue, resource, &share, sums);
                cohort_quota(queue, resource, &share, sums, report).map(Some)
            };
            match quota {
                Ok(quota) => quotas.extend(quota),
                Err(why) => report.fault(queue.manifest, "spec", why),
            }
        }
        for (resource, sums) in below.iter().filter(|(resource, _)| !queue.figures.contains_key(*resource)) {
            add(totals, queue, resource, &Figures::default().share(), *sums);
        }
        if name != ROOT && queue.closed {
            report.note(
                queue.manifest,
                "status.state",
                "no counterpart: a Cohort cannot be stopped; stop its ClusterQueues",
            );
        }
        if name != ROOT && queue.strategy.is_some() {
            report.note(queue.manifest, "spec.dequeueStrategy", "no counterpart: a Cohort has no order of jobs");
        }
        let mut spec = Map::new();
        if let Some(parent) = &queue.parent {
            spec.insert("parentName".to_owned(), json!(parent));
            if let Some(weight) = queue.weight {
                spec.insert("fairSharing".to_owned(), json!({"weight": weight.to_string()}));
            }
        }
        if !quotas.is_empty() {
            spec.insert("resourceGroups".to_owned(), self.groups(quotas));
        }
        Made { object: cohort(name, spec), source: Some(queue.manifest) }
    }

    fn cluster_queue(&self, name: &str, queue: &Queue<'m>, cohort: &str, quotas: Vec<Value>) -> Made<'m> {
        let mut spec = Map::new();
        spec.insert("cohortName".to_owned(), json!(cohort));
        spec.insert("namespaceSelector".to_owned(), json!({}));
        // The preemption policy of the ClusterQueue stands for the actions `reclaim` and `preempt` of Volcano's scheduler.
        let preemption = json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"});
        spec.insert("preemption".to_owned(), preemption);
        if let Some(strategy) = queue.strategy {
            spec.insert("queueingStrategy".to_owned(), json!(strategy));
        }
        if queue.closed {
            spec.insert("stopPolicy".to_owned(), json!("Hold"));
        }
        if let Some(weight) = queue.weight.filter(|_| cohort != name) {
            spec.insert("fairSharing".to_owned(), json!({"weight": weight.to_string()}));
        }
        if !quotas.is_empty() {
            spec.insert("resourceGroups".to_owned(), self.groups(quotas));
        }
        let object =
            json!({"apiVersion": API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec});
        Made { object, source: Some(queue.manifest) }
    }

    /// One resource group with the quotas, in the one flavor.
    fn groups(&self, quotas: Vec<Value>) -> Value {
        let covered: Vec<Value> = quotas.iter().filter_map(|quota| quota.get("name").cloned()).collect();
        json!([{"coveredResources": covered, "flavors": [{"name": self.flavor, "resources": quotas}]}])
    }
}

fn cohort(name: &str, spec: Map<String, Value>) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Cohort", "metadata": {"name": name}, "spec": spec})
}

/// The quota of a Queue for one resource; the report has a line for each amount that was changed to fit the others.
fn adjusted(queue: &Queue<'_>, resource: &str, figures: &Figures, report: &mut Report) -> Share {
    let share = figures.share();
    for (field, why) in &share.adjusted {
        report.note(queue.manifest, &format!("spec.{field}[{resource}]"), why);
    }
    share
}

/// Adds the quota of a Queue to the sums of its parent; if the Queues below the Queue have more quota than the Queue, their sum is added instead.
fn add(totals: &mut Totals, queue: &Queue<'_>, resource: &str, share: &Share, below: Sums) {
    let Some(parent) = &queue.parent else { return };
    let sums = totals.entry(parent.clone()).or_default().entry(resource.to_owned()).or_default();
    let guarantee = share.guarantee.as_ref().map_or(0, |guarantee| guarantee.nano);
    sums.nominal = sums.nominal.saturating_add(share.nominal.nano.max(below.nominal));
    sums.guaranteed = sums.guaranteed.saturating_add(guarantee.max(below.guaranteed));
}

/// The quota of a Cohort below the root, where `below` has the sums over the child Queues.
fn cohort_quota(
    queue: &Queue<'_>,
    resource: &str,
    share: &Share,
    below: Sums,
    report: &mut Report,
) -> Result<Value, String> {
    let all = share.nominal.nano.max(below.nominal);
    let mut note = |field: &str, why: &str| report.note(queue.manifest, &format!("spec.{field}[{resource}]"), why);
    if below.nominal > share.nominal.nano {
        note("deserved", "is less than the queues below it own together; their quota counts");
    }
    let borrowing = share.capability.as_ref().map(|limit| {
        if limit.nano < all {
            note(
                "capability",
                "is less than the queues below it own together, and does not limit them here; lower their quota",
            );
        }
        limit.nano.saturating_sub(all).max(0)
    });
    let guarantee = share.guarantee.as_ref().filter(|guarantee| guarantee.nano > below.guaranteed);
    let lending = guarantee.map(|guarantee| all.saturating_sub(guarantee.nano));
    let own = Figure::made(resource, all.saturating_sub(below.nominal))?;
    resource_quota(resource, &own, borrowing, lending)
}

/// The quota of the root Cohort, which has no limits: the part of the capability that no queue owns. Volcano calculates `deserved` and `guarantee` of the root
/// Queue, so the import does not read them.
fn root_quota(
    queue: &Queue<'_>,
    resource: &str,
    figures: &Figures,
    below: Sums,
    report: &mut Report,
) -> Result<Option<Value>, String> {
    for (field, figure) in [("deserved", &figures.deserved), ("guarantee.resource", &figures.guarantee)] {
        if figure.is_some() {
            let path = format!("spec.{field}[{resource}]");
            report.note(queue.manifest, &path, "no counterpart: Volcano calculates it of the queues below the root");
        }
    }
    let Some(limit) = &figures.capability else { return Ok(None) };
    if limit.nano < below.nominal {
        let why = "is less than the queues below it own together, and does not limit them here; lower their quota";
        report.note(queue.manifest, &format!("spec.capability[{resource}]"), why);
        return Ok(None);
    }
    let own = Figure::made(resource, limit.nano.saturating_sub(below.nominal))?;
    resource_quota(resource, &own, None, None).map(Some)
}

/// The QueuePolicy that protects the jobs of a queue that is not reclaimable.
fn policy<'m>(name: &str, queue: &Queue<'m>, report: &mut Report) -> Option<Made<'m>> {
    if queue.reclaimable {
        return None;
    }
    let policy = format!("{name}-not-reclaimable");
    let why = format!("QueuePolicy {policy} protects the jobs of the queue, also from jobs of their own queue");
    report.note(queue.manifest, "spec.reclaimable", why);
    let spec = json!({"clusterQueues": [name], "preemption": {"protectedRunningTime": PROTECTED}});
    let object =
        json!({"apiVersion": berth::API_VERSION, "kind": "QueuePolicy", "metadata": {"name": policy}, "spec": spec});
    Some(Made { object, source: Some(queue.manifest) })
}
