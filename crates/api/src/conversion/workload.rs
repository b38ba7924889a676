//! Conversion units of Workload.

use serde_json::{Value, json};

use super::fields::Fields;
use super::placement;
use super::unit::{Limited, Unit, decodes, nothing, renamed};
use crate::labels::{GROUP_KUEUE, GROUP_SCHEDULING};
use crate::workload::{PodSet, WorkloadSpec};
use crate::workload_status::{PodSetAssignment, WorkloadStatus};

const SPENT: &str = "accumulatedPastExecutionTimeSeconds";
const SPENT_MISSPELT: &str = "accumulatedPastExexcutionTimeSeconds";
const CONSTRAINTS: &str = "podsetSliceRequiredTopologyConstraints";

/// The classes that a priority can come from: (source in v1beta1, group, kind).
const CLASSES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io/workloadpriorityclass", GROUP_KUEUE, "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", GROUP_SCHEDULING, "PriorityClass"),
];

pub(super) const UNITS: &[Unit] = &[
    Unit {
        parent: &["spec"],
        fields: &["priorityClassRef", "priorityClassName", "priorityClassSource"],
        down: class_as_name,
        up: class_as_reference,
        decodes: decodes::<WorkloadSpec>,
        limited: None,
    },
    Unit {
        parent: &["spec"],
        fields: &["preemptionGates"],
        down: nothing,
        up: nothing,
        decodes: decodes::<WorkloadSpec>,
        limited: None,
    },
    Unit {
        parent: &["spec", "podSets[]"],
        fields: &["topologyRequest"],
        down: without_constraints,
        up: without_constraints,
        decodes: decodes::<PodSet>,
        limited: None,
    },
    Unit {
        parent: &["status"],
        fields: &[SPENT, SPENT_MISSPELT],
        down: |fields| renamed(fields, SPENT, SPENT_MISSPELT),
        up: |fields| renamed(fields, SPENT_MISSPELT, SPENT),
        decodes: decodes::<WorkloadStatus>,
        limited: None,
    },
    Unit {
        parent: &["status"],
        fields: &["preemptionGates"],
        down: nothing,
        up: nothing,
        decodes: decodes::<WorkloadStatus>,
        limited: None,
    },
    Unit {
        parent: &["status", "admission", "podSetAssignments[]"],
        fields: &["topologyAssignment"],
        down: |fields| placed(fields, placement::flat),
        up: |fields| placed(fields, placement::sliced),
        decodes: decodes::<PodSetAssignment>,
        limited: Some(Limited {
            fits: |fields, left| {
                fields.get("topologyAssignment").is_none_or(|assignment| placement::fits(assignment, left))
            },
            without: |fields| placed(fields, placement::blank),
            rewritten: placement::rewritten,
        }),
    },
];

fn class_as_name(mut fields: Fields) -> Fields {
    let Some(Value::Object(mut class)) = fields.remove("priorityClassRef") else { return Fields::new() };
    let text = |field: &str| class.get(field).and_then(Value::as_str).unwrap_or_default();
    let known = CLASSES.iter().find(|(_, group, kind)| (text("group"), text("kind")) == (*group, *kind));
    let (Some((source, _, _)), Some(name @ Value::String(_))) = (known, class.remove("name")) else {
        return Fields::new();
    };
    Fields::from_iter([("priorityClassName".to_owned(), name), ("priorityClassSource".to_owned(), (*source).into())])
}

/// Converts the priority class to v1beta2. A class name without a known source is dropped, because a reference needs group and kind.
fn class_as_reference(fields: Fields) -> Fields {
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let known = CLASSES.iter().find(|(source, _, _)| text("priorityClassSource") == *source);
    match (known, text("priorityClassName")) {
        (None, _) | (_, "") => Fields::new(),
        (Some((_, group, kind)), name) => {
            Fields::from_iter([("priorityClassRef".to_owned(), json!({"group": group, "kind": kind, "name": name}))])
        }
    }
}

fn without_constraints(mut fields: Fields) -> Fields {
    if let Some(Value::Object(request)) = fields.get_mut("topologyRequest") {
        request.remove(CONSTRAINTS);
    }
    fields
}

fn placed(mut fields: Fields, rewrite: fn(&mut Fields)) -> Fields {
    if let Some(Value::Object(assignment)) = fields.get_mut("topologyAssignment") {
        rewrite(assignment);
    }
    fields
}
