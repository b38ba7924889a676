//! The kind batch/v1 Job.
//!
//! The API server accepts a change of a Job's template only while the Job is suspended, has no active pods and has no start time. The start of a Job is one
//! write, which sets `spec.suspend` to false and places the pods of the template. The stop of a Job is a sequence of writes: suspend the Job, wait for its
//! pods, clear the start time if the Job controller has not done so, and restore the template.

mod end;
mod rules;

pub(crate) use end::{end_of, finish_of};

use crate::equivalence::requests_digest;
use crate::finish::Finish;
use crate::kind::JobKind;
use crate::metadata::{annotation, go_bool, is_stopping, label};
use crate::object_patch::ObjectPatch;
use crate::parts::PartSize;
use crate::patch::merge_diff;
use crate::placement::{Placement, PlacementError};
use crate::pod_set::{IndexLabels, pod_set_of};
use crate::pod_set_error::PodSetError;
use crate::template::{TemplateParts, is_placed};
use crate::training::{RoleState, role_of};
use crate::unsupported::{unsupported_metadata, unsupported_template};
use berth_api::validation::FieldError;
use berth_api::{DEFAULT_POD_SET_NAME, PodSet, ReclaimablePod, labels};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// Path of a Job's pod template.
const TEMPLATE: &str = "spec.template";
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";
/// Label of a Job with the attempt of its JobSet for which the Job was made.
const JOB_SET_ATTEMPT_LABEL: &str = "jobset.sigs.k8s.io/restart-attempt";
const COMPLETION_INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// The kind batch/v1 Job.
#[derive(Clone, Copy, Debug)]
pub struct BatchJob;

impl JobKind for BatchJob {
    type Object = Job;
    const FRAMEWORK: &'static str = "batch/job";
    const GROUP: &'static str = "batch";
    const VERSION: &'static str = "v1";
    const API_VERSION: &'static str = "batch/v1";
    const PLURAL: &'static str = "jobs";
    const KIND: &'static str = "Job";
    const REPORTER: &'static str = "batch/job-kueue-controller";
    const UID_LABEL: &'static str = "batch.kubernetes.io/controller-uid";
    const WRITES_STATUS: bool = true;
    const BUILT_IN: bool = true;
    const LEAN_PATCHES: bool = true;

    fn metadata(job: &Job) -> &ObjectMeta {
        &job.metadata
    }

    fn metadata_mut(job: &mut Job) -> &mut ObjectMeta {
        &mut job.metadata
    }

    fn has_suspend(job: &Job) -> bool {
        has_suspend(job)
    }

    fn is_placed(job: &Job) -> bool {
        job.spec.as_ref().is_some_and(|spec| is_placed(&spec.template))
    }

    fn attempt(job: &Job) -> Option<i32> {
        label(&job.metadata, JOB_SET_ATTEMPT_LABEL)?.parse().ok()
    }

    fn part_size(job: &Job) -> Option<PartSize> {
        let spec = job.spec.as_ref()?;
        Some(PartSize { pods: pod_count(spec), asks: requests_digest(&spec.template) })
    }

    fn is_active(job: &Job) -> bool {
        status(job, |s| s.active) > 0 || status(job, |s| s.terminating) > 0
    }

    fn pods_there(job: &Job) -> i32 {
        status(job, |s| s.active).max(0).saturating_add(status(job, |s| s.terminating).max(0))
    }

    fn says_suspended(job: &Job) -> bool {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == "Suspended" && c.status == "True")
    }

    fn has_come_to_rest(job: &Job) -> bool {
        Self::is_still(job) && has_start_time(job)
    }

    fn has_seen_start(job: &Job) -> bool {
        // Berth starts only Jobs without a start time (`may_change_template`), so a start time shows that the Job controller has noticed the start.
        has_start_time(job)
    }

    fn finished(job: &Job) -> Option<Finish> {
        finish_of(job)
    }

    fn pod_sets(job: &Job) -> Result<Vec<PodSet>, PodSetError> {
        let Some(spec) = &job.spec else { return Err(PodSetError::Missing("spec".to_owned())) };
        for (field, given) in [("parallelism", spec.parallelism), ("completions", spec.completions)] {
            if let Some(given) = given.filter(|given| *given < 0) {
                return Err(PodSetError::Negative { field, given });
            }
        }
        let count = pod_count(spec);
        let min_count = min_parallelism(&job.metadata, count)?;
        let index = IndexLabels { pod: Some(COMPLETION_INDEX_LABEL.to_owned()), ..IndexLabels::default() };
        Ok(vec![pod_set_of(DEFAULT_POD_SET_NAME, &spec.template, count, min_count, &index)?])
    }

    fn template_path(_: usize) -> String {
        TEMPLATE.to_owned()
    }

    fn pods_ready(job: &Job) -> bool {
        let wanted = job.spec.as_ref().map_or(0, pod_count);
        // The Job starts no further pods for indexes that have failed finally.
        let left = job.spec.as_ref().map_or(0, |spec| left(job, spec));
        let there = status(job, |s| s.ready).saturating_add(uncounted(job));
        there >= wanted.min(left) || there.saturating_add(status(job, |s| s.succeeded)) >= wanted
    }

    fn pods_succeeded(job: &Job) -> bool {
        let Some(spec) = &job.spec else { return false };
        let wanted = spec.completions.unwrap_or_else(|| pod_count(spec));
        wanted > 0 && status(job, |s| s.succeeded).saturating_add(uncounted(job)) >= wanted
    }

    fn has_independent_pods(job: &Job) -> bool {
        job.spec.as_ref().is_some_and(|spec| !is_indexed(spec) && pod_count(spec) > 1)
    }

    fn reclaimable_pods(job: &Job) -> Vec<ReclaimablePod> {
        let Some(spec) = &job.spec else { return Vec::new() };
        if spec.parallelism.unwrap_or(1) == 1 || done(job, spec) == 0 {
            return Vec::new();
        }
        let reclaimable = pod_count(spec).saturating_sub(left(job, spec));
        if reclaimable <= 0 {
            return Vec::new();
        }
        vec![ReclaimablePod { name: DEFAULT_POD_SET_NAME.to_owned(), count: reclaimable }]
    }

    fn pod_priority_class(job: &Job) -> Option<&str> {
        let name = job.spec.as_ref()?.template.spec.as_ref()?.priority_class_name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    fn unsupported(job: &Job) -> Option<String> {
        let spec = job.spec.as_ref()?;
        let manager = spec.managed_by.as_deref().filter(|manager| *manager != JOB_CONTROLLER);
        manager
            .map(|manager| format!("spec.managedBy: {manager:?} is not supported yet"))
            .or_else(|| unsupported_metadata(&job.metadata))
            .or_else(|| unsupported_template(TEMPLATE, &spec.template))
    }

    fn training_role(job: &Job) -> Option<RoleState> {
        role_of(job)
    }

    fn training_of_pods(job: &Job) -> Option<&str> {
        let pods = job.spec.as_ref()?.template.metadata.as_ref()?;
        pods.labels.as_ref()?.get(labels::TRAINING_JOB_UID).map(String::as_str)
    }

    fn invalid(job: &Job) -> Vec<FieldError> {
        rules::invalid(job)
    }

    fn is_tolerated(wrong: &FieldError, old: &Job, new: &Job) -> bool {
        rules::is_tolerated(wrong, old, new)
    }

    fn invalid_change(old: &Job, new: &Job) -> Vec<FieldError> {
        rules::invalid_change(old, new)
    }

    fn suspend_patch(job: &Job) -> ObjectPatch {
        ObjectPatch::of(&job.metadata).spec("suspend", true)
    }

    fn stop_patch(job: &Job) -> ObjectPatch {
        ObjectPatch::of(&job.metadata).annotation(labels::STOPPING, Some("true")).spec("suspend", true)
    }

    fn may_change_template(job: &Job) -> bool {
        has_suspend(job) && !has_start_time(job) && status(job, |s| s.active) == 0
    }

    fn unlock_patch(job: &Job) -> Option<ObjectPatch> {
        let locked = has_suspend(job) && has_start_time(job) && !Self::is_active(job) && Self::finished(job).is_none();
        locked.then(|| ObjectPatch::of(&job.metadata).status(json!({"startTime": null})))
    }

    fn restore_patch(job: &Job, original: &[TemplateParts]) -> Option<ObjectPatch> {
        let mut notes = end_of_stop(job);
        if own_parallelism(job).is_some() {
            notes.insert(labels::OWN_PARALLELISM.to_owned(), Value::Null);
        }
        let mut spec = Map::new();
        // A Workload with another number of pod sets belongs to another job, so the Job must not get its template.
        if let ([original], Some(job_spec), Some(have)) = (original, &job.spec, current(job)) {
            if let Some(template) = merge_diff(&have.to_value(), &original.to_value()) {
                spec.insert("template".to_owned(), template);
            }
            if accepts_fewer(job) || ran_in_part(job_spec, original) {
                resize(&mut spec, job, job_spec, original.count);
                let own = own_parallelism(job).filter(|own| *own > original.count);
                if let (Some(parallelism), Some(own)) = (spec.get_mut("parallelism"), own)
                    && job_spec.completions == Some(original.count)
                {
                    *parallelism = json!(own);
                }
            }
        }
        (!notes.is_empty() || !spec.is_empty()).then(|| patch(job, notes, spec))
    }

    fn start_patch(job: &Job, placements: &[Placement]) -> Result<ObjectPatch, PlacementError> {
        let (Some(job_spec), Some(have), [placement]) = (&job.spec, current(job), placements) else {
            return Err(PlacementError::PodSets { given: placements.len(), wanted: 1 });
        };
        let want = placement.apply(&have)?;
        let mut spec = Map::new();
        spec.insert("suspend".to_owned(), json!(false));
        if let Some(template) = merge_diff(&have.to_value(), &want.to_value()) {
            spec.insert("template".to_owned(), template);
        }
        if accepts_fewer(job) {
            resize(&mut spec, job, job_spec, placement.count);
        }
        let mut notes = end_of_stop(job);
        // A placed Job was suspended while it ran, and still has the parallelism of its admission instead of the user's.
        if !Self::is_placed(job) {
            let own =
                job_spec.parallelism.filter(|own| *own != pod_count(job_spec) && spec.contains_key("parallelism"));
            if own.is_some() || own_parallelism(job).is_some() {
                notes.insert(labels::OWN_PARALLELISM.to_owned(), json!(own.map(|own| own.to_string())));
            }
        }
        Ok(patch(job, notes, spec))
    }
}

/// Number of pods of the Job that may run at the same time: the parallelism, but not more than the completions.
fn pod_count(spec: &JobSpec) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1);
    spec.completions.map_or(parallelism, |completions| parallelism.min(completions))
}

fn accepts_fewer(job: &Job) -> bool {
    annotation(&job.metadata, labels::JOB_MIN_PARALLELISM).is_some()
}

/// Whether a Job has fewer pods than its Workload requests, within the minimum of the Workload. The Workload's minimum counts, because a client may have
/// removed the Job's annotation `job-min-parallelism`. A Workload without a minimum has the number of pods that the user chose.
fn ran_in_part(spec: &JobSpec, original: &TemplateParts) -> bool {
    original.min_count.is_some_and(|least| (least..original.count).contains(&pod_count(spec)))
}

/// Sets the parallelism in a patch, and the completions if they must follow the parallelism.
fn resize(patch: &mut Map<String, Value>, job: &Job, spec: &JobSpec, count: i32) {
    if pod_count(spec) == count {
        return;
    }
    patch.insert("parallelism".to_owned(), json!(count));
    // Completions below the admitted `count` were set by an earlier start with fewer pods, so the patch sets the completions to `count`, too. Completions of a
    // Job that is not indexed are immutable.
    let followed = completions_follow(&job.metadata) || spec.completions.is_some_and(|completions| completions < count);
    if followed && is_indexed(spec) {
        patch.insert("completions".to_owned(), json!(count));
    }
}

/// The parallelism that the user wrote, if a start has replaced it by a smaller one and the user's value was larger than the completions.
fn own_parallelism(job: &Job) -> Option<i32> {
    annotation(&job.metadata, labels::OWN_PARALLELISM)?.parse().ok()
}

/// Whether the completions of a Job follow its parallelism.
fn completions_follow(metadata: &ObjectMeta) -> bool {
    annotation(metadata, labels::JOB_COMPLETIONS_EQUAL_PARALLELISM).and_then(go_bool).unwrap_or(false)
}

fn min_parallelism(metadata: &ObjectMeta, count: i32) -> Result<Option<i32>, PodSetError> {
    let key = labels::JOB_MIN_PARALLELISM;
    let Some(text) = annotation(metadata, key) else { return Ok(None) };
    match text.parse() {
        Ok(min) if (1..=count).contains(&min) => Ok(Some(min)),
        _ => Err(PodSetError::OutOfRange { key, text: text.to_owned(), most: count }),
    }
}

/// Number of succeeded pods that the Job's status does not count yet; for a moment these pods are neither ready nor succeeded in the status.
fn uncounted(job: &Job) -> i32 {
    let pods = job.status.as_ref().and_then(|s| s.uncounted_terminated_pods.as_ref()?.succeeded.as_ref());
    pods.map_or(0, |uids| i32::try_from(uids.len()).unwrap_or(i32::MAX))
}

/// Number of the Job's pods that need not run again. The pods of an Indexed Job that need not run again are those of indexes below its completions that have
/// completed or failed finally.
fn done(job: &Job, spec: &JobSpec) -> i32 {
    let Some(job_status) = job.status.as_ref().filter(|_| is_indexed(spec)) else {
        return status(job, |s| s.succeeded);
    };
    let lists = [&job_status.completed_indexes, &job_status.failed_indexes];
    let end = spec.completions.unwrap_or(pod_count(spec));
    count_indexes(lists.into_iter().filter_map(|list| list.as_deref()), end)
}

/// Number of the Job's pods that still have to end. A Job without `spec.completions` starts no pod after its first pod has succeeded.
fn left(job: &Job, spec: &JobSpec) -> i32 {
    spec.completions.unwrap_or(pod_count(spec)).saturating_sub(done(job, spec)).max(0)
}

/// Number of distinct indexes below `end` in lists such as `1,3-5,7`.
fn count_indexes<'a>(lists: impl Iterator<Item = &'a str>, end: i32) -> i32 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<i32>().ok()?, last.trim().parse::<i32>().ok()?);
        Some((first, last.min(end.saturating_sub(1))))
    };
    let mut ranges: Vec<(i32, i32)> = lists.flat_map(|list| list.split(',')).filter_map(range).collect();
    ranges.sort_unstable();
    let (mut count, mut next) = (0_i32, 0_i32);
    for (first, last) in ranges {
        let first = first.max(next);
        if first <= last {
            next = last.saturating_add(1);
            count = count.saturating_add(next.saturating_sub(first));
        }
    }
    count
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

fn has_suspend(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

fn has_start_time(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.start_time.is_some())
}

fn status(job: &Job, field: impl Fn(&JobStatus) -> Option<i32>) -> i32 {
    job.status.as_ref().and_then(field).unwrap_or(0)
}

fn current(job: &Job) -> Option<TemplateParts> {
    job.spec.as_ref().map(|spec| TemplateParts::of(&spec.template, pod_count(spec)))
}

/// The annotations of a patch that ends a running stop; empty if no stop is running.
fn end_of_stop(job: &Job) -> Map<String, Value> {
    let removed = is_stopping(&job.metadata).then(|| (labels::STOPPING.to_owned(), Value::Null));
    removed.into_iter().collect()
}

/// A patch of a Job's annotations and spec.
fn patch(job: &Job, notes: Map<String, Value>, spec: Map<String, Value>) -> ObjectPatch {
    let patch = ObjectPatch::of(&job.metadata).spec_fields(spec);
    if notes.is_empty() { patch } else { patch.annotations(notes) }
}
