//! Answers of the case kind `pod-group`: the pods of one pod group.

use crate::kinds::case::{Case, Found, pod_sets};
use crate::kinds::read;
use berth_jobs::Priority;
use berth_jobs::pods::{PodState, Tally, excess, group_workload, replaced};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::collections::BTreeMap;

/// Name of the pod group in the cases.
const GROUP: &str = "g";

pub(crate) fn answer(case: &Case, key: &str) -> Option<Found> {
    let pods: Vec<Pod> = case.members().iter().map(read).collect();
    let states: Vec<(&str, PodState)> =
        pods.iter().map(|pod| (pod.metadata.name.as_deref().unwrap_or_default(), PodState::read(pod))).collect();
    let mut tally = Tally::default();
    states.iter().for_each(|(_, pod)| tally.add(pod));
    let size = states.iter().find_map(|(_, pod)| pod.group.as_ref()?.total).unwrap_or_default();
    let all = || states.iter().map(|(name, pod)| (*name, pod));
    Some(match key {
        "podSets" | "workload" => {
            let mut roles: BTreeMap<&str, (Pod, i32)> = BTreeMap::new();
            for (pod, (_, state)) in pods.iter().zip(&states).filter(|(_, (_, state))| state.counts()) {
                roles.entry(state.role()).or_insert_with(|| (pod.clone(), 0)).1 += 1;
            }
            let roles: Vec<_> = roles.into_iter().map(|(role, (pod, count))| (role, pod, count)).collect();
            let members: Vec<_> = all().filter(|(_, pod)| pod.counts()).map(|(name, pod)| (name, &*pod.uid)).collect();
            let made = group_workload(GROUP, &roles, &members, Priority::default(), &Default::default()).unwrap();
            if key == "podSets" { Found::Exact(pod_sets(&made.spec.pod_sets)) } else { Found::Part(json!(made)) }
        }
        "tally" => Found::Part(json!({"pods": tally.pods, "running": tally.running, "unfinished": tally.unfinished,
            "counting": tally.counting(), "hasInactive": tally.has_inactive()})),
        "finished" => Found::of(tally.finish(size).map(|end| json!({"success": end.success, "message": end.message}))),
        "reclaimable" => Found::of(tally.reclaimable()),
        // The role of the cases has one place fewer than the group.
        "excess" => Found::of(excess(all(), size - 1)),
        "replaced" => Found::of(replaced(all())),
        _ => return None,
    })
}
