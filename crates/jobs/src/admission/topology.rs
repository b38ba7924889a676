//! Rules about the topology annotations of a pod template.

use crate::kind::annotation;
use berth_api::PodSetSliceRequiredTopologyConstraint;
use berth_api::labels;
use berth_api::validation::{FieldError, qualified_name};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Layers of nested slices that may be asked for.
const LAYERS: usize = 3;

/// What is wrong with the topology annotations of the only pod set of a job: `path` is that of the template, `count` the
/// number of its pods.
pub(crate) fn topology_rules(path: &str, template: &PodTemplateSpec, count: i32) -> Vec<FieldError> {
    let Some(metadata) = &template.metadata else { return Vec::new() };
    let rules = Rules { path, metadata };
    let mut errors = rules.levels();
    errors.extend(rules.slices(count));
    errors.extend(rules.layers());
    if let Some(name) = annotation(metadata, labels::POD_SET_GROUP_NAME) {
        let message = "needs a job of exactly two pod sets";
        errors.push(rules.error(labels::POD_SET_GROUP_NAME, name, message));
    }
    errors
}

struct Rules<'a> {
    path: &'a str,
    metadata: &'a ObjectMeta,
}

impl Rules<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        annotation(self.metadata, key)
    }

    fn error(&self, key: &str, value: &str, message: impl Into<String>) -> FieldError {
        FieldError::new(format!("{}.metadata.annotations[{key}]", self.path), value, message)
    }

    /// At most one wish about the level, and each a label key.
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
        if let Some(text) = self.get(unconstrained).filter(|text| text.trim().parse::<bool>().is_err()) {
            errors.push(self.error(unconstrained, text, "must be true or false"));
        }
        errors
    }

    /// Slices have a level and a size, and a size that the pods can fill.
    fn slices(&self, count: i32) -> Option<FieldError> {
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
                let fits = size.trim().parse::<i32>().is_ok_and(|size| (1..=count).contains(&size));
                (!fits).then(|| self.error(key, size, format!("must be a whole number from 1 to {count}")))
            }
        }
    }

    /// Nested slices: one to three layers, each size a divisor of the one before.
    fn layers(&self) -> Option<FieldError> {
        let key = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
        let text = self.get(key)?;
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
        let uneven = layers.windows(2).find_map(|pair| match pair {
            [outer, inner] if outer.size % inner.size != 0 => Some((outer.size, inner.size)),
            _ => None,
        });
        uneven.map(|(outer, inner)| self.error(key, text, format!("size {inner} must divide the size before, {outer}")))
    }
}
