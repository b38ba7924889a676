//! Kinds that implement [`JobKind`].

use crate::case::{Case, Found, merged, pod_sets, stored};
use crate::read;
use berth_jobs::{JobKind, JobState, TemplateParts, job_defaults, validate_job, validate_job_update};
use serde_json::{Value, json};

pub(crate) fn answer<K: JobKind>(case: &Case, key: &str) -> Option<Found> {
    let job: K::Object = read(&case.object);
    let start = || K::start_patch(&job, &case.placements().unwrap_or_default());
    Some(match key {
        "podSets" => Found::Whole(K::pod_sets(&job).map_or_else(|problem| json!(problem), |sets| pod_sets(&sets))),
        "unreadable" => Found::Text(K::pod_sets(&job).err()),
        "unsupported" => Found::Text(K::unsupported(&job)),
        "state" => Found::Part(state::<K>(&job)),
        "start" => Found::Whole(start().unwrap_or_else(|error| json!(error.to_string()))),
        "started" => Found::Part(merged(&case.object, &start().unwrap_or_default())),
        "refused" => Found::Text(start().err().map(|error| error.to_string())),
        "suspend" => Found::Whole(K::suspend_patch(&job)),
        "stop" => Found::Whole(K::stop_patch(&job)),
        "unlock" => Found::of(K::unlock_patch(&job)),
        "restore" => Found::of(K::restore_patch(&job, &original::<K>(case))),
        "needsRestore" => Found::of(JobState::read::<K>(&job, None).needs_restore(&original::<K>(case))),
        "defaults" => {
            let given = job_defaults::<K>(&job, case.facts());
            let all =
                [("queueName", given.queue_name), ("priorityClass", given.priority_class), ("suspend", given.suspend)];
            Found::of(all.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect::<Vec<_>>())
        }
        "errors" => Found::Errors(validate_job::<K>(&job)),
        "changeErrors" => Found::Errors(validate_job_update::<K>(&job, &read(&case.after()), case.default_queue)),
        _ => return None,
    })
}

fn state<K: JobKind>(job: &K::Object) -> Value {
    let state = JobState::read::<K>(job, None);
    let finished = state.finished.as_ref().map(|end| json!({"success": end.success, "message": end.message}));
    json!({
        "queue": state.queue_name, "prebuiltWorkload": state.prebuilt_workload,
        "priorityClass": state.workload_priority_class, "podPriorityClass": state.pod_priority_class,
        "maxExecutionSeconds": state.max_execution_seconds,
        "suspended": state.is_suspended(), "hasSuspend": state.suspended, "placed": state.placed,
        "parts": state.parts, "active": state.active, "still": state.still, "atRest": state.at_rest,
        "seenStart": state.seen_start, "ready": state.ready, "succeeded": state.succeeded,
        "independent": state.independent, "mayChangeTemplate": state.may_change_template,
        "finished": finished, "reclaimable": state.reclaimable,
    })
}

/// The parts that the Workload of the case stores.
fn original<K: JobKind>(case: &Case) -> Vec<TemplateParts> {
    let Some(object) = case.original() else { return Vec::new() };
    parts::<K>(&read(&object))
}

fn parts<K: JobKind>(job: &K::Object) -> Vec<TemplateParts> {
    let sets = K::pod_sets(job).expect("pod sets");
    sets.iter().map(TemplateParts::of_pod_set).collect()
}

/// A start that fits is one patch of the state that was read, places the job, and a stop takes all of it back.
pub(crate) fn laws<K: JobKind>(case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut holds = |holds: bool, what: &str| {
        if !holds {
            wrong.push(format!("start and stop: {what}"));
        }
    };
    let before: K::Object = read(&case.object);
    let Some(Ok(start)) = case.placements().map(|placements| K::start_patch(&before, &placements)) else {
        return wrong;
    };
    let identity = |patch: &Value| {
        let metadata =
            |object: &Value| (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone());
        metadata(patch) == metadata(&case.object)
    };
    let original = parts::<K>(&before);
    let whole = |job: &K::Object| serde_json::to_value(job).unwrap();
    let patched = |job: &K::Object, patch: &Value| -> K::Object { read(&merged(&whole(job), patch)) };
    holds(identity(&start), "the patch is of the state that was read");
    let running = patched(&before, &start);
    holds(!K::has_suspend(&running), "it runs");
    let stop = K::stop_patch(&running);
    holds(identity(&stop), "the stop is of the state that was read");
    let stopping = patched(&running, &stop);
    holds(K::has_suspend(&stopping) && !K::is_suspended(&stopping), "it is not suspended before it is restored");
    let Some(restore) = K::restore_patch(&stopping, &original) else {
        holds(false, "there is something to restore");
        return wrong;
    };
    let after = patched(&stopping, &restore);
    let mut wanted = stored(&whole(&before));
    wanted["spec"]["suspend"] = json!(true);
    holds(stored(&whole(&after)) == wanted, &format!("it is as it was: {}", stored(&whole(&after))));
    holds(K::is_suspended(&after), "it is suspended");
    holds(K::restore_patch(&after, &original).is_none(), "there is nothing more to restore");
    wrong
}
