//! The TrainingJobs of the view, with an index of the elastic TrainingJobs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::names::Name;
use crate::training_view::{Counted, TrainingView};

/// The TrainingJobs by name; for reading, `TrainingJobs` dereferences to the map.
#[derive(Debug, Default)]
pub struct TrainingJobs {
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
    /// Names of the elastic TrainingJobs, in the order of the names.
    pub fn elastic(&self) -> impl Iterator<Item = &Name> {
        self.elastic.iter()
    }

    /// Whether any TrainingJob is elastic.
    pub fn has_elastic(&self) -> bool {
        !self.elastic.is_empty()
    }

    /// Stores a TrainingJob in place of its older state.
    pub fn insert(&mut self, name: Name, job: TrainingView) {
        if job.facts.elastic.is_some() {
            self.elastic.insert(name.clone());
        } else {
            self.elastic.remove(&name);
        }
        self.all.insert(name, job);
    }

    /// Removes a TrainingJob.
    pub fn remove(&mut self, name: &Name) -> Option<TrainingView> {
        self.elastic.remove(name);
        self.all.remove(name)
    }

    /// Records the number of nodes on which the pods of a TrainingJob run; false if the TrainingJob is no longer known.
    pub fn note_counted(&mut self, name: &Name, counted: Option<Counted>) -> bool {
        let Some(job) = self.all.get_mut(name) else { return false };
        job.counted = counted;
        true
    }
}
