//! Size limit of a Workload. etcd accepts objects up to 1.5 MiB. A Workload without room for its status could not be admitted, and could not have a pending
//! reason in its conditions.

use berth_api::Workload;
use berth_api::json::to_text;
use berth_api::validation::FieldError;
use serde::Serialize;

/// Largest size of a Workload without its status, in bytes of JSON. Half a mebibyte of the 1.5 MiB that etcd accepts remains for the Workload's status and for
/// metadata that the API server adds.
pub const MOST_BYTES: usize = 1_048_576;

/// Size of a value as JSON in bytes.
fn bytes(value: &impl Serialize) -> usize {
    to_text(value).len()
}

/// Fault of a Workload that is too large, in words about its job.
#[must_use]
pub fn too_large(workload: &Workload) -> Option<String> {
    let bytes = bytes(workload);
    // The error message has the Workload's size after the rule, so that the fault of a stored job counts as the same fault when the size changes.
    (bytes > MOST_BYTES)
        .then(|| format!("the Workload of a job may have {MOST_BYTES} bytes: this one would have {bytes}"))
}

/// Fault of an object whose Workload is too large. The parameter `parts` is the number of copies of the object's pod template in the Workload. The Workload of
/// a small object cannot be too large, so it is not built.
pub(crate) fn size_rule(
    object: &impl Serialize,
    parts: usize,
    workload: impl FnOnce() -> Option<Workload>,
) -> Option<FieldError> {
    if bytes(object).saturating_mul(parts.max(1)) < MOST_BYTES / 2 {
        return None;
    }
    Some(FieldError::new("spec", "", too_large(&workload()?)?))
}

/// Fault of a prebuilt Workload that is too large. A Workload with an owner is not checked, because it was made of a job that was checked before the API server
/// added defaults.
#[must_use]
pub fn prebuilt_size_rule(workload: &Workload) -> Option<FieldError> {
    if workload.metadata.owner_references.iter().flatten().next().is_some() {
        return None;
    }
    size_rule(&workload.spec, 1, || {
        let mut bare = Workload { status: None, ..workload.clone() };
        bare.metadata.managed_fields = None;
        Some(bare)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::validate_pod;
    use crate::training::{Accelerators, invalid_training_job};
    use crate::{BatchJob, JobKind, KINDS, validate_job};
    use serde_json::{Value, json};

    fn template(bytes: usize) -> Value {
        json!({"spec": {"containers": [{"name": "c", "image": "i", "args": ["x".repeat(bytes)]}]}})
    }

    fn metadata(queue: &str) -> Value {
        json!({"name": "a", "namespace": "team", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": queue}})
    }

    fn job(bytes: usize) -> k8s_openapi::api::batch::v1::Job {
        serde_json::from_value(json!({"metadata": metadata("q"), "spec": {"template": template(bytes)}})).unwrap()
    }

    fn about_size(errors: &[FieldError]) -> Option<&FieldError> {
        errors.iter().find(|error| error.message.contains("the Workload of a job may have 1048576 bytes"))
    }

    /// A Workload of the maximum size is created, and a Workload with one byte more is refused with its size and the limit.
    #[test]
    fn job_one_byte_above_size_limit_is_refused_with_size() {
        let made = |bytes: usize| {
            crate::build_workload::<BatchJob>(
                &job(bytes),
                BatchJob::pod_sets(&job(bytes)).unwrap(),
                crate::Priority::default(),
                &std::collections::BTreeSet::new(),
            )
        };
        let frame = bytes(&made(0));
        assert!(frame < 4096, "{frame}");
        let fits = MOST_BYTES - frame;
        assert_eq!(about_size(&validate_job::<BatchJob>(&job(fits))), None);
        let errors = validate_job::<BatchJob>(&job(fits + 1));
        assert_eq!(
            about_size(&errors).map(|error| error.message.as_str()),
            Some("the Workload of a job may have 1048576 bytes: this one would have 1048577")
        );
        // A job without a queue gets no Workload, and a prebuilt Workload is measured in its own review.
        let mut alone = job(2 * MOST_BYTES);
        alone.metadata.labels = None;
        assert_eq!(about_size(&validate_job::<BatchJob>(&alone)), None);
        let beforehand = |bytes: usize| {
            let mut workload = made(bytes);
            workload.metadata.owner_references = None;
            prebuilt_size_rule(&workload)
        };
        assert_eq!((beforehand(fits), prebuilt_size_rule(&made(fits + frame))), (None, None));
        assert!(beforehand(fits + frame).is_some());
    }

    /// A stored job that is too large may still be changed, because its deletion may need a change.
    #[test]
    fn stored_job_above_size_limit_may_change() {
        let (old, mut new) = (job(MOST_BYTES), job(MOST_BYTES + 7));
        assert_eq!(about_size(&crate::validate_job_update::<BatchJob>(&old, &new, false)), None);
        new.metadata.finalizers = Some(Vec::new());
        assert_eq!(about_size(&crate::validate_job_update::<BatchJob>(&old, &new, false)), None);
        assert!(about_size(&crate::validate_job_update::<BatchJob>(&job(1), &new, false)).is_some());
    }

    #[test]
    fn size_limit_applies_to_every_job_kind() {
        for kind in KINDS {
            let template = json!({"spec": {"parallelism": 1, "template": template(MOST_BYTES)}});
            let spec = match kind.info().made_of_jobs {
                true => json!({"replicatedJobs": [{"name": "w", "replicas": 1, "template": template}]}),
                false => template["spec"].clone(),
            };
            let object = kind.read(&json!({"metadata": metadata("q"), "spec": spec})).unwrap();
            assert!(about_size(&object.errors()).is_some(), "{kind:?}: {:?}", object.errors().len());
        }
        let mut pod = template(MOST_BYTES);
        pod["metadata"] = metadata("q");
        assert!(about_size(&validate_pod(&serde_json::from_value(pod).unwrap())).is_some());
        let set = json!({"metadata": metadata("q"), "spec": {"selector": {}, "serviceName": "s", "template": template(MOST_BYTES)}});
        assert!(about_size(&crate::pods::validate_stateful_set(&serde_json::from_value(set).unwrap())).is_some());
        // The Workload of a TrainingJob has the template once for each role.
        let job = |bytes: usize| -> berth_api::berth::TrainingJob {
            let spec = json!({"jobType": "TFJob", "resources": {"maxReplicas": 2, "replicaResources": {"cpu": "1"}},
                "roles": [{"name": "ps", "replicas": 1}],
                "schedulingConfig": {"queue": "q"}, "template": template(bytes)});
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "team"}, "spec": spec})).unwrap()
        };
        let accelerators = Accelerators::default();
        assert!(about_size(&invalid_training_job(&job(MOST_BYTES * 6 / 10), &accelerators)).is_some());
        assert_eq!(about_size(&invalid_training_job(&job(MOST_BYTES * 4 / 10), &accelerators)), None);
    }
}
