//! Nomination: the assignment that a head could have now, the victims that it needs, and its reduced size under partial admission.

use std::collections::BTreeSet;

use crate::assign;
use crate::assign::assignment::Assignment;
use crate::assign::claim::Pins;
use crate::assign::mode::Mode;
use crate::assign::partial;
use crate::assign::request::Request;
use crate::options::Options;
use crate::options::profile::Departure;
use crate::preempt;
use crate::preempt::ask::{Ask, Target};
use crate::preempt::breach::Breach;
use crate::quota::balance::Usage;
use crate::quota::tree::Tree;
use crate::world::ids::{CellId, QueueId, WorkloadId};
use crate::world::store::{PodSet, Progress, Store, Workload};

/// An assignment and the victims that the assignment needs.
pub(crate) type Nomination = (Assignment, Vec<Target>);

/// The query for victims: the cells that lack quota, and the usage of the assignment; the resource `pods` is included only if `pods_count` is true.
pub(crate) fn contested(store: &Store, assignment: &Assignment, pods_count: bool) -> (Vec<CellId>, Usage) {
    let choices = assignment.pod_sets.iter().flat_map(|pod_set| &pod_set.choices);
    let lacking = choices.filter(|choice| choice.mode == Mode::Preempt);
    let mut needs: Vec<CellId> = lacking.filter_map(|choice| store.find_cell(choice.flavor, choice.resource)).collect();
    needs.sort_unstable();
    needs.dedup();
    let counts = |cell: CellId| pods_count || store.cells.key(cell).1 != store.pods;
    (needs, assignment.usage.iter().filter(|(cell, value)| *value != 0 && counts(*cell)).copied().collect())
}

/// Finds assignments and victims for workloads.
pub(crate) struct Nominator<'a> {
    pub(crate) store: &'a Store,
    pub(crate) tree: &'a mut Tree,
    pub(crate) options: &'a Options,
    /// Workloads that are not to be preempted: victims whose usage is already out of the tree, workloads that eviction history protects, and workloads that
    /// were admitted in this cycle.
    pub(crate) gone: &'a BTreeSet<WorkloadId>,
}

impl Nominator<'_> {
    /// Nominates the workload in full size; a reduced size is tried only if the full size neither fits nor has victims.
    pub(crate) fn nominate(
        &mut self,
        workload: &Workload,
        queue: QueueId,
        progress: Option<&Progress>,
        pins: Option<&Pins>,
    ) -> Nomination {
        let mut full = self.assign(workload, queue, None, progress, pins);
        let mode = full.mode();
        if mode == Mode::Fit {
            return (full, Vec::new());
        }
        if mode == Mode::Preempt {
            match self.targets(workload, queue, &full) {
                Ok(targets) if targets.is_empty() => {}
                Ok(targets) => return (full, targets),
                Err(breach) => full.breach = Some(breach),
            }
        }
        if self.may_shrink(workload, queue) {
            let pod_sets = &self.store.classes[workload.class].pod_sets;
            let counts: Vec<(i64, Option<i64>)> =
                pod_sets.iter().map(|pod_set| (pod_set.spec.count, pod_set.spec.min_count)).collect();
            let mut breach = full.breach;
            let reduced = partial::search(&counts, |counts| {
                let assignment = self.assign(workload, queue, Some(counts), progress, pins);
                // The scan of a smaller size may reach a resource group whose first flavors are skipped, although the scan of the full size did not reach it.
                full.resumed |= assignment.resumed;
                match assignment.mode() {
                    Mode::Fit => Some((assignment, Vec::new())),
                    Mode::Preempt => {
                        let found = self.targets(workload, queue, &assignment);
                        let targets = found.map_err(|refused| breach = Some(refused)).unwrap_or_default();
                        (!targets.is_empty()).then_some((assignment, targets))
                    }
                    Mode::NoFit | Mode::DeferredFit => None,
                }
            });
            // A set of victims that broke a rule of preemption is a fault of the engine and is reported, even if another size of the workload then fits or
            // finds other victims.
            if let Some((assignment, targets)) = reduced {
                return (Assignment { breach, ..assignment }, targets);
            }
            full.breach = breach;
        }
        (full, Vec::new())
    }

    /// The assignment of a workload with a scan from the first flavor on, and its counts of pods if they are reduced. The full size is used if it fits or has
    /// victims; otherwise the smallest accepted size, which has the smallest request, is used.
    pub(crate) fn in_brief(&mut self, workload: &Workload, queue: QueueId) -> (Assignment, Option<Vec<i64>>) {
        let full = self.assign(workload, queue, None, None, None);
        let least = if full.mode() == Mode::Fit { None } else { self.least(workload, queue) };
        let Some(least) = least else { return (full, None) };
        if full.mode() == Mode::Preempt {
            let found = self.targets(workload, queue, &full);
            debug_assert!(found.is_ok(), "{found:?}");
            if found.is_ok_and(|found| !found.is_empty()) {
                return (full, None);
            }
        }
        (self.assign(workload, queue, Some(&least), None, None), Some(least))
    }

    /// Whether partial admission may reduce the workload: a pod set must have `minCount`. A replacement slice is never reduced.
    fn may_shrink(&self, workload: &Workload, queue: QueueId) -> bool {
        let pod_sets = &self.store.classes[workload.class].pod_sets;
        self.options.partial_admission
            && pod_sets.iter().any(|set| set.spec.min_count.is_some())
            && self.store.grows_from(workload, queue).is_none()
    }

    /// The smallest accepted count of each pod set; `None` if no count can be reduced.
    fn least(&self, workload: &Workload, queue: QueueId) -> Option<Vec<i64>> {
        let least = |set: &PodSet| set.spec.min_count.map_or(set.spec.count, |least| least.min(set.spec.count));
        let pod_sets = &self.store.classes[workload.class].pod_sets;
        let shrinks = self.may_shrink(workload, queue) && pod_sets.iter().any(|set| least(set) < set.spec.count);
        shrinks.then(|| pod_sets.iter().map(least).collect())
    }

    pub(crate) fn assign(
        &mut self,
        workload: &Workload,
        queue: QueueId,
        counts: Option<&[i64]>,
        progress: Option<&Progress>,
        pins: Option<&Pins>,
    ) -> Assignment {
        let request = Request::of(self.store, self.options, workload, queue);
        self.assign_as(workload, queue, &Request { counts, progress, pins, ..request })
    }

    /// The assignment for a request, with preemption if the search finds victims.
    pub(crate) fn assign_as(&mut self, workload: &Workload, queue: QueueId, request: &Request<'_>) -> Assignment {
        let ask = Ask::of(self.store, workload, queue, self.gone, self.options);
        let options = self.options;
        let mut oracle = |store: &Store, tree: &mut Tree, cell: CellId, value| {
            preempt::possibility(store, tree, options, &ask, cell, value)
        };
        assign::assign(self.store, self.tree, request, &mut oracle)
    }

    fn targets(&mut self, workload: &Workload, queue: QueueId, assignment: &Assignment) -> Result<Vec<Target>, Breach> {
        let pods_count = self.options.profile.has(Departure::PodsCountForVictims);
        // If an assignment uses only one cell, flavor assignment has already searched victims for exactly this usage, and found no victims.
        if let ([pod_set], [_]) = (assignment.pod_sets.as_slice(), assignment.usage.as_slice())
            && let [choice] = pod_set.choices.as_slice()
            && choice.hopeless
            && (pods_count || choice.resource != self.store.pods)
        {
            return Ok(Vec::new());
        }
        let (needs, usage) = contested(self.store, assignment, pods_count);
        let ask = Ask { needs: &needs, usage: &usage, ..Ask::of(self.store, workload, queue, self.gone, self.options) };
        preempt::targets(self.store, self.tree, self.options, &ask)
    }
}
