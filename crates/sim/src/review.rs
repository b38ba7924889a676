//! The review of a tenant's write by Berth's webhook: the rules of crate `jobs` that refuse a change of a job.

use berth_control::write::{Kind, ObjectKey};
use berth_jobs::DEFAULT_NAME;
use serde_json::Value;

use crate::api_server::{ApiServer, is_deleting, merge};

/// Whether the review refuses a merge patch of an object. Objects that are no jobs are not reviewed.
#[must_use]
pub fn refuses(api: &ApiServer, key: &ObjectKey, patch: &Value) -> bool {
    let (Kind::Job(kind), Some(old)) = (key.kind, api.get(key)) else { return false };
    let mut new = old.clone();
    merge(&mut new, patch);
    let (Ok(before), Ok(after)) = (kind.read(old), kind.read(&new)) else { return true };
    let default = ObjectKey { kind: Kind::LocalQueue, name: DEFAULT_NAME.to_owned(), ..key.clone() };
    let errors = match is_deleting(old) {
        true => after.leaving_errors(&*before),
        false => after.change_errors(&*before, api.get(&default).is_some()),
    };
    !errors.is_empty()
}
