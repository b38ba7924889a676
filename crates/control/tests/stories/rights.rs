//! The chart grants the writes that Berth makes, and no other write. Every other story shows that the granted rights are sufficient (`cluster/rights.rs`).

use std::collections::BTreeSet;

use berth_control::write::{Kind, Subresource};

use crate::stories::cluster::rights::{GRANTED, Right, of_secrets, right};

/// The verbs of Berth's writes to every job kind that can be suspended, with the purposes of the writes; only Jobs have writes of the last purpose in each
/// line.
const WRITTEN_OF_JOBS: [(&str, &str); 2] = [
    ("patch", "StartJob, SuspendJob, RestoreTemplate, ScaleTraining"),
    ("delete", "DeleteJob, DeleteChild, StopTraining"),
];

/// The writes to other kinds: kind, subresource, verb, and the purposes of the writes. A job kind whose status Berth writes has a line in this table as well.
const WRITTEN: [(Kind, Subresource, &str, &str); 28] = [
    (Kind::Workload, Subresource::None, "create", "CreateWorkload"),
    (Kind::Workload, Subresource::None, "patch", "UpdateWorkload, AdoptWorkload, ScaleTraining, finalizers and others"),
    (Kind::Workload, Subresource::None, "delete", "DeleteWorkload"),
    (Kind::Workload, Subresource::Status, "patch", "ReserveQuota and most others"),
    (Kind::ClusterQueue, Subresource::None, "patch", "AddFinalizer"),
    (Kind::ClusterQueue, Subresource::Status, "patch", "QueueStatus"),
    (Kind::LocalQueue, Subresource::Status, "patch", "QueueStatus"),
    (Kind::Cohort, Subresource::Status, "patch", "QueueStatus"),
    (Kind::ResourceFlavor, Subresource::None, "patch", "AddFinalizer"),
    (Kind::AdmissionCheck, Subresource::None, "patch", "AddFinalizer"),
    (Kind::AdmissionCheck, Subresource::Status, "patch", "ActivateCheck"),
    (Kind::QueuePolicy, Subresource::Status, "patch", "QueueStatus"),
    (Kind::TrainingJob, Subresource::None, "delete", "DeleteJob"),
    (Kind::TrainingJob, Subresource::Status, "patch", "TrainingStatus"),
    (Kind::Service, Subresource::None, "create", "PrepareTraining"),
    (Kind::Service, Subresource::None, "patch", "PrepareTraining"),
    (Kind::ConfigMap, Subresource::None, "create", "PrepareTraining"),
    (Kind::ConfigMap, Subresource::None, "patch", "PrepareTraining"),
    (Kind::JOB, Subresource::None, "create", "StartTraining"),
    (Kind::JOB, Subresource::Status, "patch", "ClearStartTime"),
    (Kind::Pod, Subresource::None, "patch", "StartJob, MarkPod, ReleasePod, NotifyPods"),
    (Kind::Pod, Subresource::None, "delete", "DeletePod"),
    (Kind::Pod, Subresource::Status, "patch", "CondemnPod"),
    (Kind::ProvisioningRequest, Subresource::None, "create", "RequestCapacity"),
    (Kind::ProvisioningRequest, Subresource::None, "delete", "WithdrawRequest"),
    (Kind::PodTemplate, Subresource::None, "create", "PreparePodTemplate"),
    (Kind::PodTemplate, Subresource::None, "patch", "PreparePodTemplate"),
    (Kind::PodTemplate, Subresource::None, "delete", "WithdrawPodTemplate"),
];

#[test]
fn chart_grants_exactly_the_write_verbs_that_berth_uses() {
    let of_jobs = Kind::jobs().flat_map(|kind| WRITTEN_OF_JOBS.map(|(verb, _)| right(kind, Subresource::None, verb)));
    let used: BTreeSet<Right> = WRITTEN
        .iter()
        .map(|(kind, subresource, verb, _)| right(*kind, *subresource, verb))
        .chain(of_jobs)
        // The right to create Kubernetes events.
        .chain([("events.k8s.io".to_owned(), "events".to_owned(), "create".to_owned())])
        // The rights with which the runtime checks users who read metrics or write TrainingJobs.
        .chain(
            [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
                .map(|(group, resource)| (group.to_owned(), resource.to_owned(), "create".to_owned())),
        )
        .collect();
    let writes = |(_, resource, verb): &&Right| {
        !["get", "list", "watch"].contains(&verb.as_str()) && !resource.ends_with("/finalizers")
    };
    let granted: BTreeSet<Right> = GRANTED.iter().filter(writes).cloned().collect();
    let idle: Vec<&Right> = granted.difference(&used).collect();
    let missing: Vec<&Right> = used.difference(&granted).collect();
    assert!(idle.is_empty() && missing.is_empty(), "granted for nothing: {idle:?}; missing: {missing:?}");
}

/// A client that makes an object that blocks the deletion of its owner must be allowed to update the owner's finalizers, if the API server enforces this rule
/// (OwnerReferencesPermissionEnforcement).
#[test]
fn chart_grants_update_of_finalizers_for_all_owner_kinds() {
    let others = ["pods", "provisioningrequests", "statefulsets", "trainingjobs", "workloads"];
    let owners = Kind::jobs().map(|kind| kind.resource_kind().unwrap().resource().2).chain(others);
    let granted: BTreeSet<String> =
        GRANTED.iter().filter(|right| right.2 == "update").map(|right| right.1.clone()).collect();
    let wanted: BTreeSet<String> = owners.map(|owner| format!("{owner}/finalizers")).collect();
    assert_eq!(granted, wanted);
}

#[test]
fn chart_grants_no_read_of_tenant_secrets() {
    assert!(of_secrets("rules.yaml").is_empty(), "in the whole cluster: {:?}", of_secrets("rules.yaml"));
    // In Berth's own namespace, the chart names the Secrets that Berth may read.
    let own = of_secrets("namespace-rules.yaml");
    let are_named = own.iter().all(|(names, verbs)| !names.is_empty() || *verbs == ["create"]);
    assert!(!own.is_empty() && are_named, "{own:?}");
}
