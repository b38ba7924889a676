//! A replica of Berth: a process with control, a candidate of the leader election, watches and a writer. The control loop follows the loop of `crates/runtime`.

use std::time::Duration;

use berth_control::Control;
use berth_control::event::{Change, Observation};
use berth_control::settings::Settings;
use berth_control::write::Term;
use berth_lease::{Candidate, Timing};
use jiff::Timestamp;
use serde_json::json;

use super::message::Process;
use super::streams::{Stream, WATCHED};
use crate::watch;

/// Time-outs of the leader election, as in Berth's release.
pub(super) const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
/// Longest time that a write takes, in milliseconds: the writer sends no write if less of the lease is left.
pub(super) const DEADLINE_MS: u64 = 10_000;
/// Least time between two steps of the control loop, in milliseconds.
pub(super) const GAP_MS: u64 = 10;

/// A term of the process: the process waits for the lists of an epoch, or leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Term of the election that the process has won.
    pub(super) term: Term,
    epoch: u64,
    leading: bool,
}

/// One replica of Berth; without `control`, no process of the replica runs.
#[derive(Debug)]
pub(super) struct Replica {
    /// The present process of the replica.
    pub(super) process: Process,
    /// The control of the process; `None` while no process runs.
    pub(super) control: Option<Control>,
    /// The candidate of the leader election.
    pub(super) candidate: Candidate,
    /// Term of the process and end of the lease, in milliseconds by the process's clock.
    pub(super) lead: Option<(Term, u64)>,
    /// The term that the process waits for or leads in.
    pub(super) claim: Option<Claim>,
    /// Number of times that the process has requested all lists.
    pub(super) epoch: u64,
    /// The watches of the process, one for each watched kind.
    pub(super) streams: [Stream; WATCHED.len()],
    /// Time in milliseconds until which the process is paused.
    pub(super) paused_until: u64,
    /// Time in milliseconds until which the process has no connection.
    pub(super) cut_until: u64,
    /// Time in milliseconds of the next step of the control loop.
    pub(super) next_step: Option<u64>,
    /// Time in milliseconds of the last step of the control loop.
    pub(super) last_step: u64,
}

impl Replica {
    /// A replica without a process.
    pub(super) fn new(replica: usize) -> Self {
        Self {
            process: Process { replica, start: 0 },
            control: None,
            candidate: Candidate::new(String::new(), TIMING),
            lead: None,
            claim: None,
            epoch: 0,
            streams: Default::default(),
            paused_until: 0,
            cut_until: 0,
            next_step: None,
            last_step: 0,
        }
    }

    /// Starts a new process that knows no objects.
    pub(super) fn start(&mut self, settings: &Settings, now: Timestamp) {
        let process = Process { start: self.process.start + 1, ..self.process };
        let mut control = Control::new(settings.clone());
        control.count_pods_since(Some(Timestamp::MIN));
        control.observe(watch::namespace("team", &json!({"team": "a"}), None), now);
        let class = json!({"metadata": {"name": "high"}, "value": 100});
        let class = serde_json::from_value(class).expect("a priority class");
        control.observe(Observation::WorkloadPriorityClass(Change::Apply(class)), now);
        let identity = format!("replica-{}-{}", process.replica, process.start);
        *self = Self {
            process,
            control: Some(control),
            candidate: Candidate::new(identity, TIMING),
            cut_until: self.cut_until,
            ..Self::new(process.replica)
        };
    }

    /// Ends the process without any message to others.
    pub(super) fn end(&mut self) {
        self.process.start += 1;
        self.control = None;
        self.lead = None;
        self.claim = None;
        self.next_step = None;
        self.streams.iter_mut().for_each(Stream::close);
    }

    /// The present process of the replica.
    pub(super) const fn identity(&self) -> Process {
        self.process
    }

    /// Whether the replica has no connection now.
    pub(super) const fn is_cut(&self, now_ms: u64) -> bool {
        now_ms < self.cut_until
    }

    /// Whether the list of an epoch has arrived for each watched kind.
    pub(super) fn has_listed(&self, epoch: u64) -> bool {
        self.streams.iter().all(|stream| stream.listed.is_some_and(|listed| listed >= epoch))
    }

    /// Whether the writer may send a write of a term.
    pub(super) fn permits(&self, term: Term, now_ms: u64) -> bool {
        self.lead.is_some_and(|(own, until)| own == term && now_ms + DEADLINE_MS <= until)
    }

    /// Whether control leads, and the writer would send its writes.
    pub(super) fn is_open(&self, now_ms: u64) -> bool {
        self.claim.is_some_and(|claim| claim.leading && self.permits(claim.term, now_ms))
    }

    /// Whether control leads.
    pub(super) fn leads(&self) -> bool {
        self.claim.is_some_and(|claim| claim.leading)
    }

    /// Updates control's leadership to the result of the election; true if all lists must be requested again.
    pub(super) fn follow_leadership(&mut self, believes_old_lists: bool) -> bool {
        let term = self.lead.map(|(term, _)| term);
        let Some(control) = &mut self.control else { return false };
        let mut asks = false;
        if self.claim.map(|claim| claim.term) != term {
            if self.claim.take().is_some_and(|claim| claim.leading) {
                control.lead(None);
            }
            if let Some(term) = term {
                self.epoch += 1;
                asks = true;
                let epoch = if believes_old_lists { 0 } else { self.epoch };
                self.claim = Some(Claim { term, epoch, leading: false });
            }
        }
        if let Some(claim) = self.claim.filter(|claim| !claim.leading && self.has_listed(claim.epoch)) {
            self.claim = Some(Claim { leading: true, ..claim });
            if let Some(control) = &mut self.control {
                control.lead(Some(claim.term));
            }
        }
        asks
    }
}
