//! Annotations on all pods of a job, one patch each.

use std::collections::BTreeMap;

use berth_control::write::Outcome;
use futures::{FutureExt, StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::{Body, Client};
use serde::Deserialize;
use serde_json::json;

use super::encoded;
use crate::outcome::{Verb, outcome_of, outcome_of_failure};

/// So many patches at once.
const AT_ONCE: usize = 16;

/// Objects of which only the metadata was asked for; such a list is of no kind of its own.
#[derive(Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: ObjectMeta,
}

/// Asks for the pods of a job that have not ended: their metadata is enough.
pub(super) fn list(path: &str, selector: &str) -> Result<http::Request<Body>, http::Error> {
    let fields = encoded("status.phase!=Succeeded,status.phase!=Failed");
    http::Request::builder()
        .uri(format!("{path}?labelSelector={selector}&fieldSelector={fields}"))
        .header(ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .body(Body::empty())
}

/// Lists pods and annotates those that lack it.
pub(super) async fn annotate(
    client: &Client,
    namespace: &str,
    list: http::Request<Body>,
    annotations: &BTreeMap<String, String>,
) -> Outcome {
    let pods = match send(client, list).await {
        Ok((code, body)) if (200..300).contains(&code) => serde_json::from_slice::<Pods>(&body),
        Ok((code, body)) => return outcome_of(Verb::Patch, code, None, &body),
        Err(outcome) => return outcome,
    };
    let Ok(pods) = pods else { return Outcome::Busy(1_000) };
    let lacks = |pod: &Pod| {
        let known = pod.metadata.annotations.as_ref();
        annotations.iter().any(|(key, value)| known.and_then(|known| known.get(key)) != Some(value))
    };
    let body = json!({"metadata": {"annotations": annotations}}).to_string();
    let mut patches = Vec::new();
    for pod in pods.items.into_iter().filter(lacks) {
        let name = pod.metadata.name.unwrap_or_default();
        let path = format!("/api/v1/namespaces/{}/pods/{}", encoded(namespace), encoded(&name));
        patches.push(patch(client.clone(), path, body.clone()).boxed());
    }
    let outcomes: Vec<Outcome> = stream::iter(patches).buffer_unordered(AT_ONCE).collect().await;
    // A pod that is gone need not be told; the first other trouble is the answer for all.
    let trouble = outcomes.into_iter().find(|outcome| !matches!(outcome, Outcome::Applied { .. } | Outcome::Gone));
    trouble.unwrap_or(Outcome::Applied { resource_version: String::new() })
}

async fn patch(client: Client, path: String, body: String) -> Outcome {
    let request = http::Request::builder()
        .method(http::Method::PATCH)
        .uri(path)
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(Body::from(body.into_bytes()));
    match request {
        Ok(request) => match send(&client, request).await {
            Ok((code, body)) => outcome_of(Verb::Patch, code, None, &body),
            Err(outcome) => outcome,
        },
        Err(error) => Outcome::Refused(format!("request cannot be built: {error}")),
    }
}

async fn send(client: &Client, request: http::Request<Body>) -> Result<(u16, Vec<u8>), Outcome> {
    let response = client.send(request).await.map_err(|error| outcome_of_failure(&error))?;
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.map_err(|_| Outcome::Busy(1_000))?;
    Ok((code, body.to_vec()))
}
