//! The interface of control for the control loop, as a trait, so that tests of the loop can use a small implementation.

use crate::metrics::{Gauges, Metrics};
use berth_control::event::Observation;
use berth_control::measure::{Labels, Measure};
use berth_control::write::{TaskId, TaskOutcome, Term};
use berth_control::{Control, Step, measure};
use jiff::Timestamp;
use std::time::Duration;

/// The controller (`berth-control`), as the control loop uses it.
pub trait Controller: Send + 'static {
    /// Sets control's time of day and the process's run time by the monotonic clock; the control loop calls `tick` at the beginning of each turn.
    fn tick(&mut self, now: Timestamp, steady: Duration);
    /// Passes an observation of a watch to control, also while the process does not lead, so that the view is current when the process begins to lead.
    fn observe(&mut self, observation: Observation, now: Timestamp);
    /// Sets the time since which pods are counted, before the lists that follow a claim of the Lease.
    fn count_pods_since(&mut self, since: Option<Timestamp>);
    /// Sets leadership: with `Some`, the process leads in this term and all observations are newer than the claim; with `None`, it does not lead.
    fn lead(&mut self, term: Option<Term>);
    /// Passes the outcome of a task (a write or a query) to control.
    fn outcome(&mut self, id: TaskId, outcome: TaskOutcome, now: Timestamp);
    /// Lets control decide, and returns the tasks (writes and queries) that control asks for.
    fn step(&mut self, now: Timestamp) -> Step;
    /// Adds control's counts and histogram values since the last call of `record` to the metrics registry. `took` is the duration of control's last step.
    fn record(&mut self, metrics: &Metrics, took: Duration);
    /// The current gauges.
    fn gauges(&self) -> Gauges;
    /// Digest of control's view, for a comparison with a view that is built from fresh lists.
    fn recompute(&self) -> serde_json::Value;
    /// Usage of ClusterQueues and cohorts with the holders of quota, for users.
    fn held(&self) -> serde_json::Value;
}

impl Controller for Control {
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

    fn outcome(&mut self, id: TaskId, outcome: TaskOutcome, now: Timestamp) {
        Self::outcome(self, id, outcome, now);
    }

    fn step(&mut self, now: Timestamp) -> Step {
        Self::step(self, now)
    }

    fn record(&mut self, metrics: &Metrics, took: Duration) {
        let measures = self.drain_measures();
        // For consecutive forgotten objects, one pass over all metric series removes the series of all these objects.
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

/// Counter of scheduling attempts. The duration of a scheduling attempt is the duration of control's step that made the attempt, because control has no clock.
const ATTEMPTS: &str = "kueue_admission_attempts";

fn record(metrics: &Metrics, measure: &Measure, took: Duration) {
    match measure {
        Measure::Count { name, labels, by } => {
            metrics.count(name, &borrowed(labels), *by);
            if *name == ATTEMPTS {
                // Several scheduling cycles in one step share the step's duration equally.
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
