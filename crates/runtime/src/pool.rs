//! The writer pool: urgent writes are sent first, and the number of concurrent writes is limited to a number that keeps the API server busy.
//!
//! An urgent task cannot overtake a request that was sent already, so tasks queue in the pool and not in the API server. Tasks wait in the order of their lanes
//! ([`Lane`]). Background tasks, for which no job waits, have a few slots of their own, and are sent rarely while the API server is busy: the API server then
//! spends its time on writes that move jobs. The end of a Workload, which releases quota, is a background task as long as no Workload waits for quota. Tasks of
//! checkpoint stores have slots of their own, because a store that does not answer must not delay other tasks. Annotations on all pods of a job have slots of
//! their own as well: each such task is many patches, which wait one by one for the rate limit.

use crate::load::Load;
use crate::writer::Writer;
use berth_control::write::{
    Action, Lane, PodsLeft, Query, QueryAnswer, QueryFailure, Task, TaskId, TaskOutcome, Write, WriteOutcome,
};
use futures::FutureExt;
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

/// Number of concurrent background writes, enough for hundreds per second on an idle API server.
const BACKGROUND: usize = 2;
/// Pause before each background write while writes that move jobs take all of the API server's time.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(250);
/// Number of queued background tasks from which on background writes do not pause, because each queued task takes memory.
const BACKGROUND_MOST: usize = 4096;
/// Largest number of concurrent tasks of checkpoint stores.
const STORES: usize = 4;
/// Largest number of concurrent tasks that annotate the pods of a job.
const PODS: usize = 4;

/// Waiting tasks by lane, in order of arrival within a lane.
#[derive(Default)]
struct Waiting {
    lanes: BTreeMap<Lane, VecDeque<Task>>,
}

impl Waiting {
    fn push(&mut self, lane: Lane, task: Task) {
        self.lanes.entry(lane).or_default().push_back(task);
    }

    fn pop(&mut self) -> Option<Task> {
        self.lanes.values_mut().find_map(VecDeque::pop_front)
    }

    fn peek(&self) -> Option<&Task> {
        self.lanes.values().find_map(VecDeque::front)
    }

    fn is_empty(&self) -> bool {
        self.lanes.values().all(VecDeque::is_empty)
    }

    /// Whether one of the waiting tasks is awaited: it writes a reason or figure that users read, or it releases quota for which a Workload waits.
    fn is_awaited(&self, load: &Load) -> bool {
        let is_awaited = |lane: Lane| lane.as_awaited(load.is_wanted()) < Lane::Ends;
        self.lanes.iter().any(|(lane, tasks)| is_awaited(*lane) && !tasks.is_empty())
    }

    fn len(&self) -> usize {
        self.lanes.values().map(VecDeque::len).sum()
    }
}

/// Lanes that share slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slots {
    /// Slots of tasks that move jobs, and of other tasks that must be sent soon.
    Foreground,
    /// Slots of tasks for which no job waits.
    Background,
    /// Slots of tasks of checkpoint stores.
    Stores,
    /// Slots of writes that annotate the pods of a job.
    Pods,
}

impl Slots {
    const fn of(lane: Lane) -> Self {
        match lane {
            Lane::Jobs | Lane::Upkeep => Self::Foreground,
            Lane::Reasons | Lane::Figures | Lane::Ends | Lane::Cleanup => Self::Background,
            Lane::StoreListings | Lane::StoreDeletions => Self::Stores,
            Lane::Pods => Self::Pods,
        }
    }

    /// Whether each task of these slots is one request to the API server. A task of a checkpoint store sends no request to the API server, and a task that
    /// annotates pods waits for the rate limit before each patch.
    const fn is_one_request(self) -> bool {
        matches!(self, Self::Foreground | Self::Background)
    }
}

/// Lane of a task at this time: the end of a Workload has a more urgent lane while a Workload waits for quota.
fn lane_of(task: &Task, load: &Load) -> Lane {
    task.purpose.lane().as_awaited(load.is_wanted())
}

/// The writer, channel of outcomes and load that all slots of the writer pool share.
#[derive(Clone)]
struct Shared {
    writer: Arc<Writer>,
    outcomes: mpsc::Sender<(TaskId, TaskOutcome)>,
    /// Load of the foreground.
    load: Arc<Load>,
}

/// Performs tasks until the sender of tasks is gone and the last task has ended. At most `in_flight` foreground tasks run at once, beside a few background
/// tasks and tasks of stores and of pods, within the writer's rate limit. The outcomes of tasks go to `outcomes`, and `load` counts the foreground tasks.
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
            let lane = lane_of(&task, &load);
            // A send to slots cannot fail, because the receiver of the slots ends only when its sender is gone.
            let _sent = match Slots::of(lane) {
                Slots::Foreground => {
                    load.begin(Instant::now());
                    first_in.send((lane, task))
                }
                Slots::Background => second_in.send((lane, task)),
                Slots::Stores => stores_in.send((lane, task)),
                Slots::Pods => pods_in.send((lane, task)),
            };
        }
    };
    tokio::join!(
        sort,
        serve(shared.clone(), first_out, in_flight.max(1), Slots::Foreground),
        serve(shared.clone(), second_out, BACKGROUND, Slots::Background),
        serve(shared.clone(), stores_out, STORES, Slots::Stores),
        serve(shared, pods_out, PODS, Slots::Pods)
    );
}

async fn serve(shared: Shared, mut tasks: mpsc::UnboundedReceiver<(Lane, Task)>, in_flight: usize, group: Slots) {
    let slots = Arc::new(Semaphore::new(in_flight));
    let mut waiting = Waiting::default();
    let mut open = true;
    while open || !waiting.is_empty() {
        if waiting.is_empty() {
            match tasks.recv().await {
                Some((lane, task)) => waiting.push(lane, task),
                None => open = false,
            }
            continue;
        }
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        // A write that will not be sent, such as a write of an ended term, takes no token of the rate limit, because a new leader waits until all such writes
        // have come back.
        let stale = |task: &Task| !shared.writer.permits(task, Instant::now());
        if group.is_one_request() && !waiting.peek().is_some_and(stale) {
            if group == Slots::Background && !waiting.is_awaited(&shared.load) {
                tokio::time::sleep(pause(&shared.load, waiting.len(), Instant::now())).await;
            }
            shared.writer.wait_for_rate().await;
        }
        // The next write is chosen as late as possible, so that an admission overtakes writes that wait for a slot.
        while let Ok((lane, task)) = tasks.try_recv() {
            waiting.push(lane, task);
        }
        let Some(task) = waiting.pop() else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let sent = Instant::now();
            let outcome = performed(&shared.writer, &task).await;
            drop(slot);
            if group == Slots::Foreground {
                shared.load.end(is_done(&outcome).then_some(sent), Instant::now());
            }
            if shared.outcomes.send((task.id, outcome)).await.is_err() {
                tracing::debug!(object = %task.key, "outcome has no reader any more");
            }
        });
    }
    // All slots of the group are free only when none of its tasks is running.
    let all = u32::try_from(in_flight).unwrap_or(u32::MAX);
    let _drained = slots.acquire_many(all).await;
}

/// Whether the API server has performed the task: the time of such an answer shows how busy the API server is.
const fn is_done(outcome: &TaskOutcome) -> bool {
    matches!(
        outcome,
        TaskOutcome::Written(WriteOutcome::Applied { .. })
            | TaskOutcome::Answered(Ok(QueryAnswer::PodsLeft(PodsLeft::Allowed)))
    )
}

/// Performs a task. A panic during a task, such as a library's panic on unexpected input, fails this task alone, and the outcome of the task is still reported.
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
    use berth_control::write::{Kind, ObjectKey, PodsOf, Purpose, Term};

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
            waiting.push(purpose.lane(), write(id, purpose));
        }
        let order: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|write| write.id.0).collect();
        assert_eq!(order, [2, 3, 1]);
        assert!(waiting.is_empty());
        for (id, purpose) in [(1, Purpose::LetFinishedGo), (2, Purpose::QueueStatus), (3, Purpose::ExplainPending)] {
            waiting.push(purpose.lane(), write(id, purpose));
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
            assert_eq!(Slots::of(lane_of(&Task { action, ..write(1, purpose) }, &load)), Slots::Pods);
        }
        assert!(!Slots::Pods.is_one_request(), "each of its patches takes a token");
    }

    #[test]
    fn quota_freeing_write_becomes_pressing_when_workloads_wait_for_quota() {
        let load = Load::new(Instant::now());
        let end = write(1, Purpose::FinishWorkload);
        assert_eq!(Slots::of(lane_of(&end, &load)), Slots::Background, "nobody needs its quota");
        assert_eq!(Slots::of(lane_of(&write(2, Purpose::StartJob), &load)), Slots::Foreground);
        let mut waiting = Waiting::default();
        waiting.push(Lane::Cleanup, write(3, Purpose::LetFinishedGo));
        waiting.push(lane_of(&end, &load), end.clone());
        assert!(!waiting.is_awaited(&load));
        load.set_wanted(true);
        assert!(waiting.is_awaited(&load), "one that was put off is due now");
        assert_eq!(waiting.pop().map(|write| write.id.0), Some(1), "before what nobody ever waits for");
        assert!(!waiting.is_awaited(&load));
        assert_eq!(Slots::of(lane_of(&end, &load)), Slots::Foreground);
    }
}
