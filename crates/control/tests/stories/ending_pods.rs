//! Pods that outlive their Job, where the Job is a part of a JobSet or TrainingJob and is made again at once. Pods that outlive their Job are charged to a
//! queue until the pods have ended.

use berth_control::write::{Kind, ObjectKey, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::jobsets::slices;
use crate::stories::kept_quota::name_of;
use crate::stories::one_queue;
use crate::stories::overruns::{both, counts, running, shown};
use crate::stories::random::{Dice, seeds};
use crate::stories::training::{started, training};

const HOLD: &str = "example.com/hold";

/// A JobSet or TrainingJob `a` that runs.
struct Run {
    cluster: Cluster,
    kind: Kind,
    /// The name of the first Job, which has two pods of one cpu each.
    job: &'static str,
    /// Cpus for which the JobSet or TrainingJob holds quota.
    held: i64,
    workload: String,
}

/// A running JobSet and a running TrainingJob, each in a ClusterQueue with `more` cpus beyond the job's reservation.
fn runs(more: i64) -> [Run; 2] {
    let mut set = one_queue(&(4 + more).to_string());
    set.job_sets_run = true;
    set.put(Kind::JOB_SET, slices());
    set.pass(9);
    let mut training = started(&(2 + more).to_string(), json!({}));
    training.pass(9);
    [(set, Kind::JOB_SET, "a-job-0", 4), (training, Kind::TrainingJob, "a-worker", 2)].map(
        |(cluster, kind, job, held)| {
            let begins = if kind == Kind::JOB_SET { "jobset-a-" } else { "trainingjob-a-" };
            let workload = name_of(&cluster, begins);
            assert_eq!(shown(&cluster, "cq"), both(&held.to_string()), "{:?}", cluster.writes);
            Run { cluster, kind, job, held, workload }
        },
    )
}

impl Run {
    fn job_key(&self) -> ObjectKey {
        Cluster::key(Kind::JOB, "team", self.job)
    }

    fn job_uid(&self) -> Value {
        self.cluster.job(self.job)["metadata"]["uid"].clone()
    }

    /// Creates pods of the first Job, which end slowly.
    fn pods(&mut self, names: &[&str]) -> Vec<ObjectKey> {
        let uid = self.cluster.objects()[&Cluster::key(self.kind, "team", "a")]["metadata"]["uid"].clone();
        let labels = if self.kind == Kind::JOB_SET {
            json!({"jobset.sigs.k8s.io/jobset-uid": uid, "kueue.x-k8s.io/podset": "job"})
        } else {
            json!({"berth.dev/training-job-uid": uid, "kueue.x-k8s.io/podset": "worker"})
        };
        let put = |name: &&str| self.cluster.put_pod_of(name, (self.job, &labels), &self.workload, "1");
        names.iter().map(put).collect()
    }

    fn end(&mut self, pods: &[ObjectKey]) {
        for pod in pods {
            self.cluster.mark_pod(pod, &json!({"finalizers": []}));
            self.cluster.delete(pod);
        }
        self.cluster.pass(7);
    }

    /// Asserts that the ClusterQueue is charged `beyond` cpus more than the job holds.
    fn is_charged(&self, beyond: i64) {
        let all = both(&(self.held + beyond).to_string());
        assert_eq!(shown(&self.cluster, "cq"), all, "{:?}: {:?}", self.kind, self.cluster.writes);
    }

    /// Another replica becomes the leader: if `restarts` is true, a new replica, and if not, the standby, which has observed all objects.
    fn changes_hands(&mut self, restarts: bool) {
        if restarts { self.cluster.restart() } else { self.cluster.fail_over() }
    }
}

/// A user deletes a Job, and the Job's controller makes the Job again at once, while the pods of the deleted Job end: the old and the new pods are charged. The
/// charge for the old pods does not depend on whether the watch of Jobs or of pods reports first, or on which replica leads.
#[test]
fn pods_of_deleted_part_are_charged_until_they_have_ended() {
    for (pods_first, restarts) in [(false, None), (true, None), (false, Some(true)), (true, Some(false))] {
        for mut run in runs(2) {
            run.cluster.stand_by();
            let pods = run.pods(&["x", "y"]);
            if pods_first {
                pods.iter().for_each(|pod| run.cluster.delete(pod));
            }
            run.cluster.pass(7);
            run.is_charged(0);
            let (key, before) = (run.job_key(), run.job_uid());
            run.cluster.delete(&key);
            if let Some(restarts) = restarts {
                run.changes_hands(restarts);
            }
            run.cluster.pass(7);
            assert_ne!(run.job_uid(), before, "it is made again: {:?}", run.cluster.writes);
            run.is_charged(2);
            run.cluster.put(Kind::JOB, job("next", "lq", "1", true));
            run.cluster.pass(7);
            assert!(!run.cluster.is("next", "Admitted"), "{:?}", run.cluster.writes);
            let asked = [Purpose::ReadPod, Purpose::CondemnPod, Purpose::DeletePod].map(|what| run.cluster.count(what));
            assert_eq!(asked, [0, 0, 0], "they end: {:?}", run.cluster.writes);
            run.end(&pods);
            assert!(run.cluster.is("next", "Admitted"), "{:?}", run.cluster.writes);
            run.is_charged(1);
        }
    }
}

/// Quota is free when the pods are gone, even the pods of a Job that was deleted earlier.
#[test]
fn quota_waits_for_pods_of_deleted_part() {
    for mut run in runs(0) {
        let pods = run.pods(&["x", "y"]);
        let key = run.job_key();
        run.cluster.delete(&key);
        run.cluster.pass(7);
        run.cluster.edit(Kind::Workload, "team", &run.workload, &json!({"spec": {"active": false}}));
        run.cluster.pass(30);
        assert!(run.cluster.workload_is(&run.workload, "QuotaReserved"), "{:?}: {:?}", run.kind, run.cluster.writes);
        run.end(&pods);
        run.cluster.pass(60);
        assert!(!run.cluster.workload_is(&run.workload, "QuotaReserved"), "{:?}: {:?}", run.kind, run.cluster.writes);
        assert_eq!(shown(&run.cluster, "cq"), both("0"), "{:?}: {:?}", run.kind, run.cluster.writes);
    }
}

/// Each deletion of a part leaves ending pods behind: Berth evicts the job when it has too many ending pods.
#[test]
fn part_deleted_again_and_again_evicts_its_job() {
    for mut run in runs(0) {
        let mut left = Vec::new();
        for names in [["a", "b"], ["c", "d"], ["e", "f"]] {
            left.extend(run.pods(&names));
            let key = run.job_key();
            run.cluster.delete(&key);
            run.cluster.pass(10);
        }
        run.is_charged(6);
        assert!(!run.cluster.workload_is(&run.workload, "Evicted"), "{:?}: {:?}", run.kind, run.cluster.writes);
        run.cluster.pass(70);
        let events = run.cluster.notices.iter().filter(|notice| notice.reason == "EvictedDueToPodsBeyondQuota");
        assert_eq!(events.count(), 1, "{:?}: {:?}", run.kind, run.cluster.writes);
        assert!(run.cluster.workload_is(&run.workload, "QuotaReserved"), "{:?}: {:?}", run.kind, run.cluster.writes);
        run.end(&left);
        run.cluster.pass(120);
        assert!(run.cluster.workload_is(&run.workload, "Admitted"), "{:?}: {:?}", run.kind, run.cluster.writes);
        run.is_charged(0);
    }
}

/// While a Job exists, its status counts its ending pods, for example if a controller deletes the pods before the Job.
#[test]
fn ending_pods_of_part_that_counts_them_are_charged_once() {
    for mut run in runs(4) {
        let pods = run.pods(&["x", "y"]);
        pods.iter().for_each(|pod| run.cluster.delete(pod));
        run.cluster.controller_sleeps = true;
        counts(&mut run.cluster, run.job, 2, 2);
        run.is_charged(2);
        run.cluster.restart();
        run.cluster.pass(7);
        run.is_charged(2);
        counts(&mut run.cluster, run.job, 2, 0);
        run.end(&pods);
        run.is_charged(0);
    }
}

/// A client enlarges a Job of a TrainingJob, and may also remove the owner reference of the Job. Berth deletes the enlarged Job after its pods, and charges the
/// Job to the queue until the deletion.
#[test]
fn enlarged_part_goes_after_its_pods() {
    for disowned in [false, true] {
        let [_, mut run] = runs(4);
        run.cluster.edit(Kind::JOB, "team", run.job, &json!({"metadata": {"finalizers": [HOLD]}}));
        run.cluster.pass(12);
        let pods = run.pods(&["w", "x", "y", "z"]);
        run.cluster.controller_sleeps = true;
        let grown = json!({"spec": {"parallelism": 4, "completions": 4}, "status": {"active": 4}});
        run.cluster.edit(Kind::JOB, "team", run.job, &grown);
        if disowned {
            run.cluster.edit(Kind::JOB, "team", run.job, &json!({"metadata": {"ownerReferences": null}}));
        }
        run.cluster.pass(2);
        let message = format!("{disowned}: {:?}", run.cluster.writes);
        assert_eq!(run.cluster.count(Purpose::StopTraining), 1, "{message}");
        let old = run.cluster.job(run.job);
        // The garbage collector deletes the pods of a Job before the Job if the Job is deleted in the foreground.
        assert_eq!(
            (&old["status"]["active"], old["metadata"]["deletionTimestamp"].is_string()),
            (&json!(0), true),
            "{message}"
        );
        pods.iter().for_each(|pod| run.cluster.delete(pod));
        if !disowned {
            counts(&mut run.cluster, run.job, 0, 4);
        }
        run.cluster.pass(7);
        run.is_charged(2);
        run.end(&pods);
        run.cluster.controller_sleeps = false;
        let before = run.job_uid();
        run.cluster.edit(Kind::JOB, "team", run.job, &json!({"metadata": {"finalizers": []}}));
        run.cluster.pass(15);
        assert_ne!(run.job_uid(), before, "{disowned}: {:?}", run.cluster.writes);
        run.is_charged(0);
    }
}

/// A job whose pods run beyond its quota is deleted, and another job with the same name is created: the old pods are charged until the pods have ended.
#[test]
fn pods_of_deleted_job_stay_charged_when_name_is_reused() {
    let mut cluster = running("5");
    counts(&mut cluster, "t", 2, 2);
    assert_eq!(shown(&cluster, "cq"), both("4"), "{:?}", cluster.writes);
    cluster.keep_pods_of(Kind::JOB, "t");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "t"));
    cluster.put(Kind::JOB, job("t", "lq", "2", true));
    cluster.pass(10);
    assert!(!cluster.is("t", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(shown(&cluster, "cq"), both("4"), "{:?}", cluster.writes);
    cluster.pods_left.clear();
    cluster.controller_sleeps = false;
    cluster.pass(20);
    assert!(cluster.is("t", "Admitted"), "{:?}", cluster.writes);
    assert_eq!(shown(&cluster, "cq"), both("2"), "{:?}", cluster.writes);
}

/// A TrainingJob or a JobSet is deleted while pods of a part that was deleted earlier still end: these pods stay charged until the pods have ended.
#[test]
fn pods_of_deleted_part_are_charged_after_job_deletion() {
    for named in [false, true] {
        for mut run in runs(4) {
            let pods = run.pods(&["x", "y"]);
            let (key, parent) = (run.job_key(), Cluster::key(run.kind, "team", "a"));
            run.cluster.delete(&key);
            run.cluster.pass(7);
            run.is_charged(2);
            run.cluster.keep_pods_of(run.kind, "a");
            run.cluster.delete(&parent);
            if named {
                let again = if run.kind == Kind::JOB_SET { slices() } else { training("a", json!({})) };
                run.cluster.put(run.kind, again);
            }
            run.cluster.pass(20);
            let own = if named && run.kind == Kind::TrainingJob { 2 } else { 0 };
            run.is_charged(2 + own);
            run.cluster.pods_left.clear();
            run.end(&pods);
            run.cluster.pass(30);
            let own = if named { run.held } else { 0 };
            assert_eq!(shown(&run.cluster, "cq"), both(&own.to_string()), "{:?}: {:?}", run.kind, run.cluster.writes);
        }
    }
}

impl Run {
    /// Cpus that the Workload holds, or, if more pods run, the cpus of the pods that Jobs count and of the pods that end after their Job is gone.
    fn used(&self) -> i64 {
        let all =
            |kind: Kind| self.cluster.objects().iter().filter(move |(key, _)| key.kind == kind).map(|(_, one)| one);
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let counted = |job: &Value| number(&job["status"]["active"]) + number(&job["status"]["terminating"]);
        let is_left = |pod: &&Value| {
            let job = &pod["metadata"]["ownerReferences"][0]["uid"];
            pod["metadata"]["deletionTimestamp"].is_string() && all(Kind::JOB).all(|one| one["metadata"]["uid"] != *job)
        };
        let left = i64::try_from(all(Kind::JobPod).filter(is_left).count()).unwrap();
        let holds = self.cluster.workload_is(&self.workload, "QuotaReserved");
        (all(Kind::JOB).map(counted).sum::<i64>() + left).max(if holds { self.held } else { 0 })
    }

    /// A random event: a change of a pod or Job, or another process becomes the leader.
    fn event(&mut self, dice: &mut Dice, number: usize) {
        let there = self.cluster.objects().contains_key(&self.job_key());
        let pods = self.cluster.objects().keys().filter(|key| key.kind == Kind::JobPod).cloned().collect::<Vec<_>>();
        match dice.below(9) {
            0 => self.changes_hands(true),
            1 => {
                self.changes_hands(false);
                self.cluster.stand_by();
            }
            2..=4 if there => {
                self.pods(&[format!("p{number}").as_str()]);
            }
            5 | 6 if there => self.cluster.delete(&self.job_key()),
            7 if !pods.is_empty() => self.end(&pods[..1 + dice.below(pods.len())]),
            _ if !pods.is_empty() => self.cluster.delete(&pods[dice.below(pods.len())]),
            _ => {}
        }
    }
}

/// Pods are charged to the queue once, whether a Job counts the pods or not, whatever happens to Jobs and pods, and whichever replica leads.
#[test]
fn queue_is_charged_once_for_pods_with_and_without_job() {
    let mut beyond = 0;
    for seed in seeds(40) {
        let mut dice = Dice::new(seed);
        let [set, training] = runs(20);
        let mut run = if dice.below(2) == 0 { set } else { training };
        run.cluster.stand_by();
        for number in 0..25 {
            run.event(&mut dice, number);
            let seconds = dice.seconds(2, 20);
            run.cluster.pass(seconds);
            let reported = run.cluster.control.world().figures("cq").unwrap().reservation[0].total.get() / 1000;
            let used = run.used();
            assert_eq!(reported, used, "seed {seed}, event {number}, {:?}: {:?}", run.kind, run.cluster.writes);
            beyond += usize::from(used > run.held);
        }
    }
    assert!(beyond > 50, "too tame: {beyond}");
}
