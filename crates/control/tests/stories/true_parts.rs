//! A Job runs under the quota of the JobSet that controls it only if it belongs to the JobSet; otherwise it needs quota of its own.

use berth_control::write::{EventType, Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{ATTEMPT, Cluster, PART, job, settings};
use crate::stories::jobsets::{jobset, part, slices, stopped};
use crate::stories::training::{cluster as training_cluster, training};
use crate::stories::{one_queue, with_queue};

/// A running Job that names a controller.
fn runs_below(cluster: &Cluster, name: &str, queue: bool, (kind, owner): (Kind, &str)) -> Value {
    let mut made = job(name, "lq", "1", false);
    if !queue {
        made["metadata"]["labels"] = json!({});
    }
    made["metadata"]["ownerReferences"] = cluster.controlled_by(kind, owner);
    made
}

fn is_suspended(cluster: &Cluster, name: &str) -> bool {
    cluster.job(name)["spec"]["suspend"] == json!(true)
}

#[test]
fn job_controlled_by_another_job_needs_its_own_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("tiny", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("tiny", "Admitted"));
    let child = runs_below(&cluster, "child", true, (Kind::JOB, "tiny"));
    cluster.put(Kind::JOB, child);
    cluster.pass(5);
    assert!(is_suspended(&cluster, "child") && !cluster.is("child", "QuotaReserved"), "{:?}", cluster.writes);
    cluster.complete("tiny");
    cluster.pass(5);
    assert!(cluster.is("child", "Admitted") && !is_suspended(&cluster, "child"), "{:?}", cluster.writes);
}

#[test]
fn jobs_controlling_themselves_or_each_other_wait_for_quota() {
    for cycle in [&["a"][..], &["a", "b"]] {
        let mut cluster = one_queue("1");
        cluster.put(Kind::JOB, job("first", "lq", "1", true));
        cluster.settle();
        for name in cycle {
            cluster.put(Kind::JOB, job(name, "lq", "1", true));
        }
        for (name, owner) in cycle.iter().zip(cycle.iter().rev()) {
            let owner = cluster.controlled_by(Kind::JOB, owner);
            cluster.edit(Kind::JOB, "team", name, &json!({"metadata": {"ownerReferences": owner}}));
        }
        cluster.pass(5);
        for name in cycle {
            cluster.edit(Kind::JOB, "team", name, &json!({"spec": {"suspend": false}}));
        }
        cluster.pass(5);
        assert!(cycle.iter().all(|name| is_suspended(&cluster, name)), "{:?}", cluster.writes);
        cluster.complete("first");
        cluster.pass(5);
        assert!(cluster.is("a", "Admitted"), "{:?}", cluster.writes);
    }
}

#[test]
fn job_set_controlling_itself_waits_for_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB_SET, slices());
    let owner = cluster.controlled_by(Kind::JOB_SET, "a");
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"metadata": {"ownerReferences": owner}}));
    cluster.pass(5);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
}

/// A ClusterQueue of `quota` cpus with a running JobSet of two Jobs of two pods each.
fn running(quota: &str) -> Cluster {
    let mut cluster = one_queue(quota);
    let mut suspended = slices();
    suspended["spec"]["suspend"] = json!(true);
    cluster.put(Kind::JOB_SET, suspended);
    starts(&mut cluster);
    cluster
}

/// Starts the JobSet: the JobSet controller reports that the JobSet is suspended, Berth resumes the JobSet, and the Jobs of the JobSet are made.
fn starts(cluster: &mut Cluster) {
    stopped(cluster);
    cluster.pass(5);
    assert_eq!(jobset(cluster)["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"conditions": []}}));
    part(cluster, "a-job-0");
    part(cluster, "a-job-1");
    cluster.pass(2);
}

/// The JobSet controller stops the Jobs of the JobSet.
fn stops(cluster: &mut Cluster) {
    let names: Vec<String> =
        cluster.objects().keys().filter(|key| key.kind == Kind::JOB).map(|key| key.name.clone()).collect();
    for name in names.iter().filter(|name| name.starts_with("a-job-")) {
        cluster.edit(Kind::JOB, "team", name, &json!({"spec": {"suspend": true}}));
    }
    stopped(cluster);
}

fn workload_of_set(cluster: &Cluster) -> &Value {
    let uid = &jobset(cluster)["metadata"]["uid"];
    let all = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object);
    all.into_iter().find(|workload| workload["metadata"]["ownerReferences"][0]["uid"] == *uid).unwrap()
}

fn condition(cluster: &Cluster, kind: &str) -> Value {
    let conditions = workload_of_set(cluster)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == json!(kind)).unwrap_or_default()
}

fn is(cluster: &Cluster, kind: &str) -> bool {
    condition(cluster, kind)["status"] == json!("True")
}

/// Messages of the JobSet's events about changed Jobs.
fn messages_of(cluster: &Cluster) -> Vec<&str> {
    let events =
        cluster.notices.iter().filter(|notice| notice.reason == "JobAltered" && notice.key.kind == Kind::JOB_SET);
    events.map(|notice| &*notice.message).collect()
}

#[test]
fn job_set_with_enlarged_job_is_evicted_with_all_jobs() {
    let more_cpus = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]});
    for (change, words) in [
        (json!({"parallelism": 50}), "Job a-job-0 wants 50 pods, where quota is held for 2"),
        (
            json!({"template": {"spec": more_cpus}}),
            "Job a-job-0 wants 3 of cpu for each pod, where quota is held for 1",
        ),
    ] {
        let mut cluster = running("4");
        assert!(is(&cluster, "Admitted") && !is_suspended(&cluster, "a-job-0"), "{:?}", cluster.writes);
        let writes = cluster.writes.len();
        cluster.edit(Kind::JOB, "team", "a-job-0", &json!({"spec": change}));
        cluster.pass(2);
        assert_eq!(condition(&cluster, "Evicted")["reason"], json!("JobAltered"), "{:?}", cluster.writes);
        assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true));
        assert!(
            messages_of(&cluster).len() == 1 && messages_of(&cluster)[0].starts_with(words),
            "{:?}",
            messages_of(&cluster)
        );
        let of_jobs = cluster.writes[writes..].iter().filter(|(_, key)| key.kind == Kind::JOB);
        assert_eq!(of_jobs.count(), 0, "its controller would start it again: {:?}", cluster.writes);
        stops(&mut cluster);
        cluster.pass(10);
        assert!(!is(&cluster, "QuotaReserved"), "{:?}", cluster.writes);
    }
}

#[test]
fn job_of_job_set_that_requests_less_runs_on() {
    let mut cluster = running("4");
    let fewer = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]});
    cluster.edit(Kind::JOB, "team", "a-job-0", &json!({"spec": {"parallelism": 1, "template": {"spec": fewer}}}));
    cluster.pass(30);
    assert!(!is(&cluster, "Evicted") && !is_suspended(&cluster, "a-job-0"), "{:?}", cluster.writes);
}

/// No quota is held for the foreign Job: the Job is no part of the JobSet, and has no quota of its own.
#[test]
fn foreign_job_naming_job_set_as_controller_evicts_job_set() {
    for name in ["other", "a-job-2", "a-job-00", "a-jobs-0"] {
        let mut cluster = running("10");
        let forged = runs_below(&cluster, name, false, (Kind::JOB_SET, "a"));
        cluster.put(Kind::JOB, forged);
        cluster.pass(2);
        assert_eq!(condition(&cluster, "Evicted")["reason"], json!("JobAltered"), "{name}: {:?}", cluster.writes);
        assert!(
            messages_of(&cluster)[0].starts_with(&format!("Job {name} names JobSet a as its controller")),
            "{name}"
        );
        stops(&mut cluster);
        cluster.pass(10);
        assert!(is_suspended(&cluster, name), "{name}: {:?}", cluster.writes);
        assert!(!is(&cluster, "QuotaReserved"), "{name}: {:?}", cluster.writes);
    }
}

#[test]
fn job_set_altered_in_each_of_five_runs_is_deactivated() {
    let mut cluster = running("4");
    for run in 1..=5 {
        cluster.edit(Kind::JOB, "team", "a-job-0", &json!({"spec": {"parallelism": 3}}));
        cluster.pass(2);
        assert_eq!(cluster.count(Purpose::Evict), run, "{:?}", cluster.writes);
        stops(&mut cluster);
        cluster.pass(10);
        assert!(!is(&cluster, "QuotaReserved"), "run {run}: {:?}", cluster.writes);
        if run < 5 {
            cluster.pass(600);
            starts(&mut cluster);
        }
    }
    assert_eq!(workload_of_set(&cluster)["spec"]["active"], json!(false), "{:?}", cluster.writes);
    let last = messages_of(&cluster).last().copied().unwrap_or_default().to_owned();
    assert!(last.ends_with("Given up after 5 tries, until spec.active of its Workload is true again"), "{last}");
}

#[test]
fn forged_replacement_of_job_set_job_is_deleted_on_stop() {
    let mut cluster = running("4");
    cluster.delete(&Cluster::key(Kind::JOB, "team", "a-job-1"));
    let mut forged = runs_below(&cluster, "a-job-1", false, (Kind::JOB_SET, "a"));
    forged["spec"]["parallelism"] = json!(9);
    forged["spec"]["completions"] = json!(9);
    cluster.put(Kind::JOB, forged);
    cluster.pass(2);
    assert_eq!(condition(&cluster, "Evicted")["reason"], json!("JobAltered"), "{:?}", cluster.writes);
    stops(&mut cluster);
    cluster.pass(10);
    assert!(!cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", "a-job-1")), "it would be started again");
}

/// The controller of a JobSet that has ended gets five seconds to stop the JobSet's Jobs. After that, Berth suspends the Jobs that still run.
#[test]
fn jobs_still_running_after_their_job_set_ended_are_suspended() {
    let mut cluster = running("4");
    let over = json!([{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done",
        "lastTransitionTime": cluster.now().to_string()}]);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"conditions": over}}));
    cluster.pass(3);
    assert!(!is_suspended(&cluster, "a-job-0"), "its controller stops it: {:?}", cluster.writes);
    cluster.pass(4);
    assert!(is_suspended(&cluster, "a-job-0") && is_suspended(&cluster, "a-job-1"), "{:?}", cluster.writes);
    assert!(is(&cluster, "Finished"), "{:?}", cluster.writes);
}

#[test]
fn job_naming_an_ended_job_set_as_controller_is_suspended() {
    let mut cluster = running("4");
    for name in ["a-job-0", "a-job-1"] {
        cluster.complete(name);
    }
    let over = json!([{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done",
        "lastTransitionTime": cluster.now().to_string()}]);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"conditions": over}}));
    cluster.pass(10);
    assert!(is(&cluster, "Finished"));
    let late = runs_below(&cluster, "late", true, (Kind::JOB_SET, "a"));
    cluster.put(Kind::JOB, late);
    cluster.pass(2);
    assert!(is_suspended(&cluster, "late"), "{:?}", cluster.writes);
}

/// A Job has the name of a role of a TrainingJob that has ended: after that end, the Job is queued like any other Job.
#[test]
fn job_left_by_ended_training_job_needs_its_own_quota() {
    let mut settings = settings();
    settings.manage_jobs_without_queue_name = true;
    let mut cluster = training_cluster("2");
    let mut all = Cluster::with(settings);
    std::mem::swap(&mut cluster, &mut all);
    for (key, object) in all.objects() {
        cluster.put(key.kind, object.clone());
    }
    cluster.put(Kind::TrainingJob, training("t", json!({})));
    cluster.pass(5);
    assert_eq!(cluster.phase("t"), "Running", "{:?}", cluster.writes);
    let held = json!({"metadata": {"finalizers": ["example.com/never"]}});
    cluster.edit(Kind::JOB, "team", "t-worker", &held);
    let writes = cluster.writes.len();
    cluster.edit(Kind::TrainingJob, "team", "t", &json!({"status": {"phase": "Succeeded"}}));
    cluster.pass(5);
    assert!(is_suspended(&cluster, "t-worker"), "{:?}", &cluster.writes[writes..]);
}

/// Creates a JobSet without a queue whose Jobs name a queue, and one running Job of the JobSet.
fn of_jobs_with_a_queue(cluster: &mut Cluster) {
    let mut set = slices();
    set["metadata"]["annotations"] = json!({});
    set["spec"]["replicatedJobs"][0]["template"]["metadata"] = json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    cluster.put(Kind::JOB_SET, set);
    let made = runs_below(cluster, "a-job-0", true, (Kind::JOB_SET, "a"));
    cluster.put(Kind::JOB, made);
}

/// Whether Berth wrote a job, or made a Workload for a job.
fn writes_to_jobs(cluster: &Cluster) -> bool {
    cluster.writes.iter().any(|(_, key)| [Kind::JOB, Kind::JOB_SET, Kind::Workload].contains(&key.kind))
}

fn misplaced(cluster: &Cluster) -> Vec<(EventType, Kind, &str)> {
    let events = cluster.notices.iter().filter(|notice| notice.reason == "QueueMisplaced");
    events.map(|notice| (notice.event_type, notice.key.kind, &*notice.message)).collect()
}

/// Jobs that name a queue run if their JobSet names none: the JobSet controller would start suspended Jobs again without end, so Berth only makes an event with
/// a warning.
#[test]
fn jobs_with_queue_below_queueless_job_set_run_with_warning() {
    let mut cluster = one_queue("1");
    of_jobs_with_a_queue(&mut cluster);
    cluster.pass(60);
    cluster.edit(Kind::JOB_SET, "team", "a", &json!({"status": {"restarts": 1}}));
    cluster.pass(60);
    assert!(!writes_to_jobs(&cluster), "{:?}", cluster.writes);
    let text = "spec.replicatedJobs[0].template.metadata.labels[kueue.x-k8s.io/queue-name] names queue \"lq\", where nobody \
                acts on it: it belongs in metadata.labels of the JobSet. Neither the JobSet nor its Jobs wait for quota";
    assert_eq!(misplaced(&cluster), [(EventType::Warning, Kind::JOB_SET, text)]);
}

#[test]
fn job_with_queue_in_annotation_gets_one_event_naming_label() {
    for suspended in [true, false] {
        let mut cluster = one_queue("1");
        let mut annotated = job("a", "lq", "1", suspended);
        annotated["metadata"]["annotations"] = annotated["metadata"]["labels"].take();
        cluster.put(Kind::JOB, annotated);
        cluster.pass(60);
        cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"labels": {"x": "y"}}}));
        cluster.pass(60);
        assert!(!writes_to_jobs(&cluster), "{:?}", cluster.writes);
        let text = "metadata.annotations[kueue.x-k8s.io/queue-name] names queue \"lq\", where nobody acts on it: it belongs in \
                    metadata.labels of the Job. The Job does not wait for quota";
        assert_eq!(misplaced(&cluster), [(EventType::Warning, Kind::JOB, text)]);
        cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}));
        cluster.pass(5);
        assert!(cluster.is("a", "Admitted") && !is_suspended(&cluster, "a"), "{:?}", cluster.writes);
    }
}

#[test]
fn jobs_with_queue_below_unmanaged_job_set_run_with_warning() {
    let mut settings = settings();
    settings.job_kinds = [Kind::JOB].into_iter().collect();
    let mut cluster = with_queue(Cluster::with(settings), "1");
    of_jobs_with_a_queue(&mut cluster);
    cluster.pass(60);
    cluster.edit(Kind::JOB, "team", "a-job-0", &json!({"status": {"ready": 1}}));
    cluster.pass(60);
    assert!(!writes_to_jobs(&cluster), "{:?}", cluster.writes);
    let text = "JobSet a, which makes this Job, is of a kind that is not managed: the Job runs without quota. Name \
                jobset.x-k8s.io/jobset in integrations.frameworks, and the queue in metadata.labels of the JobSet";
    let reported = misplaced(&cluster);
    assert!(reported.contains(&(EventType::Warning, Kind::JOB, text)) && reported.len() <= 2, "{reported:?}");
}

#[test]
fn job_falsely_claiming_queueless_job_set_needs_its_own_quota() {
    let mut cluster = one_queue("1");
    of_jobs_with_a_queue(&mut cluster);
    for name in ["a-job-2", "other"] {
        let forged = runs_below(&cluster, name, true, (Kind::JOB_SET, "a"));
        cluster.put(Kind::JOB, forged);
    }
    cluster.pass(5);
    let running = ["a-job-2", "other"].into_iter().filter(|name| !is_suspended(&cluster, name)).count();
    assert_eq!(running, 1, "there is quota for one: {:?}", cluster.writes);
}

/// The JobSet controller starts each Job that names a replicated job of its JobSet in a label, whatever the Job is called, and would start the Job again after
/// each stop by Berth. The Job runs with a warning whether Berth manages JobSets or not.
#[test]
fn job_moved_to_another_queueless_job_set_runs_with_warning() {
    for is_managed in [true, false] {
        let mut settings = settings();
        if !is_managed {
            settings.job_kinds = [Kind::JOB].into_iter().collect();
        }
        let mut cluster = with_queue(Cluster::with(settings), "1");
        cluster.job_sets_run = true;
        for (name, labels) in [("a", json!({})), ("b", json!({"kueue.x-k8s.io/queue-name": "lq"}))] {
            let mut set = slices();
            set["metadata"] = json!({"namespace": "team", "name": name});
            set["spec"]["replicatedJobs"][0]["template"]["metadata"] = json!({"labels": labels});
            cluster.put(Kind::JOB_SET, set);
        }
        cluster.pass(5);
        let owner = cluster.controlled_by(Kind::JOB_SET, "a");
        cluster.edit(Kind::JOB, "team", "b-job-0", &json!({"metadata": {"ownerReferences": owner}}));
        cluster.pass(60);
        assert!(!is_suspended(&cluster, "b-job-0") && !writes_to_jobs(&cluster), "{:?}", cluster.writes);
        let text = match is_managed {
            true => "JobSet a, which starts this Job, names no queue: the Job runs without quota",
            false => "JobSet a, which makes this Job, is of a kind that is not managed: the Job runs without quota",
        };
        let reported = misplaced(&cluster);
        assert!(reported.iter().any(|(_, kind, words)| *kind == Kind::JOB && words.starts_with(text)), "{reported:?}");
    }
}

/// A Job with quota of its own gets a JobSet without a queue as its controller. The Job runs on without quota if the JobSet's controller would start the Job
/// again, like a Job that names no queue.
#[test]
fn job_naming_part_of_queueless_job_set_frees_its_quota() {
    for (part, has_quota) in [("job", false), ("other", true)] {
        let mut cluster = one_queue("1");
        cluster.job_sets_run = true;
        let mut set = slices();
        set["metadata"]["annotations"] = json!({});
        cluster.put(Kind::JOB_SET, set);
        cluster.put(Kind::JOB, job("mine", "lq", "1", true));
        cluster.pass(5);
        assert!(cluster.is("mine", "Admitted"), "{:?}", cluster.writes);
        let owner = cluster.controlled_by(Kind::JOB_SET, "a");
        let marks = json!({"labels": {PART: part, ATTEMPT: "0"}, "ownerReferences": owner});
        cluster.edit(Kind::JOB, "team", "mine", &json!({"metadata": marks}));
        cluster.put(Kind::JOB, job("next", "lq", "1", true));
        cluster.pass(30);
        assert!(!is_suspended(&cluster, "mine"), "{part}: {:?}", cluster.writes);
        assert_eq!(cluster.is("next", "Admitted"), !has_quota, "{part}: {:?}", cluster.writes);
    }
}

/// A Job of a JobSet that runs by the queue of the JobSet: the JobSet's controller would start the evicted Job each time that Berth stops the Job, and the
/// Job's quota would never become free.
#[test]
fn evicted_job_of_running_job_set_evicts_the_job_set() {
    let mut cluster = one_queue("5");
    cluster.job_sets_run = true;
    cluster.put(Kind::JOB_SET, slices());
    cluster.put(Kind::JOB, job("mine", "lq", "1", true));
    cluster.pass(10);
    assert!(cluster.is("mine", "Admitted") && is(&cluster, "Admitted"), "{:?}", cluster.writes);
    let owner = cluster.controlled_by(Kind::JOB_SET, "a");
    let marks = json!({"labels": {PART: "job", ATTEMPT: "0"}, "ownerReferences": owner});
    cluster.edit(Kind::JOB, "team", "mine", &json!({"metadata": marks}));
    cluster.pass(5);
    assert!(cluster.is("mine", "Admitted") && is(&cluster, "Admitted"), "{:?}", cluster.writes);
    let workload = cluster.workload_of("mine").expect("a Workload")["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": false}}));
    cluster.pass(30);
    assert!(is_suspended(&cluster, "mine") && !cluster.is("mine", "QuotaReserved"), "{:?}", cluster.writes);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    let reported = messages_of(&cluster);
    assert!(reported.len() == 1 && reported[0].starts_with("Job mine has lost its own quota"), "{reported:?}");
    assert!(cluster.count(Purpose::SuspendJob) < 6, "{:?}", cluster.writes);
}

#[test]
fn job_admitted_before_its_job_set_appears_runs_without_quota() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a-job-0", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("a-job-0", "Admitted"));
    let mut set = slices();
    set["metadata"]["annotations"] = json!({});
    cluster.put(Kind::JOB_SET, set);
    let owner = cluster.controlled_by(Kind::JOB_SET, "a");
    cluster.edit(Kind::JOB, "team", "a-job-0", &json!({"metadata": {"ownerReferences": owner}}));
    cluster.pass(5);
    assert!(cluster.workload_of("a-job-0").is_none() && !is_suspended(&cluster, "a-job-0"), "{:?}", cluster.writes);
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("next", "Admitted"), "{:?}", cluster.writes);
}

#[test]
fn job_set_that_gets_its_queue_later_suspends_all_jobs() {
    let mut cluster = one_queue("1");
    of_jobs_with_a_queue(&mut cluster);
    cluster.pass(5);
    let queue = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}});
    cluster.edit(Kind::JOB_SET, "team", "a", &queue);
    cluster.pass(20);
    assert_eq!(jobset(&cluster)["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    assert!(is_suspended(&cluster, "a-job-0") && cluster.workload_of("a-job-0").is_none(), "{:?}", cluster.writes);
}
