//! Tests of TrainingJobs: the variables of each framework's pods, complete children as golden files, and every bad input by field.

mod bad;
mod frameworks;
mod golden;
mod shape;
mod states;

use berth_api::berth::TrainingJob;
use berth_jobs::Placement;
use berth_jobs::training::{Accelerators, Child, Continuation, children, roles};
use serde_json::{Value, json};

/// A TrainingJob with three workers of 8 GPUs each, and with `more` merged into its spec.
fn job(job_type: &str, more: Value) -> TrainingJob {
    let mut spec = json!({
        "jobType": job_type,
        "resources": {"maxReplicas": 3, "replicaResources": {"gpu": 8, "cpu": "32", "memory": "256Gi"}},
        "schedulingConfig": {"queue": "research"},
        "template": {"spec": {"containers": [{"name": "trainer", "image": "example.invalid/trainer",
            "command": ["train"]}]}},
    });
    merge(&mut spec, &more);
    let metadata = json!({"name": "gpt", "namespace": "team", "uid": "7b1d6f8a-1111-4222-8333-444455556666"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Placements of all requested pods, on a flavor that selects spot nodes.
fn admitted(job: &TrainingJob) -> Vec<Placement> {
    let place = |role: &berth_jobs::training::Role| Placement {
        pod_set: role.name.clone(),
        count: role.count,
        labels: [("kueue.x-k8s.io/podset".to_owned(), role.name.clone())].into(),
        node_selector: [("cloud.google.com/gke-spot".to_owned(), "true".to_owned())].into(),
        ..Placement::default()
    };
    roles(job, &Accelerators::default()).unwrap().iter().map(place).collect()
}

fn run(job: &TrainingJob) -> Vec<Child> {
    children(job, &Accelerators::default(), &admitted(job), Continuation::default()).unwrap()
}

/// The first container of a role's pods, as sent to the API server.
fn container(all: &[Child], role: &str) -> Value {
    let job = all.iter().find(|child| child.name == format!("gpt-{role}")).unwrap();
    job.body["spec"]["template"]["spec"]["containers"][0].clone()
}

/// The value of a variable in the pod with this index, after the kubelet's substitution.
fn variable(container: &Value, name: &str, index: usize) -> Option<String> {
    let all = container["env"].as_array().unwrap();
    assert_eq!(all[0]["name"], "JOB_COMPLETION_INDEX", "what refers to the index comes after it");
    let found = all.iter().find(|variable| variable["name"] == name)?;
    let text = found["value"].as_str()?;
    Some(text.replace("$(JOB_COMPLETION_INDEX)", &index.to_string()))
}
