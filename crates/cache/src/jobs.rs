//! The jobs of the view, with an index of the Jobs whose controller is of a kind that consists of Jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use berth_jobs::JobState;
use rustc_hash::FxHashMap;

use crate::object::{Kind, ObjectKey};

/// The jobs of all kinds by key; for reading, `Jobs` dereferences to the map.
#[derive(Debug, Default)]
pub struct Jobs {
    all: BTreeMap<ObjectKey, JobState>,
    /// The keys of Jobs by the uid of their controller. A Job may also name the uid of an object of another namespace as the uid of its controller.
    pub controlled: FxHashMap<Box<str>, BTreeSet<ObjectKey>>,
}

impl Deref for Jobs {
    type Target = BTreeMap<ObjectKey, JobState>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// The uid of the controlling job by which a Job is found as a part.
fn owner_key_of<'a>(key: &ObjectKey, job: &'a JobState) -> Option<&'a str> {
    let owner = job.owner.as_ref().filter(|_| key.kind == Kind::JOB)?;
    Kind::of_owner(&owner.kind).is_some().then_some(&*owner.uid)
}

impl Jobs {
    /// Stores a job in place of its older state.
    pub fn insert(&mut self, key: ObjectKey, job: JobState) {
        let uid = owner_key_of(&key, &job);
        let old = self.all.get(&key);
        if old.and_then(|old| owner_key_of(&key, old)) != uid {
            self.unlink(&key);
            if let Some(uid) = uid {
                self.controlled.entry(uid.into()).or_default().insert(key.clone());
            }
        }
        self.all.insert(key, job);
    }

    /// Removes a job.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<JobState> {
        self.unlink(key);
        self.all.remove(key)
    }

    fn unlink(&mut self, key: &ObjectKey) {
        let Some(uid) = self.all.get(key).and_then(|old| owner_key_of(key, old)) else { return };
        let Some(known) = self.controlled.get_mut(uid) else { return };
        known.remove(key);
        if known.is_empty() {
            self.controlled.remove(uid);
        }
    }

    /// Drops the stored object of a job if `lets_go` returns true, and keeps the job's state.
    pub(crate) fn shed_where(&mut self, key: &ObjectKey, lets_go: impl FnOnce(&JobState) -> bool) {
        if let Some(job) = self.all.get_mut(key).filter(|job| lets_go(job)) {
            job.shed();
        }
    }

    /// Drops the parts of a large job that no patch needs.
    pub fn lighten(&mut self, key: &ObjectKey) {
        if let Some(job) = self.all.get_mut(key) {
            job.lighten();
        }
    }

    /// The Jobs of a namespace that name a uid as the uid of their controller. The cost of `controlled_by` grows with the number of the Jobs that it finds.
    pub fn controlled_by<'a>(
        &'a self,
        namespace: &'a str,
        uid: &str,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a JobState)> + use<'a> {
        let first = ObjectKey { kind: Kind::JOB, namespace: namespace.to_owned(), name: String::new() };
        let known = self.controlled.get(uid).map(|known| known.range(first..)).into_iter().flatten();
        let here = known.take_while(move |key| key.namespace == namespace);
        let all = &self.all;
        here.filter_map(move |key| all.get_key_value(key))
    }
}

/// Whether two states of a job request quota by the same Workload, as far as this depends on the job itself.
pub fn asks_alike(old: &JobState, new: &JobState) -> bool {
    let asks = |job: &JobState| job.queue_name.is_some();
    asks(old) == asks(new) && old.owner == new.owner && old.prebuilt_workload == new.prebuilt_workload
}
