//! The kinds of job: their pod sets, the patches that suspend, start and restore a job, and the result of a finished job.
//!
//! Control calls this crate and gets plain values or patches. The crate does not talk to a server, read a clock, keep state or decide an admission. [`JobKind`]
//! and its implementation [`BatchJob`] are the place to start reading. A job passes through this crate by [`build_workload`], [`workload_needs`],
//! [`Placement::of`], `start_patch`, `stop_patch` and `restore_patch`.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod admission;
mod batch_job;
mod build;
mod constraints;
mod equivalence;
mod finish;
mod job_object;
mod job_pod;
mod job_set;
mod job_type;
mod kind;
mod kinds;
mod lean;
mod limits;
mod metadata;
mod names;
mod needs;
mod object_apply;
mod object_of_kind;
mod object_patch;
mod owner;
mod parts;
mod patch;
mod placement;
mod pod_set;
mod pod_set_error;
pub mod pods;
mod priority;
mod provisioning;
mod requests;
mod size;
mod state;
mod template;
pub mod training;
mod transform;
mod unsupported;

pub use admission::{
    DEFAULT_NAME, Defaults, Facts, KeptSuspend, job_defaults, kept_suspend, validate_job, validate_job_update,
    validate_leaving_job,
};
pub use batch_job::BatchJob;
pub use build::{Priority, build_workload};
pub use constraints::{placement_constraints, template_shape};
pub use equivalence::{
    AdmissionState, PodSetDigest, pod_sets_equivalent, pod_sets_identical, requests_digest, template_digest,
};
pub use finish::Finish;
pub use job_object::{JobObject, SharedJob};
pub use job_pod::{JobPod, PodsJob};
pub use job_type::{JobInfo, JobType, ListedKind};
pub use kind::JobKind;
pub use kinds::KINDS;
pub use lean::lean_text;
pub use limits::{LimitSummary, Violation, limit_range_violations, limits_exceeded, refused_by, validate_requests};
pub use metadata::{
    controller, group_of, lets_go_first, max_execution_seconds, prebuilt_workload_name, queue_name, version_number,
    version_of, workload_priority_class,
};
pub use names::{is_label_key, is_label_value, workload_name};
pub use needs::{PodSetNeeds, WorkloadNeeds, reduced_pod_set, spec_as_run, workload_needs};
pub use object_apply::{Identity, ObjectApply};
pub use object_patch::ObjectPatch;
pub use owner::{kind_in_group, named_part};
pub use parts::{Part, PartSize};
pub use patch::merge_diff;
pub use placement::{AdmittedAs, ForbiddenError, Placement, PlacementError, parse_forbidden};
pub use pod_set::{BATCH_CONTROLLER_LABELS, IndexLabels, pod_set_of};
pub use pod_set_error::PodSetError;
pub use priority::{EffectivePriority, effective_priority};
pub use provisioning::{
    Provisioning, RequestedPods, pod_template_name, provisioned_updates, provisioning_parameters,
    provisioning_request_name, provisioning_request_spec, provisioning_state, requested_pods, retry_after,
};
pub use requests::{Exact, Quantities, RequestError, RequestRules, effective_pod_spec, pod_requests, quota_requests};
pub use size::{MOST_BYTES, prebuilt_size_rule, too_large};
pub use state::{JobOwner, JobState};
pub use template::TemplateParts;
pub use transform::Transformation;
pub use unsupported::{unsupported_gates, unsupported_metadata, unsupported_template, unsupported_workload};
