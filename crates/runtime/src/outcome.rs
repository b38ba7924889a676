//! Translation of the API server's answers into outcomes of writes, as pure functions, so that every status code has a test.

use berth_control::write::Outcome;
use serde::Deserialize;

/// The verb of a write, as far as the meaning of an answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The write is a POST.
    Create,
    /// The write is a PATCH of any type.
    Patch,
    /// The write is a DELETE.
    Delete,
}

/// Default pause before the next attempt, in milliseconds, if a busy API server names none.
const DEFAULT_PAUSE_MS: u64 = 1000;

#[derive(Default, Deserialize)]
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

/// Translates an answer into an outcome. `retry_after` is the header of this name in seconds.
#[must_use]
pub fn outcome_of(verb: Verb, code: u16, retry_after: Option<u64>, body: &[u8]) -> Outcome {
    if (200..300).contains(&code) {
        if verb == Verb::Delete {
            // The answer to a deletion is the object if finalizers keep the object; then the answer has its version.
            let kept = serde_json::from_slice::<Written>(body).unwrap_or_default();
            return Outcome::Applied { resource_version: kept.metadata.resource_version };
        }
        return match serde_json::from_slice::<Written>(body) {
            Ok(written) => Outcome::Applied { resource_version: written.metadata.resource_version },
            // The write was applied, but its answer was cut off, so the new version is unknown.
            Err(error) => Outcome::Unknown(format!("answer of the API server is not readable: {error}")),
        };
    }
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let text = if status.message.is_empty() {
        String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned()
    } else {
        status.message.clone()
    };
    let pause = || {
        let seconds = retry_after.or_else(|| status.details.as_ref().map(|details| details.retry_after_seconds));
        seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_PAUSE_MS, |seconds| seconds.saturating_mul(1000))
    };
    match code {
        _ if is_beyond_the_store(&text) => Outcome::Refused(text),
        409 if verb == Verb::Create && status.reason == "AlreadyExists" => Outcome::AlreadyExists,
        409 | 422 if names_another_uid(&text) => Outcome::Gone,
        409 => Outcome::Conflict,
        404 => Outcome::Gone,
        // The client renews an expired token within seconds, and the API server wrote nothing.
        401 | 429 | 503 => Outcome::Busy(pause()),
        408 => Outcome::Unknown(text),
        400..=499 => Outcome::Refused(text),
        _ => Outcome::Unknown(format!("HTTP {code}: {text}")),
    }
}

/// Whether an error means that every attempt of the write will fail because the object is too large: etcd limits the size of objects and of messages. A write
/// beyond etcd's limits is refused before it is applied, and the API server reports an internal error.
fn is_beyond_the_store(message: &str) -> bool {
    ["etcdserver: request is too large", "trying to send message larger than max"]
        .iter()
        .any(|words| message.contains(words))
}

/// Whether an error says that the write's object is gone, because another object or none has its name. For a patch without a version, the API server compares
/// the uid last, as an immutable field.
fn names_another_uid(message: &str) -> bool {
    ["Precondition failed: UID", "uid mismatch", "metadata.uid: Invalid value"]
        .iter()
        .any(|words| message.contains(words))
}

/// Outcome of a request that failed before an answer: with a refused connection the API server wrote nothing, and otherwise the outcome is unknown.
#[must_use]
pub fn outcome_of_failure(error: &(dyn std::error::Error + 'static)) -> Outcome {
    let mut source = Some(error);
    while let Some(current) = source {
        if let Some(io) = current.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Outcome::Busy(DEFAULT_PAUSE_MS);
        }
        source = current.source();
    }
    Outcome::Unknown(error.to_string())
}

/// Name of an outcome for metrics.
#[must_use]
pub const fn label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied { .. } => "applied",
        Outcome::Stuck(_)
        | Outcome::OnNode(_)
        | Outcome::Left(_)
        | Outcome::Nodes(_)
        | Outcome::Object(_)
        | Outcome::Checkpoints(Ok(_)) => "answered",
        Outcome::Checkpoints(Err(_)) => "failed",
        Outcome::Conflict => "conflict",
        Outcome::AlreadyExists => "already_exists",
        Outcome::Gone => "gone",
        Outcome::Refused(_) => "refused",
        Outcome::Busy(_) => "busy",
        Outcome::Unknown(_) => "unknown",
        Outcome::NotSent => "not_sent",
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
        let applied = |rv: &str| Outcome::Applied { resource_version: rv.to_owned() };
        assert_eq!(outcome_of(Verb::Patch, 200, None, body), applied("42"));
        assert_eq!(outcome_of(Verb::Create, 201, None, body), applied("42"));
        assert_eq!(outcome_of(Verb::Delete, 200, None, b"{}"), applied(""));
        assert!(matches!(outcome_of(Verb::Patch, 200, None, b"{\"meta"), Outcome::Unknown(_)));
    }

    #[test]
    fn conflict_answer_is_distinguished_from_gone_and_already_exists() {
        let modified =
            status("Conflict", "Operation cannot be fulfilled on workloads \"w\": the object has been modified");
        assert_eq!(outcome_of(Verb::Patch, 409, None, &modified), Outcome::Conflict);
        let exists = status("AlreadyExists", "workloads.kueue.x-k8s.io \"w\" already exists");
        assert_eq!(outcome_of(Verb::Create, 409, None, &exists), Outcome::AlreadyExists);
        let other = status("Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b");
        assert_eq!(outcome_of(Verb::Patch, 409, None, &other), Outcome::Gone);
        assert_eq!(outcome_of(Verb::Delete, 409, None, &other), Outcome::Gone);
        let none =
            status("Conflict", "uid mismatch: the provided object specified uid a, and no existing object was found");
        assert_eq!(outcome_of(Verb::Patch, 409, None, &none), Outcome::Gone);
        let another = status("Invalid", "Pod \"a\" is invalid: metadata.uid: Invalid value: \"u\": field is immutable");
        assert_eq!(outcome_of(Verb::Patch, 422, None, &another), Outcome::Gone);
    }

    #[test]
    fn refused_write_outcome_carries_the_server_message() {
        for code in [400, 403, 405, 413, 415, 422] {
            let outcome = outcome_of(Verb::Patch, code, None, &status("Invalid", "spec.x: must not change"));
            assert_eq!(outcome, Outcome::Refused("spec.x: must not change".into()), "{code}");
        }
        assert_eq!(outcome_of(Verb::Patch, 404, None, &status("NotFound", "gone")), Outcome::Gone);
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
                assert_eq!(outcome, Outcome::Refused(text.to_owned()));
            }
        }
        let outcome = outcome_of(Verb::Patch, 500, None, &status("InternalError", "etcdserver: request timed out"));
        assert!(matches!(outcome, Outcome::Unknown(_)), "that one may have been written");
    }

    #[test]
    fn busy_outcome_carries_the_retry_delay() {
        assert_eq!(outcome_of(Verb::Patch, 429, Some(3), b""), Outcome::Busy(3000));
        assert_eq!(outcome_of(Verb::Patch, 503, None, b"x"), Outcome::Busy(1000));
        let body = br#"{"kind":"Status","details":{"retryAfterSeconds":7}}"#;
        assert_eq!(outcome_of(Verb::Patch, 429, None, body), Outcome::Busy(7000));
        assert_eq!(outcome_of(Verb::Create, 401, None, b""), Outcome::Busy(1000));
    }

    #[test]
    fn outcome_of_a_write_that_may_be_applied_is_unknown() {
        for code in [408, 500, 502, 504] {
            assert!(matches!(outcome_of(Verb::Patch, code, None, b"late"), Outcome::Unknown(_)), "{code}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let wrapped = kube::Error::Service(Box::new(refused));
        assert_eq!(outcome_of_failure(&wrapped), Outcome::Busy(1000));
        let reset = kube::Error::Service(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert!(matches!(outcome_of_failure(&reset), Outcome::Unknown(_)));
    }
}
