//! Decisions as values that a test compares.

use berth_cache::moments::millis_between;
use serde_json::Value;

use super::now;
use crate::decision::{Decision, Draft};
use crate::write::{Action, Notice, Subresource, Write};

/// A decision, in the form in which tests compare decisions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The decision in words: `done`, `wait 3s`, or the purpose of the decision's write with its request and object.
    pub(crate) what: String,
    /// Body of the request, null if there is none.
    pub(crate) body: Value,
    /// Events of the decision, each as type, reason and message.
    pub(crate) events: Vec<String>,
}

/// A decision in the form in which tests compare decisions.
pub(crate) fn step(decision: &Decision) -> Step {
    let plain = |what: String| Step { what, body: Value::Null, events: Vec::new() };
    match decision {
        Decision::Done => plain("done".to_owned()),
        Decision::Wait(until) => plain(format!("wait {}", seconds(millis_between(now(), *until)))),
        Decision::WaitForCreations => plain("wait for creations".to_owned()),
        Decision::WaitFor(object) => plain(format!("wait for {object}")),
        Decision::Event(notice) => Step { events: vec![event(notice)], ..plain("tell".to_owned()) },
        Decision::Write(draft) => written(draft),
    }
}

/// A write in the form in which tests compare decisions.
pub(crate) fn written(draft: &Draft) -> Step {
    let part = |subresource: &Subresource| match subresource {
        Subresource::None => "",
        Subresource::Status => " status",
    };
    let (request, body) = match &draft.action {
        Action::Query(query) => ("ask".to_owned(), Value::String(format!("{query:?}"))),
        Action::Write(write) => match write {
            Write::Create(body) => ("create".to_owned(), body.clone().into_value()),
            Write::Apply { subresource, body, .. } => {
                (format!("apply{}", part(subresource)), body.clone().into_value())
            }
            Write::Merge { subresource, body, .. } => {
                (format!("merge{}", part(subresource)), body.clone().into_value())
            }
            Write::AnnotatePods { annotations, .. } => ("annotate pods".to_owned(), serde_json::json!(annotations)),
            Write::DeleteCheckpoints { ids, .. } => ("delete checkpoints".to_owned(), serde_json::json!(ids)),
            Write::Delete { uid, owned_first: false } => ("delete".to_owned(), Value::String(uid.clone())),
            Write::Delete { uid, owned_first: true } => {
                ("delete after its objects".to_owned(), Value::String(uid.clone()))
            }
        },
    };
    let what = format!("{:?}: {request} {}", draft.purpose, draft.key);
    Step { what, body, events: draft.notices.iter().map(event).collect() }
}

/// An event as text of type, reason and message.
pub(crate) fn event(notice: &Notice) -> String {
    format!("{:?} {}: {}", notice.event_type, notice.reason, notice.message)
}

fn seconds(millis: i64) -> String {
    if millis % 1_000 == 0 { format!("{}s", millis / 1_000) } else { format!("{millis}ms") }
}

impl Step {
    /// Status, reason and message of a condition in the body of a status write.
    pub(crate) fn condition(&self, kind: &str) -> Option<(bool, &str, &str)> {
        let all = self.body["status"]["conditions"].as_array()?;
        let found = all.iter().find(|condition| condition["type"] == kind)?;
        Some((found["status"] == "True", found["reason"].as_str()?, found["message"].as_str()?))
    }
}
