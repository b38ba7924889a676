//! The number of GPUs that a policy allows one job: a job that can run with fewer pods gets as many GPUs as the policy allows, and no more.

use berth_control::settings::Settings;
use berth_control::write::Kind;
use berth_jobs::training::Accelerators;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, flavor, job, local_queue, settings};
use crate::stories::elastic::elastic;

/// A ClusterQueue with enough cpus and eight GPUs, whose policy allows one job at most `most` GPUs.
fn allowing(settings: Settings, most: i64) -> Cluster {
    allowing_of(settings, "nvidia.com/gpu", most)
}

/// A ClusterQueue with enough cpus and eight GPUs of the given resource, whose policy allows one job at most `most` GPUs.
fn allowing_of(settings: Settings, resource: &str, most: i64) -> Cluster {
    let mut cluster = Cluster::with(settings);
    cluster.put(Kind::ResourceFlavor, flavor("spot", json!({"cloud": "spot"})));
    let quota = |name: &str, amount: &str| json!({"name": name, "nominalQuota": amount});
    let flavors = json!([{"name": "spot", "resources": [quota("cpu", "100"), quota(resource, "8")]}]);
    let groups = json!([{"coveredResources": ["cpu", resource], "flavors": flavors}]);
    let queue = json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    let limits = json!({"clusterQueues": ["cq"], "admission": {"maxGPUsPerJob": most}});
    cluster.put(Kind::QueuePolicy, json!({"metadata": {"name": "p"}, "spec": limits}));
    cluster
}

fn allow(cluster: &mut Cluster, most: i64) {
    cluster.edit(Kind::QueuePolicy, "", "p", &json!({"spec": {"admission": {"maxGPUsPerJob": most}}}));
}

/// A TrainingJob with two to four workers of one GPU each.
fn workers(kind: &str) -> Value {
    let mut job = elastic("a", json!({"scaleUpStep": 2}));
    job["spec"]["jobType"] = json!(kind);
    job["spec"]["resources"]["replicaResources"] = json!({"cpu": "1", "gpu": 1});
    job
}

/// A Job of six pods of one GPU each that accepts two pods.
fn wide() -> Value {
    let mut object = job("wide", "lq", "1", true);
    object["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    object["spec"]["parallelism"] = json!(6);
    object["spec"]["completions"] = json!(6);
    for field in ["requests", "limits"] {
        object["spec"]["template"]["spec"]["containers"][0]["resources"][field]["nvidia.com/gpu"] = json!("1");
    }
    object
}

fn given(cluster: &Cluster) -> Value {
    cluster.workload_of("wide").unwrap()["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["nvidia.com/gpu"]
        .clone()
}

#[test]
fn elastic_training_job_gets_workers_up_to_policy_gpu_limit() {
    for kind in ["PyTorchJob", "JAXJob"] {
        let mut cluster = allowing(settings(), 3);
        cluster.put(Kind::TrainingJob, workers(kind));
        cluster.pass(60);
        assert_eq!((cluster.workers("a"), cluster.phase("a")), (3, "Running"), "{kind}: there is quota for eight");
        assert_eq!(cluster.training("a")["status"]["allocatedResources"]["gpus"], 3);
        allow(&mut cluster, 9);
        cluster.pass(60);
        let grows = kind == "PyTorchJob";
        assert_eq!(cluster.workers("a"), if grows { 4 } else { 3 }, "{kind}");
    }
}

#[test]
fn policy_gpu_limit_counts_configured_and_other_vendors_accelerators() {
    let mut reported = settings();
    let label = "cloud.google.com/gke-tpu-accelerator";
    reported.accelerators = Accelerators { resource: "google.com/tpu".into(), type_label: label.into() };
    let mut cluster = allowing_of(reported, "google.com/tpu", 3);
    let mut job = workers("JAXJob");
    job["spec"]["resources"]["gpuType"] = json!("tpu-v6e-slice");
    cluster.put(Kind::TrainingJob, job);
    cluster.pass(60);
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (3, "Running"), "there is quota for eight");
    assert_eq!(cluster.training("a")["status"]["allocatedResources"]["gpus"], 3);
    let pod = &cluster.job("a-worker")["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"][label], "tpu-v6e-slice");
    assert_eq!(pod["containers"][0]["resources"]["limits"], json!({"google.com/tpu": "1"}));
    // In this TrainingJob, the pod template of the workers requests the GPU.
    let mut cluster = allowing_of(settings(), "amd.com/gpu", 3);
    let mut job = workers("JAXJob");
    job["spec"]["resources"]["replicaResources"] = json!({"cpu": "1"});
    for field in ["requests", "limits"] {
        job["spec"]["template"]["spec"]["containers"][0]["resources"][field]["amd.com/gpu"] = json!("1");
    }
    cluster.put(Kind::TrainingJob, job);
    cluster.pass(60);
    assert_eq!((cluster.workers("a"), cluster.phase("a")), (3, "Running"), "there is quota for eight");
    assert_eq!(cluster.training("a")["status"]["allocatedResources"]["gpus"], 3);
}

#[test]
fn elastic_scale_up_stops_at_policy_gpu_limit() {
    let mut cluster = allowing(settings(), 2);
    cluster.put(Kind::TrainingJob, workers("PyTorchJob"));
    cluster.pass(60);
    assert_eq!(cluster.workers("a"), 2);
    allow(&mut cluster, 3);
    cluster.pass(60);
    assert_eq!(cluster.workers("a"), 3, "not the whole step of two");
}

#[test]
fn job_whose_minimum_exceeds_policy_gpu_limit_waits_with_reason() {
    let mut cluster = allowing(settings(), 1);
    cluster.put(Kind::JOB, wide());
    cluster.pass(5);
    let found_condition = cluster.condition("wide", "QuotaReserved").unwrap();
    let words = "QueuePolicy p: spec.admission.maxGPUsPerJob is 1, and the workload asks for 2 at least";
    assert_eq!((&found_condition["reason"], &found_condition["message"]), (&json!("AdmissionLimit"), &json!(words)));
    allow(&mut cluster, 4);
    cluster.pass(5);
    assert_eq!((given(&cluster), &cluster.job("wide")["spec"]["parallelism"]), (json!("4"), &json!(4)));
    // The limit of GPUs per job does not affect a running job until the job starts again.
    allow(&mut cluster, 3);
    cluster.pass(60);
    assert!(cluster.is("wide", "Admitted") && given(&cluster) == json!("4"));
    for policy in ["HoldAndDrain", "None"] {
        cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": policy}}));
        cluster.pass(10);
    }
    assert_eq!((given(&cluster), &cluster.job("wide")["spec"]["parallelism"]), (json!("3"), &json!(3)));
}

#[test]
fn policy_gpu_limit_counts_all_pods_without_partial_admission() {
    let mut settings = settings();
    settings.engine.partial_admission = false;
    let mut cluster = allowing(settings, 4);
    cluster.put(Kind::JOB, wide());
    cluster.pass(5);
    let found_condition = cluster.condition("wide", "QuotaReserved").unwrap();
    let words = "QueuePolicy p: spec.admission.maxGPUsPerJob is 4, and the workload asks for 6";
    assert_eq!((&found_condition["reason"], &found_condition["message"]), (&json!("AdmissionLimit"), &json!(words)));
}
