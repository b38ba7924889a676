//! Elastic TrainingJobs: the jobs grow into idle quota, give up workers before all of their workers are preempted, and never have fewer workers than their
//! minimum, whatever the outcomes of the writes.

use berth_control::write::{Kind, Purpose, WriteOutcome};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, is, job, local_queue, reserved};
use crate::stories::faults::every_fault;
use crate::stories::training::training;

const MIN: i64 = 2;
const MAX: i64 = 4;

/// A ClusterQueue with six cpus in which jobs of a higher priority preempt.
pub fn cluster() -> Cluster {
    queue_on(Cluster::new())
}

fn queue_on(mut cluster: Cluster) -> Cluster {
    cluster.put(Kind::ResourceFlavor, flavor("spot", json!({"cloud": "spot"})));
    let mut queue = cluster_queue("cq", None, &[("spot", "6")]);
    queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster
}

/// A TrainingJob with two to four workers of one cpu each; `policy` is merged into the scale policy.
pub fn elastic(name: &str, policy: Value) -> Value {
    let mut scale = json!({"scaleUpCooldown": "10s", "scaleDownCooldown": "10s"});
    crate::stories::cluster::merge(&mut scale, &policy);
    training(
        name,
        json!({
            "resources": {"minReplicas": MIN, "maxReplicas": MAX},
            "elasticConfig": {"enabled": true, "minWorkers": MIN, "maxWorkers": MAX, "scalePolicy": scale},
        }),
    )
}

/// A ClusterQueue with priority classes in which the TrainingJob `a` of four workers was started.
pub fn started() -> Cluster {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::TrainingJob, elastic("a", json!({})));
    cluster.pass(3);
    cluster
}

/// A Job with the given number of cpus and the given priority.
pub fn other(name: &str, cpus: &str, priority: i64) -> Value {
    let mut other = job(name, "lq", cpus, true);
    other["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(format!("p{priority}"));
    other
}

pub fn with_priorities(mut cluster: Cluster) -> Cluster {
    for value in [1, 100] {
        cluster.set_class(&format!("p{value}"), value);
    }
    cluster
}

/// Checks of the invariants of elastic jobs in a simulated cluster.
pub trait Judged {
    /// Checks at any moment the invariants that the observer of the end-to-end tests checks.
    fn judge(&self, what: &str);

    /// Lets time pass, and checks the invariants after every second.
    fn pass_judged(&mut self, seconds: i64, what: &str);
}

impl Judged for Cluster {
    /// Checks at any moment the invariants that the observer of the end-to-end tests checks.
    fn judge(&self, what: &str) {
        let mut total = 0;
        for (key, object) in self.objects().iter().filter(|(key, _)| key.kind == Kind::Workload) {
            if is(object, "Finished") {
                continue;
            }
            let replaces = &object["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"];
            let older = replaces.as_str().map(|key| key.rsplit_once('/').unwrap().1);
            let older = older.and_then(|name| self.objects().get(&Self::key(Kind::Workload, "team", name)));
            let less = older.filter(|older| !is(older, "Finished")).map_or(0, reserved);
            let own = reserved(object);
            total += if own > 0 { own - less } else { 0 };
            assert!(own == 0 || own >= less, "{what}: {key} holds {own}, what it replaces {less}");
        }
        assert!(total <= 6, "{what}: {total} cpus reserved of 6");
        let trainings = self.objects().keys().filter(|key| key.kind == Kind::TrainingJob);
        for name in trainings.map(|key| key.name.clone()) {
            let ended = self.objects().get(&Self::key(Kind::JOB, "team", &format!("{name}-worker")));
            if ended.is_some_and(|job| is(job, "Complete")) {
                continue;
            }
            let workers = self.workers(&name);
            let granted = self.slices(&name).iter().map(|slice| slice.1).max().unwrap_or(0);
            assert!(workers <= granted, "{what}: {workers} workers, quota for {granted}");
            assert!(workers == 0 || (MIN..=MAX).contains(&workers), "{what}: {workers} workers");
        }
    }

    fn pass_judged(&mut self, seconds: i64, what: &str) {
        for _ in 0..seconds {
            self.pass(1);
            self.judge(what);
        }
    }
}

#[test]
fn elastic_job_grows_into_idle_quota_step_by_step() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    cluster.put(Kind::TrainingJob, elastic("a", json!({"scaleUpCooldown": "20s"})));
    cluster.pass_judged(30, "quota is in use");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (2, "Running"));
    assert_eq!(cluster.training_condition("a", "Elastic")["status"], "True");
    cluster.complete("first");
    cluster.pass_judged(8, "idle");
    assert_eq!(cluster.workers("a"), 3, "one step: {:?}", cluster.writes);
    assert_eq!(cluster.slices("a").len(), 1);
    let old = cluster.objects().values().find(|object| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["reason"] == "WorkloadSliceReplaced")
    });
    let old = old.expect("the older slice");
    assert_eq!(old["metadata"]["finalizers"], json!([]));
    cluster.pass_judged(5, "cool-down");
    assert_eq!(cluster.workers("a"), 3);
    cluster.pass_judged(25, "again");
    assert_eq!(cluster.workers("a"), 4);
    let writes = cluster.writes.len();
    cluster.pass_judged(120, "at its most");
    assert_eq!(cluster.workers("a"), 4);
    assert_eq!(cluster.writes.len(), writes, "{:?}", &cluster.writes[writes..]);
    assert_eq!((cluster.phase("a"), &cluster.training("a")["status"]["workers"]), ("Running", &json!("4/4")));
    cluster.complete("a-worker");
    cluster.pass(5);
    assert_eq!(cluster.phase("a"), "Succeeded");
    assert!(cluster.slices("a").is_empty());
}

#[test]
fn elastic_job_gives_up_workers_to_preemptor_and_regrows_later() {
    let mut cluster = started();
    assert_eq!(cluster.workers("a"), 4);
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(5, "a newcomer");
    assert_eq!(cluster.workers("a"), 2, "{:?}", cluster.writes);
    assert!(cluster.is("urgent", "Admitted"), "{:?}", cluster.condition("urgent", "QuotaReserved"));
    assert_eq!(cluster.phase("a"), "Running");
    assert_eq!(cluster.count(Purpose::Evict), 0);
    assert_eq!(cluster.training("a")["status"]["allocatedResources"]["cpu"], "2");
    cluster.complete("urgent");
    cluster.pass_judged(40, "idle again");
    assert_eq!(cluster.workers("a"), 4);
}

/// An elastic TrainingJob that saves checkpoints.
pub fn saving(name: &str) -> Value {
    let mut job = elastic(name, json!({}));
    job["spec"]["checkpoint"] = json!({"interval": "10m"});
    job
}

#[test]
fn elastic_job_gets_time_to_save_before_losing_workers() {
    // A bool that is true if the job saves a checkpoint on request, the seconds after which the surplus workers still run, and the seconds after which these
    // workers are gone.
    for (saves, there, gone) in [(true, 3, 6), (false, 28, 36)] {
        let mut cluster = with_priorities(cluster());
        cluster.put(Kind::TrainingJob, saving("a"));
        cluster.pass(3);
        cluster.put(Kind::JOB, other("urgent", "4", 100));
        cluster.pass_judged(there, "asked");
        assert_eq!(cluster.workers("a"), 4, "{:?}", cluster.writes);
        let (_, reported) = cluster.annotated_pods.first().cloned().expect("its pods were told");
        assert!(
            reported["berth.dev/save-reason"]
                .starts_with("ScalingDown: from 4 to 2 workers: a Workload of ClusterQueue cq "),
            "{reported:?}"
        );
        assert!(!reported.contains_key("berth.dev/stop-at"), "it does not stop: {reported:?}");
        let asked = cluster.training_condition("a", "CheckpointRequested");
        assert_eq!((&asked["status"], &asked["reason"]), (&json!("True"), &json!("ScalingDown")));
        assert!(asked["message"].as_str().unwrap().contains(&reported["berth.dev/save-by"]), "{asked}");
        if saves {
            crate::stories::checkpoints::save(&mut cluster, "a", 700);
        }
        cluster.pass_judged(gone - there, "workers go");
        assert_eq!(cluster.workers("a"), 2, "{:?}", cluster.writes);
        assert!(cluster.is("urgent", "Admitted"));
        assert_eq!(cluster.annotated_pods.len(), 1, "told once");
        let (reason, words) = match saves {
            true => ("CheckpointSaved", "; saved its checkpoint of step 700"),
            false => ("NoCheckpointInTime", "; saved no checkpoint after it was asked to"),
        };
        assert_eq!(cluster.training_condition("a", "CheckpointRequested")["reason"], reason);
        let scaled = cluster.notices.iter().find(|notice| notice.reason == "ScalingDown").unwrap();
        assert!(scaled.message.ends_with(words), "{}", scaled.message);
        assert_eq!(cluster.count(Purpose::Evict), 0);
    }
}

#[test]
fn elastic_job_with_fresh_checkpoint_or_unready_pods_shrinks_immediately() {
    for unready in [false, true] {
        let mut cluster = with_priorities(cluster());
        cluster.pods_stay_unready = unready;
        cluster.put(Kind::TrainingJob, saving("a"));
        cluster.pass(30);
        if !unready {
            crate::stories::checkpoints::save(&mut cluster, "a", 700);
            cluster.pass(50);
        }
        cluster.put(Kind::JOB, other("urgent", "4", 100));
        cluster.pass_judged(5, "not asked");
        assert_eq!((cluster.workers("a"), cluster.annotated_pods.len()), (2, 0), "{:?}", cluster.writes);
    }
}

#[test]
fn scale_down_requests_save_each_time_and_tolerates_failed_request() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::TrainingJob, saving("a"));
    cluster.pass(12);
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"elasticConfig": {"maxWorkers": 3}}}));
    cluster.pass_judged(15, "asked");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::AskToSave)), (4, 1));
    cluster.pass_judged(20, "its time is over");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (3, 3));
    // In the next scale-down, the API server is busy at first, and later refuses the request to save a checkpoint.
    assert_eq!(cluster.training_condition("a", "CheckpointRequested")["reason"], "NoCheckpointInTime");
    crate::stories::checkpoints::save(&mut cluster, "a", 900);
    cluster.pass(90);
    assert_eq!(cluster.training_condition("a", "CheckpointRequested")["reason"], "NoCheckpointInTime", "that is over");
    cluster.faults.push((Purpose::AskToSave, WriteOutcome::Busy(1_000), false));
    cluster.faults.push((Purpose::AskToSave, WriteOutcome::Refused("pods is forbidden".into()), false));
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"elasticConfig": {"maxWorkers": 2}}}));
    cluster.pass_judged(20, "refused");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::AskToSave)), (3, 3), "it is waited for all the same");
    cluster.pass_judged(25, "its time is over");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::AskToSave)), (2, 3), "{:?}", cluster.writes);
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn scale_down_completes_although_save_request_is_always_busy() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::TrainingJob, saving("a"));
    cluster.pass(3);
    for _ in 0..200 {
        cluster.faults.push((Purpose::AskToSave, WriteOutcome::Busy(1_000), false));
    }
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(40, "busy all the time");
    assert_eq!(cluster.workers("a"), 2, "{:?}", cluster.writes);
    assert!(cluster.is("urgent", "Admitted"));
}

#[test]
fn new_leader_repeats_save_request_and_completes_scale_down() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::TrainingJob, saving("a"));
    cluster.pass(3);
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(20, "asked");
    cluster.restart();
    cluster = with_priorities(cluster);
    cluster.pass_judged(25, "asked again");
    assert_eq!((cluster.workers("a"), cluster.count(Purpose::AskToSave)), (4, 2), "{:?}", cluster.writes);
    cluster.pass_judged(10, "its time is over");
    assert_eq!(cluster.workers("a"), 2);
    assert!(cluster.is("urgent", "Admitted"));
}

#[test]
fn elastic_job_without_enough_spare_workers_is_evicted_and_returns() {
    let mut cluster = started();
    cluster.put(Kind::JOB, other("urgent", "5", 100));
    cluster.pass_judged(10, "evicted");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (0, "Queued"));
    cluster.complete("urgent");
    cluster.pass_judged(10, "back");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"));
}

#[test]
fn quota_of_scale_down_is_freed_after_its_pods_end() {
    let mut cluster = started();
    cluster.keep_pods_of(Kind::TrainingJob, "a");
    cluster.put(Kind::JOB, other("urgent", "4", 100));
    cluster.pass_judged(10, "pods are left");
    assert_eq!(cluster.workers("a"), 2);
    assert_eq!(cluster.slices("a")[0].1, 4, "their quota is in use");
    assert!(!cluster.is("urgent", "Admitted"));
    // Another process becomes the leader in the middle of the scale-down.
    cluster.restart();
    cluster.pass_judged(10, "another leader");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 4));
    cluster.pods_left.clear();
    cluster.pass_judged(10, "pods are gone");
    assert!(cluster.is("urgent", "Admitted"));
    assert_eq!(cluster.slices("a")[0].1, 2);
}

#[test]
fn elastic_job_follows_lowered_maximum_step_by_step() {
    let mut cluster = started();
    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"elasticConfig": {"maxWorkers": 2}}}));
    cluster.pass_judged(9, "lowered");
    assert!((3..=4).contains(&cluster.workers("a")));
    cluster.pass_judged(30, "lowered");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2));
    assert_eq!(cluster.phase("a"), "Running");
}

#[test]
fn scale_up_without_ready_pods_is_undone_after_scheduling_timeout() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    let mut job = elastic("a", json!({"scaleUpStep": 2, "scaleUpCooldown": "20s"}));
    job["spec"]["schedulingConfig"]["schedulingTimeout"] = json!("15s");
    cluster.put(Kind::TrainingJob, job);
    cluster.pass_judged(5, "two");
    cluster.pods_stay_unready = true;
    cluster.complete("first");
    cluster.pass_judged(25, "grows");
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"));
    cluster.pass_judged(15, "too late");
    assert_eq!((cluster.workers("a"), cluster.slices("a")[0].1), (2, 2));
    assert_eq!((cluster.phase("a"), cluster.count(Purpose::Evict)), ("Running", 0));
}

#[test]
fn pending_job_gets_idle_quota_before_elastic_job_grows() {
    let mut cluster = with_priorities(cluster());
    cluster.put(Kind::JOB, other("first", "4", 1));
    cluster.pass(3);
    let mut job = elastic("a", json!({}));
    job["spec"]["schedulingConfig"]["priority"] = json!("p1");
    cluster.put(Kind::TrainingJob, job);
    cluster.pass(3);
    cluster.put(Kind::JOB, other("waits", "3", 1));
    cluster.pass(2);
    cluster.complete("first");
    cluster.pass_judged(60, "somebody waited");
    assert!(cluster.is("waits", "Admitted"));
    assert_eq!(cluster.workers("a"), 3, "what was left");
    // No quota is idle, so that no new workload slice is made.
    let slices = cluster.count(Purpose::CreateWorkload);
    cluster.pass_judged(60, "nothing idle");
    assert_eq!(cluster.count(Purpose::CreateWorkload), slices);
}

#[test]
fn elastic_job_ends_the_same_despite_failed_or_lost_writes() {
    let purposes = [
        Purpose::CreateWorkload,
        Purpose::ReserveQuota,
        Purpose::FinishWorkload,
        Purpose::LetFinishedGo,
        Purpose::ScaleTraining,
        Purpose::ProbeSurplus,
        Purpose::LowerCount,
        Purpose::TrainingStatus,
        Purpose::StartTraining,
    ];
    for (fault, what) in every_fault(&purposes) {
        let mut cluster = with_priorities(cluster());
        cluster.put(Kind::JOB, other("first", "4", 1));
        cluster.pass(3);
        cluster.put(Kind::TrainingJob, elastic("a", json!({"scaleUpStep": 2})));
        cluster.pass_judged(3, &what);
        // Each faulty outcome of a write is tried during a scale-up, and afterwards during a scale-down.
        cluster.faults.push(fault.clone());
        cluster.complete("first");
        cluster.pass_judged(90, &what);
        assert_eq!(cluster.workers("a"), 4, "{what}: {:?}", cluster.writes);
        cluster.faults.push(fault.clone());
        cluster.put(Kind::JOB, other("urgent", "4", 100));
        cluster.pass_judged(60, &what);
        assert_eq!(cluster.workers("a"), 2, "{what}: {:?}", cluster.writes);
        assert!(cluster.is("urgent", "Admitted"), "{what}: {:?}", cluster.writes);
        assert_eq!(cluster.phase("a"), "Running", "{what}");
        assert_eq!(cluster.slices("a").len(), 1, "{what}");
        cluster.faults.clear();
        cluster.complete("a-worker");
        cluster.pass_judged(30, &what);
        assert_eq!(cluster.phase("a"), "Succeeded", "{what}");
        assert!(cluster.slices("a").is_empty(), "{what}");
    }
}

#[test]
fn scale_up_completes_despite_new_leader_at_any_moment() {
    for moment in 1..40 {
        let mut cluster = with_priorities(cluster());
        cluster.put(Kind::JOB, other("first", "4", 1));
        cluster.pass(3);
        cluster.put(Kind::TrainingJob, elastic("a", json!({"scaleUpStep": 2})));
        cluster.pass(3);
        cluster.complete("first");
        // Another process becomes the leader after `moment` steps of control.
        for _ in 0..moment {
            let step = cluster.control.step(cluster.now());
            let wake = step.wake_at;
            let quiet = step.tasks.is_empty();
            cluster.take(step);
            if quiet {
                let next = wake.unwrap_or(cluster.now()).max(cluster.now());
                cluster.set_now(next.checked_add(jiff::SignedDuration::from_millis(50)).unwrap());
            }
        }
        cluster.judge("before");
        cluster.restart();
        cluster = with_priorities(cluster);
        cluster.pass_judged(60, &format!("moment {moment}"));
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (4, "Running"), "moment {moment}: {:?}", cluster.writes);
        assert_eq!(cluster.slices("a").len(), 1, "moment {moment}");
    }
}

#[test]
fn elastic_job_starts_only_at_full_size_without_partial_admission() {
    let mut settings = crate::stories::cluster::settings();
    settings.engine.partial_admission = false;
    let mut cluster = with_priorities(queue_on(Cluster::with(settings)));
    cluster.put(Kind::JOB, other("stands", "3", 1));
    cluster.settle();
    cluster.put(Kind::TrainingJob, elastic("t", json!({})));
    cluster.pass(60);
    assert_eq!(cluster.workers("t"), 0, "three cpus are free, and four are asked for");
    let condition = cluster.training_condition("t", "Elastic");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("PartialAdmissionOff")),
        "{condition}"
    );
    cluster.complete("stands");
    cluster.pass(120);
    assert_eq!(cluster.workers("t"), MAX);
}
