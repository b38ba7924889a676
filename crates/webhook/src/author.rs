//! The one question that a review has for the API server: whether the author of a TrainingJob may create Jobs, since Berth creates them for
//! the author with rights of its own.

use crate::review::{Request, UserInfo};
use futures::future::BoxFuture;
use serde_json::Value;

/// Fields of a TrainingJob's spec that decide when and where its Jobs run, and nothing about what they do.
const OF_THE_QUEUE: [&str; 3] = ["capacityTiers", "schedulingConfig", "suspend"];

/// Answer to whether an author may do on his own what Berth would do for him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The author may.
    Given,
    /// The author may not, in RBAC's words.
    Refused(String),
    /// The API server gave no answer, and why.
    Unanswered(String),
}

/// Knows the rights of users, or asks the API server.
pub trait Authors: Send + Sync + 'static {
    /// Verdict on a user's right to create Jobs in a namespace.
    fn may_create_jobs(&self, user: UserInfo, namespace: String) -> BoxFuture<'static, Leave>;
}

/// The user whose right is asked for, and the namespace; `None` when a change makes no other Jobs.
pub(crate) fn question(request: &Request) -> Option<(UserInfo, String)> {
    let asked = match request.operation.as_str() {
        "CREATE" => true,
        "UPDATE" => makes_other_jobs(request),
        _ => false,
    };
    (asked && !request.is_leaving()).then(|| (request.user_info.clone(), request.namespace.clone()))
}

fn makes_other_jobs(request: &Request) -> bool {
    let spec = |object: Option<Value>| {
        let mut spec = object?.get_mut("spec")?.take();
        let fields = spec.as_object_mut()?;
        fields.retain(|name, _| !OF_THE_QUEUE.contains(&name.as_str()));
        Some(spec)
    };
    let (new, old) = (spec(request.object().ok()), spec(request.old_object()));
    new.is_none() || new != old
}
