//! The environment variables that each framework documents, for the pod with index 2.

use super::{container, job, run, variable};
use serde_json::{Value, json};

fn check(job_type: &str, more: Value, role: &str, expected: &[(&str, &str)]) {
    let all = run(&job(job_type, more));
    let service = &all[0].name;
    let container = container(&all, role);
    for (name, value) in expected {
        let value = value.replace("LEADER", &format!("gpt-worker-0.{service}")).replace("SERVICE", service);
        assert_eq!(variable(&container, name, 2).as_deref(), Some(value.as_str()), "{job_type}: {name}");
    }
}

#[test]
fn torchrun_workers_get_master_rank_and_elastic_variables() {
    let both = [("MASTER_ADDR", "LEADER"), ("MASTER_PORT", "29500"), ("WORLD_SIZE", "3"), ("RANK", "2")];
    let fixed = [
        ("PET_NNODES", "3"),
        ("PET_NPROC_PER_NODE", "8"),
        ("PET_NODE_RANK", "2"),
        ("PET_MASTER_ADDR", "LEADER"),
        ("PET_MASTER_PORT", "29500"),
    ];
    check("PyTorchJob", json!({}), "worker", &[both.as_slice(), &fixed].concat());
    let elastic = json!({"resources": {"minReplicas": 2}, "elasticConfig": {"enabled": true}});
    let expected = [
        ("PET_NNODES", "2:3"),
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_RDZV_ENDPOINT", "LEADER:29500"),
        ("PET_MAX_RESTARTS", "20"),
    ];
    check("PyTorchJob", elastic, "worker", &expected);
}

#[test]
fn tensorflow_replicas_get_cluster_and_task_in_tf_config() {
    let roles = json!({"roles": [{"name": "chief"}, {"name": "ps", "replicas": 2}, {"name": "evaluator"}]});
    let all = run(&job("TFJob", roles));
    let service = &all[0].name;
    let config = |role: &str, index: usize| -> Value {
        serde_json::from_str(&variable(&container(&all, role), "TF_CONFIG", index).unwrap()).unwrap()
    };
    let host = |role: &str, index: usize| format!("gpt-{role}-{index}.{service}:2222");
    let cluster = json!({
        "chief": [host("chief", 0)],
        "ps": [host("ps", 0), host("ps", 1)],
        "worker": [host("worker", 0), host("worker", 1), host("worker", 2)],
    });
    for (role, index) in [("chief", 0), ("ps", 1), ("worker", 2), ("evaluator", 0)] {
        let expected = json!({"cluster": cluster, "task": {"type": role, "index": index}});
        assert_eq!(config(role, index), expected, "{role}");
    }
}

#[test]
fn xgboost_workers_get_tracker_rank_and_worker_addresses() {
    check(
        "XGBoostJob",
        json!({}),
        "worker",
        &[
            ("MASTER_ADDR", "LEADER"),
            ("MASTER_PORT", "9999"),
            ("WORLD_SIZE", "3"),
            ("RANK", "2"),
            ("WORKER_ADDRS", "gpt-worker-1.SERVICE,gpt-worker-2.SERVICE"),
            ("WORKER_PORT", "9999"),
            ("DMLC_TRACKER_URI", "LEADER"),
            ("DMLC_TRACKER_PORT", "9999"),
            ("DMLC_NUM_WORKER", "3"),
            ("DMLC_TASK_ID", "2"),
        ],
    );
}

#[test]
fn paddle_workers_get_master_rank_and_own_address() {
    check(
        "PaddleJob",
        json!({}),
        "worker",
        &[
            ("PADDLE_JOB_ID", "gpt"),
            ("PADDLE_MASTER", "LEADER:36543"),
            ("PADDLE_NNODES", "3"),
            ("PADDLE_RANK", "2"),
            // Each pod gets its own name as `POD_IP`, because the launcher whose own address is the master's address starts the server, and only the pod with
            // rank 0 may do so.
            ("POD_IP", "gpt-worker-2.SERVICE"),
            ("PADDLE_NPROC_PER_NODE", "8"),
        ],
    );
}

#[test]
fn jax_workers_get_coordinator_and_process_id() {
    check(
        "JAXJob",
        json!({}),
        "worker",
        &[
            ("COORDINATOR_ADDRESS", "LEADER"),
            ("COORDINATOR_PORT", "6666"),
            ("NUM_PROCESSES", "3"),
            ("PROCESS_ID", "2"),
            ("JAX_COORDINATOR_ADDRESS", "LEADER:6666"),
            ("JAX_NUM_PROCESSES", "3"),
            ("JAX_PROCESS_ID", "2"),
        ],
    );
}

#[test]
fn mpi_launcher_gets_host_files_and_idle_workers_run_sshd() {
    let ssh = json!({"mpi": {"sshAuthSecret": "keys", "sshAuthMountPath": "/etc/mpi-keys"}});
    let all = run(&job("MPIJob", ssh));
    let service = &all[0].name;
    let lines =
        |between: &str| -> String { (0..3).map(|index| format!("gpt-worker-{index}.{service}{between}8\n")).collect() };
    assert_eq!(all[1].body["data"], json!({"hostfile": lines(" slots="), "machinefile": lines(":")}));
    let launcher = container(&all, "launcher");
    for (name, file) in [
        ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        ("PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile"),
        ("I_MPI_HYDRA_HOST_FILE", "/etc/mpi/machinefile"),
        ("HYDRA_HOST_FILE", "/etc/mpi/machinefile"),
    ] {
        assert_eq!(variable(&launcher, name, 0).as_deref(), Some(file), "{name}");
    }
    for name in ["OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_plm_ssh_no_tree_spawn"] {
        assert_eq!(variable(&launcher, name, 0).as_deref(), Some("true"), "{name}");
    }
    for name in ["OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args"] {
        let reported = variable(&launcher, name, 0);
        assert_eq!(reported.as_deref(), Some("-o ConnectionAttempts=10 -o StrictHostKeyChecking=no"), "{name}");
    }
    let mounts = |container: &Value| -> Vec<String> {
        let all = container["volumeMounts"].as_array().unwrap();
        all.iter().map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(mounts(&launcher), ["/etc/mpi", "/etc/mpi-keys"]);
    let worker = container(&all, "worker");
    assert_eq!(mounts(&worker), ["/etc/mpi-keys"]);
    assert_eq!(worker["command"], json!(["train"]), "the user's own command stays");
    let idle = job("MPIJob", json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}));
    assert_eq!(container(&run(&idle), "worker")["command"], json!(["/usr/sbin/sshd", "-De"]));
    assert_eq!(launcher["resources"]["limits"], Value::Null, "a launcher needs no cards");
}

#[test]
fn user_variable_in_template_wins_over_framework_variable() {
    let env = json!([{"name": "MASTER_PORT", "value": "1234"}, {"name": "MINE", "value": "$(RANK)"}]);
    let own = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}});
    let container = container(&run(&job("PyTorchJob", own)), "worker");
    assert_eq!(variable(&container, "MASTER_PORT", 0).as_deref(), Some("1234"));
    let names: Vec<&str> = container["env"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| **name == "MASTER_PORT").count(), 1);
    assert_eq!(names.last(), Some(&"MINE"), "it may refer to ours");
}
