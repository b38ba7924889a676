//! Annotations on all pods of a job, one patch each.

use std::collections::BTreeMap;

use berth_control::write::{Outcome, PodsOf};
use futures::{FutureExt, StreamExt, stream};
use http::header::CONTENT_TYPE;
use kube::client::{Body, Client};
use serde_json::json;

use super::encoded;
use super::pods::{METADATA, Meta, NOT_ENDED, page};
use crate::outcome::{Verb, outcome_of, outcome_of_failure};

/// So many patches at once.
const AT_ONCE: usize = 16;

/// So many pods are asked for at once.
const PAGE: usize = 500;

/// Annotates those pods of a job that lack it and have not ended.
pub(super) async fn annotate(
    client: &Client,
    namespace: &str,
    pods: &PodsOf,
    annotations: &BTreeMap<String, String>,
) -> Outcome {
    let lacks = |pod: &Meta| {
        let known = pod.metadata.annotations.as_ref();
        annotations.iter().any(|(key, value)| known.and_then(|known| known.get(key)) != Some(value))
    };
    let body = json!({"metadata": {"annotations": annotations}}).to_string();
    let (mut patches, mut from) = (Vec::new(), None::<String>);
    loop {
        let asked = page::<Meta>(client, (namespace, pods), (METADATA, NOT_ENDED), (PAGE, from.as_deref())).await;
        let page = match asked {
            Ok(page) => page,
            Err(Some((code, body))) => return outcome_of(Verb::Patch, code, None, &body),
            Err(None) => return Outcome::Busy(1_000),
        };
        from = page.next();
        for pod in page.items.into_iter().filter(|pod| pods.has(&pod.metadata) && lacks(pod)) {
            let name = pod.metadata.name.unwrap_or_default();
            let path = format!("/api/v1/namespaces/{}/pods/{}", encoded(namespace), encoded(&name));
            patches.push(patch(client.clone(), path, body.clone()).boxed());
        }
        if from.is_none() {
            break;
        }
    }
    let outcomes: Vec<Outcome> = stream::iter(patches).buffer_unordered(AT_ONCE).collect().await;
    // A pod that is gone need not be told. Of other troubles one that may pass is the answer for all: a refusal would end the tries.
    let troubles = outcomes.into_iter().filter(|outcome| !matches!(outcome, Outcome::Applied { .. } | Outcome::Gone));
    let trouble = troubles.min_by_key(|outcome| matches!(outcome, Outcome::Refused(_)));
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
