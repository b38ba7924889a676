//! ProvisioningRequests and their PodTemplates that come, go and change. Decisions are in `provisioning/check.rs`.

pub(crate) mod check;

use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_jobs::version_of;
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::View;
use crate::cache::provisioning_book::TemplateView;
use crate::names::Name;
use crate::state::flight::Flights;
use crate::state::work_queue::WorkQueue;
use crate::write::{Kind, ObjectKey, key};

/// Uid and version of an object.
fn identity(metadata: &ObjectMeta) -> (String, u64) {
    (metadata.uid.clone().unwrap_or_default(), version_of(metadata))
}

/// Notes whether the cluster serves ProvisioningRequests.
pub(crate) fn put_served(view: &mut View, work: &mut WorkQueue, served: bool) {
    if view.provisioning.served.replace(served) != Some(served) {
        work.touch_provisioning(view, None);
    }
}

pub(crate) fn put_config(
    view: &mut View,
    work: &mut WorkQueue,
    name: &str,
    object: Option<Box<api::ProvisioningRequestConfig>>,
) {
    match object {
        Some(object) => view.provisioning.configs.insert(name.to_owned(), object),
        None => view.provisioning.configs.remove(name),
    };
    work.touch_provisioning(view, Some(name));
}

pub(crate) fn put_request(
    view: &mut View,
    flights: &mut Flights,
    work: &mut WorkQueue,
    name: Name,
    object: Option<Box<ProvisioningRequest>>,
) {
    let object_key = key(Kind::ProvisioningRequest, &name);
    let Some(object) = object else {
        work.touch_related(view, &object_key);
        flights.vanished(&object_key);
        view.provisioning.drop(&name);
        return;
    };
    let old = view.provisioning.requests.get(&name).map(|old| identity(&old.metadata));
    let new = identity(&object.metadata);
    if is_news(flights, &object_key, old, &new) {
        view.provisioning.put(name, object);
        flights.seen(&object_key, new.1);
        work.touch_related(view, &object_key);
    }
}

pub(crate) fn put_template(
    view: &mut View,
    flights: &mut Flights,
    work: &mut WorkQueue,
    name: Name,
    object: Option<Box<PodTemplate>>,
) {
    let object_key = key(Kind::PodTemplate, &name);
    let Some(object) = object else {
        work.touch_related(view, &object_key);
        flights.vanished(&object_key);
        view.provisioning.templates.remove(&name);
        return;
    };
    let old = view.provisioning.templates.get(&name).map(|old| identity(&old.metadata));
    let new = identity(&object.metadata);
    if is_news(flights, &object_key, old, &new) {
        view.provisioning.templates.insert(name, TemplateView { metadata: object.metadata });
        flights.seen(&object_key, new.1);
        work.touch_related(view, &object_key);
    }
}

/// Whether a state of an object is not older than the one that is known. Another object of that name ends the wait for the first one.
fn is_news(flights: &mut Flights, object: &ObjectKey, old: Option<(String, u64)>, new: &(String, u64)) -> bool {
    let Some((uid, version)) = old else { return true };
    if uid != new.0 {
        flights.vanished(object);
    }
    uid != new.0 || version <= new.1
}
