//! CEL rules of the CRDs for limits that Kueue checks only in its webhook. As a part of the CRDs, these CEL rules hold also while no webhook answers.
//!
//! The API server estimates the cost of each rule at the limits of the schema, and refuses a CRD above a cost of 10,000,000. At the limits of the
//! schema, an object has 65,536 quotas, and a text without `maxLength` has three million characters. The rules of this module therefore do not read
//! texts, and only compare texts in lists, where the number of entries alone counts. `docs/departures/0027-rules-in-the-crd.md` lists the rules that
//! only the webhook checks.

use serde_json::{Value, json};

use crate::rules::rules_with_value;

/// The rule that quotas and limits are not negative. A quota whose text begins with `-0` or `-.` is accepted, because it may be zero, and a CEL rule would have
/// to read the rest of the text to find out.
pub(crate) fn not_negative() -> Value {
    rules_with_value(&[[
        "type(self) in [int] ? self >= 0 : !self.startsWith('-') || self.startsWith('-0') || self.startsWith('-.')",
        "",
        NOT_NEGATIVE,
        "",
    ]])
}

/// The rule that a weight is not negative. An object has only one weight, so a CEL rule may read the text of the weight without too much cost.
pub(crate) fn weight() -> Value {
    rules_with_value(&[
        [
            "type(self) == int ? self >= 0 : !isQuantity(self) || quantity(self).compareTo(quantity('0')) >= 0",
            "",
            NOT_NEGATIVE,
            "",
        ],
        [
            "type(self) == int || !isQuantity(self) || quantity(self).compareTo(quantity('1n')) != 0",
            "",
            "must be 0 or greater than 1n",
            "",
        ],
    ])
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Rules of the resource groups of a ClusterQueue. Cohorts do not have these rules about their resource groups: the API server would stop comparing
/// the names of a Cohort with a thousand names, and refuse the Cohort.
pub(crate) fn groups_of_queue() -> Value {
    rules_with_value(&[
        [
            "self.all(g, g.coveredResources.all(r, self.exists_one(h, r in h.coveredResources) && \
             g.coveredResources.exists_one(q, [q] == [r])))",
            "",
            "each resource must be covered by one group only, and once",
            "",
        ],
        [
            "[self.map(g, g.flavors.map(f, f.name))].all(groups, groups.all(g, g.all(n, groups.exists_one(other, n in other))))",
            "",
            "each flavor must be in one group only, and once",
            "",
        ],
        [
            "self.all(g, g.flavors.all(f, f.resources.all(r, !has(r.lendingLimit) || !(type(r.lendingLimit) in [int]) || \
             !(type(r.nominalQuota) in [int]) || int(r.lendingLimit) <= int(r.nominalQuota))))",
            "",
            "lendingLimit must be less than or equal to the nominalQuota",
            "",
        ],
        [
            "self.map(g, g.flavors.size()).sum() <= 256",
            "",
            "total number of flavors of all resourceGroups must be at most 256",
            ", not %d'.format([self.map(g, g.flavors.size()).sum()])",
        ],
        [
            "self.map(g, g.coveredResources.size()).sum() <= 256",
            "",
            "total number of covered resources of all resourceGroups must be at most 256",
            ", not %d'.format([self.map(g, g.coveredResources.size()).sum()])",
        ],
        [
            "self.all(g, g.flavors.map(f, f.resources.size()).sum() <= 512)",
            "",
            "pairs of flavor and resource in a resourceGroup must be at most 512",
            ", not %d'.format([self.map(g, g.flavors.map(f, f.resources.size()).sum()).max()])",
        ],
    ])
}

/// Rules of a resource group: each flavor has the covered resources, in the order of `coveredResources`. Kueue's CRD compares only the numbers of
/// resources; Kueue's webhook compares the names.
pub(crate) fn resource_group() -> Value {
    rules_with_value(&[
        [
            "self.flavors.all(f, f.resources.size() == self.coveredResources.size())",
            "",
            "flavors must have the same number of resources as the coveredResources",
            "",
        ],
        [
            "self.flavors.all(f, f.resources.size() != self.coveredResources.size() || f.resources.map(r, r.name) == \
             self.coveredResources)",
            ".flavors",
            "the name of each resource must match the name in coveredResources",
            "",
        ],
    ])
}

/// Rules of a Cohort without a parent: quotas have no borrowing limit and no lending limit, because there is no other Cohort to borrow from or to
/// lend to.
pub(crate) const BELOW_A_PARENT: [[&str; 4]; 2] = [
    [
        "has(self.parentName) || !has(self.resourceGroups) || !self.resourceGroups.exists(g, g.flavors.exists(f, \
         f.resources.exists(r, has(r.borrowingLimit))))",
        "",
        "borrowingLimit must be nil when parent is empty",
        "",
    ],
    [
        "has(self.parentName) || !has(self.resourceGroups) || !self.resourceGroups.exists(g, g.flavors.exists(f, \
         f.resources.exists(r, has(r.lendingLimit))))",
        "",
        "lendingLimit must be nil when parent is empty",
        "",
    ],
];

/// Rules for a namespace selector: each operator is known, and has values or no values as it needs.
pub(crate) fn selector() -> Value {
    rules_with_value(&[
        [
            "!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', \
             'DoesNotExist'])",
            ".matchExpressions",
            "supported operators: In, NotIn, Exists, DoesNotExist",
            "",
        ],
        [
            "!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['In', 'NotIn']) || \
             has(e.values) && e.values.size() > 0)",
            ".matchExpressions",
            "values must be specified when the operator is In or NotIn",
            "",
        ],
        [
            "!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['Exists', 'DoesNotExist']) || \
             !has(e.values) || e.values.size() == 0)",
            ".matchExpressions",
            "values must be empty when the operator is Exists or DoesNotExist",
            "",
        ],
    ])
}

/// The rule that taints are unique by key and effect; Kueue's schema has no list key for taints.
pub(crate) const TAINTS_ONCE: [&str; 4] = [
    "self.all(a, self.exists_one(b, [a.key, a.effect] == [b.key, b.effect]))",
    "",
    "taints must be unique by key and effect pair",
    ", and %s is not'.format([self.filter(a, !self.exists_one(b, [a.key, a.effect] == [b.key, b.effect]))[0].key])",
];

/// Pod sets together.
pub(crate) fn pod_sets() -> Value {
    rules_with_value(&[[
        "self.filter(s, has(s.minCount)).size() <= 1",
        "",
        "at most one podSet can use minCount",
        ", not %d'.format([self.filter(s, has(s.minCount)).size()])",
    ]])
}

/// Rules of a topology request: the level and the size of slices are set together or not at all.
pub(crate) fn slices() -> Value {
    rules_with_value(&[
        [
            "!has(self.podSetSliceRequiredTopology) || has(self.podSetSliceSize)",
            ".podSetSliceSize",
            "must be set together with podSetSliceRequiredTopology",
            "",
        ],
        [
            "!has(self.podSetSliceSize) || has(self.podSetSliceRequiredTopology)",
            ".podSetSliceSize",
            "must not be set without podSetSliceRequiredTopology",
            "",
        ],
    ])
}

/// The rule that the optional immutable field `clusterQueue` cannot be removed. The API server does not evaluate a CEL rule on a field when the field
/// is removed, so the field could be added again with another value.
pub(crate) fn cluster_queue_stays() -> Value {
    rules_with_value(&[["!has(oldSelf.clusterQueue) || has(self.clusterQueue)", ".clusterQueue", NOT_REMOVED, ""]])
}

/// The rule that the spec with the immutable field `field` cannot be removed; `None` for an empty name. The API server does not evaluate a CEL rule
/// within the spec when the spec is removed.
#[must_use]
pub fn stays(field: &str) -> Option<Value> {
    let rule = format!("!has(oldSelf.spec) || !has(oldSelf.spec.{field}) || has(self.spec)");
    let path = format!(".spec.{field}");
    (!field.is_empty()).then(|| json!({"rule": rule, "message": NOT_REMOVED, "fieldPath": path}))
}

const NOT_REMOVED: &str = "field is immutable: it must not be removed";
