//! Status writes of queues and policies.

use berth_jobs::{ObjectPatch, version_of};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::Value;

use crate::decision::Draft;
use crate::write::{ObjectKey, Purpose};

/// A status write of a queue or policy. Only Berth writes the figures in the status of a queue or QueuePolicy, and sends them whatever other clients have
/// written in the meantime. Other controllers may have conditions of their own in the status, and a merge patch replaces the complete list of conditions: the
/// list is sent only if it changes, and only for the version from which it was derived.
pub(crate) fn draft(key: &ObjectKey, metadata: &ObjectMeta, mut status: Value, conditions: [&[Condition]; 2]) -> Draft {
    let [old, new] = conditions;
    if let Some(fields) = status.as_object_mut().filter(|_| old == new) {
        fields.remove("conditions");
    }
    let (patch, based_on) = if old == new {
        (ObjectPatch::of_any_version(metadata.uid.as_deref()), 0)
    } else {
        (ObjectPatch::of(metadata), version_of(metadata))
    };
    Draft::merge(Purpose::QueueStatus, key.clone(), patch.status(status), based_on)
}
