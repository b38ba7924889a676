//! The judge of crate `invariants` in a simulation, which checks every revision.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use berth_control::write::{Kind, ObjectKey};
use berth_invariants::{Change, Judge, kinds};
use serde_json::Value;

use super::writers::Writers;
use crate::api_server::Revision;

/// Number of the last revisions that are kept, so that a list can show an older state.
const KEPT: usize = 40;

/// The judge, with the facts that it needs beside the objects.
#[derive(Debug)]
pub(super) struct Judging {
    judge: Judge,
    writers: Writers,
    past: VecDeque<Rc<Revision>>,
    revisions: u64,
    /// Time in milliseconds until which Berth may exceed its time bounds.
    troubled_until: u64,
    /// True if the judge checks time bounds now.
    counts: bool,
}

/// The judge's kind for a kind of control; `None` for kinds that the judge ignores.
fn judged(kind: Kind) -> Option<kinds::Kind> {
    Some(match kind {
        Kind::ClusterQueue => kinds::CLUSTER_QUEUE,
        Kind::Cohort => kinds::COHORT,
        Kind::LocalQueue => kinds::LOCAL_QUEUE,
        Kind::Workload => kinds::WORKLOAD,
        Kind::Job(_) if kind == Kind::JOB => kinds::JOB,
        Kind::Job(_) if kind == Kind::JOB_SET => kinds::JOBSET,
        Kind::TrainingJob => kinds::TRAINING_JOB,
        Kind::Pod | Kind::JobPod => kinds::POD,
        _ => return None,
    })
}

impl Judging {
    /// A judge before the first revision; an edit of a quota is in force after `in_force`.
    pub(super) fn new(in_force: Duration) -> Self {
        let mut judge = Judge::with_edits_in_force_after(in_force);
        judge.nobody_leads(Duration::ZERO);
        Self {
            judge,
            writers: Writers::default(),
            past: VecDeque::new(),
            revisions: 0,
            troubled_until: 0,
            counts: false,
        }
    }

    /// Number of revisions that were judged.
    pub(super) const fn revisions(&self) -> u64 {
        self.revisions
    }

    /// Judges a revision; the error names the broken invariant.
    pub(super) fn take(&mut self, revision: &Rc<Revision>, at: Duration) -> Result<(), String> {
        self.revisions += 1;
        if self.past.len() == KEPT {
            self.past.pop_front();
        }
        self.past.push_back(Rc::clone(revision));
        let Some(kind) = judged(revision.key.kind) else { return Ok(()) };
        let object = match kind {
            kinds::WORKLOAD | kinds::JOB | kinds::JOBSET => self.writers.attribute(revision),
            _ => revision.object.clone(),
        };
        let deleted = revision.gone;
        self.judge.take(&Change { revision: revision.version, kind, object, deleted, at, blind: false });
        let found = self.judge.found();
        found.first().map_or(Ok(()), |violation| Err(violation.to_string()))
    }

    /// Notes that a fault may delay Berth until a time.
    pub(super) fn trouble(&mut self, until_ms: u64) {
        self.troubled_until = self.troubled_until.max(until_ms);
    }

    /// Time in milliseconds up to which a fault may delay Berth.
    pub(super) const fn troubled_until(&self) -> u64 {
        self.troubled_until
    }

    /// Notes whether a replica leads: time bounds are checked while a replica leads and no fault is recent.
    pub(super) fn leads(&mut self, leads: bool, now_ms: u64) {
        let counts = leads && now_ms >= self.troubled_until;
        if counts == self.counts {
            return;
        }
        self.counts = counts;
        let now = Duration::from_millis(now_ms);
        if counts { self.judge.somebody_leads(now) } else { self.judge.nobody_leads(now) }
    }

    /// The judge's verdict about a state at rest.
    pub(super) fn verdict(&mut self, now: Duration) -> Result<(), String> {
        let found = self.judge.verdict(now);
        if let Some(violation) = found.first() {
            return Err(violation.to_string());
        }
        let unbalanced = self.judge.unbalanced();
        unbalanced.first().map_or(Ok(()), |(_, what)| Err(format!("Q3 broken at rest: {what}")))
    }

    /// Restores an older state of the objects of a kind, from before the kept revisions.
    pub(super) fn rewind(&self, kind: Kind, objects: &mut Vec<(ObjectKey, Value)>) {
        for revision in self.past.iter().rev().filter(|revision| revision.key.kind == kind) {
            objects.retain(|(key, _)| *key != revision.key);
            if let Some(before) = &revision.before {
                objects.push((revision.key.clone(), before.clone()));
            }
        }
        objects.sort_by(|a, b| a.0.cmp(&b.0));
    }
}
