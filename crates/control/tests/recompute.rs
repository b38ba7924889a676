//! Requirement R2: the state that control updates event by event equals the state that a new control builds from lists of the same objects. A digest of the
//! state shows every difference.

use berth_control::Control;
use berth_control::event::{Change, JobType, Observation, SharedJob};
use berth_control::offline::Offline;
use berth_control::settings::Settings;
use berth_control::write::{Kind, ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type Stored = Vec<(ObjectKey, Value)>;

fn list<T: DeserializeOwned>(stored: &[(ObjectKey, Value)], kind: Kind) -> Change<Box<T>> {
    let objects = stored.iter().filter(|(key, _)| key.kind == kind);
    Change::Reset(objects.map(|(_, object)| Box::new(serde_json::from_value(object.clone()).unwrap())).collect())
}

fn jobs(stored: &[(ObjectKey, Value)]) -> Change<SharedJob> {
    let objects = stored.iter().filter(|(key, _)| key.kind == Kind::JOB);
    Change::Reset(objects.map(|(_, object)| JobType::JOB.read(object).unwrap().into()).collect())
}

/// The digest of a control that has observed only the lists of the stored objects.
fn fresh(stored: &[(ObjectKey, Value)]) -> Value {
    let mut control = Control::new(Settings::default());
    let now = "2026-11-21T13:00:00Z".parse().unwrap();
    let team = json!({"metadata": {"name": "team", "labels": {"x": "y"}}});
    for observation in [
        Observation::Namespace(Change::Reset(vec![Box::new(serde_json::from_value(team).unwrap())])),
        Observation::ResourceFlavor(list(stored, Kind::ResourceFlavor)),
        Observation::Cohort(list(stored, Kind::Cohort)),
        Observation::ClusterQueue(list(stored, Kind::ClusterQueue)),
        Observation::LocalQueue(list(stored, Kind::LocalQueue)),
        Observation::Workload(list(stored, Kind::Workload)),
        Observation::Job(JobType::JOB, jobs(stored)),
    ] {
        control.observe(observation, now);
    }
    control.recompute()
}

fn queue(name: &str, cpu: &str) -> Value {
    json!({"kind": "ClusterQueue", "metadata": {"name": name, "generation": 1},
        "spec": {"cohortName": "both", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
            "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]}})
}

fn job(name: &str, queue: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}});
    let labels = json!({"kueue.x-k8s.io/queue-name": queue});
    json!({"kind": "Job",
        "metadata": {"name": name, "namespace": "team", "generation": 1, "labels": labels},
        "spec": {"suspend": true, "parallelism": 1, "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}})
}

/// A cluster with two ClusterQueues of one Cohort, after some time: one job borrows, one runs, one waits, one has finished, and one has been deleted.
fn lived() -> Offline {
    let mut cluster = Offline::new(Settings::default(), "2026-11-21T12:00:00Z".parse().unwrap());
    let local = |name: &str| {
        json!({"kind": "LocalQueue", "metadata": {"name": name, "namespace": "team", "generation": 1},
            "spec": {"clusterQueue": name}})
    };
    for object in [
        json!({"kind": "Namespace", "metadata": {"name": "team", "labels": {"x": "y"}}}),
        json!({"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}}),
        queue("a", "4"),
        queue("b", "4"),
        local("a"),
        local("b"),
        job("finished", "a", "1"),
        job("gone", "b", "1"),
    ] {
        cluster.put(&object).unwrap();
    }
    cluster.run(8);
    let of = |cluster: &Offline, name: &str| {
        let key = ObjectKey { kind: Kind::JOB, namespace: "team".to_owned(), name: name.to_owned() };
        cluster.objects()[&key].clone()
    };
    let mut over = of(&cluster, "finished");
    over["kind"] = json!("Job");
    over["status"] = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
    cluster.put(&over).unwrap();
    let gone: Vec<ObjectKey> = cluster.objects().keys().filter(|key| key.name.contains("gone")).cloned().collect();
    assert_eq!(gone.len(), 2, "a Job and its Workload: {gone:?}");
    for key in gone {
        cluster.remove(key.kind, &key.namespace, &key.name);
    }
    cluster.run(8);
    for object in [job("borrows", "a", "5"), job("runs", "b", "3"), job("waits", "b", "2")] {
        cluster.put(&object).unwrap();
        cluster.run(8);
    }
    cluster.put(&queue("b", "5")).unwrap();
    cluster.run(8);
    cluster
}

#[test]
fn digest_of_kept_state_equals_digest_of_fresh_lists() {
    let mut cluster = lived();
    let stored: Stored = cluster.objects().clone().into_iter().collect();
    let kept = cluster.control().recompute();
    let again = fresh(&stored);
    let kinds = ["ClusterQueue", "Cohort", "LocalQueue", "Workload", "Job", "ResourceFlavor", "Namespace"];
    for kind in kinds {
        assert_eq!(kept["objects"][kind], again["objects"][kind], "{kind}");
    }
    assert_eq!(kept, again);
    // The digest contains the usage of the Workloads.
    let charged = |name: &str| {
        let workloads = kept["objects"]["Workload"].as_object().unwrap();
        let found = workloads.iter().find(|(key, _)| key.contains(name)).unwrap_or_else(|| panic!("{name}: {kept}"));
        found.1["books"].as_str().unwrap().to_owned()
    };
    assert_eq!(charged("job-borrows"), "holds f/cpu=5000 of a");
    assert_eq!(charged("job-waits"), "waits");
    assert_eq!(charged("job-finished"), "none");
    assert_eq!(kept["objects"]["ClusterQueue"]["a"]["usage"], json!({"f/cpu": "5000 of 4000"}));
    assert_eq!(kept["objects"]["Cohort"]["both"]["usage"]["f/cpu"], json!("8000 of 9000"), "{kept}");
}

#[test]
fn digest_shows_objects_and_changes_that_watches_missed() {
    let mut cluster = lived();
    let stored: Stored = cluster.objects().clone().into_iter().collect();
    let kept = cluster.control().recompute();
    let is = |key: &ObjectKey, kind: Kind, name: &str| key.kind == kind && key.name.contains(name);
    let without =
        |kind: Kind, name: &str| -> Stored { stored.iter().filter(|(key, _)| !is(key, kind, name)).cloned().collect() };
    // The digest shows a difference if the watches miss a Workload, a Job, a ClusterQueue, or a change of the quota of a ClusterQueue.
    let lost = fresh(&without(Kind::Workload, "job-borrows"));
    for (kind, name) in [("ClusterQueue", "a"), ("Cohort", "both"), ("LocalQueue", "team/a")] {
        assert_ne!(kept["objects"][kind][name], lost["objects"][kind][name], "{kind} {name}");
    }
    let lost = fresh(&without(Kind::JOB, "runs"));
    assert_ne!(kept["objects"]["Job"], lost["objects"]["Job"]);
    let lost = fresh(&without(Kind::LocalQueue, "b"));
    assert_ne!(kept["objects"]["ClusterQueue"]["b"]["pending"], lost["objects"]["ClusterQueue"]["b"]["pending"]);
    let mut cut = stored.clone();
    for (key, object) in &mut cut {
        if is(key, Kind::ClusterQueue, "b") {
            let resource = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
            *object.pointer_mut(resource).unwrap() = json!("4");
        }
    }
    let lost = fresh(&cut);
    assert_ne!(kept["objects"]["ClusterQueue"]["b"]["usage"], lost["objects"]["ClusterQueue"]["b"]["usage"]);
    assert_ne!(kept["objects"]["Cohort"]["both"]["usage"], lost["objects"]["Cohort"]["both"]["usage"]);
}
