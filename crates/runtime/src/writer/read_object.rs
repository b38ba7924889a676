//! Queries that read one complete object: a job or a pod.

use super::pods::unread;
use super::{Target, path_of};
use crate::watches::read_job;
use berth_control::write::{ObjectKey, QueryFailure, ResourceKind, Subresource};
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::Pod;
use kube::client::{Body, Client};

/// Reads a job or a pod in the form in which a watch shows it; `Busy` if the object cannot be read now.
pub(super) async fn read(client: &Client, key: &ObjectKey) -> Result<Box<str>, QueryFailure> {
    let Some(kind) = key.kind.resource_kind() else {
        return Err(QueryFailure::Refused(format!("{key} is no object of the API")));
    };
    let shown = |text: String| match kind {
        ResourceKind::Job(kind) => read_job(kind, &text).and_then(|job| job.value()).map(|job| job.to_string()),
        // The query for an object that does not decode is refused, so that control does not ask it again and again.
        _ => serde_json::from_str::<Pod>(&text).map(|_| text),
    };
    let target = Target { kind, namespace: &key.namespace, name: &key.name };
    match get(client, path_of(&target, false, Subresource::None)).await {
        Ok(text) => match shown(text) {
            Ok(object) => Ok(object.into()),
            Err(error) => Err(QueryFailure::Refused(format!("the {} cannot be read: {error}", kind.name()))),
        },
        Err(Some((404, _))) => Err(QueryFailure::Gone),
        Err(error) => Err(unread(error)),
    }
}

/// The JSON text of an object, or HTTP status and body of an answer that is no success.
async fn get(client: &Client, path: String) -> Result<String, Option<(u16, Vec<u8>)>> {
    let request = http::Request::get(path).header(ACCEPT, "application/json").body(Body::empty()).map_err(|_| None)?;
    let response = client.send(request).await.map_err(|_| None)?;
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.map_err(|_| None)?;
    if !(200..300).contains(&code) {
        return Err(Some((code, body.to_vec())));
    }
    String::from_utf8(body.to_vec()).map_err(|_| None)
}
