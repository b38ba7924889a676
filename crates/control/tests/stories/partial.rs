//! Jobs that accept fewer pods (partial admission): such a Job runs with as many pods as there is quota for, and whenever the Job stops, it has the number of
//! pods of its manifest again.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::one_queue;

const LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";
const FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// A Job of six pods of one cpu each that accepts `least` pods.
fn wide(name: &str, least: &str) -> Value {
    let mut object = job(name, "lq", "1", true);
    object["metadata"]["annotations"] = json!({LEAST: least});
    object["spec"]["parallelism"] = json!(6);
    object["spec"]["completions"] = json!(6);
    object
}

/// Three values of a Job: true if the Job is suspended, its parallelism, and its completions.
fn stands(cluster: &Cluster, name: &str) -> (bool, i64, i64) {
    let spec = &cluster.job(name)["spec"];
    let number = |field: &str| spec[field].as_i64().unwrap();
    (spec["suspend"] == json!(true), number("parallelism"), number("completions"))
}

/// The number of pods and the cpus that were assigned to a job.
fn given(cluster: &Cluster, name: &str) -> (Value, Value) {
    let set = &cluster.workload_of(name).unwrap()["status"]["admission"]["podSetAssignments"][0];
    (set["count"].clone(), set["resourceUsage"]["cpu"].clone())
}

fn activate(cluster: &mut Cluster, name: &str, active: bool) {
    let workload = cluster.workload_of(name).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": active}}));
    cluster.pass(20);
}

fn reserved(cluster: &Cluster) -> Value {
    let status = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"];
    status["flavorsReservation"][0]["resources"][0]["total"].clone()
}

#[test]
fn partially_admitted_job_gets_its_parallelism_back_when_stopped() {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB, job("holder", "lq", "1", true));
    cluster.settle();
    cluster.put(Kind::JOB, wide("picky", "4"));
    cluster.pass(2);
    cluster.put(Kind::JOB, wide("a", "2"));
    cluster.pass(5);
    assert!(!cluster.is("picky", "QuotaReserved"), "three are fewer than four");
    assert_eq!(cluster.workload_of("a").unwrap()["spec"]["podSets"][0]["minCount"], json!(2));
    assert_eq!(given(&cluster, "a"), (json!(3), json!("3")));
    assert_eq!(stands(&cluster, "a"), (false, 3, 6), "only an indexed Job may change its completions");
    assert_eq!(reserved(&cluster), json!("4"));
    let first = cluster.workload_of("a").unwrap()["metadata"]["uid"].clone();

    activate(&mut cluster, "a", false);
    assert_eq!(stands(&cluster, "a"), (true, 6, 6), "stopped, it is as its user wrote it");
    assert!(!cluster.is("a", "QuotaReserved"));
    assert_eq!(reserved(&cluster), json!("1"));
    cluster.complete("holder");
    cluster.pass(5);
    // All four cpus are free, and the older job `picky` accepts four pods.
    assert_eq!((given(&cluster, "picky"), stands(&cluster, "picky")), ((json!(4), json!("4")), (false, 4, 6)));
    activate(&mut cluster, "a", true);
    assert!(!cluster.is("a", "QuotaReserved"));
    cluster.complete("picky");
    cluster.pass(5);
    assert_eq!((given(&cluster, "a"), stands(&cluster, "a")), ((json!(4), json!("4")), (false, 4, 6)));
    assert_eq!(cluster.workload_of("a").unwrap()["metadata"]["uid"], first, "one Workload for all of it");
    cluster.complete("a");
    cluster.pass(10);
    assert!(cluster.is("a", "Finished"));
    assert_eq!(reserved(&cluster), json!("0"));
}

#[test]
fn parallelism_above_completions_is_restored_after_partial_admission() {
    let mut cluster = one_queue("4");
    let mut object = wide("a", "3");
    object["spec"]["parallelism"] = json!(10);
    cluster.put(Kind::JOB, object);
    cluster.pass(5);
    assert_eq!((given(&cluster, "a"), stands(&cluster, "a")), ((json!(4), json!("4")), (false, 4, 6)));
    // A job that a user suspends runs on with the pods that were assigned to the job.
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"suspend": true}}));
    cluster.pass(20);
    assert_eq!(stands(&cluster, "a"), (false, 4, 6), "{:?}", cluster.writes);
    activate(&mut cluster, "a", false);
    assert_eq!(stands(&cluster, "a"), (true, 10, 6), "{:?}", cluster.writes);
    assert_eq!(cluster.job("a")["metadata"]["annotations"].get("berth.dev/own-parallelism"), None);
}

/// An Indexed Job of ten indexes of one cpu each, which runs ten pods at once if there is quota, and accepts three pods.
fn ten(follows: bool) -> Value {
    let mut object = wide("a", "3");
    object["spec"]["parallelism"] = json!(10);
    object["spec"]["completions"] = json!(10);
    object["spec"]["completionMode"] = json!("Indexed");
    object["metadata"]["annotations"][FOLLOW] = json!(follows.to_string());
    object
}

/// Reports that the indexes `completed` of the Job have ended, and that `active` pods run.
fn end_indexes(cluster: &mut Cluster, completed: &str, active: i32) {
    let status = json!({"status": {"completedIndexes": completed, "active": active, "ready": active}});
    cluster.edit(Kind::JOB, "team", "a", &status);
    cluster.pass(10);
}

fn over(cluster: &Cluster) -> &Value {
    &cluster.workload_of("a").unwrap()["status"]["reclaimablePods"][0]["count"]
}

#[test]
fn partially_admitted_job_releases_quota_of_ended_pods() {
    for (follows, completed) in [(false, "0-8"), (true, "0-3")] {
        let mut cluster = one_queue("5");
        cluster.put(Kind::JOB, ten(follows));
        cluster.pass(5);
        assert_eq!(stands(&cluster, "a"), (false, 5, if follows { 5 } else { 10 }));
        cluster.put(Kind::JOB, job("next", "lq", "4", true));
        cluster.pass(5);
        assert!(!cluster.is("next", "QuotaReserved"));
        end_indexes(&mut cluster, completed, 1);
        assert_eq!(over(&cluster), &json!(9), "follows: {follows}: one is left");
        assert!(cluster.is("next", "Admitted"), "follows: {follows}: {:?}", cluster.writes);
        assert_eq!(reserved(&cluster), json!("5"));
    }
}

#[test]
fn partially_admitted_job_releases_nothing_while_all_its_pods_run() {
    let mut cluster = one_queue("5");
    cluster.put(Kind::JOB, ten(false));
    cluster.pass(5);
    end_indexes(&mut cluster, "0-4", 5);
    assert_eq!((over(&cluster), reserved(&cluster)), (&Value::Null, json!("5")), "five are left, and run");
    end_indexes(&mut cluster, "0-5", 4);
    assert_eq!((over(&cluster), reserved(&cluster)), (&json!(6), json!("4")));
}

#[test]
fn stopped_job_with_eight_remaining_pods_requests_quota_for_eight() {
    let mut cluster = one_queue("5");
    cluster.put(Kind::JOB, ten(false));
    cluster.pass(5);
    end_indexes(&mut cluster, "0-1", 5);
    activate(&mut cluster, "a", false);
    assert_eq!((over(&cluster), stands(&cluster, "a")), (&json!(2), (true, 10, 10)), "{:?}", cluster.writes);
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [
        {"name": "cpu", "nominalQuota": "20"}]}]}]);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"resourceGroups": quota}}));
    activate(&mut cluster, "a", true);
    assert_eq!((given(&cluster, "a"), reserved(&cluster)), ((json!(8), json!("8")), json!("8")));
    assert_eq!(stands(&cluster, "a"), (false, 8, 10), "{:?}", cluster.writes);
    end_indexes(&mut cluster, "0-2", 7);
    assert_eq!((over(&cluster), reserved(&cluster)), (&json!(3), json!("7")));
}

#[test]
fn indexed_job_completions_follow_parallelism_only_when_annotated() {
    for follows in [true, false] {
        let mut cluster = one_queue("4");
        let mut object = wide("a", "2");
        object["spec"]["completionMode"] = json!("Indexed");
        object["metadata"]["annotations"][FOLLOW] = json!(follows.to_string());
        cluster.put(Kind::JOB, object);
        cluster.pass(5);
        assert_eq!(stands(&cluster, "a"), (false, 4, if follows { 4 } else { 6 }));
        activate(&mut cluster, "a", false);
        assert_eq!(stands(&cluster, "a"), (true, 6, 6), "follows: {follows}");
    }
}

#[test]
fn removed_min_parallelism_stops_partial_job_and_restores_its_parallelism() {
    for follows in [true, false] {
        let mut cluster = one_queue("4");
        let mut object = wide("a", "2");
        object["spec"]["completionMode"] = json!("Indexed");
        object["metadata"]["annotations"][FOLLOW] = json!(follows.to_string());
        cluster.put(Kind::JOB, object);
        cluster.pass(5);
        assert_eq!(stands(&cluster, "a"), (false, 4, if follows { 4 } else { 6 }));
        cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"annotations": {LEAST: null, FOLLOW: null}}}));
        cluster.pass(20);
        assert_eq!(stands(&cluster, "a"), (true, 6, 6), "follows: {follows}: {:?}", cluster.writes);
        let set = &cluster.workload_of("a").unwrap()["spec"]["podSets"][0];
        assert_eq!((&set["count"], &set["minCount"]), (&json!(6), &Value::Null), "it waits for all");
        assert!(!cluster.is("a", "QuotaReserved"));
    }
}

#[test]
fn waiting_job_edited_below_its_min_parallelism_does_not_start() {
    let mut cluster = one_queue("6");
    cluster.put(Kind::JOB, job("holder", "lq", "5", true));
    cluster.settle();
    cluster.put(Kind::JOB, wide("a", "2"));
    cluster.pass(5);
    assert!(cluster.workload_of("a").is_some() && !cluster.is("a", "QuotaReserved"));
    // The webhook accepts a parallelism below the minimum, as Kueue's webhook does.
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"parallelism": 1}}));
    cluster.pass(5);
    cluster.complete("holder");
    cluster.pass(20);
    assert_eq!(stands(&cluster, "a"), (true, 1, 6), "{:?}", cluster.writes);
    assert!(cluster.workload_of("a").is_none(), "{:?}", cluster.writes);
    let messages: Vec<&str> = cluster.notices.iter().map(|notice| notice.message.as_str()).collect();
    let problem = format!("annotation {LEAST}: \"2\" is not a number from 1 to 1");
    assert!(messages.iter().any(|text| text.contains(&problem)), "{messages:?}");
    cluster.edit(Kind::JOB, "team", "a", &json!({"metadata": {"annotations": {LEAST: null}}}));
    cluster.pass(20);
    assert_eq!(stands(&cluster, "a"), (false, 1, 6), "{:?}", cluster.writes);
}

#[test]
fn job_is_not_partially_admitted_with_gate_off() {
    let mut settings = crate::stories::cluster::settings();
    settings.engine.partial_admission = false;
    let mut cluster = crate::stories::with_queue(Cluster::with(settings), "4");
    cluster.put(Kind::JOB, wide("a", "2"));
    cluster.pass(5);
    assert!(!cluster.is("a", "QuotaReserved"));
    assert_eq!(stands(&cluster, "a"), (true, 6, 6));
}
