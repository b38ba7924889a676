//! The test surface of the engine: everything that is public for tests and the conformance checks alone.
//!
//! [`World::steps`] gives the steps of a cycle one by one, on the functions that cycles themselves call. The other public functions and types of this module
//! are parts of a step. No program that ships calls the steps, and the linker leaves them out.

mod figures;
mod heads;
mod search;

use std::collections::{BTreeMap, BTreeSet};

use crate::assign;
use crate::assign::assignment::{Assignment, Choice, PodSetResult};
use crate::assign::claim::Pins;
use crate::assign::request::{Request, count_of, of_all};
use crate::cycle::nominate::{Nominator, contested};
use crate::explain::why::{Why, distinct_texts, texts};
use crate::model::{Amount, FlavorResource, PendingReason, PodSetAssignment, Replaced};
use crate::quota::balance::{Units, amount, units};
use crate::quota::tree::Tree;
use crate::world::World;
use crate::world::ids::CellId;
use crate::world::store::{PodSet, Progress, Store};

pub use crate::assign::mode::{Granular, Mode, PreemptionPossibility};
pub use crate::cycle::order::{FairShareValues, Nominee, compare_fair_share};
pub use crate::cycle::outcome::Outcome;
pub use crate::preempt::candidates::policy_allows;
pub use crate::queue::afs::weighted_usage;
pub use heads::{ScanTime, scan_goes_on, scan_is_outdated};
pub use search::{flavor_preferred, reduce_counts};

/// The steps of a cycle one by one, on a world. A step changes the world only where its description says so.
#[derive(Debug)]
pub struct Steps<'w>(&'w mut World);

impl World {
    /// The steps of a cycle, for tests and the conformance checks. Cost: constant.
    pub fn steps(&mut self) -> Steps<'_> {
        Steps(self)
    }
}

/// Report about one flavor that an assignment tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// Flavor.
    pub flavor: String,
    /// Worst mode of the flavor over the resources that are requested from it.
    pub mode: Mode,
    /// Highest borrowing level.
    pub borrow: u32,
    /// Result of the search for victims in the flavor, if there was a search.
    pub possibility: Option<PreemptionPossibility>,
    /// Reasons why the flavor is not a plain fit.
    pub reasons: Vec<String>,
    /// Reason code of a flavor that does not fit; `None` if the flavor fits.
    pub no_fit: Option<PendingReason>,
}

/// The flavor found for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorReport {
    /// Flavor.
    pub flavor: String,
    /// Mode.
    pub mode: Mode,
    /// Index of the flavor that was tried last, -1 if the next scan starts over.
    pub tried: i32,
}

/// Result of an assignment for one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetReport {
    /// Name.
    pub name: String,
    /// Pods.
    pub count: i64,
    /// Requests of all pods.
    pub requests: BTreeMap<String, Amount>,
    /// Flavor per resource.
    pub flavors: BTreeMap<String, FlavorReport>,
    /// Reasons why the pod set is not a plain fit.
    pub reasons: Vec<String>,
    /// Fault in the scheduling fields of the pod set's pods.
    pub error: Option<String>,
    /// Flavors that were tried for the pod set, sorted by name.
    pub attempts: Vec<AttemptReport>,
}

/// Result of an assignment for a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentReport {
    /// Worst mode over the pod sets of the workload.
    pub mode: Mode,
    /// Highest borrowing level.
    pub borrowing: u32,
    /// Reason code of a workload that does not fit; `None` if the workload fits.
    pub no_fit: Option<PendingReason>,
    /// Message about the assignment, as in the workload's condition.
    pub message: String,
    /// Result of each pod set, up to the first pod set for which no flavor was found.
    pub pod_sets: Vec<PodSetReport>,
    /// Usage that the workload would be charged with.
    pub usage: BTreeMap<FlavorResource, Amount>,
}

/// A stand-in for the search for victims: it maps flavor and resource to a possibility and a borrowing level.
pub type StandIn<'o> = &'o mut dyn FnMut(&str, &str) -> (PreemptionPossibility, u32);

/// Inputs of an assignment in addition to the world.
#[derive(Default)]
pub struct AssignInput<'o> {
    /// Number of pods of each pod set for which flavors are assigned; `None` for all pods.
    pub counts: Option<Vec<i64>>,
    /// A function that replaces the search for victims.
    pub oracle: Option<StandIn<'o>>,
    /// The only flavor that each pod set and resource may be given.
    pub pins: Option<Vec<BTreeMap<String, String>>>,
    /// Index of the flavor that was tried last, for each pod set and resource.
    pub tried: Option<Vec<BTreeMap<String, i32>>>,
    /// Quota that was given to the old slice that the workload replaces, instead of the world's own record.
    pub replaced: Option<Vec<PodSetAssignment>>,
}

impl Steps<'_> {
    /// Assigns flavors to a workload in a ClusterQueue as a cycle would, without a change of the world. Cost of `assign`: a scan over the flavors, without a
    /// search for victims if `input` has a stand-in for the search.
    pub fn assign(&mut self, uid: &str, cluster_queue: &str, input: AssignInput<'_>) -> Option<AssignmentReport> {
        let (id, queue) = self.0.asking(uid, cluster_queue)?;
        let pins: Option<Pins> = input.pins.map(|pins| {
            let pin = |(resource, flavor): (&String, &String)| {
                (self.0.store.resources.intern(resource), self.0.store.flavor_names.intern(flavor))
            };
            let mut pin = pin;
            pins.iter().map(|pins| pins.iter().map(&mut pin).collect()).collect()
        });
        let progress = input.tried.map(|tried| {
            let mut one = |(resource, index): (&String, &i32)| (self.0.store.resources.intern(resource), *index);
            let tried = tried.iter().map(|tried| tried.iter().map(&mut one).collect()).collect();
            Progress { tried, ..Progress::default() }
        });
        let replaced = input.replaced.map(|pod_sets| self.0.store.older(&Replaced { uid: String::new(), pod_sets }));
        let gone = BTreeSet::new();
        let workload = self.0.store.workload(id)?;
        let request = Request::of(&self.0.store, &self.0.options, workload, queue);
        let replaced = replaced.as_ref().or(request.replaced);
        let (counts, progress) = (input.counts.as_deref(), progress.as_ref());
        let request = Request { counts, progress, pins: pins.as_ref(), replaced, ..request };
        let assignment = match input.oracle {
            None => {
                let mut nominator =
                    Nominator { store: &self.0.store, tree: &mut self.0.tree, options: &self.0.options, gone: &gone };
                nominator.assign_as(workload, queue, &request)
            }
            Some(stand_in) => {
                let mut oracle = |store: &Store, _: &mut Tree, cell: CellId, _: Units| {
                    let (flavor, resource) = *store.cells.key(cell);
                    stand_in(store.flavor(flavor), store.resource(resource))
                };
                assign::assign(&self.0.store, &mut self.0.tree, &request, &mut oracle)
            }
        };
        Some(report(&self.0.store, &self.0.store.classes[workload.class].pod_sets, &assignment))
    }

    /// Quota that an assignment of `counts` pods of each pod set requests, in the form for the search for victims. The parameter `totals` has the requests of
    /// all pods; a pod set without a count has all its pods. With `replaced`, the amount that the old slice holds is subtracted, and `counts` is ignored.
    /// Requests with an amount of zero are left out of the result. A cycle starts from the requests of one pod instead, and never divides total requests. Cost
    /// of `usage_asked`: the number of pod sets times the number of resources.
    pub fn usage_asked(
        &mut self,
        totals: &[PodSetAssignment],
        counts: &[i64],
        replaced: Option<&[PodSetAssignment]>,
    ) -> BTreeMap<FlavorResource, Amount> {
        let older = |pod_sets: &[PodSetAssignment]| Replaced { uid: String::new(), pod_sets: pod_sets.to_vec() };
        let replaced = replaced.map(|pod_sets| self.0.store.older(&older(pod_sets)));
        let mut assignment = Assignment::default();
        let counts = replaced.is_none().then_some(counts);
        for (index, pod_set) in totals.iter().enumerate() {
            let count = count_of(counts, index, pod_set.count);
            let mut result = PodSetResult { index, count, ..PodSetResult::default() };
            for (resource, flavor) in &pod_set.flavors {
                let total = pod_set.usage.get(resource).copied().map_or(0, units);
                let one = total.checked_div(Units::from(pod_set.count)).filter(|_| pod_set.count != count);
                let asked = one.map_or(total, |one| of_all(one, count));
                let cell = self.0.store.intern_cell(flavor, resource);
                let (flavor, resource) = *self.0.store.cells.key(cell);
                result.requests.push((resource, asked));
                result.choices.push(Choice {
                    resource,
                    flavor,
                    mode: Mode::Fit,
                    borrow: 0,
                    tried: -1,
                    hopeless: false,
                });
            }
            assignment.add(&self.0.store, result, &pod_set.name, replaced.as_ref());
        }
        let (_, usage) = contested(&self.0.store, &assignment, true);
        usage.into_iter().map(|(cell, value)| (self.0.store.named(cell), amount(value))).collect()
    }

    /// UIDs of the workloads that hold quota of a ClusterQueue; with `local_queue` (namespace and name), only workloads of that LocalQueue. Cost of `holders`:
    /// the number of workloads that hold quota of the ClusterQueue.
    #[must_use]
    pub fn holders(&self, cluster_queue: &str, local_queue: Option<(&str, &str)>) -> Vec<String> {
        let Some(queue) = self.0.store.queue_ids.get(cluster_queue).map(|id| &self.0.store.queues[*id]) else {
            return Vec::new();
        };
        let workloads = queue.held.iter().filter_map(|id| self.0.store.workload(id));
        let through = |workload: &&crate::world::store::Workload| {
            local_queue.is_none_or(|(namespace, name)| {
                let (known_namespace, known_name) = self.0.store.local_queue_names.key(workload.local_queue);
                (known_namespace.as_str(), known_name.as_str()) == (namespace, name)
            })
        };
        workloads.filter(through).map(|workload| workload.uid.to_string()).collect()
    }

    /// Victims (uid and reason) for a workload that would use `usage`, if the cells in `needs` lack quota. The search for victims does not change the world.
    /// Cost of `victims`: a search for victims.
    pub fn victims(
        &mut self,
        uid: &str,
        cluster_queue: &str,
        needs: &[FlavorResource],
        usage: &BTreeMap<FlavorResource, Amount>,
    ) -> Option<Vec<(String, &'static str)>> {
        let targets = self.0.targets_for(uid, cluster_queue, needs, usage)?;
        let named = targets.iter().filter_map(|target| {
            let victim = self.0.store.workload(target.workload)?;
            Some((victim.uid.to_string(), target.reason))
        });
        Some(named.collect())
    }
}

/// Reasons without the faults in the pods' scheduling fields, because these faults are reported as an error.
fn without_faults(reasons: &[Why]) -> Vec<Why> {
    reasons.iter().filter(|why| why.fault().is_none()).cloned().collect()
}

fn report(store: &Store, asked: &[PodSet], assignment: &Assignment) -> AssignmentReport {
    let named = |(resource, value): &(crate::world::ids::ResourceId, Units)| {
        (store.resource(*resource).to_owned(), amount(*value))
    };
    let pod_sets = assignment.named(asked).map(|(name, pod_set)| PodSetReport {
        name: name.to_owned(),
        count: pod_set.count,
        requests: pod_set.requests.iter().map(named).collect(),
        flavors: pod_set
            .choices
            .iter()
            .map(|choice| {
                let flavor = store.flavor(choice.flavor).to_owned();
                let report = FlavorReport { flavor, mode: choice.mode, tried: choice.tried };
                (store.resource(choice.resource).to_owned(), report)
            })
            .collect(),
        reasons: texts(store, &without_faults(&pod_set.reasons)),
        error: pod_set.reasons.iter().find_map(|why| why.fault().map(str::to_owned)),
        attempts: pod_set
            .attempts
            .iter()
            .map(|attempt| AttemptReport {
                flavor: store.flavor(attempt.flavor).to_owned(),
                mode: attempt.mode,
                borrow: attempt.borrow,
                possibility: attempt.possibility,
                reasons: distinct_texts(store, &without_faults(&attempt.reasons)),
                no_fit: attempt.no_fit,
            })
            .collect(),
    });
    let cell = |(cell, value): &(CellId, Units)| (store.named(*cell), amount(*value));
    AssignmentReport {
        mode: assignment.mode(),
        borrowing: assignment.borrowing,
        no_fit: assignment.no_fit,
        message: assignment.message(store, asked),
        pod_sets: pod_sets.collect(),
        usage: assignment.usage.iter().map(cell).collect(),
    }
}
