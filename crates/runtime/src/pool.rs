//! The writer pool: the important writes first, and only as many in flight as keep a server busy.
//!
//! What is in flight can no longer be overtaken, so a queue belongs here and not in the server. What nobody waits for goes
//! by a lane of its own, a few at a time: a busy server then spends its time on what moves jobs.

use crate::rate::Bucket;
use crate::writer::Writer;
use berth_control::write::{Outcome, Urgency, Write, WriteId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::Instant;

/// Writes in flight that nobody waits for: enough for hundreds a second on a server that is not busy.
const BACKGROUND: usize = 2;
/// What such a write takes of the rate while others wait.
const BACKGROUND_COST: u32 = 4;
/// Number of priority classes in a lane.
const CLASSES: usize = 2;

/// Waiting writes by class, in order of arrival within one.
#[derive(Default)]
struct Waiting {
    classes: [VecDeque<Write>; CLASSES],
}

impl Waiting {
    fn push(&mut self, write: Write) {
        let first = matches!(write.purpose.urgency(), Urgency::First | Urgency::Told);
        if let Some(queue) = self.classes.get_mut(usize::from(!first)) {
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

/// What the lanes share.
#[derive(Clone)]
struct Shared {
    writer: Arc<Writer>,
    outcomes: mpsc::Sender<(WriteId, Outcome)>,
    bucket: Arc<Mutex<Bucket>>,
    /// Writes of the first lane that have not ended.
    pressing: Arc<AtomicUsize>,
}

/// Performs what arrives until the sender is gone and the last write has ended. At most `in_flight` at once and a few in the
/// background, at most as fast as the bucket allows; outcomes go to `outcomes`.
pub async fn run(
    writer: Arc<Writer>,
    mut writes: mpsc::UnboundedReceiver<Write>,
    outcomes: mpsc::Sender<(WriteId, Outcome)>,
    bucket: Bucket,
    in_flight: usize,
) {
    let pressing = Arc::new(AtomicUsize::new(0));
    let shared = Shared { writer, outcomes, bucket: Arc::new(Mutex::new(bucket)), pressing: Arc::clone(&pressing) };
    let (first_in, first_out) = mpsc::unbounded_channel();
    let (second_in, second_out) = mpsc::unbounded_channel();
    let sort = async move {
        while let Some(write) = writes.recv().await {
            let background = matches!(write.purpose.urgency(), Urgency::Told | Urgency::Whenever);
            if !background {
                pressing.fetch_add(1, Ordering::Relaxed);
            }
            // A lane ends only when its sender is gone.
            let _sent = if background { second_in.send(write) } else { first_in.send(write) };
        }
    };
    tokio::join!(
        sort,
        lane(shared.clone(), first_out, in_flight.max(1), false),
        lane(shared, second_out, BACKGROUND, true)
    );
}

async fn lane(shared: Shared, mut writes: mpsc::UnboundedReceiver<Write>, in_flight: usize, background: bool) {
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
        take(&shared, background).await;
        // Taken as late as possible, so that an admission overtakes what was waiting for a slot.
        while let Ok(write) = writes.try_recv() {
            waiting.push(write);
        }
        let Some(write) = waiting.pop() else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let outcome = shared.writer.perform(&write).await;
            drop(slot);
            if !background {
                shared.pressing.fetch_sub(1, Ordering::Relaxed);
            }
            if shared.outcomes.send((write.id, outcome)).await.is_err() {
                tracing::debug!(object = %write.key, "outcome has no reader any more");
            }
        });
    }
    // All slots back means that no request is on its way.
    let all = u32::try_from(in_flight).unwrap_or(u32::MAX);
    let _drained = slots.acquire_many(all).await;
}

/// Waits for the rate to allow one more write.
async fn take(shared: &Shared, background: bool) {
    loop {
        let pressed = background && shared.pressing.load(Ordering::Relaxed) > 0;
        let cost = if pressed { BACKGROUND_COST } else { 1 };
        let Err(pause) = shared.bucket.lock().await.take_many(cost, Instant::now()) else { return };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_control::write::{Kind, ObjectKey, Purpose, Request, Term};

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
    fn what_moves_jobs_goes_first() {
        let mut waiting = Waiting::default();
        for (id, purpose) in [(1, Purpose::CreateWorkload), (2, Purpose::ReserveQuota), (3, Purpose::StartJob)] {
            waiting.push(write(id, purpose));
        }
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|write| write.id.0).collect();
        assert_eq!(order, [2, 3, 1]);
        assert!(waiting.is_empty());
        for (id, purpose) in [(1, Purpose::QueueStatus), (2, Purpose::LetFinishedGo), (3, Purpose::ExplainPending)] {
            waiting.push(write(id, purpose));
        }
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|write| write.id.0).collect();
        assert_eq!(order, [3, 1, 2]);
    }
}
