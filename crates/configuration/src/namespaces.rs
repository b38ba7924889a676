//! `managedJobsNamespaceSelector`: the namespaces in which Berth manages jobs. Jobs in kube-system and in the manager's own namespace are never
//! managed.

use crate::fault::Fault;
use crate::schema::{Configuration, LabelSelector};
use berth_engine::model::{Requirement, Selector, SelectorOp};

/// Label that has the name of the namespace.
const NAME: &str = "kubernetes.io/metadata.name";
/// Name of the configuration file's field with the selector of the namespaces in which Berth manages jobs.
const FIELD: &str = "managedJobsNamespaceSelector";
/// Namespace of the control plane.
const SYSTEM: &str = "kube-system";

/// The selector of the configuration file, which also excludes kube-system and the manager's own namespace; Kueue's file excludes Kueue's namespace
/// instead.
pub(crate) fn managed(file: &Configuration, own: &str) -> Result<Selector, Fault> {
    let block = file.managed_jobs_namespace_selector.as_ref();
    let mut selector = block.map(|block| read(block, FIELD)).transpose()?.unwrap_or_default();
    let mut never = vec![SYSTEM];
    if own != SYSTEM {
        never.push(own);
    }
    if let Some(names) = selector.0.iter().find_map(|requirement| only(requirement, &never)) {
        let text = format!("{FIELD} selects {names} alone; allowed are other namespaces: there jobs are never managed");
        return Err(Fault::of(FIELD, text));
    }
    // The namespaces kube-system and that of the manager are excluded by their names alone, because their other labels may change while Berth runs.
    never.retain(|name| !excludes(&selector, name));
    if never.is_empty() {
        return Ok(selector);
    }
    if block.is_some() {
        tracing::info!(
            namespaces = never.join(", "),
            "configuration: managedJobsNamespaceSelector does not exclude them, Berth does all the same"
        );
    }
    let values = never.into_iter().map(str::to_owned).collect();
    selector.0.push(Requirement { key: NAME.to_owned(), op: SelectorOp::NotIn, values });
    Ok(selector)
}

/// The namespace names that a requirement of the operator In allows, if all of them are in the list `never`; `None` otherwise.
fn only(requirement: &Requirement, never: &[&str]) -> Option<String> {
    let by_name = requirement.key == NAME && requirement.op == SelectorOp::In;
    let none_else = requirement.values.iter().all(|value| never.contains(&value.as_str()));
    (by_name && none_else).then(|| requirement.values.join(", "))
}

/// Whether requirements on the name alone exclude the namespace `name`.
fn excludes(selector: &Selector, name: &str) -> bool {
    selector.0.iter().filter(|requirement| requirement.key == NAME).any(|requirement| {
        let named = requirement.values.iter().any(|value| value == name);
        match requirement.op {
            SelectorOp::In => !named,
            SelectorOp::NotIn => named,
            SelectorOp::DoesNotExist => true,
            SelectorOp::Exists | SelectorOp::Gt | SelectorOp::Lt | SelectorOp::Illegal => false,
        }
    })
}

/// Converts a label selector of the configuration file for the engine.
pub(crate) fn read(block: &LabelSelector, field: &str) -> Result<Selector, Fault> {
    let equal = block
        .match_labels
        .iter()
        .map(|(key, value)| Ok(Requirement { key: key.clone(), op: SelectorOp::In, values: vec![value.clone()] }));
    let expressions = block.match_expressions.iter().enumerate().map(|(index, requirement)| {
        let entry = format!("matchExpressions[{index}]");
        let (op, with_values) = match requirement.operator.as_str() {
            "In" => (SelectorOp::In, true),
            "NotIn" => (SelectorOp::NotIn, true),
            "Exists" => (SelectorOp::Exists, false),
            "DoesNotExist" => (SelectorOp::DoesNotExist, false),
            other => {
                let allowed = "In, NotIn, Exists, DoesNotExist";
                let text = format!("{field}: {entry}.operator is `{other}`; allowed are {allowed}");
                return Err(Fault::of(format!("{field}.{entry}.operator"), text));
            }
        };
        if with_values == requirement.values.is_empty() {
            let need = if with_values { "needs values" } else { "takes no values" };
            let (operator, key) = (&requirement.operator, &requirement.key);
            let text = format!("{field}: {entry}: operator {operator} of `{key}` {need}");
            return Err(Fault::of(format!("{field}.{entry}"), text));
        }
        Ok(Requirement { key: requirement.key.clone(), op, values: requirement.values.clone() })
    });
    equal.chain(expressions).collect::<Result<_, _>>().map(Selector)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requirements on namespace names for the configuration `body` and the manager's namespace `own`.
    fn names(body: &str, own: &str) -> Result<Vec<(SelectorOp, Vec<String>)>, String> {
        let file = serde_saphyr::from_str(body).unwrap();
        let selector = managed(&file, own).map_err(|fault| fault.with_line(body))?;
        let all = selector.0.into_iter().filter(|requirement| requirement.key == NAME);
        Ok(all.map(|requirement| (requirement.op, requirement.values)).collect())
    }

    fn not(values: &[&str]) -> (SelectorOp, Vec<String>) {
        (SelectorOp::NotIn, values.iter().map(|value| (*value).to_owned()).collect())
    }

    fn by_name(operator: &str, values: &str) -> String {
        let requirement = format!("{{key: {NAME}, operator: {operator}, values: [{values}]}}");
        format!("managedJobsNamespaceSelector: {{matchExpressions: [{requirement}]}}")
    }

    #[test]
    fn managed_namespace_selector_excludes_kube_system_and_own_namespace() {
        for (body, wanted) in [
            ("managedJobsNamespaceSelector: {}".to_owned(), vec![not(&["kube-system", "own"])]),
            ("managedJobsNamespaceSelector: {matchLabels: {a: b}}".to_owned(), vec![not(&["kube-system", "own"])]),
            (by_name("NotIn", "kube-system, theirs"), vec![not(&["kube-system", "theirs"]), not(&["own"])]),
            (by_name("NotIn", "own"), vec![not(&["own"]), not(&["kube-system"])]),
            (by_name("NotIn", "own, kube-system"), vec![not(&["own", "kube-system"])]),
        ] {
            assert_eq!(names(&body, "own"), Ok(wanted), "{body}");
        }
        assert_eq!(names(&by_name("NotIn", "theirs"), SYSTEM), Ok(vec![not(&["theirs"]), not(&[SYSTEM])]));
        let inside = |values: &[&str]| (SelectorOp::In, not(values).1);
        assert_eq!(names(&by_name("In", "a, b"), "own"), Ok(vec![inside(&["a", "b"])]));
        assert_eq!(names(&by_name("In", "a, own"), "own"), Ok(vec![inside(&["a", "own"]), not(&["own"])]));
    }

    #[test]
    fn namespace_selector_that_selects_only_excluded_namespaces_is_refused() {
        for values in ["kube-system", "own", "own, kube-system"] {
            let error = names(&by_name("In", values), "own").unwrap_err();
            assert!(error.contains("managedJobsNamespaceSelector") && error.contains(values), "{error}");
        }
        let label = format!("managedJobsNamespaceSelector: {{matchLabels: {{{NAME}: own}}}}");
        assert!(names(&label, "own").is_err());
    }
}
