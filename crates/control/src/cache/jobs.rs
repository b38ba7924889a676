//! The jobs of the view, with an index of the Jobs that name as their controller an object that may be made of Jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use berth_jobs::JobState;
use rustc_hash::FxHashMap;

use crate::write::{Kind, ObjectKey};

/// Jobs of all kinds by name; readers use the map itself.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    all: BTreeMap<ObjectKey, JobState>,
    /// Jobs by the uid of their controller. A Job may name the uid of another namespace's object, too.
    pub(crate) controlled: FxHashMap<Box<str>, BTreeSet<ObjectKey>>,
}

impl Deref for Jobs {
    type Target = BTreeMap<ObjectKey, JobState>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// The uid by which a job is found as one of the Jobs of another object.
fn whole_of<'a>(key: &ObjectKey, job: &'a JobState) -> Option<&'a str> {
    let owner = job.owner.as_ref().filter(|_| key.kind == Kind::JOB)?;
    Kind::of_whole(&owner.kind).is_some().then_some(&*owner.uid)
}

impl Jobs {
    /// Puts a job in place of its older state.
    pub(crate) fn insert(&mut self, key: ObjectKey, job: JobState) {
        let uid = whole_of(&key, &job);
        let old = self.all.get(&key);
        if old.and_then(|old| whole_of(&key, old)) != uid {
            self.unlink(&key);
            if let Some(uid) = uid {
                self.controlled.entry(uid.into()).or_default().insert(key.clone());
            }
        }
        self.all.insert(key, job);
    }

    /// Takes a job out.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<JobState> {
        self.unlink(key);
        self.all.remove(key)
    }

    fn unlink(&mut self, key: &ObjectKey) {
        let Some(uid) = self.all.get(key).and_then(|old| whole_of(key, old)) else { return };
        let Some(known) = self.controlled.get_mut(uid) else { return };
        known.remove(key);
        if known.is_empty() {
            self.controlled.remove(uid);
        }
    }

    /// Lets go of the job itself where `lets_go` is true, and keeps its state.
    pub(crate) fn shed_where(&mut self, key: &ObjectKey, lets_go: impl FnOnce(&JobState) -> bool) {
        if let Some(job) = self.all.get_mut(key).filter(|job| lets_go(job)) {
            job.shed();
        }
    }

    /// Lets go of the parts of a large job that no patch needs.
    pub(crate) fn lighten(&mut self, key: &ObjectKey) {
        if let Some(job) = self.all.get_mut(key) {
            job.lighten();
        }
    }

    /// The Jobs of a namespace that name this uid as their controller's. Costs these.
    pub(crate) fn controlled_by<'a>(
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

/// Whether two states of a job request quota through the same Workload, as far as it depends on the job itself.
pub(crate) fn asks_alike(old: &JobState, new: &JobState) -> bool {
    let asks = |job: &JobState| job.queue_name.is_some();
    asks(old) == asks(new) && old.owner == new.owner && old.prebuilt_workload == new.prebuilt_workload
}
