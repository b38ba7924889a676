//! The TrainingJobs of the view, with an index of those that are elastic.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::cache::training_view::{Counted, TrainingView};
use crate::names::Name;

/// TrainingJobs by name; readers use the map itself.
#[derive(Debug, Default)]
pub(crate) struct TrainingJobs {
    all: BTreeMap<Name, TrainingView>,
    elastic: BTreeSet<Name>,
}

impl Deref for TrainingJobs {
    type Target = BTreeMap<Name, TrainingView>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl TrainingJobs {
    /// Names of the elastic TrainingJobs, in their order.
    pub(crate) fn elastic(&self) -> impl Iterator<Item = &Name> {
        self.elastic.iter()
    }

    /// Whether any TrainingJob is elastic.
    pub(crate) fn has_elastic(&self) -> bool {
        !self.elastic.is_empty()
    }

    /// Puts a TrainingJob in place of its older state.
    pub(crate) fn insert(&mut self, name: Name, job: TrainingView) {
        if job.facts.elastic.is_some() {
            self.elastic.insert(name.clone());
        } else {
            self.elastic.remove(&name);
        }
        self.all.insert(name, job);
    }

    /// Takes a TrainingJob out.
    pub(crate) fn remove(&mut self, name: &Name) -> Option<TrainingView> {
        self.elastic.remove(name);
        self.all.remove(name)
    }

    /// Notes on how many nodes the pods of a TrainingJob are; false where the TrainingJob is not known any more.
    pub(crate) fn note_counted(&mut self, name: &Name, counted: Option<Counted>) -> bool {
        let Some(job) = self.all.get_mut(name) else { return false };
        job.counted = counted;
        true
    }
}
