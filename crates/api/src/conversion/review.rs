//! Answers to ConversionReviews: the API server's request and Berth's response.

use serde::Deserialize;
use serde_json::{Value, json};

use super::lifted::{Object, Objects};
use super::placement;
use super::version::{Version, both};

// The review is read by own types instead of kube's, whose flattened fields are buffered once more: a conversion delays every write.
#[derive(Deserialize)]
struct Question<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(default, borrow)]
    objects: Objects<'a>,
}

/// Answers the body of a ConversionReview: returns the body of the answer, and true if the objects were converted.
///
/// If one object cannot be converted, the whole review fails, with a message that names the object. The content of an object of Berth's kinds never
/// makes its conversion fail.
///
/// # Errors
/// Fails if the body is not a ConversionReview with a request: without a request there is no uid to answer.
pub fn respond(body: &[u8]) -> serde_json::Result<(Vec<u8>, bool)> {
    let Request { uid, desired_api_version, objects } = serde_json::from_slice::<Question<'_>>(body)?.request;
    let converted = converted(&desired_api_version, objects.0);
    let success = converted.is_ok();
    let (result, objects) = match converted {
        Ok(objects) => (json!({"status": "Success"}), objects),
        Err(message) => {
            (json!({"status": "Failure", "reason": "BadRequest", "code": 400, "message": message}), Vec::new())
        }
    };
    let mut text = Vec::with_capacity(body.len());
    text.extend_from_slice(br#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"#);
    serde_json::to_writer(&mut text, &uid)?;
    text.extend_from_slice(br#","result":"#);
    serde_json::to_writer(&mut text, &result)?;
    text.extend_from_slice(br#","convertedObjects":["#);
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        object.write(&mut text)?;
    }
    text.extend_from_slice(b"]}}");
    Ok((text, success))
}

fn converted<'a>(desired: &str, mut objects: Vec<Object<'a>>) -> Result<Vec<Object<'a>>, String> {
    let version =
        Version::of(desired).ok_or_else(|| format!("nothing can be converted to {desired:?}, only to {}", both()))?;
    let mut left = placement::DOMAINS;
    for (index, object) in objects.iter_mut().enumerate() {
        let outcome = object.convert(version, &mut left);
        outcome.map_err(|problem| format!("{}: {problem}", name(&object.value, index)))?;
    }
    Ok(objects)
}

/// Kind, namespace and name of an object of the review, for messages.
fn name(object: &Value, index: usize) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    match text("/metadata/namespace") {
        _ if name.is_empty() => format!("object {index} of the review ({kind:?})"),
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}
