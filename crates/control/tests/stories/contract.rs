//! Behaviour, other than the order of admissions, on which tools and users of Kueue rely: prebuilt Workloads, priorities, deleted queues, and the texts of
//! conditions and events.

use berth_control::event::{Change, Observation};
use berth_control::write::{Kind, Purpose, Term};
use serde_json::{Value, json};

use crate::stories::checks::{answer, checked};
use crate::stories::cluster::{Cluster, job, local_queue, made_before};
use crate::stories::one_queue;

/// A job `guest` that names the prebuilt Workload `before`.
fn guest(cpus: &str) -> Value {
    let mut guest = job("guest", "lq", cpus, true);
    guest["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
    guest
}

fn end_of(cluster: &Cluster, workload: &str) -> Value {
    let conditions = &cluster.objects()[&Cluster::key(Kind::Workload, "team", workload)]["status"]["conditions"];
    let end = conditions.as_array().into_iter().flatten().find(|one| one["type"] == "Finished");
    end.cloned().unwrap_or_default()
}

#[test]
fn prebuilt_workload_smaller_than_its_job_ends_out_of_sync() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::Workload, made_before(&guest("1")["spec"]["template"]));
    cluster.put(Kind::JOB, guest("50"));
    cluster.pass(10);
    assert_eq!(cluster.job("guest")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    let end = end_of(&cluster, "before");
    assert_eq!(end["reason"], json!("OutOfSync"));
    assert_eq!(end["message"], json!("The prebuilt workload is out of sync with its user job"));
    assert!(cluster.notices.iter().all(|notice| notice.reason != "Started"));
}

#[test]
fn workload_ended_out_of_sync_gives_planned_quota_back() {
    let mut cluster = one_queue("1");
    // Control decides about the job before the Workload, because the job exists first: control ends the Workload in the step after the step that plans the
    // Workload's admission.
    cluster.put(Kind::JOB, guest("50"));
    cluster.pass(1);
    cluster.put(Kind::Workload, made_before(&guest("1")["spec"]["template"]));
    cluster.pass(10);
    assert_eq!(end_of(&cluster, "before")["reason"], json!("OutOfSync"), "{:?}", cluster.writes);
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("next", "Admitted"), "its quota is free: {:?}", cluster.writes);
}

#[test]
fn job_that_outgrows_its_prebuilt_workload_stops_and_frees_quota() {
    let mut cluster = one_queue("1");
    let mut template = guest("1")["spec"]["template"].clone();
    // The API server sets the default of `terminationMessagePath` in a Job, and not in the pod template of a Workload.
    let mut filled = guest("1");
    filled["spec"]["completions"] = json!(5);
    filled["spec"]["parallelism"] = json!(1);
    filled["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
    template["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    cluster.put(Kind::Workload, made_before(&template));
    cluster.put(Kind::JOB, filled);
    cluster.pass(10);
    assert_eq!(cluster.job("guest")["spec"]["suspend"], json!(false), "{:?}", cluster.writes);
    cluster.edit(Kind::JOB, "team", "guest", &json!({"spec": {"parallelism": 5}}));
    cluster.pass(20);
    assert_eq!(cluster.job("guest")["spec"]["suspend"], json!(true), "{:?}", cluster.writes);
    assert_eq!(end_of(&cluster, "before")["reason"], json!("OutOfSync"));
    cluster.put(Kind::JOB, job("next", "lq", "1", true));
    cluster.pass(5);
    assert!(cluster.is("next", "Admitted"), "its quota is free");
}

fn priority(cluster: &Cluster, job: &str) -> Value {
    cluster.workload_of(job).unwrap()["spec"]["priority"].clone()
}

#[test]
fn edited_workload_priority_stays_until_its_class_changes_value() {
    let mut cluster = one_queue("2");
    cluster.set_class("low", 10);
    let mut named = job("named", "lq", "1", true);
    named["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
    cluster.put(Kind::JOB, named);
    cluster.put(Kind::JOB, job("plain", "lq", "1", true));
    cluster.pass(5);
    for job in ["named", "plain"] {
        let workload = cluster.workload_of(job).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"priority": 500}}));
    }
    cluster.pass(5);
    assert_eq!((priority(&cluster, "named"), priority(&cluster, "plain")), (json!(500), json!(500)));
    cluster.set_class("low", 10);
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(500), "the same value again");
    cluster.set_class("low", 20);
    cluster.pass(5);
    assert_eq!((priority(&cluster, "named"), priority(&cluster, "plain")), (json!(20), json!(500)));
    let workload = cluster.workload_of("named").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"priority": 300}}));
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(300), "edited again");
}

/// As in Kueue, the Workloads of a priority class get the value of the class when the class is created again, and when a new leader starts.
#[test]
fn recreated_priority_class_or_new_leader_resets_workload_priority() {
    let mut cluster = one_queue("1");
    cluster.set_class("low", 10);
    let mut named = job("named", "lq", "1", true);
    named["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
    cluster.put(Kind::JOB, named);
    cluster.pass(5);
    let gone = json!({"metadata": {"name": "low"}, "value": 10});
    let gone = Observation::WorkloadPriorityClass(Change::Delete(serde_json::from_value(gone).unwrap()));
    cluster.control.observe(gone, cluster.now());
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(10), "there is no other value");
    cluster.set_class("low", 20);
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(20), "made anew with another value");
    let workload = cluster.workload_of("named").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"priority": 500}}));
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(500), "edited");
    cluster.control.lead(None);
    cluster.control.lead(Some(Term(2)));
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(20), "who leads now has not seen which came first");
    cluster.restart();
    cluster.pass(5);
    cluster.set_class("low", 30);
    cluster.pass(5);
    assert_eq!(priority(&cluster, "named"), json!(30), "heard of after the Workload");
}

#[test]
fn workload_with_quota_and_no_priority_class_never_gets_one() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    let before = cluster.count(Purpose::UpdateWorkload);
    // A default PriorityClass is created, and later the job gets a WorkloadPriorityClass.
    let default = json!({"metadata": {"name": "all"}, "value": 7, "globalDefault": true});
    let default = Observation::PriorityClass(Change::Apply(serde_json::from_value(default).unwrap()));
    cluster.control.observe(default, cluster.now());
    cluster.set_class("low", 10);
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "low"}}});
    cluster.edit(Kind::JOB, "team", "a", &label);
    cluster.pass(5);
    assert_eq!(cluster.count(Purpose::UpdateWorkload), before, "the API server would refuse that");
    assert!(cluster.is("a", "Admitted"));
}

#[test]
fn pending_workload_follows_priority_class_of_its_job() {
    let mut cluster = one_queue("1");
    for (name, value) in [("low", 10), ("high", 100)] {
        cluster.set_class(name, value);
    }
    for name in ["holds", "waits"] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.pass(3);
    }
    for (class, value) in [("low", 10), ("high", 100)] {
        let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": class}}});
        cluster.edit(Kind::JOB, "team", "waits", &label);
        cluster.pass(3);
        let spec = cluster.workload_of("waits").unwrap()["spec"].clone();
        assert_eq!((&spec["priority"], &spec["priorityClassRef"]["name"]), (&json!(value), &json!(class)));
    }
}

#[test]
fn reservation_without_admission_is_released_when_its_queue_is_deleted() {
    // A ClusterQueue that is being deleted is kept while Workloads hold quota in the queue, and is gone when the quota is released.
    let words = ["LocalQueue lq is terminating or missing", "ClusterQueue cq doesn't exist"];
    let queues = [(Kind::LocalQueue, "team", "lq"), (Kind::ClusterQueue, "", "cq")];
    for ((kind, namespace, name), words) in queues.into_iter().zip(words) {
        let (mut cluster, _) = checked();
        let leaves = json!({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}});
        cluster.edit(kind, namespace, name, &leaves);
        cluster.pass(5);
        let found_condition = cluster.condition("a", "QuotaReserved").unwrap();
        assert_eq!(
            (&found_condition["status"], &found_condition["reason"]),
            (&json!("False"), &json!("Misconfigured")),
            "{found_condition}"
        );
        assert_eq!(found_condition["message"], json!(words));
        assert!(cluster.workload_of("a").unwrap()["status"]["admission"].is_null());
    }
}

#[test]
fn eviction_by_admission_check_carries_message_of_the_check() {
    let (mut cluster, name) = checked();
    answer(&mut cluster, &name, "Retry");
    cluster.pass(3);
    let found_condition = cluster.condition("a", "Evicted").unwrap();
    assert_eq!(found_condition["message"], json!("Evicted due to AdmissionCheck in Retry state: \"budget\" (said so)"));
}

#[test]
fn workload_with_invalid_node_affinity_reports_the_invalid_field() {
    let mut cluster = one_queue("9");
    let term = |expression: Value| json!({"matchExpressions": [expression]});
    let near = json!({"key": "tier", "operator": "Near", "values": ["x"]});
    let operators = "\"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"";
    let unknown = |term: usize| {
        format!(
            "nodeSelectorTerms[{term}].matchExpressions[0].operator: Unsupported value: \"Near\": supported values: {operators}"
        )
    };
    let empty = "nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty";
    let word = "nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer";
    for (name, terms, expected) in [
        ("unknown", vec![near.clone()], Some(unknown(0))),
        ("empty", vec![json!({"key": "tier", "operator": "In"})], Some(empty.to_owned())),
        ("word", vec![json!({"key": "tier", "operator": "Gt", "values": ["x"]})], Some(word.to_owned())),
        ("both", vec![near.clone(), near.clone()], Some(format!("[{}, {}]", unknown(0), unknown(1)))),
        ("other", vec![json!({"key": "zone", "operator": "Near"})], None),
        ("beside", vec![near, json!({"key": "tier", "operator": "Exists"})], None),
    ] {
        let terms: Vec<Value> = terms.into_iter().map(term).collect();
        let mut workload = made_before(&job("a", "lq", "1", true)["spec"]["template"]);
        workload["metadata"]["name"] = json!(name);
        workload["spec"]["podSets"][0]["template"]["spec"]["affinity"] = json!({"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        cluster.put(Kind::Workload, workload);
        cluster.pass(5);
        assert_eq!(cluster.workload_is(name, "Admitted"), expected.is_none(), "{name}");
        let Some(expected) = expected else { continue };
        let status = &cluster.objects()[&Cluster::key(Kind::Workload, "team", name)]["status"];
        let condition =
            status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "QuotaReserved").unwrap();
        let words = format!("failed to assign flavors to pod set main: {expected}");
        assert_eq!((&condition["reason"], &condition["message"]), (&json!("NoMatchingFlavor"), &json!(words)));
    }
}

#[test]
fn preemption_events_name_priorities_of_preemptor_and_victim() {
    let mut cluster = one_queue("1");
    let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempts);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.set_class("high", 100);
    cluster.put(Kind::JOB, job("low", "lq", "1", true));
    cluster.pass(3);
    let mut urgent = job("urgent", "lq", "1", true);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    cluster.put(Kind::JOB, urgent);
    cluster.pass(5);
    let both = "; preemptor effective priority: 100 (base: 100, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)";
    let events_of = |reason: &str| {
        let all: Vec<&str> =
            cluster.notices.iter().filter(|notice| notice.reason == reason).map(|notice| &*notice.message).collect();
        all.first().map(|text| (*text).to_owned()).unwrap_or_default()
    };
    assert!(
        events_of("Preempted").starts_with("Preempted to accommodate a workload (UID: "),
        "{}",
        events_of("Preempted")
    );
    assert!(events_of("Preempted").ends_with(both), "{}", events_of("Preempted"));
    assert!(
        events_of("PreemptedWorkload").starts_with("Preempted workload team/job-low-"),
        "{}",
        events_of("PreemptedWorkload")
    );
    assert!(
        events_of("PreemptedWorkload").contains(&format!(" in ClusterQueue cq{both}")),
        "{}",
        events_of("PreemptedWorkload")
    );
}
