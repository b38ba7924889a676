//! Additions of an admission to the pods of a job, and their merge into a pod template.

use crate::names::{is_label_key, is_label_value};
use crate::template::TemplateParts;
use berth_api::{AdmissionCheckState, BASTION_TIER, CAPACITY_SELECTORS, PodSetAssignment, ResourceFlavor, labels};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use std::collections::BTreeMap;

/// Additions to the pods of one pod set when the pod set's job starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Name of the pod set.
    pub pod_set: String,
    /// Admitted number of pods.
    pub count: i32,
    /// Labels that the pod template gets.
    pub labels: BTreeMap<String, String>,
    /// Annotations that the pod template gets.
    pub annotations: BTreeMap<String, String>,
    /// Entries that the template's `nodeSelector` gets.
    pub node_selector: BTreeMap<String, String>,
    /// Entries that the template's `tolerations` get.
    pub tolerations: Vec<Toleration>,
    /// Names that the template's `schedulingGates` get.
    pub scheduling_gates: Vec<String>,
    /// True if the template's own selectors of a capacity kind are removed in favour of the placement's selectors.
    pub overrides: bool,
    /// Node labels that the pods must avoid: the key with its forbidden values, or with no values if every value is forbidden.
    pub forbidden: Vec<(String, Vec<String>)>,
}

/// An entry of the annotation `berth.dev/forbidden-node-labels` that is not a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a label key nor key=value")]
pub struct ForbiddenError(pub String);

/// Reason why a job cannot be started as it was admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Two of flavors, admission checks and the job's pod template set different values for one key of the labels, annotations or node selector.
    #[error(
        "invalid admission check PodSetUpdate: conflict for {part}: conflict for key={key}, value1={first}, \
         value2={second}"
    )]
    Conflict {
        /// Name (`labels`, `annotations` or `nodeSelector`) of the pod template's map in which one key has two values.
        part: &'static str,
        /// The key with two values.
        key: String,
        /// The value that the key had before the conflicting value was added.
        first: String,
        /// The conflicting value, which was to be added for the key.
        second: String,
    },
    /// A flavor forbids a node label that the pods select.
    #[error("nodeSelector {key}={value} is forbidden by the annotation berth.dev/forbidden-node-labels of a flavor")]
    Forbidden {
        /// Key of the forbidden node label.
        key: String,
        /// Selected value of the node label.
        value: String,
    },
    /// An assigned flavor does not exist.
    #[error("flavor {0} not found")]
    FlavorNotFound(String),
    /// An annotation of a flavor cannot be read.
    #[error("flavor {flavor}: annotation berth.dev/forbidden-node-labels: {problem}")]
    Annotation {
        /// Name of the flavor.
        flavor: String,
        /// The fault of the flavor's annotation `berth.dev/forbidden-node-labels`, with the faulty entry.
        problem: ForbiddenError,
    },
    /// A flavor forbids node labels, which needs a node affinity, and jobs of this kind accept none.
    #[error(
        "a flavor has the annotation berth.dev/forbidden-node-labels, and the affinity that it takes cannot be set in a \
         {kind}: give this job a queue without such flavors, or a node selector"
    )]
    NoAffinity {
        /// Name of the job kind.
        kind: &'static str,
    },
    /// The pod sets of the Workload differ from the pod sets of the job.
    #[error("invalid podset infos: {given} given, {wanted} wanted")]
    PodSets {
        /// Number of pod sets of the Workload.
        given: usize,
        /// Number of pod sets of the job.
        wanted: usize,
    },
}

impl PlacementError {
    /// Whether the placement error may be temporary, because a flavor or another object of an administrator is missing or has changed since the quota
    /// reservation. A job with a permanent placement error can never start unchanged, and its Workload finishes as FailedToStart.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Self::FlavorNotFound(_) | Self::Annotation { .. } | Self::Forbidden { .. } => true,
            // A conflict of labels or of annotations comes from the updates of admission checks and is permanent, as in Kueue.
            Self::Conflict { part, .. } => *part == "nodeSelector",
            Self::NoAffinity { .. } | Self::PodSets { .. } => false,
        }
    }
}

/// Names with which the pods of an admission are labelled.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedAs<'a> {
    /// Name of the admitted Workload.
    pub workload: &'a str,
    /// ClusterQueue of the admission.
    pub cluster_queue: &'a str,
    /// LocalQueue of the Workload.
    pub local_queue: &'a str,
}

impl Placement {
    /// The placement for an assignment: node labels, tolerations and forbidden labels of the flavors, labels with the names of Workload, pod set and queues,
    /// and the updates of admission checks. The parameter `default_count` is the number of pods of the placement if the assignment has no count.
    ///
    /// # Errors
    /// The pods cannot be placed as assigned; see [`PlacementError`].
    pub fn of<'f>(
        assignment: &PodSetAssignment,
        default_count: i32,
        admitted: AdmittedAs<'_>,
        checks: &[AdmissionCheckState],
        flavor: impl Fn(&str) -> Option<&'f ResourceFlavor>,
    ) -> Result<Self, PlacementError> {
        let name = assignment.effective_name();
        let mut placement =
            Self { pod_set: name.to_owned(), count: assignment.count.unwrap_or(default_count), ..Self::default() };
        let mut seen = Vec::<&str>::new();
        for reference in assignment.flavors.values() {
            if seen.contains(&reference.as_str()) {
                continue;
            }
            seen.push(reference);
            let flavor = flavor(reference).ok_or_else(|| PlacementError::FlavorNotFound(reference.clone()))?;
            placement.add_flavor(reference, flavor)?;
        }
        placement.annotations.insert(labels::WORKLOAD.to_owned(), admitted.workload.to_owned());
        placement.labels.insert(labels::POD_SET.to_owned(), name.to_owned());
        for (key, value) in
            [(labels::CLUSTER_QUEUE_NAME, admitted.cluster_queue), (labels::LOCAL_QUEUE_NAME, admitted.local_queue)]
        {
            // A queue name that is too long for a label value gets no label.
            if !value.is_empty() && is_label_value(value) {
                placement.labels.insert(key.to_owned(), value.to_owned());
            }
        }
        for update in checks.iter().flat_map(|check| &check.pod_set_updates).filter(|update| update.name == name) {
            merge("labels", &mut placement.labels, &update.labels)?;
            merge("annotations", &mut placement.annotations, &update.annotations)?;
            merge("nodeSelector", &mut placement.node_selector, &update.node_selector)?;
            append(&mut placement.tolerations, &update.tolerations);
        }
        Ok(placement)
    }

    fn add_flavor(&mut self, name: &str, flavor: &ResourceFlavor) -> Result<(), PlacementError> {
        merge("nodeSelector", &mut self.node_selector, &flavor.spec.node_labels)?;
        append(&mut self.tolerations, &flavor.spec.tolerations);
        let annotations = flavor.metadata.annotations.as_ref();
        if let Some(text) = annotations.and_then(|a| a.get(labels::FORBIDDEN_NODE_LABELS)) {
            let forbidden = parse_forbidden(text)
                .map_err(|problem| PlacementError::Annotation { flavor: name.to_owned(), problem })?;
            for (key, values) in forbidden {
                forbid(&mut self.forbidden, key, values);
            }
        }
        Ok(())
    }

    /// Whether the placement removes a part of a template.
    #[must_use]
    pub fn strips(&self, parts: &TemplateParts) -> bool {
        let stripped = || {
            let mut left = parts.clone();
            strip_capacity(&mut left);
            left
        };
        self.overrides && stripped() != *parts
    }

    /// The parts of a template with this placement merged in; a second merge changes nothing.
    ///
    /// # Errors
    /// [`PlacementError::Conflict`] if the template has another value for a key, and [`PlacementError::Forbidden`] if the pods could never be scheduled.
    pub fn apply(&self, parts: &TemplateParts) -> Result<TemplateParts, PlacementError> {
        let mut result = parts.clone();
        if self.overrides {
            strip_capacity(&mut result);
        }
        merge("annotations", &mut result.annotations, &self.annotations)?;
        merge("labels", &mut result.labels, &self.labels)?;
        merge("nodeSelector", &mut result.node_selector, &self.node_selector)?;
        append(&mut result.tolerations, &self.tolerations);
        append(&mut result.scheduling_gates, &self.scheduling_gates);
        result.count = self.count;
        if !self.forbidden.is_empty() {
            if let Some((key, value)) = selects_forbidden(&self.forbidden, &result.node_selector) {
                return Err(PlacementError::Forbidden { key, value });
            }
            avoid(&mut result, &self.forbidden);
        }
        Ok(result)
    }
}

/// Removes a template's selectors of a capacity kind; a stop restores them.
fn strip_capacity(parts: &mut TemplateParts) {
    parts.labels.remove(BASTION_TIER);
    parts.node_selector.retain(|key, _| !CAPACITY_SELECTORS.contains(&key.as_str()));
    let is_own =
        |toleration: &Toleration| !toleration.key.as_deref().is_some_and(|key| CAPACITY_SELECTORS.contains(&key));
    parts.tolerations.retain(is_own);
}

/// Parses the annotation `berth.dev/forbidden-node-labels`: entries `key` or `key=value`, separated by commas. The forbidden values of one node label key are
/// merged, and an entry without a value forbids every value of the key.
///
/// # Errors
/// The error names the entry that is not a label.
pub fn parse_forbidden(text: &str) -> Result<Vec<(String, Vec<String>)>, ForbiddenError> {
    let mut forbidden = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (key, value) = entry.split_once('=').map_or((entry, None), |(key, value)| (key, Some(value)));
        if !is_label_key(key) || !value.is_none_or(is_label_value) {
            return Err(ForbiddenError(entry.to_owned()));
        }
        forbid(&mut forbidden, key.to_owned(), value.map(str::to_owned).into_iter().collect());
    }
    Ok(forbidden)
}

/// Key and value of the first node selector entry that is forbidden.
fn selects_forbidden(
    forbidden: &[(String, Vec<String>)],
    node_selector: &BTreeMap<String, String>,
) -> Option<(String, String)> {
    forbidden.iter().find_map(|(key, values)| {
        let value = node_selector.get(key)?;
        (values.is_empty() || values.contains(value)).then(|| (key.clone(), value.clone()))
    })
}

fn forbid(forbidden: &mut Vec<(String, Vec<String>)>, key: String, mut values: Vec<String>) {
    match forbidden.iter_mut().find(|(known, _)| *known == key) {
        None => forbidden.push((key, values)),
        Some((_, known)) if values.is_empty() => known.clear(),
        // An earlier entry of the annotation forbids every value of the node label `key`.
        Some((_, known)) if known.is_empty() => {}
        Some((_, known)) => {
            values.retain(|value| !known.contains(value));
            known.append(&mut values);
        }
    }
}

/// Adds requirements that exclude nodes with the forbidden labels to every term of the required node affinity.
fn avoid(parts: &mut TemplateParts, forbidden: &[(String, Vec<String>)]) {
    let wanted: Vec<NodeSelectorRequirement> = forbidden
        .iter()
        .map(|(key, values)| NodeSelectorRequirement {
            key: key.clone(),
            operator: if values.is_empty() { "DoesNotExist" } else { "NotIn" }.to_owned(),
            values: (!values.is_empty()).then(|| values.clone()),
        })
        .collect();
    let node_affinity = parts.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let required = &mut node_affinity.required_during_scheduling_ignored_during_execution;
    let Some(selector) = required else {
        let term = NodeSelectorTerm { match_expressions: Some(wanted), match_fields: None };
        *required = Some(NodeSelector { node_selector_terms: vec![term] });
        return;
    };
    for term in &mut selector.node_selector_terms {
        let is_empty = term.match_expressions.as_ref().is_none_or(Vec::is_empty)
            && term.match_fields.as_ref().is_none_or(Vec::is_empty);
        // A node selector term without requirements matches no node, and an added requirement would make the term match nodes.
        if !is_empty {
            append(term.match_expressions.get_or_insert_default(), &wanted);
        }
    }
}

/// Adds the elements of a list that another list lacks.
fn append<T: PartialEq + Clone>(into: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !into.contains(item) {
            into.push(item.clone());
        }
    }
}

fn merge(
    part: &'static str,
    into: &mut BTreeMap<String, String>,
    from: &BTreeMap<String, String>,
) -> Result<(), PlacementError> {
    for (key, second) in from {
        let first = into.entry(key.clone()).or_insert_with(|| second.clone());
        if first != second {
            let (key, first, second) = (key.clone(), first.clone(), second.clone());
            return Err(PlacementError::Conflict { part, key, first, second });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
