//! Reviews of jobs of every kind in the crate `berth_jobs`.

use crate::patch::{add, entries};
use crate::review::{Answer, Request, Unreadable};
use crate::routes::Around;
use berth_api::labels;
use berth_jobs::{DEFAULT_NAME, Defaults, Facts, JobObject, JobType, KeptSuspend, controller};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// JSON path of the field that suspends a job; all kinds have the same path.
const SUSPEND: &str = "/spec/suspend";
const ANNOTATIONS: &str = "/metadata/annotations";

/// Changes a job before it is stored. A new job gets the default queue and the default priority class if it names none, and is suspended if Berth manages it.
/// In an update, `spec.suspend` of a job that Berth starts and stops keeps its stored value, so a manifest that is applied again neither stops nor starts the
/// job.
pub(crate) fn mutate(kind: JobType, request: &Request, around: &Around<'_>) -> Result<Answer, Unreadable> {
    let job = request.job(kind)?;
    if request.operation == "UPDATE" {
        let Some(old) = request.old_job(kind) else { return Ok(Answer::Allow) };
        let kept = job.kept_suspend(&*old, governed_facts(kind, &*old, request, around));
        return Ok(kept.map_or(Answer::Allow, |kept| keep(job.metadata(), kept)));
    }
    let defaults = job.defaults(governed_facts(kind, &*job, request, around));
    Ok(Answer::Change(operations(job.metadata(), defaults)))
}

fn keep(metadata: &ObjectMeta, kept: KeptSuspend) -> Answer {
    let marker = kept.stopping.then(|| (labels::STOPPING, "true".to_owned()));
    let mut operations = entries(ANNOTATIONS, metadata.annotations.as_ref(), marker);
    operations.push(add(SUSPEND.to_owned(), json!(kept.suspend)));
    Answer::ChangeAndWarn(operations, kept.warning)
}

/// Refuses an invalid job, and changes of a job that come too late.
pub(crate) fn validate(kind: JobType, request: &Request, around: &Around<'_>) -> Result<Answer, Unreadable> {
    let facts = facts(kind, request, around);
    if facts.unmanaged_kind {
        return Ok(Answer::Allow);
    }
    if request.is_leaving() {
        // A job that cannot be decoded may still be deleted.
        let both = request.job(kind).ok().zip(request.old_job(kind));
        return Ok(both.map_or(Answer::Allow, |(job, old)| Answer::of(job.leaving_errors(&*old))));
    }
    let job = request.job(kind)?;
    let errors = match request.old_job(kind) {
        Some(old) => job.change_errors(&*old, facts.default_queue),
        None => job.errors(),
    };
    Ok(Answer::of(errors))
}

fn facts(kind: JobType, request: &Request, around: &Around<'_>) -> Facts {
    let unmanaged_kind = !around.cluster_facts.has_kind(kind);
    Facts { unmanaged_kind, ..around.cluster_facts.facts(&request.namespace) }
}

/// The facts for a job, and whether a controlling job starts and stops it: the Jobs that a JobSet or TrainingJob creates are admitted with the JobSet
/// or TrainingJob.
fn governed_facts(kind: JobType, job: &dyn JobObject, request: &Request, around: &Around<'_>) -> Facts {
    let metadata = job.metadata();
    let governs = |owner| around.cluster_facts.governs(&request.namespace, metadata, owner);
    let governed = kind == JobType::JOB && controller(metadata).is_some_and(governs);
    Facts { governed, ..facts(kind, request, around) }
}

fn operations(metadata: &ObjectMeta, defaults: Defaults) -> Vec<Value> {
    let named = [(defaults.queue_name, labels::QUEUE_NAME), (defaults.priority_class, labels::PRIORITY_CLASS)];
    let new = named.into_iter().filter(|(wanted, _)| *wanted).map(|(_, key)| (key, DEFAULT_NAME.to_owned()));
    let mut operations = entries("/metadata/labels", metadata.labels.as_ref(), new);
    if defaults.suspend {
        operations.push(add(SUSPEND.to_owned(), json!(true)));
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(labels: Value, defaults: Defaults) -> Vec<String> {
        let metadata: ObjectMeta = serde_json::from_value(json!({"labels": labels})).unwrap();
        let operations = operations(&metadata, defaults);
        operations.iter().map(|operation| operation["path"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn job_defaults_add_only_missing_labels_and_suspension() {
        let all = Defaults { queue_name: true, priority_class: true, suspend: true };
        let (queue, class) =
            ("/metadata/labels/kueue.x-k8s.io~1queue-name", "/metadata/labels/kueue.x-k8s.io~1priority-class");
        assert_eq!(paths(Value::Null, all), ["/metadata/labels", queue, class, "/spec/suspend"]);
        assert_eq!(paths(json!({"a": "b"}), all), [queue, class, "/spec/suspend"]);
        let suspend = Defaults { suspend: true, ..Defaults::default() };
        assert_eq!(paths(Value::Null, suspend), ["/spec/suspend"]);
        assert!(paths(Value::Null, Defaults::default()).is_empty());
    }
}
