//! Shapes: the pod sets of Workloads; Workloads of a namespace with equal pod sets share one shape.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api as api;
use berth_api::json::to_text;
use berth_engine::model as engine;
use berth_jobs::{LimitSummary, PodSetDigest, PodSetNeeds, RequestRules, TemplateParts, WorkloadNeeds};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::deltas;

/// The pod sets of a Workload, reduced to the fields on which decisions depend.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Namespace, reduced pod sets, digests and constraints as JSON: the identity of the shape, and the source from which the other fields are computed again.
    source: Arc<str>,
    /// The pod sets for the engine.
    pub pod_sets: Vec<engine::PodSetSpec>,
    /// Digests by which a job is compared with its Workload.
    pub digests: Vec<PodSetDigest>,
    /// The digest of the requests of each pod set, see [`berth_jobs::requests_digest`].
    asks: Box<[[u8; 16]]>,
    /// The parts of the pod templates that Berth restores when a job stops.
    pub originals: Vec<TemplateParts>,
    /// The reason why the pod sets are not valid in any cluster: the present schema may be stricter than the schema at their creation.
    pub(crate) illegal: Option<String>,
    /// The reason why the requests of the pod sets are out of bounds.
    pub refused: Option<String>,
}

impl Shape {
    /// Whether pods whose requests have this digest have the same requests as the pods of the pod set.
    pub fn is_asked_by(&self, pod_set: &str, asks: &[u8; 16]) -> bool {
        self.digests.iter().zip(self.asks.iter()).any(|(set, given)| set.name == pod_set && given == asks)
    }

    /// The resource of which a pod requests more than the pods of a pod set.
    pub fn exceeded_by(&self, pod_set: &str, own: &PodSetNeeds) -> Option<Excess> {
        let given = self.pod_sets.iter().find(|set| set.name == pod_set)?;
        own.requests.iter().find_map(|(resource, asked)| {
            let given = given.requests.get(resource).copied().unwrap_or(engine::Amount::ZERO).max(engine::Amount::ZERO);
            (*asked > given).then(|| Excess { resource: resource.clone(), asked: *asked, given })
        })
    }
}

/// A resource of which a pod requests more than was admitted.
#[derive(Debug)]
pub struct Excess {
    /// The name of the resource.
    pub resource: String,
    /// The amount that the pod requests, in milli units for `cpu` and in units for other resources.
    pub asked: engine::Amount,
    /// The amount that each pod of the pod set may request, in the same unit; zero if the pod set has none of the resource.
    pub given: engine::Amount,
}

/// The parts of the text that identifies a shape.
type Source = (String, Vec<api::PodSet>, Vec<PodSetDigest>, Vec<u64>);

/// The facts on which the requests of pods depend in addition to their pod sets.
pub struct RequestContext<'a> {
    /// The combined LimitRanges of the namespace; their defaults count as requests.
    pub limits: LimitSummary,
    /// The fixed overhead of a pod, by the name of the pod's RuntimeClass.
    pub overheads: &'a BTreeMap<String, BTreeMap<String, Quantity>>,
    /// The rules of the configuration by which requests become charged quota.
    pub rules: RequestRules,
    /// True if pod sets that violate the validation rules of Workloads are refused.
    pub(crate) strict: bool,
    /// True if equal Workloads must have equal pod templates, as far as Kueue compares pod templates.
    pub(crate) compares_templates: bool,
}

impl RequestContext<'_> {
    /// The requests of pod sets, as this `RequestContext` makes them from the pod templates.
    pub fn needs_of(&self, pod_sets: &[api::PodSet]) -> WorkloadNeeds {
        let overhead = |class: &str| self.overheads.get(class);
        berth_jobs::workload_needs(pod_sets, &self.limits, overhead, &self.rules)
    }

    /// The digest of the fields other than requests by which a pod set differs from other pod sets.
    fn constraints_of(&self, set: &api::PodSet) -> u64 {
        if !self.compares_templates {
            return berth_jobs::placement_constraints(set);
        }
        let overhead = |class: &str| self.overheads.get(class);
        let Some(spec) = &set.template.spec else { return 0 };
        let spec = berth_jobs::spec_as_run(spec, &self.limits, overhead, &self.rules);
        berth_jobs::template_shape(&spec, set.topology_request.as_ref())
    }
}

/// All shapes in use.
#[derive(Debug, Default)]
pub struct Shapes {
    known: BTreeMap<Arc<str>, Arc<Shape>>,
}

impl Shapes {
    /// The shape of the given pod sets.
    pub fn of(&mut self, namespace: &str, pod_sets: &[api::PodSet], around: &RequestContext<'_>) -> Arc<Shape> {
        let reduced: Vec<api::PodSet> = pod_sets.iter().map(berth_jobs::reduced_pod_set).collect();
        let digests: Vec<PodSetDigest> = pod_sets.iter().map(PodSetDigest::of).collect();
        let constraints: Vec<u64> = pod_sets.iter().map(|set| around.constraints_of(set)).collect();
        let source = to_text(&(namespace, &reduced, &digests, &constraints));
        if let Some(shape) = self.known.get(source.as_str()) {
            return shape.clone();
        }
        let faults = api::validation::validate_pod_sets(pod_sets);
        let illegal = (around.strict && !faults.is_empty()).then(|| api::validation::summary(&faults));
        let originals = pod_sets.iter().map(TemplateParts::of_pod_set).collect();
        let asks = pod_sets.iter().map(|set| berth_jobs::requests_digest(&set.template)).collect();
        let source: Arc<str> = source.into();
        let fixed = Fixed { digests, constraints, asks, originals, illegal };
        let shape = Arc::new(compute(source.clone(), &reduced, fixed, around));
        self.known.insert(source, shape.clone());
        shape
    }

    /// Forgets a shape that only the caller still uses.
    pub fn release(&mut self, shape: &Arc<Shape>) {
        if Arc::strong_count(shape) <= 2 {
            self.known.remove(&shape.source);
        }
    }

    /// Computes the shapes of a namespace (of all namespaces for `None`) again after a change of the facts on which the shapes depend. The result of `renew`
    /// has each replaced shape with its successor; unchanged shapes stay. A shape whose source text cannot be read again is marked as refused, because its
    /// requests were computed from the facts before the change.
    pub(crate) fn renew<'a>(
        &mut self,
        namespace: Option<&str>,
        around: impl Fn(&str) -> RequestContext<'a>,
    ) -> Vec<(Arc<Shape>, Arc<Shape>)> {
        let mut renewed = Vec::new();
        for shape in self.known.values_mut() {
            let (place, reduced, digests, constraints) = match serde_json::from_str::<Source>(&shape.source) {
                Ok(source) => source,
                Err(error) => {
                    let refused = Some(format!("spec.podSets: {error}"));
                    if shape.refused != refused {
                        let new = Arc::new(Shape { refused, ..Shape::clone(shape) });
                        renewed.push((std::mem::replace(shape, new.clone()), new));
                    }
                    continue;
                }
            };
            if namespace.is_some_and(|namespace| namespace != place) {
                continue;
            }
            let (asks, originals, illegal) = (shape.asks.clone(), shape.originals.clone(), shape.illegal.clone());
            let fixed = Fixed { digests, constraints, asks, originals, illegal };
            let new = compute(shape.source.clone(), &reduced, fixed, &around(&place));
            if new.pod_sets != shape.pod_sets || new.refused != shape.refused {
                let new = Arc::new(new);
                renewed.push((std::mem::replace(shape, new.clone()), new));
            }
        }
        renewed
    }
}

/// The part of a shape that depends on nothing but the pod sets.
struct Fixed {
    digests: Vec<PodSetDigest>,
    constraints: Vec<u64>,
    asks: Box<[[u8; 16]]>,
    originals: Vec<TemplateParts>,
    illegal: Option<String>,
}

fn compute(source: Arc<str>, reduced: &[api::PodSet], fixed: Fixed, around: &RequestContext<'_>) -> Shape {
    let Fixed { digests, constraints, asks, originals, illegal } = fixed;
    let needs = around.needs_of(reduced);
    let pod_sets = needs.pod_sets.into_iter().zip(constraints).map(deltas::pod_set).collect();
    Shape { source, pod_sets, digests, asks, originals, illegal, refused: needs.refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_with_unreadable_source_is_refused_when_facts_change() {
        let overheads = BTreeMap::new();
        let around = || RequestContext {
            limits: LimitSummary::of([]),
            overheads: &overheads,
            rules: RequestRules::default(),
            strict: true,
            compares_templates: false,
        };
        let mut shapes = Shapes::default();
        let good = shapes.of("a", &[], &around());
        let source: Arc<str> = "{".into();
        shapes.known.insert(source.clone(), Arc::new(Shape { source, ..Shape::clone(&good) }));
        let renewed = shapes.renew(None, |_| around());
        let [(old, new)] = renewed.as_slice() else { panic!("{renewed:?}") };
        assert_eq!(old.refused, None);
        assert!(new.refused.as_ref().is_some_and(|text| text.starts_with("spec.podSets: ")), "{new:?}");
        assert!(shapes.renew(None, |_| around()).is_empty(), "the same again");
    }
}
