//! AdmissionReview of `admission.k8s.io/v1`: decoding of requests and encoding of answers. The module is pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_api::json::to_text;
use berth_api::validation::FieldError;
use berth_api::{berth, lean};
use berth_jobs::{JobObject, JobType};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Most errors in one answer: users do not read more errors, and the size of a status is limited.
const MOST_CAUSES: usize = 64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// The request of an AdmissionReview.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Uid of the request, which the answer repeats.
    pub uid: String,
    /// Kind of the object.
    #[serde(default)]
    pub kind: GroupVersionKind,
    /// Name of the object; empty if the API server will choose the name.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object; empty for cluster-scoped kinds.
    #[serde(default)]
    pub namespace: String,
    /// The operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The object that the API server stores if the review allows it; absent in a deletion.
    pub object: Option<Box<RawValue>>,
    /// The stored object, in an update.
    pub old_object: Option<Box<RawValue>>,
    /// The user whose request is under review.
    #[serde(default)]
    pub user_info: UserInfo,
}

/// The user whose request is under review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name of the user, such as `system:serviceaccount:kube-system:job-controller`.
    pub username: String,
    /// UID of the user, by which an account differs from an earlier account of the same name.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further facts about the user from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Group, version and kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind {
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Reason why a body cannot be decoded as a review, or an object in it as its kind.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The body is no AdmissionReview, so that there is no request to answer.
    #[error("the body is no {KIND} of {API_VERSION}: {0}")]
    Review(String),
    /// The body is no ConversionReview with a request, so that there is nothing to answer.
    #[error("the body is no ConversionReview with a request: {0}")]
    Conversion(String),
    /// An object in the review cannot be decoded.
    #[error("{0}: {1}")]
    Object(&'static str, String),
}

/// The answer to a review.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// The object is allowed as it is.
    Allow,
    /// The object is allowed with changes, as operations of a JSON patch; an empty list has the same effect as [`Answer::Allow`].
    Change(Vec<Value>),
    /// The object is allowed with changes and a warning, which clients such as kubectl print.
    ChangeAndWarn(Vec<Value>, String),
    /// The object is denied because of the errors in the list, each of which names a field.
    Deny(Vec<FieldError>),
    /// The object is denied because the user lacks a right; the text names the right.
    Forbid(String),
    /// The object is denied for now, because a needed fact is not known; the text names the fact.
    Postpone(String),
}

impl Answer {
    /// Denies the object if there are errors, and allows it otherwise.
    #[must_use]
    pub fn of(errors: Vec<FieldError>) -> Self {
        if errors.is_empty() { Self::Allow } else { Self::Deny(errors) }
    }
}

/// Decodes an AdmissionReview.
///
/// # Errors
/// Fails if the bytes are no AdmissionReview of this version, or if the review has no request.
pub fn read(bytes: &[u8]) -> Result<Request, Unreadable> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(|error| Unreadable::Review(error.to_string()))?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        return Err(Unreadable::Review(format!("it is {:?} of {:?}", envelope.kind, envelope.api_version)));
    }
    envelope.request.ok_or_else(|| Unreadable::Review("it has no request".to_owned()))
}

impl Request {
    /// The new object.
    ///
    /// # Errors
    /// Fails if the review has no object, or if its object is of another kind.
    pub fn object<T: DeserializeOwned>(&self) -> Result<T, Unreadable> {
        decode("object", self.object.as_deref())
    }

    /// The stored object; `None` for a creation, and for a stored object that cannot be decoded any more. If the stored object cannot be decoded, the new
    /// object is validated alone, so that a broken stored object can still be repaired.
    #[must_use]
    pub fn old_object<T: DeserializeOwned>(&self) -> Option<T> {
        lean::decode::<T>(self.old_object.as_deref()?.get()).ok().map(|object| *object)
    }

    /// The stored object of a kind with a pod template, by which defaults are computed in an update; `None` for a creation. A stored object that cannot be
    /// decoded any more is replaced by its metadata and that of its pod template, so that the update does not count as a creation. Metadata of the stored
    /// object that cannot be decoded either counts as empty.
    #[must_use]
    pub fn stored<T: DeserializeOwned + Default>(&self) -> Option<T> {
        let raw = self.old_object.as_deref()?;
        Some(self.old_object().unwrap_or_else(|| {
            let all = lean::decode::<Value>(raw.get()).map(|all| *all).unwrap_or_default();
            let template = json!({"metadata": all.pointer("/spec/template/metadata")});
            let head = json!({"metadata": all.pointer("/metadata"), "spec": {"template": template}});
            serde_json::from_value(head).unwrap_or_default()
        }))
    }

    /// The new object as a job.
    ///
    /// # Errors
    /// Fails if the review has no object, or if its object is of another kind.
    pub fn job(&self, kind: JobType) -> Result<Box<dyn JobObject>, Unreadable> {
        read_as("object", self.object.as_deref(), |text| kind.decode(text))
    }

    /// The stored object as a job; `None` for a creation, and for a stored object that cannot be decoded any more.
    #[must_use]
    pub fn old_job(&self, kind: JobType) -> Option<Box<dyn JobObject>> {
        kind.decode(self.old_object.as_deref()?.get()).ok()
    }

    /// Whether the object is being deleted: no rule of Berth may delay its deletion.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Head {
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            deletion_timestamp: Option<IgnoredAny>,
        }
        let head: Result<Head, _> = decode("object", self.object.as_deref());
        head.is_ok_and(|head| head.metadata.deletion_timestamp.is_some())
    }
}

fn decode<T: DeserializeOwned>(what: &'static str, raw: Option<&RawValue>) -> Result<T, Unreadable> {
    read_as(what, raw, |text| lean::decode::<T>(text).map(|object| *object))
}

fn read_as<T>(
    what: &'static str,
    raw: Option<&RawValue>,
    read: impl Fn(&str) -> serde_json::Result<T>,
) -> Result<T, Unreadable> {
    let raw = raw.ok_or_else(|| Unreadable::Object(what, "is missing".to_owned()))?;
    read(raw.get()).map_err(|error| Unreadable::Object(what, error.to_string()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<[&'a str; 1]>,
}

impl Response<'_> {
    fn patch(&mut self, operations: &[Value]) {
        if !operations.is_empty() {
            self.patch_type = Some("JSONPatch");
            self.patch = Some(STANDARD.encode(to_text(operations)));
        }
    }
}

/// The AdmissionReview that answers a request, as JSON.
#[must_use]
pub fn write(request: &Request, answer: &Result<Answer, Unreadable>) -> Vec<u8> {
    let mut response =
        Response { uid: &request.uid, allowed: true, patch_type: None, patch: None, status: None, warnings: None };
    match answer {
        Ok(Answer::Allow) => {}
        Ok(Answer::Change(operations)) => response.patch(operations),
        Ok(Answer::ChangeAndWarn(operations, warning)) => {
            response.patch(operations);
            response.warnings = Some([warning.as_str()]);
        }
        Ok(Answer::Deny(errors)) => {
            response.allowed = false;
            response.status = Some(refusal(request, errors));
        }
        Ok(Answer::Forbid(words)) => {
            response.allowed = false;
            response.status = Some(failure(request, (403, "Forbidden"), &format!("is forbidden: {words}")));
        }
        Ok(Answer::Postpone(words)) => {
            response.allowed = false;
            response.status =
                Some(failure(request, (503, "ServiceUnavailable"), &format!("is not taken now: {words}")));
        }
        Err(unreadable) => {
            response.allowed = false;
            response.status = Some(json!({
                "status": "Failure", "code": 400, "reason": "BadRequest",
                "message": format!("Berth cannot read the {}: {unreadable}", request.kind.kind),
            }));
        }
    }
    to_text(&Reply { api_version: API_VERSION, kind: KIND, response }).into_bytes()
}

/// The status of a refusal that is not about a field.
fn failure(request: &Request, (code, reason): (u16, &str), words: &str) -> Value {
    let Request { kind, name, .. } = request;
    json!({
        "status": "Failure", "code": code, "reason": reason, "message": format!("{} {name:?} {words}", kind.kind),
        "details": {"name": name, "group": kind.group, "kind": kind.kind},
    })
}

/// The status of a refusal, with a cause for each field. Objects of kinds that Kueue knows are refused with the code 403 Forbidden, as by Kueue's
/// webhooks, because clients depend on the code. Objects of Berth's own group are refused with 422 Invalid, as by their schema.
fn refusal(request: &Request, errors: &[FieldError]) -> Value {
    let causes: Vec<Value> = errors
        .iter()
        .take(MOST_CAUSES)
        .map(|error| {
            let message = if error.value.is_empty() {
                error.message.clone()
            } else {
                format!("Invalid value: {:?}: {}", error.value, error.message)
            };
            json!({"reason": "FieldValueInvalid", "field": error.field, "message": message})
        })
        .collect();
    let listed: Vec<String> = errors.iter().take(MOST_CAUSES).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(listed.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let (code, reason) = if request.kind.group == berth::GROUP { (422, "Invalid") } else { (403, "Forbidden") };
    let what = reason.to_lowercase();
    json!({
        "status": "Failure", "code": code, "reason": reason,
        "message": format!("{} {:?} is {what}: {}{more}", request.kind.kind, request.name, listed.join("; ")),
        "details": {
            "name": request.name, "group": request.kind.group, "kind": request.kind.kind, "causes": causes,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(object: &Value) -> Vec<u8> {
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "request": {
                "uid": "u1", "operation": "CREATE", "name": "n", "namespace": "ns", "object": object, "oldObject": null,
                "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            },
        })
        .to_string()
        .into_bytes()
    }

    fn answered(answer: Result<Answer, Unreadable>) -> Value {
        let request = read(&request(&json!({"a": 1}))).unwrap();
        serde_json::from_slice(&write(&request, &answer)).unwrap()
    }

    #[test]
    fn admission_review_is_decoded_or_refused_with_a_reason() {
        let request = read(&request(&json!({"a": 1}))).unwrap();
        assert_eq!((request.uid.as_str(), request.namespace.as_str()), ("u1", "ns"));
        assert_eq!(request.object::<Value>().unwrap(), json!({"a": 1}));
        assert!(request.old_object::<Value>().is_none());
        assert!(request.object::<Vec<u8>>().unwrap_err().to_string().starts_with("object: "));
        let text = json!({"spec": {"template": {"$serde_json::private::RawValue": "[1]"}}});
        assert!(read(&self::request(&text)).unwrap().object::<Value>().is_err(), "a text is read as an object");
        for (bytes, word) in [
            ("", "EOF"),
            ("[]", "invalid"),
            ("{}", "it is"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "no request"),
            (r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#, "v1beta1"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#, "uid"),
        ] {
            let error = read(bytes.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{bytes}: {error}");
        }
    }

    #[test]
    fn object_with_deletion_timestamp_is_leaving() {
        let leaving = |metadata: Value| read(&request(&json!({"metadata": metadata}))).unwrap().is_leaving();
        assert!(leaving(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})));
        assert!(!leaving(json!({"deletionTimestamp": null})));
        assert!(!leaving(json!({})) && !read(&request(&json!("text"))).unwrap().is_leaving());
    }

    #[test]
    fn allowed_or_changed_answer_is_written_as_admission_review() {
        let allowed = answered(Ok(Answer::Allow));
        assert_eq!(allowed["response"], json!({"uid": "u1", "allowed": true}));
        assert_eq!(answered(Ok(Answer::Change(Vec::new()))), allowed);
        let changed = answered(Ok(Answer::Change(vec![json!({"op": "add", "path": "/a", "value": 1})])));
        let patch = STANDARD.decode(changed["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(
            (patch[0]["path"].as_str(), changed["response"]["patchType"].as_str()),
            (Some("/a"), Some("JSONPatch"))
        );
    }

    /// Clients of Kueue check for 403 Forbidden; objects of Berth's own kinds are refused as by a schema.
    #[test]
    fn refusal_of_berth_kind_is_invalid_and_of_others_forbidden() {
        for (group, code, reason) in [
            ("batch", 403, "Forbidden"),
            ("kueue.x-k8s.io", 403, "Forbidden"),
            ("", 403, "Forbidden"),
            ("berth.dev", 422, "Invalid"),
        ] {
            let mut request = read(&request(&json!({"a": 1}))).unwrap();
            request.kind.group = group.to_owned();
            let denied = Answer::of(vec![FieldError::new("spec.a", "x", "must be y")]);
            let answer: Value = serde_json::from_slice(&write(&request, &Ok(denied))).unwrap();
            let status = &answer["response"]["status"];
            assert_eq!((&status["code"], &status["reason"]), (&json!(code), &json!(reason)), "{group}");
            assert_eq!(status["details"]["causes"][0]["field"], json!("spec.a"));
        }
    }

    #[test]
    fn warning_is_returned_together_with_the_change() {
        let change = vec![json!({"op": "add", "path": "/a", "value": 1})];
        let response = answered(Ok(Answer::ChangeAndWarn(change, "it stays".to_owned())))["response"].clone();
        assert_eq!((&response["allowed"], &response["warnings"]), (&json!(true), &json!(["it stays"])));
        assert!(response["patch"].is_string(), "{response}");
        assert!(answered(Ok(Answer::Change(Vec::new())))["response"].get("warnings").is_none());
    }

    #[test]
    fn refusal_of_an_author_names_no_field() {
        for (answer, code, reason, message) in [
            (
                Answer::Forbid("User \"a\" cannot".to_owned()),
                403,
                "Forbidden",
                "Job \"n\" is forbidden: User \"a\" cannot",
            ),
            (Answer::Postpone("late".to_owned()), 503, "ServiceUnavailable", "Job \"n\" is not taken now: late"),
        ] {
            let response = answered(Ok(answer))["response"].clone();
            assert_eq!(response["allowed"], json!(false));
            let status = &response["status"];
            assert_eq!(
                (&status["code"], &status["reason"], &status["message"]),
                (&json!(code), &json!(reason), &json!(message))
            );
        }
    }

    #[test]
    fn refusal_names_its_fields_up_to_a_limit() {
        let errors = vec![FieldError::new("spec.a", "x", "must be y"), FieldError::new("spec.b", "", "is missing")];
        let response = answered(Ok(Answer::of(errors)))["response"].clone();
        assert_eq!(response["allowed"], json!(false));
        let status = &response["status"];
        assert_eq!(status["details"]["causes"][0]["field"], json!("spec.a"));
        assert_eq!(status["details"]["causes"][1]["message"], json!("is missing"));
        assert_eq!((&status["details"]["kind"], &status["details"]["name"]), (&json!("Job"), &json!("n")));
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("spec.a: Invalid value: \"x\": must be y") && message.contains("spec.b"), "{message}");
        let many = (0..100).map(|at| FieldError::new(format!("f{at}"), "", "bad")).collect();
        let status = answered(Ok(Answer::of(many)))["response"]["status"].clone();
        assert_eq!(status["details"]["causes"].as_array().unwrap().len(), MOST_CAUSES);
        assert!(status["message"].as_str().unwrap().ends_with("; and 36 more"));
        let unreadable = answered(Err(Unreadable::Object("object", "no".into())))["response"]["status"].clone();
        assert_eq!(unreadable["code"], json!(400));
        assert!(unreadable["message"].as_str().unwrap().contains("Berth"));
    }
}
