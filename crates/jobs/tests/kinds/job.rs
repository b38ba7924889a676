//! Answers of the kinds that can be suspended, called through `berth_jobs::KINDS` as control and the webhook call them.

use crate::kinds::case::{Case, Found, merged, pod_sets, stored};
use berth_jobs::{
    AdmissionState, JobObject, JobType, ObjectPatch, PodSetDigest, TemplateParts, lean_text, pod_sets_equivalent,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn answer(kind: JobType, case: &Case, key: &str) -> Option<Found> {
    let job = read(kind, &case.object);
    let start = || job.start_patch(&case.placements().unwrap_or_default());
    Some(match key {
        "podSets" => {
            Found::Exact(job.pod_sets().map_or_else(|problem| json!(problem.to_string()), |sets| pod_sets(&sets)))
        }
        "unreadable" => Found::Text(job.pod_sets().err().map(|problem| problem.to_string())),
        "unsupported" => Found::Text(job.state(None).unsupported.map(String::from)),
        "state" => Found::Part(state(&*job)),
        "start" => Found::Exact(start().map_or_else(|error| json!(error.to_string()), ObjectPatch::into_body)),
        "started" => Found::Part(merged(&case.object, &start().map(ObjectPatch::into_body).unwrap_or_default())),
        "refused" => Found::Text(start().err().map(|error| error.to_string())),
        "suspend" => Found::Exact(job.suspend_patch().into_body()),
        "stop" => Found::Exact(job.stop_patch().into_body()),
        "unlock" => Found::of(job.unlock_patch().map(ObjectPatch::into_body)),
        "restore" => Found::of(job.restore_patch(&original(kind, case)).map(ObjectPatch::into_body)),
        "needsRestore" => Found::of(job.state(None).needs_restore(&original(kind, case))),
        "defaults" => {
            let given = job.defaults(case.facts());
            let all =
                [("queueName", given.queue_name), ("priorityClass", given.priority_class), ("suspend", given.suspend)];
            Found::of(all.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect::<Vec<_>>())
        }
        "errors" => Found::Errors(job.errors()),
        "changeErrors" => Found::Errors(read(kind, &case.after()).change_errors(&*job, case.default_queue)),
        "leavingErrors" => Found::Errors(read(kind, &case.after()).leaving_errors(&*job)),
        "keptSuspend" => Found::of(
            read(kind, &case.after())
                .kept_suspend(&*job, case.facts())
                .map(|kept| if kept.stopping { json!("stopping") } else { json!(kept.suspend) }),
        ),
        "warning" => Found::Text(read(kind, &case.after()).kept_suspend(&*job, case.facts()).map(|kept| kept.warning)),
        _ => return None,
    })
}

fn read(kind: JobType, object: &Value) -> Box<dyn JobObject> {
    kind.read(object).unwrap_or_else(|error| panic!("{error}: {object}"))
}

fn full_object(job: &dyn JobObject) -> Value {
    job.value().unwrap()
}

fn state(job: &dyn JobObject) -> Value {
    let state = job.state(None);
    let finished = state.finished.as_ref().map(|end| json!({"success": end.success, "message": end.message}));
    json!({
        "queue": state.queue_name, "prebuiltWorkload": state.prebuilt_workload,
        "priorityClass": state.workload_priority_class, "podPriorityClass": state.pod_priority_class,
        "maxExecutionSeconds": state.max_execution_seconds,
        "suspended": state.is_suspended(), "hasSuspend": state.suspended, "placed": state.placed,
        "parts": state.part_count(), "active": state.active, "still": state.still, "atRest": state.at_rest,
        "seenStart": state.seen_start, "ready": state.ready, "succeeded": state.succeeded,
        "independent": state.independent, "mayChangeTemplate": state.may_change_template,
        "finished": finished, "reclaimable": state.reclaimable,
    })
}

/// The template parts that the Workload of the case stores.
fn original(kind: JobType, case: &Case) -> Vec<TemplateParts> {
    let Some(object) = case.original() else { return Vec::new() };
    parts(&*read(kind, &object))
}

fn parts(job: &dyn JobObject) -> Vec<TemplateParts> {
    let sets = job.pod_sets().expect("pod sets");
    sets.iter().map(TemplateParts::of_pod_set).collect()
}

/// Digests of a job's pod sets.
fn asked(job: &dyn JobObject) -> Vec<PodSetDigest> {
    job.pod_sets().expect("pod sets").iter().map(PodSetDigest::of).collect()
}

/// Laws of a start: the start is one patch of the observed state and places the job, the started job is still equivalent to its Workload, and a stop restores
/// the job.
pub(crate) fn laws(kind: JobType, case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut holds = |holds: bool, what: &str| {
        if !holds {
            wrong.push(format!("start and stop: {what}"));
        }
    };
    let before = read(kind, &case.object);
    if let Some(lean) = lean_text(kind, &case.object.to_string()) {
        let lean = kind.decode(&lean).unwrap();
        let (placements, original) = (case.placements().unwrap_or_default(), original(kind, case));
        let patches = |job: &dyn JobObject| {
            let start = job.start_patch(&placements);
            let quiet = (job.suspend_patch(), job.stop_patch(), job.unlock_patch());
            (start.map_err(|error| error.to_string()), job.restore_patch(&original), quiet)
        };
        holds(
            patches(&*lean) == patches(&*before),
            "patches of what is kept of a large job are those of the whole one",
        );
    }
    let Some(placements) = case.placements() else { return wrong };
    let Ok(start) = before.start_patch(&placements).map(ObjectPatch::into_body) else { return wrong };
    let identity = |patch: &Value| {
        let metadata =
            |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone());
        metadata(patch) == metadata(&case.object)
    };
    let original = parts(&*before);
    let patched = |job: &dyn JobObject, patch: &Value| read(kind, &merged(&full_object(job), patch));
    holds(identity(&start), "the patch is of the state that was read");
    let running = patched(&*before, &start);
    holds(!running.state(None).suspended, "it runs");
    let given: BTreeMap<String, i32> = placements.into_iter().map(|given| (given.pod_set, given.count)).collect();
    let admission_state = AdmissionState { admitted_counts: Some(&given), admitted: true, suspended: false };
    let same = pod_sets_equivalent(&asked(&*running), &asked(&*before), admission_state);
    holds(same, "what was started is what may run");
    let stop = running.stop_patch().into_body();
    holds(identity(&stop), "the stop is of the state that was read");
    let stopping = patched(&*running, &stop);
    let state = stopping.state(None);
    holds(state.suspended && !state.is_suspended(), "it is not suspended before it is restored");
    let Some(restore) = stopping.restore_patch(&original).map(ObjectPatch::into_body) else {
        holds(false, "there is something to restore");
        return wrong;
    };
    let after = patched(&*stopping, &restore);
    let mut wanted = stored(&full_object(&*before));
    wanted["spec"]["suspend"] = json!(true);
    if let Some(notes) = wanted["metadata"]["annotations"].as_object_mut() {
        // The restore also removes the annotation in which a start has stored the user's parallelism.
        notes.remove(berth_api::labels::OWN_PARALLELISM);
    }
    let wanted = stored(&wanted);
    let found = stored(&full_object(&*after));
    holds(found == wanted, &format!("it is as it was: {found}"));
    holds(after.state(None).is_suspended(), "it is suspended");
    holds(after.restore_patch(&original).is_none(), "there is nothing more to restore");
    wrong
}
