//! The scene of a case: its objects in memory, observed by control.

use crate::amounts::amount;
use crate::case::{AdmissionFairSharing, Case, Cells};
use crate::gates::Gates;
use crate::shown;
use berth_control::offline::Offline;
use berth_control::settings::{Settings, WaitForPodsReady};
use berth_control::write::{Kind, Notice, ObjectKey};
use berth_engine::{Amount, FairSharing, Options, Profile, ShareStrategy};
use berth_jobs::Transformation;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Label by which Kueue finds the job of a Workload.
const JOB_UID: &str = "kueue.x-k8s.io/job-uid";

/// Control with the objects of a case.
#[derive(Debug)]
pub struct Scene {
    /// Control and the objects that control observes and writes.
    pub offline: Offline,
    /// Names of Workloads by uid.
    names: BTreeMap<String, String>,
    /// Uids that the runner made up, each with the text that Kueue's cases show instead.
    made_up: BTreeMap<String, String>,
    /// Workloads without a creation time.
    ageless: Vec<String>,
    /// True if only writes of scheduling cycles are shown.
    cycles_only: bool,
}

/// The settings of Berth for a case.
///
/// # Errors
/// The error names the option or gate that cannot be read.
pub fn settings(case: &Case) -> Result<Settings, String> {
    let gates = Gates::of(&case.feature_gates)?;
    let config = &case.config;
    let order_by_creation = match config.pods_ready_requeuing_timestamp.as_deref() {
        None | Some("Eviction") => false,
        Some("Creation") => !gates.on("DisableWaitForPodsReady"),
        Some(other) => return Err(format!("config.podsReadyRequeuingTimestamp: unknown {other:?}")),
    };
    let transformation = |rule: &crate::case::Transformation| {
        let outputs = rule.outputs.iter().map(|(name, factor)| (name.as_str(), factor.as_str()));
        let retain = match rule.strategy.as_deref() {
            None | Some("Retain") => true,
            Some("Replace") => false,
            Some(other) => return Err(format!("config.resourceTransformations: unknown strategy {other:?}")),
        };
        Transformation::new(&rule.input, rule.multiply_by.as_deref(), outputs, retain)
            .map_err(|error| format!("config.resourceTransformations: {error}"))
    };
    Ok(Settings {
        wait_for_pods_ready: order_by_creation.then_some(WaitForPodsReady {
            timeout_ms: i64::MAX / 1_000_000,
            recovery_timeout_ms: None,
            block_admission: false,
            order_by_creation,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3_600,
        }),
        exclude_resource_prefixes: config.exclude_resource_prefixes.clone(),
        transformations: config.resource_transformations.iter().map(transformation).collect::<Result<_, _>>()?,
        engine: options(case, &gates)?,
        refuse_invalid: false,
        allowed_flavors: gates.on("ConcurrentAdmission"),
        admission_gates: gates.on("AdmissionGatedBy"),
        observe_unadmitted: gates.on("UnadmittedWorkloadsObservability"),
        preemption_gates: gates.on("MultiKueueOrchestratedPreemption") || gates.on("ConcurrentAdmission"),
        priority_boost: gates.on("PriorityBoost"),
        reclaimable_pods: gates.on("ReclaimablePods"),
        max_unacknowledged: usize::MAX,
        ..Settings::default()
    })
}

fn options(case: &Case, gates: &Gates) -> Result<Options, String> {
    let config = &case.config;
    let admission_fair_sharing = match &config.admission_fair_sharing {
        Some(AdmissionFairSharing::Settings(settings)) => Some(berth_engine::AdmissionFairSharing {
            half_life: millis(&settings.usage_half_life_time)?,
            sampling_interval: millis(&settings.usage_sampling_interval)?,
            weights: settings.resource_weights.clone(),
        }),
        Some(AdmissionFairSharing::Switch(true)) => Some(berth_engine::AdmissionFairSharing::default()),
        Some(AdmissionFairSharing::Switch(false)) | None => None,
    };
    let fair_sharing = match &config.fair_sharing {
        None => None,
        Some(fair) => {
            let names = fair.preemption_strategies.iter().flatten();
            let strategies: Result<Vec<ShareStrategy>, String> = names.map(|name| name.parse()).collect();
            let strategies = strategies.map_err(|error| format!("config.fairSharing.preemptionStrategies: {error}"))?;
            Some(FairSharing { strategies })
        }
    };
    let ignore_undeclared = match config.quota_check_strategy.as_deref() {
        None | Some("BlockUndeclared") => false,
        Some("IgnoreUndeclared") => gates.on("QuotaCheckStrategy"),
        Some(other) => return Err(format!("config.quotaCheckStrategy: unknown {other:?}")),
    };
    let named = berth_engine::Gates::named(|name| Some(gates.on(name)));
    // With Berth's own rules, a gate that the case does not set has Berth's default, which may differ from Kueue's default.
    let own = berth_engine::Gates::named(|name| case.feature_gates.get(name).copied());
    Ok(Options {
        admission_fair_sharing: admission_fair_sharing.filter(|_| gates.on("AdmissionFairSharing")),
        ignore_undeclared,
        fair_sharing,
        partial_admission: gates.on("PartialAdmission"),
        gates: if case.as_shipped { own } else { named },
        profile: if case.as_shipped { Profile::Berth } else { Profile::KueueLetter },
    })
}

/// A duration such as `10s` or `1m30s` in milliseconds.
///
/// # Errors
/// The text is no duration.
pub fn millis(text: &str) -> Result<i64, String> {
    let duration: jiff::SignedDuration = text.parse().map_err(|error| format!("duration {text:?}: {error}"))?;
    i64::try_from(duration.as_millis()).map_err(|error| format!("duration {text:?}: {error}"))
}

impl Scene {
    /// The scene of a case: control observes the case's objects in order, Workloads last.
    ///
    /// # Errors
    /// The error names the object that cannot be read.
    pub fn new(case: &Case) -> Result<Self, String> {
        let now = match &case.now {
            Some(text) => text.parse().map_err(|error| format!("now: {text:?}: {error}"))?,
            None => Timestamp::UNIX_EPOCH,
        };
        let offline = Offline::new(settings(case)?, now);
        let mut scene =
            Self { offline, names: BTreeMap::new(), made_up: BTreeMap::new(), ageless: Vec::new(), cycles_only: false };
        // Kueue's test caches observe Workloads after all other objects.
        for late in [false, true] {
            let objects = case.objects.iter().filter(|object| (object.get("kind") == Some(&json!("Workload"))) == late);
            for object in objects {
                scene.put(object)?;
            }
        }
        Ok(scene)
    }

    /// Creates or replaces an object of the scene.
    ///
    /// # Errors
    /// The error names the object that cannot be read.
    pub fn put(&mut self, object: &Value) -> Result<(), String> {
        let mut object = object.clone();
        match object.get("kind").and_then(Value::as_str) {
            Some("Workload") => self.prepare(&mut object),
            Some("ClusterQueue") => undefault(&mut object),
            _ => {}
        }
        self.offline.put(&object).map_err(|error| {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            format!("objects: {kind} {}: {error}", key_of(&object))
        })
    }

    fn prepare(&mut self, workload: &mut Value) {
        let key = key_of(workload);
        let given = text(workload, "/metadata/uid");
        // Some cases give several Workloads one uid.
        let taken = self.names.get(&given).is_some_and(|other| *other != key);
        let uid = match (given.is_empty(), taken) {
            (true, _) => key.clone(),
            (_, true) => format!("{given}#{key}"),
            _ => given.clone(),
        };
        if uid != given {
            self.made_up.insert(uid.clone(), if given.is_empty() { "UNKNOWN".to_owned() } else { given });
        }
        if workload.pointer("/metadata/creationTimestamp").is_none() && !self.ageless.contains(&key) {
            self.ageless.push(key.clone());
        }
        self.names.insert(uid.clone(), key);
        let has_job = workload.pointer("/metadata/labels").and_then(|labels| labels.get(JOB_UID)).cloned();
        let metadata = workload.as_object_mut().map(|map| map.entry("metadata").or_insert_with(|| json!({})));
        let Some(Value::Object(metadata)) = metadata else { return };
        metadata.insert("uid".to_owned(), json!(uid));
        if let (Some(uid), None) = (has_job, metadata.get("ownerReferences")) {
            // The cases leave out the jobs of their Workloads. A Workload without an owner would count as an orphan, so each Workload gets an owner of an
            // unknown kind.
            let owner = json!({"apiVersion": "example.com/v1", "kind": "Owner", "name": "owner", "uid": uid, "controller": true});
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten();
        for owner in owners.filter(|owner| text(owner, "/kind") != "Workload") {
            let uid = text(owner, "/uid");
            let is_there = self.offline.objects().values().any(|object| text(object, "/metadata/uid") == uid);
            if let (Value::Object(owner), true) = (owner, uid.is_empty() || !is_there) {
                // An owner of a Workload that the case names but has no object for gets the unknown kind `Owner`, too.
                owner.insert("apiVersion".to_owned(), json!("example.com/v1"));
                owner.insert("kind".to_owned(), json!("Owner"));
            }
        }
    }

    /// Charges a usage to ClusterQueues by adding Workloads that hold quota of this amount.
    ///
    /// # Errors
    /// A quantity cannot be read, or is too large for a Workload.
    pub fn lay_usage(&mut self, usage: &BTreeMap<String, Cells>) -> Result<(), String> {
        for (queue, flavors) in usage {
            let mut sets: Vec<Value> = Vec::new();
            for (index, (flavor, texts)) in flavors.iter().enumerate() {
                let flavors: BTreeMap<&String, &String> = texts.keys().map(|resource| (resource, flavor)).collect();
                let mut amounts: BTreeMap<&String, String> = BTreeMap::new();
                for (resource, text) in texts {
                    let amount = amount(resource, text)?;
                    if amount < Amount::ZERO {
                        return Err(format!("input.usage: nobody holds {text} of {resource}"));
                    }
                    amounts.insert(resource, berth_quantity::format(resource, amount));
                }
                let name = format!("set-{index}");
                sets.push(json!({"name": name, "count": 1, "flavors": flavors, "resourceUsage": amounts}));
            }
            let specs: Vec<Value> = (0..sets.len())
                .map(|index| {
                    json!({"name": format!("set-{index}"), "count": 1,
                "template": {"spec": {"containers": []}}})
                })
                .collect();
            self.put(&json!({
                "kind": "Workload",
                "metadata": {"name": format!("usage-of-{queue}"), "namespace": "laid-usage"},
                "spec": {"podSets": specs, "priority": i32::MAX},
                "status": {
                    "admission": {"clusterQueue": queue, "podSetAssignments": sets},
                    "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                        "lastTransitionTime": "1970-01-01T00:00:00Z"}],
                },
            }))?;
        }
        Ok(())
    }

    /// The uid of a Workload of the case.
    #[must_use]
    pub fn uid(&self, key: &str) -> String {
        let found = self.names.iter().find(|(_, name)| *name == key);
        found.map_or_else(|| key.to_owned(), |(uid, _)| uid.clone())
    }

    /// The Workload with a uid, as `namespace/name`.
    #[must_use]
    pub fn name(&self, uid: &str) -> String {
        self.names.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }

    /// Names of Workloads by their uids.
    #[must_use]
    pub fn names(&self, uids: &[String]) -> Vec<String> {
        uids.iter().map(|uid| self.name(uid)).collect()
    }

    /// The uid that the case gives to a Workload, empty if the case gives none.
    #[must_use]
    pub fn shown_uid(&self, uid: &str) -> String {
        let shown = self.made_up.get(uid).map_or(uid, String::as_str);
        if shown == "UNKNOWN" { String::new() } else { shown.to_owned() }
    }

    /// A message about a Workload as Kueue's test would have written it, with the uids that the case gives. Kueue reports the longest possible waiting time for
    /// a Workload without a creation time.
    #[must_use]
    pub fn message(&self, about: &str, message: &str) -> String {
        let mut message = message.to_owned();
        for (uid, shown) in &self.made_up {
            message = message.replace(&format!("(UID: {uid}, "), &format!("(UID: {shown}, "));
        }
        if self.ageless.iter().any(|key| key == about) {
            let waited = format!("wait time since queued was {}s", self.offline.now().as_second());
            message = message.replace(&waited, "wait time since queued was 9223372037s");
        }
        message
    }

    /// Restricts the shown writes, from now on, to writes that a scheduling cycle of Kueue would have made.
    pub fn show_cycles_only(&mut self) {
        self.offline.keep_history();
        self.cycles_only = true;
    }

    /// The Workloads of the case in their current state.
    pub fn workloads(&self) -> impl Iterator<Item = (String, Cow<'_, Value>)> {
        let of_case = |(key, _): &(&ObjectKey, &Value)| key.kind == Kind::Workload && key.namespace != "laid-usage";
        let shown = |(key, object)| {
            let name: &ObjectKey = key;
            let object = match self.cycles_only {
                true => Cow::Owned(shown::object(object, name, self.offline.history())),
                false => Cow::Borrowed(object),
            };
            (format!("{}/{}", name.namespace, name.name), object)
        };
        self.offline.objects().iter().filter(of_case).map(shown)
    }

    /// The events about Workloads so far.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = match self.cycles_only {
            true => shown::notices(self.offline.notices(), self.offline.history()),
            false => self.offline.notices().to_vec(),
        };
        notices.retain(|notice| notice.key.kind == Kind::Workload);
        notices
    }

    /// The current state of an object of a kind that control writes.
    #[must_use]
    pub fn object(&self, kind: Kind, key: &str) -> Option<&Value> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.offline.objects().get(&ObjectKey { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Names of the ClusterQueues of the scene.
    #[must_use]
    pub fn cluster_queues(&self) -> Vec<String> {
        let queues = self.offline.objects().keys().filter(|key| key.kind == Kind::ClusterQueue);
        queues.map(|key| key.name.clone()).collect()
    }
}

/// Sets absent preemption policies of a ClusterQueue to empty texts, because the cases were recorded without the defaults of an API server.
fn undefault(queue: &mut Value) {
    let Some(Value::Object(preemption)) = queue.pointer_mut("/spec/preemption") else { return };
    for policy in ["withinClusterQueue", "reclaimWithinCohort"] {
        preemption.entry(policy).or_insert_with(|| json!(""));
    }
    if let Some(Value::Object(borrow)) = preemption.get_mut("borrowWithinCohort") {
        borrow.entry("policy").or_insert_with(|| json!(""));
    }
}

/// The key `namespace/name` of an object.
#[must_use]
pub fn key_of(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// A Workload of the case.
///
/// # Errors
/// The case has no Workload with this key, or the Workload cannot be decoded.
pub fn workload(case: &Case, key: &str) -> Result<berth_api::Workload, String> {
    let found = case.of_kind("Workload").find(|object| key_of(object) == key);
    let object = found.ok_or_else(|| format!("objects: no workload {key}"))?;
    serde_json::from_value(object.clone()).map_err(|error| format!("objects: {key}: {error}"))
}

/// The text at a JSON pointer of an object, or an empty text.
#[must_use]
pub fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A copy of a value without nulls, empty lists, empty maps and empty texts, which the API omits.
#[must_use]
pub fn bare(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), bare(value))).filter(|(_, value)| !is_bare(value));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(list) => Value::Array(list.iter().map(bare).collect()),
        other => other.clone(),
    }
}

fn is_bare(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
