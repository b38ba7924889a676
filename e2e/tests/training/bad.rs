//! What must not be, with the server's or Berth's words for it.

use anyhow::{Result, bail, ensure};
use berth_e2e::kinds::{condition_object, text};
use berth_e2e::scenario::Stage;
use serde_json::{Value, json};

use crate::{is, phase, training};

/// Fields that the schema refuses: more of a spec, and words of the answer.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("CaffeJob", json!({}), "spec.jobType: Unsupported value: \"CaffeJob\""),
        ("JAXJob", json!({"resources": {"minReplicas": 3}}), "minReplicas must not be greater than maxReplicas"),
        ("JAXJob", json!({"resources": {"maxReplicas": 0}}), "spec.resources.maxReplicas"),
        ("JAXJob", json!({"resources": {"replicaResources": {"gpu": -1}}}), "spec.resources.replicaResources.gpu"),
        ("JAXJob", json!({"resources": {"gpuType": "A 100"}}), "spec.resources.gpuType"),
        ("JAXJob", json!({"resources": {"topologyConstraint": "a b"}}), "spec.resources.topologyConstraint"),
        ("JAXJob", json!({"schedulingConfig": {"maxWaitTime": "1 day"}}), "spec.schedulingConfig.maxWaitTime"),
        (
            "JAXJob",
            json!({"schedulingConfig": {"schedulingTimeout": "soon"}}),
            "spec.schedulingConfig.schedulingTimeout",
        ),
        ("JAXJob", json!({"schedulingConfig": {"preemptionPolicy": "Maybe"}}), "\"PreemptLower\", \"PreemptAlways\""),
        ("JAXJob", json!({"elasticConfig": {"minWorkers": 3, "maxWorkers": 2}}), "minWorkers must not be greater"),
        ("JAXJob", json!({"elasticConfig": {"scalePolicy": {"scaleUpCooldown": "x"}}}), "scalePolicy.scaleUpCooldown"),
        ("JAXJob", json!({"capacityTiers": ["cheap"]}), "spec.capacityTiers[0]"),
        ("JAXJob", json!({"capacityTiers": ["spot", "spot"]}), "must be unique"),
        ("JAXJob", json!({"backoffLimit": -1}), "spec.backoffLimit"),
        ("JAXJob", json!({"checkpoint": {"interval": "often"}}), "spec.checkpoint.interval"),
        ("JAXJob", json!({"checkpoint": {"store": "A!"}}), "spec.checkpoint.store"),
        ("JAXJob", json!({"checkpoint": {"maxCheckpoints": 0}}), "spec.checkpoint.maxCheckpoints"),
        ("JAXJob", json!({"roles": [{"name": "ps"}]}), "only TFJob (chief, ps, evaluator)"),
        ("TFJob", json!({"roles": [{"name": "boss"}]}), "the roles chief, ps and evaluator"),
        ("JAXJob", json!({"mpi": {}}), "only an MPIJob"),
        ("MPIJob", json!({"mpi": {"sshAuthSecret": "keys"}}), "go together"),
        ("JAXJob", json!({"sharedMemory": "big"}), "spec.sharedMemory"),
    ]
}

pub(crate) async fn refused_or_told(stage: &Stage) -> Result<()> {
    let scenario = stage.scenario("bad-training").await?;
    let s = &scenario;
    s.simple_queue("2", &json!({})).await?;
    for (number, (job_type, more, words)) in refused().into_iter().enumerate() {
        match s.apply(&training(s, &format!("bad-{number}"), job_type, &more)).await {
            Ok(_) => bail!("{job_type} {more} was accepted"),
            Err(error) => ensure!(format!("{error:#}").contains(words), "{more}: {error:#}"),
        }
    }
    for name in ["x".repeat(44), "1st".to_owned(), "a.b".to_owned()] {
        let answer = s.apply(&training(s, &name, "JAXJob", &json!({}))).await;
        ensure!(answer.is_err_and(|error| format!("{error:#}").contains("metadata.name")), "{name}");
    }
    // What no schema can see is told by a condition, and mended by an edit.
    let mut other = training(s, "labelled", "JAXJob", &json!({}));
    other["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "other"});
    s.apply(&other).await?;
    let stalled = is(s, "labelled", "stalled", |job| condition_object(job, "Stalled").is_some()).await?;
    let why = condition_object(&stalled, "Stalled").cloned().unwrap_or_default();
    for words in ["spec.schedulingConfig.queue", "\"queue\"", "\"other\""] {
        ensure!(text(&why, "/message").contains(words), "{why}");
    }
    other["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "queue"});
    s.apply(&other).await?;
    let done = phase(s, "labelled", "Succeeded").await?;
    ensure!(condition_object(&done, "Stalled").is_none(), "{}", done["status"]);
    scenario.conclude().await
}
