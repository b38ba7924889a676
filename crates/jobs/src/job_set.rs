//! The kind jobset.x-k8s.io/v1alpha2 JobSet.
//!
//! The templates of a suspended JobSet may change, except their affinity. The status of a JobSet does not count terminating pods, so a stop always ends with a
//! check of the pods. The JobSet controller merges a changed template into existing Jobs, which would keep the node selectors of another flavor. Control
//! therefore deletes the Jobs of a stopped JobSet, and the JobSet controller creates them again.

use crate::admission::{Place, topology_rules};
use crate::finish::Finish;
use crate::kind::JobKind;
use crate::metadata::is_stopping;
use crate::object_patch::ObjectPatch;
use crate::parts::Part;
use crate::patch::{merge_diff, merged};
use crate::placement::{Placement, PlacementError};
use crate::pod_set::{IndexLabels, pod_set_of};
use crate::pod_set_error::PodSetError;
use crate::template::TemplateParts;
use crate::unsupported::{unsupported_metadata, unsupported_template};
use berth_api::jobset::{self, JobSet as Object};
use berth_api::validation::FieldError;
use berth_api::{PodSet, ReclaimablePod, labels};
use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

const CONTROLLER: &str = "jobset.sigs.k8s.io/jobset-controller";
const COMPLETION_INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";
const JOB_INDEX_LABEL: &str = "jobset.sigs.k8s.io/job-index";

/// The kind JobSet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSet;

/// Size of an entry of `spec.replicatedJobs`.
struct Size<'a> {
    name: &'a str,
    replicas: i32,
    /// Number of pods of one replica.
    pods: i32,
}

/// An entry of `spec.replicatedJobs`: its size and its pod template.
struct Replicated<'a> {
    size: Size<'a>,
    template: PodTemplateSpec,
}

impl Replicated<'_> {
    fn count(&self) -> i32 {
        self.size.replicas.saturating_mul(self.size.pods)
    }

    fn parts(&self) -> TemplateParts {
        TemplateParts::of(&self.template, self.count())
    }
}

impl JobKind for JobSet {
    type Object = Object;
    const FRAMEWORK: &'static str = "jobset.x-k8s.io/jobset";
    const GROUP: &'static str = jobset::GROUP;
    const VERSION: &'static str = jobset::VERSION;
    const API_VERSION: &'static str = jobset::API_VERSION;
    const PLURAL: &'static str = "jobsets";
    const KIND: &'static str = "JobSet";
    const REPORTER: &'static str = "jobset.x-k8s.io/jobset-kueue-controller";
    const UID_LABEL: &'static str = "jobset.sigs.k8s.io/jobset-uid";
    /// AxLearn writes the queue of a JobSet into an annotation. Berth reads the queue of a JobSet from an annotation, too, although Kueue does not any more.
    const QUEUE_IN_ANNOTATION: bool = true;
    const MADE_OF_JOBS: bool = true;
    const JOBS_IN: Option<&'static str> = Some("replicatedJobs");
    const PART_LABEL: Option<&'static str> = Some("jobset.sigs.k8s.io/replicatedjob-name");
    const TAKES_AFFINITY: bool = false;

    fn metadata(job: &Object) -> &ObjectMeta {
        &job.metadata
    }

    fn metadata_mut(job: &mut Object) -> &mut ObjectMeta {
        &mut job.metadata
    }

    fn has_suspend(job: &Object) -> bool {
        job.spec.0.get("suspend").and_then(Value::as_bool).unwrap_or(false)
    }

    fn is_placed(job: &Object) -> bool {
        let marks = [("labels", labels::POD_SET), ("annotations", labels::WORKLOAD)];
        entries(job).iter().filter_map(|entry| entry.pointer("/template/spec/template/metadata")).any(|metadata| {
            marks.iter().any(|(field, key)| metadata.get(field).is_some_and(|all| all.get(key).is_some()))
        })
    }

    fn parts(job: &Object) -> Box<[Part]> {
        let all = sizes(job).unwrap_or_default().into_iter();
        all.map(|jobs| Part { name: jobs.name.into(), replicas: jobs.replicas, pods: jobs.pods }).collect()
    }

    fn attempt(job: &Object) -> Option<i32> {
        Some(job.status.as_ref().map_or(0, |status| status.restarts))
    }

    fn part_called<'a>(own: &str, name: &str, parts: &'a [Part]) -> Option<(&'a Part, i32)> {
        let within = name.strip_prefix(own)?.strip_prefix('-')?;
        parts.iter().find_map(|part| {
            let written = within.strip_prefix(&*part.name)?.strip_prefix('-')?;
            let index = written.parse().ok().filter(|index: &i32| index.to_string() == written && *index >= 0)?;
            Some((part, index))
        })
    }

    fn part_names(job: &Object) -> Vec<(String, i32)> {
        sizes(job).unwrap_or_default().iter().map(|jobs| (jobs.name.to_owned(), jobs.replicas)).collect()
    }

    fn is_active(job: &Object) -> bool {
        job.status.as_ref().is_some_and(|status| status.replicated_jobs_status.iter().any(|jobs| jobs.active > 0))
    }

    fn says_suspended(job: &Object) -> bool {
        let mut conditions = job.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|c| c.type_ == "Suspended" && c.status == "True")
    }

    fn has_come_to_rest(_: &Object) -> bool {
        false
    }

    fn has_seen_start(_: &Object) -> bool {
        false
    }

    fn finished(job: &Object) -> Option<Finish> {
        let conditions = &job.status.as_ref()?.conditions;
        let end = |c: &&_| is_end(c);
        conditions.iter().find(end).map(|c| Finish {
            success: c.type_ == "Completed",
            message: c.message.clone(),
            at: Some(c.last_transition_time.0.as_second()),
        })
    }

    fn pod_sets(job: &Object) -> Result<Vec<PodSet>, PodSetError> {
        let sets = replicated(job)?.into_iter().map(|jobs| {
            let index = IndexLabels {
                pod: Some(COMPLETION_INDEX_LABEL.to_owned()),
                sub_group: Some(JOB_INDEX_LABEL.to_owned()),
                sub_groups: Some(jobs.size.replicas),
            };
            pod_set_of(jobs.size.name, &jobs.template, jobs.count(), None, &index)
        });
        sets.collect()
    }

    fn template_path(index: usize) -> String {
        format!("spec.replicatedJobs[{index}].template.spec.template")
    }

    fn pods_ready(job: &Object) -> bool {
        let (Ok(jobs), Some(status)) = (sizes(job), &job.status) else { return false };
        let wanted: i64 = jobs.iter().map(|jobs| i64::from(jobs.replicas)).sum();
        let have = status.replicated_jobs_status.iter().map(|jobs| i64::from(jobs.ready) + i64::from(jobs.succeeded));
        have.sum::<i64>() >= wanted
    }

    fn reclaimable_pods(job: &Object) -> Vec<ReclaimablePod> {
        let (Ok(jobs), Some(status)) = (sizes(job), &job.status) else { return Vec::new() };
        if may_restart(job) {
            // A restart of the JobSet creates every Job again, including succeeded Jobs, so their pods may run again.
            return Vec::new();
        }
        let done = |jobs: &Size<'_>| {
            let status = status.replicated_jobs_status.iter().find(|status| status.name == jobs.name);
            status.map_or(0, |status| status.succeeded.min(jobs.replicas))
        };
        // If all Jobs of the JobSet have succeeded, the JobSet ends and releases its quota, so no pods are reported as reclaimable.
        if jobs.iter().all(|jobs| done(jobs) >= jobs.replicas) {
            return Vec::new();
        }
        let over = jobs.iter().filter(|jobs| done(jobs) > 0);
        over.map(|jobs| ReclaimablePod { name: jobs.name.to_owned(), count: done(jobs).saturating_mul(jobs.pods) })
            .collect()
    }

    fn pod_priority_class(job: &Object) -> Option<&str> {
        let classes =
            entries(job).iter().filter_map(|entry| entry.pointer("/template/spec/template/spec/priorityClassName"));
        classes.filter_map(Value::as_str).find(|name| !name.is_empty())
    }

    fn unsupported(job: &Object) -> Option<String> {
        let manager = job.spec.0.get("managedBy").and_then(Value::as_str).filter(|manager| *manager != CONTROLLER);
        let in_templates = || {
            let templates = entries(job).iter().enumerate();
            templates
                .filter_map(|(index, entry)| Some((index, template_of(entry)?)))
                .find_map(|(index, template)| unsupported_template(&Self::template_path(index), &template))
        };
        manager
            .map(|manager| format!("spec.managedBy: {manager:?} is not supported yet"))
            .or_else(|| unsupported_metadata(&job.metadata))
            .or_else(in_templates)
    }

    fn misplaced_queue(job: &Object) -> Option<String> {
        misplaced_queue(job).map(|(path, queue)| format!("{path} names queue {queue:?}"))
    }

    fn invalid(job: &Object) -> Vec<FieldError> {
        if let Some((path, _)) = misplaced_queue(job) {
            let text =
                format!("must name the queue that {path} names: a JobSet is admitted as a whole, and its Jobs with it");
            return vec![FieldError::new("metadata.labels[kueue.x-k8s.io/queue-name]", "", text)];
        }
        let jobs = match replicated(job) {
            Ok(jobs) => jobs,
            Err(problem) => return vec![FieldError::new("spec.replicatedJobs", "", problem.to_string())],
        };
        let places = jobs.iter().enumerate().map(|(index, jobs)| Place {
            path: format!("{}.metadata", Self::template_path(index)),
            metadata: jobs.template.metadata.as_ref(),
            count: Some(jobs.count()),
        });
        topology_rules(&places.collect::<Vec<_>>())
    }

    fn invalid_change(old: &Object, new: &Object) -> Vec<FieldError> {
        // A running JobSet without restarts must not get restarts, because Berth has released the quota of its ended Jobs, which a restart would run again.
        let runs = Self::queue_name(old).is_some() && !Self::has_suspend(old) && !Self::has_suspend(new);
        if !runs || most_restarts(old) > 0 || most_restarts(new) <= 0 {
            return Vec::new();
        }
        let message = "must not be added while the JobSet runs: it would make Jobs again whose quota has been given back; deactivate its \
                       Workload first";
        vec![FieldError::new("spec.failurePolicy", "", message)]
    }

    fn suspend_patch(job: &Object) -> ObjectPatch {
        patch(job, None, Some(true), None)
    }

    fn stop_patch(job: &Object) -> ObjectPatch {
        patch(job, Some(json!("true")), Some(true), None)
    }

    fn may_change_template(job: &Object) -> bool {
        // The template may change only after the JobSet controller has stopped the JobSet's pods: with a change before that, the controller would not notice
        // the stop, and the pods would stay on their nodes.
        Self::is_still(job)
    }

    fn unlock_patch(_: &Object) -> Option<ObjectPatch> {
        None
    }

    fn restore_patch(job: &Object, original: &[TemplateParts]) -> Option<ObjectPatch> {
        let marker = is_stopping(&job.metadata).then_some(Value::Null);
        let jobs = replicated(job).ok()?;
        // A Workload with another number of pod sets belongs to another job, so the JobSet must not get its templates.
        let changed = (jobs.len() == original.len()).then(|| {
            let changes = jobs.iter().zip(original).map(|(jobs, original)| change(jobs, original));
            with_changes(job, &changes.collect::<Vec<_>>())
        });
        let changed = changed.flatten();
        (marker.is_some() || changed.is_some()).then(|| patch(job, marker, None, changed))
    }

    fn start_patch(job: &Object, placements: &[Placement]) -> Result<ObjectPatch, PlacementError> {
        let jobs = replicated(job).unwrap_or_default();
        if jobs.len() != placements.len() {
            return Err(PlacementError::PodSets { given: placements.len(), wanted: jobs.len() });
        }
        let mut changes = Vec::with_capacity(jobs.len());
        for jobs in &jobs {
            let named = placements.iter().find(|placement| placement.pod_set == jobs.size.name);
            let placement =
                named.ok_or(PlacementError::PodSets { given: placements.len(), wanted: placements.len() })?;
            let have = jobs.parts();
            let want = placement.apply(&have)?;
            if want.affinity != have.affinity {
                return Err(PlacementError::NoAffinity { kind: Self::KIND });
            }
            changes.push(change(jobs, &want));
        }
        let marker = is_stopping(&job.metadata).then_some(Value::Null);
        Ok(patch(job, marker, Some(false), with_changes(job, &changes)))
    }
}

fn is_end(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> bool {
    matches!(condition.type_.as_str(), "Completed" | "Failed") && condition.status == "True"
}

/// Whether a failure may restart the JobSet, by `spec.failurePolicy`.
fn may_restart(job: &Object) -> bool {
    let restarts = job.status.as_ref().map_or(0, |status| i64::from(status.restarts_count_towards_max));
    restarts < most_restarts(job)
}

/// Largest number of restarts that failures may cause in a JobSet.
fn most_restarts(job: &Object) -> i64 {
    let Some(policy) = job.spec.0.get("failurePolicy") else { return 0 };
    let mut rules = policy.get("rules").and_then(Value::as_array).into_iter().flatten();
    let endless = |rule: &Value| rule.get("action").is_some_and(|action| action == "RestartJobSetAndIgnoreMaxRestarts");
    if rules.any(endless) { i64::MAX } else { policy.get("maxRestarts").and_then(Value::as_i64).unwrap_or_default() }
}

/// The first queue that a Job template of a JobSet without a queue names, with the field.
fn misplaced_queue(job: &Object) -> Option<(String, &str)> {
    if JobSet::queue_name(job).is_some() {
        return None;
    }
    entries(job).iter().enumerate().find_map(|(index, entry)| {
        let queue = entry.pointer("/template/metadata/labels")?.get(labels::QUEUE_NAME)?.as_str()?;
        let queue = Some(queue).filter(|queue| !queue.is_empty())?;
        Some((format!("spec.replicatedJobs[{index}].template.metadata.labels[{}]", labels::QUEUE_NAME), queue))
    })
}

fn entries(job: &Object) -> &[Value] {
    job.spec.0.get("replicatedJobs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn template_of(entry: &Value) -> Option<PodTemplateSpec> {
    serde_json::from_value(entry.pointer("/template/spec/template")?.clone()).ok()
}

/// Sizes of the JobSet's replicated jobs, in order.
fn sizes(job: &Object) -> Result<Vec<Size<'_>>, PodSetError> {
    let read = entries(job).iter().enumerate().map(|(index, entry)| {
        let number = |path: &str, default: i32| match entry.pointer(path) {
            None | Some(Value::Null) => Some(default),
            Some(value) => i32::try_from(value.as_i64()?).ok().filter(|number| *number >= 0),
        };
        let size = || {
            let replicas = number("/replicas", 1)?;
            let parallelism = number("/template/spec/parallelism", 1)?;
            let pods = number("/template/spec/completions", parallelism)?.min(parallelism);
            Some(Size { name: entry.get("name").and_then(Value::as_str).unwrap_or_default(), replicas, pods })
        };
        size().ok_or(PodSetError::Counts(index))
    });
    read.collect()
}

/// The replicated jobs of a JobSet, in order.
fn replicated(job: &Object) -> Result<Vec<Replicated<'_>>, PodSetError> {
    let read = sizes(job)?.into_iter().zip(entries(job)).enumerate().map(|(index, (size, entry))| {
        let field = format!("spec.replicatedJobs[{index}].template");
        let given: JobTemplateSpec = serde_json::from_value(entry.get("template").cloned().unwrap_or_default())
            .map_err(|error| PodSetError::Field { field: field.clone(), fault: error.to_string() })?;
        let spec = given.spec.ok_or_else(|| PodSetError::Missing(format!("{field}.spec")))?;
        Ok(Replicated { size, template: spec.template })
    });
    read.collect()
}

/// Merge patch that gives the pod template of a replicated job the parts `want`; `None` if the template has them.
fn change(jobs: &Replicated, want: &TemplateParts) -> Option<Value> {
    merge_diff(&jobs.parts().to_value(), &want.to_value())
}

/// `spec.replicatedJobs` with changed pod templates; `None` if no template changes.
fn with_changes(job: &Object, changes: &[Option<Value>]) -> Option<Value> {
    if changes.iter().all(Option::is_none) {
        return None;
    }
    let entry = |(entry, change): (&Value, &Option<Value>)| {
        let Some(change) = change else { return entry.clone() };
        let mut entry = merged(entry, &json!({"template": {"spec": {"template": change}}}));
        // Maps that a start added and a restore emptied are removed from the template, because the API server would keep the empty maps.
        for (path, field) in [("metadata", "annotations"), ("metadata", "labels"), ("spec", "nodeSelector")] {
            let parent = entry.pointer_mut(&format!("/template/spec/template/{path}")).and_then(Value::as_object_mut);
            if let Some(parent) = parent.filter(|parent| parent.get(field) == Some(&json!({}))) {
                parent.remove(field);
            }
        }
        entry
    };
    Some(entries(job).iter().zip(changes).map(entry).collect())
}

/// A patch of a JobSet. If `marker` is given, it becomes the value of the annotation of a running stop, and null removes the annotation.
fn patch(job: &Object, marker: Option<Value>, suspend: Option<bool>, replicated_jobs: Option<Value>) -> ObjectPatch {
    let mut patch = ObjectPatch::of(&job.metadata);
    if let Some(marker) = marker {
        patch = patch.annotations([(labels::STOPPING, marker)]);
    }
    if let Some(suspend) = suspend {
        patch = patch.spec("suspend", suspend);
    }
    if let Some(jobs) = replicated_jobs {
        patch = patch.spec("replicatedJobs", jobs);
    }
    patch
}
