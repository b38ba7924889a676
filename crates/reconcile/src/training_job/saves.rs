//! Saved work of jobs as far as this process knows: listings of checkpoints in stores, and requests to save.

use std::sync::Arc;

use berth_api::berth::CheckpointInfo;
use berth_api::conditions::training_types;
use berth_api::labels;
use berth_cache::training_view::TrainingView;
use berth_cache::{Name, View, WorkloadView};
use berth_jobs::training::Saved;
use jiff::Timestamp;

use crate::job::save_requests::LastSave;
use crate::notes::{JobRecords, Notes, WorkloadRecords};
use crate::training_job::listing::{Listing, ListingNews};
use crate::workload::status::is_true;
use crate::write::{Checkpoint, CheckpointPlace, Purpose};

/// Keeps the last save of a Workload's job when the eviction was stored: the job was not asked to save before the eviction.
pub(crate) fn note_evicted(notes: &mut Notes, view: &View, name: &Name) {
    let Some(workload) = view.workloads().get(name) else { return };
    let save = last_save(notes.jobs(), view, workload);
    notes.workloads_mut().change_known(&workload.uid, |notes| notes.save_mut().note_evicted(save));
}

/// Keeps the checkpoint from which the run of a TrainingJob begins, for as long as the run lasts.
pub(crate) fn note_start(jobs: &mut JobRecords, view: &View, name: &Name) {
    let Some(job) = view.training().get(name) else { return };
    let saved = place_of(view, name, job).and_then(|_| saved_of(jobs, view, name, job)?.uri);
    let id = saved.as_deref().and_then(|uri| Some(uri.rsplit_once('/')?.1.to_owned()));
    jobs.change(&job.uid, |notes| notes.training_mut().note_begin(id));
}

/// Handles the result of a listing of checkpoints; `None` if the TrainingJob is not known any more.
pub fn note_listing(
    jobs: &mut JobRecords,
    view: &View,
    name: &Name,
    place: Option<&CheckpointPlace>,
    found: Result<Vec<Checkpoint>, String>,
    now: Timestamp,
) -> Option<ListingNews> {
    let job = view.training().get(name)?;
    let Some(place) = place.filter(|place| place_of(view, name, job).as_ref() == Some(*place)) else {
        // The TrainingJob or its checkpoint store was edited meanwhile: the present place of the checkpoints has not been listed yet.
        return Some(ListingNews::default());
    };
    Some(jobs.change(&job.uid, |notes| notes.training_mut().take_listing(place, found, now)))
}

/// Forgets the deleted checkpoints of a TrainingJob; false if the TrainingJob is not known any more.
pub(crate) fn note_deleted(jobs: &mut JobRecords, view: &View, name: &Name, place: Option<&CheckpointPlace>) -> bool {
    let Some(job) = view.training().get(name) else { return false };
    // The surplus of checkpoints contains exactly the deleted checkpoints: only a listing changes the surplus, and a job has one request at a time.
    let listing = jobs.of(&job.uid).training().listing();
    let listing = listing.filter(|listing| place.is_some_and(|place| listing.is_of(place)));
    if let Some(gone) = listing.map(|listing| surplus(jobs, job, listing)) {
        jobs.change(&job.uid, |notes| notes.training_mut().drop_checkpoints(&gone));
    }
    true
}

/// Time and step of the last save of a Workload's job, as far as they are known.
pub(crate) fn last_save(jobs: &JobRecords, view: &View, workload: &WorkloadView) -> Option<LastSave> {
    if let Some(name) = workload.training_job() {
        let job = view.training().get(&name)?;
        return saved_of(jobs, view, &name, job).map(|saved| (saved.at, saved.step));
    }
    let at = view.job_of(workload)?.annotation(labels::LAST_CHECKPOINT_TIME)?.parse::<Timestamp>().ok()?;
    Some((at, None))
}

/// The listing of the place where the checkpoints of a TrainingJob are now.
pub(crate) fn listing_of<'a>(
    jobs: &'a JobRecords,
    view: &View,
    name: &Name,
    job: &TrainingView,
) -> Option<&'a Listing> {
    let listing = jobs.of(&job.uid).training().listing()?;
    place_of(view, name, job).is_some_and(|place| listing.is_of(&place)).then_some(listing)
}

/// The last checkpoint of a TrainingJob: from the listing of its store, from its status, or from the job's own report.
pub(crate) fn saved_of(jobs: &JobRecords, view: &View, name: &Name, job: &TrainingView) -> Option<Saved> {
    let place = place_of(view, name, job);
    let shown = match (&place, listing_of(jobs, view, name, job).filter(|listing| listing.at.is_some())) {
        (Some(place), Some(listing)) => listing.listed.last().map(|last| Saved {
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

/// Ids of checkpoints beyond the job's maximum: the oldest checkpoints, but never the last checkpoint, nor the checkpoint from which the present run began.
pub(crate) fn surplus(jobs: &JobRecords, job: &TrainingView, listing: &Listing) -> Vec<String> {
    let most = usize::try_from(job.facts.max_checkpoints.max(1)).unwrap_or(1);
    let remembered = || job.status.checkpoint.as_ref()?.resumed_from.as_ref();
    let begun = jobs.of(&job.uid).training().begun_from().unwrap_or_else(remembered);
    let old = listing.listed.len().saturating_sub(most);
    let ids = listing.listed.iter().take(old).map(|checkpoint| &checkpoint.id);
    ids.filter(|id| begun != Some(*id)).cloned().collect()
}

/// Notes that the pods of a Workload were notified, or cannot be notified. Pods that cannot be notified get no longer wait than other pods. After any failure
/// other than the refusal of pods that cannot be notified, the same annotations are written again, so that a pod that has them sees no change.
pub(crate) fn note_notified(workloads: &mut WorkloadRecords, workload: &str, purpose: Purpose) {
    workloads.change_known(workload, |notes| match purpose {
        Purpose::NotifyPods => notes.save_mut().note_notified(),
        _ => notes.save_mut().note_asked(),
    });
}

/// Notes that the status of a TrainingJob shows the request to save.
pub fn note_shown(workloads: &mut WorkloadRecords, view: &View, name: &Name) {
    let slice = view.training().get(name).and_then(|job| view.slice_of(&job.uid));
    if let Some(workload) = slice.filter(|workload| is_shown(view, workload)) {
        workloads.change_known(&workload.uid, |notes| notes.save_mut().note_shown());
    }
}

/// Ends the request to save of a TrainingJob whose workers have gone.
pub(crate) fn end_request(workloads: &mut WorkloadRecords, view: &View, name: &Name, now: Timestamp) {
    let slice = view.training().get(name).and_then(|job| view.slice_of(&job.uid));
    if let Some(slice) = slice {
        workloads.change_known(&slice.uid, |notes| notes.save_mut().end_request(now));
    }
}

/// The place in a store where the checkpoints of a TrainingJob are, if the TrainingJob names an existing store.
pub(crate) fn place_of(view: &View, name: &Name, job: &TrainingView) -> Option<CheckpointPlace> {
    let store = job.facts.store.as_ref()?;
    let spec = Arc::clone(view.stores().get(store)?);
    Some(CheckpointPlace { store: store.clone(), spec, namespace: name.0.clone(), job: name.1.clone() })
}

/// Whether the status of a Workload's TrainingJob says that the job is asked to save.
pub(crate) fn is_shown(view: &View, workload: &WorkloadView) -> bool {
    let job = workload.training_job().and_then(|name| view.training().get(&name));
    job.is_some_and(|job| is_true(&job.status.conditions, training_types::CHECKPOINT_REQUESTED))
}

fn remembered(info: &CheckpointInfo) -> Option<Saved> {
    Some(Saved { at: info.time.0, step: info.step, uri: info.path.clone() })
}
