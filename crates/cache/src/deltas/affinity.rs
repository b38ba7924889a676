//! Translation of required node affinity into the engine's type. Illegal terms of a node affinity get the messages of Kubernetes, as in Kueue.

use berth_api::json::to_text;
use berth_api::validation::label_value;
use berth_engine::model::{Requirement, SelectorOp};
use k8s_openapi::api::core::v1::NodeSelectorRequirement;

/// The alternatives of a node affinity, each as a list of requirements.
pub(super) fn affinity(terms: &[Vec<NodeSelectorRequirement>]) -> Vec<Vec<Requirement>> {
    terms.iter().map(|term| term.iter().map(requirement).collect()).collect()
}

fn requirement(expression: &NodeSelectorRequirement) -> Requirement {
    let op = match expression.operator.as_str() {
        "In" => Some(SelectorOp::In),
        "NotIn" => Some(SelectorOp::NotIn),
        "Exists" => Some(SelectorOp::Exists),
        "DoesNotExist" => Some(SelectorOp::DoesNotExist),
        "Gt" => Some(SelectorOp::Gt),
        "Lt" => Some(SelectorOp::Lt),
        _ => None,
    };
    let key = expression.key.clone();
    let faults = match op {
        Some(op) => wrong_values(op, expression.values.as_deref()),
        None => vec![format!(
            "operator: Unsupported value: {:?}: supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \
             \"Gt\", \"Lt\"",
            expression.operator
        )],
    };
    match op.filter(|_| faults.is_empty()) {
        Some(op) => Requirement { key, op, values: expression.values.clone().unwrap_or_default() },
        // Without the illegal requirement the pods would match more flavors than the user meant.
        None => Requirement { key, op: SelectorOp::Illegal, values: faults },
    }
}

fn wrong_values(op: SelectorOp, given: Option<&[String]>) -> Vec<String> {
    let values = given.unwrap_or_default();
    let number = match op {
        SelectorOp::In | SelectorOp::NotIn if values.is_empty() => {
            Some("for 'in', 'notin' operators, values set can't be empty")
        }
        SelectorOp::Exists | SelectorOp::DoesNotExist if !values.is_empty() => {
            Some("values set must be empty for exists and does not exist")
        }
        SelectorOp::Gt | SelectorOp::Lt if values.len() != 1 => {
            Some("for 'Gt', 'Lt' operators, exactly one value is required")
        }
        _ => None,
    };
    let all = to_text(&given);
    let number = number.map(|wrong| format!("values: Invalid value: {all}: {wrong}"));
    let compares = matches!(op, SelectorOp::Gt | SelectorOp::Lt);
    let number_expected = |value: &str| {
        let wrong = compares && value.parse::<i64>().is_err();
        wrong.then(|| "for 'Gt', 'Lt' operators, the value must be an integer".to_owned())
    };
    let each = values.iter().enumerate().filter_map(|(index, value)| {
        let wrong = number_expected(value).or_else(|| label_value(value))?;
        Some(format!("values[{index}]: Invalid value: {value:?}: {wrong}"))
    });
    number.into_iter().chain(each).collect()
}
