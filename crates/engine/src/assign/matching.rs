//! Matching of pods and flavors: taints with tolerations, node affinity with flavor labels, label selectors with labels.

use std::collections::BTreeMap;

use crate::model::{
    FlavorSpec, PodSetSpec, Requirement, Selector, SelectorOp, Taint, TaintEffect, Toleration, TolerationOp,
};

type Labels = BTreeMap<String, String>;

/// Node labels by which clouds and Karpenter distinguish kinds of capacity. A pod that selects a capacity label asks for a capacity tier.
pub(crate) const CAPACITY_LABELS: [&str; 7] = [
    "cloud.google.com/gke-preemptible",
    "cloud.google.com/gke-spot",
    "cloud.google.com/reservation-name",
    "eks.amazonaws.com/capacityType",
    "karpenter.sh/capacity-type",
    "kubernetes.azure.com/scalesetpriority",
    "berth.dev/capacity-tier",
];

/// Capacity labels that stand for one kind of capacity, whatever their value. For the other capacity labels, the label's value says which kind of capacity it
/// is.
const OF_ONE_KIND: [&str; 3] =
    ["cloud.google.com/gke-preemptible", "cloud.google.com/gke-spot", "cloud.google.com/reservation-name"];

impl Requirement {
    /// Whether the requirement asks for one kind of capacity: a requirement that accepts both spot and on-demand capacity does not.
    fn asks_for_capacity(&self) -> bool {
        let key = self.key.as_str();
        match self.op {
            SelectorOp::In if self.values.len() == 1 => CAPACITY_LABELS.contains(&key),
            SelectorOp::In | SelectorOp::Exists => OF_ONE_KIND.contains(&key),
            _ => false,
        }
    }

    /// The requirement in words.
    pub(crate) fn text(&self) -> String {
        match self.op {
            SelectorOp::Exists => format!("{} Exists", self.key),
            op => format!("{} {op:?} [{}]", self.key, self.values.join(", ")),
        }
    }
}

impl PodSetSpec {
    /// Whether the pods of the pod set select a kind of capacity themselves, by their node selector or by each alternative of their required affinity. Cost of
    /// `asks_for_capacity`: the number of requirements in the pod set's affinity.
    #[must_use]
    pub fn asks_for_capacity(&self) -> bool {
        let asks = |term: &Vec<Requirement>| term.iter().any(Requirement::asks_for_capacity);
        CAPACITY_LABELS.iter().any(|key| self.node_selector.contains_key(*key))
            || (!self.affinity.is_empty() && self.affinity.iter().all(asks))
    }
}

/// The first requirement that keeps pods off a flavor although their affinity matches, with the alternative that contains it. The result is `None` if a
/// matching alternative has no requirement that keeps the pods off the flavor.
pub(crate) fn in_each_alternative<'a>(
    labels: &Labels,
    affinity: &'a [Vec<Requirement>],
    keeps_off: impl Fn(&[Requirement], &Requirement) -> bool,
) -> Option<(&'a [Requirement], &'a Requirement)> {
    let matches = |term: &&Vec<Requirement>| term.iter().all(|r| !labels.contains_key(&r.key) || holds(r, labels));
    let mut found = None;
    for term in affinity.iter().filter(matches) {
        let first = term.iter().find(|r| keeps_off(term, r))?;
        found = found.or(Some((term.as_slice(), first)));
    }
    found
}

/// Whether a requirement asks for a kind of capacity whose label the flavor does not have. The parameter `is_offered` returns true for labels that other
/// flavors of the resource group have.
pub(crate) fn is_other_capacity(labels: &Labels, r: &Requirement, is_offered: impl Fn(&str) -> bool) -> bool {
    r.asks_for_capacity() && !labels.contains_key(&r.key) && is_offered(&r.key)
}

/// Whether pods require a node label that a flavor forbids with every value that the pods accept. Accepted values are the values of the requirement that all
/// other requirements of its alternative accept. If no value is accepted, no node fits, whatever the flavor forbids.
pub(crate) fn requires_forbidden(
    forbidden: &[(String, Vec<String>)],
    alternative: &[Requirement],
    r: &Requirement,
) -> bool {
    let Some((_, values)) = forbidden.iter().find(|(key, _)| *key == r.key) else { return false };
    let accepted = |value: &&String| of_key(alternative, &r.key).all(|other| accepts(other, Some(*value)));
    match r.op {
        SelectorOp::In if values.is_empty() || r.values.iter().all(|value| values.contains(value)) => true,
        SelectorOp::In => {
            let mut left = r.values.iter().filter(accepted).peekable();
            left.peek().is_some() && left.all(|value| values.contains(value))
        }
        SelectorOp::Exists | SelectorOp::Gt | SelectorOp::Lt => values.is_empty(),
        SelectorOp::NotIn | SelectorOp::DoesNotExist | SelectorOp::Illegal => false,
    }
}

/// The requirements on the label `key` in an alternative of the node affinity.
pub(crate) fn of_key<'a>(alternative: &'a [Requirement], key: &'a str) -> impl Iterator<Item = &'a Requirement> {
    alternative.iter().filter(move |r| r.key == key)
}

/// The first entry of a node selector that a flavor forbids.
pub(crate) fn selects_forbidden<'a>(
    forbidden: &[(String, Vec<String>)],
    node_selector: &'a Labels,
) -> Option<(&'a str, &'a str)> {
    forbidden.iter().find_map(|(key, values)| {
        let (key, value) = node_selector.get_key_value(key)?;
        (values.is_empty() || values.contains(value)).then_some((key.as_str(), value.as_str()))
    })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let values = || integer(&taint.value).zip(integer(&toleration.value));
    toleration.effect.is_none_or(|effect| effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.op {
            TolerationOp::Equal => toleration.value == taint.value,
            TolerationOp::Exists => true,
            TolerationOp::Gt => values().is_some_and(|(taint, bound)| taint > bound),
            TolerationOp::Lt => values().is_some_and(|(taint, bound)| taint < bound),
            TolerationOp::Illegal => false,
        }
}

/// Parses an integer as the scheduler reads it: decimal digits alone, without a plus sign or leading zeros.
fn integer(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
}

/// The first taint that keeps pods off a flavor, in Kueue's print format.
pub(crate) fn untolerated(flavor: &FlavorSpec, tolerations: &[Toleration]) -> Option<String> {
    let decides = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule;
    let tolerated = |taint: &Taint| tolerations.iter().chain(&flavor.tolerations).any(|t| tolerates(t, taint));
    flavor.taints.iter().filter(decides).find(|taint| !tolerated(taint)).map(|taint| {
        let effect = match taint.effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        };
        format!("{{{} {} {effect} <nil>}}", taint.key, taint.value)
    })
}

/// Matches a pod's node selector and required affinity, both restricted to the flavor's own label keys, against the flavor's labels.
///
/// # Errors
/// Returns the faults of the affinity if no alternative of the affinity matches.
pub(crate) fn affinity_matches(
    labels: &Labels,
    node_selector: &Labels,
    affinity: &[Vec<Requirement>],
) -> Result<bool, String> {
    let selector_matches = node_selector.iter().all(|(key, value)| labels.get(key).is_none_or(|label| label == value));
    if !selector_matches {
        return Ok(false);
    }
    let relevant =
        |term: &Vec<Requirement>| -> Vec<_> { term.iter().filter(|r| labels.contains_key(&r.key)).cloned().collect() };
    let terms: Vec<Vec<Requirement>> = affinity.iter().map(relevant).collect();
    // An affinity term that names no label of the flavor matches the flavor, and the terms are alternatives.
    if terms.is_empty() || terms.iter().any(Vec::is_empty) {
        return Ok(true);
    }
    let mut all = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let faults = faults(index, term);
        if faults.is_empty() && term.iter().all(|requirement| holds(requirement, labels)) {
            return Ok(true);
        }
        all.extend(faults);
    }
    match all.as_slice() {
        [] => Ok(false),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn faults(term: usize, requirements: &[Requirement]) -> Vec<String> {
    let illegal = requirements.iter().enumerate().filter(|(_, requirement)| requirement.op == SelectorOp::Illegal);
    let faults = illegal.flat_map(|(at, requirement)| requirement.values.iter().map(move |fault| (at, fault)));
    faults.map(|(at, fault)| format!("nodeSelectorTerms[{term}].matchExpressions[{at}].{fault}")).collect()
}

fn holds(requirement: &Requirement, labels: &Labels) -> bool {
    accepts(requirement, labels.get(&requirement.key))
}

/// Whether a requirement holds for an object whose label has the value `label`, or that has no such label if `label` is `None`.
fn accepts(requirement: &Requirement, label: Option<&String>) -> bool {
    let is_listed = label.is_some_and(|label| requirement.values.contains(label));
    match requirement.op {
        SelectorOp::In => is_listed,
        SelectorOp::NotIn => !is_listed,
        SelectorOp::Exists => label.is_some(),
        SelectorOp::DoesNotExist => label.is_none(),
        SelectorOp::Gt => compare(requirement, label, |label, bound| label > bound),
        SelectorOp::Lt => compare(requirement, label, |label, bound| label < bound),
        SelectorOp::Illegal => false,
    }
}

fn compare(requirement: &Requirement, label: Option<&String>, test: fn(i64, i64) -> bool) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    match (label.and_then(number), requirement.values.first().and_then(number)) {
        (Some(label), Some(bound)) => requirement.values.len() == 1 && test(label, bound),
        _ => false,
    }
}

/// Whether a label selector selects an object with the labels `labels`.
pub(crate) fn selects(selector: &Selector, labels: &Labels) -> bool {
    selector.0.iter().all(|requirement| holds(requirement, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toleration_matches_taint_by_its_operator() {
        let taint = Taint { key: "sla".into(), value: "950".into(), effect: TaintEffect::NoSchedule };
        for (key, op, value, expected) in [
            ("sla", TolerationOp::Gt, "900", true),
            ("sla", TolerationOp::Gt, "950", false),
            ("sla", TolerationOp::Gt, "-1", true),
            ("sla", TolerationOp::Gt, "0900", false),
            ("sla", TolerationOp::Gt, "+900", false),
            ("sla", TolerationOp::Gt, "", false),
            ("other", TolerationOp::Gt, "900", false),
            ("sla", TolerationOp::Lt, "951", true),
            ("sla", TolerationOp::Lt, "950", false),
            ("sla", TolerationOp::Equal, "950", true),
            ("", TolerationOp::Equal, "950", true),
            ("", TolerationOp::Equal, "900", false),
            ("", TolerationOp::Exists, "", true),
            ("sla", TolerationOp::Illegal, "950", false),
        ] {
            let toleration = Toleration { key: key.into(), op, value: value.into(), effect: None };
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
        }
    }
}
