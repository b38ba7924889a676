//! Fields that decide whether or where a job may run, and that Berth does not support yet: a job with such a field waits, its status names the field, and other
//! jobs of the queue are admitted.

use berth_control::settings::Settings;
use berth_control::write::{Kind, Purpose};
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, job, local_queue, made_before, merge, settings};
use crate::stories::{one_queue, pod_queue, with_queue};

const CLAIMS: &str = "spec.podSets[0].template.spec.resourceClaims";
const CONTAINER_CLAIMS: &str = "spec.podSets[0].template.spec.containers[name=c].resources.claims";
const INIT_CLAIMS: &str = "spec.podSets[0].template.spec.initContainers[name=i].resources.claims";
const GATES: &str = "spec.preemptionGates";
const TOPOLOGY: &str = "spec.podSets[0].topologyRequest";

/// Reason and message of the condition `QuotaReserved` of a Workload without quota.
fn condition_of(workload: &Value) -> (String, String) {
    let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let reserved = conditions.into_iter().find(|condition| condition["type"] == json!("QuotaReserved"));
    let reserved = reserved.unwrap_or_default();
    assert_eq!(reserved["status"], json!("False"), "{workload}");
    let text = |key: &str| reserved[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

fn names(field: &str) -> (String, String) {
    ("Misconfigured".to_owned(), format!("{field} is not supported yet"))
}

/// Asserts that job `held` waits because of `field`, for any time and under any leader, and that a job that is created after `held` is admitted.
fn held_alone(cluster: &mut Cluster, field: &str) {
    cluster.put(Kind::JOB, job("free", "lq", "1", true));
    cluster.pass(5);
    for _ in 0..2 {
        assert_eq!(condition_of(cluster.workload_of("held").expect(field)), names(field));
        assert_eq!(cluster.job("held")["spec"]["suspend"], json!(true), "{field}");
        assert!(cluster.is("free", "Admitted"), "{field}: it stands in nobody's way");
        assert_eq!(cluster.count(Purpose::ReserveQuota), 1, "{field}");
        cluster.restart();
        cluster.pass(600);
    }
}

/// A suspended Job `held`; `more` is merged into its pod template.
fn with_template(more: &Value) -> Value {
    let mut held = job("held", "lq", "1", true);
    merge(&mut held["spec"]["template"], more);
    held
}

#[test]
fn job_with_topology_request_waits_until_the_request_is_removed() {
    for (annotation, level) in [
        ("kueue.x-k8s.io/podset-required-topology", "rack"),
        ("kueue.x-k8s.io/podset-preferred-topology", "rack"),
        ("kueue.x-k8s.io/podset-unconstrained-topology", "true"),
    ] {
        let annotations = |value: Value| json!({"annotations": {(annotation): value}});
        let mut cluster = one_queue("2");
        cluster.put(Kind::JOB, with_template(&json!({"metadata": annotations(json!(level))})));
        held_alone(&mut cluster, TOPOLOGY);
        let without = json!({"spec": {"template": {"metadata": annotations(Value::Null)}}});
        cluster.edit(Kind::JOB, "team", "held", &without);
        cluster.pass(5);
        assert!(cluster.is("held", "Admitted"), "{annotation}: {:?}", cluster.workload_of("held"));
    }
}

#[test]
fn job_with_device_claims_waits_until_recreated_without_them() {
    let claims = json!({"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]});
    let container = |name: &str| json!([{"name": name, "image": "i", "resources": claims}]);
    for (more, field) in [
        (json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}), CLAIMS),
        (json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "any"}]}), CLAIMS),
        (json!({"containers": container("c")}), CONTAINER_CLAIMS),
        (json!({"initContainers": container("i")}), INIT_CLAIMS),
    ] {
        let mut cluster = one_queue("2");
        cluster.put(Kind::JOB, with_template(&json!({ "spec": more })));
        held_alone(&mut cluster, field);
        cluster.delete(&Cluster::key(Kind::JOB, "team", "held"));
        cluster.pass(5);
        cluster.put(Kind::JOB, job("held", "lq", "1", true));
        cluster.pass(5);
        assert!(cluster.is("held", "Admitted"), "{:?}", cluster.workload_of("held"));
    }
}

#[test]
fn job_with_foreign_managed_by_waits_until_recreated_with_default() {
    for (kind, usual) in
        [(Kind::JOB, "kubernetes.io/job-controller"), (Kind::JOB_SET, "jobset.sigs.k8s.io/jobset-controller")]
    {
        for manager in ["kueue.x-k8s.io/multikueue", "example.com/their-controller"] {
            let managed_by = |manager: &str| {
                let mut held = job("held", "lq", "1", true);
                held["spec"]["managedBy"] = json!(manager);
                if kind == Kind::JOB_SET {
                    let template = held["spec"]["template"].take();
                    held["spec"] = json!({"suspend": true, "managedBy": manager,
                        "replicatedJobs": [{"name": "job", "template": {"spec": {"template": template}}}]});
                    held["status"] = json!({"conditions": [{"type": "Suspended", "status": "True", "reason": "SuspendedJobs",
                        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
                }
                held
            };
            let mut cluster = one_queue("2");
            let key = Cluster::key(kind, "team", "held");
            let workload = |cluster: &Cluster| {
                let uid = &cluster.objects()[&key]["metadata"]["uid"];
                let owned = |object: &&Value| &object["metadata"]["ownerReferences"][0]["uid"] == uid;
                cluster.objects().values().find(owned).expect("a Workload").clone()
            };
            cluster.put(kind, managed_by(manager));
            cluster.pass(5);
            cluster.put(Kind::JOB, job("free", "lq", "1", true));
            cluster.pass(600);
            assert_eq!(condition_of(&workload(&cluster)), names(&format!("spec.managedBy: {manager:?}")));
            assert_eq!(cluster.objects()[&key]["spec"]["suspend"], json!(true), "{kind:?}");
            assert!(cluster.is("free", "Admitted"), "{kind:?}: it stands in nobody's way");
            // The job is deleted and created again, because the field `spec.managedBy` cannot change.
            cluster.delete(&key);
            cluster.pass(5);
            cluster.put(kind, managed_by(usual));
            cluster.pass(5);
            assert_eq!(cluster.objects()[&key]["spec"]["suspend"], json!(false), "{kind:?} {:?}", cluster.writes);
        }
    }
}

#[test]
fn pod_with_device_claims_stays_gated_with_reason() {
    let mut cluster = pod_queue("2");
    let mut pod = crate::stories::pods::pod("held", "1");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "one"}]);
    cluster.put(Kind::Pod, pod);
    held_pod(&mut cluster);
    cluster.put(Kind::JOB, job("free", "lq", "1", true));
    cluster.pass(600);
    assert!(cluster.is("free", "Admitted"));
    held_pod(&mut cluster);
}

/// Asserts that the status of the pod's only Workload names the claims of the pod, and that the pod keeps its gate.
fn held_pod(cluster: &mut Cluster) {
    cluster.pass(5);
    let of_pod = |object: &&Value| object["metadata"]["ownerReferences"][0]["kind"] == json!("Pod");
    let workloads = cluster.objects().iter().filter(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object);
    let workloads: Vec<&Value> = workloads.filter(of_pod).collect();
    assert_eq!(workloads.len(), 1, "{workloads:?}");
    assert_eq!(condition_of(workloads[0]), names(CLAIMS));
    let pod = &cluster.objects()[&Cluster::key(Kind::Pod, "team", "held")];
    assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/admission"}]));
}

#[test]
fn prebuilt_workload_with_unsupported_field_waits_until_field_is_removed() {
    let plain = made_before(&job("x", "lq", "1", true)["spec"]["template"]);
    let mut gated = plain.clone();
    gated["spec"]["preemptionGates"] = json!([{"name": "example.com/gate"}]);
    let mut placed = plain.clone();
    placed["spec"]["podSets"][0]["topologyRequest"] = json!({"required": "rack"});
    let without = json!({"spec": {"preemptionGates": null, "podSets": plain["spec"]["podSets"]}});
    for (workload, field) in [(gated, GATES), (placed, TOPOLOGY)] {
        let mut cluster = one_queue("2");
        cluster.put(Kind::Workload, workload);
        let mut held = job("held", "lq", "1", true);
        held["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("before");
        cluster.put(Kind::JOB, held);
        held_alone(&mut cluster, field);
        cluster.edit(Kind::Workload, "team", "before", &without);
        cluster.pass(5);
        assert!(cluster.is("held", "Admitted"), "{field}: {:?}", cluster.workload_of("held"));
    }
}

#[test]
fn queue_with_concurrent_admission_policy_is_inactive_and_evicts_nothing() {
    for allowed_flavors in [false, true] {
        stops_nobody(Settings { allowed_flavors, ..settings() });
    }
}

fn stops_nobody(settings: Settings) {
    let mut cluster = with_queue(Cluster::with(settings), "2");
    cluster.put(Kind::ClusterQueue, cluster_queue("other", None, &[("default", "1")]));
    cluster.put(Kind::LocalQueue, local_queue("other", "other"));
    cluster.put(Kind::JOB, job("runs", "lq", "1", true));
    cluster.pass(5);
    let policy = |policy: Value| json!({"spec": {"concurrentAdmissionPolicy": policy}});
    let mode = json!({"migration": {"mode": "TryPreferredFlavors"}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &policy(mode));
    cluster.put(Kind::JOB, job("waits", "lq", "1", true));
    cluster.put(Kind::JOB, job("elsewhere", "other", "1", true));
    cluster.pass(600);
    let active = |cluster: &Cluster| {
        let queue = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")];
        let conditions = queue["status"]["conditions"].as_array().unwrap();
        let active = conditions.iter().find(|condition| condition["type"] == json!("Active")).unwrap();
        (active["status"].clone(), active["message"].as_str().unwrap().to_owned())
    };
    let message = "spec.concurrentAdmissionPolicy is not supported by Berth yet; make the ClusterQueue anew without it to \
                   admit workloads";
    assert_eq!(active(&cluster), (json!("False"), message.to_owned()));
    let inactive = ("Suspended".to_owned(), format!("ClusterQueue cq is inactive: {message}"));
    assert_eq!(condition_of(cluster.workload_of("waits").unwrap()), inactive);
    assert_eq!(cluster.job("waits")["spec"]["suspend"], json!(true));
    assert_eq!(cluster.job("runs")["spec"]["suspend"], json!(false));
    assert!(cluster.is("runs", "Admitted") && cluster.is("elsewhere", "Admitted"));
    cluster.edit(Kind::ClusterQueue, "", "cq", &policy(Value::Null));
    cluster.pass(10);
    assert_eq!(active(&cluster).0, json!("True"));
    assert!(cluster.is("waits", "Admitted"), "{:?}", cluster.workload_of("waits"));
}
