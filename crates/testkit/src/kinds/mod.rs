//! Case kinds: each module makes the decision of a group of kinds and compares the result with the case.

pub mod assignment;
pub mod classes;
pub mod cycle;
pub mod orders;
pub mod preemption;
pub mod progress;
pub mod queue;
pub mod queue_order;
pub mod quota;
pub mod requests;
pub mod requeue;
pub mod shares;
pub mod statuses;
pub mod usage;

use crate::case::Case;
use crate::diff::Diff;

/// Judges a case of any kind.
///
/// # Errors
/// The case has an unknown kind, key or value.
pub fn run(case: &Case) -> Result<Diff, String> {
    match case.kind.as_str() {
        "cycle" => cycle::run(case),
        "preemption-targets" => preemption::targets(case),
        "message" => preemption::message(case),
        "priority" => preemption::priority(case),
        "flavor-assignment" => assignment::run(case),
        "availability" => quota::availability(case),
        "snapshot" => quota::snapshot(case),
        "usage-status" => quota::usage_status(case),
        "readiness" => quota::readiness(case),
        "admission-checks" => quota::admission_checks(case),
        "queue-timestamp" => queue::timestamp(case),
        "quantity" => requests::quantity(case),
        "requests" => requests::run(case),
        "podset-counts" => requests::counts(case),
        "candidate-order" => orders::candidates(case),
        "target-order" => orders::targets(case),
        "preemption-policy" => orders::policy(case),
        "entry-order" => orders::entries(case),
        "flavor-preference" => orders::preference(case),
        "partial-admission" => orders::partial(case),
        "reserve" => orders::reserve(case),
        "usage" => usage::usage(case),
        "equivalence" => orders::equivalence(case),
        "fair-share" => shares::run(case),
        "queue-order" => queue_order::run(case),
        "requeue" => requeue::run(case),
        "scan-progress" => progress::scan(case),
        "entry-penalty" => shares::entry_penalty(case),
        other => Err(format!("unknown kind {other:?}")),
    }
}
