//! Invalid TrainingJobs, and the message of the API server or of Berth about each of them.

use anyhow::{Result, ensure};
use berth_e2e::bad_fields;
use berth_e2e::kinds::{TRAINING_JOB, condition_object, text};
use berth_e2e::manifest::priority_class;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

use crate::training::{is, phase, training};

pub(crate) async fn refused_or_reported(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("bad-training").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    // The test of the invalid fields of all of Berth's own kinds runs here, because it needs an API server and nothing else.
    let count = bad_fields::refused(&s.client, &s.namespace).await?;
    println!("{count} bad values of fields are refused with words");
    let plain = "must begin with a lower case letter";
    for (name, allowed) in [("x".repeat(44), "no more than 43"), ("1st".to_owned(), plain), ("a.b".to_owned(), plain)] {
        let answer = s.apply(&training(s, &name, "JAXJob", &json!({}))).await;
        let message = answer.map_or_else(|error| format!("{error:#}"), |_| "accepted".to_owned());
        for words in ["metadata.name", &format!("{name:?}"), allowed] {
            ensure!(message.contains(words), "{name}: expected {words:?}, got {message}");
        }
    }
    // A fault that no schema detects is reported by a condition, and an edit repairs it.
    let mut other = training(s, "labelled", "JAXJob", &json!({}));
    other["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "other"});
    s.apply(&other).await?;
    let stalled = is(s, "labelled", "stalled", |job| condition_object(job, "Stalled").is_some()).await?;
    let why = condition_object(&stalled, "Stalled").cloned().unwrap_or_default();
    for words in ["spec.schedulingConfig.queue", "\"queue\"", "\"other\""] {
        ensure!(text(&why, "/message").contains(words), "{why}");
    }
    s.warned("labelled", "InvalidSpec", &["spec.schedulingConfig.queue", "\"other\""]).await?;
    other["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "queue"});
    s.apply(&other).await?;
    let done = phase(s, "labelled", "Succeeded").await?;
    ensure!(condition_object(&done, "Stalled").is_none(), "{}", done["status"]);
    out_of_keeping(s).await?;
    without_a_class(s).await?;
    without_a_job(s).await?;
    scenario.conclude().await
}

/// Fields of a TrainingJob whose values are valid alone, but not together: the message names the field, its value and the allowed values.
async fn out_of_keeping(s: &Scenario<'_>) -> Result<()> {
    let in_memory = json!({"name": "main", "image": "example.invalid/nothing",
        "volumeMounts": [{"name": "memory", "mountPath": "/dev/shm"}]});
    let volume = json!({"name": "memory", "emptyDir": {"medium": "Memory"}});
    for (name, job_type, more, reported) in [
        (
            "launchers",
            "MPIJob",
            json!({"roles": [{"name": "launcher", "replicas": 2, "replicaResources": {"cpu": "1"}}]}),
            r#"spec.roles[0].replicas: Invalid value: "2": must be 1"#,
        ),
        (
            "chiefs",
            "TFJob",
            json!({"roles": [{"name": "ps"}, {"name": "chief", "replicas": 3}]}),
            r#"spec.roles[1].replicas: Invalid value: "3": must be 1"#,
        ),
        (
            "two-cards",
            "JAXJob",
            json!({"resources": {"gpuType": "A100"},
                "template": {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "H100"}}}}),
            "spec.resources.gpuType: Invalid value: \"A100\": spec.template.spec.nodeSelector wants \
             nvidia.com/gpu.product=H100; leave one of them out",
        ),
        (
            "two-memories",
            "JAXJob",
            json!({"sharedMemory": "1Gi", "template": {"spec": {"containers": [in_memory], "volumes": [volume]}}}),
            "spec.sharedMemory: Invalid value: \"1Gi\": spec.template: the first container of the template mounts \
             /dev/shm already; leave one of them out",
        ),
    ] {
        s.apply(&training(s, name, job_type, &more)).await?;
        let stalled = is(s, name, "stalled", |job| condition_object(job, "Stalled").is_some()).await?;
        let why = condition_object(&stalled, "Stalled").cloned().unwrap_or_default();
        let words = (text(&why, "/status"), text(&why, "/reason"), text(&why, "/message"));
        ensure!(words == ("True", "InvalidSpec", reported), "{name}: expected {reported}, got {why}");
        TRAINING_JOB.delete(&s.client, &s.namespace, name).await?;
    }
    Ok(())
}

/// A TrainingJob whose priority class does not exist gets a warning event about the class, and runs after the class was created.
async fn without_a_class(s: &Scenario<'_>) -> Result<()> {
    let class = s.name("late-class");
    let mut job = training(s, "classless", "JAXJob", &json!({}));
    job["metadata"]["labels"] = json!({"kueue.x-k8s.io/priority-class": class});
    s.apply(&job).await?;
    s.warned("classless", "WorkloadPriorityClassNotFound", &[&format!("{class:?} does not exist")]).await?;
    s.apply(&priority_class(&class, 7)).await?;
    phase(s, "classless", "Succeeded").await.map(drop)
}

/// The API server finds a fault in the pods of a Job that Berth's schema does not detect: the TrainingJob's condition repeats the API server's
/// message word for word.
async fn without_a_job(s: &Scenario<'_>) -> Result<()> {
    let container = json!([{"name": "Bad_Name", "image": "example.invalid/nothing"}]);
    let refused = training(s, "jobless", "JAXJob", &json!({"template": {"spec": {"containers": container}}}));
    s.apply(&refused).await?;
    s.warned("jobless", "FailedCreate", &["the API server refused", "Bad_Name"]).await?;
    let reported_by =
        |job: &Value| condition_object(job, "Running").is_some_and(|why| text(why, "/reason") == "FailedCreate");
    is(s, "jobless", "told what its Job lacks", reported_by).await?;
    TRAINING_JOB.delete(&s.client, &s.namespace, "jobless").await
}
