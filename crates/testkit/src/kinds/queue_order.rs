//! Cases of kind `queue-order`: Workloads enter queues, leave them in an order, and are requeued.

use super::queue::{self, LocalQueueUsage};
use crate::case::{Case, typed};
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, key_of, text};
use berth_control::write::Kind;
use berth_engine::steps::Outcome;
use berth_engine::{Blocked, Millis, WorkloadState};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    steps: Vec<Value>,
    active_cluster_queues: Option<Vec<String>>,
    local_queue_usage: BTreeMap<String, LocalQueueUsage>,
    /// Expected LocalQueue of each Workload, which Kueue's test compares before the last step.
    assigned: Option<BTreeMap<String, String>>,
    workload: Option<String>,
    already_added: Option<bool>,
    exists: Option<bool>,
    local_queue: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Step {
    action: String,
    #[serde(rename = "id")]
    _id: String,
    workloads: Vec<String>,
    update: Option<Value>,
    reason: String,
    immediate: bool,
    cluster_queues: Vec<String>,
    cluster_queue: Option<String>,
    last_tried_flavor_idx: Vec<BTreeMap<String, i32>>,
    by: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    #[serde(deserialize_with = "crate::case::expected")]
    popped: Option<Vec<Option<String>>>,
    #[serde(deserialize_with = "crate::case::expected")]
    left: Option<Value>,
    #[serde(deserialize_with = "crate::case::expected")]
    inadmissible_left: Option<Value>,
    active_count: Option<u32>,
    inadmissible_count: Option<u32>,
    pending: Option<u32>,
    requeued: Option<Value>,
    moved: Option<usize>,
    inadmissible: Option<bool>,
    sticky: Option<bool>,
    #[serde(deserialize_with = "crate::case::expected")]
    assigned: Option<BTreeMap<String, String>>,
    members: Option<BTreeMap<String, Vec<String>>>,
    order: Option<BTreeMap<String, Vec<String>>>,
    #[serde(deserialize_with = "crate::case::expected")]
    heads: Option<Vec<String>>,
    error: Option<String>,
    backoff_expired: Option<bool>,
    pending_workloads: Option<u32>,
}

/// Results of the steps of a case of kind `queue-order`, which are compared with the expectations.
#[derive(Default)]
struct Trace {
    popped: Vec<Option<String>>,
    heads: Vec<String>,
    moved: usize,
    requeued: Option<bool>,
    added: Vec<String>,
}

/// Judges a case of kind `queue-order`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    if case.expect.get("progressKept").is_some() {
        return super::progress::kept(case);
    }
    if super::classes::is_about(case) {
        return super::classes::run(case);
    }
    let input: Input = case.input()?;
    let expect: Expect = case.expect()?;
    let mut case = case.clone();
    let workloads: Vec<Value> = case.of_kind("Workload").cloned().collect();
    // In a case with steps, a Workload is created by the first step that names it instead of at the beginning.
    let stepwise = !input.steps.is_empty() || input.exists.is_some();
    case.objects.retain(|object| !stepwise || text(object, "/kind") != "Workload");
    let absent = queue::lay_local_usage(&mut case, &input.local_queue_usage);
    for object in &mut case.objects {
        let name = text(object, "/metadata/name");
        let stops = input.active_cluster_queues.as_ref().is_some_and(|active| !active.contains(&name));
        if let (true, "ClusterQueue", Some(Value::Object(spec))) =
            (stops, text(object, "/kind").as_str(), object.get_mut("spec"))
        {
            spec.insert("stopPolicy".to_owned(), json!("Hold"));
        }
    }
    let mut scene = Scene::new(&case)?;
    queue::keep_usage(&mut scene, &absent)?;
    let steps: Vec<Step> = input.steps.iter().map(|step| typed("input.steps", step)).collect::<Result<_, _>>()?;
    let place = Place { case: &case, workloads: &workloads };
    place.make_way(&mut scene, &steps)?;
    let mut diff = Diff::default();
    let mut trace = Trace::default();
    for (at, step) in steps.iter().enumerate() {
        if let (Some(want), true) = (&input.assigned, at + 1 == steps.len()) {
            diff.maps("input.assigned", want, &assigned(&mut scene));
        }
        place.take(&mut scene, step, &mut trace)?;
    }
    if let (Some(key), Some(exists)) = (&input.workload, input.exists) {
        let already = input.already_added == Some(true);
        if exists {
            place.put(&mut scene, key, None)?;
        }
        trace.requeued = Some(!already && exists && queued(&mut scene, key)?);
    }
    compare(&mut scene, &trace, &input.workload, &input.local_queue, expect, &mut diff)?;
    Ok(diff)
}

struct Place<'a> {
    case: &'a Case,
    workloads: &'a [Value],
}

/// Whether Kueue's test adds the Workloads of a step directly to the ClusterQueue, without a LocalQueue.
fn is_direct(step: &Step) -> bool {
    step.action != "add"
}

fn keys_of(step: &Step) -> Vec<String> {
    match &step.update {
        Some(update) => vec![key_of(update)],
        None => step.workloads.clone(),
    }
}

impl<'a> Place<'a> {
    fn object(&self, key: &str, update: Option<&'a Value>) -> Result<&'a Value, String> {
        let found = update.or_else(|| self.workloads.iter().find(|object| key_of(object) == key));
        found.ok_or_else(|| format!("no workload {key}"))
    }

    /// Creates the LocalQueue and the namespace through which Workloads of direct steps reach the only ClusterQueue. The LocalQueue and the namespace are
    /// created before the first step, because their creation makes parked Workloads active.
    fn make_way(&self, scene: &mut Scene, steps: &'a [Step]) -> Result<(), String> {
        let queues: Vec<&Value> = self.case.of_kind("ClusterQueue").collect();
        if self.case.of_kind("Namespace").next().is_none() {
            let updates = steps.iter().filter_map(|step| step.update.as_ref());
            for object in self.workloads.iter().chain(updates) {
                let name = text(object, "/metadata/namespace");
                scene.put(&json!({"kind": "Namespace", "metadata": {"name": name}}))?;
            }
        }
        for step in steps.iter().filter(|step| is_direct(step)) {
            for key in keys_of(step) {
                let Ok(object) = self.object(&key, step.update.as_ref()) else { continue };
                let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/spec/queueName"));
                let known = scene.object(Kind::LocalQueue, &format!("{namespace}/{name}")).cloned();
                let is_led = known.as_ref().is_some_and(|known| !text(known, "/spec/clusterQueue").is_empty());
                if let ([queue], false) = (queues.as_slice(), is_led) {
                    let mut local = known.unwrap_or_else(|| json!({"kind": "LocalQueue"}));
                    let weight = local.pointer("/spec/fairSharing").cloned();
                    if let Some(map) = local.as_object_mut() {
                        map.insert("metadata".to_owned(), json!({"namespace": namespace, "name": name}));
                        map.insert(
                            "spec".to_owned(),
                            json!({"clusterQueue": text(queue, "/metadata/name"), "fairSharing": weight}),
                        );
                    }
                    scene.put(&local)?;
                }
            }
        }
        Ok(())
    }

    /// Creates or replaces a Workload. A `requeueAt` that is in the past is left out of the Workload, and a Workload with an unchanged spec keeps its
    /// generation if the new generation is lower.
    fn put(&self, scene: &mut Scene, key: &str, update: Option<&'a Value>) -> Result<(), String> {
        let mut object = self.object(key, update)?.clone();
        let requeue_at = text(&object, "/status/requeueState/requeueAt").parse::<Timestamp>();
        if let (Ok(at), Some(Value::Object(state))) = (requeue_at, object.pointer_mut("/status/requeueState"))
            && at <= scene.offline.now()
        {
            state.remove("requeueAt");
        }
        let stored = scene.object(Kind::Workload, key).filter(|stored| stored.get("spec") == object.get("spec"));
        let kept = stored.map(generation).filter(|kept| *kept > generation(&object));
        if let (Some(kept), Some(Value::Object(metadata))) = (kept, object.get_mut("metadata")) {
            metadata.insert("generation".to_owned(), json!(kept));
        }
        scene.put(&object)
    }

    fn take(&self, scene: &mut Scene, step: &'a Step, trace: &mut Trace) -> Result<(), String> {
        let now = Millis(scene.offline.now().as_millisecond());
        let keys = keys_of(step);
        match step.action.as_str() {
            "push" | "add" => {
                for key in keys {
                    self.put(scene, &key, step.update.as_ref())?;
                    trace.added.push(key);
                }
            }
            "pop" => {
                let name = match &step.cluster_queue {
                    Some(name) => name.clone(),
                    None => scene.cluster_queues().into_iter().next().ok_or("no ClusterQueue to pop from")?,
                };
                let popped = scene.offline.control().world().steps().pop_head(&name, now);
                trace.popped.push(popped.map(|uid| scene.name(&uid)));
            }
            "heads" => {
                let heads = scene.offline.control().world().steps().pop_all_heads(now);
                trace.heads.extend(heads.into_iter().map(|(_, uid)| scene.name(&uid)));
            }
            "delete" => {
                for key in &keys {
                    let (namespace, name) = key.split_once('/').unwrap_or_default();
                    scene.offline.remove(Kind::Workload, namespace, name);
                }
            }
            "requeue" => {
                for key in &keys {
                    trace.requeued = Some(self.requeue(scene, key, step)?);
                }
            }
            "requeue-inadmissible" => {
                let queues =
                    if step.cluster_queues.is_empty() { scene.cluster_queues() } else { step.cluster_queues.clone() };
                let world = scene.offline.control().world();
                trace.moved += queues.iter().map(|queue| world.steps().retry_parked(queue, now)).sum::<usize>();
            }
            "advance-clock" => {
                scene.offline.advance(crate::scene::millis(step.by.as_deref().unwrap_or_default())?);
            }
            other => return Err(format!("input.steps: unknown action {other:?}")),
        }
        Ok(())
    }

    /// Requeues a head after its cycle, unless the head is in its queue already. Returns true if the head has moved into its ClusterQueue, or from the parked
    /// to the active Workloads.
    fn requeue(&self, scene: &mut Scene, key: &str, step: &'a Step) -> Result<bool, String> {
        let waits = |scene: &mut Scene| {
            let (active, parked) = queue::pending(scene);
            let has = |map: &queue::ByQueue| map.values().flatten().any(|found| found == key);
            (has(&active), has(&parked))
        };
        let (active, was_parked) = waits(scene);
        if active {
            return Ok(false);
        }
        let known = scene.object(Kind::Workload, key).is_some();
        if !known || step.update.is_some() {
            self.put(scene, key, step.update.as_ref())?;
        }
        // An update of a head counts as a change of its Workload only if its generation differs from that of the Workload that was tried.
        let judged = self.object(key, None).ok().map(generation);
        let is_newer = step.update.as_ref().is_some_and(|update| judged != Some(generation(update)));
        if known && is_newer && waits(scene).0 {
            // A Workload that was changed during its cycle is active in its ClusterQueue because of the change, and is not requeued again.
            return Ok(true);
        }
        let outcome = match step.immediate {
            true => Outcome::FailedAfterNomination,
            false => queue::outcome(&step.reason).map_err(|error| format!("input.steps: {error}"))?,
        };
        let uid = scene.uid(key);
        let world = scene.offline.control().world();
        let is_back =
            world.steps().pop_workload(&uid) && world.steps().put_back_as(&uid, outcome, &step.last_tried_flavor_idx);
        Ok(is_back && (!was_parked || waits(scene).0))
    }
}

fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

/// True if a Workload is in a queue that exists.
fn queued(scene: &mut Scene, key: &str) -> Result<bool, String> {
    Ok(refusal(scene, key).is_none())
}

/// Reason why a Workload is in no queue, in Kueue's words.
fn refusal(scene: &mut Scene, key: &str) -> Option<&'static str> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let now = Millis(scene.offline.now().as_millisecond());
    let uid = scene.uid(key);
    let control = scene.offline.control();
    let spec = control.workload_spec(namespace, name)?;
    let is_out = matches!(spec.state, WorkloadState::Pending { blocked: Some(Blocked::OutOfQueue), .. });
    if is_out || control.world().explain(&uid, now).is_none() {
        return Some("workload is inadmissible and can't be added to a LocalQueue");
    }
    let Some(queue) = control.world().cluster_queue_of(namespace, &spec.local_queue).map(str::to_owned) else {
        return Some("localQueue doesn't exist or inactive");
    };
    control.world().readiness(&queue).is_none().then_some("clusterQueue doesn't exist")
}

/// The Workload keys in a JSON value that is a list for one queue, or a map of lists by queue.
fn lists(value: &Value) -> Result<Vec<String>, String> {
    let lists = match value {
        Value::Null => Vec::new(),
        Value::Object(map) => map.values().cloned().collect(),
        list => vec![list.clone()],
    };
    let mut all = Vec::new();
    for list in lists {
        let list: Vec<String> = serde_json::from_value(list).map_err(|error| error.to_string())?;
        all.extend(list);
    }
    Ok(sorted(&all))
}

fn by_queue(value: &Value) -> Result<queue::ByQueue, String> {
    let map: queue::ByQueue = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let named = map.into_iter().filter(|(_, list)| !list.is_empty());
    Ok(named.map(|(queue, list)| (queue, sorted(&list))).collect())
}

/// The LocalQueue of each Workload that is in a LocalQueue.
fn assigned(scene: &mut Scene) -> BTreeMap<String, String> {
    let keys: Vec<String> = scene.workloads().map(|(key, _)| key).collect();
    let mut in_local = BTreeMap::new();
    for key in keys {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let spec = scene.offline.control().workload_spec(namespace, name);
        let refused = refusal(scene, &key);
        if let (Some(spec), None | Some("clusterQueue doesn't exist")) = (spec, refused) {
            let local = format!("{namespace}/{}", spec.local_queue);
            in_local.insert(key, local);
        }
    }
    in_local
}

fn compare(
    scene: &mut Scene,
    trace: &Trace,
    workload: &Option<String>,
    local_queue: &Option<String>,
    expect: Expect,
    diff: &mut Diff,
) -> Result<(), String> {
    let Expect {
        popped,
        left,
        inadmissible_left,
        active_count,
        inadmissible_count,
        pending,
        requeued,
        moved,
        inadmissible,
        sticky,
        assigned,
        members,
        order,
        heads,
        error,
        backoff_expired,
        pending_workloads,
    } = expect;
    diff.eq_if("popped", popped.as_ref(), || trace.popped.clone());
    diff.eq_if("heads", heads.map(|list| sorted(&list)).as_ref(), || sorted(&trace.heads));
    diff.eq_if("moved", moved.as_ref(), || trace.moved);
    match requeued {
        Some(Value::Bool(want)) => diff.eq("requeued", &Some(want), &trace.requeued),
        Some(want) => diff.eq("requeued", &want.as_u64(), &u64::try_from(trace.moved).ok()),
        None => {}
    }
    let (active, parked) = queue::pending(scene);
    for (place, want, got) in [("left", left, &active), ("inadmissibleLeft", inadmissible_left, &parked)] {
        match want {
            Some(Value::Object(map)) => diff.maps(place, &by_queue(&Value::Object(map))?, got),
            Some(want) => {
                diff.eq(place, &lists(&want)?, &sorted(&got.values().flatten().cloned().collect::<Vec<_>>()));
            }
            None => {}
        }
    }
    let count = |map: &queue::ByQueue| u32::try_from(map.values().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX);
    let in_heap = count(&active).saturating_add(queue::in_flight(scene));
    diff.eq_if("activeCount", active_count.as_ref(), || in_heap);
    diff.eq_if("inadmissibleCount", inadmissible_count.as_ref(), || count(&parked));
    diff.eq_if("pending", pending.as_ref(), || in_heap.saturating_add(count(&parked)));
    diff.eq_if("inadmissible", inadmissible.as_ref(), || count(&parked) > 0);
    let queues = scene.cluster_queues();
    diff.eq_if("sticky", sticky.as_ref(), || {
        let world = scene.offline.control().world();
        queues.iter().any(|queue| world.steps().sticky(queue).is_some())
    });
    let in_local = self::assigned(scene);
    if let Some(want) = assigned {
        diff.maps("assigned", &want, &in_local);
    }
    for (queue, want) in members.into_iter().flatten() {
        let got: Vec<String> =
            in_local.iter().filter(|(_, local)| **local == queue).map(|(key, _)| key.clone()).collect();
        diff.eq(&format!("members/{queue}"), &sorted(&want), &got);
    }
    for (queue, want) in order.into_iter().flatten() {
        let (uids, _) = scene.offline.control().world().pending(&queue);
        diff.eq(&format!("order/{queue}"), &want, &scene.names(&uids));
    }
    if let Some(want) = error {
        let got = match (&trace.added.last(), local_queue) {
            (Some(key), _) => refusal(scene, key),
            (None, Some(queue)) => {
                let (namespace, name) = queue.split_once('/').unwrap_or_default();
                let figures = scene.offline.control().world().local_queue_figures(namespace, name);
                figures.is_none().then_some("localQueue doesn't exist or inactive")
            }
            (None, None) => None,
        };
        diff.eq("error", &Some(want.as_str()), &got);
    }
    if let Some(want) = backoff_expired {
        let key = workload.as_deref().ok_or("input: workload is needed")?;
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let now = Millis(scene.offline.now().as_millisecond());
        let spec = scene.offline.control().workload_spec(namespace, name).ok_or("input: no such workload")?;
        let expired = match spec.state {
            WorkloadState::Pending { not_before, blocked } => {
                blocked.is_none() && not_before.is_none_or(|at| at <= now)
            }
            WorkloadState::Reserved(_) => true,
        };
        diff.eq("backoffExpired", &want, &expired);
    }
    diff.eq_if("pendingWorkloads", pending_workloads.as_ref(), || {
        let (namespace, name) = local_queue.as_deref().and_then(|key| key.split_once('/')).unwrap_or_default();
        let figures = scene.offline.control().world().local_queue_figures(namespace, name);
        figures.map_or(0, |figures| figures.pending_active.saturating_add(figures.pending_inadmissible))
    });
    Ok(())
}
