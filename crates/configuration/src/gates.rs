//! The values of Kueue's feature gates, and the gates that have an effect in Berth.

use std::collections::BTreeMap;

pub(crate) use berth_control::feature_gates::GATES;
#[cfg(test)]
pub(crate) use berth_control::feature_gates::Gate;

/// Gates for which a value other than the default has an effect in Berth.
pub(crate) const ACTED_ON: [&str; 20] = [
    "AdmissionFairSharing",
    "AdmissionGatedBy",
    "CleanupProvisioningRequestsOnEviction",
    "DisableWaitForPodsReady",
    "FairSharingPreemptWithinNominal",
    "FairSharingPrioritizeNonBorrowing",
    "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress",
    "LocalQueueMetrics",
    "MetricForWorkloadCreationLatency",
    "MetricsForCohorts",
    "MultiKueueOrchestratedPreemption",
    "PartialAdmission",
    "PriorityBoost",
    "PrioritySortingWithinCohort",
    "QuotaCheckStrategy",
    "ReclaimablePods",
    "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "SchedulingEquivalenceHashing",
    "UnadmittedWorkloadsObservability",
];

/// Gates that are always on in Berth, each with the page that says why.
pub(crate) const ALWAYS_ON: [(&str, &str); 1] =
    [("PrioritizePreemptorWorkloads", "docs/departures/0005-no-eviction-loops.md")];

/// The feature gate that has an effect only in reviews, and a text that says which effect it has and which it lacks.
pub(crate) const IN_REVIEWS: (&str, &str) = (
    "ConcurrentAdmission",
    "a ClusterQueue with a concurrentAdmissionPolicy is held to its rules, and takes nobody in",
);

fn is_always_on(name: &str) -> bool {
    ALWAYS_ON.iter().any(|(gate, _)| *gate == name)
}

/// The error about a feature gate that is set to a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadGate {
    pub(crate) name: String,
    /// A sentence about the feature gate's value and what is allowed.
    pub(crate) text: String,
}

/// The values of Kueue's feature gates in this process. A feature gate that is always on in Berth has the default on, and switching it off has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gates(BTreeMap<&'static str, bool>);

impl Gates {
    /// The default values of the gates, changed by `set`.
    ///
    /// # Errors
    /// Fails if a gate is unknown, if its value cannot be changed, or if it is on while a gate that it needs is off.
    pub(crate) fn with(set: &BTreeMap<String, bool>) -> Result<Self, BadGate> {
        let bad = |name: &str, text: String| Err(BadGate { name: name.to_owned(), text });
        let mut values: BTreeMap<&'static str, bool> =
            GATES.iter().map(|gate| (gate.name, gate.on || is_always_on(gate.name))).collect();
        for (name, value) in set {
            let Some(gate) = GATES.iter().find(|gate| gate.name == name) else {
                return bad(name, format!("unknown feature gate `{name}`"));
            };
            if gate.locked && *value != gate.on {
                return bad(name, format!("feature gate `{name}` is locked to {}", gate.on));
            }
            values.insert(gate.name, *value);
        }
        for gate in GATES.iter().filter(|gate| values.get(gate.name) == Some(&true)) {
            if let Some(need) = gate.needs.iter().find(|need| values.get(*need) != Some(&true)) {
                let name = if set.contains_key(gate.name) { gate.name } else { *need };
                return bad(name, format!("feature gate `{}` needs `{need}`, which is off", gate.name));
            }
        }
        Ok(Self(values))
    }

    /// Value of a gate; false for an unknown name.
    pub(crate) fn on(&self, name: &str) -> bool {
        self.0.get(name) == Some(&true)
    }

    /// The value of a gate for the engine; `None` for a gate that is always on, because on is the engine's own default.
    pub(crate) fn of_engine(&self, name: &str) -> Option<bool> {
        (!is_always_on(name)).then(|| self.on(name))
    }

    /// Warnings: one for each gate whose value differs from its default but has no effect yet, and one for each gate that is always on but was
    /// switched off.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let without_effect = GATES
            .iter()
            .filter(|gate| !ACTED_ON.contains(&gate.name) && !is_always_on(gate.name))
            .filter(|gate| self.0.get(gate.name) != Some(&gate.on))
            .map(|gate| match IN_REVIEWS {
                (name, so) if name == gate.name => format!("feature gate `{name}` counts in reviews alone yet: {so}"),
                _ => format!("feature gate `{}` has no effect yet in Berth: its default behaviour applies", gate.name),
            });
        let always_on = ALWAYS_ON
            .iter()
            .filter(|(name, _)| !self.on(name))
            .map(|(name, page)| format!("feature gate `{name}` cannot be off in Berth: {page} says why"));
        without_effect.chain(always_on).collect()
    }
}

/// Reads the value of the flag `--feature-gates`, such as `A=true,B=false`.
///
/// # Errors
/// Fails if a part of the value does not have the form `NAME=true` or `NAME=false`.
pub fn parse_flag(text: &str) -> Result<BTreeMap<String, bool>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("`{pair}` is not NAME=true or NAME=false"))?;
            let value = match value.trim().to_ascii_lowercase().as_str() {
                "true" | "t" | "1" => true,
                "false" | "f" | "0" => false,
                other => return Err(format!("feature gate `{name}`: `{other}` is neither true nor false")),
            };
            Ok((name.trim().to_owned(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_gate_flag_sets_values_and_refuses_invalid_ones() {
        let set = |text| Gates::with(&parse_flag(text).unwrap());
        assert!(set("").unwrap().on("PartialAdmission") && set("").unwrap().warnings().is_empty());
        assert!(set("DisableWaitForPodsReady=true").unwrap().warnings().is_empty());
        let off = set("PartialAdmission=false").unwrap();
        assert_eq!((off.on("PartialAdmission"), off.warnings().len()), (false, 0));
        assert!(set("NoSuchGate=true").unwrap_err().text.contains("unknown feature gate `NoSuchGate`"));
        assert!(set("TLSOptions=false").unwrap_err().text.contains("locked"));
        assert!(set("FlavorFungibility=false").unwrap_err().text.contains("needs `FlavorFungibility`"));
        assert!(parse_flag("A").is_err() && parse_flag("A=maybe").is_err());
    }
}
