//! Saved work of jobs as far as this process knows it: listings of checkpoints in stores, and requests to save.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::berth::CheckpointInfo;
use berth_api::conditions::training_types;
use berth_api::labels;
use berth_jobs::training::Saved;
use jiff::Timestamp;

use crate::cache::training_view::TrainingView;
use crate::cache::{Name, View, WorkloadView};
use crate::job::save_requests::{Asked, Before, LastSave, Noted, Told};
use crate::workload::status::is_true;
use crate::write::{Checkpoint, CheckpointPlace, Purpose};

/// State about saved work.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    /// Last listing of a job's checkpoints, by uid of the TrainingJob.
    pub(crate) books: BTreeMap<String, Book>,
    /// The checkpoint from which the present run of a TrainingJob began, by its uid.
    pub(crate) begun: BTreeMap<String, Option<String>>,
    /// Workloads whose pods are notified that they are to stop, by uid, from the first try on.
    pub(crate) notified: BTreeMap<String, Told>,
    /// Last saves of jobs when this process evicted their Workloads, by uid of the Workload. An entry outlives the quota, because the status may lag
    /// behind.
    pub(crate) before: BTreeMap<String, Before>,
    /// Workloads that are to lose workers, and whose pods are asked to save first, by uid, from the first try on.
    pub(crate) asked: BTreeMap<String, Asked>,
}

/// A listing of one job's checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    /// The place that was listed. The listing says nothing of another place, should the job or its store be edited.
    place: CheckpointPlace,
    /// Complete checkpoints, oldest first.
    pub(crate) listed: Vec<Checkpoint>,
    /// Time of the last successful listing.
    pub(crate) at: Option<Timestamp>,
    /// Time of the last listing, successful or not.
    pub(crate) tried: Timestamp,
    /// Why the last listing failed.
    pub(crate) fault: Option<String>,
}

/// Result of a listing compared with the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Number of checkpoints that appeared since an earlier listing.
    pub(crate) fresh: usize,
    pub(crate) changed: bool,
}

impl Book {
    fn take(&mut self, mut listed: Vec<Checkpoint>, now: Timestamp) -> News {
        let mut fresh = 0;
        listed.sort_by(|a, b| a.rank().cmp(&b.rank()));
        if self.at.is_some() {
            let known: BTreeSet<&String> = self.listed.iter().map(|checkpoint| &checkpoint.id).collect();
            fresh = listed.iter().filter(|checkpoint| !known.contains(&checkpoint.id)).count();
        }
        self.at = Some(now);
        self.fault = None;
        let changed = self.listed != listed;
        self.listed = listed;
        News { fresh, changed }
    }
}

impl Saving {
    /// Notes a write that asks a job to save, or evicts it.
    pub(crate) fn note(&mut self, workload: String, noted: Noted) {
        match noted {
            Noted::Evicted(before) => drop(self.before.insert(workload, before)),
            Noted::Notified(told) => drop(self.notified.entry(workload).or_insert(told)),
            Noted::Asked(asked) => drop(self.asked.insert(workload, asked)),
        }
    }

    /// Notes that the pods of a workload were notified, or cannot be. Pods that cannot be notified are not waited for longer than others. Any other
    /// failure is tried again with the same annotations, so that a pod that has them sees no change.
    pub(crate) fn note_notified(&mut self, workload: &str, purpose: Purpose) {
        let request = match purpose {
            Purpose::NotifyPods => self.notified.get_mut(workload),
            _ => self.asked.get_mut(workload).map(|asked| &mut asked.told),
        };
        if let Some(request) = request {
            request.pods = true;
        }
    }

    /// Notes that the status of a TrainingJob shows the request to save.
    pub(crate) fn note_shown(&mut self, view: &View, name: &Name) {
        let slice = view.training.get(name).and_then(|job| view.slice_of(&job.uid));
        let Some(workload) = slice.filter(|workload| is_shown(view, workload)) else { return };
        if let Some(told) = self.notified.get_mut(&workload.uid) {
            told.user = true;
        }
        if let Some(asked) = self.asked.get_mut(&workload.uid) {
            asked.told.user = true;
        }
    }

    /// Keeps the last save of a workload's job when its eviction was stored: the job was not asked to save before that.
    pub(crate) fn note_evicted(&mut self, view: &View, name: &Name) {
        let Some(workload) = view.workloads.get(name) else { return };
        let save = self.last_save(view, workload);
        if let Some(before) = self.before.get_mut(&workload.uid) {
            before.save = save;
        }
    }

    /// Keeps the checkpoint from which the run of a TrainingJob begins, for as long as it runs.
    pub(crate) fn note_start(&mut self, view: &View, name: &Name) {
        let Some(job) = view.training.get(name) else { return };
        let saved = place_of(view, name, job).and_then(|_| self.saved_of(view, name, job)?.uri);
        let id = saved.as_deref().and_then(|uri| Some(uri.rsplit_once('/')?.1.to_owned()));
        self.begun.insert(job.uid.clone(), id);
    }

    /// Ends the request to save of a TrainingJob whose workers have gone.
    pub(crate) fn end_request(&mut self, view: &View, name: &Name, now: Timestamp) {
        let slice = view.training.get(name).and_then(|job| view.slice_of(&job.uid));
        if let Some(asked) = slice.and_then(|slice| self.asked.get_mut(&slice.uid)) {
            asked.end(now);
        }
    }

    /// Takes over the result of a listing; `None` if the TrainingJob is not known any more.
    pub(crate) fn note_listing(
        &mut self,
        view: &View,
        name: &Name,
        place: Option<&CheckpointPlace>,
        found: Result<Vec<Checkpoint>, String>,
        now: Timestamp,
    ) -> Option<News> {
        let job = view.training.get(name)?;
        let Some(place) = place.filter(|place| place_of(view, name, job).as_ref() == Some(*place)) else {
            // The job or its store was edited meanwhile: the present place is still to be listed.
            return Some(News::default());
        };
        let unseen = || Book { place: place.clone(), listed: Vec::new(), at: None, tried: now, fault: None };
        let book = self.books.entry(job.uid.clone()).or_insert_with(unseen);
        if book.place != *place {
            *book = unseen();
        }
        book.tried = now;
        Some(match found {
            Ok(listed) => book.take(listed, now),
            Err(fault) => {
                book.fault = Some(fault);
                News::default()
            }
        })
    }

    /// Forgets the deleted checkpoints of a TrainingJob; false where the TrainingJob is not known any more.
    pub(crate) fn note_deleted(&mut self, view: &View, name: &Name, place: Option<&CheckpointPlace>) -> bool {
        let Some(job) = view.training.get(name) else { return false };
        let asked = |book: &Book| Some(&book.place) == place;
        // These ids are those of the request: only a listing changes them, and a job has one request at a time.
        let book = self.books.get(&job.uid).filter(|book| asked(book));
        let gone = book.map(|book| self.surplus(job, book)).unwrap_or_default();
        if let Some(book) = self.books.get_mut(&job.uid).filter(|book| asked(book)) {
            book.listed.retain(|checkpoint| !gone.contains(&checkpoint.id));
        }
        true
    }

    /// Forgets the requests to save of a Workload that has gone or lost its quota.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.notified.remove(uid);
        self.asked.remove(uid);
    }

    /// Time of the last save of a workload's job, and its step, as far as they are known.
    pub(crate) fn last_save(&self, view: &View, workload: &WorkloadView) -> Option<LastSave> {
        if let Some(name) = workload.training_job() {
            let job = view.training.get(&name)?;
            return self.saved_of(view, &name, job).map(|saved| (saved.at, saved.step));
        }
        let at = view.job_of(workload)?.annotation(labels::LAST_CHECKPOINT_TIME)?.parse::<Timestamp>().ok()?;
        Some((at, None))
    }

    /// The listing of the place where the checkpoints of a TrainingJob are now.
    pub(crate) fn book_of(&self, view: &View, name: &Name, job: &TrainingView) -> Option<&Book> {
        let book = self.books.get(&job.uid)?;
        place_of(view, name, job).is_some_and(|place| place == book.place).then_some(book)
    }

    /// The last checkpoint of a TrainingJob: as its store shows it, as its status remembers it, or as it says itself.
    pub(crate) fn saved_of(&self, view: &View, name: &Name, job: &TrainingView) -> Option<Saved> {
        let place = place_of(view, name, job);
        let shown = match (&place, self.book_of(view, name, job).filter(|book| book.at.is_some())) {
            (Some(place), Some(book)) => book.listed.last().map(|last| Saved {
                at: last.at,
                step: Some(last.step),
                uri: Some(place.uri_of(&last.id)),
            }),
            (Some(place), None) => {
                let known = job.status.checkpoint.as_ref().and_then(|shown| remembered(shown.latest.as_ref()?));
                known.filter(|saved| saved.uri.as_deref().is_none_or(|uri| place.has(uri)))
            }
            (None, _) => None,
        };
        shown.into_iter().chain(job.saved.clone()).max_by_key(|saved| saved.at)
    }

    /// Ids of checkpoints beyond the maximum: the oldest ones, never the last, nor the one from which the present run began.
    pub(crate) fn surplus(&self, job: &TrainingView, book: &Book) -> Vec<String> {
        let most = usize::try_from(job.facts.max_checkpoints.max(1)).unwrap_or(1);
        let remembered = || job.status.checkpoint.as_ref()?.resumed_from.clone();
        let begun = self.begun.get(&job.uid).cloned().unwrap_or_else(remembered);
        let old = book.listed.len().saturating_sub(most);
        let ids = book.listed.iter().take(old).map(|checkpoint| &checkpoint.id);
        ids.filter(|id| begun.as_ref() != Some(id)).cloned().collect()
    }
}

/// The place where the checkpoints of a TrainingJob are, when it names a store that exists.
pub(crate) fn place_of(view: &View, name: &Name, job: &TrainingView) -> Option<CheckpointPlace> {
    let store = job.facts.store.as_ref()?;
    let spec = Arc::clone(view.stores.get(store)?);
    Some(CheckpointPlace { store: store.clone(), spec, namespace: name.0.clone(), job: name.1.clone() })
}

/// Whether the status of the TrainingJob of a workload says that it is asked to save.
pub(crate) fn is_shown(view: &View, workload: &WorkloadView) -> bool {
    let job = workload.training_job().and_then(|name| view.training.get(&name));
    job.is_some_and(|job| is_true(&job.status.conditions, training_types::CHECKPOINT_REQUESTED))
}

fn remembered(info: &CheckpointInfo) -> Option<Saved> {
    Some(Saved { at: info.time.0, step: info.step, uri: info.path.clone() })
}
