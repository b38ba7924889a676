//! Tests of event messages as autoscalers write them, and the decision that Berth reads from each message; the names of pools and zones are invented.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use serde_json::json;

const CLUSTER_AUTOSCALER: &str = "cluster-autoscaler";
const SCHEDULER: &str = "default-scheduler";

/// The last refusal of an autoscaler in these events; each event has a time in seconds, a component, a reason and a message.
fn word(text: &[(&str, &str, &str, &str)]) -> Option<String> {
    let event = |(at, component, reason, message): &(&str, &str, &str, &str)| {
        serde_json::from_value(json!({"metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
            "lastTimestamp": format!("2026-01-01T00:00:{at}Z"), "source": {"component": component}}))
        .unwrap()
    };
    last_refusal(&text.iter().map(event).collect::<Vec<Event>>())
}

fn all_are(component: &str, reason: &str, refusals: bool, messages: &[&str]) {
    for &message in messages {
        let expected = refusals.then(|| message.to_owned());
        assert_eq!(word(&[("01", component, reason, message)]), expected, "{component} {reason}: {message}");
    }
}

#[test]
fn karpenter_event_of_exhausted_capacity_is_recognized() {
    let messages = [
        "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=gpu-spot)",
        "Failed to schedule pod, all available instance types exceed limits for nodepool: \"gpu-spot\"",
        "Failed to schedule pod, all available instance types exceed limits for provisioner: \"gpu-spot\"",
        "Failed to schedule pod, node limits have been exhausted for nodepool (NodePool=gpu-spot)",
        "Failed to schedule pod, incompatible with nodepool \"system\", daemonset \
         overhead={\"cpu\":\"821m\",\"memory\":\"1350Mi\",\"pods\":\"10\"}, did not tolerate \
         CriticalAddonsOnly=true:NoSchedule; all available instance types exceed limits for nodepool: \"gpu-spot\"",
        "Failed to schedule pod, no instance type has the required offering, requirements=karpenter.sh/capacity-type \
         In [spot], karpenter.sh/nodepool In [gpu], \
         resources={\"cpu\":\"1\",\"nvidia.com/gpu\":\"8\",\"pods\":\"4\"}",
        "Failed to schedule pod, no instance type which met the scheduling requirements and had enough resources, had \
         a required offering, requirements=karpenter.sh/capacity-type In [spot], \
         resources={\"nvidia.com/gpu\":\"8\"}",
        "Failed to schedule pod, no instance type met the scheduling requirements or had enough resources or had a \
         required offering, requirements=karpenter.sh/capacity-type In [reserved], \
         resources={\"nvidia.com/gpu\":\"8\"}",
        "Failed to schedule pod, incompatible with nodepool \"gpu\", daemonset \
         overhead={\"cpu\":\"655m\",\"pods\":\"7\"}, no instance type satisfied resources \
         {\"cpu\":\"2655m\",\"pods\":\"8\"} and requirements karpenter.sh/capacity-type In [spot] (no instance type \
         met the scheduling requirements or had a required offering)",
        "Failed to schedule pod, nodepool requirements filtered out all available instance types",
    ];
    for component in KARPENTER {
        all_are(component, "FailedScheduling", true, &messages);
    }
    all_are(SCHEDULER, "FailedScheduling", false, &messages);
}

#[test]
fn karpenter_event_of_unsuitable_instance_types_is_no_capacity_shortage() {
    let messages = [
        "Failed to schedule pod, incompatible requirements, label \"workload\" does not have known values",
        "Failed to schedule pod, incompatible with nodepool \"system\", daemonset \
         overhead={\"cpu\":\"821m\",\"pods\":\"10\"}, did not tolerate workload-type=ci-runner:NoSchedule",
        "Failed to schedule pod, no instance type has enough resources, requirements=karpenter.sh/nodepool In [gpu], \
         resources={\"nvidia.com/gpu\":\"64\"}",
        "Failed to schedule pod, no instance type met all requirements, requirements=node.kubernetes.io/instance-type \
         In [p9.huge], resources={\"pods\":\"4\"}",
        "Failed to schedule pod, no instance type met the scheduling requirements or had enough resources, \
         requirements=kubernetes.io/arch In [arm64], resources={\"nvidia.com/gpu\":\"8\"}",
        "Failed to schedule pod, no instance type which had enough resources and the required offering met the \
         scheduling requirements, requirements=kubernetes.io/arch In [arm64], resources={\"pods\":\"4\"}",
        "Failed to schedule pod, no instance type which met the scheduling requirements and the required offering had \
         the required resources, requirements=kubernetes.io/arch In [amd64], resources={\"cpu\":\"900\"}",
        "Failed to schedule pod, no instance type met the requirements/resources/offering tuple, \
         requirements=kubernetes.io/arch In [amd64], resources={\"cpu\":\"9\"}",
        "Failed to schedule pod, no instance type met the scheduling requirements or had a required offering, \
         requirements=karpenter.sh/capacity-type In [on-demand spot], topology.kubernetes.io/zone DoesNotExist, \
         resources={\"cpu\":\"4180m\"}",
        "Failed to schedule pod, unbound pvc must define a storage class (PersistentVolumeClaim=default/data, \
         StorageClass=)",
    ];
    for component in KARPENTER {
        all_are(component, "FailedScheduling", false, &messages);
    }
}

#[test]
fn cluster_autoscaler_event_of_exhausted_capacity_is_recognized() {
    let none_larger = [
        "pod didn't trigger scale-up: 1 in backoff after failed scale-up",
        "(combined from similar events): pod didn't trigger scale-up: 1 in backoff after failed scale-up, 6 node(s) \
         had taint {workload: always-on}, that the pod didn't tolerate",
        "pod didn't trigger scale-up: 12 node(s) didn't match Pod's node affinity/selector, 3 max node group size \
         reached",
        "pod didn't trigger scale-up (it wouldn't fit if a new node is added): 1 max limit reached",
        "pod didn't trigger scale-up: 2 max cluster cpu, memory limit reached",
        "pod didn't trigger scale-up: 1 max cluster nvidia-h100-80gb limit reached",
        "pod didn't trigger scale-up: 4 max total nodes in cluster reached",
        "pod didn't trigger scale-up: 1 exceeded quota: \"cluster-wide\", resources: nvidia.com/gpu",
    ];
    all_are(CLUSTER_AUTOSCALER, "NotTriggerScaleUp", true, &none_larger);
    let failed = [
        "Node scale up in zones us-central1-c associated with this pod failed: GCE out of resources. Pod is at risk \
         of not being scheduled.",
        "Node scale up in zones us-central1-c, us-central1-a associated with this pod failed: GCE quota exceeded, GCE \
         out of resources. Pod is at risk of not being scheduled.",
        "Node scale up in zones us-central1-c associated with this pod failed: GCE quota exceeded. Pod is at risk of \
         not being scheduled.",
        "Node scale up in zones us-central1-c associated with this pod failed: IP space exhausted. Pod is at risk of \
         not being scheduled.",
        "Node scale up in zones us-central1-c associated with this pod failed: Internal error. Pod is at risk of not \
         being scheduled.",
    ];
    all_are(CLUSTER_AUTOSCALER, "FailedScaleUp", true, &failed);
}

#[test]
fn cluster_autoscaler_event_of_unsuitable_nodes_is_no_capacity_shortage() {
    let messages = [
        "pod didn't trigger scale-up: 3 node(s) didn't match Pod's node affinity/selector",
        "pod didn't trigger scale-up: 1 node(s) had untolerated taint {CriticalAddonsOnly: true}",
        "pod didn't trigger scale-up: 3 Insufficient cpu, 3 Insufficient memory, 3 Insufficient ephemeral-storage",
        "pod didn't trigger scale-up: 2 Insufficient nvidia.com/gpu, 1 not ready for scale-up",
        "pod didn't trigger scale-up (it wouldn't fit if a new node is added): 1 node(s) had volume node affinity \
         conflict",
        "pod didn't trigger scale-up: 1 at least one node can be vertically scaled",
        "pod didn't trigger scale-up: ",
    ];
    all_are(CLUSTER_AUTOSCALER, "NotTriggerScaleUp", false, &messages);
}

#[test]
fn event_of_scheduler_kubelet_or_eviction_is_no_capacity_shortage() {
    let scheduler = "0/9 nodes are available: 9 Insufficient nvidia.com/gpu. preemption: 0/9 nodes are available: 9 \
                     No preemption victims found for incoming pod.";
    all_are(SCHEDULER, "FailedScheduling", false, &[scheduler]);
    all_are("kubelet", "Failed", false, &["ImagePullBackOff", "Error: ErrImagePull"]);
    all_are("karpenter", "Evicted", false, &["Evicted pod: Underutilized"]);
}

#[test]
fn latest_autoscaler_event_decides_whether_capacity_is_refused() {
    let failed = ("02", CLUSTER_AUTOSCALER, "FailedScaleUp", "out of resources");
    let triggered = |at| (at, CLUSTER_AUTOSCALER, "TriggeredScaleUp", "pod triggered scale-up: [{spot 0->1 (max: 4)}]");
    assert_eq!(word(&[]), None);
    assert_eq!(word(&[triggered("01"), failed]), Some("out of resources".to_owned()));
    assert_eq!(word(&[failed, triggered("03")]), None, "it tries another group");

    let full = "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=gpu-spot)";
    let full = ("02", "karpenter", "FailedScheduling", full);
    let nominated = |at, component| (at, component, "Nominated", "Pod should schedule on: nodeclaim/gpu-spot-kqkq6");
    assert_eq!(word(&[nominated("01", "karpenter"), full]), Some(full.3.to_owned()));
    assert_eq!(word(&[full, nominated("03", "karpenter")]), None, "a node went, and there is room for another");
    assert_eq!(word(&[full, nominated("03", SCHEDULER)]), Some(full.3.to_owned()), "that is nobody who makes nodes");
}

#[test]
fn repeated_autoscaler_event_counts_at_its_last_observed_time() {
    let event = |reason: &str, times: serde_json::Value| -> Event {
        let mut event = json!({"metadata": {}, "involvedObject": {}, "reason": reason,
            "message": "GCE out of resources", "reportingComponent": CLUSTER_AUTOSCALER});
        event.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    };
    let comes = event(TRIGGERED, json!({"lastTimestamp": "2026-01-01T00:05:00Z"}));
    let series = json!({"count": 3, "lastObservedTime": "2026-01-01T00:09:00.000000Z"});
    let early = json!({"eventTime": "2026-01-01T00:01:00.000000Z"});
    let repeated = json!({"eventTime": "2026-01-01T00:01:00.000000Z", "series": series});
    assert_eq!(last_refusal(&[event(FAILED, early), comes.clone()]), None);
    assert_eq!(last_refusal(&[event(FAILED, repeated), comes]), Some("GCE out of resources".to_owned()));
}
