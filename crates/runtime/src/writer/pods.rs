//! Lists of a job's pods, page by page. Any client may write the label by which a job's pods are found, so Berth checks the controlling owner of each pod.

use std::collections::BTreeSet;

use berth_control::write::{LeftPod, PodOnNode, PodsLeft, PodsOf, QueryFailure};
use http::header::ACCEPT;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::client::{Body, Client};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::encoded;
use crate::outcome::refusal_of;
use crate::watches::metadata;

/// Smallest page size (`limit`) of the lists of a job's pods.
const LEAST_PAGE: usize = 50;
/// Number of pods in a page of a pod list with complete objects.
const PAGE_LIMIT: usize = 250;
/// Field selector of pods that have not ended.
pub(super) const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A page of a list. The list kind is not read, because a list of metadata has no kind of its own.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub(super) struct Page<T> {
    metadata: ListMeta,
    /// The objects of the page; in an empty list of metadata, the API server writes `null` instead.
    #[serde(deserialize_with = "or_none")]
    pub(super) items: Vec<T>,
}

fn or_none<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// An object of which only the metadata was requested.
#[derive(Deserialize)]
pub(super) struct Meta {
    pub(super) metadata: ObjectMeta,
}

/// A pod with the name of its node.
#[derive(Deserialize)]
struct Placed {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Place,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Place {
    node_name: Option<String>,
}

impl<T> Page<T> {
    /// The continue token for the next page of the list; `None` for the last page.
    pub(super) fn next(&self) -> Option<String> {
        self.metadata.continue_.clone().filter(|token| !token.is_empty())
    }
}

/// Requests a page of the list of pods that have a job's label. `Err` has HTTP status and body of an answer that is no list.
pub(super) async fn page<T: DeserializeOwned>(
    client: &Client,
    (namespace, pods): (&str, &PodsOf),
    (accept, fields): (&str, &str),
    (limit, from): (usize, Option<&str>),
) -> Result<Page<T>, Option<(u16, Vec<u8>)>> {
    let selector = encoded(&format!("{}={}", pods.label, pods.uid));
    let path = format!("/api/v1/namespaces/{}/pods", encoded(namespace));
    let mut uri = format!("{path}?labelSelector={selector}&fieldSelector={}&limit={limit}", encoded(fields));
    if let Some(from) = from {
        uri.push_str(&format!("&continue={}", encoded(from)));
    }
    list(client, uri, accept).await
}

async fn list<T: DeserializeOwned>(
    client: &Client,
    uri: String,
    accept: &str,
) -> Result<Page<T>, Option<(u16, Vec<u8>)>> {
    let request = http::Request::builder().uri(uri).header(ACCEPT, accept).body(Body::empty()).map_err(|_| None)?;
    let response = client.send(request).await.map_err(|_| None)?;
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.map_err(|_| None)?;
    if !(200..300).contains(&code) {
        return Err(Some((code, body.to_vec())));
    }
    serde_json::from_slice(&body).map_err(|_| None)
}

/// Failure of a query that was not answered: a refusal if the API server refuses the query, and otherwise `Busy`, so that control asks the query again soon.
pub(super) fn unread(error: Option<(u16, Vec<u8>)>) -> QueryFailure {
    match error {
        Some((400 | 403 | 405 | 422, body)) => QueryFailure::Refused(refusal_of(&body)),
        _ => QueryFailure::Busy(1_000),
    }
}

/// The pods on a node that have not ended; `Busy` if these pods cannot be read now.
pub(super) async fn on_node(client: &Client, node: &str) -> Result<Vec<PodOnNode>, QueryFailure> {
    let fields = encoded(&format!("spec.nodeName={node},{NOT_ENDED}"));
    match list::<Meta>(client, format!("/api/v1/pods?fieldSelector={fields}"), metadata::LIST).await {
        Ok(page) => Ok(page.items.into_iter().map(|pod| PodOnNode::of(pod.metadata)).collect()),
        Err(error) => Err(unread(error)),
    }
}

/// Number of nodes with pods of a job that have not ended; `Busy` if the deleted job's pods cannot be read now.
pub(super) async fn count_nodes(client: &Client, namespace: &str, pods: &PodsOf) -> Result<usize, QueryFailure> {
    let (mut nodes, mut from) = (BTreeSet::new(), None::<String>);
    loop {
        let how = ("application/json", NOT_ENDED);
        let asked = page::<Placed>(client, (namespace, pods), how, (PAGE_LIMIT, from.as_deref())).await;
        let page = asked.map_err(unread)?;
        from = page.next();
        let own = page.items.into_iter().filter(|pod| pods.has(&pod.metadata));
        nodes.extend(own.filter_map(|pod| pod.spec.node_name));
        if from.is_none() {
            return Ok(nodes.len());
        }
    }
}

/// Pods that have not ended and have the uid of a deleted job in one of the given labels: the pods on the first page of a pod list that has such pods. `Busy`
/// if the pods cannot be read now.
pub(super) async fn left(
    client: &Client,
    namespace: &str,
    labels: &[&'static str],
    uid: &str,
) -> Result<Vec<LeftPod>, QueryFailure> {
    for label in labels {
        let pods = PodsOf { label, uid: uid.to_owned(), jobs: None };
        let mut from = None::<String>;
        loop {
            let how = (metadata::LIST, NOT_ENDED);
            let asked = page::<Meta>(client, (namespace, &pods), how, (LEAST_PAGE, from.as_deref())).await;
            let page = asked.map_err(unread)?;
            from = page.next();
            let found: Vec<LeftPod> = page.items.into_iter().filter_map(|pod| LeftPod::of(pod.metadata)).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            if from.is_none() {
                break;
            }
        }
    }
    Ok(Vec::new())
}

/// Counts whether at most `most` pods of a job have not ended; `Busy` if the job's pods cannot be read now.
pub(super) async fn probe(
    client: &Client,
    namespace: &str,
    pods: &PodsOf,
    most: usize,
) -> Result<PodsLeft, QueryFailure> {
    let limit = most.saturating_add(1).max(LEAST_PAGE);
    let (mut found, mut from) = (0_usize, None::<String>);
    loop {
        let asked =
            page::<Meta>(client, (namespace, pods), (metadata::LIST, NOT_ENDED), (limit, from.as_deref())).await;
        let page = asked.map_err(unread)?;
        found = found.saturating_add(page.items.iter().filter(|pod| pods.has(&pod.metadata)).count());
        from = page.next();
        match from {
            _ if found > most => return Ok(PodsLeft::TooMany),
            Some(_) => {}
            None => return Ok(PodsLeft::Allowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_query_is_refused_when_forbidden_and_busy_otherwise() {
        let forbidden = Some((403, br#"{"message": "pods is forbidden"}"#.to_vec()));
        assert_eq!(unread(forbidden), QueryFailure::Refused("pods is forbidden".to_owned()));
        for code in [401, 404, 410, 429, 500, 503] {
            assert_eq!(unread(Some((code, Vec::new()))), QueryFailure::Busy(1_000), "{code}");
        }
        assert_eq!(unread(None), QueryFailure::Busy(1_000));
    }
}
