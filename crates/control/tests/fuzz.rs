//! Random faulty objects: manifests whose fields are dropped, exchanged, duplicated, or have values beyond any bound. No sequence of random faulty objects
//! makes control panic, write for ever, or break the engine's accounting.
//!
//! The environment variable `BERTH_FUZZ` is the number of objects (30,000 without the variable; `make night` sets a million), and `BERTH_FUZZ_SEED` is the
//! first seed. The message of a failed test has the seed of its random objects; the same seed makes the same objects.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use berth_control::offline::{ObjectError, Offline};
use berth_control::settings::{Settings, WaitForPodsReady};
use berth_control::write::Kind;
use berth_engine::{AdmissionFairSharing, Gates};
use berth_jobs::Transformation;
use serde_json::{Value, json};

use crate::noted::note;

/// The test fails if control makes more writes than this number in one round, because such writes may never end. In a usual round of 40 objects, control makes
/// a few hundred writes.
const ENDLESS: usize = 5_000;

/// The random number generator xorshift64*: small, and with the same numbers on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end.max(1)
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// Valid manifests of queues and jobs that refer to each other.
fn sensible() -> Vec<Value> {
    let queue = |name: &str, cohort: &str, more: Value| {
        let mut spec = json!({
            "cohortName": cohort, "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [
                {"name": "reserved", "resources": [
                    {"name": "cpu", "nominalQuota": "4", "borrowingLimit": "4", "lendingLimit": "2"},
                    {"name": "memory", "nominalQuota": "8Gi"}]},
                {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "8"}, {"name": "memory", "nominalQuota": "1Gi"}]},
            ]}],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
    };
    let template = |cpu: &str| {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "restartPolicy": "Never", "nodeSelector": {"zone": "z"}, "priorityClassName": "high",
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
            "containers": [{"name": "c", "image": "c", "resources": {
                "requests": {"cpu": cpu, "memory": "100Mi"}, "limits": {"cpu": cpu}}}],
        }})
    };
    let workload = |name: &str, queue: &str, priority: i32, more: Value| {
        let mut object = json!({"kind": "Workload",
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-11-21T11:00:00Z", "generation": 1},
            "spec": {"queueName": queue, "active": true, "priority": priority,
                "podSets": [{"name": "main", "count": 2, "minCount": 1, "template": template("1500m")}]}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let job = |name: &str, queue: &str, more: Value| {
        let mut object = json!({"kind": "Job",
            "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": queue}, "generation": 1},
            "spec": {"suspend": true, "parallelism": 2, "completions": 4, "template": template("1")}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let admission = json!({"status": {
        "admission": {"clusterQueue": "b", "podSetAssignments": [{"name": "main", "count": 2,
            "flavors": {"cpu": "reserved", "memory": "reserved"}, "resourceUsage": {"cpu": "3", "memory": "200Mi"}}]},
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": "2026-11-21T11:00:00Z"},
            {"type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": "2026-11-21T11:00:01Z"}],
        "reclaimablePods": [{"name": "main", "count": 1}],
        "requeueState": {"count": 1, "requeueAt": "2026-11-21T11:30:00Z"},
    }});
    let preempting = json!({"preemption": {
        "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5}},
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"}});
    vec![
        json!({"kind": "Namespace", "metadata": {"name": "team", "labels": {"x": "y"}}}),
        json!({"kind": "LimitRange", "metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [
            {"type": "Container", "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "64"}}]}}),
        json!({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}),
        json!({"kind": "WorkloadPriorityClass", "metadata": {"name": "top"}, "value": 100}),
        json!({"kind": "AdmissionCheck", "metadata": {"name": "check"}, "spec": {"controllerName": "c"},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-11-21T11:00:00Z"}]}}),
        json!({"kind": "ResourceFlavor", "metadata": {"name": "reserved"}, "spec": {"nodeLabels": {"zone": "z"}}}),
        json!({"kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": {
            "nodeTaints": [{"key": "spot", "effect": "NoSchedule"}], "tolerations": [{"key": "spot", "operator": "Exists"}]}}),
        json!({"kind": "Cohort", "metadata": {"name": "root"}, "spec": {"fairSharing": {"weight": "2"}}}),
        json!({"kind": "Cohort", "metadata": {"name": "left"}, "spec": {"parentName": "root", "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]}}),
        queue("a", "left", preempting),
        queue("b", "left", json!({"queueingStrategy": "StrictFIFO", "fairSharing": {"weight": "0.5"}})),
        queue(
            "c",
            "root",
            json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["spot"]}]},
            "stopPolicy": "None"}),
        ),
        queue("d", "left", json!({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}})),
        json!({"kind": "LocalQueue", "metadata": {"name": "a", "namespace": "team"}, "spec": {"clusterQueue": "a"}}),
        json!({"kind": "LocalQueue", "metadata": {"name": "b", "namespace": "team"}, "spec": {"clusterQueue": "b", "stopPolicy": "None"}}),
        json!({"kind": "LocalQueue", "metadata": {"name": "c", "namespace": "team"}, "spec": {"clusterQueue": "c"}}),
        json!({"kind": "LocalQueue", "metadata": {"name": "d", "namespace": "team"}, "spec": {"clusterQueue": "d"}}),
        json!({"kind": "LocalQueue", "metadata": {"name": "e", "namespace": "team"},
            "spec": {"clusterQueue": "d", "fairSharing": {"weight": "3"}},
            "status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
                "consumedResources": {"cpu": "2500m", "memory": "1Gi"}, "lastUpdate": "2026-11-21T11:59:00Z"}}}}),
        workload("w1", "a", 3, json!({})),
        workload("w2", "b", -3, admission),
        workload("w3", "c", 0, json!({})),
        job("j1", "a", json!({})),
        job("j2", "b", json!({"status": {"active": 1, "startTime": "2026-11-21T11:00:00Z"}})),
        job("j3", "c", json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}})),
        job("j4", "d", json!({})),
        job("j5", "e", json!({})),
    ]
}

/// Further valid manifests: policies, capacity tiers, and jobs of every other kind with the objects that such jobs consist of.
fn of_every_kind() -> Vec<Value> {
    let label = |queue: &str| json!({"kueue.x-k8s.io/queue-name": queue});
    let managed = |queue: &str, group: &str| json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": group});
    let containers = json!([{"name": "c", "image": "c", "resources": {"requests": {"cpu": "500m"}}}]);
    let pod = |name: &str, labels: Value, annotations: Value, more: Value| {
        let mut object = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "team", "labels": labels,
            "annotations": annotations, "finalizers": ["kueue.x-k8s.io/managed"], "generation": 1},
            "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": containers}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let running = json!({"spec": {"nodeName": "n", "containers": containers}, "status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}]}});
    let stuck = json!({"spec": {"containers": containers}, "status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes are available"}]}});
    let total = json!({"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/pod-group-fast-admission": "true"});
    let serving = json!({"kueue.x-k8s.io/pod-group-name": "statefulset-web", "kueue.x-k8s.io/role-hash": "main",
        "kueue.x-k8s.io/pod-group-serving": "true", "kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    let training = |name: &str, more: Value| {
        let mut spec = json!({"jobType": "PyTorchJob", "capacityTiers": ["spot", "reserved"], "backoffLimit": 2,
            "schedulingConfig": {"queue": "a", "priority": "top", "maxWaitTime": "1h", "schedulingTimeout": "10m",
                "gangScheduling": true},
            "resources": {"minReplicas": 1, "maxReplicas": 2, "replicaResources": {"cpu": "1"}, "gpuType": "h100",
                "topologyConstraint": "zone"},
            "checkpoint": {"store": "s", "interval": "10m", "maxCheckpoints": 3},
            "template": {"spec": {"containers": containers}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": "team", "generation": 1}, "spec": spec})
    };
    let part = |name: &str, kind: &str, owner_name: &str, more: Value| {
        let owner = json!([{"apiVersion": "v1", "kind": kind, "name": owner_name, "uid": format!("{kind}/team/{owner_name}"), "controller": true}]);
        let mut object = json!({"kind": "Job", "metadata": {"name": name, "namespace": "team", "generation": 1, "ownerReferences": owner},
            "spec": {"suspend": true, "parallelism": 2, "completions": 2, "completionMode": "Indexed",
                "template": {"spec": {"containers": containers}}}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let active = json!({"status": {"active": 2, "ready": 1, "startTime": "2026-11-21T11:00:00Z"}});
    let tier = |name: &str, tier: &str| {
        json!({"kind": "ResourceFlavor", "metadata": {"name": name, "labels": {"berth.dev/capacity-tier": tier},
            "annotations": {"berth.dev/forbidden-node-labels": "cloud.google.com/gke-spot"}}, "spec": {"nodeLabels": {"zone": name}}})
    };
    vec![
        tier("reserved", "reserved"),
        tier("spot", "spot"),
        json!({"kind": "CheckpointStore", "metadata": {"name": "s"}, "spec": {"s3": {"endpoint": "https://s", "bucket": "b"}, "prefix": "p"}}),
        json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": "p", "generation": 1}, "spec": {
            "clusterQueues": ["a"], "clusterQueueSelector": {"matchLabels": {"x": "y"}},
            "capacityTiers": {"default": ["reserved", "spot"], "selectors": "Override", "patience": {"spot": "30s"},
                "defaultFor": [{"label": "x", "values": ["y"], "tiers": ["spot"]}],
                "stockOutOn": ["Unschedulable"], "maxSharePercent": {"spot": 50},
                "backoff": {"initial": "10s", "factor": 2, "max": "2h", "decay": "30m"},
                "climbBack": {"when": "Anytime", "minStay": "1s", "hysteresis": "1s", "maxTimes": 3}},
            "admission": {"maxJobs": 5, "maxGPUsPerJob": 8, "priorityRange": {"min": -5, "max": 1000}},
            "preemption": {"minPriorityDifference": 1, "protectedRunningTime": "10s", "gracePeriod": "5s", "maxVictims": 2,
                "maxEvictedPercent": 200},
            "priorityFromLabel": {"label": "x", "classes": [{"value": "y", "workloadPriorityClass": "high"}]},
            "borrowingRatioPercent": 50, "waitingTimeBonus": {"pointsPerHour": 20}},
            "status": {"backoffs": [{"flavor": "spot", "pods": 2, "failures": 1, "until": "2026-11-21T12:01:00Z"}]}}),
        training("t1", json!({})),
        training(
            "t2",
            json!({"elasticConfig": {"enabled": true, "minWorkers": 1, "maxWorkers": 4,
            "scalePolicy": {"scaleUpStep": 1, "scaleUpCooldown": "1s", "scaleDownStep": 1, "scaleDownCooldown": "1s"}}}),
        ),
        training(
            "t3",
            json!({"jobType": "MPIJob", "roles": [{"name": "launcher", "replicas": 1}, {"name": "worker", "replicas": 2}]}),
        ),
        part("t1-worker", "TrainingJob", "t1", active.clone()),
        part("t2-worker", "TrainingJob", "t2", json!({})),
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s1", "namespace": "team",
            "labels": label("b"), "annotations": {"berth.dev/capacity-tiers": "spot,reserved"}, "generation": 1},
            "spec": {"suspend": true, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1,
                "template": {"spec": {"nodeSelector": {"cloud.google.com/gke-spot": "true"}, "containers": containers}}}}}]},
            "status": {"replicatedJobsStatus": [{"name": "w", "ready": 1, "active": 1}]}}),
        part("s1-w-0", "JobSet", "s1", active),
        part("s1-w-1", "JobSet", "s1", json!({})),
        pod("p1", label("a"), json!({"berth.dev/capacity-tiers": "spot"}), json!({})),
        pod("p2", label("b"), json!({}), stuck),
        pod("g1", managed("a", "g"), total.clone(), json!({})),
        pod("g2", managed("a", "g"), total, running.clone()),
        pod("web-0", managed("b", "statefulset-web"), serving, running),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "team", "labels": label("b"),
            "generation": 1}, "spec": {"replicas": 2, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}}}),
    ]
}

/// JSON values at and beyond the bounds of every type.
fn odd() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(i32::MAX),
        json!(i32::MIN),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(""),
        json!("0"),
        json!("1"),
        json!("-1"),
        json!("9223372036854775807"),
        json!("9223372036854775808"),
        json!("99999999999999999999999999999999"),
        json!("1e18"),
        json!("1n"),
        json!("0.0000001"),
        json!("8Ei"),
        json!("a"),
        json!("b"),
        json!("root"),
        json!("left"),
        json!("*"),
        json!("\u{0}\u{fffd}é"),
        json!("x".repeat(300)),
        json!("2026-11-21T12:00:00Z"),
        json!("0001-01-01T00:00:00Z"),
        json!("9999-12-31T23:59:59Z"),
        json!("Any"),
        json!("Never"),
        json!("Hold"),
        json!("HoldAndDrain"),
        json!("True"),
        json!("False"),
        json!([]),
        json!({}),
    ]
}

/// Collects the JSON pointers of all values below a value.
fn paths(value: &Value, at: &str, into: &mut Vec<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| {
            let path = format!("{at}/{}", escaped(key));
            paths(inner, &path, into);
            into.push(path);
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, inner)| {
            let path = format!("{at}/{index}");
            paths(inner, &path, into);
            into.push(path);
        }),
        _ => {}
    }
}

/// Changes one random field of an object. The kind and the name of the object stay, so that control still looks at the object.
fn mutate(object: &mut Value, others: &[Value], odd: &[Value], dice: &mut Dice) {
    let mut all = Vec::new();
    paths(object, "", &mut all);
    all.retain(|path| !matches!(path.as_str(), "/kind" | "/metadata" | "/metadata/name"));
    if all.is_empty() {
        return;
    }
    let path = dice.pick(&all);
    let (parent, last) = path.rsplit_once('/').unwrap();
    match dice.below(6) {
        0 => match object.pointer_mut(parent) {
            Some(Value::Object(map)) => drop(map.remove(&last.replace("~1", "/").replace("~0", "~"))),
            Some(Value::Array(list)) => drop(list.remove(last.parse().unwrap())),
            _ => {}
        },
        1 => {
            if let Some(Value::Array(list)) = object.pointer_mut(parent) {
                let twice = list[last.parse::<usize>().unwrap()].clone();
                list.push(twice);
            }
        }
        2 => {
            let other = dice.pick(others);
            let mut theirs = Vec::new();
            paths(&other, "", &mut theirs);
            let value = other.pointer(&dice.pick(&theirs)).cloned().unwrap();
            *object.pointer_mut(&path).unwrap() = value;
        }
        _ => *object.pointer_mut(&path).unwrap() = dice.pick(odd),
    }
}

/// Random feature gates: in every second cluster some gates are off. The gate `PrioritizePreemptorWorkloads`, which is off by default in Kueue and on in Berth,
/// stays on, because evictions may go on for ever without it.
fn gates(dice: &mut Dice) -> Gates {
    let is_odd = dice.one_in(2);
    let mut is_on = || !(is_odd && dice.one_in(2));
    Gates::named(|name| (name != "PrioritizePreemptorWorkloads").then(&mut is_on))
}

fn admission_fair_sharing(dice: &mut Dice) -> AdmissionFairSharing {
    AdmissionFairSharing {
        half_life: dice.pick(&[0, 1, 60_000, 9_223_372_036_854]),
        sampling_interval: dice.pick(&[5_000, 300_000]),
        weights: dice.pick(&[BTreeMap::new(), BTreeMap::from([("cpu".to_owned(), 0.0), ("memory".to_owned(), 1e-9)])]),
    }
}

fn wait_for_pods_ready(dice: &mut Dice) -> WaitForPodsReady {
    WaitForPodsReady {
        timeout_ms: dice.pick(&[1_000, 300_000]),
        recovery_timeout_ms: dice.pick(&[None, Some(1_000)]),
        block_admission: dice.one_in(2),
        order_by_creation: dice.one_in(2),
        backoff_limit_count: dice.pick(&[None, Some(0), Some(1), Some(i32::MAX)]),
        backoff_base_seconds: dice.pick(&[1, 60]),
        backoff_max_seconds: dice.pick(&[1, 3_600]),
    }
}

fn transformations(dice: &mut Dice) -> Vec<Transformation> {
    let all = [
        Transformation::new("cpu", None, [("example.com/credits", "3"), ("memory", "1Gi")], dice.one_in(2)),
        Transformation::new("memory", Some("cpu"), [("cpu", "-1m")], dice.one_in(2)),
        Transformation::new("pods", Some("nothing"), [("cpu", "9223372036854775807")], true),
    ];
    all.into_iter().map(Result::unwrap).filter(|_| dice.one_in(4)).collect()
}

fn settings(dice: &mut Dice) -> Settings {
    let engine = berth_engine::Options {
        fair_sharing: dice.one_in(2).then(berth_engine::FairSharing::default),
        admission_fair_sharing: dice.one_in(2).then(|| admission_fair_sharing(dice)),
        ignore_undeclared: dice.one_in(2),
        partial_admission: dice.one_in(2),
        gates: gates(dice),
        ..Default::default()
    };
    let more = dice.one_in(2).then_some([Kind::JOB_SET, Kind::Pod, Kind::StatefulSet, Kind::Deployment]);
    let mut settings = Settings::default();
    settings.job_kinds.extend(more.into_iter().flatten());
    Settings {
        engine,
        wait_for_pods_ready: dice.one_in(2).then(|| wait_for_pods_ready(dice)),
        transformations: transformations(dice),
        refuse_invalid: dice.one_in(2),
        allowed_flavors: dice.one_in(2),
        admission_gates: dice.one_in(2),
        preemption_gates: dice.one_in(2),
        priority_boost: dice.one_in(2),
        reclaimable_pods: dice.one_in(2),
        retain_finished_ms: dice.pick(&[None, None, Some(1_000)]),
        retain_deactivated_ms: dice.pick(&[None, None, Some(1_000)]),
        max_unacknowledged: dice.pick(&[1, 256, 256]),
        manage_jobs_without_queue_name: dice.one_in(4),
        ..settings
    }
}

/// One cluster with random objects: objects are created, changed and deleted while control decides. Returns how many objects the cluster was given, and how
/// many of the objects could be decoded.
fn round(seed: u64) -> (usize, usize) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut base, odd) = (sensible(), odd());
    if dice.one_in(2) {
        base.extend(of_every_kind());
    }
    let mut cluster = Offline::new(settings(&mut dice), "2026-11-21T12:00:00Z".parse().unwrap());
    let (mut shown, mut decoded) = (0, 0);
    for pass in 0..2 {
        for object in &base {
            let mut object = object.clone();
            if pass == 0 && dice.one_in(12) {
                continue;
            }
            // Most objects of the first pass are complete, so that later changes have complete objects to break.
            let changes = if pass == 0 { dice.below(2) } else { dice.below(4) };
            for _ in 0..changes {
                mutate(&mut object, &base, &odd, &mut dice);
            }
            // An object that cannot be decoded is not observed, as in the operator.
            shown += 1;
            decoded += usize::from(put(&mut cluster, &object).is_ok());
            if dice.one_in(8) {
                cluster.run(4);
            }
            if pass == 1 && dice.one_in(16) {
                let (kind, name) = dice.pick(&[
                    (Kind::ClusterQueue, "a"),
                    (Kind::LocalQueue, "b"),
                    (Kind::ResourceFlavor, "spot"),
                    (Kind::Cohort, "left"),
                    (Kind::Workload, "w2"),
                    (Kind::JOB, "j1"),
                    (Kind::JOB, "t1-worker"),
                    (Kind::TrainingJob, "t2"),
                    (Kind::JOB_SET, "s1"),
                    (Kind::Pod, "g1"),
                    (Kind::QueuePolicy, "p"),
                ]);
                let cluster_wide = [Kind::ClusterQueue, Kind::ResourceFlavor, Kind::Cohort, Kind::QueuePolicy];
                let namespaced = !cluster_wide.contains(&kind);
                cluster.remove(kind, if namespaced { "team" } else { "" }, name);
            }
        }
        cluster.run(16);
        cluster.advance(70_000);
        cluster.run(16);
        check(&mut cluster, seed);
    }
    (shown, decoded)
}

fn put(cluster: &mut Offline, object: &Value) -> Result<(), ObjectError> {
    match object["kind"].as_str() {
        Some("Pod") => cluster.put_as(Kind::Pod, object),
        Some("StatefulSet") => cluster.put_as(Kind::StatefulSet, object),
        _ => cluster.put(object),
    }
}

fn check(cluster: &mut Offline, seed: u64) {
    assert!(cluster.writes().len() < ENDLESS, "seed {seed}: {:?}", &cluster.writes()[ENDLESS - 20..]);
    let digest = cluster.control().recompute();
    assert_eq!(digest["problems"], json!([]), "seed {seed}: {digest}");
}

#[test]
fn control_survives_mutated_objects_without_panic_or_endless_writes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (wanted, first) = (number("BERTH_FUZZ").unwrap_or(30_000), number("BERTH_FUZZ_SEED").unwrap_or(1));
    let (mut shown, mut decoded, mut seed) = (0, 0, first);
    while shown < usize::try_from(wanted).unwrap() {
        let done = catch_unwind(AssertUnwindSafe(|| round(seed)));
        let (more, good) = done.unwrap_or_else(|_| panic!("BERTH_FUZZ=1 BERTH_FUZZ_SEED={seed} shows it again"));
        (shown, decoded) = (shown + more, decoded + good);
        seed += 1;
    }
    assert!(decoded * 2 > shown, "{decoded} of {shown} decode: most of the rest is never reached");
    note("control", shown as u64);
    println!("{shown} objects in {} rounds, {decoded} of them decoded", seed - first);
}
