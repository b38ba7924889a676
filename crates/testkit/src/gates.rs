//! Feature gates of a case: their values, and whether a case that changes a gate applies to Berth.

use berth_control::feature_gates::{GATES, Gate};
use std::collections::{BTreeMap, BTreeSet};

/// The effect of setting a feature gate to the opposite of its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The gate changes decisions of Berth, so the runner sets the value in Berth.
    Handed,
    /// The gate changes topology-aware scheduling only.
    Topology,
    /// The gate changes resource claims only.
    Claims,
    /// The gate changes workload slices only.
    Slices,
    /// The gate changes parts of the node filter.
    Library,
    /// The gate changes nothing that a case tests, but other object kinds, webhooks, metrics, or the form or rate of writes.
    Nothing,
}

/// Feature gates whose value the runner sets in Berth.
const HANDED: [&str; 19] = [
    "AdmissionFairSharing",
    "AdmissionGatedBy",
    "ConcurrentAdmission",
    "DisableWaitForPodsReady",
    "ElasticJobsViaWorkloadSlices",
    "FairSharingPreemptWithinNominal",
    "FairSharingPrioritizeNonBorrowing",
    "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress",
    "MultiKueueOrchestratedPreemption",
    "PartialAdmission",
    "PrioritizePreemptorWorkloads",
    "PriorityBoost",
    "PrioritySortingWithinCohort",
    "QuotaCheckStrategy",
    "ReclaimablePods",
    "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "SchedulingEquivalenceHashing",
    "UnadmittedWorkloadsObservability",
];

/// The effect of setting a feature gate to the opposite of its default.
#[must_use]
pub fn effect(gate: &Gate) -> Effect {
    let name = gate.name;
    match name {
        "TopologyAwareScheduling" | "SkipReassignmentForPodOwnedWorkloads" => Effect::Topology,
        "ElasticJobsViaWorkloadSlicesWithTAS" => Effect::Slices,
        "SchedulerLibraryIntegration" => Effect::Library,
        _ if HANDED.contains(&name) => Effect::Handed,
        _ if name.starts_with("TAS") => Effect::Topology,
        _ if name.starts_with("KueueDRA") => Effect::Claims,
        _ => Effect::Nothing,
    }
}

/// The value of every feature gate in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    on: BTreeSet<&'static str>,
}

impl Gates {
    /// Kueue's default values of the feature gates, changed by the values of a case. A case that turns a gate on also turns on the gates that this gate needs.
    /// A feature gate that is on by default is off in a case if a gate that it needs is off.
    ///
    /// # Errors
    /// The case names a gate that Kueue does not have.
    pub fn of(set: &BTreeMap<String, bool>) -> Result<Self, String> {
        let find = |name: &str| GATES.iter().find(|gate| gate.name == name);
        let mut on: BTreeSet<&'static str> = GATES.iter().filter(|gate| gate.on).map(|gate| gate.name).collect();
        let mut wanted = Vec::new();
        for (name, value) in set {
            let gate = find(name).ok_or_else(|| format!("featureGates: unknown gate {name:?}"))?;
            if *value {
                wanted.push(gate);
            } else {
                on.remove(gate.name);
            }
        }
        while let Some(gate) = wanted.pop() {
            on.insert(gate.name);
            wanted.extend(gate.needs.iter().filter(|need| !on.contains(*need)).filter_map(|need| find(need)));
        }
        while let Some(gate) =
            GATES.iter().find(|gate| on.contains(gate.name) && gate.needs.iter().any(|need| !on.contains(need)))
        {
            on.remove(gate.name);
        }
        Ok(Self { on })
    }

    /// Whether a feature gate is on.
    #[must_use]
    pub fn on(&self, name: &str) -> bool {
        self.on.contains(name)
    }

    /// Whether a feature gate with this effect differs from its default.
    #[must_use]
    pub fn departs(&self, kind: Effect) -> bool {
        GATES.iter().any(|gate| self.on(gate.name) != gate.on && effect(gate) == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(set: &[(&str, bool)]) -> Result<Gates, String> {
        Gates::of(&set.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect())
    }

    #[test]
    fn enabled_feature_gate_turns_on_gates_it_needs() {
        let gates =
            gates(&[("TopologyAwareScheduling", false), ("ElasticJobsViaWorkloadSlicesWithTAS", true)]).unwrap();
        assert!(gates.on("TopologyAwareScheduling") && gates.on("ElasticJobsViaWorkloadSlicesWithTAS"));
    }

    #[test]
    fn feature_gate_without_the_gates_it_needs_is_off() {
        let gates = gates(&[("FlavorFungibility", false), ("TopologyAwareScheduling", false)]).unwrap();
        assert!(!gates.on("FlavorFungibilityPreserveScanProgress") && !gates.on("TASFailedNodeReplacementFailFast"));
        assert!(gates.on("PartialAdmission") && !gates.on("PrioritizePreemptorWorkloads"));
    }

    #[test]
    fn unknown_feature_gate_name_is_an_error() {
        assert!(gates(&[("PartialAdmision", false)]).unwrap_err().contains("PartialAdmision"));
    }

    #[test]
    fn gates_handed_to_berth_exist_and_departures_are_seen() {
        assert!(HANDED.iter().all(|name| GATES.iter().any(|gate| gate.name == *name)));
        assert!(!gates(&[]).unwrap().departs(Effect::Library));
        assert!(gates(&[("SchedulerLibraryIntegration", true)]).unwrap().departs(Effect::Library));
    }

    /// The file of feature gates beside the cases equals the table of feature gates in control.
    #[test]
    fn feature_gate_table_equals_that_of_the_cases() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/feature-gates.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let table: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let shared = table["gates"].as_object().unwrap();
        assert_eq!(shared.len(), GATES.len());
        for gate in GATES {
            let row = &shared[gate.name];
            assert_eq!(row["default"], serde_json::json!(gate.on), "{}", gate.name);
            let needs = row.get("requires").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
            let mut needs: Vec<&str> = needs.iter().filter_map(serde_json::Value::as_str).collect();
            let mut known = gate.needs.to_vec();
            // The list of feature gates that a gate needs is compared without regard to its order.
            needs.sort_unstable();
            known.sort_unstable();
            assert_eq!(needs, known, "{}", gate.name);
        }
    }
}
