//! The simulation: two replicas of Berth with one API server, a simulated clock and a simulated network.
//!
//! A seed determines the run byte for byte: the writes of users, tenants and administrators, the faults of the network, and the moments at which controllers
//! and processes run. The judge of crate `invariants`, which shares no code with Berth, checks every revision. At the end the faults stop, the cluster comes to
//! rest, and all jobs are deleted: after that, Berth must not write, and no Workload may hold quota. Readers should start at [`run`].
//!
//! The API server performs a request when it arrives, and drops a request that arrives after the request's deadline, as a real API server does. Queries about
//! pods are answered from the stored pods.

mod events;
mod judging;
mod lease_store;
mod message;
mod planted;
mod profile;
mod replica;
mod requests;
mod rest;
mod streams;
mod trace;
mod watching;
mod writers;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use berth_control::settings::Settings;
use berth_control::write::{Kind, ObjectKey};
use berth_invariants::kinds::condition;
use berth_invariants::quota_tree::charge;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::api_server::{ApiServer, GarbageCollection};
use crate::controllers::{GarbageCollector, JobController, JobSetController, Kubelets};
use crate::dice::Dice;
use crate::tenant::Tenant;
use judging::Judging;
use lease_store::LeaseStore;
use message::{Message, Messages, Process};
pub use planted::Planted;
pub use profile::{Drawn, ProcessFaults, Profile, RequestFaults};
use replica::{GAP_MS, Replica};
use trace::Trace;

/// Number of replicas of Berth in a simulation.
const REPLICAS: usize = 2;
/// Field manager of Kubernetes' controllers.
const CONTROLLERS: &str = "kube-controller-manager";

/// Time after which an edit of a quota is in force: the delay of a watch, one step of control, and the time until a request is dropped.
const IN_FORCE: Duration = Duration::from_secs(60);

/// The result of a simulation run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Digest of the trace: two runs of one seed have equal digests.
    pub digest: u64,
    /// Number of messages that have arrived in the run.
    pub steps: u64,
    /// Number of revisions that were judged.
    pub revisions: u64,
    /// Number of faults that happened in the run.
    pub faults: u64,
    /// Number of times that a replica began to lead.
    pub terms: u64,
    /// The first failure of the run, if there was a failure.
    pub failure: Option<Failure>,
}

/// A broken invariant, or a run that does not come to rest.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The broken rule, or the end of the run that was not reached.
    pub what: String,
    /// The last lines of the trace before the failure.
    pub trace: Vec<String>,
    /// The Workloads that hold quota and the usage beyond quota at the failure, one line each.
    pub holders: Vec<String>,
}

/// Runs one seed with a number of external events.
#[must_use]
pub fn run(seed: u64, events: usize, profile: &Profile) -> Report {
    run_traced(seed, events, profile, false)
}

/// Runs one seed, and prints each line of its trace if `is_printed`.
#[must_use]
pub fn run_traced(seed: u64, events: usize, profile: &Profile, is_printed: bool) -> Report {
    let mut simulation = Simulation::new(seed, profile, is_printed);
    let failure =
        simulation.live(events).and_then(|()| simulation.come_to_rest()).and_then(|()| simulation.tear_down());
    let found = failure.err().map(|what| {
        let (trace, holders) = (simulation.trace.shown(), simulation.holders());
        Failure { what, trace, holders }
    });
    Report {
        seed,
        digest: simulation.trace.digest(),
        steps: simulation.steps,
        revisions: simulation.judging.revisions(),
        faults: simulation.faults,
        terms: simulation.terms,
        failure: found,
    }
}

/// The state of a simulation run.
struct Simulation {
    now_ms: u64,
    begin: Timestamp,
    messages: Messages,
    /// Random numbers of the network and the processes.
    dice: Dice,
    drawn: Drawn,
    planted: Option<Planted>,
    api: ApiServer,
    lease: LeaseStore,
    replicas: [Replica; REPLICAS],
    settings: Settings,
    tenant: Tenant,
    judging: Judging,
    trace: Trace,
    /// Number of external events that are still to come.
    events_left: usize,
    /// Number of external events so far.
    events: usize,
    has_controllers_due: bool,
    /// Jobs that the tenant has written to.
    touched: BTreeSet<ObjectKey>,
    steps: u64,
    faults: u64,
    terms: u64,
    /// Time of Berth's last write, in milliseconds.
    last_write_ms: u64,
}

impl Simulation {
    fn new(seed: u64, profile: &Profile, is_printed: bool) -> Self {
        let mut dice = Dice::new(seed);
        let drawn = profile.draw(&mut dice);
        let begin: Timestamp = "2026-11-21T12:00:00Z".parse().expect("a time");
        let settings = events::settings(&mut dice);
        let tenant = Tenant::new(Dice::new(seed ^ 0x5eed), settings.manage_jobs_without_queue_name);
        let mut simulation = Self {
            now_ms: 0,
            begin,
            messages: Messages::default(),
            dice,
            drawn,
            planted: profile.planted,
            api: ApiServer::new(begin, GarbageCollection::Later),
            lease: LeaseStore::default(),
            replicas: std::array::from_fn(Replica::new),
            settings,
            tenant,
            judging: Judging::new(IN_FORCE),
            trace: Trace::new(is_printed),
            events_left: 0,
            events: 0,
            has_controllers_due: false,
            touched: BTreeSet::new(),
            steps: 0,
            faults: 0,
            terms: 0,
            last_write_ms: 0,
        };
        simulation.trace.note(0, format_args!("seed {seed}: {drawn:?}"));
        simulation.set_up();
        for replica in 0..REPLICAS {
            simulation.messages.add(replica as u64 * 100, Message::Start(replica));
        }
        simulation
    }

    /// Runs the part of the simulation with external events and faults.
    fn live(&mut self, events: usize) -> Result<(), String> {
        self.events_left = events;
        self.messages.add(1_000, Message::Event);
        while self.events_left > 0 {
            self.turn()?;
        }
        Ok(())
    }

    /// The Workloads that hold quota, with their ClusterQueue and charge, and the usage beyond quota that the leader charges.
    fn holders(&mut self) -> Vec<String> {
        let of_workload = |(key, object): (&ObjectKey, &Value)| {
            let holds = condition(object, "QuotaReserved") == "True" && condition(object, "Finished") != "True";
            let queue = object["status"]["admission"]["clusterQueue"].as_str().unwrap_or_default();
            holds.then(|| format!("{key} holds {:?} of {queue}", charge(object)))
        };
        let objects = self.api.objects().iter().filter(|(key, _)| key.kind == Kind::Workload);
        let mut lines: Vec<String> = objects.filter_map(of_workload).collect();
        let leader = self.replicas.iter_mut().find(|replica| replica.leads());
        let Some(control) = leader.and_then(|replica| replica.control.as_mut()) else { return lines };
        for queue in ["first", "second"] {
            let beyond = control.world().beyond(queue).into_iter();
            lines.extend(beyond.map(|(cell, amount)| format!("{queue}: {cell:?} {amount:?} is used beyond quota")));
        }
        lines
    }

    fn timestamp(&self) -> Timestamp {
        let passed = SignedDuration::from_millis(i64::try_from(self.now_ms).unwrap_or(i64::MAX));
        self.begin.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    fn since_begin(&self) -> Duration {
        Duration::from_millis(self.now_ms)
    }

    /// Lets the next message arrive.
    fn turn(&mut self) -> Result<(), String> {
        let Some((at, message)) = self.messages.next() else { return Err("nothing happens any more".to_owned()) };
        self.now_ms = self.now_ms.max(at);
        self.api.set_now(self.timestamp());
        self.steps += 1;
        self.follow_leaders();
        if let Some(to) = message.addressee() {
            let replica = &self.replicas[to.replica];
            if replica.identity() != to {
                return Ok(());
            }
            if self.now_ms < replica.paused_until {
                self.messages.add(replica.paused_until, message);
                return Ok(());
            }
        }
        match message {
            Message::Event => self.event(),
            Message::Send(from, task) => self.send(from, *task),
            Message::Request { from, task, sent_ms, answers } => self.request(from, &task, sent_ms, answers),
            Message::Answer(to, id, outcome) => self.answer(to, id, outcome),
            Message::List { from, stream, epoch } => self.list(from, stream, epoch),
            Message::Changes(to, stream) => self.changes(to, stream),
            Message::Elect(who) => self.elect(who),
            Message::LeaseRequest { from, action, began_ms, answers } => {
                self.lease_request(from, &action, began_ms, answers);
            }
            Message::LeaseAnswer { to, answer, began_ms } => self.lease_answer(to, answer, began_ms),
            Message::Step(who) => self.step(who),
            Message::Controllers => self.controllers(),
            Message::Start(replica) => self.start(replica),
        }
        self.publish()
    }

    /// Judges the new revisions, and shows them to the open watches.
    fn publish(&mut self) -> Result<(), String> {
        let revisions = self.api.take_revisions();
        if !revisions.is_empty() && !self.has_controllers_due {
            self.has_controllers_due = true;
            let at = self.now_ms + self.dice.millis(10, 400);
            self.messages.add(at, Message::Controllers);
        }
        for revision in revisions.into_iter().map(Rc::new) {
            self.trace.mix_object(&revision.object);
            let (key, version, writer) = (&revision.key, revision.version, revision.writer);
            let gone = if revision.gone { " gone" } else { "" };
            self.trace.note(self.now_ms, format_args!("r{version} {key}{gone} by {writer}"));
            self.judging.take(&revision, self.since_begin())?;
            self.show(revision);
        }
        Ok(())
    }

    /// Runs the controllers of Kubernetes in random order, each with a probability.
    fn controllers(&mut self) {
        self.api.write_as(CONTROLLERS);
        let mut again = false;
        let first = self.dice.below(4);
        for turn in 0..4 {
            if self.dice.below(4) == 0 {
                again = true;
                continue;
            }
            again |= match (first + turn) % 4 {
                0 => JobController(&mut self.api).look(),
                1 => JobSetController(&mut self.api).look(),
                2 => Kubelets(&mut self.api).look(),
                _ => GarbageCollector(&mut self.api).look(),
            };
        }
        self.has_controllers_due = again;
        if again {
            let at = self.now_ms + self.dice.millis(50, 600);
            self.messages.add(at, Message::Controllers);
        }
    }

    fn start(&mut self, replica: usize) {
        let now = self.timestamp();
        self.replicas[replica].start(&self.settings, now);
        let process = self.replicas[replica].identity();
        self.trace.note(self.now_ms, format_args!("replica {replica} starts"));
        self.ask_lists(process);
        self.messages.add(self.now_ms, Message::Elect(process));
    }

    /// Schedules the next step of a process's control loop.
    fn plan_step(&mut self, who: Process, at_ms: u64) {
        let replica = &mut self.replicas[who.replica];
        let at = at_ms.max(replica.last_step + GAP_MS).max(self.now_ms);
        if replica.next_step.is_none_or(|planned| at < planned) {
            replica.next_step = Some(at);
            self.messages.add(at, Message::Step(who));
        }
    }

    fn step(&mut self, who: Process) {
        let now = self.timestamp();
        let believes_old_lists = self.planted == Some(Planted::StaleLists);
        let replica = &mut self.replicas[who.replica];
        if replica.next_step.is_some_and(|planned| planned > self.now_ms) {
            return;
        }
        replica.next_step = None;
        replica.last_step = self.now_ms;
        let led = replica.leads();
        let asks = replica.follow_leadership(believes_old_lists);
        let (leads, is_open, listed) = (replica.leads(), replica.is_open(self.now_ms), replica.has_listed(0));
        if leads && !led {
            self.terms += 1;
            self.trace.note(self.now_ms, format_args!("replica {} leads", who.replica));
        }
        if asks {
            self.ask_lists(who);
        }
        let replica = &mut self.replicas[who.replica];
        let Some(control) = replica.control.as_mut().filter(|_| listed && (is_open || !leads)) else { return };
        control.tick(now, Duration::from_millis(self.now_ms));
        let step = control.step(now);
        for task in step.tasks {
            let turn = self.now_ms + self.dice.millis(0, 20);
            self.trace
                .note(self.now_ms, format_args!("replica {} decides {:?} of {}", who.replica, task.purpose, task.key));
            self.messages.add(turn, Message::Send(who, Box::new(task)));
        }
        if let Some(wake) = step.wake_at {
            let wait = u64::try_from(wake.duration_since(self.begin).as_millis()).unwrap_or(self.now_ms);
            self.plan_step(who, wait.max(self.now_ms + 1));
        }
    }
}
