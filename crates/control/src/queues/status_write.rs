//! Status writes of queues and of policies.

use berth_jobs::version_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::{Value, json};

use crate::decision::Draft;
use crate::write::{ObjectKey, Purpose, Request, Subresource};

/// A status write. Only Berth writes the figures: they are sent whatever other clients have written meanwhile. Other controllers may have conditions
/// of their own, and a merge patch replaces the complete list: it is sent only where it changes, and then for the version that it was derived from.
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
        request: Request::Merge {
            manager: "kueue",
            subresource: Subresource::Status,
            body: json!({"metadata": identity, "status": status}),
        },
        based_on: if old != new { version_of(metadata) } else { 0 },
        notices: Vec::new(),
    }
}
