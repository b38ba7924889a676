//! Kinds of objects that the judge reads, and their fields as they are stored: the judge shares no types with Berth.

use serde_json::Value;

/// Field manager of all writes that a test makes as a user; the observer distinguishes Berth's writes from these by it.
pub const USER: &str = "e2e-user";

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group and version, as in `apiVersion`.
    pub api_version: &'static str,
    /// Name, as in `kind`.
    pub kind: &'static str,
}

const fn kind(api_version: &'static str, kind: &'static str) -> Kind {
    Kind { api_version, kind }
}

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// ClusterQueue.
pub const CLUSTER_QUEUE: Kind = kind(KUEUE, "ClusterQueue");
/// Cohort.
pub const COHORT: Kind = kind(KUEUE, "Cohort");
/// LocalQueue.
pub const LOCAL_QUEUE: Kind = kind(KUEUE, "LocalQueue");
/// Workload.
pub const WORKLOAD: Kind = kind(KUEUE, "Workload");
/// Job.
pub const JOB: Kind = kind("batch/v1", "Job");
/// JobSet.
pub const JOBSET: Kind = kind("jobset.x-k8s.io/v1alpha2", "JobSet");
/// TrainingJob.
pub const TRAINING_JOB: Kind = kind("berth.dev/v1alpha1", "TrainingJob");
/// Pod.
pub const POD: Kind = kind("v1", "Pod");

/// Every kind that the judge reads.
pub const JUDGED: [Kind; 8] = [CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD, JOB, JOBSET, TRAINING_JOB, POD];

impl Kind {
    /// The judged kind of an object with this `apiVersion` and `kind`; `None` for all others.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Kind> {
        JUDGED.into_iter().find(|judged| judged.api_version == api_version && judged.kind == kind)
    }
}

/// The string at a JSON pointer, empty when there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The list at a JSON pointer, empty when there is none.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or(&[])
}

/// `namespace/name`, or the name alone.
pub fn key(object: &Value) -> String {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Status of a condition: `True`, `False`, `Unknown`, or empty when it is absent.
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a str {
    condition_object(object, type_).map(|c| text(c, "/status")).unwrap_or("")
}

/// A condition with all its fields.
pub fn condition_object<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|c| text(c, "/type") == type_)
}
