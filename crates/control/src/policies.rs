//! QueuePolicies: the policies that a ClusterQueue follows, and their fields, read once. `labels` has what they read in labels of jobs, `gpus` the
//! number of GPUs that a job may have.

mod gpus;
mod labels;
mod merge;
pub(crate) mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::CapacityTier;
use berth_api::berth::{
    AdmissionLimits, CapacityTiers, ClimbBack, DefaultFor, PreemptionBounds, PriorityFromLabel, QueuePolicy,
    QueuePolicySpec, StockBackoff, duration_seconds,
};
use berth_api::validation::{summary, validate_label_selector};
use berth_engine::model as engine;
use berth_jobs::training::Cards;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(crate) use crate::cache::priorities::{NamedClasses, Wanted};
use crate::cache::{Name, WorkloadView};
use crate::capacity::rules::{Backoff, ClimbRules, Signals, TierRules, TiersFor, USUAL, USUAL_CLIMB, When};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::deltas;
use crate::observe::same_intent;
use crate::write::Kind;
pub(crate) use labels::no_class;
pub(crate) use merge::{Lost, fields};

/// Fields of a policy, as control acts on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Names of the policies that set them, by the fields that messages name.
    sources: BTreeMap<&'static str, Arc<str>>,
    pub(crate) tiers: Option<TierRules>,
    /// Class of a job by a label.
    pub(crate) classes: Option<ClassesByLabel>,
    pub(crate) limits: Limits,
    pub(crate) guard: engine::PreemptionGuard,
    /// Time for a checkpoint before a stop, in milliseconds.
    pub(crate) grace_ms: Option<i64>,
    /// Points of priority that an hour of waiting is worth.
    pub(crate) points_per_hour: u32,
    /// Most that may be borrowed, in per cent of the nominal quota.
    pub(crate) borrowing_percent: Option<i64>,
}

/// The WorkloadPriorityClasses of jobs by a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassesByLabel {
    pub(crate) label: String,
    /// Names of classes by value of the label.
    pub(crate) names: BTreeMap<String, String>,
}

/// Limits of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_jobs: Option<u32>,
    pub(crate) max_gpus: Option<i64>,
    pub(crate) min_priority: Option<i32>,
    pub(crate) max_priority: Option<i32>,
}

/// A policy with the values that are computed from it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) object: Box<QueuePolicy>,
    rules: Arc<Rules>,
    /// Labels of the queues that it selects, or an error about them.
    pub(crate) selector: Option<Result<engine::Selector, String>>,
}

/// The rules that a queue follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) rules: Arc<Rules>,
    /// Fields that give way to those of other policies.
    pub(crate) lost: Vec<Lost>,
    /// Names of the policies that claim it, the oldest first.
    pub(crate) of: Vec<Arc<str>>,
}

/// Labels of an object without any.
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

impl Rules {
    fn of(spec: &QueuePolicySpec, sources: BTreeMap<&'static str, Arc<str>>) -> Self {
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
    pub(crate) fn source(&self, field: &str) -> &str {
        self.sources.get(field).map_or("", |policy| policy)
    }
}

impl Policy {
    fn new(object: Box<QueuePolicy>) -> Self {
        let selector = object.spec.cluster_queue_selector.as_ref().map(selector);
        Self { rules: Arc::new(merge::alone(&object)), selector, object }
    }

    /// Whether the policy claims a queue of that name and labels.
    fn claims(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let selects = |selector: &engine::Selector| deltas::matches(selector, labels);
        self.object.spec.cluster_queues.iter().any(|named| named == name)
            || self.selector.as_ref().is_some_and(|selector| selector.as_ref().is_ok_and(selects))
    }
}

/// Labels of ClusterQueues. A selector that was stored before the schema refused it selects nothing, and the status says so.
fn selector(told: &LabelSelector) -> Result<engine::Selector, String> {
    let path = "spec.clusterQueueSelector";
    let faults = validate_label_selector(told, path);
    if !faults.is_empty() {
        return Err(summary(&faults));
    }
    deltas::selector(told).map_err(|text| format!("{path}.{text}"))
}

fn milliseconds(text: Option<&String>) -> Option<i64> {
    text.and_then(|text| duration_seconds(text)).map(|seconds| seconds.saturating_mul(1_000))
}

fn classes(told: &PriorityFromLabel) -> ClassesByLabel {
    let names = told.classes.iter().map(|one| (one.value.clone(), one.workload_priority_class.clone()));
    ClassesByLabel { label: told.label.clone(), names: names.collect() }
}

fn tiers_of(words: &[String]) -> Vec<engine::Tier> {
    words.iter().filter_map(|word| word.parse().ok()).map(deltas::tier).collect()
}

/// A value that is absent, or that no schema lets in, is the default.
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
        climb: tiers.climb_back.as_ref().map(climb),
        max_shares: CapacityTier::ALL
            .map(|tier| tiers.max_share_percent.get(tier.as_str()).and_then(|percent| u32::try_from(*percent).ok())),
    }
}

fn tiers_for(told: &DefaultFor) -> TiersFor {
    TiersFor { label: told.label.clone(), values: told.values.clone(), tiers: tiers_of(&told.tiers) }
}

fn backoff(told: &StockBackoff) -> Backoff {
    let usual = USUAL.backoff;
    let (initial, max) = (milliseconds(told.initial.as_ref()), milliseconds(told.max.as_ref()));
    // A default gives way to a value that is set. No schema lets in two set values that contradict each other.
    let initial_ms = initial.unwrap_or(max.map_or(usual.initial_ms, |max| max.min(usual.initial_ms)));
    Backoff {
        initial_ms,
        factor: told.factor.map_or(usual.factor, i64::from),
        max_ms: max.unwrap_or(usual.max_ms).max(initial_ms),
        decay_ms: milliseconds(told.decay.as_ref()).unwrap_or(usual.decay_ms),
    }
}

fn climb(told: &ClimbBack) -> ClimbRules {
    let usual = USUAL_CLIMB;
    ClimbRules {
        when: if told.when.as_deref() == Some("Anytime") { When::Anytime } else { When::AfterCheckpoint },
        min_stay_ms: milliseconds(told.min_stay.as_ref()).unwrap_or(usual.min_stay_ms),
        steady_ms: milliseconds(told.hysteresis.as_ref()).unwrap_or(usual.steady_ms),
        max_times: told.max_times.unwrap_or(usual.max_times),
    }
}

fn guard(told: &PreemptionBounds) -> engine::PreemptionGuard {
    let count = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok());
    engine::PreemptionGuard {
        min_priority_difference: told.min_priority_difference.unwrap_or_default(),
        protected_ms: milliseconds(told.protected_running_time.as_ref()).unwrap_or(0),
        max_victims: count(told.max_victims),
        max_evicted_percent: count(told.max_evicted_percent),
    }
}

fn limits(told: &AdmissionLimits) -> Limits {
    let range = told.priority_range.clone().unwrap_or_default();
    Limits {
        max_jobs: told.max_jobs.and_then(|most| u32::try_from(most).ok()),
        max_gpus: told.max_gpus_per_job.map(i64::from),
        min_priority: range.min,
        max_priority: range.max,
    }
}

/// The smaller of two limits holds: the queue's own, and a share of its nominal quota.
fn bound_borrowing(group: &mut engine::ResourceGroup, percent: i64) {
    for quota in group.flavors.iter_mut().flat_map(|flavor| &mut flavor.quotas) {
        let nominal = i128::from(quota.nominal.get());
        let share = engine::Amount::clamped(nominal.saturating_mul(i128::from(percent)) / 100);
        quota.borrowing_limit = Some(quota.borrowing_limit.map_or(share, |limit| limit.min(share)));
    }
}

impl Limits {
    /// Why a workload may never hold quota under these limits, with so many pods in its pod sets: the field, and its value with the request of the
    /// workload.
    fn broken_by(
        &self,
        workload: &WorkloadView,
        cards: &Cards,
        pods: impl Fn(&engine::PodSetSpec) -> i64,
    ) -> Option<(&'static str, String)> {
        let sets = &workload.shape.pod_sets;
        let asked = gpus::gpus(sets, cards, &pods);
        if let Some(most) = self.max_gpus.filter(|most| asked > *most) {
            let least = if sets.iter().any(|set| pods(set) < set.count) { " at least" } else { "" };
            return Some((fields::MAX_GPUS, format!("is {most}, and the workload asks for {asked}{least}")));
        }
        let priority = workload.priority;
        if let Some(least) = self.min_priority.filter(|least| priority < i64::from(*least)) {
            return Some((fields::MIN_PRIORITY, format!("is {least}, and the workload's priority is {priority}")));
        }
        let most = self.max_priority.filter(|most| priority > i64::from(*most))?;
        Some((fields::MAX_PRIORITY, format!("is {most}, and the workload's priority is {priority}")))
    }
}

impl Control {
    pub(crate) fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>, now: Timestamp) {
        self.reports.schedule.mark(Kind::QueuePolicy, "", name, now);
        // The leader keeps the stock-outs; all other replicas follow what it wrote.
        let follows = self.session.term.is_none() || !self.view.policies.contains_key(name);
        if let Some(status) = object.as_ref().and_then(|object| object.status.as_ref()).filter(|_| follows) {
            self.restore_stock(&status.backoffs, now);
        }
        let old = match (self.view.policies.get_mut(name), object) {
            (Some(known), Some(object)) if same_intent(&known.object.metadata, &object.metadata) => {
                known.object = object;
                return;
            }
            (_, Some(object)) => self.view.policies.insert(name.to_owned(), Policy::new(object)),
            (_, None) => self.view.policies.remove(name),
        };
        // A job without a Workload may wait for a class that a label stands for.
        self.touch_those_without_class();
        let new = self.view.policies.get(name);
        let claimed = self.view.cluster_queues.iter().filter_map(|(queue, object)| {
            let labels = object.metadata.labels.as_ref().unwrap_or(&NO_LABELS);
            let claims = |policy: &Policy| policy.claims(queue, labels);
            old.as_ref().into_iter().chain(new).any(claims).then(|| (queue.clone(), labels.clone()))
        });
        for (queue, labels) in claimed.collect::<Vec<_>>() {
            if self.claim(&queue, &labels, now) {
                self.tell_queue_again(&queue);
            }
        }
    }

    /// Marks the jobs whose users were told of a priority class that does not exist.
    fn touch_those_without_class(&mut self) {
        let told = self.reports.told.iter().filter(|(_, events)| events.contains_key(labels::NO_CLASS));
        for object in told.map(|(object, _)| object.clone()).collect::<Vec<_>>() {
            self.touch(object);
        }
    }

    /// Finds the rules that a ClusterQueue follows; true if they have changed.
    pub(crate) fn claim(&mut self, queue: &str, labels: &BTreeMap<String, String>, now: Timestamp) -> bool {
        let claiming = self.view.policies.values().filter(|policy| policy.claims(queue, labels));
        let new = merge::merged(claiming.collect());
        if self.view.claims.get(queue) == new.as_ref() {
            return false;
        }
        let old = match new {
            Some(new) => self.view.claims.insert(queue.to_owned(), new),
            None => self.view.claims.remove(queue),
        };
        let claims = [old.as_ref(), self.view.claims.get(queue)];
        for policy in claims.into_iter().flatten().flat_map(|claim| &claim.of) {
            self.reports.schedule.mark(Kind::QueuePolicy, "", policy, now);
        }
        true
    }

    /// Passes a ClusterQueue to the engine again, and with it everything that depends on its policy.
    fn tell_queue_again(&mut self, queue: &str) {
        let Some(object) = self.view.cluster_queues.get(queue) else { return };
        let spec = self.context().queue_spec(object);
        self.engine(engine::Delta::ClusterQueue(spec));
        self.tell_members_again(queue);
    }

    /// Passes everything that depends on the policy of a ClusterQueue to the engine again, and marks it.
    pub(crate) fn tell_members_again(&mut self, queue: &str) {
        let locals = self.view.local_queues.iter();
        let locals = locals.filter(|(_, local)| local.spec.cluster_queue.as_deref() == Some(queue));
        for local in locals.map(|(name, _)| name.clone()).collect::<Vec<Name>>() {
            self.tell_local_members_again(&local);
        }
    }

    /// The same for the members of one LocalQueue.
    pub(crate) fn tell_local_members_again(&mut self, local: &Name) {
        let members: Vec<Name> = self.view.workloads.members(local).map(WorkloadView::key).collect();
        for name in members {
            self.mirror(&name);
            // Its job, too, follows the policy in its priority.
            self.touch_related(&key(Kind::Workload, &name));
        }
    }
}

impl<'a> Context<'a> {
    /// The rules that the policies of a ClusterQueue make.
    pub(crate) fn rules_of(&self, cluster_queue: &str) -> Option<&'a Rules> {
        self.view.claims.get(cluster_queue).map(|claim| &*claim.rules)
    }

    /// The same for a workload's ClusterQueue.
    pub(crate) fn rules_for(&self, workload: &WorkloadView) -> Option<&'a Rules> {
        if self.view.claims.is_empty() {
            return None;
        }
        self.rules_of(self.queue_of(workload)?)
    }

    /// The ClusterQueue whose quota a workload holds, else the one it waits in.
    pub(crate) fn queue_of(&self, workload: &'a WorkloadView) -> Option<&'a str> {
        let given = workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.as_deref());
        given.or_else(|| self.behind(&workload.local_queue()))
    }

    /// The ClusterQueue behind a LocalQueue.
    pub(crate) fn behind(&self, local: &Name) -> Option<&'a str> {
        self.view.local_queues.get(local)?.spec.cluster_queue.as_deref()
    }

    /// The limit that keeps a waiting workload out for good, even with the fewest pods that it accepts.
    pub(crate) fn limit_on(&self, workload: &WorkloadView) -> Option<String> {
        self.limit_with(workload, self.fewest(workload))
    }

    /// The limit that would keep it out if it had so many pods in its pod sets.
    pub(crate) fn limit_with(
        &self,
        workload: &WorkloadView,
        pods: impl Fn(&engine::PodSetSpec) -> i64,
    ) -> Option<String> {
        let rules = self.rules_for(workload)?;
        let (field, text) = rules.limits.broken_by(workload, &self.settings.cards, pods)?;
        Some(format!("QueuePolicy {}: {field} {text}", rules.source(field)))
    }

    /// Whether selectors of capacity in a workload's pods give way to the tiers of its queue.
    pub(crate) fn overrides_selectors(&self, workload: &WorkloadView) -> bool {
        let tiers = self.rules_for(workload).and_then(|rules| rules.tiers.as_ref());
        // The node selector of a pod that exists can only be narrowed.
        let fixed = workload.whole().is_some_and(|whole| whole.kind.is_pods());
        tiers.is_some_and(|tiers| tiers.overrides) && !fixed
    }

    /// A ClusterQueue as the engine gets it, with the rules of its policies.
    pub(crate) fn queue_spec(&self, object: &berth_api::ClusterQueue) -> engine::ClusterQueueSpec {
        let mut spec = deltas::cluster_queue(object, &self.view.checks, self.settings);
        if let Some(rules) = self.rules_of(&spec.name) {
            spec.tiers = rules.tiers.as_ref().map(|tiers| tiers.default.clone()).unwrap_or_default();
            spec.max_shares = rules.tiers.as_ref().map(|tiers| tiers.max_shares).unwrap_or_default();
            spec.max_jobs = rules.limits.max_jobs.map(|most| engine::JobLimit {
                most,
                source: format!("QueuePolicy {}: {}", rules.source(fields::MAX_JOBS), fields::MAX_JOBS),
            });
            spec.guard = rules.guard;
            if let Some(percent) = rules.borrowing_percent {
                spec.groups.iter_mut().for_each(|group| bound_borrowing(group, percent));
            }
        }
        spec
    }
}
