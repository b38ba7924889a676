//! The part of control that the loop calls, as a trait: tests of the loop use a small implementation of their own.

use crate::metrics::{Gauges, Metrics};
use berth_control::event::Observation;
use berth_control::measure::{Labels, Measure};
use berth_control::write::{Outcome, Term, WriteId};
use berth_control::{Control, Step, measure};
use jiff::Timestamp;
use std::time::Duration;

/// Control, seen from the loop.
pub trait Brain: Send + 'static {
    /// Takes the time of day and the time by the monotonic clock for which the process has run, before anything else of a turn.
    fn tick(&mut self, now: Timestamp, steady: Duration);
    /// Takes what a watch saw, leader or not, so that the view stays warm.
    fn observe(&mut self, observation: Observation, now: Timestamp);
    /// Tells since when pods are counted, before the lists after a claim.
    fn count_pods_since(&mut self, since: Option<Timestamp>);
    /// `Some`: this process leads under that term and everything observed is newer than the claim; `None`: stop.
    fn lead(&mut self, term: Option<Term>);
    /// Takes the outcome of a write.
    fn outcome(&mut self, id: WriteId, outcome: Outcome, now: Timestamp);
    /// Decides.
    fn step(&mut self, now: Timestamp) -> Step;
    /// Moves counters and histogram observations since the last call into the registry. `took` is the time the last
    /// step took on the clock.
    fn record(&mut self, metrics: &Metrics, took: Duration);
    /// Gauges of this moment.
    fn gauges(&self) -> Gauges;
    /// Digest of the view, for comparison with one recomputed from a fresh list.
    fn recompute(&self) -> serde_json::Value;
    /// Usage of ClusterQueues and cohorts with the holders of quota, for people.
    fn held(&self) -> serde_json::Value;
}

impl Brain for Control {
    fn tick(&mut self, now: Timestamp, steady: Duration) {
        Self::tick(self, now, steady);
    }

    fn observe(&mut self, observation: Observation, now: Timestamp) {
        Self::observe(self, observation, now);
    }

    fn count_pods_since(&mut self, since: Option<Timestamp>) {
        Self::count_pods_since(self, since);
    }

    fn lead(&mut self, term: Option<Term>) {
        Self::lead(self, term);
    }

    fn outcome(&mut self, id: WriteId, outcome: Outcome, now: Timestamp) {
        Self::outcome(self, id, outcome, now);
    }

    fn step(&mut self, now: Timestamp) -> Step {
        Self::step(self, now)
    }

    fn record(&mut self, metrics: &Metrics, took: Duration) {
        let measures = self.drain_measures();
        // A walk over all series is for all that went together.
        for run in measures.chunk_by(|one, next| forgotten(one).is_some() && forgotten(next).is_some()) {
            let gone: Vec<_> = run.iter().filter_map(forgotten).map(borrowed).collect();
            if !gone.is_empty() {
                metrics.forget(&gone);
            }
            run.iter().for_each(|measure| record(metrics, measure, took));
        }
    }

    fn gauges(&self) -> Gauges {
        let mut gauges = Gauges::default();
        for measure::Gauge { name, labels, value } in self.figures().gauges {
            gauges.set(name, &borrowed(&labels), value);
        }
        gauges
    }

    fn recompute(&self) -> serde_json::Value {
        Self::recompute(self)
    }

    fn held(&self) -> serde_json::Value {
        Self::held(self)
    }
}

/// Counter of attempts; their duration is the step's, since control has no clock.
const ATTEMPTS: &str = "kueue_admission_attempts";

fn record(metrics: &Metrics, measure: &Measure, took: Duration) {
    match measure {
        Measure::Count { name, labels, by } => {
            metrics.count(name, &borrowed(labels), *by);
            if *name == ATTEMPTS {
                // Several cycles of one step share its time evenly.
                let each = took.as_secs_f64() / (*by).max(1) as f64;
                for _ in 0..*by {
                    metrics.observe("kueue_admission_attempt_duration_seconds", &borrowed(labels), each);
                }
            }
        }
        Measure::Forget { .. } => {}
        Measure::Observe { name, labels, millis } => {
            metrics.observe(name, &borrowed(labels), (*millis).max(0) as f64 / 1000.0);
        }
    }
}

fn forgotten(measure: &Measure) -> Option<&Labels> {
    if let Measure::Forget { labels } = measure { Some(labels) } else { None }
}

fn borrowed(labels: &Labels) -> Vec<(&str, &str)> {
    labels.iter().map(|(key, value)| (*key, value.as_str())).collect()
}
