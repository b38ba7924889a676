//! The requests to the API server about a case, and the check of the API server's answers.

use anyhow::{Context, Result, anyhow, ensure};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::paths::{self, changed};
use super::{Case, Expected, Subject};
use crate::bad_fields::steps;
use crate::kinds::{items, text};

/// The API server's answer: the object, or the status with which the object is refused.
pub(super) type Answer = std::result::Result<Value, Value>;

pub(super) async fn ask(client: &Client, method: Method, path: &str, body: &Value) -> Result<Answer> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string().into_bytes()))?;
    let response = client.send(request).await?;
    let code = response.status();
    let bytes = response.into_body().collect_bytes().await?;
    let answer: Value = serde_json::from_slice(&bytes).with_context(|| format!("{path} answered {code}"))?;
    ensure!(code.is_success() || text(&answer, "/kind") == "Status", "{path} answered {code}: {answer}");
    Ok(if code.is_success() { Ok(answer) } else { Err(answer) })
}

impl Subject {
    /// Stores a good object with changes, including its status, and reads it back.
    pub(super) async fn stored(
        &self,
        client: &Client,
        group: usize,
        name: &str,
        of: &[(String, Value)],
    ) -> Result<Value> {
        let object = self.object(group, name, of)?;
        let refused = |what: &str, status: Value| anyhow!("{} {what}: {}", self.kind, text(&status, "/message"));
        let mut made =
            ask(client, Method::POST, &self.base, &object).await?.map_err(|status| refused("good, but", status))?;
        if let Some(status) = object.get("status") {
            made["status"] = status.clone();
            let path = format!("{}/{name}/status", self.base);
            made = ask(client, Method::PUT, &path, &made).await?.map_err(|status| refused("its status", status))?;
        }
        Ok(made)
    }

    /// The API server's answer to a case; no object of the case stays behind.
    pub(super) async fn answer(&self, client: &Client, number: usize, case: &Case) -> Result<Answer> {
        let of_status = case.change.iter().all(|(path, _)| path.starts_with("status"));
        if case.of.is_none() && !of_status {
            let object = self.object(case.group, "asked", &case.change)?;
            return ask(client, Method::POST, &format!("{}?dryRun=All", self.base), &object).await;
        }
        let name = format!("case-{number}");
        let stored = self.stored(client, case.group, &name, case.of.as_deref().unwrap_or_default()).await?;
        let object = changed(stored, &case.change)?;
        let part = if of_status { "/status" } else { "" };
        let path = format!("{}/{name}{part}?dryRun=All", self.base);
        let reported = ask(client, Method::PUT, &path, &object).await?;
        let gone = ask(client, Method::DELETE, &format!("{}/{name}", self.base), &json!({})).await?;
        gone.map(|_| reported).map_err(|status| anyhow!("deleting {name}: {}", text(&status, "/message")))
    }
}

/// Compares an answer of the API server with the answer that a case expects.
pub(super) fn judge(case: &Case, answer: &Answer) -> std::result::Result<(), String> {
    // Keys of maps follow a dot in messages about types and patterns, and stand in brackets in messages of rules in CEL.
    let field = steps(if case.field.is_empty() { "<nil>" } else { &case.field });
    let causes = answer.as_ref().err().map(|status| items(status, "/details/causes")).unwrap_or_default();
    let value_of =
        |cause: &&Value| steps(text(cause, "/field")) == field && text(cause, "/message").contains(&case.says);
    match (&case.expected, answer, causes.iter().find(value_of)) {
        (Expected::Refused, Ok(_), _) => Err("accepted".to_owned()),
        (Expected::Refused, Err(_), Some(_)) => Ok(()),
        (Expected::Accepted, Ok(_), _) => Ok(()),
        (Expected::Refused | Expected::Filled(_) | Expected::Accepted, Err(status), _) => {
            Err(format!("told {}", short(&status.to_string())))
        }
        (Expected::Kept, _, Some(cause)) => Err(format!("at its limit, and told {cause}")),
        (Expected::Kept, _, None) => Ok(()),
        (Expected::Filled(value), Ok(object), _) => match paths::get(object, &case.field) {
            Some(found) if holds(found, value) => Ok(()),
            found => Err(format!("filled in is {found:?}")),
        },
    }
}

/// Whether `found` has all fields of `wanted` with equal values; `found` may have more fields, because a default is filled in with defaults of its
/// own fields.
pub(super) fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| holds(found, value)))
        }
        _ => found == wanted,
    }
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(600).collect()
}
