//! A TrainingJob as control remembers it: the fields that decide at hand, its spec packed.

use std::sync::Arc;

use berth_api::berth::{TrainingJob, TrainingJobStatus};
use berth_api::conditions::{own_reasons, phases, training_types};
use berth_api::labels::ADMISSION_GATED_BY;
use berth_api::validation::summary;
use berth_jobs::training::{
    Cards, ROLES, Saved, TrainingFacts, WORKER, child_job_name, invalid_training_job, own_annotations, role_names,
    role_of_child, saved_of, training_facts, training_pod_sets,
};
use berth_jobs::{JobState, PodSetDigest, lets_go_first};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::{Name, View, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::training_job::training_figures;
use crate::workload::status::find;
use crate::write::{Kind, ObjectKey};

/// Identity of a set of pods: pods of one admission stay where they are while none fails and as many are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crew {
    pub(crate) admitted: Timestamp,
    pub(crate) failed: i32,
    pub(crate) wanted: i32,
}

/// The answer about such pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) crew: Crew,
    pub(crate) nodes: i32,
}

/// A TrainingJob with the key facts at hand.
#[derive(Clone, Debug)]
pub(crate) struct TrainingView {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    /// When it was created, in milliseconds since 1970.
    pub(crate) created: i64,
    pub(crate) deleting: bool,
    /// Being deleted, and objects that it owns are let go before it.
    pub(crate) leaves_pods: bool,
    /// Queue, priority and patience.
    pub(crate) facts: TrainingFacts,
    /// Annotations that its Workload carries.
    pub(crate) own_annotations: [(&'static str, Option<String>); 2],
    /// Controllers that gate its admission.
    pub(crate) admission_gates: Option<String>,
    /// Its last checkpoint, where its annotations name one.
    pub(crate) saved: Option<Saved>,
    /// Names of its roles, workers first.
    pub(crate) roles: Vec<String>,
    /// PriorityClass of its workers' pods.
    pub(crate) pod_priority_class: Option<String>,
    /// Its pod sets, to be compared with those of a Workload, or the faults of its spec.
    pub(crate) asked: Result<Vec<PodSetDigest>, String>,
    pub(crate) status: TrainingJobStatus,
    /// Number of nodes on which its pods were, when that was asked last.
    pub(crate) counted: Option<Counted>,
    /// Its spec and the metadata that matter, as JSON.
    packed: Arc<str>,
}

impl TrainingView {
    /// A TrainingJob as it was seen, in place of its older state.
    pub(crate) fn new(object: Box<TrainingJob>, older: Option<&Self>, cards: &Cards) -> Self {
        let TrainingJob { metadata, spec, status } = *object;
        let leaves_pods = lets_go_first(&metadata);
        let (uid, version) = (metadata.uid.clone(), metadata.resource_version);
        let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
        let (generation, deleting) = (metadata.generation.unwrap_or_default(), metadata.deletion_timestamp.is_some());
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        };
        let job = TrainingJob { metadata, spec, status: None };
        let packed: Arc<str> = serde_json::to_string(&job).unwrap_or_default().into();
        let known = older.filter(|older| older.packed == packed);
        let counted = older.filter(|older| Some(&older.uid) == uid.as_ref()).and_then(|older| older.counted);
        let template = job.spec.template.spec.as_ref();
        Self {
            uid: uid.unwrap_or_default(),
            resource_version: version.unwrap_or_default(),
            generation,
            created,
            deleting,
            leaves_pods,
            facts: training_facts(&job),
            own_annotations: own_annotations(&job),
            admission_gates: job.metadata.annotations.as_ref().and_then(|all| all.get(ADMISSION_GATED_BY).cloned()),
            saved: job.metadata.annotations.as_ref().and_then(saved_of),
            roles: role_names(&job),
            pod_priority_class: template.and_then(|spec| spec.priority_class_name.clone()),
            asked: known.map_or_else(|| asked(&job, cards), |known| known.asked.clone()),
            status: status.unwrap_or_default(),
            counted,
            packed: known.map_or(packed, |known| known.packed.clone()),
        }
    }

    /// The TrainingJob without its status.
    pub(crate) fn whole(&self) -> TrainingJob {
        serde_json::from_str(&self.packed).unwrap_or_default()
    }

    /// Whether the job has ended, whatever is left of its Jobs.
    pub(crate) fn is_over(&self) -> bool {
        has_ended(&self.status)
    }

    /// Whether the status shows that the run which began at that time has been up.
    pub(crate) fn was_up_since(&self, begun: Timestamp) -> bool {
        let told = find(&self.status.conditions, training_types::RUNNING);
        let told = told.filter(|told| told.status == "True" || told.reason == own_reasons::JOB_GONE);
        told.is_some_and(|told| told.last_transition_time.0 >= begun)
    }

    /// Whether the pods that would be made are those for which a Workload has quota: its spec may have changed since. The admission gives the number
    /// of workers.
    pub(crate) fn asks_as(&self, workload: &WorkloadView) -> bool {
        let Ok(asked) = &self.asked else { return false };
        asked.len() == workload.shape.digests.len()
            && asked.iter().zip(&workload.shape.digests).all(|(asked, runs)| {
                let count = if asked.name == WORKER { runs.count } else { asked.count };
                let asked = PodSetDigest { count, min_count: runs.min_count, ..asked.clone() };
                asked == *runs
            })
    }

    /// Whether a run may begin now with that many workers.
    pub(crate) fn begins_with(&self, workers: i32) -> bool {
        let asked = self.asked.iter().flatten().find(|set| set.name == WORKER);
        asked.is_some_and(|set| (set.min_count.unwrap_or(set.count)..=set.count).contains(&workers))
    }

    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

/// Whether a TrainingJob of that status has ended.
pub(crate) fn has_ended(status: &TrainingJobStatus) -> bool {
    matches!(status.phase.as_str(), phases::SUCCEEDED | phases::FAILED)
}

impl View {
    /// The Job that runs a role of a TrainingJob with that uid, when it is there.
    pub(crate) fn child_of(&self, name: &Name, uid: &str, role: &str) -> Option<&JobState> {
        let child = key(Kind::JOB, &(name.0.clone(), child_job_name(&name.1, role)));
        let ours = |job: &&JobState| job.owner.as_ref().is_some_and(|owner| *owner.uid == *uid);
        self.jobs.get(&child).filter(ours)
    }

    /// The TrainingJob of which a Job is a part: the Job has the name of one of its roles, and the TrainingJob has not ended. Any other Job that
    /// names it as its controller is a job like any other.
    pub(crate) fn training_of(&self, object: &ObjectKey, job: &JobState) -> Option<&TrainingView> {
        let owner = job.owner.as_ref().filter(|owner| *owner.kind == *Kind::TrainingJob.name())?;
        let role = role_of_child(&owner.name, &object.name).filter(|_| object.kind == Kind::JOB)?;
        let view = self.training.get(&(object.namespace.clone(), owner.name.to_string()));
        let view = view.filter(|view| *view.uid == *owner.uid && !view.is_over())?;
        // A running job may have roles that its spec does not have any more.
        let stands =
            || self.slice_of(&view.uid).is_some_and(|one| one.shape.digests.iter().any(|set| set.name == role));
        (view.roles.iter().any(|known| known == role) || stands()).then_some(view)
    }

    /// The Jobs that run any role of a TrainingJob with that uid, also one that its spec does not have any more.
    pub(crate) fn children_of<'a>(&'a self, name: &Name, uid: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let first = key(Kind::JOB, &(name.0.clone(), child_job_name(&name.1, "")));
        let prefix = first.clone();
        let below = move |key: &ObjectKey| {
            key.kind == prefix.kind && key.namespace == prefix.namespace && key.name.starts_with(&prefix.name)
        };
        let ours = |job: &JobState| job.owner.as_ref().is_some_and(|owner| *owner.uid == *uid);
        let roles = ROLES.map(|role| child_job_name(&name.1, role));
        let found = self.jobs.range(first..).take_while(move |(key, _)| below(key));
        found.filter(move |(key, job)| roles.contains(&key.name) && ours(job)).map(|(key, _)| key)
    }
}

impl Control {
    pub(crate) fn put_training_job(&mut self, name: Name, object: Option<Box<TrainingJob>>) {
        let object_key = key(Kind::TrainingJob, &name);
        let old = self.view.training.get(&name);
        let gone = old.map(|old| old.uid.clone());
        let new = object.map(|object| TrainingView::new(object, old, &self.settings.cards));
        let saved = old.zip(new.as_ref()).is_some_and(|(old, new)| old.saved != new.saved);
        match (old, &new) {
            (Some(old), Some(new)) if old.uid == new.uid && old.version() > new.version() => return,
            (Some(old), Some(new)) if old.uid == new.uid => {}
            (Some(old), _) => {
                let uid = old.uid.clone();
                self.forget_training_job(&object_key, &uid);
            }
            (None, _) => {}
        }
        let Some(new) = new else {
            if let Some(old) = self.view.training.remove(&name) {
                self.mirror_waiting_of(&old.uid);
            }
            return;
        };
        if let Some(old) = self.view.training.get(&name).filter(|old| old.uid == new.uid && self.context().leads()) {
            self.reports.measures.extend(training_figures::status_measures(&name, old, &new));
        }
        let (version, uid) = (new.version(), new.uid.clone());
        let gone = gone.filter(|gone| *gone != uid);
        if new.facts.elastic.is_some() {
            self.training.growth.jobs.insert(name.clone());
        } else {
            self.training.growth.jobs.remove(&name);
            self.training.growth.idle.remove(&uid);
        }
        let rules = |view: Option<&TrainingView>| {
            view.map(|view| (view.facts.elastic, view.facts.suspended, view.deleting, view.is_over()))
        };
        let store = |view: Option<&TrainingView>| view.and_then(|view| view.facts.store.clone());
        let known = self.view.training.get(&name);
        // A job that asks for other pods cannot restart with fewer of those that it has.
        let asks_otherwise = known.is_some_and(|known| known.asked != new.asked);
        let ruled_otherwise = rules(known) != rules(Some(&new));
        let saved = saved || asks_otherwise || ruled_otherwise || store(known) != store(Some(&new));
        self.view.training.insert(name.clone(), new);
        self.note_shown(&name);
        if saved {
            self.mirror_owned_by(&uid);
            self.touch_owned_by(&uid);
        }
        if ruled_otherwise {
            // After its end, Jobs that name it are jobs like any other.
            self.touch_jobs_below(&name.0, &uid);
        }
        if let Some(gone) = gone {
            self.mirror_waiting_of(&gone);
        }
        self.flights.seen(&object_key, version);
        self.touch(object_key);
    }

    /// Forgets a TrainingJob; objects that it owned are looked at again.
    fn forget_training_job(&mut self, object_key: &ObjectKey, uid: &str) {
        self.touch_owned_by(uid);
        self.touch_jobs_below(&object_key.namespace, uid);
        self.note_gone_training(object_key);
        let name = (object_key.namespace.clone(), object_key.name.clone());
        self.training.forget_training_job(&name, uid);
        self.reports.measures.push(training_figures::forget(&name));
        self.remains.starts.forget(uid);
        self.reports.told.remove(object_key);
        self.flights.vanished(object_key);
    }
}

impl Context<'_> {
    /// Whether a finished Workload is all that shows the end of its TrainingJob: if it went now, the job would run again. A deletion of the
    /// TrainingJob need not wait for a status that is refused.
    pub(crate) fn end_is_untold(&self, workload: &WorkloadView) -> bool {
        let Some((name, owner)) = workload.training_job().zip(workload.owner.as_ref()) else { return false };
        let view = self.view.training.get(&name).filter(|view| view.uid == owner.uid);
        let runs_on = view.filter(|view| !view.deleting && !view.is_over());
        runs_on.and_then(|view| self.view.slice_of(&view.uid)).is_some_and(|slice| slice.uid == workload.uid)
    }
}

fn asked(job: &TrainingJob, cards: &Cards) -> Result<Vec<PodSetDigest>, String> {
    let faults = invalid_training_job(job, cards);
    if !faults.is_empty() {
        return Err(summary(&faults));
    }
    let sets = training_pod_sets(job, cards).map_err(|faults| summary(&faults))?;
    Ok(sets.iter().map(PodSetDigest::of).collect())
}
