//! The writer pool: many writes in flight, the important ones first.

use crate::rate::Bucket;
use crate::writer::Writer;
use berth_control::write::{Outcome, Purpose, Write, WriteId};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

/// Number of priority classes.
const CLASSES: usize = 4;

/// Class of a purpose: what moves jobs first, then what keeps objects right, then what explains, then queue statuses.
#[must_use]
pub const fn class(purpose: Purpose) -> usize {
    match purpose {
        Purpose::ReserveQuota
        | Purpose::SetAdmitted
        | Purpose::SyncAdmissionChecks
        | Purpose::StartJob
        | Purpose::SuspendJob
        | Purpose::ClearStartTime
        | Purpose::Evict
        | Purpose::ReleaseQuota
        | Purpose::FinishWorkload
        | Purpose::SetReclaimable => 0,
        Purpose::CreateWorkload
        | Purpose::UpdateWorkload
        | Purpose::AdoptWorkload
        | Purpose::Requeue
        | Purpose::Deactivate
        | Purpose::SetPodsReady
        | Purpose::RestoreTemplate
        | Purpose::AddFinalizer
        | Purpose::RemoveFinalizer
        | Purpose::DeleteWorkload
        | Purpose::DeleteJob
        | Purpose::ProbePods => 1,
        Purpose::ExplainPending => 2,
        Purpose::QueueStatus => 3,
    }
}

/// Waiting writes by class, in order of arrival within one.
#[derive(Default)]
struct Waiting {
    classes: [VecDeque<Write>; CLASSES],
}

impl Waiting {
    fn push(&mut self, write: Write) {
        if let Some(queue) = self.classes.get_mut(class(write.purpose)) {
            queue.push_back(write);
        }
    }

    fn pop(&mut self) -> Option<Write> {
        self.classes.iter_mut().find_map(VecDeque::pop_front)
    }

    fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }
}

/// Performs what arrives until the sender is gone and the last write has ended. At most `in_flight` at once, at most as
/// fast as the bucket allows; outcomes go to `outcomes`.
pub async fn run(
    writer: Arc<Writer>,
    mut writes: mpsc::UnboundedReceiver<Write>,
    outcomes: mpsc::Sender<(WriteId, Outcome)>,
    mut bucket: Bucket,
    in_flight: usize,
) {
    let in_flight = in_flight.max(1);
    let slots = Arc::new(Semaphore::new(in_flight));
    let mut waiting = Waiting::default();
    let mut open = true;
    while open || !waiting.is_empty() {
        if waiting.is_empty() {
            match writes.recv().await {
                Some(write) => waiting.push(write),
                None => open = false,
            }
            continue;
        }
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        while let Err(pause) = bucket.take(Instant::now()) {
            tokio::time::sleep(pause).await;
        }
        // Taken as late as possible, so that an admission overtakes statuses that were waiting for a slot.
        while let Ok(write) = writes.try_recv() {
            waiting.push(write);
        }
        let Some(write) = waiting.pop() else { continue };
        let (writer, outcomes) = (Arc::clone(&writer), outcomes.clone());
        tokio::spawn(async move {
            let outcome = writer.perform(&write).await;
            drop(slot);
            if outcomes.send((write.id, outcome)).await.is_err() {
                tracing::debug!(object = %write.key, "outcome has no reader any more");
            }
        });
    }
    // All slots back means that no request is on its way.
    let all = u32::try_from(in_flight).unwrap_or(u32::MAX);
    let _drained = slots.acquire_many(all).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_control::write::{Kind, ObjectKey, Request, Term};

    fn write(id: u64, purpose: Purpose) -> Write {
        Write {
            id: WriteId(id),
            term: Term(1),
            purpose,
            key: ObjectKey { kind: Kind::Workload, namespace: "a".into(), name: id.to_string() },
            request: Request::Delete { uid: "u".into() },
        }
    }

    #[test]
    fn admissions_overtake_statuses() {
        let mut waiting = Waiting::default();
        for (id, purpose) in [
            (1, Purpose::QueueStatus),
            (2, Purpose::ExplainPending),
            (3, Purpose::CreateWorkload),
            (4, Purpose::ReserveQuota),
            (5, Purpose::StartJob),
        ] {
            waiting.push(write(id, purpose));
        }
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|write| write.id.0).collect();
        assert_eq!(order, [4, 5, 3, 2, 1]);
        assert!(waiting.is_empty());
    }
}
