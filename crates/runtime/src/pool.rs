//! The writer pool: important writes are sent first, and only as many at once as keep the API server busy.
//!
//! A request that was sent cannot be overtaken, so the pool has queues of its own instead of sending all writes at once. Writes that no job waits for have a
//! lane of their own, a few at a time, and slow down while the API server is busy, so that the server spends its time on writes that move jobs. The write that
//! finishes a Workload and frees its quota is such a background write as long as no Workload waits for quota. Requests to checkpoint stores have a lane,
//! because an unresponsive store must not delay other writes. Writes that annotate all pods of a job have a lane, too, because each of them consists of many
//! patches that wait for the rate limit.

use crate::load::Load;
use crate::writer::Writer;
use berth_control::write::{
    Action, PodsLeft, Purpose, Query, QueryAnswer, QueryFailure, Task, TaskId, TaskOutcome, Urgency, Write,
    WriteOutcome,
};
use futures::FutureExt;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

/// Number of concurrent background writes, enough for hundreds per second on an idle API server.
const BACKGROUND: usize = 2;
/// Pause before each background write on a server that is busy all the time.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(250);
/// Queue length of the background lane from which on its writes do not pause, because each queued write takes memory.
const BACKGROUND_MOST: usize = 4096;
/// Tasks of stores under way.
const STORES: usize = 4;
/// Number of concurrent writes that annotate the pods of a job.
const TOLD: usize = 4;
/// Number of priority classes in a lane.
const CLASSES: usize = 4;

/// Queued writes by priority class, in order of arrival within a class.
#[derive(Default)]
struct Waiting {
    classes: [VecDeque<Task>; CLASSES],
}

impl Waiting {
    fn push(&mut self, task: Task) {
        let class = match task.purpose.urgency() {
            Urgency::First | Urgency::Told => 0,
            // Statuses of queues would become outdated behind hundreds of finalizer writes.
            Urgency::Counted => 1,
            Urgency::Soon => 2,
            Urgency::Whenever => CLASSES - 1,
        };
        if let Some(queue) = self.classes.get_mut(class) {
            queue.push_back(task);
        }
    }

    fn pop(&mut self) -> Option<Task> {
        self.classes.iter_mut().find_map(VecDeque::pop_front)
    }

    fn peek(&self) -> Option<&Task> {
        self.classes.iter().find_map(VecDeque::front)
    }

    fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    /// Whether users read the result of a queued write, or a Workload waits for quota that a queued write frees.
    fn is_awaited(&self, load: &Load) -> bool {
        let awaited = if load.is_wanted() { 3 } else { 2 };
        self.classes.iter().take(awaited).any(|class| !class.is_empty())
    }

    fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }
}

/// The lane of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freight {
    /// Lane of writes that move jobs.
    Pressing,
    /// Lane of background writes, which no job waits for.
    Rest,
    /// Lane of requests to checkpoint stores.
    Stores,
    /// Lane of writes that annotate the pods of a job.
    Pods,
}

impl Freight {
    fn of(task: &Task, load: &Load) -> Self {
        match task.purpose.urgency() {
            _ if task.purpose.asks_store() => Self::Stores,
            _ if matches!(task.action, Action::Write(Write::AnnotatePods { .. })) => Self::Pods,
            _ if task.purpose == Purpose::FinishWorkload && !load.is_wanted() => Self::Rest,
            Urgency::Told | Urgency::Counted | Urgency::Whenever => Self::Rest,
            Urgency::First | Urgency::Soon => Self::Pressing,
        }
    }

    /// Whether each write of the lane is one request to the API server. A write to a checkpoint store is none, and a write that annotates pods waits for the
    /// rate limit before each patch.
    const fn is_one_request(self) -> bool {
        matches!(self, Self::Pressing | Self::Rest)
    }
}

/// State that all lanes share.
#[derive(Clone)]
struct Shared {
    writer: Arc<Writer>,
    outcomes: mpsc::Sender<(TaskId, TaskOutcome)>,
    /// Load of the lane of writes that move jobs.
    load: Arc<Load>,
}

/// Performs writes until the sender is gone and the last write has ended. At most `in_flight` writes run at once, beside a few background writes, within the
/// writer's rate limit. Outcomes go to `outcomes`, and `load` counts the writes that move jobs.
pub async fn run(
    writer: Arc<Writer>,
    mut tasks: mpsc::UnboundedReceiver<Task>,
    outcomes: mpsc::Sender<(TaskId, TaskOutcome)>,
    in_flight: usize,
    load: Arc<Load>,
) {
    let shared = Shared { writer, outcomes, load: Arc::clone(&load) };
    let (first_in, first_out) = mpsc::unbounded_channel();
    let (second_in, second_out) = mpsc::unbounded_channel();
    let (stores_in, stores_out) = mpsc::unbounded_channel();
    let (pods_in, pods_out) = mpsc::unbounded_channel();
    let sort = async move {
        while let Some(task) = tasks.recv().await {
            // A lane ends only after its sender is dropped, so sending cannot fail.
            let _sent = match Freight::of(&task, &load) {
                Freight::Pressing => {
                    load.begin(Instant::now());
                    first_in.send(task)
                }
                Freight::Rest => second_in.send(task),
                Freight::Stores => stores_in.send(task),
                Freight::Pods => pods_in.send(task),
            };
        }
    };
    tokio::join!(
        sort,
        lane(shared.clone(), first_out, in_flight.max(1), Freight::Pressing),
        lane(shared.clone(), second_out, BACKGROUND, Freight::Rest),
        lane(shared.clone(), stores_out, STORES, Freight::Stores),
        lane(shared, pods_out, TOLD, Freight::Pods)
    );
}

async fn lane(shared: Shared, mut tasks: mpsc::UnboundedReceiver<Task>, in_flight: usize, freight: Freight) {
    let slots = Arc::new(Semaphore::new(in_flight));
    let mut waiting = Waiting::default();
    let mut open = true;
    while open || !waiting.is_empty() {
        if waiting.is_empty() {
            match tasks.recv().await {
                Some(task) => waiting.push(task),
                None => open = false,
            }
            continue;
        }
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        // A write of an ended term, which will not be sent, takes no token of the rate limit, because a new leader waits until all such writes have come back.
        let stale = |task: &Task| !shared.writer.permits(task, Instant::now());
        if freight.is_one_request() && !waiting.peek().is_some_and(stale) {
            if freight == Freight::Rest && !waiting.is_awaited(&shared.load) {
                tokio::time::sleep(pause(&shared.load, waiting.len(), Instant::now())).await;
            }
            shared.writer.wait_for_rate().await;
        }
        // The next write is chosen as late as possible, so that an admission overtakes writes that wait for a slot.
        while let Ok(task) = tasks.try_recv() {
            waiting.push(task);
        }
        let Some(task) = waiting.pop() else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let sent = Instant::now();
            let outcome = performed(&shared.writer, &task).await;
            drop(slot);
            if freight == Freight::Pressing {
                shared.load.end(is_done(&outcome).then_some(sent), Instant::now());
            }
            if shared.outcomes.send((task.id, outcome)).await.is_err() {
                tracing::debug!(object = %task.key, "outcome has no reader any more");
            }
        });
    }
    // All slots are free only when no request is running.
    let all = u32::try_from(in_flight).unwrap_or(u32::MAX);
    let _drained = slots.acquire_many(all).await;
}

/// Whether the API server has done the task: the time of such an answer tells how busy it is.
const fn is_done(outcome: &TaskOutcome) -> bool {
    matches!(
        outcome,
        TaskOutcome::Written(WriteOutcome::Applied { .. })
            | TaskOutcome::Answered(Ok(QueryAnswer::PodsLeft(PodsLeft::Allowed)))
    )
}

/// Performs a task. A panic in it, of a library on unexpected input, fails this task alone, and its outcome is still reported.
async fn performed(writer: &Writer, task: &Task) -> TaskOutcome {
    let outcome = AssertUnwindSafe(writer.perform(task)).catch_unwind().await;
    outcome.unwrap_or_else(|_| {
        let text = "a fault in Berth: see its log for the panic".to_owned();
        tracing::error!(object = %task.key, purpose = ?task.purpose, "a write panicked");
        match &task.action {
            Action::Write(Write::DeleteCheckpoints { .. }) => WriteOutcome::StoreFailed(text).into(),
            Action::Write(_) => WriteOutcome::Unknown(text).into(),
            Action::Query(Query::ListCheckpoints { .. }) => QueryAnswer::Checkpoints(Err(text)).into(),
            Action::Query(_) => QueryFailure::Lost(text).into(),
        }
    })
}

/// Pause before a background write; the pause is longer if the API server is busier with writes that move jobs.
fn pause(load: &Load, waiting: usize, now: Instant) -> Duration {
    if waiting < BACKGROUND_MOST { BACKGROUND_PAUSE.mul_f64(load.yielding(now)) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_control::write::{Kind, ObjectKey, PodsOf, Term};
    use std::collections::BTreeMap;

    fn write(id: u64, purpose: Purpose) -> Task {
        Task {
            id: TaskId(id),
            term: Term(1),
            purpose,
            key: ObjectKey { kind: Kind::Workload, namespace: "a".into(), name: id.to_string() },
            action: Write::Delete { uid: "u".into(), owned_first: false }.into(),
        }
    }

    #[test]
    fn background_writes_pause_for_busy_server_unless_they_pile_up() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let load = Load::new(begin);
        load.begin(begin);
        assert_eq!(pause(&load, 1, begin), Duration::ZERO, "the first moments of a burst");
        assert!(pause(&load, 1, at(20)) >= BACKGROUND_PAUSE.mul_f64(0.9));
        assert_eq!(pause(&load, BACKGROUND_MOST, at(20)), Duration::ZERO);
        load.end(None, at(20));
        assert_eq!(pause(&load, 1, at(40)), Duration::ZERO);
    }

    #[test]
    fn pool_orders_waiting_writes_by_urgency_of_their_purpose() {
        let mut waiting = Waiting::default();
        for (id, purpose) in [(1, Purpose::CreateWorkload), (2, Purpose::ReserveQuota), (3, Purpose::StartJob)] {
            waiting.push(write(id, purpose));
        }
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|write| write.id.0).collect();
        assert_eq!(order, [2, 3, 1]);
        assert!(waiting.is_empty());
        for (id, purpose) in [(1, Purpose::LetFinishedGo), (2, Purpose::QueueStatus), (3, Purpose::ExplainPending)] {
            waiting.push(write(id, purpose));
        }
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|write| write.id.0).collect();
        assert_eq!(order, [3, 2, 1]);
    }

    #[test]
    fn pod_annotation_writes_use_their_own_lane() {
        let load = Load::new(Instant::now());
        let pods = PodsOf { label: "job-uid", uid: "u".to_owned(), jobs: None };
        for purpose in [Purpose::NotifyPods, Purpose::AskToSave] {
            let action = Write::AnnotatePods { pods: pods.clone(), annotations: BTreeMap::new() }.into();
            assert!(Freight::of(&Task { action, ..write(1, purpose) }, &load) == Freight::Pods);
        }
        assert!(!Freight::Pods.is_one_request(), "each of its patches takes a token");
    }

    #[test]
    fn quota_freeing_write_becomes_pressing_when_workloads_wait_for_quota() {
        let load = Load::new(Instant::now());
        let end = write(1, Purpose::FinishWorkload);
        assert!(Freight::of(&end, &load) == Freight::Rest, "nobody needs its quota");
        assert!(Freight::of(&write(2, Purpose::StartJob), &load) == Freight::Pressing);
        let mut waiting = Waiting::default();
        waiting.push(write(3, Purpose::LetFinishedGo));
        waiting.push(end.clone());
        assert!(!waiting.is_awaited(&load));
        load.set_wanted(true);
        assert!(waiting.is_awaited(&load), "one that was put off is due now");
        assert_eq!(waiting.pop().map(|write| write.id.0), Some(1), "before what nobody ever waits for");
        assert!(!waiting.is_awaited(&load));
        assert!(Freight::of(&end, &load) == Freight::Pressing);
    }
}
