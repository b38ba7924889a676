//! Rules about ResourceFlavors.

use std::collections::BTreeSet;

use super::field_error::{FieldError, supported};
use super::metadata;
use super::names::{label_value, qualified_name};
use crate::labels::CAPACITY_TIER;
use crate::{CapacityTier, ResourceFlavor};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];

/// Faults of the node labels, taints and tolerations of a ResourceFlavor, of two taints with the same key and effect, and of a capacity tier that
/// does not exist.
pub fn validate_resource_flavor(flavor: &ResourceFlavor) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::labels(&flavor.spec.node_labels, "spec.nodeLabels", &mut errors);
    let mut seen = BTreeSet::new();
    for (index, taint) in flavor.spec.node_taints.iter().enumerate() {
        let path = format!("spec.nodeTaints[{index}]");
        let value = taint.value.as_deref().unwrap_or_default();
        errors
            .extend(qualified_name(&taint.key).map(|wrong| FieldError::new(format!("{path}.key"), &taint.key, wrong)));
        errors.extend(label_value(value).map(|wrong| FieldError::new(format!("{path}.value"), value, wrong)));
        if !EFFECTS.contains(&taint.effect.as_str()) {
            errors.push(supported(format!("{path}.effect"), &taint.effect, EFFECTS));
        }
        if !seen.insert((&taint.key, &taint.effect)) {
            let value = format!("{}:{}", taint.key, taint.effect);
            errors.push(FieldError::new(path, value, "taints must be unique by key and effect pair"));
        }
    }
    for (index, toleration) in flavor.spec.tolerations.iter().enumerate() {
        let path = format!("spec.tolerations[{index}]");
        let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty() && !EFFECTS.contains(effect));
        let operator = toleration.operator.as_deref().filter(|word| !word.is_empty() && !OPERATORS.contains(word));
        errors.extend(effect.map(|effect| supported(format!("{path}.effect"), effect, EFFECTS)));
        errors.extend(operator.map(|operator| supported(format!("{path}.operator"), operator, OPERATORS)));
    }
    metadata::tolerations(&flavor.spec.tolerations, "spec.tolerations", &mut errors);
    if let Some(word) = flavor.metadata.labels.as_ref().and_then(|labels| labels.get(CAPACITY_TIER))
        && let Err(wrong) = word.parse::<CapacityTier>()
    {
        errors.push(FieldError::new(format!("metadata.labels[{CAPACITY_TIER}]"), word, wrong.to_string()));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(spec: serde_json::Value) -> Vec<String> {
        let flavor: ResourceFlavor = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        validate_resource_flavor(&flavor).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn invalid_flavor_labels_taints_and_tolerations_are_refused_by_field() {
        let good = json!({
            "nodeLabels": {"cloud.google.com/gke-spot": "true"},
            "nodeTaints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute", "value": "v"}],
            "tolerations": [{"operator": "Exists"}, {"key": "a.b/c", "value": "x"}],
        });
        assert_eq!(fields(good), [""; 0]);
        assert_eq!(fields(json!({"nodeLabels": {"a b": "x", "ok": "-"}})), ["spec.nodeLabels", "spec.nodeLabels[ok]"]);
        let taints = json!([
            {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule", "value": "w"},
            {"key": "", "effect": "NoSchedule", "value": "/"},
        ]);
        assert_eq!(
            fields(json!({"nodeTaints": taints})),
            ["spec.nodeTaints[1]", "spec.nodeTaints[2].key", "spec.nodeTaints[2].value"]
        );
        assert_eq!(fields(json!({"tolerations": [{"key": "a/"}]})), ["spec.tolerations[0].key"]);
        assert_eq!(fields(json!({"nodeTaints": [{"key": "a", "effect": "Never"}]})), ["spec.nodeTaints[0].effect"]);
        assert_eq!(
            fields(json!({"tolerations": [{"key": "a", "effect": "Never", "operator": "Near"}]})),
            ["spec.tolerations[0].effect", "spec.tolerations[0].operator"]
        );
    }
}
