//! The only question that a review sends to the API server: whether the author of a TrainingJob may create Jobs, because Berth creates the Jobs for
//! the author under Berth's own rights.

use crate::review::{Request, UserInfo};
use futures::future::BoxFuture;
use serde_json::Value;

/// Fields of a TrainingJob's spec that decide when and where its Jobs run, but not what the Jobs do.
const OF_THE_QUEUE: [&str; 3] = ["capacityTiers", "schedulingConfig", "suspend"];

/// Result of the check of an author's rights: whether the author of a TrainingJob may create the Jobs that Berth would create for the TrainingJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The author has the right.
    Given,
    /// The author may not create Jobs; the text is the reason that the API server's authorization gave.
    Refused(String),
    /// The API server gave no answer about the right of the author to create Jobs; the text says why.
    Unanswered(String),
}

/// A source of users' rights, which may ask the API server.
pub trait Authors: Send + Sync + 'static {
    /// Checks whether a user may create Jobs in a namespace.
    fn may_create_jobs(&self, user: UserInfo, namespace: String) -> BoxFuture<'static, Leave>;
}

/// The user whose right to create Jobs must be checked, and the namespace; `None` if the request does not change which Jobs Berth creates.
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
