//! Reasons why pods can not run on a flavor, whatever the quota.

use crate::assign::matching::{
    CAPACITY_LABELS, affinity_matches, in_each_alternative, is_other_capacity, of_key, requires_forbidden,
    selects_forbidden, untolerated,
};
use crate::assign::member::Member;
use crate::assign::scan::Scan;
use crate::explain::why::Why;
use crate::model::{FlavorSpec, PodSetSpec, Requirement};
use crate::options::profile::Departure;
use crate::world::ids::{FlavorId, ResourceId};
use crate::world::slices::older::Older;
use crate::world::store::Store;

impl Scan<'_> {
    pub(super) fn mismatch(&self, flavor: FlavorId) -> Option<Why> {
        let name = self.store.flavor(flavor);
        let because = |text: String| Some(Why::Mismatch(text.into_boxed_str()));
        let Some(spec) = self.store.flavors.get(&flavor) else {
            return because(format!("flavor {name} not found"));
        };
        if let Some(problem) = &spec.unusable {
            return because(format!("flavor {name}: {problem}"));
        }
        self.members.iter().find_map(|member: &Member<'_>| self.mismatch_of(&member.pod_set.spec, name, spec))
    }

    fn mismatch_of(&self, pods: &PodSetSpec, name: &str, spec: &FlavorSpec) -> Option<Why> {
        let because = |text: String| Some(Why::Mismatch(text.into_boxed_str()));
        if let Some((key, value)) = selects_forbidden(&spec.forbidden, &pods.node_selector) {
            return because(format!("flavor {name} forbids nodes with {key}={value}, which the pods select"));
        }
        if let Some((key, _)) = spec.forbidden.first().filter(|_| pods.no_affinity) {
            return because(format!(
                "flavor {name} forbids nodes with the label {key}, which takes a node affinity that this kind of job cannot be given: taint these nodes and take the annotation berth.dev/forbidden-node-labels off the flavor, or add a flavor without it to the ClusterQueue"
            ));
        }
        if let Some((key, value)) = self.other_tier(pods, spec) {
            return because(format!("flavor {name} is not the capacity that the pods select with {key}={value}"));
        }
        if let Some(taint) = untolerated(spec, &pods.tolerations) {
            return because(format!("untolerated taint {taint} in flavor {name}"));
        }
        match affinity_matches(&spec.node_labels, &pods.node_selector, &pods.affinity) {
            Ok(true) => {
                let labels = &spec.node_labels;
                let is_other = |r: &Requirement| is_other_capacity(labels, r, |key| self.is_offered(key));
                let keeps_off = |alternative: &[Requirement], r: &Requirement| {
                    is_other(r) || requires_forbidden(&spec.forbidden, alternative, r)
                };
                let (alternative, found) = in_each_alternative(labels, &pods.affinity, keeps_off)?;
                because(if is_other(found) {
                    format!("flavor {name} is not the capacity that the pods require with {}", found.text())
                } else {
                    let all: Vec<String> = of_key(alternative, &found.key).map(Requirement::text).collect();
                    format!("flavor {name} forbids nodes with {}, which the pods require", all.join(" and "))
                })
            }
            Ok(false) => because(format!("flavor {name} doesn't match node affinity")),
            Err(fault) => Some(Why::Illegal(fault.into_boxed_str())),
        }
    }

    /// The selector by which the pods ask for a kind of capacity (a reservation, spot) that other flavors of the resource group offer and this flavor does not.
    /// Pods that select another kind of capacity are kept off the flavor, because no node could satisfy both the pods and the flavor.
    fn other_tier<'p>(&self, pods: &'p PodSetSpec, spec: &FlavorSpec) -> Option<(&'p str, &'p str)> {
        let selector = &pods.node_selector;
        CAPACITY_LABELS.iter().find_map(|key| {
            let (key, value) = selector.get_key_value(*key)?;
            (spec.node_labels.get(key) != Some(value) && self.is_offered(key)).then_some((key.as_str(), value.as_str()))
        })
    }

    /// Whether a flavor of the resource group has the node label `key`, so that pods that select this label have to get that flavor.
    fn is_offered(&self, key: &str) -> bool {
        let mut flavors = self.group.flavors.iter().filter_map(|flavor| self.store.flavors.get(flavor));
        self.request.options.profile.has(Departure::CapacitySelectorsPin)
            && flavors.any(|flavor| flavor.node_labels.contains_key(key))
    }
}

impl Older {
    /// Reason why a flavor is not usable for the replacement slice: the pods of the new slice must use the same flavor as the existing pods.
    pub(crate) fn mismatch(&self, store: &Store, pod_set: &str, resource: ResourceId, flavor: FlavorId) -> Option<Why> {
        let given = self.given(pod_set, resource).map(|(given, _)| given);
        if given == Some(flavor) {
            return None;
        }
        let (asked, given) = (store.flavor(flavor), given.map_or("", |given| store.flavor(given)));
        let text = format!("could not assign {asked} flavor since the original workload is assigned: {given}");
        Some(Why::Mismatch(text.into_boxed_str()))
    }
}
