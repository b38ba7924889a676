//! Changes of ProvisioningRequests and their PodTemplates in the view. Decisions about ProvisioningRequests are in `provisioning/check.rs`.

pub(crate) mod check;

use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_cache::View;
use berth_cache::names::Name;
use berth_jobs::version_of;
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::state::in_flight::InFlightWrites;
use crate::state::work_queue::WorkQueue;
use crate::write::{Kind, ObjectKey, key};

/// Uid and resource version of an object.
type ObjectVersion = (String, u64);

fn identity(metadata: &ObjectMeta) -> ObjectVersion {
    (metadata.uid.clone().unwrap_or_default(), version_of(metadata))
}

/// Records whether the cluster serves ProvisioningRequests.
pub fn put_served(view: &mut View, work: &mut WorkQueue, served: bool) {
    if view.note_provisioning_served(served) {
        work.touch_provisioning(view, None);
    }
}

/// Handles a ProvisioningRequestConfig that was observed or removed (`None`). Marks for a decision the admission checks that name the
/// ProvisioningRequestConfig, and the Workloads that wait for these checks.
pub fn put_config(
    view: &mut View,
    work: &mut WorkQueue,
    name: &str,
    object: Option<Box<api::ProvisioningRequestConfig>>,
) {
    view.put_provisioning_config(name, object);
    work.touch_provisioning(view, Some(name));
}

/// Handles a ProvisioningRequest that was observed or removed (`None`), and marks the objects that the request concerns. An observed state that is older than
/// the known state is ignored.
pub fn put_request(
    view: &mut View,
    in_flight: &mut InFlightWrites,
    work: &mut WorkQueue,
    name: Name,
    object: Option<Box<ProvisioningRequest>>,
) {
    let object_key = key(Kind::ProvisioningRequest, &name);
    let old = view.provisioning().requests.get(&name).map(|old| identity(&old.metadata));
    let new = object.as_ref().map(|object| identity(&object.metadata));
    put_made(view, in_flight, work, &object_key, (old, new), |view| view.put_provisioning_request(name, object));
}

/// Handles a PodTemplate that was observed or removed (`None`), and marks the objects that the PodTemplate concerns. An observed state that is older than the
/// known state is ignored.
pub fn put_template(
    view: &mut View,
    in_flight: &mut InFlightWrites,
    work: &mut WorkQueue,
    name: Name,
    object: Option<Box<PodTemplate>>,
) {
    let object_key = key(Kind::PodTemplate, &name);
    let old = view.provisioning().templates.get(&name).map(|old| identity(&old.metadata));
    let new = object.as_ref().map(|object| identity(&object.metadata));
    put_made(view, in_flight, work, &object_key, (old, new), |view| view.put_pod_template(name, object));
}

/// Records a new state of a ProvisioningRequest or PodTemplate, or its absence; the argument `store` writes the state to the view.
fn put_made(
    view: &mut View,
    in_flight: &mut InFlightWrites,
    work: &mut WorkQueue,
    object: &ObjectKey,
    (old, new): (Option<ObjectVersion>, Option<ObjectVersion>),
    store: impl FnOnce(&mut View),
) {
    let Some(new) = new else {
        work.touch_related(view, object);
        in_flight.vanished(object);
        store(view);
        return;
    };
    if is_news(in_flight, object, old, &new) {
        store(view);
        in_flight.seen(object, new.1);
        work.touch_related(view, object);
    }
}

/// Whether a state of an object is at least as new as the known state. A new object with the same name ends the wait for the writes to the old object.
fn is_news(
    in_flight: &mut InFlightWrites,
    object: &ObjectKey,
    old: Option<ObjectVersion>,
    new: &ObjectVersion,
) -> bool {
    let Some((uid, version)) = old else { return true };
    if uid != new.0 {
        in_flight.vanished(object);
    }
    uid != new.0 || version <= new.1
}
