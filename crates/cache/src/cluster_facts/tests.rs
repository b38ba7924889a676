//! Tests of the facts that a review gets after observations of watches.

use berth_engine::model::Requirement;
use serde_json::from_value;

use super::*;

fn not_system() -> Selector {
    Selector(vec![Requirement { key: NAME.to_owned(), op: SelectorOp::NotIn, values: vec!["kube-system".to_owned()] }])
}

fn fresh(without_queue_name: bool) -> ClusterFacts {
    ClusterFacts::new(&Settings {
        managed_namespaces: not_system(),
        manage_jobs_without_queue_name: without_queue_name,
        ..Settings::default()
    })
}

fn queue(namespace: &str, name: &str) -> Box<berth_api::LocalQueue> {
    from_value(json!({"metadata": {"namespace": namespace, "name": name}})).expect("queue")
}

fn names(cluster_facts: &ClusterFacts) -> Value {
    cluster_facts.selector()["matchExpressions"][0]["values"].clone()
}

#[test]
fn namespace_with_default_local_queue_is_opted_in() {
    let mut all = fresh(false);
    assert_eq!(names(&all), json!([NOWHERE]));
    let queue_of = |namespace: &str| Observation::LocalQueue(Change::Apply(queue(namespace, "default")));
    all.observe(&queue_of("b"));
    all.observe(&queue_of("a"));
    all.observe(&queue_of("kube-system"));
    all.observe(&Observation::LocalQueue(Change::Apply(queue("c", "other"))));
    assert_eq!(names(&all), json!(["a", "b"]));
    assert!(all.facts("a").default_queue && !all.facts("c").default_queue);
    assert!(!all.facts("kube-system").managed_namespace);
    all.observe(&Observation::LocalQueue(Change::Only(vec![("b".into(), "default".into()), ("a".into(), "x".into())])));
    assert_eq!(names(&all), json!(["b"]));
    all.observe(&Observation::LocalQueue(Change::Delete(queue("b", "default"))));
    assert_eq!(names(&all), json!([NOWHERE]));
}

#[test]
fn configured_namespace_selector_applies_where_every_job_is_managed() {
    let all = fresh(true);
    assert_eq!(
        all.selector(),
        json!({"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["kube-system"]}]})
    );
    assert!(all.facts("x").without_queue_name);
    assert_eq!(all.opted_in(), None, "nothing is listed yet");
    let mut all = all;
    assert!(!all.knows_namespaces() && all.observe(&Observation::Namespace(Change::Only(vec![]))));
    assert!(all.knows_namespaces());
    assert!(all.opted_in().is_none() && all.observe(&Observation::LocalQueue(Change::Only(vec![]))));
    assert!(all.opted_in().is_some() && !all.observe(&Observation::LocalQueue(Change::Only(vec![]))));
}

#[test]
fn webhook_selector_of_unmanaged_kinds_matches_no_namespace() {
    let of_pods = [Kind::Pod, Kind::Deployment, Kind::StatefulSet];
    let plurals: BTreeMap<&str, Kind> =
        Kind::jobs().chain(of_pods).map(|kind| (kind.resource_kind().unwrap().resource().2, kind)).collect();
    for (plural, kind) in &plurals {
        for without_queue_name in [false, true] {
            let job_kinds = BTreeSet::from([Kind::JOB, *kind]);
            let settings = Settings { managed_namespaces: not_system(), job_kinds, ..Settings::default() };
            let settings = Settings { manage_jobs_without_queue_name: without_queue_name, ..settings };
            let mut all = ClusterFacts::new(&settings);
            all.observe(&Observation::Namespace(Change::Only(vec![])));
            all.observe(&Observation::LocalQueue(Change::Reset(vec![queue("team", "default")])));
            let reported = all.opted_in().expect("all is listed");
            assert!(reported.keys().eq(plurals.keys()), "{reported:?}");
            for (resource, selector) in reported {
                let managed = resource == "jobs" || resource == *plural;
                let wanted = if managed { all.selector() } else { in_namespaces(&["none.berth.dev"]) };
                assert_eq!(selector, wanted, "{resource}, where {plural} are managed");
            }
        }
    }
}

#[test]
fn training_job_governs_only_jobs_of_its_roles() {
    let mut all = fresh(true);
    let mut training = json!({"metadata": {"name": "gpt", "namespace": "n", "uid": "u"}, "spec": {
        "jobType": "MPIJob", "template": {"spec": {"containers": []}}}, "status": {"phase": "Running"}});
    let observe = |all: &mut ClusterFacts, training: &Value| {
        let job = from_value(training.clone()).expect("training job");
        all.observe(&Observation::TrainingJob(Change::Apply(job)));
    };
    observe(&mut all, &training);
    let governs = |all: &ClusterFacts, name: &str, owner: &str, uid: &str| {
        all.governs("n", &called(name), &controller("berth.dev/v1alpha1", "TrainingJob", owner, uid))
    };
    assert!(governs(&all, "gpt-worker", "gpt", "u") && governs(&all, "gpt-launcher", "gpt", "u"));
    assert!(!governs(&all, "gpt-ps", "gpt", "u") && !governs(&all, "mine", "gpt", "u"));
    assert!(governs(&all, "new-worker", "new", "v") && !governs(&all, "new-2", "new", "v"), "not seen yet");
    let other = controller("example.com/v1", "TrainingJob", "gpt", "u");
    assert!(!all.governs("n", &called("gpt-worker"), &other), "another kind of that name");
    training["status"]["phase"] = json!("Succeeded");
    observe(&mut all, &training);
    assert!(!governs(&all, "gpt-worker", "gpt", "u"), "it is over");
    all.observe(&Observation::TrainingJob(Change::Only(vec![])));
    assert!(all.training.is_empty());
}

/// The metadata of a Job with the given name.
fn called(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn controller(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    from_value(json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}))
        .expect("a reference")
}

/// A Job that names a JobSet as its controller is not a part of the JobSet for that reason alone: the JobSet, its uid, and the Job's name decide.
#[test]
fn job_set_governs_only_jobs_of_its_replicated_jobs() {
    let set = |uid: &str, replicas: i32| {
        let set = json!({"metadata": {"name": "set", "namespace": "n", "uid": uid},
            "spec": {"replicatedJobs": [{"name": "a-b", "replicas": replicas, "template": {}}]}});
        SharedJob::from(JobType::JOB_SET.read(&set).expect("a JobSet"))
    };
    let of = |kind: &str, uid: &str| controller("jobset.x-k8s.io/v1alpha2", kind, "set", uid);
    let kinds = BTreeSet::from([Kind::JOB, Kind::Job(JobType::JOB_SET)]);
    let mut all = ClusterFacts::new(&Settings { job_kinds: kinds, ..Settings::default() });
    assert!(!all.governs("n", &called("set-a-b-0"), &of("JobSet", "u")), "no watch has shown it");
    let seen = Observation::Job(JobType::JOB_SET, Change::Apply(set("u", 2)));
    assert!(ClusterFacts::concerns(&seen) && !all.observe(&seen));
    let job = Observation::Job(JobType::JOB, Change::Only(vec![]));
    assert!(!ClusterFacts::concerns(&job), "Jobs come by the thousand, and nothing is asked of them");
    for (name, wanted) in [
        ("set-a-b-0", true),
        ("set-a-b-1", true),
        ("set-a-b-2", false),
        ("set-a-b", false),
        ("set-a-b-01", false),
        ("set-a-b--1", false),
        ("set-b-0", false),
        ("other-a-b-0", false),
        ("set", false),
    ] {
        assert_eq!(all.governs("n", &called(name), &of("JobSet", "u")), wanted, "{name}");
    }
    assert!(
        !all.governs("n", &called("set-a-b-0"), &of("JobSet", "v"))
            && !all.governs("m", &called("set-a-b-0"), &of("JobSet", "u"))
    );
    assert!(!all.governs("n", &called("set-a-b-0"), &of("Other", "u")));
    assert!(!all.governs("n", &called("set-a-b-0"), &controller("batch/v1", "Job", "set", "u")), "a Job has no parts");
    all.observe(&Observation::Job(JobType::JOB_SET, Change::Reset(vec![set("v", 1)])));
    assert!(
        all.governs("n", &called("set-a-b-0"), &of("JobSet", "v"))
            && !all.governs("n", &called("set-a-b-1"), &of("JobSet", "v"))
    );
    all.observe(&Observation::Job(JobType::JOB_SET, Change::Only(vec![])));
    assert!(all.parents.is_empty());
    // The JobSet controller starts and stops the Jobs of JobSets that are not managed.
    let without = ClusterFacts::new(&Settings { job_kinds: BTreeSet::from([Kind::JOB]), ..Settings::default() });
    assert!(without.governs("n", &called("set-a-b-0"), &of("JobSet", "u")));
    assert!(!without.governs("n", &called("mine"), &of("JobSet", "u")));
    assert!(without.governs("n", &labelled("a-b"), &of("JobSet", "u")));
}

/// The metadata of a Job with an unrelated name that names a part of JobSet `set` in the label of the JobSet controller.
fn labelled(part: &str) -> ObjectMeta {
    let owner = controller("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "u");
    from_value(
        json!({"name": "mine", "labels": {"jobset.sigs.k8s.io/replicatedjob-name": part}, "ownerReferences": [owner]}),
    )
    .expect("metadata")
}

/// The controller of a JobSet that names no LocalQueue starts each Job with the label of a part. Berth stops a JobSet that names a LocalQueue together with its
/// Jobs, so that a Job that has only the label waits for quota of its own.
#[test]
fn job_set_governs_jobs_by_label_only_if_unmanaged() {
    let owner = controller("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "u");
    for (queue, all_managed, wanted) in [(None, false, true), (Some("q"), false, false), (None, true, false)] {
        let mut set = json!({"metadata": {"name": "set", "namespace": "n", "uid": "u"},
            "spec": {"replicatedJobs": [{"name": "a-b", "replicas": 1, "template": {}}]}});
        if let Some(queue) = queue {
            set["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
        }
        let set = SharedJob::from(JobType::JOB_SET.read(&set).expect("a JobSet"));
        let mut all = fresh(all_managed);
        all.observe(&Observation::Job(JobType::JOB_SET, Change::Apply(set)));
        assert_eq!(all.governs("n", &labelled("a-b"), &owner), wanted, "{queue:?}, all managed: {all_managed}");
        assert!(!all.governs("n", &labelled("b"), &owner) && all.governs("n", &called("set-a-b-0"), &owner));
    }
}

#[test]
fn stateful_set_facts_follow_its_latest_labels_and_replicas() {
    let mut all = fresh(false);
    let set = |queue: &str, replicas: i32| {
        let labels = json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": "high"});
        from_value(json!({"metadata": {"name": "web", "namespace": "n", "uid": "u", "labels": labels},
            "spec": {"replicas": replicas, "selector": {}, "template": {}}}))
        .expect("a StatefulSet")
    };
    assert_eq!(all.stateful_set("n", "web"), None);
    for (queue, replicas) in [("q", 2), ("r", 0)] {
        let change = Observation::StatefulSet(Change::Apply(set(queue, replicas)));
        assert!(ClusterFacts::concerns(&change) && !all.observe(&change));
        let known = all.stateful_set("n", "web").expect("it was seen");
        assert_eq!((known.uid.as_str(), known.queue_name.as_deref()), ("u", Some(queue)));
        assert_eq!((known.priority_class.as_deref(), known.replicas), (Some("high"), replicas));
    }
    all.observe(&Observation::StatefulSet(Change::Only(vec![])));
    assert_eq!(all.stateful_set("n", "web"), None);
    all.observe(&Observation::StatefulSet(Change::Reset(vec![set("q", 1)])));
    assert!(all.stateful_set("n", "web").is_some() && all.stateful_set("m", "web").is_none());
    all.observe(&Observation::StatefulSet(Change::Delete(set("q", 1))));
    assert_eq!(all.stateful_set("n", "web"), None);
}

#[test]
fn namespace_labels_and_default_priority_class_are_followed() {
    let select = Selector(vec![Requirement { key: "team".into(), op: SelectorOp::Exists, values: vec![] }]);
    let mut all = ClusterFacts::new(&Settings { managed_namespaces: select, ..Settings::default() });
    let namespace = |labels: Value| from_value(json!({"metadata": {"name": "n", "labels": labels}})).expect("it");
    assert!(!all.facts("n").managed_namespace);
    all.observe(&Observation::Namespace(Change::Apply(namespace(json!({"team": "x"})))));
    assert!(all.facts("n").managed_namespace);
    all.observe(&Observation::Namespace(Change::Apply(namespace(json!({})))));
    assert!(!all.facts("n").managed_namespace);
    let class = || from_value(json!({"metadata": {"name": "default"}, "value": 1})).expect("class");
    all.observe(&Observation::WorkloadPriorityClass(Change::Apply(class())));
    assert!(all.facts("n").default_priority_class);
    all.observe(&Observation::WorkloadPriorityClass(Change::Only(vec![])));
    assert!(!all.facts("n").default_priority_class);
}
