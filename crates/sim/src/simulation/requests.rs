//! Requests of the simulated processes: their faults, their arrival at the API server, and the answers.

use std::time::Duration;

use berth_control::write::{
    Action, Kind, LeftPod, ObjectKey, PodOnNode, PodsLeft, PodsOf, Query, QueryAnswer, QueryFailure, Task, TaskId,
    TaskOutcome, Term, Write, WriteOutcome,
};
use berth_lease::Action as LeaseAction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::lease_store::LeaseAnswer;
use super::message::{Message, Process};
use super::replica::{DEADLINE_MS, TIMING};
use super::{Planted, Simulation};
use crate::controllers::has_ended;

/// Field manager of objects that Berth creates.
const BERTH: &str = "kueue";
/// Time after which the API server drops a request, in milliseconds since the request was sent.
const DROPPED_MS: u64 = 9_000;
/// Time for which a request about the Lease waits for its answer, in milliseconds.
const LEASE_DEADLINE_MS: u64 = 5_000;
/// Time after a fault within which Berth may exceed its time bounds, in milliseconds.
const RECOVERY_MS: u64 = 60_000;

impl Simulation {
    /// Notes a fault: the judge does not check time bounds for a while.
    pub(super) fn note_fault(&mut self, what: std::fmt::Arguments<'_>, lasts_ms: u64) {
        self.faults += 1;
        self.trace.note(self.now_ms, format_args!("fault: {what}"));
        self.judging.trouble(self.now_ms + lasts_ms + RECOVERY_MS);
    }

    /// Reports to the judge whether a replica leads and is not paused.
    pub(super) fn follow_leaders(&mut self) {
        let now_ms = self.now_ms;
        let leads = self.replicas.iter().any(|replica| replica.is_open(now_ms) && now_ms >= replica.paused_until);
        self.judging.leads(leads, self.now_ms);
    }

    /// Sends a task as the runtime of a process does, with the faults of the network.
    pub(super) fn send(&mut self, from: Process, task: Task) {
        let replica = &self.replicas[from.replica];
        let (id, now) = (task.id, self.now_ms);
        let unchecked = matches!(self.planted, Some(Planted::DroppedTermCheck));
        if !unchecked && !replica.permits(task.term, now) {
            let not_sent = match task.action {
                Action::Write(_) => WriteOutcome::NotSent.into(),
                Action::Query(_) => QueryFailure::NotSent.into(),
            };
            self.messages.add(now + 1, Message::Answer(from, id, not_sent));
            return;
        }
        let is_query = matches!(task.action, Action::Query(_));
        let no_answer = no_answer(&task);
        if replica.is_cut(now) {
            self.messages.add(now + DEADLINE_MS, Message::Answer(from, id, no_answer));
            return;
        }
        let task = match self.planted {
            Some(planted) => planted.sent(task, &self.api),
            None => task,
        };
        let faults = self.drawn.requests;
        let at = now + self.dice.millis(1, 25);
        let mut answers = true;
        if self.dice.per_mille(faults.lost) {
            self.note_fault(format_args!("{:?} of {} is lost", task.purpose, task.key), DEADLINE_MS);
            self.messages.add(now + DEADLINE_MS, Message::Answer(from, id, no_answer));
            return;
        }
        if self.dice.per_mille(faults.refused) {
            let text = || "refused by the simulation".to_owned();
            let outcome: TaskOutcome = match (self.dice.below(3), is_query) {
                (0, false) => WriteOutcome::Refused(text()).into(),
                (0, true) => QueryFailure::Refused(text()).into(),
                (1, false) => WriteOutcome::Busy(self.dice.millis(100, 3_000)).into(),
                (1, true) => QueryFailure::Busy(self.dice.millis(100, 3_000)).into(),
                (_, true) => QueryFailure::Busy(500).into(),
                (_, false) => WriteOutcome::Conflict.into(),
            };
            self.note_fault(format_args!("{:?} of {} gets {outcome:?}", task.purpose, task.key), 0);
            if outcome == WriteOutcome::Conflict.into() {
                self.touch(&task.key);
            }
            self.messages.add(at, Message::Answer(from, id, outcome));
            return;
        }
        let mut arrival = at;
        if self.dice.per_mille(faults.late) {
            arrival = now + self.dice.millis(500, DROPPED_MS - 1);
            self.note_fault(format_args!("{:?} of {} is late", task.purpose, task.key), DEADLINE_MS);
        }
        if self.dice.per_mille(faults.unanswered) {
            answers = false;
            self.note_fault(format_args!("{:?} of {} is not answered", task.purpose, task.key), DEADLINE_MS);
            self.messages.add(now + DEADLINE_MS, Message::Answer(from, id, no_answer));
        }
        if !is_query && self.dice.per_mille(faults.doubled) {
            let second = arrival + self.dice.millis(1, DROPPED_MS.saturating_sub(arrival - now).max(2));
            self.note_fault(format_args!("{:?} of {} arrives twice", task.purpose, task.key), DEADLINE_MS);
            let again = Message::Request { from, task: Box::new(task.clone()), sent_ms: now, answers: false };
            self.messages.add(second, again);
        }
        self.messages.add(arrival, Message::Request { from, task: Box::new(task), sent_ms: now, answers });
    }

    /// Changes an object as another client, so that a reported conflict is real.
    fn touch(&mut self, key: &ObjectKey) {
        let Some(object) = self.api.get(key).cloned() else { return };
        self.api.write_as(super::CONTROLLERS);
        self.api.store(key, object);
    }

    /// Performs a request that arrives at the API server.
    pub(super) fn request(&mut self, from: Process, task: &Task, sent_ms: u64, answers: bool) {
        if self.now_ms >= sent_ms + DROPPED_MS {
            return;
        }
        if matches!(task.action, Action::Write(_)) {
            self.last_write_ms = self.now_ms;
        }
        let outcome = self.perform(task);
        self.trace.note(
            self.now_ms,
            format_args!("{:?} of {} from replica {}: {}", task.purpose, task.key, from.replica, short(&outcome)),
        );
        if answers {
            let at = self.now_ms + self.dice.millis(1, 25);
            let back = if self.replicas[from.replica].is_cut(at) {
                (sent_ms + DEADLINE_MS, no_answer(task))
            } else {
                (at, outcome)
            };
            self.messages.add(back.0, Message::Answer(from, task.id, back.1));
        }
    }

    fn perform(&mut self, task: &Task) -> TaskOutcome {
        self.api.write_as(BERTH);
        let key = self.stored_key(&task.key);
        let write = match &task.action {
            Action::Query(query) => return TaskOutcome::Answered(self.reply(&key, query)),
            Action::Write(write) => write,
        };
        let outcome = match write {
            Write::AnnotatePods { pods, annotations } => {
                for pod in self.pods_of(pods) {
                    self.api.edit(&pod, &json!({"metadata": {"annotations": annotations}}));
                }
                applied()
            }
            Write::DeleteCheckpoints { .. } => applied(),
            Write::Delete { uid, owned_first: true }
                if self.api.get(&key).is_some_and(|object| object["metadata"]["uid"] == json!(uid)) =>
            {
                self.api.delete_owned_first(&key);
                WriteOutcome::Applied { resource_version: self.api.version().to_string() }
            }
            write => self.api.perform(&key, write).unwrap_or(WriteOutcome::Gone),
        };
        outcome.into()
    }

    /// The key under which the simulation stores a pod: the API has one kind of pods, and the simulation has two.
    fn stored_key(&self, key: &ObjectKey) -> ObjectKey {
        let other = match key.kind {
            Kind::Pod => Kind::JobPod,
            Kind::JobPod => Kind::Pod,
            _ => return key.clone(),
        };
        let other = ObjectKey { kind: other, ..key.clone() };
        if self.api.get(key).is_none() && self.api.get(&other).is_some() { other } else { key.clone() }
    }

    fn live_pods(&self) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        let is_pod = |key: &ObjectKey| matches!(key.kind, Kind::Pod | Kind::JobPod);
        self.api.objects().iter().filter(move |(key, pod)| is_pod(key) && !has_ended(pod))
    }

    /// Pods of a job that have not ended.
    fn pods_of(&self, pods: &PodsOf) -> Vec<ObjectKey> {
        let labelled = self.live_pods().filter(|(_, pod)| pod["metadata"]["labels"][pods.label] == json!(pods.uid));
        labelled.filter(|(_, pod)| pods.has(&metadata(pod))).map(|(key, _)| key.clone()).collect()
    }

    fn reply(&self, key: &ObjectKey, query: &Query) -> Result<QueryAnswer, QueryFailure> {
        Ok(match query {
            Query::ProbePods { pods, most } => {
                let too_many = self.pods_of(pods).len() > *most && self.planted != Some(Planted::ForgottenPods);
                QueryAnswer::PodsLeft(if too_many { PodsLeft::TooMany } else { PodsLeft::Allowed })
            }
            Query::FindStuckPods { .. } | Query::AskAutoscalers { .. } => QueryAnswer::Stuck(Vec::new()),
            Query::FindPodsOnNode => {
                let here = self.live_pods().filter(|(_, pod)| pod["spec"]["nodeName"] == json!(key.name));
                QueryAnswer::OnNode(here.map(|(_, pod)| PodOnNode::of(metadata(pod))).collect())
            }
            Query::FindLeftPods { labels, uid } => {
                let named = |pod: &Value| labels.iter().any(|label| pod["metadata"]["labels"][label] == json!(uid));
                let left = self.live_pods().filter(|(_, pod)| named(pod));
                QueryAnswer::Left(left.filter_map(|(_, pod)| LeftPod::of(metadata(pod))).collect())
            }
            Query::ReadObject => {
                let object = self.api.get(key).ok_or(QueryFailure::Gone)?;
                QueryAnswer::Object(object.to_string().into())
            }
            Query::CountNodes { pods } => {
                let pods = self.pods_of(pods);
                let mut nodes: Vec<&str> =
                    pods.iter().filter_map(|key| self.api.get(key)?["spec"]["nodeName"].as_str()).collect();
                nodes.sort_unstable();
                nodes.dedup();
                QueryAnswer::Nodes(nodes.len())
            }
            Query::ListCheckpoints { .. } => QueryAnswer::Checkpoints(Ok(Vec::new())),
        })
    }

    /// Delivers an outcome to a process.
    pub(super) fn answer(&mut self, to: Process, id: TaskId, outcome: TaskOutcome) {
        let now = self.timestamp();
        let outcome = match self.planted {
            Some(planted) => planted.taken(outcome),
            None => outcome,
        };
        let Some(control) = &mut self.replicas[to.replica].control else { return };
        control.outcome(id, outcome, now);
        self.plan_step(to, self.now_ms);
    }

    /// Lets a candidate make its next step in the leader election.
    pub(super) fn elect(&mut self, who: Process) {
        let now = Duration::from_millis(self.now_ms);
        let outlives = self.planted == Some(Planted::OutlivedLease);
        let replica = &mut self.replicas[who.replica];
        let mut action = replica.candidate.next(now);
        if outlives && action == LeaseAction::StepDown {
            action = LeaseAction::Wait(TIMING.retry_period);
        }
        match action {
            LeaseAction::Wait(pause) => {
                let pause = u64::try_from(pause.as_millis()).unwrap_or(1_000).max(1);
                self.messages.add(self.now_ms + pause, Message::Elect(who));
            }
            LeaseAction::StepDown => {
                replica.candidate.step_down(now);
                self.messages.add(self.now_ms, Message::Elect(who));
            }
            action => {
                let at = self.now_ms + self.dice.millis(1, 20);
                let is_lost =
                    self.replicas[who.replica].is_cut(self.now_ms) || self.dice.per_mille(self.drawn.requests.lost);
                if is_lost {
                    let lost = LeaseAnswer::Lost;
                    let message = Message::LeaseAnswer { to: who, answer: lost, began_ms: self.now_ms };
                    self.messages.add(self.now_ms + LEASE_DEADLINE_MS, message);
                } else {
                    let answers = !self.dice.per_mille(self.drawn.requests.unanswered);
                    let request = Message::LeaseRequest { from: who, action, began_ms: self.now_ms, answers };
                    self.messages.add(at, request);
                }
            }
        }
        self.publish_lead(who, outlives);
    }

    /// Performs a request about the Lease that arrives at the API server.
    pub(super) fn lease_request(&mut self, from: Process, action: &LeaseAction, began_ms: u64, answers: bool) {
        let identity = format!("replica-{}-{}", from.replica, from.start);
        let answer = self.lease.perform(&identity, TIMING.lease_duration, action);
        let at = self.now_ms + self.dice.millis(1, 20);
        let (at, answer) = if answers && !self.replicas[from.replica].is_cut(at) {
            (at, answer)
        } else {
            (began_ms + LEASE_DEADLINE_MS, LeaseAnswer::Lost)
        };
        self.messages.add(at, Message::LeaseAnswer { to: from, answer, began_ms });
    }

    /// Delivers the answer to a request about the Lease.
    pub(super) fn lease_answer(&mut self, to: Process, answer: LeaseAnswer, began_ms: u64) {
        let (now, outlives) = (Duration::from_millis(self.now_ms), self.planted == Some(Planted::OutlivedLease));
        let candidate = &mut self.replicas[to.replica].candidate;
        match answer {
            LeaseAnswer::Read(record) => candidate.observe(record, now),
            LeaseAnswer::Written(record) => candidate.written(record, Duration::from_millis(began_ms)),
            LeaseAnswer::Conflict => candidate.failed(true, now),
            LeaseAnswer::Lost => candidate.failed(false, now),
        }
        self.publish_lead(to, outlives);
        self.messages.add(self.now_ms, Message::Elect(to));
    }

    /// Shows the candidate's leadership to the writer and the control loop.
    fn publish_lead(&mut self, who: Process, outlives: bool) {
        let replica = &mut self.replicas[who.replica];
        let end = |until: Duration| if outlives { u64::MAX } else { u64::try_from(until.as_millis()).unwrap_or(0) };
        let lead: Option<(Term, u64)> = replica.candidate.leading().map(|(term, until)| (term, end(until)));
        if replica.lead != lead {
            replica.lead = lead;
            self.plan_step(who, self.now_ms);
        }
    }
}

fn applied() -> WriteOutcome {
    WriteOutcome::Applied { resource_version: String::new() }
}

fn metadata(object: &Value) -> ObjectMeta {
    ObjectMeta::deserialize(&object["metadata"]).expect("metadata")
}

/// The outcome of a task whose answer does not arrive in time.
fn no_answer(task: &Task) -> TaskOutcome {
    match task.action {
        Action::Write(_) => WriteOutcome::Unknown("no answer".to_owned()).into(),
        Action::Query(_) => QueryFailure::Busy(1_000).into(),
    }
}

/// An outcome in a few words for the trace.
fn short(outcome: &TaskOutcome) -> String {
    match outcome {
        TaskOutcome::Answered(Ok(QueryAnswer::Object(_))) => "an object".to_owned(),
        TaskOutcome::Answered(Ok(QueryAnswer::Left(pods))) => format!("{} left", pods.len()),
        other => format!("{other:?}"),
    }
}
