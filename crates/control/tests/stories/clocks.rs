//! An administrator sets the wall clock while jobs run and wait: no job ends because of the new time, and no job gets more time.

use std::time::Duration;

use berth_control::write::Kind;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::one_queue;
use crate::stories::training::{cluster as training_cluster, training};
use crate::stories::training_figures::found;

const DAY: i64 = 86_400;

/// A cluster whose control reads a wall clock and a monotonic clock.
struct Clocks {
    cluster: Cluster,
    steady: i64,
}

impl Clocks {
    fn over(cluster: Cluster) -> Self {
        let mut clocks = Self { cluster, steady: 0 };
        clocks.tick();
        clocks
    }

    fn tick(&mut self) {
        let steady = Duration::from_secs(u64::try_from(self.steady).unwrap());
        self.cluster.control.tick(self.cluster.now(), steady);
    }

    /// Lets the wall clock and the monotonic clock advance by a number of seconds.
    fn pass(&mut self, seconds: i64) {
        self.cluster.pass(seconds);
        self.steady += seconds;
        self.tick();
    }

    /// Lets the wall clock advance at half the speed of the monotonic clock.
    fn crawl(&mut self, seconds: i64) {
        for _ in 0..seconds / 2 {
            self.cluster.pass(1);
            self.steady += 2;
            self.tick();
        }
    }

    fn jump(&mut self) {
        self.cluster.set_now(self.cluster.now().checked_add(SignedDuration::from_secs(DAY)).unwrap());
        self.tick();
    }

    fn is_admitted(&self) -> bool {
        self.cluster.is("a", "Admitted") && !self.cluster.is("a", "Evicted")
    }

    fn past(&self) -> i64 {
        let status = &self.cluster.workload_of("a").unwrap()["status"];
        status["accumulatedPastExecutionTimeSeconds"].as_i64().unwrap_or_default()
    }
}

/// A job that may run for `seconds`.
fn limited(seconds: &str) -> Value {
    let mut limited = job("a", "lq", "1", true);
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!(seconds);
    limited
}

#[test]
fn clock_set_forward_shortens_no_maximum_execution_time() {
    let mut clocks = Clocks::over(one_queue("1"));
    clocks.cluster.put(Kind::JOB, limited("600"));
    clocks.pass(20);
    clocks.jump();
    clocks.pass(500);
    assert!(clocks.is_admitted(), "{:?}", clocks.cluster.writes);
    clocks.pass(100);
    assert!(!clocks.is_admitted(), "it has run for ten minutes");
    let evicted = clocks.cluster.condition("a", "Evicted").unwrap();
    assert_eq!(evicted["reason"], json!("DeactivatedDueToMaximumExecutionTimeExceeded"), "{evicted}");
}

/// The wall clock is half an hour ahead, and advances slowly until the wall clock is right.
#[test]
fn clock_slewed_back_extends_no_maximum_execution_time() {
    let mut clocks = Clocks::over(one_queue("1"));
    clocks.cluster.put(Kind::JOB, limited("600"));
    clocks.pass(100);
    clocks.crawl(480);
    assert!(clocks.is_admitted(), "{:?}", clocks.cluster.writes);
    clocks.crawl(40);
    assert!(!clocks.is_admitted(), "it has run for more than ten minutes");
}

#[test]
fn accumulated_execution_time_excludes_jump_of_the_clock() {
    let mut clocks = Clocks::over(one_queue("1"));
    clocks.cluster.put(Kind::JOB, limited("600"));
    clocks.pass(20);
    clocks.jump();
    clocks.pass(30);
    clocks.cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    clocks.pass(10);
    let past = clocks.past();
    assert!((50..56).contains(&past), "{past}");
    clocks.cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    clocks.pass(540 - past);
    assert!(clocks.is_admitted(), "{:?}", clocks.cluster.writes);
    clocks.pass(100);
    assert!(!clocks.is_admitted());
}

/// The running time before control started is measured with the wall clock, because a new process has no other measure of that time.
#[test]
fn maximum_execution_time_counts_runtime_before_control_restart() {
    let mut clocks = Clocks::over(one_queue("1"));
    clocks.cluster.put(Kind::JOB, limited("600"));
    clocks.pass(300);
    clocks.cluster.restart();
    clocks.steady = 0;
    clocks.tick();
    clocks.pass(20);
    clocks.jump();
    clocks.pass(200);
    assert!(clocks.is_admitted(), "{:?}", clocks.cluster.writes);
    clocks.pass(100);
    assert!(!clocks.is_admitted());
}

#[test]
fn clock_set_forward_shortens_no_pods_ready_timeout() {
    let mut clocks = Clocks::over(one_queue("1"));
    clocks.cluster.pods_stay_unready = true;
    clocks.cluster.put(Kind::JOB, job("a", "lq", "1", true));
    clocks.pass(20);
    clocks.jump();
    clocks.pass(1_700);
    assert!(clocks.is_admitted(), "{:?}", clocks.cluster.writes);
    clocks.pass(120);
    assert!(!clocks.is_admitted(), "half an hour is over");
}

#[test]
fn clock_set_forward_shortens_no_training_job_max_wait_time() {
    let mut clocks = Clocks::over(training_cluster("1"));
    clocks.cluster.put(Kind::TrainingJob, training("a", json!({"schedulingConfig": {"maxWaitTime": "1m"}})));
    clocks.pass(5);
    clocks.jump();
    clocks.pass(45);
    assert_eq!(clocks.cluster.phase("a"), "Queued", "{:?}", clocks.cluster.writes);
    clocks.pass(20);
    assert_eq!(clocks.cluster.phase("a"), "Failed", "it has waited for a minute");
}

#[test]
fn finished_workload_is_retained_in_full_despite_clock_jump() {
    let mut settings = crate::stories::cluster::settings();
    settings.retain_finished_ms = Some(60_000);
    let mut clocks = Clocks::over(crate::stories::with_queue(Cluster::with(settings), "1"));
    clocks.cluster.put(Kind::JOB, job("a", "lq", "1", true));
    clocks.pass(5);
    clocks.cluster.complete("a");
    clocks.pass(5);
    clocks.jump();
    clocks.pass(30);
    assert!(clocks.cluster.is("a", "Finished"), "{:?}", clocks.cluster.writes);
    clocks.pass(60);
    assert!(clocks.cluster.workload_of("a").is_none());
}

#[test]
fn admission_wait_metric_excludes_jump_of_the_clock() {
    let mut clocks = Clocks::over(one_queue("1"));
    clocks.cluster.put(Kind::JOB, job("first", "lq", "1", true));
    clocks.pass(2);
    clocks.cluster.put(Kind::JOB, job("a", "lq", "1", true));
    clocks.pass(20);
    clocks.jump();
    clocks.pass(20);
    drop(clocks.cluster.control.drain_measures());
    clocks.cluster.complete("first");
    clocks.pass(5);
    assert!(clocks.is_admitted());
    let measures = clocks.cluster.control.drain_measures();
    let waited = found(&measures, "kueue_admission_wait_time_seconds");
    assert!(waited.len() == 1 && (39..50).contains(&waited[0].1), "{waited:?}");
}
