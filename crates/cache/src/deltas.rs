//! Translation of API objects into the engine's types, without any decision. An object that cannot be read is translated as `inactive`, with a text that names
//! the field.

mod affinity;
mod error;
mod reserved;

use std::collections::BTreeMap;

use berth_api as api;
use berth_engine::model as engine;
use berth_quantity::Amount;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::admission_checks::{self as checks, Check};
pub use crate::deltas::error::SpecError;
pub use crate::deltas::reserved::{Pods, reservation};
use crate::settings::Settings;

/// An amount of a resource in the notation of the API.
pub fn quantity(resource: &str, amount: Amount) -> Quantity {
    Quantity(berth_quantity::format(resource, amount))
}

/// The effect of a taint; `None` for an unknown word.
pub(crate) fn taint_effect(text: &str) -> Option<engine::TaintEffect> {
    match text {
        "NoSchedule" => Some(engine::TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(engine::TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(engine::TaintEffect::NoExecute),
        _ => None,
    }
}

fn taint(taint: &core::Taint) -> Option<engine::Taint> {
    Some(engine::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint_effect(&taint.effect)?,
    })
}

/// A toleration in the engine's type; an unknown operator or effect is marked as illegal.
pub(crate) fn toleration(toleration: &core::Toleration) -> engine::Toleration {
    let named = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
    let effect = named.and_then(taint_effect);
    let op = match toleration.operator.as_deref() {
        _ if named.is_some() && effect.is_none() => engine::TolerationOp::Illegal,
        None | Some("" | "Equal") => engine::TolerationOp::Equal,
        Some("Exists") => engine::TolerationOp::Exists,
        Some("Gt") => engine::TolerationOp::Gt,
        Some("Lt") => engine::TolerationOp::Lt,
        Some(_) => engine::TolerationOp::Illegal,
    };
    engine::Toleration {
        key: toleration.key.clone().unwrap_or_default(),
        op,
        value: toleration.value.clone().unwrap_or_default(),
        effect,
    }
}

/// A ResourceFlavor in the engine's type. A flavor with a wrong annotation or capacity tier is unusable; `strict` makes a flavor that fails validation
/// unusable, too.
pub fn flavor(object: &api::ResourceFlavor, strict: bool) -> engine::FlavorSpec {
    let spec = &object.spec;
    let given = object.metadata.labels.as_ref().and_then(|labels| labels.get(api::labels::CAPACITY_TIER));
    let tier = given.map(|word| word.parse::<api::CapacityTier>());
    let no_tier = match &tier {
        Some(Err(problem)) => Some(format!("label {}: {problem}", api::labels::CAPACITY_TIER)),
        _ => None,
    };
    let annotations = object.metadata.annotations.as_ref();
    let forbidden = annotations.and_then(|annotations| annotations.get(api::labels::FORBIDDEN_NODE_LABELS));
    let (forbidden, unusable) = match forbidden.map(|text| berth_jobs::parse_forbidden(text)) {
        None => (Vec::new(), None),
        Some(Ok(forbidden)) => (forbidden, None),
        Some(Err(problem)) => {
            (Vec::new(), Some(format!("annotation {}: {problem}", api::labels::FORBIDDEN_NODE_LABELS)))
        }
    };
    engine::FlavorSpec {
        name: object.metadata.name.clone().unwrap_or_default(),
        node_labels: spec.node_labels.clone(),
        taints: spec.node_taints.iter().filter_map(taint).collect(),
        tolerations: spec.tolerations.iter().map(toleration).collect(),
        topology: spec.topology_name.clone(),
        forbidden,
        tier: tier.and_then(Result::ok).map(self::tier),
        unusable: no_tier
            .or(unusable)
            .or_else(|| refused(&api::validation::validate_resource_flavor(object)).filter(|_| strict)),
    }
}

/// A capacity tier in the engine's type.
pub fn tier(tier: api::CapacityTier) -> engine::Tier {
    match tier {
        api::CapacityTier::Reserved => engine::Tier::Reserved,
        api::CapacityTier::OnDemand => engine::Tier::OnDemand,
        api::CapacityTier::Spot => engine::Tier::Spot,
    }
}

/// A fair-sharing weight such as `1`, `2.5` or `500m` in nano units; an unreadable weight counts as 1, and validation of the object refuses such a weight.
fn weight(text: Option<&Quantity>) -> i64 {
    text.and_then(|quantity| berth_quantity::parse_quantity(&quantity.0).ok())
        .map_or(engine::WEIGHT_ONE, |nano| i64::try_from(nano.0).unwrap_or(i64::MAX))
}

/// The fair-sharing weight of a ClusterQueue, as a number.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn weight_of(queue: &api::ClusterQueue) -> f64 {
    let given = queue.spec.fair_sharing.as_ref().and_then(|sharing| sharing.weight.as_ref());
    weight(given) as f64 / engine::WEIGHT_ONE as f64
}

fn quota(resource: &str, text: &Quantity, field: &str) -> Result<Amount, SpecError> {
    berth_quantity::quota(resource, &text.0).map_err(|fault| SpecError::Quota { field: field.to_owned(), fault })
}

fn optional_quota(resource: &str, text: Option<&Quantity>, field: &str) -> Result<Option<Amount>, SpecError> {
    text.map(|text| quota(resource, text, field)).transpose()
}

/// Resource groups in the engine's type, or the error of the field that cannot be read.
///
/// # Errors
/// A quota cannot be read; the error names its field.
pub fn groups(groups: &[api::ResourceGroup]) -> Result<Vec<engine::ResourceGroup>, SpecError> {
    groups.iter().enumerate().map(|(index, group)| resource_group(index, group)).collect()
}

fn resource_group(index: usize, group: &api::ResourceGroup) -> Result<engine::ResourceGroup, SpecError> {
    let mut flavors = Vec::with_capacity(group.flavors.len());
    for flavor in &group.flavors {
        let mut quotas = Vec::with_capacity(group.covered_resources.len());
        for covered in &group.covered_resources {
            let Some(resource) = flavor.resources.iter().find(|resource| &resource.name == covered) else {
                // The API server refuses a flavor without quota for a covered resource; for Kueue's scheduler the quota is zero.
                quotas.push(engine::Quota { nominal: Amount::ZERO, borrowing_limit: None, lending_limit: None });
                continue;
            };
            let path = format!("spec.resourceGroups[{index}].flavors[{}].resources[{covered}]", flavor.name);
            quotas.push(engine::Quota {
                nominal: quota(covered, &resource.nominal_quota, &format!("{path}.nominalQuota"))?,
                borrowing_limit: optional_quota(
                    covered,
                    resource.borrowing_limit.as_ref(),
                    &format!("{path}.borrowingLimit"),
                )?,
                lending_limit: optional_quota(
                    covered,
                    resource.lending_limit.as_ref(),
                    &format!("{path}.lendingLimit"),
                )?,
            });
        }
        flavors.push(engine::FlavorQuotas { flavor: flavor.name.clone(), quotas });
    }
    Ok(engine::ResourceGroup { covered: group.covered_resources.clone(), flavors })
}

/// A Cohort in the engine's type; resource groups that cannot be read are left out.
pub fn cohort(object: &api::Cohort) -> engine::CohortSpec {
    let spec = &object.spec;
    engine::CohortSpec {
        name: object.metadata.name.clone().unwrap_or_default(),
        parent: spec.parent_name.clone().filter(|name| !name.is_empty()),
        groups: groups(&spec.resource_groups).unwrap_or_default(),
        weight: weight(spec.fair_sharing.as_ref().and_then(|sharing| sharing.weight.as_ref())),
    }
}

/// A label selector in the engine's type; `Err` names the requirement that cannot be read.
///
/// # Errors
/// A requirement has an unknown operator; the error names the requirement.
pub fn selector(selector: &LabelSelector) -> Result<engine::Selector, SpecError> {
    let mut requirements: Vec<engine::Requirement> = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| engine::Requirement {
            key: key.clone(),
            op: engine::SelectorOp::In,
            values: vec![value.clone()],
        })
        .collect();
    for expression in selector.match_expressions.iter().flatten() {
        let op = match expression.operator.as_str() {
            "In" => engine::SelectorOp::In,
            "NotIn" => engine::SelectorOp::NotIn,
            "Exists" => engine::SelectorOp::Exists,
            "DoesNotExist" => engine::SelectorOp::DoesNotExist,
            other => {
                return Err(SpecError::Operator { key: expression.key.clone(), operator: other.to_owned() });
            }
        };
        requirements.push(engine::Requirement {
            key: expression.key.clone(),
            op,
            values: expression.values.clone().unwrap_or_default(),
        });
    }
    Ok(engine::Selector(requirements))
}

/// Whether labels satisfy a label selector.
pub fn matches(selector: &engine::Selector, labels: &BTreeMap<String, String>) -> bool {
    selector.0.iter().all(|requirement| {
        let value = labels.get(&requirement.key);
        match requirement.op {
            engine::SelectorOp::In => value.is_some_and(|value| requirement.values.contains(value)),
            engine::SelectorOp::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
            engine::SelectorOp::Exists => value.is_some(),
            engine::SelectorOp::DoesNotExist => value.is_none(),
            engine::SelectorOp::Gt | engine::SelectorOp::Lt | engine::SelectorOp::Illegal => false,
        }
    })
}

/// Message about a stored ResourceFlavor or ClusterQueue that the present validation rules would refuse.
fn refused(errors: &[api::validation::FieldError]) -> Option<String> {
    (!errors.is_empty()).then(|| api::validation::summary(errors))
}

/// Stop policy of a queue. An unknown `stopPolicy` stops the ClusterQueue or LocalQueue, too, because the user may have meant to stop it.
pub fn stop(policy: Option<&str>) -> engine::StopPolicy {
    match policy {
        None | Some("None" | "") => engine::StopPolicy::None,
        Some("HoldAndDrain") => engine::StopPolicy::HoldAndDrain,
        Some(_) => engine::StopPolicy::Hold,
    }
}

/// A preemption policy of a ClusterQueue. A preemption policy of a ClusterQueue is `Never`, the API's default, if the field is absent or has a word that no
/// schema allows.
fn policy(text: Option<&str>) -> engine::PreemptionPolicy {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn fungibility(text: Option<&str>, default: engine::Fungibility) -> engine::Fungibility {
    match text {
        Some("TryNextFlavor") => engine::Fungibility::TryNextFlavor,
        Some("MayStopSearch" | "Borrow" | "Preempt") => engine::Fungibility::MayStopSearch,
        _ => default,
    }
}

/// Message about a field of a ClusterQueue that decides whether a job may run and that Berth does not support yet. Kueue ignores a concurrentAdmissionPolicy
/// while the feature gate is off; Berth reports the policy to the user who wrote it.
fn unsupported(spec: &api::ClusterQueueSpec) -> Option<String> {
    let message = "spec.concurrentAdmissionPolicy is not supported by Berth yet; make the ClusterQueue anew without it to \
                   admit workloads";
    spec.concurrent_admission_policy.is_some().then(|| message.to_owned())
}

/// A ClusterQueue in the engine's type; a ClusterQueue that is invalid, cannot be read or is being deleted is inactive, with the reason.
pub fn cluster_queue(
    object: &api::ClusterQueue,
    checks: &BTreeMap<String, Check>,
    settings: &Settings,
) -> engine::ClusterQueueSpec {
    let spec = &object.spec;
    let problem = || refused(&api::validation::validate_cluster_queue(object)).or_else(|| unsupported(spec));
    let mut inactive = if settings.refuse_invalid { problem() } else { None };
    let groups = groups(&spec.resource_groups).unwrap_or_else(|error| {
        inactive.get_or_insert_with(|| error.to_string());
        Vec::new()
    });
    let namespace_selector = spec.namespace_selector.as_ref().and_then(|text| match selector(text) {
        Ok(selector) => Some(selector),
        Err(error) => {
            inactive.get_or_insert_with(|| format!("spec.namespaceSelector.{error}"));
            None
        }
    });
    if object.metadata.deletion_timestamp.is_some() {
        inactive = Some("Can't admit new workloads; clusterQueue is terminating".into());
    }
    let preemption = spec.preemption.clone().unwrap_or_default();
    let borrow = preemption.borrow_within_cohort.clone().unwrap_or_default();
    let flavors = spec.flavor_fungibility.clone().unwrap_or_default();
    engine::ClusterQueueSpec {
        name: object.metadata.name.clone().unwrap_or_default(),
        cohort: spec.cohort_name.clone().filter(|name| !name.is_empty()),
        groups,
        strategy: match spec.queueing_strategy.as_deref() {
            Some("StrictFIFO") => engine::Strategy::StrictFifo,
            _ => engine::Strategy::BestEffortFifo,
        },
        stop: stop(spec.stop_policy.as_deref()),
        namespace_selector,
        preemption: engine::Preemption {
            within_cluster_queue: policy(preemption.within_cluster_queue.as_deref()),
            reclaim_within_cohort: policy(preemption.reclaim_within_cohort.as_deref()),
            borrow_within_cohort: matches!(borrow.policy.as_deref(), Some("LowerPriority" | "")),
            max_priority_threshold: borrow.max_priority_threshold,
        },
        fungibility: engine::FlavorFungibility {
            when_can_borrow: fungibility(flavors.when_can_borrow.as_deref(), engine::Fungibility::MayStopSearch),
            when_can_preempt: fungibility(flavors.when_can_preempt.as_deref(), engine::Fungibility::TryNextFlavor),
            preemption_over_borrowing: flavors.preference.as_deref() == Some("PreemptionOverBorrowing"),
        },
        weight: weight(spec.fair_sharing.as_ref().and_then(|sharing| sharing.weight.as_ref())),
        usage_based: spec
            .admission_scope
            .as_ref()
            .is_some_and(|scope| scope.admission_mode == "UsageBasedAdmissionFairSharing"),
        tiers: Vec::new(),
        max_shares: [None; 3],
        max_jobs: None,
        guard: engine::PreemptionGuard::default(),
        inactive,
        problems: checks::problems(spec, checks),
        admission_checks: checks::of_queue(spec),
    }
}

/// Whether a ClusterQueue's workloads of equal priority preempt each other by their age.
pub fn equals_go_by_age(object: &api::ClusterQueue) -> bool {
    let preemption = object.spec.preemption.as_ref();
    preemption.and_then(|rules| rules.within_cluster_queue.as_deref()) == Some("LowerOrNewerEqualPriority")
}

/// A LocalQueue in the engine's type.
pub fn local_queue(object: &api::LocalQueue) -> engine::LocalQueueSpec {
    engine::LocalQueueSpec {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        cluster_queue: object.spec.cluster_queue.clone().unwrap_or_default(),
        stop: stop(object.spec.stop_policy.as_deref()),
        weight: weight(object.spec.fair_sharing.as_ref().and_then(|sharing| sharing.weight.as_ref())),
    }
}

/// Recent usage of a LocalQueue for admission fair sharing, from the LocalQueue's status.
pub fn ledger(object: &api::LocalQueue) -> Option<engine::LedgerFigures> {
    let status = object.status.as_ref()?.fair_sharing.as_ref()?.admission_fair_sharing_status.as_ref()?;
    let amount = |(resource, text): (&String, &Quantity)| {
        (resource.clone(), berth_quantity::parse_quantity(&text.0).unwrap_or(berth_quantity::Nano(0)))
    };
    let consumed = status.consumed_resources.iter().map(amount).collect();
    Some(engine::LedgerFigures { consumed, at: engine::Millis(status.last_update.0.as_millisecond()) })
}

/// A pod set's requests and constraints in the engine's type.
pub fn pod_set((needs, constraints): (berth_jobs::PodSetNeeds, u64)) -> engine::PodSetSpec {
    engine::PodSetSpec {
        count: i64::from(needs.count),
        min_count: needs.min_count.map(i64::from),
        affinity: affinity::affinity(&needs.affinity),
        tolerations: needs.tolerations.iter().map(toleration).collect(),
        name: needs.name,
        requests: needs.requests,
        node_selector: needs.node_selector,
        constraints,
        no_affinity: false,
        topology_request: needs.topology_request,
        group: needs.group,
    }
}

/// Preemption scope of a Workload by its annotation; if the annotation has an unknown word, the Workload preempts no other Workload.
pub fn preempts(word: Option<&str>) -> engine::Preempts {
    match word {
        None | Some("PreemptAlways") => engine::Preempts::AsQueue,
        Some("PreemptLower") => engine::Preempts::Lower,
        Some(_) => engine::Preempts::Nobody,
    }
}

/// Removes the node selectors and tolerations that choose a kind of capacity from a pod set.
pub fn strip_capacity(pod_set: &mut engine::PodSetSpec) {
    let is_capacity = |key: &str| api::CAPACITY_SELECTORS.contains(&key);
    pod_set.node_selector.retain(|key, _| !is_capacity(key));
    pod_set.tolerations.retain(|toleration| !is_capacity(&toleration.key));
}

/// The engine's admission as the field `status.admission` of a Workload.
pub fn admission(plan: &engine::Admission) -> api::Admission {
    api::Admission {
        cluster_queue: Some(plan.cluster_queue.to_string()),
        pod_set_assignments: plan
            .pod_sets
            .iter()
            .map(|set| api::PodSetAssignment {
                name: Some(set.name.clone()),
                count: i32::try_from(set.count).ok(),
                flavors: set.flavors.clone(),
                resource_usage: set
                    .usage
                    .iter()
                    .map(|(resource, amount)| (resource.clone(), quantity(resource, *amount)))
                    .collect(),
                ..Default::default()
            })
            .collect(),
    }
}
