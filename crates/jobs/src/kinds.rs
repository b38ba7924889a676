//! The list of the job kinds that can be suspended.

use crate::batch_job::BatchJob;
use crate::job_set::JobSet;
use crate::job_type::{JobInfo, JobType, ListedKind};
use crate::metadata::group_of;
use crate::object_of_kind::info_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Every job kind that can be suspended. A new kind needs a file, its `mod` in `lib.rs`, its entries here, and case files.
pub const KINDS: [JobType; 2] = [JobType::of::<BatchJob>(), JobType::of::<JobSet>()];

static JOB: JobInfo = info_of::<BatchJob>();
static JOB_SET: JobInfo = info_of::<JobSet>();

impl ListedKind for BatchJob {
    const INFO: &'static JobInfo = &JOB;
}

impl ListedKind for JobSet {
    const INFO: &'static JobInfo = &JOB_SET;
}

impl JobType {
    /// The kind batch/v1 Job.
    pub const JOB: Self = Self::of::<BatchJob>();
    /// The kind jobset.x-k8s.io JobSet.
    pub const JOB_SET: Self = Self::of::<JobSet>();

    /// The job kind with this name in this API group.
    #[must_use]
    pub fn named(group: &str, kind: &str) -> Option<Self> {
        KINDS.into_iter().find(|one| one.info().kind == kind && one.info().group == group)
    }

    /// The job kind of an owner reference.
    #[must_use]
    pub fn of_owner(owner: &OwnerReference) -> Option<Self> {
        Self::named(group_of(&owner.api_version), &owner.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn job_kinds_have_unique_names() {
        for kind in KINDS {
            let info = kind.info();
            assert_eq!(info.api_version, format!("{}/{}", info.group, info.version));
            assert_eq!(JobType::named(info.group, info.kind), Some(kind));
            assert_eq!(JobType::named("other.io", info.kind), None);
        }
        let names: [fn(&JobInfo) -> &'static str; 4] =
            [|info| info.framework, |info| info.kind, |info| info.plural, |info| info.reporter];
        for name in names {
            let all: BTreeSet<&str> = KINDS.into_iter().map(|kind| name(kind.info())).collect();
            assert_eq!(all.len(), KINDS.len(), "{all:?}");
        }
    }

    #[test]
    fn job_object_of_any_kind_is_read_and_written_generically() {
        for kind in KINDS {
            let text = json!({"metadata": {"name": "a", "uid": "u", "managedFields": [{"manager": "m"}]}, "spec": {"suspend": true}});
            let mut object = kind.decode(&text.to_string()).unwrap();
            assert!(object.metadata().managed_fields.is_none());
            assert!(kind.read(&text).unwrap().metadata().managed_fields.is_some());
            object.metadata_mut().name = Some("b".to_owned());
            assert_eq!(object.value().unwrap()["metadata"]["name"], json!("b"));
            let state = object.state(None);
            assert!(state.suspended && state.kind == kind && state.uid == "u");
            assert!(kind.decode("[]").is_err() && kind.read(&json!({"metadata": 1})).is_err());
        }
    }

    #[test]
    fn job_change_is_judged_only_between_objects_of_one_kind() {
        let queue = "metadata.labels[kueue.x-k8s.io/queue-name]";
        let read = |kind: JobType, queue: &str| {
            let object =
                json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}, "spec": {"suspend": false}});
            kind.read(&object).unwrap()
        };
        for kind in KINDS {
            let moved = read(kind, "r");
            for other in KINDS {
                let errors = moved.change_errors(&*read(other, "q"), false);
                assert_eq!(errors.iter().any(|error| error.field == queue), other == kind, "{other:?} to {kind:?}");
            }
        }
    }
}
