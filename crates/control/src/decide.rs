//! From the view to the next write of one object: pure functions, one file per kind.

pub(crate) mod checks;
pub(crate) mod explain;
pub(crate) mod job;
pub(crate) mod pods_ready;
pub(crate) mod policies;
pub(crate) mod preempt;
pub(crate) mod queues;
pub(crate) mod usage;
pub(crate) mod workload;

use jiff::Timestamp;

use crate::core::Control;
use crate::flight::Decision;
use crate::write::{Kind, ObjectKey};

/// What to do about an object now.
pub(crate) fn decide(control: &Control, key: &ObjectKey, now: Timestamp) -> Decision {
    if control.flights.busy(key) {
        // The outcome, or the sight of the result, brings us back.
        return Decision::Done;
    }
    let name = (key.namespace.clone(), key.name.clone());
    match key.kind {
        Kind::Job => job::decide(control, key, now),
        Kind::Workload => workload::decide(control, &name, now),
        Kind::ClusterQueue => queues::finalizer(control, key),
        Kind::ResourceFlavor => match queues::finalizer(control, key) {
            Decision::Done => queues::faults(control, key),
            decision => decision,
        },
        Kind::Cohort => queues::faults(control, key),
        Kind::LocalQueue | Kind::QueuePolicy => Decision::Done,
    }
}
