//! The effective priority of a Workload: its own priority, and the boost from its annotation.

use berth_api::{Workload, labels};

/// An effective priority with its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePriority {
    /// The Workload's `spec.priority`; 0 if absent.
    pub base: i32,
    /// Boost from the annotation `kueue.x-k8s.io/priority-boost`; 0 if boosts are off, or the annotation is absent or no number.
    pub boost: i32,
    /// Sum of base and boost, which may exceed 32 bits.
    pub effective: i64,
    /// True if the annotation with the boost has a text that is no 32-bit number.
    pub boost_invalid: bool,
}

/// The effective priority of a Workload. `boosts` is the value of the feature gate `PriorityBoost`.
#[must_use]
pub fn effective_priority(workload: &Workload, boosts: bool) -> EffectivePriority {
    let base = workload.spec.priority.unwrap_or_default();
    let annotations = workload.metadata.annotations.as_ref().filter(|_| boosts);
    // An empty annotation with a priority boost counts as absent.
    let text = annotations.and_then(|all| all.get(labels::PRIORITY_BOOST)).filter(|text| !text.is_empty());
    let parsed = text.map(|text| text.parse::<i32>().ok());
    let boost = parsed.flatten().unwrap_or_default();
    EffectivePriority {
        base,
        boost,
        effective: i64::from(base).saturating_add(i64::from(boost)),
        boost_invalid: parsed == Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn priority_boost_is_added_where_enabled_and_readable() {
        let workload = |priority: i32, boost: &str| -> Workload {
            let metadata = json!({"annotations": {labels::PRIORITY_BOOST: boost}});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"priority": priority}})).expect("workload")
        };
        let cases = [
            (100, "50", true, (50, 150, false)),
            (100, "-30", true, (-30, 70, false)),
            (100, "50", false, (0, 100, false)),
            (100, "many", true, (0, 100, true)),
            (100, "", true, (0, 100, false)),
            (i32::MAX, "1", true, (1, 2_147_483_648, false)),
        ];
        for (base, text, boosts, (boost, effective, boost_invalid)) in cases {
            let found = effective_priority(&workload(base, text), boosts);
            assert_eq!(found, EffectivePriority { base, boost, effective, boost_invalid }, "{base} {text}");
        }
    }
}
