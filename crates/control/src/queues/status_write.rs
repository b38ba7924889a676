//! Status writes of queues and policies.

use berth_jobs::version_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::{Value, json};

use crate::decision::Draft;
use crate::write::{ObjectKey, Purpose, Subresource, Write};

/// A status write of a queue or policy. Only Berth writes the figures, which are sent whatever other clients have written in the meantime. Other controllers
/// may have conditions of their own, and a merge patch replaces the whole list of conditions: the list is sent only if it changes, and only for the version
/// from which it was derived.
pub(crate) fn draft(key: &ObjectKey, metadata: &ObjectMeta, mut status: Value, conditions: [&[Condition]; 2]) -> Draft {
    let [old, new] = conditions;
    let identity = if old == new {
        json!({"uid": metadata.uid})
    } else {
        json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version})
    };
    if let Some(fields) = status.as_object_mut().filter(|_| old == new) {
        fields.remove("conditions");
    }
    Draft {
        purpose: Purpose::QueueStatus,
        key: key.clone(),
        action: Write::Merge {
            manager: "kueue",
            subresource: Subresource::Status,
            body: json!({"metadata": identity, "status": status}),
        }
        .into(),
        based_on: if old != new { version_of(metadata) } else { 0 },
        notices: Vec::new(),
    }
}
