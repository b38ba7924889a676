//! The control loop, in which control receives observations, outcomes and the time.
//!
//! The loop passes all observations and outcomes that have arrived to control before each step, so that a burst of changes costs one decision. The loop makes a
//! step only after all kinds were listed, and leads only after all kinds were listed again since the claim of the Lease.

use crate::clock::Clock;
use crate::controller::Controller;
use crate::events::EventSink;
use crate::journal::Journal;
use crate::leadership::Leadership;
use crate::liveness::Liveness;
use crate::load::Load;
use crate::metrics::{Gauges, Metrics, Role};
use crate::throttle::Throttle;
use crate::watches::{KINDS, Seen};
use berth_control::write::{Task, TaskId, TaskOutcome, Term};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Largest number of observations that the control loop passes to control before a step.
const BATCH: usize = 8192;
/// Largest number of queries about control's state that the control loop answers in one turn, so that many clients cannot delay decisions for long.
const QUERIES: usize = 8;
/// Longest sleep of the control loop: within this time the loop must note a heartbeat, and must notice a jump of the wall clock.
const NAP: Duration = Duration::from_secs(5);

/// Shortest time between two steps of control. After [`BURST`] steps without a rest, the shortest time is [`INTERVAL`], so that control decides about the
/// changes of this time together. Control decides about the first change after a rest at once.
const GAP: Duration = Duration::from_millis(10);
/// Average time between two steps of control under lasting load.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of consecutive steps of control between which the control loop waits for [`GAP`] only, instead of [`INTERVAL`]. A single job in a quiet cluster needs
/// fewer steps from its creation to its start.
const BURST: u32 = 20;

/// A query about the state of control, to the thread that runs the control loop.
#[derive(Debug)]
pub enum StateQuery {
    /// Query for the current gauges.
    Gauges(oneshot::Sender<Gauges>),
    /// Query for the digest of control's view.
    Digest(oneshot::Sender<Value>),
    /// Query for the part of the digest with the quota that ClusterQueues and cohorts hold.
    Held(oneshot::Sender<Value>),
}

/// Channels and shared state that connect the loop with other parts of the runtime.
pub struct Ports {
    /// Observations from the watches.
    pub seen: mpsc::Receiver<Seen>,
    /// Outcomes of tasks from the writer pool; the channel closes when the pool has ended.
    pub outcomes: mpsc::Receiver<(TaskId, TaskOutcome)>,
    /// Queries from the servers.
    pub queries: mpsc::Receiver<StateQuery>,
    /// Channel of the tasks (writes and queries) to the writer pool.
    pub writes: mpsc::UnboundedSender<Task>,
    /// Channel of the epoch to the watches: a higher epoch requests fresh lists.
    pub epochs: watch::Sender<u64>,
    /// Term and lease of this process.
    pub leadership: Leadership,
    /// Sink for Kubernetes events.
    pub events: EventSink,
    /// Load of the API server, to which the loop reports whether any Workload waits for quota.
    pub load: Arc<Load>,
    /// Registry of metrics.
    pub metrics: Arc<Metrics>,
    /// Heartbeat and readiness of the control loop.
    pub liveness: Arc<Liveness>,
    /// Request to stop: the loop stops leading, waits for the running writes, and ends.
    pub stop: watch::Receiver<bool>,
    /// True if the process takes part in an election. Without an election no other process of Berth can have written, so the loop leads with the first lists.
    pub elected: bool,
}

/// For each watched kind, the epoch in which the kind was last listed completely; `None` if the kind was not listed yet.
struct Lists {
    listed: [Option<u64>; KINDS],
}

impl Lists {
    fn complete(&self, epoch: u64) -> bool {
        self.listed.iter().all(|listed| listed.is_some_and(|listed| listed >= epoch))
    }
}

/// Observations and outcomes that the control loop has received and has not passed to control yet.
struct Inbox {
    seen: Vec<Seen>,
    outcomes: Vec<(TaskId, TaskOutcome)>,
}

impl Inbox {
    fn new() -> Self {
        Self { seen: Vec::with_capacity(256), outcomes: Vec::with_capacity(256) }
    }

    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.outcomes.is_empty()
    }

    /// Receives the observations and outcomes that have arrived, without waiting.
    fn fill(&mut self, ports: &mut Ports) {
        while let Ok(outcome) = ports.outcomes.try_recv() {
            self.outcomes.push(outcome);
        }
        while self.seen.len() < BATCH {
            let Ok(more) = ports.seen.try_recv() else { break };
            self.seen.push(more);
        }
    }

    fn hand_over<B: Controller>(&mut self, controller: &mut B, lists: &mut Lists, now: Timestamp) {
        for (id, outcome) in self.outcomes.drain(..) {
            controller.outcome(id, outcome, now);
        }
        for Seen { observation, listed, room } in self.seen.drain(..) {
            controller.observe(observation, now);
            drop(room);
            if let Some((kind, epoch)) = listed
                && let Some(slot) = lists.listed.get_mut(kind)
            {
                *slot = Some(epoch);
            }
        }
    }
}

/// A term that this process has claimed; the process leads once all kinds were listed in the claim's epoch.
struct Claim {
    term: Term,
    epoch: u64,
    leading: bool,
}

/// Runs the control loop until the loop is asked to stop and the writer pool has ended.
pub async fn run<B: Controller>(mut controller: B, mut ports: Ports) {
    let mut lists = Lists { listed: [None; KINDS] };
    let mut claim: Option<Claim> = None;
    let mut wake: Option<Timestamp> = None;
    let mut inbox = Inbox::new();
    let mut due = true;
    let mut throttle = Throttle::new(GAP, INTERVAL, BURST);
    let mut stepped = false;
    let mut clock = Clock::default();
    let mut journal = Journal::new(Instant::now());
    if !ports.elected {
        // Without an election, no Lease has the time since which pods are counted, so all pods count.
        controller.count_pods_since(Some(Timestamp::MIN));
    }
    while !*ports.stop.borrow() {
        ports.liveness.beat();
        if std::mem::take(&mut stepped) {
            // The thread runs only the control loop, so a blocking sleep delays no other task.
            std::thread::sleep(throttle.rest(ports.liveness.elapsed()));
        }
        let nap = if due { Duration::ZERO } else { nap(wake, clock.now()) };
        tokio::select! {
            biased;
            _ = ports.stop.changed() => continue,
            () = ports.leadership.changed() => due = true,
            count = ports.outcomes.recv_many(&mut inbox.outcomes, BATCH) => if count == 0 { return },
            count = ports.seen.recv_many(&mut inbox.seen, BATCH) => if count == 0 { return },
            Some(query) = ports.queries.recv() => { answer(&controller, query); }
            () = tokio::time::sleep(nap) => {}
        }
        inbox.fill(&mut ports);
        // Under load, an outcome or an observation always wakes the control loop, so the loop answers queries in the same turn.
        for _ in 0..QUERIES {
            let Ok(query) = ports.queries.try_recv() else { break };
            answer(&controller, query);
        }
        let now = clock.now();
        controller.tick(now, clock.steady());
        due |= !inbox.is_empty() || wake.is_some_and(|wake| wake <= now);
        inbox.hand_over(&mut controller, &mut lists, now);
        let synced = lists.complete(0);
        if synced && ports.liveness.note_listed() {
            tracing::info!("every kind was listed");
        }
        follow_leadership(&mut controller, &mut claim, &lists, &ports);
        let closed = claim.as_ref().is_some_and(|claim| claim.leading) && !ports.leadership.open(Instant::now());
        if closed {
            // Near the end of the lease the writer would refuse to send each write, so the control loop makes no step until the lease is renewed.
            wake = None;
        }
        if !due || !synced || closed {
            due = false;
            continue;
        }
        due = false;
        stepped = true;
        wake = step(&mut controller, &ports, &mut journal, now);
    }
    stop(controller, ports, inbox.outcomes, clock).await;
}

/// Time for which the control loop may sleep.
fn nap(wake: Option<Timestamp>, now: Timestamp) -> Duration {
    let Some(wake) = wake else { return NAP };
    let left = wake.duration_since(now);
    Duration::try_from(left).unwrap_or(Duration::ZERO).clamp(Duration::from_millis(1), NAP)
}

fn step<B: Controller>(controller: &mut B, ports: &Ports, journal: &mut Journal, now: Timestamp) -> Option<Timestamp> {
    let began = Instant::now();
    let step = controller.step(now);
    let took = began.elapsed();
    ports.metrics.observe("berth_step_duration_seconds", &[], took.as_secs_f64());
    controller.record(&ports.metrics, took);
    ports.load.set_wanted(step.quota_is_wanted);
    for task in step.tasks {
        if ports.writes.send(task).is_err() {
            tracing::error!("the writer pool is gone");
        }
    }
    for notice in step.notices {
        ports.events.publish(&notice);
    }
    for moved in &step.moves {
        journal.log(moved, Instant::now());
    }
    step.wake_at
}

fn answer<B: Controller>(controller: &B, query: StateQuery) {
    // The result of the send is ignored, because a client that has gone needs no answer to its query.
    match query {
        StateQuery::Gauges(reply) => drop(reply.send(controller.gauges())),
        StateQuery::Digest(reply) => drop(reply.send(controller.recompute())),
        StateQuery::Held(reply) => drop(reply.send(controller.held())),
    }
}

/// Passes a change of leadership from the elector on to control.
fn follow_leadership<B: Controller>(controller: &mut B, claim: &mut Option<Claim>, lists: &Lists, ports: &Ports) {
    let term = ports.leadership.state().term;
    if claim.as_ref().map(|claim| claim.term) != term {
        if claim.take().is_some_and(|claim| claim.leading) {
            controller.lead(None);
            tracing::info!("stopped leading");
        }
        ports.metrics.set_role(if ports.elected { Role::Follower } else { Role::Standalone });
        if let Some(term) = term {
            let mut epoch = *ports.epochs.borrow();
            if ports.elected {
                controller.count_pods_since(ports.leadership.state().pods_since);
                epoch += 1;
                ports.epochs.send_replace(epoch);
            }
            *claim = Some(Claim { term, epoch, leading: false });
        }
    }
    if let Some(claim) = claim
        && !claim.leading
        && lists.complete(claim.epoch)
    {
        claim.leading = true;
        ports.metrics.set_role(if ports.elected { Role::Leader } else { Role::Standalone });
        controller.lead(Some(claim.term));
        tracing::info!(term = claim.term.0, "leading with a view newer than the claim");
    }
}

/// Lets control decide no more, and passes the outcomes of running tasks to control.
async fn stop<B: Controller>(
    mut controller: B,
    ports: Ports,
    mut outcomes: Vec<(TaskId, TaskOutcome)>,
    mut clock: Clock,
) {
    controller.lead(None);
    let Ports { outcomes: mut pending, writes, seen, liveness, metrics, .. } = ports;
    // The writer pool ends when the senders of its channel are dropped, and the watches end when the receiver of their channel is dropped.
    drop(writes);
    drop(seen);
    while pending.recv_many(&mut outcomes, BATCH).await > 0 {
        liveness.beat();
        for (id, outcome) in outcomes.drain(..) {
            controller.outcome(id, outcome, clock.now());
        }
    }
    controller.record(&metrics, Duration::ZERO);
    tracing::info!("no write is under way any more");
}

#[cfg(test)]
#[path = "core_loop_tests.rs"]
mod tests;
