//! Manifests that `berth flavors` and `berth import` write give jobs the intended capacity in `berth decide`.

use super::*;
use std::path::{Path, PathBuf};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// The decisions of `berth decide` on manifests.
fn decided(manifests: &[Manifest]) -> Value {
    let output = answer(manifests, "", Accelerators::default(), latest(manifests), Output::Yaml).unwrap();
    serde_saphyr::from_str(&output).unwrap()
}

/// The decision about a job, with its queue and flavors.
fn outcome(decided: &Value, job: &str) -> (String, String, Value) {
    let all = decided.get("decisions").and_then(Value::as_array).unwrap();
    let found = all.iter().find(|decision| text(decision, "/job") == job).unwrap();
    let flavors = found.pointer("/podSets/0/flavors").cloned().unwrap_or_default();
    (text(found, "/decision"), text(found, "/clusterQueue"), flavors)
}

fn admitted(queue: &str, resource: &str, flavor: &str) -> (String, String, Value) {
    ("admitted".to_owned(), queue.to_owned(), json!({ resource: flavor }))
}

/// The flavors and queues made of the example capacity table, with the jobs of the example.
fn table(change: impl Fn(&str) -> String) -> Vec<Manifest> {
    let read = |file: &str| std::fs::read_to_string(example("capacity-table").join(file)).unwrap();
    let made = crate::capacity::manifests("capacity.yaml", &read("table/capacity.yaml")).unwrap();
    let mut all = manifests::of_text("queues.yaml", &made).unwrap();
    all.extend(manifests::of_text("jobs.yaml", &change(&read("jobs.yaml"))).unwrap());
    all
}

#[test]
fn capacity_table_jobs_are_admitted_in_a_tier_they_accept() {
    let output = decided(&table(str::to_owned));
    assert_eq!(
        outcome(&output, "capacity-table/stays"),
        admitted("table-research", "nvidia.com/gpu", "h100-on-demand")
    );
    let first = admitted("table-research", "google.com/tpu", "tpu-v5e-reserved");
    assert_eq!(outcome(&output, "capacity-table/takes-what-comes"), first);
    assert_eq!((output.get("unknown"), output.get("inactive")), (None, None), "read whole, and every flavor is there");
    let output = decided(&table(|jobs| jobs.replace("nvidia-h100-80gb", "nvidia-tesla-a100")));
    assert_eq!(
        outcome(&output, "capacity-table/stays"),
        admitted("table-research", "nvidia.com/gpu", "a100-on-demand")
    );
    let output = decided(&table(|jobs| {
        let jobs = jobs.replace("nvidia-h100-80gb", "nvidia-tesla-a100");
        jobs.replace("capacity-tiers: on-demand", "capacity-tiers: reserved")
    }));
    let (decision, queue, _) = outcome(&output, "capacity-table/stays");
    assert_eq!((decision.as_str(), queue.as_str()), ("pending", ""), "a cell that is not offered");
}

#[test]
fn axlearn_project_uses_its_quota_and_borrows_idle_quota() {
    let folder = example("import-axlearn");
    let read = |change: &dyn Fn(&str) -> String| {
        let mut all = manifests::read(&[folder.join("queues.yaml")]).unwrap();
        let jobs = std::fs::read_to_string(folder.join("jobs.yaml")).unwrap();
        all.extend(manifests::of_text("jobs.yaml", &change(&jobs)).unwrap());
        decided(&all)
    };
    let output = read(&|jobs| jobs.to_owned());
    let reserved = |queue: &str| admitted(queue, "google.com/tpu", "v5litepod-reserved");
    assert_eq!(outcome(&output, "axlearn-vision-models/vision"), reserved("vision-models"));
    assert_eq!(outcome(&output, "axlearn-speech-models/speech"), reserved("speech-models"), "1 of 4 chips is borrowed");
    assert_eq!((output.get("unknown"), output.get("inactive")), (None, None));
    let output = read(&|jobs| jobs.replace("google.com/tpu: 4", "google.com/tpu: 24"));
    for job in ["axlearn-vision-models/vision", "axlearn-speech-models/speech"] {
        assert_eq!(outcome(&output, job).0, "pending", "no tier has more than 16 chips for all projects together");
    }
}

/// A batch Job in an imported queue is admitted up to the capability of Volcano's Queue.
#[test]
fn job_in_imported_volcano_queue_is_admitted_up_to_capability() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/volcano/gang/objects.yaml");
    let options = crate::volcano::Options { namespace: "default", flavor: None };
    let made = crate::volcano::import(&manifests::read(&[path]).unwrap(), options).unwrap();
    let job = |parallelism: i64| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "pytorch", "namespace": "ml-workloads", "labels": {"kueue.x-k8s.io/queue-name": "training-queue"}},
            "spec": {"suspend": true, "parallelism": parallelism, "completions": parallelism, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "pytorch", "image": "i", "resources": {
                    "requests": {"nvidia.com/gpu": 8, "cpu": "32", "memory": "256Gi"},
                    "limits": {"nvidia.com/gpu": 8},
                }}],
            }}},
        })
    };
    for (parallelism, decision) in [(8, "admitted"), (9, "pending")] {
        let mut all = manifests::of_text("queues.yaml", &made.text).unwrap();
        all.extend(manifests::of_text("job.yaml", &job(parallelism).to_string()).unwrap());
        let output = decided(&all);
        assert_eq!(
            outcome(&output, "ml-workloads/pytorch").0,
            decision,
            "{parallelism} pods of 8 GPUs, with 64 in the queue"
        );
        assert_eq!((output.get("unknown"), output.get("invalid"), output.get("inactive")), (None, None, None));
    }
}
