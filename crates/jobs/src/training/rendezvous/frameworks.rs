//! Environment variables of the frameworks with equal workers, and of TensorFlow.

use serde_json::{Map, Value};

use super::party::{Party, Variables, index};
use crate::training::role::WORKER;

const TORCH_PORT: u16 = 29500;
/// Number of times that each agent of an elastic job restarts its workers before its pod fails. `torchrun` treats a removed pod as a failure of the others, and
/// its default is 0 restarts, while each scale-down costs every remaining pod one restart.
const TORCH_RESTARTS: u16 = 20;
const TENSORFLOW_PORT: u16 = 2222;
const XGBOOST_PORT: u16 = 9999;
const PADDLE_PORT: u16 = 36543;
const JAX_PORT: u16 = 6666;

/// Variables of PyTorch: those that `env://` reads with one process per pod, and those that `torchrun` reads in place of its flags (`PET_`).
pub(super) fn torch(party: &Party<'_>) -> Variables {
    let (leader, workers, port) = (party.leader(), party.count(WORKER).to_string(), TORCH_PORT.to_string());
    let mut variables = vec![
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("MASTER_ADDR", leader.clone()),
        ("MASTER_PORT", port.clone()),
        ("WORLD_SIZE", workers.clone()),
        ("RANK", index()),
        ("PET_NPROC_PER_NODE", party.gpus.max(1).to_string()),
        ("PET_NODE_RANK", index()),
    ];
    match party.elastic() {
        Some((least, most)) => variables.extend([
            ("PET_NNODES", format!("{least}:{most}")),
            ("PET_RDZV_BACKEND", "c10d".to_owned()),
            ("PET_RDZV_ENDPOINT", format!("{leader}:{port}")),
            ("PET_RDZV_ID", party.job.uid().to_owned()),
            ("PET_MAX_RESTARTS", TORCH_RESTARTS.to_string()),
        ]),
        None => variables.extend([("PET_NNODES", workers), ("PET_MASTER_ADDR", leader), ("PET_MASTER_PORT", port)]),
    }
    variables
}

/// Variables of TensorFlow, of which `TF_CONFIG` has the hosts of the training's cluster and the task of the pod. A pod of the role evaluator has a task in
/// `TF_CONFIG`, and is not among the hosts of the cluster.
pub(super) fn tensorflow(party: &Party<'_>, role: &str) -> Variables {
    let cluster: Map<String, Value> = party
        .roles
        .iter()
        .filter(|(name, _)| name != "evaluator")
        .map(|(name, _)| {
            let hosts = party.hosts(name).into_iter().map(|host| format!("{host}:{TENSORFLOW_PORT}").into());
            (name.clone(), Value::Array(hosts.collect()))
        })
        .collect();
    // The task's index in `TF_CONFIG` is a reference to the variable with the pod's index, which the kubelet replaces by a number.
    let config = format!(r#"{{"cluster":{},"task":{{"type":"{role}","index":{}}}}}"#, Value::Object(cluster), index());
    vec![("PYTHONUNBUFFERED", "1".to_owned()), ("TF_CONFIG", config)]
}

/// Variables of XGBoost: address, size and rank, and the names under which Rabit's workers look for their tracker.
pub(super) fn xgboost(party: &Party<'_>) -> Variables {
    let (leader, workers, port) = (party.leader(), party.count(WORKER).to_string(), XGBOOST_PORT.to_string());
    let others: Vec<String> = party.hosts(WORKER).into_iter().skip(1).collect();
    vec![
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("MASTER_ADDR", leader.clone()),
        ("MASTER_PORT", port.clone()),
        ("WORLD_SIZE", workers.clone()),
        ("RANK", index()),
        ("WORKER_ADDRS", others.join(",")),
        ("WORKER_PORT", port.clone()),
        ("DMLC_TRACKER_URI", leader),
        ("DMLC_TRACKER_PORT", port),
        ("DMLC_NUM_WORKER", workers),
        ("DMLC_TASK_ID", index()),
    ]
}

/// Variables of Paddle, which `paddle.distributed.launch` reads in place of its flags. The pod whose own address is the master's address serves the others, so
/// each pod gets its own name as its address (`POD_IP` stands for `--host`).
pub(super) fn paddle(party: &Party<'_>) -> Variables {
    vec![
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("PADDLE_JOB_ID", party.job.name().to_owned()),
        ("PADDLE_MASTER", format!("{}:{PADDLE_PORT}", party.leader())),
        ("PADDLE_NNODES", party.count(WORKER).to_string()),
        ("PADDLE_RANK", index()),
        ("POD_IP", party.own_host(WORKER)),
        ("PADDLE_NPROC_PER_NODE", party.gpus.max(1).to_string()),
    ]
}

/// Variables of JAX: coordinator, number of processes and process id, under the names of Kubeflow's JAXJob and under JAX's own names.
pub(super) fn jax(party: &Party<'_>) -> Variables {
    let (leader, processes) = (party.leader(), party.count(WORKER).to_string());
    vec![
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("COORDINATOR_ADDRESS", leader.clone()),
        ("COORDINATOR_PORT", JAX_PORT.to_string()),
        ("NUM_PROCESSES", processes.clone()),
        ("PROCESS_ID", index()),
        ("JAX_COORDINATOR_ADDRESS", format!("{leader}:{JAX_PORT}")),
        ("JAX_NUM_PROCESSES", processes),
        ("JAX_PROCESS_ID", index()),
    ]
}
