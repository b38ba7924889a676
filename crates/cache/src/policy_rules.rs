//! Fields of a QueuePolicy as control acts on them, read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::CapacityTier;
use berth_api::berth::{
    AdmissionLimits, CapacityTiers, ClimbBack, DefaultFor, PreemptionBounds, PriorityFromLabel, QueuePolicy,
    QueuePolicySpec, StockBackoff, duration_seconds,
};
use berth_api::validation::{summary, validate_label_selector};
use berth_engine::model as engine;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::deltas;
use crate::tier_rules::{BackoffRules, PromotionRules, Signals, TierRules, TiersFor, USUAL, USUAL_PROMOTION, When};

/// Paths of the QueuePolicy fields that messages name.
pub mod fields {
    pub(crate) const MAX_JOBS: &str = "spec.admission.maxJobs";
    /// Path of the QueuePolicy field that limits the number of accelerators of one job, for messages.
    pub const MAX_GPUS: &str = "spec.admission.maxGPUsPerJob";
    /// Path of the QueuePolicy field that sets the lowest priority with which a job is admitted, for messages.
    pub const MIN_PRIORITY: &str = "spec.admission.priorityRange.min";
    /// Path of the QueuePolicy field that sets the highest priority with which a job is admitted, for messages.
    pub const MAX_PRIORITY: &str = "spec.admission.priorityRange.max";
    pub(crate) const BORROWING: &str = "spec.borrowingRatioPercent";
    pub(crate) const MIN_DIFFERENCE: &str = "spec.preemption.minPriorityDifference";
    pub(crate) const PROTECTED: &str = "spec.preemption.protectedRunningTime";
    pub(crate) const MAX_VICTIMS: &str = "spec.preemption.maxVictims";
    pub(crate) const MAX_EVICTED: &str = "spec.preemption.maxEvictedPercent";
    pub(crate) const GRACE: &str = "spec.preemption.gracePeriod";
    /// Path of the QueuePolicy field with the settings of capacity tiers, for messages. The shares of the capacity tiers have paths of their own, because
    /// QueuePolicies are merged share by share.
    pub const TIERS: &str = "spec.capacityTiers";
    /// Path of the QueuePolicy field that gives jobs a WorkloadPriorityClass by a label, for messages.
    pub const CLASSES: &str = "spec.priorityFromLabel";
    pub(crate) const BONUS: &str = "spec.waitingTimeBonus";
    /// Paths of the QueuePolicy fields that limit the share of a capacity tier, by tier: reserved, on demand, spot.
    pub(crate) const SHARES: [(&str, &str); 3] = [
        ("reserved", "spec.capacityTiers.maxSharePercent.reserved"),
        ("on-demand", "spec.capacityTiers.maxSharePercent.on-demand"),
        ("spot", "spec.capacityTiers.maxSharePercent.spot"),
    ];
}

/// A field of a policy that an older policy overrules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The younger policy.
    pub policy: Arc<str>,
    /// A text with the field, both values if they are short, the older policy, and the value that counts.
    pub text: String,
}

/// The fields of one or several policies, in the form in which control uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Names of the policies that set the fields, by the fields that messages can name.
    pub(crate) sources: BTreeMap<&'static str, Arc<str>>,
    /// The rules of capacity tiers; `None` if no policy has `spec.capacityTiers`.
    pub tiers: Option<TierRules>,
    /// The priority class of a job by the value of a label.
    pub classes: Option<ClassesByLabel>,
    /// The limits of admission; without `spec.admission` in a policy, there is no limit.
    pub limits: Limits,
    pub(crate) guard: engine::PreemptionGuard,
    /// Time for a checkpoint before a stop, in milliseconds.
    pub grace_ms: Option<i64>,
    /// Points of priority that an hour of waiting is worth.
    pub points_per_hour: u32,
    /// The most that a ClusterQueue may borrow, in per cent of its nominal quota.
    pub(crate) borrowing_percent: Option<i64>,
}

/// The WorkloadPriorityClasses of jobs by a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassesByLabel {
    /// The key of the label, which is read from the pod templates of the Workload in their order, and then from the Workload.
    pub label: String,
    /// Names of classes by value of the label.
    pub names: BTreeMap<String, String>,
}

/// The limits of admission of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The greatest number of jobs of one ClusterQueue that hold quota at once; `None` if the number is not limited.
    pub max_jobs: Option<u32>,
    /// The greatest number of accelerators that the pods of one job request together; `None` if the number is not limited.
    pub max_gpus: Option<i64>,
    /// The lowest effective priority with which a Workload is admitted; `None` if there is no lower bound.
    pub min_priority: Option<i32>,
    /// The highest effective priority with which a Workload is admitted; `None` if there is no upper bound.
    pub max_priority: Option<i32>,
}

/// A policy with the values that are computed from it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The last observed state of the QueuePolicy, with its status.
    pub object: Box<QueuePolicy>,
    /// The rules of this policy alone, as if no other policy claimed its ClusterQueues.
    pub rules: Arc<Rules>,
    /// The label selector of the ClusterQueues that the policy selects, or an error about the selector.
    pub selector: Option<Result<engine::Selector, String>>,
}

/// The rules that a ClusterQueue follows, with the policies that make the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The merged rules of all policies that claim the ClusterQueue.
    pub rules: Arc<Rules>,
    /// The fields that are overruled by other policies.
    pub lost: Vec<Lost>,
    /// Names of the policies that claim the ClusterQueue, the oldest first.
    pub of: Vec<Arc<str>>,
}

impl Claim {
    /// Whether the capacity tiers of a ClusterQueue's jobs depend on labels.
    pub fn reads_labels(&self) -> bool {
        self.rules.tiers.as_ref().is_some_and(|tiers| !tiers.default_for.is_empty())
    }
}

impl Rules {
    /// The rules of a spec. The argument `sources` has the names of the QueuePolicies that set the fields of the spec. A field that is absent from the
    /// QueuePolicy spec has its default, or sets no limit.
    pub fn of(spec: &QueuePolicySpec, sources: BTreeMap<&'static str, Arc<str>>) -> Self {
        Self {
            sources,
            tiers: spec.capacity_tiers.as_ref().map(tier_rules),
            classes: spec.priority_from_label.as_ref().map(classes),
            limits: spec.admission.as_ref().map(limits).unwrap_or_default(),
            guard: spec.preemption.as_ref().map(guard).unwrap_or_default(),
            grace_ms: spec.preemption.as_ref().and_then(|bounds| milliseconds(bounds.grace_period.as_ref())),
            points_per_hour: spec
                .waiting_time_bonus
                .as_ref()
                .map_or(0, |bonus| bonus.points_per_hour.max(0).unsigned_abs()),
            borrowing_percent: spec.borrowing_ratio_percent.map(|percent| i64::from(percent.max(0))),
        }
    }

    /// Name of the policy that sets a field.
    pub fn source(&self, field: &str) -> &str {
        self.sources.get(field).map_or("", |policy| policy)
    }
}

impl Policy {
    /// Whether the policy claims a ClusterQueue with the given name and labels.
    pub fn claims(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let selects = |selector: &engine::Selector| deltas::matches(selector, labels);
        self.object.spec.cluster_queues.iter().any(|named| named == name)
            || self.selector.as_ref().is_some_and(|selector| selector.as_ref().is_ok_and(selects))
    }
}

/// The label selector of ClusterQueues. A label selector of ClusterQueues that was stored before the schema refused it selects no ClusterQueue, and the
/// policy's status reports it.
///
/// # Errors
/// The selector is invalid; the text names its field.
pub fn selector(given: &LabelSelector) -> Result<engine::Selector, String> {
    let path = "spec.clusterQueueSelector";
    let faults = validate_label_selector(given, path);
    if !faults.is_empty() {
        return Err(summary(&faults));
    }
    deltas::selector(given).map_err(|error| format!("{path}.{error}"))
}

pub(crate) fn milliseconds(text: Option<&String>) -> Option<i64> {
    text.and_then(|text| duration_seconds(text)).map(|seconds| seconds.saturating_mul(1_000))
}

fn classes(given: &PriorityFromLabel) -> ClassesByLabel {
    let names = given.classes.iter().map(|one| (one.value.clone(), one.workload_priority_class.clone()));
    ClassesByLabel { label: given.label.clone(), names: names.collect() }
}

/// The capacity tiers that a field of a QueuePolicy lists; a word that the schema does not allow is left out.
fn tiers_of(words: &[String]) -> Vec<engine::Tier> {
    words.iter().filter_map(|word| word.parse().ok()).map(deltas::tier).collect()
}

/// The rules of capacity tiers. A field of `spec.capacityTiers` that is absent or that the schema does not allow has the default value.
fn tier_rules(tiers: &CapacityTiers) -> TierRules {
    let [reserved, on_demand, spot] = CapacityTier::ALL;
    let patience = |tier: CapacityTier| {
        let usual = USUAL.patience_ms(deltas::tier(tier));
        milliseconds(tiers.patience.get(tier.as_str())).unwrap_or(usual)
    };
    TierRules {
        default: tiers_of(&tiers.default),
        default_for: tiers.default_for.iter().map(tiers_for).collect(),
        patience_ms: [patience(reserved), patience(on_demand), patience(spot)],
        signals: Signals::of(&tiers.stock_out_on),
        backoff: tiers.backoff.as_ref().map_or(USUAL.backoff, backoff),
        overrides: tiers.selectors.as_deref() == Some("Override"),
        promotion: tiers.climb_back.as_ref().map(promotion),
        max_shares: CapacityTier::ALL
            .map(|tier| tiers.max_share_percent.get(tier.as_str()).and_then(|percent| u32::try_from(*percent).ok())),
    }
}

fn tiers_for(given: &DefaultFor) -> TiersFor {
    TiersFor { label: given.label.clone(), values: given.values.clone(), tiers: tiers_of(&given.tiers) }
}

fn backoff(given: &StockBackoff) -> BackoffRules {
    let usual = USUAL.backoff;
    let (initial, max) = (milliseconds(given.initial.as_ref()), milliseconds(given.max.as_ref()));
    // The default of the initial or longest back-off is adapted if the QueuePolicy sets the other of the two, so that the initial back-off is not longer than
    // the longest. The schema of QueuePolicies does not allow an initial back-off that is longer than the longest back-off.
    let initial_ms = initial.unwrap_or(max.map_or(usual.initial_ms, |max| max.min(usual.initial_ms)));
    BackoffRules {
        initial_ms,
        factor: given.factor.map_or(usual.factor, i64::from),
        max_ms: max.unwrap_or(usual.max_ms).max(initial_ms),
        decay_ms: milliseconds(given.decay.as_ref()).unwrap_or(usual.decay_ms),
    }
}

fn promotion(given: &ClimbBack) -> PromotionRules {
    let usual = USUAL_PROMOTION;
    PromotionRules {
        when: if given.when.as_deref() == Some("Anytime") { When::Anytime } else { When::AfterCheckpoint },
        min_stay_ms: milliseconds(given.min_stay.as_ref()).unwrap_or(usual.min_stay_ms),
        steady_ms: milliseconds(given.hysteresis.as_ref()).unwrap_or(usual.steady_ms),
        max_times: given.max_times.unwrap_or(usual.max_times),
    }
}

fn guard(given: &PreemptionBounds) -> engine::PreemptionGuard {
    let count = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok());
    engine::PreemptionGuard {
        min_priority_difference: given.min_priority_difference.unwrap_or_default(),
        protected_ms: milliseconds(given.protected_running_time.as_ref()).unwrap_or(0),
        max_victims: count(given.max_victims),
        max_evicted_percent: count(given.max_evicted_percent),
    }
}

fn limits(given: &AdmissionLimits) -> Limits {
    let range = given.priority_range.clone().unwrap_or_default();
    Limits {
        max_jobs: given.max_jobs.and_then(|most| u32::try_from(most).ok()),
        max_gpus: given.max_gpus_per_job.map(i64::from),
        min_priority: range.min,
        max_priority: range.max,
    }
}
