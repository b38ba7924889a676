//! The result of flavor assignment for one workload, and the texts about the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assign::claim::Pins;
use crate::assign::mode::{Mode, PreemptionPossibility};
use crate::cycle::issued::Issued;
use crate::explain::why::{Message, Why, distinct_texts, unfit};
use crate::model::{PendingReason, PodSetAssignment};
use crate::preempt::breach::Breach;
use crate::quota::balance::{Units, Usage, accumulate, amount};
use crate::world::ids::{FlavorId, ResourceId};
use crate::world::slices::older::Older;
use crate::world::store::{PodSet, Progress, Store};

/// The flavor chosen for one resource.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) resource: ResourceId,
    pub(crate) flavor: FlavorId,
    pub(crate) mode: Mode,
    pub(crate) borrow: u32,
    pub(crate) tried: i32,
    /// True if the choice needs preemption and the search found no victims.
    pub(crate) hopeless: bool,
}

/// The result of trying one flavor for a pod set.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) flavor: FlavorId,
    pub(crate) mode: Mode,
    pub(crate) borrow: u32,
    pub(crate) possibility: Option<PreemptionPossibility>,
    pub(crate) reasons: Vec<Why>,
    pub(crate) no_fit: Option<PendingReason>,
}

/// Quota given to a pod set: the number of pods, and the flavor and amount for each resource.
pub(crate) type Given = (i64, Vec<(ResourceId, FlavorId, Units)>);

/// Result for one pod set.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSetResult {
    /// Index of the pod set in the workload's request for flavors.
    pub(crate) index: usize,
    pub(crate) count: i64,
    /// Requests of all pods of the pod set, sorted by resource name.
    pub(crate) requests: Vec<(ResourceId, Units)>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) reasons: Vec<Why>,
    pub(crate) attempts: Vec<Attempt>,
}

impl PodSetResult {
    pub(crate) fn mode(&self) -> Mode {
        if self.reasons.is_empty() {
            return Mode::Fit;
        }
        self.choices.iter().map(|choice| choice.mode).min().unwrap_or(Mode::NoFit)
    }

    /// Whether the pod set requests nothing and its reasons are about quota alone.
    fn lacks_nothing(&self) -> bool {
        self.requests.iter().all(|(_, value)| *value <= 0) && self.reasons.iter().all(Why::is_of_quota)
    }

    /// Resource, flavor and amount of each flavor that was chosen for the pod set.
    pub(crate) fn given(&self) -> impl Iterator<Item = (ResourceId, FlavorId, Units)> {
        self.choices.iter().map(|choice| {
            let requested = self.requests.iter().find(|(resource, _)| *resource == choice.resource);
            (choice.resource, choice.flavor, requested.map_or(0, |(_, value)| *value))
        })
    }

    pub(crate) fn flavor_of(&self, resource: ResourceId) -> Option<FlavorId> {
        self.choices.iter().find(|choice| choice.resource == resource).map(|choice| choice.flavor)
    }
}

/// Result for a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assignment {
    pub(crate) pod_sets: Vec<PodSetResult>,
    pub(crate) borrowing: u32,
    pub(crate) usage: Usage,
    pub(crate) progress: Progress,
    pub(crate) no_fit: Option<PendingReason>,
    /// Set if the assignment fits only after preemptions under way: preemptions that other heads issued in this cycle, or that the workload itself issued in an
    /// earlier cycle.
    pub(crate) held_to: Option<Mode>,
    /// True if the scan of some resource group began behind the first flavor.
    pub(crate) resumed: bool,
    /// The rule of preemption that the found victims broke, if they were refused for it.
    pub(crate) breach: Option<Breach>,
}

impl Assignment {
    /// Adds the result for the pod set named `name` to the assignment of its workload. Quota that the replaced slice already holds is not charged again.
    pub(crate) fn add(&mut self, store: &Store, result: PodSetResult, name: &str, replaced: Option<&Older>) {
        self.usage.reserve_exact(result.choices.len());
        for choice in &result.choices {
            self.borrowing = self.borrowing.max(choice.borrow);
        }
        for (resource, flavor, asked) in result.given() {
            if let Some(cell) = store.find_cell(flavor, resource) {
                let more = replaced.map_or(asked, |older| older.less(name, resource, asked));
                accumulate(&mut self.usage, cell, more);
            }
        }
        self.pod_sets.push(result);
    }

    /// The worst mode of all pod sets of the assignment.
    pub(crate) fn mode(&self) -> Mode {
        let worst = || self.pod_sets.iter().map(PodSetResult::mode).min().unwrap_or(Mode::NoFit);
        self.held_to.unwrap_or_else(worst)
    }

    /// Reason why the assignment is not a plain fit, in Kueue's words; empty if the assignment is a plain fit.
    pub(crate) fn message(&self, store: &Store, asked: &[PodSet]) -> String {
        let reported = self.named(asked).filter(|(_, pod_set)| self.is_reported(pod_set));
        unfit(store, reported.map(|(name, pod_set)| (name, pod_set.reasons.as_slice())))
    }

    /// Results with the names of their pod sets; results of pod sets of one group are adjacent.
    pub(crate) fn named<'a>(&'a self, asked: &'a [PodSet]) -> impl Iterator<Item = (&'a str, &'a PodSetResult)> {
        let name = |at: usize| asked.get(at).map_or("", |pod_set| pod_set.spec.name.as_str());
        self.pod_sets.iter().map(move |pod_set| (name(pod_set.index), pod_set))
    }

    /// The values that `of` returns for the results, in the order of the pod sets of the request.
    pub(crate) fn by_place<T: Default>(&self, of: impl Fn(&PodSetResult) -> T) -> Vec<T> {
        let mut all = Vec::with_capacity(self.pod_sets.len());
        for pod_set in &self.pod_sets {
            all.resize_with(all.len().max(pod_set.index.saturating_add(1)), T::default);
            if let Some(place) = all.get_mut(pod_set.index) {
                *place = of(pod_set);
            }
        }
        all
    }

    /// Removes the reasons why the assignment is not a plain fit, for a message that is made later.
    pub(crate) fn take_unfit(&mut self, issued: Issued) -> Message {
        let reported: Vec<bool> = self.pod_sets.iter().map(|pod_set| self.is_reported(pod_set)).collect();
        let unfit = self.pod_sets.iter_mut().zip(reported).filter(|(_, reported)| *reported);
        Message::Unfit(unfit.map(|(set, _)| (set.index, std::mem::take(&mut set.reasons))).collect(), issued)
    }

    /// Whether the message includes the reasons of a pod set. A pod set that requests nothing lacks no quota, so its reasons are included only if no other pod
    /// set has reasons.
    fn is_reported(&self, pod_set: &PodSetResult) -> bool {
        let lacks = |set: &PodSetResult| !set.reasons.is_empty() && !set.lacks_nothing();
        !pod_set.reasons.is_empty() && (!pod_set.lacks_nothing() || !self.pod_sets.iter().any(lacks))
    }

    /// Text about the flavors that were considered, except plain fits without borrowing; `None` if there are only plain fits without borrowing.
    pub(crate) fn considered(&self, store: &Store, asked: &[PodSet]) -> Option<String> {
        let mut parts = Vec::new();
        for (name, pod_set) in self.named(asked) {
            let attempts: Vec<String> = pod_set
                .attempts
                .iter()
                .filter(|attempt| attempt.mode != Mode::Fit || attempt.borrow > 0)
                .map(|attempt| attempt.text(store))
                .collect();
            if !attempts.is_empty() {
                parts.push(format!("{name}: {}", attempts.join(", ")));
            }
        }
        (!parts.is_empty()).then(|| parts.join(" | "))
    }

    /// Whether further flavors are left for the next scan of the workload.
    pub(crate) fn has_pending_flavors(&self) -> bool {
        let progress = &self.progress;
        let is_open = |choice: &Choice| choice.tried != -1;
        progress.has_pending_flavors()
            || (!progress.waits && self.pod_sets.iter().flat_map(|pod_set| &pod_set.choices).any(is_open))
    }

    /// Flavors of this assignment, for a later assignment that may use only these flavors.
    pub(crate) fn pins(&self) -> Pins {
        self.by_place(|pod_set| pod_set.choices.iter().map(|c| (c.resource, c.flavor)).collect())
    }

    /// Forgets the progress of the scan, so that the next scan begins at the first flavor.
    pub(crate) fn forget_progress(&mut self) {
        self.progress = Progress::default();
        for choice in self.pod_sets.iter_mut().flat_map(|pod_set| &mut pod_set.choices) {
            choice.tried = -1;
        }
    }

    /// Takes the progress of the scan over flavors out of the assignment.
    pub(crate) fn take_progress(&mut self) -> Progress {
        let mut progress = std::mem::take(&mut self.progress);
        if progress.tried.is_empty() && !progress.waits {
            progress.tried = self.by_place(|pod_set| pod_set.choices.iter().map(|c| (c.resource, c.tried)).collect());
        }
        progress
    }

    /// Whether the assignment gives the same quota as `other`, an assignment of a workload of the same class of equals.
    pub(crate) fn gives_as(&self, other: &[Given]) -> bool {
        let is_same = |(own, (count, given)): (&PodSetResult, &Given)| {
            own.count == *count && own.given().eq(given.iter().copied())
        };
        self.pod_sets.len() == other.len() && self.pod_sets.iter().zip(other).all(is_same)
    }

    /// Quota given to each pod set, by the ids of resources and flavors.
    pub(crate) fn given_ids(&self) -> Vec<Given> {
        self.pod_sets.iter().map(|pod_set| (pod_set.count, pod_set.given().collect())).collect()
    }

    /// Pod set assignments in the form of `status.admission`.
    pub(crate) fn given(&self, store: &Store, asked: &[PodSet]) -> Arc<[PodSetAssignment]> {
        let given = |(name, pod_set): (&str, &PodSetResult)| {
            let mut flavors = BTreeMap::new();
            let mut usage = BTreeMap::new();
            for (resource, flavor, requested) in pod_set.given() {
                let resource = store.resource(resource).to_owned();
                flavors.insert(resource.clone(), store.flavor(flavor).to_owned());
                usage.insert(resource, amount(requested));
            }
            PodSetAssignment { name: name.to_owned(), count: pod_set.count, flavors, usage }
        };
        self.named(asked).map(given).collect()
    }
}

impl Attempt {
    fn text(&self, store: &Store) -> String {
        let mut text = match self.possibility {
            None => format!("{}({}", store.flavor(self.flavor), self.mode.as_str()),
            Some(possibility) => format!("{}(preemptionMode={}", store.flavor(self.flavor), possibility.as_str()),
        };
        if self.borrow > 0 {
            text.push_str(&format!(";borrow={}", self.borrow));
        }
        for reason in distinct_texts(store, &self.reasons) {
            text.push(';');
            text.push_str(&reason);
        }
        text.push(')');
        text
    }
}
