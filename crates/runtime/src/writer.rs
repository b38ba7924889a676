//! The writer: each write is one request with preconditions in its body, a time limit, and no hidden retry.

mod notify;
mod pods;
mod stuck;
mod whole;

use crate::checkpoints::Stores;
use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::outcome::{Verb, label, outcome_of, outcome_of_failure};
use crate::rate::Rate;
use berth_control::write::{CheckpointPlace, ObjectKey, Outcome, Question, Request, Subresource, Term, Write};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use kube::client::{Body, Client};
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Field manager of created objects, which is the field manager that Kueue's client has by its user agent.
const CREATE_MANAGER: &str = "kueue";

/// Accepted media types of answers. Berth reads only the version, and a server that supports metadata-only answers omits the rest of the object.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Time limit for listing a checkpoint store.
const LIST_DEADLINE: Duration = Duration::from_secs(30);

/// The writer, which performs control's writes.
pub struct Writer {
    client: Client,
    leadership: Leadership,
    stores: Stores,
    rate: Rate,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// A writer with a client that does not retry.
    #[must_use]
    pub fn new(client: Client, leadership: Leadership, stores: Stores, rate: Rate, metrics: Arc<Metrics>) -> Self {
        Self { client, leadership, stores, rate, metrics }
    }

    /// Waits for the rate limit. The pool waits before each write that is a single request, and a write that patches many objects waits before each patch.
    pub async fn wait_for_rate(&self) {
        self.rate.take().await;
    }

    /// Whether a write may be sent: its term has not ended, and its time limit fits into the lease.
    #[must_use]
    pub fn permits(&self, write: &Write, now: Instant) -> bool {
        self.leadership.permits(write.term, now)
    }

    /// Performs one write and returns its outcome. The outcome is `NotSent` if the write's term has ended, or too little of the lease is left for the write.
    pub async fn perform(&self, write: &Write) -> Outcome {
        let outcome = self.send(write).await;
        self.metrics.count(
            "berth_writes",
            &[("purpose", &format!("{:?}", write.purpose)), ("outcome", label(&outcome))],
            1,
        );
        match &outcome {
            Outcome::Refused(text) | Outcome::Unknown(text) => {
                tracing::warn!(object = %write.key, purpose = ?write.purpose, outcome = label(&outcome), text, "write");
            }
            other => tracing::debug!(object = %write.key, purpose = ?write.purpose, outcome = label(other), "write"),
        }
        outcome
    }

    async fn send(&self, write: &Write) -> Outcome {
        if !self.leadership.permits(write.term, Instant::now()) {
            return Outcome::NotSent;
        }
        let deadline = self.leadership.deadline();
        match &write.request {
            Request::Ask(question) => self.ask(write, question, deadline).await,
            Request::AnnotatePods { pods, annotations } => notify::annotate(self, write, pods, annotations).await,
            Request::DeleteCheckpoints { place, ids } => {
                let deleted = tokio::time::timeout(deadline, self.stores.delete(place, ids)).await;
                match deleted.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                    Ok(()) => Outcome::Applied { resource_version: String::new() },
                    Err(fault) => Outcome::Checkpoints(Err(fault)),
                }
            }
            request => self.request(write.term, &write.key, request).await,
        }
    }

    /// Sends one request of a write, in the write's term and within the time limit.
    async fn request(&self, term: Term, key: &ObjectKey, request: &Request) -> Outcome {
        if !self.leadership.permits(term, Instant::now()) {
            return Outcome::NotSent;
        }
        let deadline = self.leadership.deadline();
        let http = match http_request(key, request, deadline) {
            Ok(http) => http,
            Err(error) => return Outcome::Refused(format!("request cannot be built: {error}")),
        };
        match tokio::time::timeout(deadline, self.exchange(verb_of(request), http)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Unknown(format!("no answer within {} s", deadline.as_secs())),
        }
    }

    /// Asks the API server or a checkpoint store a question of control.
    async fn ask(&self, write: &Write, question: &Question, deadline: Duration) -> Outcome {
        let (client, namespace) = (&self.client, write.key.namespace.as_str());
        match question {
            Question::ListCheckpoints { place } => self.look(write.term, place).await,
            Question::ProbePods { pods, most } => in_time(deadline, pods::probe(client, namespace, pods, *most)).await,
            Question::FindStuckPods { pods } => in_time(deadline, stuck::find(client, namespace, pods)).await,
            Question::AskAutoscalers { pods } => in_time(deadline, stuck::ask(client, namespace, pods)).await,
            Question::FindPodsOnNode => in_time(deadline, pods::on_node(client, &write.key.name)).await,
            Question::FindLeftPods { labels, uid } => {
                in_time(deadline, pods::left(client, namespace, labels, uid)).await
            }
            Question::ReadObject => in_time(deadline, whole::read(client, &write.key)).await,
            Question::CountNodes { pods } => in_time(deadline, pods::count_nodes(client, namespace, pods)).await,
        }
    }

    /// Lists a checkpoint store. A list changes nothing, so it may outlast the lease, but not the term, because a new leader's start waits for all running
    /// requests.
    async fn look(&self, term: Term, place: &CheckpointPlace) -> Outcome {
        let too_late = |_| Err("no answer in time".to_owned());
        tokio::select! {
            listed = tokio::time::timeout(LIST_DEADLINE, self.stores.list(place)) => {
                Outcome::Checkpoints(listed.unwrap_or_else(too_late))
            }
            () = self.leadership.over(term) => Outcome::NotSent,
        }
    }

    async fn exchange(&self, verb: Verb, request: http::Request<Body>) -> Outcome {
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return outcome_of_failure(&error),
        };
        let code = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        match response.into_body().collect_bytes().await {
            Ok(body) => outcome_of(verb, code, retry_after, &body),
            Err(error) if (200..300).contains(&code) => Outcome::Unknown(format!("answer broke off: {error}")),
            Err(_) => outcome_of(verb, code, retry_after, b""),
        }
    }
}

/// The answer to a question about pods; `Busy` at the time limit.
async fn in_time(deadline: Duration, answer: impl Future<Output = Outcome>) -> Outcome {
    tokio::time::timeout(deadline, answer).await.unwrap_or(Outcome::Busy(1_000))
}

const fn verb_of(request: &Request) -> Verb {
    match request {
        Request::Create(_) => Verb::Create,
        Request::Apply { .. }
        | Request::Merge { .. }
        | Request::Ask(_)
        | Request::AnnotatePods { .. }
        | Request::DeleteCheckpoints { .. } => Verb::Patch,
        Request::Delete { .. } => Verb::Delete,
    }
}

/// The HTTP request of a write. The server-side time limit of a request ends a second before Berth's, so that a write with an unknown outcome has ended by
/// then.
fn http_request(key: &ObjectKey, request: &Request, deadline: Duration) -> Result<http::Request<Body>, http::Error> {
    let server_deadline = deadline.as_secs().saturating_sub(1).max(1);
    let (method, content_type, subresource, query, body) = match request {
        // Questions, deletions of checkpoints and annotations of pods are not a single request to the API server.
        Request::Ask(_) | Request::DeleteCheckpoints { .. } | Request::AnnotatePods { .. } => {
            return http::Request::builder().uri("").body(Body::empty());
        }
        Request::Create(body) => (
            http::Method::POST,
            "application/json",
            Subresource::None,
            format!("?fieldManager={CREATE_MANAGER}&timeout={server_deadline}s"),
            body.as_str().to_owned(),
        ),
        Request::Apply { manager, subresource, body } => (
            http::Method::PATCH,
            "application/apply-patch+yaml",
            *subresource,
            format!("?fieldManager={}&force=true&timeout={server_deadline}s", encoded(manager)),
            body.as_str().to_owned(),
        ),
        Request::Merge { manager, subresource, body } => (
            http::Method::PATCH,
            "application/merge-patch+json",
            *subresource,
            format!("?fieldManager={}&timeout={server_deadline}s", encoded(manager)),
            body.as_str().to_owned(),
        ),
        Request::Delete { uid, owned_first } => (
            http::Method::DELETE,
            "application/json",
            Subresource::None,
            format!("?timeout={server_deadline}s"),
            json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": uid},
                "propagationPolicy": if *owned_first { "Foreground" } else { "Background" },
            })
            .to_string(),
        ),
    };
    let path = path_of(key, matches!(request, Request::Create(_)), subresource);
    http::Request::builder()
        .method(method)
        .uri(format!("{path}{query}"))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, METADATA_ONLY)
        .body(Body::from(body.into_bytes()))
}

fn path_of(key: &ObjectKey, collection: bool, subresource: Subresource) -> String {
    let (group, version, plural) = key.kind.resource();
    let mut path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    if !key.namespace.is_empty() {
        path.push_str("/namespaces/");
        path.push_str(&encoded(&key.namespace));
    }
    path.push('/');
    path.push_str(plural);
    if !collection {
        path.push('/');
        path.push_str(&encoded(&key.name));
        if subresource == Subresource::Status {
            path.push_str("/status");
        }
    }
    path
}

/// Percent-encodes the characters that a path segment or query value must not have.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
