//! Quota that a Workload holds, read from the admission in the Workload's status.

use std::collections::BTreeMap;

use berth_api as api;
use berth_engine::model as engine;
use berth_quantity::Amount;

/// Pods of a pod set, as its Workload counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pods<'a> {
    /// Number of all pods of the pod set.
    pub all: i64,
    /// Number of pods that may still run.
    pub runs: i64,
    /// True if some pods of the pod set run again after their quota was given back as that of reclaimable pods, so that more pods may run than the admission
    /// counts.
    pub again: bool,
    /// Requests of each pod; `None` if the requests cannot be read.
    pub requests: Option<&'a BTreeMap<String, Amount>>,
}

/// The reservation in a Workload's status, in the engine's type. An amount that is negative or cannot be read is replaced by the requests of the pods, and by
/// the largest amount if the requests cannot be read either. The argument `pods` returns the pods of a pod set by its name: the reservation does not include
/// quota of pods that will not run again.
pub fn reservation<'a>(
    admission: &api::Admission,
    pods: impl Fn(&str) -> Option<Pods<'a>>,
    (at, saved): (engine::Millis, Option<engine::Millis>),
    (admitted, evicted, kept): (bool, bool, bool),
    surplus: Option<engine::Surplus>,
) -> engine::Reservation {
    let pod_sets = admission
        .pod_set_assignments
        .iter()
        .map(|assignment| {
            let name = assignment.name.clone().unwrap_or_else(|| "main".into());
            let known = pods(&name);
            let given = assignment.count.map(i64::from).or(known.map(|pods| pods.all)).unwrap_or_default();
            let count = known.map_or(given, |pods| if pods.again { pods.runs } else { pods.runs.min(given) });
            let asked = |resource: &String| match known.and_then(|pods| pods.requests) {
                // No pod requests the resource `pods` itself.
                Some(_) if resource == "pods" => Amount::new(given),
                Some(requests) => requests.get(resource).map_or(Amount::ZERO, |each| each.mul(given)),
                None => Amount::new(i64::MAX),
            };
            let usage = assignment
                .resource_usage
                .iter()
                .map(|(resource, text)| {
                    let total = berth_quantity::request(resource, &text.0).unwrap_or_else(|_| asked(resource));
                    (resource.clone(), Amount::new(share_of(total.get(), given, count)))
                })
                .collect();
            engine::PodSetAssignment { name, count, flavors: assignment.flavors.clone(), usage }
        })
        .collect();
    let cluster_queue = admission.cluster_queue.clone().unwrap_or_default();
    engine::Reservation { cluster_queue, pod_sets, at, saved, admitted, evicted, kept, surplus }
}

/// Usage of `count` pods if `given` pods use `total`; `count` is larger if some pods run again. Each pod uses an equal share of its pod set's `resourceUsage`,
/// and validation refuses an amount that the pods cannot share equally. If a stored `resourceUsage` cannot be shared equally by the pods all the same, its
/// remainder is dropped, as in Kueue.
fn share_of(total: i64, given: i64, count: i64) -> i64 {
    if count == given || given <= 0 {
        return total;
    }
    total.checked_div(given).map_or(total, |each| each.saturating_mul(count.max(0)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const GI: i64 = 1 << 30;

    /// Quota that a Workload with three pods holds, by the number of pods that still run; each pod requests two cores and a gibibyte.
    fn held(cpu: &str, pods: impl Fn(&'static BTreeMap<String, Amount>) -> Option<Pods<'static>>) -> [i64; 2] {
        static REQUESTS: std::sync::LazyLock<BTreeMap<String, Amount>> = std::sync::LazyLock::new(|| {
            BTreeMap::from([("cpu".to_owned(), Amount::new(2_000)), ("memory".to_owned(), Amount::new(GI))])
        });
        let admission: api::Admission = serde_json::from_value(serde_json::json!({"clusterQueue": "q",
            "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f", "memory": "f"},
                "resourceUsage": {"cpu": cpu, "memory": "3Gi"}}]}))
        .unwrap();
        let requests = std::sync::LazyLock::force(&REQUESTS);
        let held = reservation(&admission, |_| pods(requests), (engine::Millis(0), None), (false, false, false), None);
        let usage = &held.pod_sets.first().unwrap().usage;
        ["cpu", "memory"].map(|resource| usage.iter().find(|(name, _)| *name == resource).unwrap().1.get())
    }

    #[test]
    fn remaining_pods_are_charged_their_share_of_reserved_quota() {
        let used = |cpu: &str, runs: i64| {
            held(cpu, |requests| Some(Pods { all: 3, runs, again: false, requests: Some(requests) }))
        };
        assert_eq!(used("6", 3), [6_000, 3 * GI]);
        assert_eq!(used("6", 2), [4_000, 2 * GI]);
        // The remainder of a stored `resourceUsage` that three pods cannot share equally is dropped, although validation refuses such an amount.
        assert_eq!(used("10", 2), [6_666, 2 * GI]);
        assert_eq!(used("10", 0), [0, 0]);
        let again =
            |runs: i64| held("6", |requests| Some(Pods { all: 4, runs, again: true, requests: Some(requests) }));
        assert_eq!((again(4), again(2)), ([8_000, 4 * GI], [4_000, 2 * GI]), "more run than were given quota");
        assert_eq!(held("6", |_| Some(Pods::default())), [0, 0], "no pod of it is in the spec");
        assert_eq!(held("6", |_| None), [6_000, 3 * GI], "nobody can read the spec");
    }

    #[test]
    fn unreadable_reserved_amount_is_replaced_by_requests_of_pods() {
        let used = |cpu: &str, runs: i64| {
            held(cpu, |requests| Some(Pods { all: 3, runs, again: false, requests: Some(requests) }))
        };
        for cpu in ["much", "-6", ""] {
            assert_eq!(used(cpu, 3), [6_000, 3 * GI], "{cpu:?}");
            assert_eq!(used(cpu, 1), [2_000, GI], "{cpu:?}");
            assert_eq!(held(cpu, |_| None), [i64::MAX, 3 * GI], "{cpu:?}: nobody can read the spec");
        }
    }

    #[test]
    fn unreadable_reserved_pod_count_is_replaced_by_running_pods() {
        let admission: api::Admission = serde_json::from_value(serde_json::json!({"clusterQueue": "q",
            "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"pods": "f"}, "resourceUsage": {"pods": "-3"}}]}))
        .unwrap();
        let requests = BTreeMap::new();
        for runs in [3, 2] {
            let pods = |_: &str| Some(Pods { all: 3, runs, again: false, requests: Some(&requests) });
            let held = reservation(&admission, pods, (engine::Millis(0), None), (false, false, false), None);
            assert_eq!(held.pod_sets.first().unwrap().usage.get("pods").copied(), Some(Amount::new(runs)));
        }
    }

    #[test]
    fn share_of_reserved_amount_drops_remainder_per_pod() {
        assert_eq!(share_of(5, 3, 2), 2);
        assert_eq!(share_of(1, 3, 2), 0);
        assert_eq!(share_of(7, 0, 0), 7);
    }
}
