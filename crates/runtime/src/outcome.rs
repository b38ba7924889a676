//! Translation of the API server's answers into outcomes of writes, as pure functions, so that every status code has a test.

use berth_control::write::{PodsLeft, QueryAnswer, QueryFailure, TaskOutcome, WriteOutcome};
use serde::Deserialize;

/// The HTTP verb of a write, as far as the meaning of the API server's answer depends on the verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The write is a POST.
    Create,
    /// The write is a PATCH of any type.
    Patch,
    /// The write is a DELETE.
    Delete,
}

/// Pause in milliseconds before the next attempt of a write if a busy API server names no pause.
const DEFAULT_PAUSE_MS: u64 = 1000;

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    metadata: WrittenMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenMeta {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    message: String,
    reason: String,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u64,
}

impl Status {
    /// The status in a body. A body that is no Kubernetes Status, for example a proxy's HTML page, gives an empty status, and [`Self::text`] then shows the
    /// body.
    fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The message of the API server's Status; without a message, the beginning of the answer's body.
    fn text(&self, body: &[u8]) -> String {
        if self.message.is_empty() {
            String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned()
        } else {
            self.message.clone()
        }
    }
}

/// The message of an API server's answer that refuses a query.
#[must_use]
pub fn refusal_of(body: &[u8]) -> String {
    Status::of(body).text(body)
}

/// The resourceVersion in the API server's answer to a write that was applied. The resourceVersion is empty if the answer has none, as the answer to a
/// deletion; otherwise the answer is the written object, and control waits until a watch shows the object's version.
fn written_version(body: &[u8]) -> Result<String, String> {
    let written: Written = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let version = written.metadata.resource_version;
    if !version.is_empty() && version.parse::<u64>().is_err() {
        return Err(format!("metadata.resourceVersion: {version:?}: only a decimal number is allowed"));
    }
    Ok(version)
}

/// Translates the API server's answer to a write into an outcome. `retry_after` is the value of the HTTP header `Retry-After` in seconds.
#[must_use]
pub fn outcome_of(verb: Verb, code: u16, retry_after: Option<u64>, body: &[u8]) -> WriteOutcome {
    if (200..300).contains(&code) {
        return match written_version(body) {
            Ok(resource_version) => WriteOutcome::Applied { resource_version },
            // The API server has accepted the deletion even if the answer cannot be read, and control waits for no version of a deleted object.
            Err(_) if verb == Verb::Delete => WriteOutcome::Applied { resource_version: String::new() },
            // The write was applied, but the API server's answer cannot be read, so the object's new version is unknown.
            Err(error) => WriteOutcome::Unknown(format!("answer of the API server is not readable: {error}")),
        };
    }
    let status = Status::of(body);
    let text = status.text(body);
    let pause = || {
        let seconds = retry_after.or_else(|| status.details.as_ref().map(|details| details.retry_after_seconds));
        seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_PAUSE_MS, |seconds| seconds.saturating_mul(1000))
    };
    match code {
        _ if is_beyond_the_store(&text) => WriteOutcome::Refused(text),
        409 if verb == Verb::Create && status.reason == "AlreadyExists" => WriteOutcome::AlreadyExists,
        409 | 422 if names_another_uid(&text) => WriteOutcome::Gone,
        409 => WriteOutcome::Conflict,
        404 => WriteOutcome::Gone,
        // After an answer 401 the API server wrote nothing, and the client renews an expired token within seconds, so the write is tried again.
        401 | 429 | 503 => WriteOutcome::Busy(pause()),
        408 => WriteOutcome::Unknown(text),
        400..=499 => WriteOutcome::Refused(text),
        _ => WriteOutcome::Unknown(format!("HTTP {code}: {text}")),
    }
}

/// Whether the API server's message means that every attempt of the write will fail because the object is too large: etcd limits the size of objects and of
/// messages. A write beyond etcd's limits is refused before it is applied, and the API server reports an internal error.
fn is_beyond_the_store(message: &str) -> bool {
    ["etcdserver: request is too large", "trying to send message larger than max"]
        .iter()
        .any(|words| message.contains(words))
}

/// Whether the API server's message says that the object of the write is gone, because no object or another object has its name. For a patch without a
/// resourceVersion, the API server compares the uid last, as an immutable field.
fn names_another_uid(message: &str) -> bool {
    ["Precondition failed: UID", "uid mismatch", "metadata.uid: Invalid value"]
        .iter()
        .any(|words| message.contains(words))
}

/// Outcome of a write whose request failed before an answer: with a refused connection the API server wrote nothing, and otherwise the outcome is unknown.
#[must_use]
pub fn outcome_of_failure(error: &(dyn std::error::Error + 'static)) -> WriteOutcome {
    let mut source = Some(error);
    while let Some(current) = source {
        if let Some(io) = current.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return WriteOutcome::Busy(DEFAULT_PAUSE_MS);
        }
        source = current.source();
    }
    WriteOutcome::Unknown(error.to_string())
}

/// Name of a task's outcome in the labels of metrics.
#[must_use]
pub const fn label(outcome: &TaskOutcome) -> &'static str {
    match outcome {
        TaskOutcome::Written(outcome) => label_of_write(outcome),
        TaskOutcome::Answered(Ok(answer)) => label_of_answer(answer),
        TaskOutcome::Answered(Err(failure)) => label_of_failure(failure),
    }
}

const fn label_of_write(outcome: &WriteOutcome) -> &'static str {
    match outcome {
        WriteOutcome::Applied { .. } => "applied",
        WriteOutcome::StoreFailed(_) => "failed",
        WriteOutcome::Conflict => "conflict",
        WriteOutcome::AlreadyExists => "already_exists",
        WriteOutcome::Gone => "gone",
        WriteOutcome::Refused(_) => "refused",
        WriteOutcome::Busy(_) => "busy",
        WriteOutcome::Unknown(_) => "unknown",
        WriteOutcome::NotSent => "not_sent",
    }
}

const fn label_of_answer(answer: &QueryAnswer) -> &'static str {
    match answer {
        // Dashboards know the two answers to the query for a job's remaining pods by the names `applied` and `busy`.
        QueryAnswer::PodsLeft(PodsLeft::Allowed) => "applied",
        QueryAnswer::PodsLeft(PodsLeft::TooMany) => "busy",
        QueryAnswer::Stuck(_)
        | QueryAnswer::OnNode(_)
        | QueryAnswer::Left(_)
        | QueryAnswer::Nodes(_)
        | QueryAnswer::Object(_)
        | QueryAnswer::Checkpoints(Ok(_)) => "answered",
        QueryAnswer::Checkpoints(Err(_)) => "failed",
    }
}

const fn label_of_failure(failure: &QueryFailure) -> &'static str {
    match failure {
        QueryFailure::Gone => "gone",
        QueryFailure::Refused(_) => "refused",
        QueryFailure::Busy(_) => "busy",
        QueryFailure::Lost(_) => "unknown",
        QueryFailure::NotSent => "not_sent",
    }
}

/// The log's text about a task that was refused or whose answer was lost.
#[must_use]
pub fn text_of(outcome: &TaskOutcome) -> Option<&str> {
    match outcome {
        TaskOutcome::Written(WriteOutcome::Refused(text) | WriteOutcome::Unknown(text))
        | TaskOutcome::Answered(Err(QueryFailure::Refused(text) | QueryFailure::Lost(text))) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(reason: &str, message: &str) -> Vec<u8> {
        serde_json::json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn successful_write_outcome_carries_the_resource_version() {
        let body = br#"{"kind":"Workload","metadata":{"name":"a","resourceVersion":"42"},"spec":{}}"#;
        let applied = |rv: &str| WriteOutcome::Applied { resource_version: rv.to_owned() };
        assert_eq!(outcome_of(Verb::Patch, 200, None, body), applied("42"));
        assert_eq!(outcome_of(Verb::Create, 201, None, body), applied("42"));
        assert_eq!(outcome_of(Verb::Delete, 200, None, b"{}"), applied(""));
        assert!(matches!(outcome_of(Verb::Patch, 200, None, b"{\"meta"), WriteOutcome::Unknown(_)));
    }

    #[test]
    fn answer_without_readable_version_is_unknown_except_for_deletions() {
        let body = br#"{"metadata": {"resourceVersion": "v7"}}"#;
        let text = "answer of the API server is not readable: metadata.resourceVersion: \"v7\": only a decimal number is allowed";
        for (verb, outcome) in [
            (Verb::Create, WriteOutcome::Unknown(text.to_owned())),
            (Verb::Patch, WriteOutcome::Unknown(text.to_owned())),
            (Verb::Delete, WriteOutcome::Applied { resource_version: String::new() }),
        ] {
            assert_eq!(outcome_of(verb, 200, None, body), outcome, "{verb:?}");
        }
        let cut_off = outcome_of(Verb::Delete, 200, None, b"{\"meta");
        assert_eq!(cut_off, WriteOutcome::Applied { resource_version: String::new() });
    }

    #[test]
    fn conflict_answer_is_distinguished_from_gone_and_already_exists() {
        let modified =
            status("Conflict", "Operation cannot be fulfilled on workloads \"w\": the object has been modified");
        assert_eq!(outcome_of(Verb::Patch, 409, None, &modified), WriteOutcome::Conflict);
        let exists = status("AlreadyExists", "workloads.kueue.x-k8s.io \"w\" already exists");
        assert_eq!(outcome_of(Verb::Create, 409, None, &exists), WriteOutcome::AlreadyExists);
        let other = status("Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b");
        assert_eq!(outcome_of(Verb::Patch, 409, None, &other), WriteOutcome::Gone);
        assert_eq!(outcome_of(Verb::Delete, 409, None, &other), WriteOutcome::Gone);
        let none =
            status("Conflict", "uid mismatch: the provided object specified uid a, and no existing object was found");
        assert_eq!(outcome_of(Verb::Patch, 409, None, &none), WriteOutcome::Gone);
        let another = status("Invalid", "Pod \"a\" is invalid: metadata.uid: Invalid value: \"u\": field is immutable");
        assert_eq!(outcome_of(Verb::Patch, 422, None, &another), WriteOutcome::Gone);
    }

    #[test]
    fn refused_write_outcome_carries_the_server_message() {
        for code in [400, 403, 405, 413, 415, 422] {
            let outcome = outcome_of(Verb::Patch, code, None, &status("Invalid", "spec.x: must not change"));
            assert_eq!(outcome, WriteOutcome::Refused("spec.x: must not change".into()), "{code}");
        }
        assert_eq!(outcome_of(Verb::Patch, 404, None, &status("NotFound", "gone")), WriteOutcome::Gone);
    }

    /// A write that is too large for etcd fails at every attempt.
    #[test]
    fn write_too_large_for_etcd_is_refused_and_not_unknown() {
        for text in [
            "etcdserver: request is too large",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097301 vs. 2097152)",
        ] {
            for verb in [Verb::Create, Verb::Patch] {
                let outcome = outcome_of(verb, 500, None, &status("InternalError", text));
                assert_eq!(outcome, WriteOutcome::Refused(text.to_owned()));
            }
        }
        let outcome = outcome_of(Verb::Patch, 500, None, &status("InternalError", "etcdserver: request timed out"));
        assert!(matches!(outcome, WriteOutcome::Unknown(_)), "that one may have been written");
    }

    #[test]
    fn busy_outcome_carries_the_retry_delay() {
        assert_eq!(outcome_of(Verb::Patch, 429, Some(3), b""), WriteOutcome::Busy(3000));
        assert_eq!(outcome_of(Verb::Patch, 503, None, b"x"), WriteOutcome::Busy(1000));
        let body = br#"{"kind":"Status","details":{"retryAfterSeconds":7}}"#;
        assert_eq!(outcome_of(Verb::Patch, 429, None, body), WriteOutcome::Busy(7000));
        assert_eq!(outcome_of(Verb::Create, 401, None, b""), WriteOutcome::Busy(1000));
    }

    #[test]
    fn outcome_of_a_write_that_may_be_applied_is_unknown() {
        for code in [408, 500, 502, 504] {
            assert!(matches!(outcome_of(Verb::Patch, code, None, b"late"), WriteOutcome::Unknown(_)), "{code}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let wrapped = kube::Error::Service(Box::new(refused));
        assert_eq!(outcome_of_failure(&wrapped), WriteOutcome::Busy(1000));
        let reset = kube::Error::Service(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert!(matches!(outcome_of_failure(&reset), WriteOutcome::Unknown(_)));
    }
}
