//! Rules about the topology annotations of pod templates.

use crate::metadata::{go_bool, written};
use crate::unsupported::TOPOLOGY;
use berth_api::PodSetSliceRequiredTopologyConstraint;
use berth_api::labels;
use berth_api::validation::{FieldError, qualified_name};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Largest number of layers of nested topology slices.
const LAYERS: usize = 3;

/// A pod template that may have topology annotations.
pub(crate) struct Place<'a> {
    /// Path of the template's metadata.
    pub(crate) path: String,
    pub(crate) metadata: Option<&'a ObjectMeta>,
    /// Number of pods of the template, if known.
    pub(crate) count: Option<i32>,
}

/// Faults of the topology annotations of a job's pod sets.
pub(crate) fn topology_rules(sets: &[Place<'_>]) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = sets.iter().flat_map(Place::rules).collect();
    let mut groups: BTreeMap<&str, Vec<&Place<'_>>> = BTreeMap::new();
    for set in sets {
        if let Some(name) = set.get(labels::POD_SET_GROUP_NAME) {
            groups.entry(name).or_default().push(set);
        }
    }
    errors.extend(groups.values().flat_map(|members| grouped(members)));
    errors
}

/// Faults of a pod set group: the group must have two pod sets with equal topology annotations, of which one has a single pod.
fn grouped(members: &[&Place<'_>]) -> Vec<FieldError> {
    let key = labels::POD_SET_GROUP_NAME;
    let refuse = |message: String| {
        let error = |set: &&Place<'_>| set.error(key, set.get(key).unwrap_or_default(), message.clone());
        members.iter().map(error).collect::<Vec<_>>()
    };
    let [one, other] = members else {
        return refuse(format!("must be the group of exactly 2 pod sets of the job, not of {}", members.len()));
    };
    let mut errors = Vec::new();
    if let (Some(first), Some(second)) = (one.count, other.count)
        && first != 1
        && second != 1
    {
        errors.extend(refuse(format!("needs a pod set of 1 pod beside the other: they have {first} and {second}")));
    }
    for key in [labels::POD_SET_REQUIRED_TOPOLOGY, labels::POD_SET_PREFERRED_TOPOLOGY] {
        if one.get(key) != other.get(key) {
            let differ = |set: &Place<'_>, from: &Place<'_>| {
                let message = format!("must be the same as in {}, which is of its group", from.path);
                set.error(key, set.get(key).unwrap_or_default(), message)
            };
            errors.extend([differ(one, other), differ(other, one)]);
        }
    }
    errors
}

impl Place<'_> {
    /// Faults of the template's topology annotations that do not depend on other pod sets of the job.
    pub(crate) fn rules(&self) -> Vec<FieldError> {
        let mut errors = self.levels();
        errors.extend(self.slices());
        errors.extend(self.layers());
        errors.extend(self.group());
        errors
    }

    /// Faults of present and empty topology annotations, which [`Place::rules`] treats as any other value.
    pub(crate) fn empty(&self) -> Vec<FieldError> {
        let empty = TOPOLOGY.into_iter().filter(|key| self.get(key) == Some(""));
        empty.map(|key| self.error(key, "", "must not be empty: leave it out, or say what it asks for")).collect()
    }

    fn get(&self, key: &str) -> Option<&str> {
        written(self.metadata?.annotations.as_ref(), key)
    }

    fn error(&self, key: &str, value: &str, message: impl Into<String>) -> FieldError {
        FieldError::new(format!("{}.annotations[{key}]", self.path), value, message)
    }

    /// Fault of the topology level: at most one annotation may set the level, and its value must be a label key.
    fn levels(&self) -> Vec<FieldError> {
        let required = labels::POD_SET_REQUIRED_TOPOLOGY;
        let preferred = labels::POD_SET_PREFERRED_TOPOLOGY;
        let unconstrained = labels::POD_SET_UNCONSTRAINED_TOPOLOGY;
        let given: Vec<&str> =
            [required, preferred, unconstrained].into_iter().filter(|key| self.get(key).is_some()).collect();
        let mut errors = Vec::new();
        if let [first, others @ ..] = given.as_slice() {
            errors.extend(others.iter().map(|key| {
                self.error(key, self.get(key).unwrap_or_default(), format!("must not be set together with {first}"))
            }));
        }
        for key in [required, preferred, labels::POD_SET_SLICE_REQUIRED_TOPOLOGY] {
            let wrong = self.get(key).and_then(|level| Some((level, qualified_name(level)?)));
            errors.extend(wrong.map(|(level, wrong)| self.error(key, level, wrong)));
        }
        if let Some(text) = self.get(unconstrained).filter(|text| go_bool(text).is_none()) {
            errors.push(self.error(unconstrained, text, "must be true or false"));
        }
        errors
    }

    /// Fault of topology slices: a slice needs a level and a size, and the pods must fill its size.
    fn slices(&self) -> Option<FieldError> {
        let key = labels::POD_SET_SLICE_SIZE;
        match (self.get(labels::POD_SET_SLICE_REQUIRED_TOPOLOGY), self.get(key)) {
            (None, None) => None,
            (Some(_), None) => {
                let with = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY;
                Some(self.error(key, "", format!("must be set together with {with}")))
            }
            (None, Some(size)) => {
                let without = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY;
                Some(self.error(key, size, format!("must not be set without {without}")))
            }
            (Some(_), Some(size)) => {
                let most = self.count.unwrap_or(i32::MAX);
                let fits = size.parse::<i32>().is_ok_and(|size| (1..=most).contains(&size));
                (!fits).then(|| self.error(key, size, format!("must be a whole number from 1 to {most}")))
            }
        }
    }

    /// Fault of nested topology slices: there are one to three layers, and each size divides the size of the layer before.
    fn layers(&self) -> Option<FieldError> {
        let key = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
        let text = self.get(key)?;
        let plain = [labels::POD_SET_SLICE_REQUIRED_TOPOLOGY, labels::POD_SET_SLICE_SIZE];
        if let Some(other) = plain.into_iter().find(|other| self.get(other).is_some()) {
            return Some(self.error(key, text, format!("must not be set together with {other}")));
        }
        let layers: Vec<PodSetSliceRequiredTopologyConstraint> = match serde_json::from_str(text) {
            Ok(layers) => layers,
            Err(error) => return Some(self.error(key, text, format!("must be a JSON list of slices: {error}"))),
        };
        if layers.is_empty() || layers.len() > LAYERS {
            return Some(self.error(key, text, format!("must have from 1 to {LAYERS} entries, not {}", layers.len())));
        }
        if let Some(layer) = layers.iter().find(|layer| layer.size <= 0) {
            return Some(self.error(key, text, format!("size {} must be greater than 0", layer.size)));
        }
        if let Some((level, wrong)) = layers.iter().find_map(|l| Some((&l.topology, qualified_name(&l.topology)?))) {
            return Some(self.error(key, text, format!("topology {level:?}: {wrong}")));
        }
        if let Some(most) = self.count
            && let Some(outer) = layers.first().filter(|outer| outer.size > most)
        {
            return Some(self.error(key, text, format!("size {} must not be greater than {most}", outer.size)));
        }
        let again = layers
            .iter()
            .enumerate()
            .find(|(at, layer)| layers.iter().take(*at).any(|before| before.topology == layer.topology));
        if let Some((_, layer)) = again {
            return Some(self.error(key, text, format!("topology {:?} must be in one entry only", layer.topology)));
        }
        let uneven = layers.windows(2).find_map(|pair| match pair {
            [outer, inner] if outer.size % inner.size != 0 => Some((outer.size, inner.size)),
            _ => None,
        });
        uneven.map(|(outer, inner)| self.error(key, text, format!("size {inner} must divide the size before, {outer}")))
    }

    /// Fault of the annotation of a pod set group: the pod set must have a topology level and no slices.
    fn group(&self) -> Option<FieldError> {
        let key = labels::POD_SET_GROUP_NAME;
        let name = self.get(key)?;
        if name.parse::<u64>().is_ok() {
            return Some(self.error(key, name, "must not be a number"));
        }
        let slices = [
            labels::POD_SET_SLICE_SIZE,
            labels::POD_SET_SLICE_REQUIRED_TOPOLOGY,
            labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
        ];
        if let Some(other) = slices.into_iter().find(|other| self.get(other).is_some()) {
            return Some(self.error(key, name, format!("must not be set together with {other}")));
        }
        let levels = [labels::POD_SET_REQUIRED_TOPOLOGY, labels::POD_SET_PREFERRED_TOPOLOGY];
        let [required, preferred] = levels;
        let placed = levels.into_iter().any(|level| self.get(level).is_some());
        (!placed).then(|| self.error(key, name, format!("must be set together with {required} or {preferred}")))
    }
}
