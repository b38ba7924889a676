//! Merges the rules of the QueuePolicies that claim a ClusterQueue, field by field. A field that only one policy sets applies. If several policies set a limit,
//! the stricter value counts; if several policies set another field, the value of the oldest policy counts. The status of the younger policy names its fields
//! that have no effect, and the policy that overrules them, so that an added policy loosens no limit.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use berth_api::berth::{
    AdmissionLimits, CapacityTiers, PreemptionBounds, PriorityFromLabel, PriorityRange, QueuePolicy, QueuePolicySpec,
    WaitingTimeBonus,
};

use crate::policy_rules::{Claim, Lost, Policy, Rules, fields, milliseconds, selector};

/// A value with the policy that sets it.
type PolicyValue<T> = Option<(T, Arc<str>)>;

/// The fields of several policies, merged.
#[derive(Default)]
struct Joined {
    max_jobs: PolicyValue<i32>,
    max_gpus: PolicyValue<i32>,
    min_priority: PolicyValue<i32>,
    max_priority: PolicyValue<i32>,
    borrowing: PolicyValue<i32>,
    min_difference: PolicyValue<i32>,
    protected: PolicyValue<String>,
    max_victims: PolicyValue<i32>,
    max_evicted: PolicyValue<i32>,
    grace: PolicyValue<String>,
    /// The capacity tiers without their shares, which are limits.
    tiers: PolicyValue<CapacityTiers>,
    shares: [PolicyValue<i32>; 3],
    classes: PolicyValue<PriorityFromLabel>,
    bonus: PolicyValue<WaitingTimeBonus>,
}

/// A policy that is merged into the fields of the older policies.
struct Younger<'a> {
    name: &'a Arc<str>,
    lost: &'a mut Vec<Lost>,
}

impl Younger<'_> {
    fn loses(&mut self, text: String) {
        self.lost.push(Lost { policy: Arc::clone(self.name), text });
    }

    /// Adds a limit of the younger policy: the stricter value counts. The argument `strictness` returns a greater key for a stricter value of the limit.
    fn limit<T: Clone + Display, K: PartialOrd>(
        &mut self,
        field: &str,
        known: &mut PolicyValue<T>,
        new: Option<&T>,
        strictness: impl Fn(&T) -> K,
    ) {
        let Some(new) = new else { return };
        let own = || Some((new.clone(), Arc::clone(self.name)));
        let Some((value, other)) = known.clone() else {
            *known = own();
            return;
        };
        let (before, after) = (strictness(&value), strictness(new));
        if before == after {
            return;
        }
        if after > before {
            *known = own();
        }
        self.loses(format!("{field} is {new} here and {value} in QueuePolicy {other}: the stricter value counts"));
    }

    /// Adds a field that is no limit: the value of the older policy counts.
    fn rest<T: Clone + PartialEq>(&mut self, field: &str, known: &mut PolicyValue<T>, new: Option<&T>) {
        let Some(new) = new else { return };
        let Some((value, other)) = &*known else {
            *known = Some((new.clone(), Arc::clone(self.name)));
            return;
        };
        if value != new {
            let text = format!("{field} gives way to that of QueuePolicy {other}, which is older");
            self.loses(text);
        }
    }
}

impl Joined {
    fn add(&mut self, spec: &QueuePolicySpec, mut younger: Younger<'_>) {
        let fewer = |value: &i32| std::cmp::Reverse(*value);
        let more = |value: &i32| *value;
        let limits = spec.admission.clone().unwrap_or_default();
        let range = limits.priority_range.unwrap_or_default();
        younger.limit(fields::MAX_JOBS, &mut self.max_jobs, limits.max_jobs.as_ref(), fewer);
        younger.limit(fields::MAX_GPUS, &mut self.max_gpus, limits.max_gpus_per_job.as_ref(), fewer);
        younger.limit(fields::MIN_PRIORITY, &mut self.min_priority, range.min.as_ref(), more);
        younger.limit(fields::MAX_PRIORITY, &mut self.max_priority, range.max.as_ref(), fewer);
        younger.limit(fields::BORROWING, &mut self.borrowing, spec.borrowing_ratio_percent.as_ref(), fewer);
        let bounds = spec.preemption.clone().unwrap_or_default();
        let difference = bounds.min_priority_difference.as_ref();
        // A `protectedRunningTime` that is no duration protects no Workload from preemption.
        let time = |text: &String| milliseconds(Some(text)).unwrap_or(0);
        younger.limit(fields::MIN_DIFFERENCE, &mut self.min_difference, difference, more);
        younger.limit(fields::PROTECTED, &mut self.protected, bounds.protected_running_time.as_ref(), time);
        younger.limit(fields::MAX_VICTIMS, &mut self.max_victims, bounds.max_victims.as_ref(), fewer);
        younger.limit(fields::MAX_EVICTED, &mut self.max_evicted, bounds.max_evicted_percent.as_ref(), fewer);
        younger.rest(fields::GRACE, &mut self.grace, bounds.grace_period.as_ref());
        if let Some(tiers) = &spec.capacity_tiers {
            for ((tier, field), known) in fields::SHARES.iter().zip(&mut self.shares) {
                younger.limit(field, known, tiers.max_share_percent.get(*tier), fewer);
            }
            let rest = CapacityTiers { max_share_percent: BTreeMap::new(), ..tiers.clone() };
            let is_empty = rest == CapacityTiers::default();
            // If a QueuePolicy sets only shares in `spec.capacityTiers`, the other fields of `spec.capacityTiers` are left to the other policies.
            if self.tiers.as_ref().is_some_and(|(known, _)| *known == CapacityTiers::default()) {
                self.tiers = None;
            }
            let reports_loss = !is_empty || self.tiers.is_none();
            younger.rest(fields::TIERS, &mut self.tiers, Some(&rest).filter(|_| reports_loss));
        }
        younger.rest(fields::CLASSES, &mut self.classes, spec.priority_from_label.as_ref());
        younger.rest(fields::BONUS, &mut self.bonus, spec.waiting_time_bonus.as_ref());
    }

    /// The policy that sets each of the fields that messages can name.
    fn sources(&self) -> BTreeMap<&'static str, Arc<str>> {
        fn source<T>(message: &PolicyValue<T>) -> Option<&Arc<str>> {
            message.as_ref().map(|(_, policy)| policy)
        }
        let all = [
            (fields::MAX_JOBS, source(&self.max_jobs)),
            (fields::MAX_GPUS, source(&self.max_gpus)),
            (fields::MIN_PRIORITY, source(&self.min_priority)),
            (fields::MAX_PRIORITY, source(&self.max_priority)),
            (fields::TIERS, source(&self.tiers)),
            (fields::CLASSES, source(&self.classes)),
        ];
        all.into_iter().filter_map(|(field, policy)| Some((field, Arc::clone(policy?)))).collect()
    }

    fn rules(self) -> Rules {
        fn value<T>(message: PolicyValue<T>) -> Option<T> {
            message.map(|(value, _)| value)
        }
        let sources = self.sources();
        let shares = fields::SHARES.iter().zip(self.shares);
        let shares: BTreeMap<String, i32> =
            shares.filter_map(|((tier, _), message)| Some(((*tier).to_owned(), value(message)?))).collect();
        let tiers = value(self.tiers).map(|tiers| CapacityTiers { max_share_percent: shares, ..tiers });
        let spec = QueuePolicySpec {
            capacity_tiers: tiers,
            admission: Some(AdmissionLimits {
                max_jobs: value(self.max_jobs),
                max_gpus_per_job: value(self.max_gpus),
                priority_range: Some(PriorityRange { min: value(self.min_priority), max: value(self.max_priority) }),
            }),
            preemption: Some(PreemptionBounds {
                min_priority_difference: value(self.min_difference),
                protected_running_time: value(self.protected),
                grace_period: value(self.grace),
                max_victims: value(self.max_victims),
                max_evicted_percent: value(self.max_evicted),
            }),
            waiting_time_bonus: value(self.bonus),
            priority_from_label: value(self.classes),
            borrowing_ratio_percent: value(self.borrowing),
            // The fields by which a QueuePolicy selects ClusterQueues do not belong to the merged rules, and are read by `Policy::claims`. Every field of the
            // QueuePolicy spec is named in this struct literal, so that no new field is forgotten.
            cluster_queues: Vec::new(),
            cluster_queue_selector: None,
        };
        Rules::of(&spec, sources)
    }
}

/// The rules and the overruled fields of policies, which are ordered from the oldest to the youngest.
fn joined(policies: &[&QueuePolicy]) -> (Rules, Vec<Lost>) {
    let (mut joined, mut lost) = (Joined::default(), Vec::new());
    for policy in policies {
        let name: Arc<str> = policy.metadata.name.as_deref().unwrap_or_default().into();
        joined.add(&policy.spec, Younger { name: &name, lost: &mut lost });
    }
    (joined.rules(), lost)
}

impl Policy {
    pub(super) fn new(object: Box<QueuePolicy>) -> Self {
        let selector = object.spec.cluster_queue_selector.as_ref().map(selector);
        Self { rules: Arc::new(alone(&object)), selector, object }
    }
}

/// The rules of a single policy.
fn alone(policy: &QueuePolicy) -> Rules {
    joined(&[policy]).0
}

/// The rules of a ClusterQueue that the given policies claim; `None` if no policy claims the queue.
pub(super) fn merged(mut claiming: Vec<&Policy>) -> Option<Claim> {
    let age = |policy: &Policy| {
        let metadata = &policy.object.metadata;
        (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.name.clone())
    };
    claiming.sort_by_cached_key(|policy| age(policy));
    let of = claiming.iter().map(|policy| policy.object.metadata.name.as_deref().unwrap_or_default().into()).collect();
    let (rules, lost) = match claiming.as_slice() {
        [] => return None,
        [policy] => (Arc::clone(&policy.rules), Vec::new()),
        many => {
            let many: Vec<&QueuePolicy> = many.iter().map(|policy| &*policy.object).collect();
            let (rules, lost) = joined(&many);
            (Arc::new(rules), lost)
        }
    };
    Some(Claim { rules, lost, of })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, second: u32, spec: &Value) -> Policy {
        let object = json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": spec});
        Policy::new(serde_json::from_value(object).unwrap())
    }

    /// The merged rules of two policies; the older policy is called `older`, and the merge does not depend on their order.
    fn both(older: &Value, younger: &Value) -> Claim {
        let (older, younger) = (policy("older", 1, older), policy("a-younger", 2, younger));
        let claim = merged(vec![&older, &younger]).unwrap();
        assert_eq!(Some(&claim), merged(vec![&younger, &older]).as_ref());
        assert_eq!(claim.of.iter().map(|name| &**name).collect::<Vec<_>>(), ["older", "a-younger"]);
        claim
    }

    fn rules(spec: &Value) -> Rules {
        Rules { sources: BTreeMap::new(), ..alone(&policy("p", 1, spec).object) }
    }

    fn without_sources(claim: &Claim) -> Rules {
        Rules { sources: BTreeMap::new(), ..(*claim.rules).clone() }
    }

    /// Each limit with its field, a stricter value, and a laxer value.
    fn all_limits() -> Vec<(&'static str, Value, Value)> {
        let admission = |more: Value| json!({"admission": more});
        let preemption = |more: Value| json!({"preemption": more});
        let share = |percent: i32| json!({"capacityTiers": {"maxSharePercent": {"spot": percent}}});
        vec![
            (fields::MAX_JOBS, admission(json!({"maxJobs": 3})), admission(json!({"maxJobs": 5}))),
            (fields::MAX_GPUS, admission(json!({"maxGPUsPerJob": 0})), admission(json!({"maxGPUsPerJob": 8}))),
            (
                fields::MIN_PRIORITY,
                admission(json!({"priorityRange": {"min": 5}})),
                admission(json!({"priorityRange": {"min": -5}})),
            ),
            (
                fields::MAX_PRIORITY,
                admission(json!({"priorityRange": {"max": 5}})),
                admission(json!({"priorityRange": {"max": 50}})),
            ),
            (fields::BORROWING, json!({"borrowingRatioPercent": 0}), json!({"borrowingRatioPercent": 50})),
            (
                fields::MIN_DIFFERENCE,
                preemption(json!({"minPriorityDifference": 9})),
                preemption(json!({"minPriorityDifference": 1})),
            ),
            (
                fields::PROTECTED,
                preemption(json!({"protectedRunningTime": "1h"})),
                preemption(json!({"protectedRunningTime": "59m"})),
            ),
            (fields::MAX_VICTIMS, preemption(json!({"maxVictims": 0})), preemption(json!({"maxVictims": 1}))),
            (
                fields::MAX_EVICTED,
                preemption(json!({"maxEvictedPercent": 100})),
                preemption(json!({"maxEvictedPercent": 200})),
            ),
            ("spec.capacityTiers.maxSharePercent.spot", share(10), share(90)),
        ]
    }

    /// If two policies set a limit, the stricter value counts, and the status of the younger policy shows the overruled value, whichever policy sets it.
    #[test]
    fn limit_in_two_queue_policies_takes_the_stricter_value() {
        for (field, strict, lax) in all_limits() {
            for (older, younger) in [(&strict, &lax), (&lax, &strict)] {
                let claim = both(older, younger);
                assert_eq!(without_sources(&claim), rules(&strict), "{field}");
                let [lost] = &claim.lost[..] else { panic!("{field}: {:?}", claim.lost) };
                assert_eq!(&*lost.policy, "a-younger");
                assert!(lost.text.starts_with(&format!("{field} is ")), "{}", lost.text);
                assert!(lost.text.ends_with("in QueuePolicy older: the stricter value counts"), "{}", lost.text);
            }
            assert!(both(&strict, &strict).lost.is_empty(), "{field}: equal values are no conflict");
        }
    }

    /// A field that only one policy sets applies together with the fields of the other policy.
    #[test]
    fn field_set_in_only_one_queue_policy_applies() {
        let all = all_limits();
        for (at, (field, strict, _)) in all.iter().enumerate() {
            for (other_field, other, _) in &all[at + 1..] {
                for (older, younger) in [(strict, other), (other, strict)] {
                    let claim = both(older, younger);
                    assert!(claim.lost.is_empty(), "{field} and {other_field}: {:?}", claim.lost);
                    for alone in [strict, other] {
                        let again = both(&json!({}), alone);
                        assert_eq!(without_sources(&again), rules(alone), "{field} and {other_field}");
                    }
                    let mut together = strict.clone();
                    crate_merge(&mut together, other);
                    assert_eq!(without_sources(&claim), rules(&together), "{field} and {other_field}");
                }
            }
        }
        let older = json!({"capacityTiers": {"default": ["reserved"]}});
        let claim =
            both(&older, &json!({"capacityTiers": {"maxSharePercent": {"spot": 5}}, "admission": {"maxJobs": 1}}));
        let tiers = claim.rules.tiers.as_ref().unwrap();
        assert_eq!((tiers.default.len(), tiers.max_shares), (1, [None, None, Some(5)]));
        assert_eq!((claim.rules.source(fields::TIERS), claim.rules.source(fields::MAX_JOBS)), ("older", "a-younger"));
        assert!(claim.lost.is_empty());
    }

    fn crate_merge(target: &mut Value, more: &Value) {
        let (Value::Object(known), Value::Object(more)) = (&mut *target, more) else {
            *target = more.clone();
            return;
        };
        for (field, value) in more {
            crate_merge(known.entry(field.clone()).or_insert(Value::Null), value);
        }
    }

    /// The older policy's value of a field that is no limit counts. The older policy is found by its creation time, and by its name if both policies were
    /// created in the same second.
    #[test]
    fn field_other_than_limit_takes_value_of_older_queue_policy() {
        let classes = |label: &str| json!({"priorityFromLabel": {"label": label, "classes": []}});
        let rest = [
            (
                fields::TIERS,
                json!({"capacityTiers": {"default": ["spot"]}}),
                json!({"capacityTiers": {"default": ["reserved"]}}),
            ),
            (fields::CLASSES, classes("a"), classes("b")),
            (
                fields::BONUS,
                json!({"waitingTimeBonus": {"pointsPerHour": 1}}),
                json!({"waitingTimeBonus": {"pointsPerHour": 9}}),
            ),
            (fields::GRACE, json!({"preemption": {"gracePeriod": "1s"}}), json!({"preemption": {"gracePeriod": "9s"}})),
        ];
        for (field, one, two) in &rest {
            for (older, younger) in [(one, two), (two, one)] {
                let claim = both(older, younger);
                assert_eq!(without_sources(&claim), rules(older), "{field}");
                let texts: Vec<&str> = claim.lost.iter().map(|lost| lost.text.as_str()).collect();
                assert_eq!(texts, [format!("{field} gives way to that of QueuePolicy older, which is older")]);
            }
            assert!(both(one, one).lost.is_empty());
        }
        let (b, a) = (policy("b", 1, &classes("b")), policy("a", 1, &classes("a")));
        let claim = merged(vec![&b, &a]).unwrap();
        assert_eq!(claim.rules.classes.as_ref().map(|classes| classes.label.as_str()), Some("a"));
        assert_eq!(claim.lost.iter().map(|lost| &*lost.policy).collect::<Vec<_>>(), ["b"]);
    }

    /// A third policy loosens no limit of the other policies, whatever the third policy sets.
    #[test]
    fn third_queue_policy_never_loosens_a_limit() {
        for (field, strict, lax) in all_limits() {
            let all = [policy("a", 3, &lax), policy("b", 1, &strict), policy("c", 2, &lax)];
            let mut orders = vec![vec![0, 1, 2], vec![2, 1, 0], vec![1, 0, 2], vec![2, 0, 1]];
            for order in &mut orders {
                let claim = merged(order.iter().map(|at| &all[*at]).collect()).unwrap();
                assert_eq!(without_sources(&claim), rules(&strict), "{field}");
                let reports_loss: Vec<&str> = claim.lost.iter().map(|lost| &*lost.policy).collect();
                assert_eq!(reports_loss, ["c", "a"], "{field}");
            }
        }
    }
}
