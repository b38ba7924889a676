//! The pod sets of a class of equals. Pod sets share their specs without requests: a thousand sizes of one pod template make a thousand classes of equals, but
//! only one shared spec.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::PodSetSpec;
use crate::quota::balance::{Units, units};
use crate::world::ids::{Interner, ResourceId};

/// A pod set with interned resources.
#[derive(Clone, Debug)]
pub(crate) struct PodSet {
    /// The spec of the pod set without the requests.
    pub(crate) spec: Arc<PodSetSpec>,
    /// Requests of one pod, sorted by resource name.
    pub(crate) requests: Box<[(ResourceId, Units)]>,
}

impl PodSet {
    /// Whether the pod set was made from the spec `spec`.
    pub(crate) fn is_as(&self, spec: &PodSetSpec, resources: &Interner<ResourceId, String>) -> bool {
        let PodSetSpec {
            name,
            count,
            min_count,
            requests,
            node_selector,
            affinity,
            tolerations,
            constraints,
            no_affinity,
            topology_request,
            group,
        } = spec;
        let own = &self.spec;
        let wanted = requests.iter().map(|(resource, amount)| (resource, units(*amount)));
        own.count == *count
            && own.min_count == *min_count
            && own.topology_request == *topology_request
            && own.name == *name
            && self.requests.iter().map(|(resource, value)| (resources.key(*resource), *value)).eq(wanted)
            && own.node_selector == *node_selector
            && own.affinity == *affinity
            && own.tolerations == *tolerations
            && own.constraints == *constraints
            && own.no_affinity == *no_affinity
            && own.group == *group
    }
}

/// The shared specs of all pod sets, and the number of pod sets that use each of them.
#[derive(Debug, Default)]
pub(crate) struct Shapes(FxHashMap<Arc<PodSetSpec>, u32>);

impl Shapes {
    /// A pod set of a new class of equals, with a shared spec.
    pub(crate) fn pod_set(&mut self, wanted: &PodSetSpec, resources: &mut Interner<ResourceId, String>) -> PodSet {
        let mut spec = wanted.clone();
        let requests = std::mem::take(&mut spec.requests);
        let requests = requests.iter().map(|(resource, amount)| (resources.intern(resource), units(*amount))).collect();
        let known = self.0.get_key_value(&spec).map(|(known, _)| Arc::clone(known));
        let spec = known.unwrap_or_else(|| Arc::new(spec));
        let users = self.0.entry(Arc::clone(&spec)).or_default();
        *users = users.saturating_add(1);
        PodSet { spec, requests }
    }

    /// Releases the shared specs of a class of equals that has no members any more.
    pub(crate) fn release(&mut self, pod_sets: &[PodSet]) {
        for pod_set in pod_sets {
            if let Some(users) = self.0.get_mut(&pod_set.spec) {
                *users = users.saturating_sub(1);
                if *users == 0 {
                    self.0.remove(&pod_set.spec);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::model::{Amount, PodSetSpec};
    use crate::world::ids::Interner;

    use super::Shapes;

    fn spec_of(name: &str, cpu: i64) -> PodSetSpec {
        let requests = BTreeMap::from([("cpu".to_owned(), Amount::new(cpu))]);
        PodSetSpec { name: name.to_owned(), count: 1, requests, ..PodSetSpec::default() }
    }

    #[test]
    fn pod_set_shape_is_stored_once_until_last_user_leaves() {
        let (mut shapes, mut resources) = (Shapes::default(), Interner::new());
        let sizes: Vec<_> = (0..100).map(|cpu| [shapes.pod_set(&spec_of("main", cpu), &mut resources)]).collect();
        let other = [shapes.pod_set(&spec_of("other", 1), &mut resources)];
        assert_eq!(shapes.0.len(), 2);
        for (cpu, of_a_size) in (0..).zip(&sizes) {
            assert!(of_a_size.iter().all(|pod_set| pod_set.is_as(&spec_of("main", cpu), &resources)));
            assert!(!of_a_size.iter().any(|pod_set| pod_set.is_as(&spec_of("main", cpu + 1), &resources)));
            assert_eq!(shapes.0.len(), 2);
            shapes.release(of_a_size);
        }
        assert_eq!(shapes.0.len(), 1);
        shapes.release(&other);
        assert!(shapes.0.is_empty());
    }
}
