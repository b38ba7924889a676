//! The input of a decision about a pod, and events about the pod.

use berth_cache::Name;
use berth_jobs::pods::{POD_REPORTER, PodState};
use jiff::Timestamp;

use crate::context::Context;
use crate::write::{EventType, Notice, ObjectKey};

/// A pod to decide about, with the context and the time of the decision.
#[derive(Clone, Copy)]
pub struct PodCase<'a> {
    /// The state that the decision reads.
    pub ctx: &'a Context<'a>,
    /// The namespace and the name of the pod.
    pub name: &'a Name,
    /// The observed state of the pod.
    pub pod: &'a PodState,
    /// The time of the decision.
    pub now: Timestamp,
}

/// An event about a pod, or about the pods of its group.
pub fn notice(key: ObjectKey, pod: &PodState, event_type: EventType, reason: &str, message: String) -> Notice {
    Notice { key, uid: pod.uid.to_string(), event_type, reason: reason.to_owned(), message, reporter: POD_REPORTER }
}

#[cfg(test)]
mod tests;
