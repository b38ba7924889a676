//! Reviews of jobs, for every kind that `berth_jobs` knows.

use crate::patch::{add, entries};
use crate::review::{Answer, Request, Unreadable};
use crate::routes::Around;
use berth_api::labels;
use berth_jobs::training::training_owner;
use berth_jobs::{DEFAULT_NAME, Defaults, Facts, JobType, controller};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

/// Path of the field that suspends a job, the same in every kind.
const SUSPEND: &str = "/spec/suspend";

/// Fills in the queue and the class, and suspends what is managed.
pub(crate) fn mutate(kind: JobType, request: &Request, around: &Around<'_>) -> Result<Answer, Unreadable> {
    if request.operation != "CREATE" {
        return Ok(Answer::Allow);
    }
    let job = request.job(kind)?;
    // What a JobSet or a TrainingJob creates is admitted with it. Whatever else slips past here is found by control.
    let metadata = job.metadata();
    let name = metadata.name.as_deref().unwrap_or_default();
    let part =
        |owner: &OwnerReference| around.surroundings.governs(&request.namespace, name, (&owner.name, &owner.uid));
    let governed = kind == JobType::JOB && (is_part(metadata) || training_owner(metadata).is_some_and(part));
    let defaults = job.defaults(Facts { governed, ..facts(kind, request, around) });
    Ok(Answer::Change(operations(metadata, defaults)))
}

/// Refuses what cannot be meant, and changes that come too late.
pub(crate) fn validate(kind: JobType, request: &Request, around: &Around<'_>) -> Result<Answer, Unreadable> {
    let facts = facts(kind, request, around);
    if facts.unmanaged_kind {
        return Ok(Answer::Allow);
    }
    let job = request.job(kind)?;
    let errors = match request.old_job(kind) {
        None => job.errors(),
        Some(old) => job.change_errors(&*old, facts.default_queue),
    };
    Ok(Answer::of(errors))
}

fn facts(kind: JobType, request: &Request, around: &Around<'_>) -> Facts {
    let unmanaged_kind = !around.surroundings.has_kind(kind);
    Facts { unmanaged_kind, ..around.surroundings.facts(&request.namespace) }
}

/// Whether a job that is made of Jobs controls it. Its kind is enough, as in Kueue: which JobSets are managed is not known here, and
/// control suspends a Job with a queue of its own whose JobSet is not.
fn is_part(metadata: &ObjectMeta) -> bool {
    controller(metadata).and_then(JobType::of_owner).is_some_and(|kind| kind.info().made_of_jobs)
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
    fn only_what_is_missing_is_added() {
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
