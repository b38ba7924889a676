//! The writer: each write is one request with preconditions in its body, a time limit, and no hidden retry.

mod notify;
mod pods;
mod read_object;
mod stuck;

use crate::checkpoints::Stores;
use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::outcome::{Verb, label, outcome_of, outcome_of_failure, text_of};
use crate::rate::Rate;
use berth_control::write::{
    Action, Checkpoint, CheckpointPlace, Query, QueryAnswer, QueryFailure, ResourceKind, Subresource, Task,
    TaskOutcome, Term, Write, WriteOutcome,
};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use kube::client::{Body, Client};
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Field manager of the objects that Berth creates, equal to the field manager that Kueue's client has by its user agent.
const CREATE_MANAGER: &str = "kueue";

/// Accepted media types of the API server's answers to writes. Berth reads only the resourceVersion in these answers, and an API server that supports
/// metadata-only answers omits the rest of the object.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Time limit for listing a checkpoint store.
const LIST_DEADLINE: Duration = Duration::from_secs(30);

/// Text about a checkpoint store that does not answer.
const LATE: &str = "no answer in time";

/// The checkpoints in a checkpoint store, or the reason why they could not be listed.
type Listing = Result<Vec<Checkpoint>, String>;

/// Performs tasks.
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

    /// Waits for the rate limit. The writer pool calls this function before each write that is a single request, and a write that patches many objects calls it
    /// before each patch.
    pub async fn wait_for_rate(&self) {
        self.rate.take().await;
    }

    /// Whether the writer would send a task now: the task's term is not over, and the task could end within the lease.
    #[must_use]
    pub fn permits(&self, task: &Task, now: Instant) -> bool {
        self.leadership.permits(task.term, now)
    }

    /// Performs one task and returns its outcome. The outcome is `NotSent` if the task's term is over, or if too little time of the lease is left for the task
    /// to end in time.
    pub async fn perform(&self, task: &Task) -> TaskOutcome {
        let outcome = self.send(task).await;
        self.metrics.count(
            "berth_writes",
            &[("purpose", &format!("{:?}", task.purpose)), ("outcome", label(&outcome))],
            1,
        );
        match text_of(&outcome) {
            Some(text) => {
                tracing::warn!(object = %task.key, purpose = ?task.purpose, outcome = label(&outcome), text, "write");
            }
            None => tracing::debug!(object = %task.key, purpose = ?task.purpose, outcome = label(&outcome), "write"),
        }
        outcome
    }

    async fn send(&self, task: &Task) -> TaskOutcome {
        let is_permitted = self.leadership.permits(task.term, Instant::now());
        match &task.action {
            Action::Write(_) if !is_permitted => WriteOutcome::NotSent.into(),
            Action::Query(_) if !is_permitted => QueryFailure::NotSent.into(),
            Action::Write(write) => self.write(task, write).await.into(),
            Action::Query(query) => TaskOutcome::Answered(self.ask(task, query).await),
        }
    }

    async fn write(&self, task: &Task, write: &Write) -> WriteOutcome {
        match write {
            Write::AnnotatePods { pods, annotations } => notify::annotate(self, task, pods, annotations).await,
            Write::DeleteCheckpoints { place, ids } => {
                let deadline = self.leadership.deadline();
                let deleted = tokio::time::timeout(deadline, self.stores.delete(place, ids)).await;
                match deleted {
                    Ok(Ok(())) => WriteOutcome::Applied { resource_version: String::new() },
                    Ok(Err(error)) => WriteOutcome::StoreFailed(error.to_string()),
                    Err(_) => WriteOutcome::StoreFailed(LATE.to_owned()),
                }
            }
            write => match task.key.kind.resource_kind() {
                Some(kind) => {
                    self.request(
                        task.term,
                        &Target { kind, namespace: &task.key.namespace, name: &task.key.name },
                        write,
                    )
                    .await
                }
                None => WriteOutcome::Refused(format!("{} is no object of the API", task.key)),
            },
        }
    }

    /// Sends one HTTP request of a write, if the write's term is not over, and within the time limit of a write.
    async fn request(&self, term: Term, target: &Target<'_>, write: &Write) -> WriteOutcome {
        if !self.leadership.permits(term, Instant::now()) {
            return WriteOutcome::NotSent;
        }
        let deadline = self.leadership.deadline();
        let http = match http_request(target, write, deadline) {
            Ok(http) => http,
            Err(error) => return WriteOutcome::Refused(format!("request cannot be built: {error}")),
        };
        match tokio::time::timeout(deadline, self.exchange(verb_of(write), http)).await {
            Ok(outcome) => outcome,
            Err(_) => WriteOutcome::Unknown(format!("no answer within {} s", deadline.as_secs())),
        }
    }

    /// Answers one query of control from the API server or a checkpoint store. Each match arm pairs a query with the answer that has the query's type.
    async fn ask(&self, task: &Task, query: &Query) -> Result<QueryAnswer, QueryFailure> {
        let (client, namespace, deadline) = (&self.client, task.key.namespace.as_str(), self.leadership.deadline());
        match query {
            Query::ListCheckpoints { place } => self.look(task.term, place).await.map(QueryAnswer::Checkpoints),
            Query::ProbePods { pods, most } => {
                in_time(deadline, pods::probe(client, namespace, pods, *most)).await.map(QueryAnswer::PodsLeft)
            }
            Query::FindStuckPods { pods } => {
                in_time(deadline, stuck::find(client, namespace, pods)).await.map(QueryAnswer::Stuck)
            }
            Query::AskAutoscalers { pods } => {
                in_time(deadline, stuck::ask(client, namespace, pods)).await.map(QueryAnswer::Stuck)
            }
            Query::FindPodsOnNode => {
                in_time(deadline, pods::on_node(client, &task.key.name)).await.map(QueryAnswer::OnNode)
            }
            Query::FindLeftPods { labels, uid } => {
                in_time(deadline, pods::left(client, namespace, labels, uid)).await.map(QueryAnswer::Left)
            }
            Query::ReadObject => in_time(deadline, read_object::read(client, &task.key)).await.map(QueryAnswer::Object),
            Query::CountNodes { pods } => {
                in_time(deadline, pods::count_nodes(client, namespace, pods)).await.map(QueryAnswer::Nodes)
            }
        }
    }

    /// Lists a checkpoint store. The listing of a checkpoint store changes nothing, so it may outlast the lease, but not the term, because a new leader's start
    /// waits for all running requests.
    async fn look(&self, term: Term, place: &CheckpointPlace) -> Result<Listing, QueryFailure> {
        let too_late = |_| Err(LATE.to_owned());
        tokio::select! {
            listed = tokio::time::timeout(LIST_DEADLINE, self.stores.list(place)) => {
                Ok(listed.map_or_else(too_late, |listed| listed.map_err(|error| error.to_string())))
            }
            () = self.leadership.over(term) => Err(QueryFailure::NotSent),
        }
    }

    async fn exchange(&self, verb: Verb, request: http::Request<Body>) -> WriteOutcome {
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return outcome_of_failure(&error),
        };
        let code = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        match response.into_body().collect_bytes().await {
            Ok(body) => outcome_of(verb, code, retry_after, &body),
            Err(error) if (200..300).contains(&code) => WriteOutcome::Unknown(format!("answer broke off: {error}")),
            Err(_) => outcome_of(verb, code, retry_after, b""),
        }
    }
}

/// The answer to a query about pods, or `Busy` if the answer takes too long.
async fn in_time<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, QueryFailure>>,
) -> Result<T, QueryFailure> {
    tokio::time::timeout(deadline, answer).await.unwrap_or(Err(QueryFailure::Busy(1_000)))
}

const fn verb_of(write: &Write) -> Verb {
    match write {
        Write::Create(_) => Verb::Create,
        Write::Apply { .. } | Write::Merge { .. } | Write::AnnotatePods { .. } | Write::DeleteCheckpoints { .. } => {
            Verb::Patch
        }
        Write::Delete { .. } => Verb::Delete,
    }
}

/// The HTTP request of a write. The API server's time limit for the request ends a second before Berth's time limit, so that a write whose outcome Berth does
/// not know has ended in the API server by then.
fn http_request(target: &Target<'_>, write: &Write, deadline: Duration) -> Result<http::Request<Body>, http::Error> {
    let server_deadline = deadline.as_secs().saturating_sub(1).max(1);
    let (method, content_type, subresource, query, body) = match write {
        // Deletions of checkpoints and annotations of all pods of a job are not a single request to the API server.
        Write::DeleteCheckpoints { .. } | Write::AnnotatePods { .. } => {
            return http::Request::builder().uri("").body(Body::empty());
        }
        Write::Create(body) => (
            http::Method::POST,
            "application/json",
            Subresource::None,
            format!("?fieldManager={CREATE_MANAGER}&timeout={server_deadline}s"),
            body.as_str().to_owned(),
        ),
        Write::Apply { manager, subresource, body } => (
            http::Method::PATCH,
            "application/apply-patch+yaml",
            *subresource,
            format!("?fieldManager={}&force=true&timeout={server_deadline}s", encoded(manager)),
            body.as_str().to_owned(),
        ),
        Write::Merge { manager, subresource, body } => (
            http::Method::PATCH,
            "application/merge-patch+json",
            *subresource,
            format!("?fieldManager={}&timeout={server_deadline}s", encoded(manager)),
            body.as_str().to_owned(),
        ),
        Write::Delete { uid, owned_first } => (
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
    let path = path_of(target, matches!(write, Write::Create(_)), subresource);
    http::Request::builder()
        .method(method)
        .uri(format!("{path}{query}"))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, METADATA_ONLY)
        .body(Body::from(body.into_bytes()))
}

/// Object of the API to which a request of the writer goes.
struct Target<'a> {
    kind: ResourceKind,
    /// Namespace of the object; empty for cluster-scoped kinds.
    namespace: &'a str,
    name: &'a str,
}

fn path_of(target: &Target<'_>, collection: bool, subresource: Subresource) -> String {
    let (group, version, plural) = target.kind.resource();
    let mut path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    if !target.namespace.is_empty() {
        path.push_str("/namespaces/");
        path.push_str(&encoded(target.namespace));
    }
    path.push('/');
    path.push_str(plural);
    if !collection {
        path.push('/');
        path.push_str(&encoded(target.name));
        if subresource == Subresource::Status {
            path.push_str("/status");
        }
    }
    path
}

/// Percent-encodes the characters that a URL path segment or a URL query value must not have.
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
