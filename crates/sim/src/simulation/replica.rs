//! A replica: a process with control, a candidate of the election, watches and a writer. The loop is that of `crates/runtime`.

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

/// Time-outs of the election, as Berth ships.
pub(super) const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
/// Longest time that a write takes, in milliseconds: the writer sends none when less of the lease is left.
pub(super) const DEADLINE_MS: u64 = 10_000;
/// Least time between two steps of the loop, in milliseconds.
pub(super) const GAP_MS: u64 = 10;

/// A term of the process: waiting for lists of an epoch, or leading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) term: Term,
    epoch: u64,
    leading: bool,
}

/// One replica; without `control` its process does not run.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) process: Process,
    pub(super) control: Option<Control>,
    pub(super) candidate: Candidate,
    /// Term and end of the lease by the process's clock.
    pub(super) lead: Option<(Term, u64)>,
    pub(super) claim: Option<Claim>,
    pub(super) epoch: u64,
    pub(super) streams: [Stream; WATCHED.len()],
    /// The process does nothing until then.
    pub(super) paused_until: u64,
    /// The process has no connection until then.
    pub(super) cut_until: u64,
    /// Time of the next turn of the loop.
    pub(super) next_step: Option<u64>,
    pub(super) last_step: u64,
}

impl Replica {
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

    /// A new process that knows nothing of objects.
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

    /// The process ends without a word.
    pub(super) fn end(&mut self) {
        self.process.start += 1;
        self.control = None;
        self.lead = None;
        self.claim = None;
        self.next_step = None;
        self.streams.iter_mut().for_each(Stream::close);
    }

    pub(super) const fn identity(&self) -> Process {
        self.process
    }

    pub(super) const fn is_cut(&self, now_ms: u64) -> bool {
        now_ms < self.cut_until
    }

    /// Whether the list of an epoch has arrived for each kind.
    pub(super) fn has_listed(&self, epoch: u64) -> bool {
        self.streams.iter().all(|stream| stream.listed.is_some_and(|listed| listed >= epoch))
    }

    /// Whether the writer may send a write of a term.
    pub(super) fn permits(&self, term: Term, now_ms: u64) -> bool {
        self.lead.is_some_and(|(own, until)| own == term && now_ms + DEADLINE_MS <= until)
    }

    /// Whether control leads, and its writes would be sent.
    pub(super) fn is_open(&self, now_ms: u64) -> bool {
        self.claim.is_some_and(|claim| claim.leading && self.permits(claim.term, now_ms))
    }

    /// Whether control leads.
    pub(super) fn leads(&self) -> bool {
        self.claim.is_some_and(|claim| claim.leading)
    }

    /// Brings control's leadership in line with the election. True if fresh lists are needed.
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
