//! Tests of the control loop with a small controller: when the loop leads, which outcomes it passes on, and how it stops.

use super::*;
use crate::leadership::State;
use crate::rate::Bucket;
use berth_control::Step;
use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, ObjectKey, Purpose, Write, WriteOutcome};
use kube::client::{Body, Client};
use std::sync::Mutex;

type Log = Arc<Mutex<Vec<String>>>;

const PATIENCE: Duration = Duration::from_secs(10);

/// A controller that asks for one write per step while its process leads.
struct Scribe {
    log: Log,
    term: Option<Term>,
    next: u64,
}

impl Controller for Scribe {
    fn tick(&mut self, _: Timestamp, _: Duration) {}
    fn observe(&mut self, observation: Observation, _: Timestamp) {
        let what = match observation {
            Observation::Namespace(Change::Reset(_)) => "reset",
            _ => "change",
        };
        self.log.lock().unwrap().push(format!("observe {what}"));
    }
    fn count_pods_since(&mut self, _: Option<Timestamp>) {}
    fn lead(&mut self, term: Option<Term>) {
        self.term = term;
        self.log.lock().unwrap().push(format!("lead {:?}", term.map(|term| term.0)));
    }
    fn outcome(&mut self, id: TaskId, outcome: TaskOutcome, _: Timestamp) {
        self.log.lock().unwrap().push(format!("outcome {} {outcome:?}", id.0));
    }
    fn step(&mut self, _: Timestamp) -> Step {
        let mut step = Step::default();
        if let Some(term) = self.term {
            self.next += 1;
            step.tasks.push(Task {
                id: TaskId(self.next),
                term,
                purpose: Purpose::ReserveQuota,
                key: ObjectKey { kind: Kind::Workload, namespace: "a".into(), name: "w".into() },
                action: Write::Delete { uid: "u".into(), owned_first: false }.into(),
            });
        }
        step
    }
    fn record(&mut self, _: &Metrics, _: Duration) {}
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
    fn recompute(&self) -> Value {
        Value::Null
    }
    fn held(&self) -> Value {
        Value::Null
    }
}

struct World {
    log: Log,
    seen: mpsc::Sender<Seen>,
    outcomes: mpsc::Sender<(TaskId, TaskOutcome)>,
    queries: mpsc::Sender<StateQuery>,
    writes: mpsc::UnboundedReceiver<Task>,
    epochs: watch::Receiver<u64>,
    state: watch::Sender<State>,
    stop: watch::Sender<bool>,
    liveness: Arc<Liveness>,
    task: tokio::task::JoinHandle<()>,
}

fn world(elected: bool) -> World {
    let log = Log::default();
    let metrics = Arc::new(Metrics::new("test"));
    let silent =
        tower::service_fn(|_: http::Request<Body>| async { Ok::<_, kube::Error>(http::Response::new(Body::empty())) });
    let bucket = Bucket::new(None, 1.0, Instant::now());
    let load = Arc::new(crate::load::Load::new(Instant::now()));
    let events =
        EventSink::spawn(Client::new(silent, "x"), "i".into(), bucket, Arc::clone(&load), Arc::clone(&metrics));
    let (seen_in, seen) = mpsc::channel(64);
    let (outcomes_in, outcomes) = mpsc::channel(64);
    let (queries_in, queries) = mpsc::channel(1);
    let (writes, writes_out) = mpsc::unbounded_channel();
    let (epochs, epochs_out) = watch::channel(0);
    let (state, leadership) = Leadership::new(Duration::from_secs(10));
    let (stop, stopped) = watch::channel(false);
    let liveness = Arc::new(Liveness::default());
    let controller = Scribe { log: Arc::clone(&log), term: None, next: 0 };
    let liveness_in = Arc::clone(&liveness);
    let ports = Ports {
        seen,
        outcomes,
        queries,
        writes,
        epochs,
        leadership,
        events,
        load,
        metrics,
        liveness: liveness_in,
        stop: stopped,
        elected,
    };
    let task = tokio::spawn(run(controller, ports));
    World {
        log,
        seen: seen_in,
        outcomes: outcomes_in,
        queries: queries_in,
        writes: writes_out,
        epochs: epochs_out,
        state,
        stop,
        liveness,
        task,
    }
}

impl World {
    async fn list_all(&self, epoch: u64) {
        for kind in 0..KINDS {
            let observation = Observation::Namespace(Change::Reset(Vec::new()));
            self.seen.send(Seen { observation, listed: Some((kind, epoch)), room: None }).await.unwrap();
        }
    }

    fn has(&self, line: &str) -> bool {
        self.log.lock().unwrap().iter().any(|logged| logged == line)
    }

    async fn write(&mut self) -> Task {
        tokio::time::timeout(PATIENCE, self.writes.recv()).await.expect("a write").unwrap()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.log.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Waits as long as a wrong control loop would need for a forbidden action, before an assertion that the action did not happen.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn leader_writes_only_on_lists_newer_than_its_claim() {
    let mut world = world(true);
    world.list_all(0).await;
    world.until("ready", |world| world.liveness.ready()).await;
    world.state.send_replace(State { term: Some(Term(3)), ..State::default() });
    world.until("the claim asks for fresh lists", |world| *world.epochs.borrow() == 1).await;
    settle().await;
    assert!(!world.has("lead Some(3)") && world.writes.try_recv().is_err());
    world.list_all(1).await;
    assert_eq!(world.write().await.term, Term(3));
    assert!(world.has("lead Some(3)"));
    world.state.send_replace(State::default());
    world.until("stops leading", |world| world.has("lead None")).await;
}

#[tokio::test]
async fn core_loop_without_election_writes_after_its_first_lists() {
    let mut world = world(false);
    world.state.send_replace(State { term: Some(Term(1)), ..State::default() });
    settle().await;
    assert!(!world.liveness.ready() && world.writes.try_recv().is_err(), "nothing before every kind was listed");
    world.list_all(0).await;
    assert_eq!(world.write().await.term, Term(1));
}

#[tokio::test]
async fn core_loop_with_short_lease_sends_no_writes() {
    let mut world = world(true);
    let state = |left: u64| State {
        term: Some(Term(2)),
        until: Some(Instant::now() + Duration::from_millis(left)),
        ..State::default()
    };
    world.state.send_replace(state(100_000));
    world.until("claim", |world| *world.epochs.borrow() == 1).await;
    world.list_all(1).await;
    world.write().await;
    world.state.send_replace(state(9_900));
    settle().await;
    while world.writes.try_recv().is_ok() {}
    let change = Observation::Namespace(Change::Reset(Vec::new()));
    world.seen.send(Seen { observation: change, listed: None, room: None }).await.unwrap();
    settle().await;
    assert!(world.writes.try_recv().is_err(), "less than the write deadline is too little");
    world.state.send_replace(state(15_000));
    world.write().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn core_loop_answers_queries_during_endless_write_outcomes() {
    let mut world = world(false);
    world.list_all(0).await;
    world.state.send_replace(State { term: Some(Term(1)), ..State::default() });
    world.write().await;
    // The channel of outcomes is full whenever the control loop reads the channel, because the loop rests between steps.
    let outcomes = world.outcomes.clone();
    let flood =
        std::thread::spawn(move || while outcomes.blocking_send((TaskId(1), WriteOutcome::Conflict.into())).is_ok() {});
    for _ in 0..5 {
        let (reply, answer) = oneshot::channel();
        world.queries.send(StateQuery::Gauges(reply)).await.unwrap();
        tokio::time::timeout(Duration::from_secs(3), answer).await.expect("an answer in time").unwrap();
    }
    world.task.abort();
    assert!(world.task.await.is_err_and(|end| end.is_cancelled()));
    flood.join().unwrap();
}

#[tokio::test]
async fn follower_writes_a_dump_when_asked() {
    let world = world(true);
    let asked = Arc::new(tokio::sync::Notify::new());
    let (sender, mut lines) = mpsc::unbounded_channel();
    let report = move |line| drop(sender.send(line));
    tokio::spawn(crate::dump::dump_on_request(Arc::clone(&asked), world.queries.clone(), report));
    world.list_all(0).await;
    world.until("ready", |world| world.liveness.ready()).await;
    asked.notify_one();
    let line = tokio::time::timeout(PATIENCE, lines.recv()).await.expect("an end of the dump");
    assert!(matches!(line, Some(crate::dump::Line::End { .. })), "{line:?}");
}

#[tokio::test]
async fn core_loop_stops_after_the_last_write_outcome() {
    let mut world = world(false);
    world.list_all(0).await;
    world.state.send_replace(State { term: Some(Term(1)), ..State::default() });
    let write = world.write().await;
    world.stop.send_replace(true);
    while world.writes.recv().await.is_some() {}
    assert!(!world.task.is_finished(), "a write is under way");
    world.outcomes.send((write.id, WriteOutcome::Conflict.into())).await.unwrap();
    drop(world.outcomes);
    world.task.await.unwrap();
    let log = world.log.lock().unwrap();
    assert_eq!(log.last().map(String::as_str), Some("outcome 1 Written(Conflict)"));
}
