//! A pod to decide about, and events about it.

use berth_jobs::pods::{POD_REPORTER, PodState};
use jiff::Timestamp;

use crate::cache::Name;
use crate::context::Context;
use crate::write::{EventType, Notice, ObjectKey};

/// A pod to decide about, with the view and the time.
#[derive(Clone, Copy)]
pub(crate) struct PodCase<'a> {
    pub(crate) ctx: &'a Context<'a>,
    pub(crate) name: &'a Name,
    pub(crate) pod: &'a PodState,
    pub(crate) now: Timestamp,
}

/// An event about a pod, or about the pods of its group.
pub(crate) fn notice(key: ObjectKey, pod: &PodState, event_type: EventType, reason: &str, message: String) -> Notice {
    Notice { key, uid: pod.uid.to_string(), event_type, reason: reason.to_owned(), message, reporter: POD_REPORTER }
}
