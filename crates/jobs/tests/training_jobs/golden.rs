//! Complete children of TrainingJobs, compared with golden files in `cases/training`; `BERTH_BLESS=1` rewrites the files.

use super::{job, run};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn training_job_children_equal_golden_files() {
    let cases = [
        ("pytorch", "PyTorchJob", json!({"sharedMemory": "16Gi", "resources": {"gpuType": "NVIDIA-H100-80GB-HBM3"}})),
        ("pytorch-place", "PyTorchJob", json!({"resources": {"topologyConstraint": "topology.kubernetes.io/rack"}})),
        ("tensorflow", "TFJob", json!({"roles": [{"name": "chief"}, {"name": "ps", "replicas": 2}]})),
        ("mpi", "MPIJob", json!({"mpi": {"sshAuthSecret": "keys", "sshAuthMountPath": "/etc/mpi-keys"}})),
        ("xgboost", "XGBoostJob", json!({"backoffLimit": 0})),
        ("paddle", "PaddleJob", json!({})),
        ("jax", "JAXJob", json!({"schedulingConfig": {"schedulerName": "gang-scheduler"}})),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/training");
    let mut stale = Vec::new();
    for (name, job_type, more) in cases {
        let found: Vec<Value> = run(&job(job_type, more)).into_iter().map(|child| child.body).collect();
        let path = folder.join(format!("{name}.json"));
        let golden = std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        if golden.as_ref() == Some(&json!(found)) {
            continue;
        }
        stale.push(name);
        if std::env::var_os("BERTH_BLESS").is_some() {
            std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&found).unwrap())).unwrap();
        }
    }
    assert!(stale.is_empty(), "these differ from cases/training, see BERTH_BLESS: {stale:?}");
}
