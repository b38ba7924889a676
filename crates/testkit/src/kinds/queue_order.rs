//! Kind `queue-order`: what goes into queues, in which order it comes out, and where it goes afterwards.

use super::cycle::LocalQueueUsage;
use super::queue;
use crate::case::{Case, typed};
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, key_of, text};
use berth_control::write::Kind;
use berth_engine::{Millis, Outcome, PendingReason, WorkloadState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    steps: Vec<Value>,
    active_cluster_queues: Option<Vec<String>>,
    local_queue_usage: BTreeMap<String, LocalQueueUsage>,
    /// What upstream asserts before the last step.
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
    iteration: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    popped: Option<Vec<Option<String>>>,
    left: Option<Value>,
    inadmissible_left: Option<Value>,
    active_count: Option<u32>,
    inadmissible_count: Option<u32>,
    pending: Option<u32>,
    requeued: Option<Value>,
    moved: Option<usize>,
    inadmissible: Option<bool>,
    sticky: Option<bool>,
    assigned: Option<BTreeMap<String, String>>,
    members: Option<BTreeMap<String, Vec<String>>>,
    order: Option<BTreeMap<String, Vec<String>>>,
    heads: Option<Vec<String>>,
    error: Option<String>,
    backoff_expired: Option<bool>,
    pending_workloads: Option<u32>,
}

/// What the steps brought about.
#[derive(Default)]
struct Trace {
    popped: Vec<Option<String>>,
    heads: Vec<String>,
    moved: usize,
    requeued: Option<bool>,
    added: Vec<String>,
}

/// Kind `queue-order`.
///
/// # Errors
/// What cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let expect: Expect = case.expect()?;
    let mut case = case.clone();
    let workloads: Vec<Value> = case.of_kind("Workload").cloned().collect();
    // With steps, workloads come when a step names them.
    let stepwise = !input.steps.is_empty() || input.exists.is_some();
    case.objects.retain(|object| !stepwise || text(object, "/kind") != "Workload");
    for (key, usage) in &input.local_queue_usage {
        queue::lay_local_usage(&mut case, key, usage)?;
    }
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
    let mut trace = Trace::default();
    let mut place = Place { case: &case, workloads: &workloads };
    for step in &input.steps {
        place.take(&mut scene, typed("input.steps", step)?, &mut trace)?;
    }
    if let (Some(key), Some(exists)) = (&input.workload, input.exists) {
        let already = input.already_added == Some(true);
        if exists {
            place.put(&mut scene, key, None, false)?;
        }
        trace.requeued = Some(!already && exists && queued(&mut scene, key)?);
    }
    let _ = input.assigned;
    compare(&case, &mut scene, &trace, &input.workload, &input.local_queue, expect)
}

struct Place<'a> {
    case: &'a Case,
    workloads: &'a [Value],
}

impl Place<'_> {
    /// Puts a workload in; a queue that upstream's test addresses directly gets a LocalQueue for it.
    fn put(&mut self, scene: &mut Scene, key: &str, update: Option<&Value>, direct: bool) -> Result<(), String> {
        let object = match update {
            Some(update) => update,
            None => self
                .workloads
                .iter()
                .find(|object| key_of(object) == key)
                .ok_or_else(|| format!("no workload {key}"))?,
        };
        let queues: Vec<&Value> = self.case.of_kind("ClusterQueue").collect();
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/spec/queueName"));
        if let (true, [queue], None) =
            (direct, queues.as_slice(), scene.object(Kind::LocalQueue, &format!("{namespace}/{name}")))
        {
            scene.put(&json!({"kind": "LocalQueue", "metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterQueue": text(queue, "/metadata/name")}}))?;
        } else if let (true, [queue], Some(found)) =
            (direct, queues.as_slice(), scene.object(Kind::LocalQueue, &format!("{namespace}/{name}")).cloned())
            && text(&found, "/spec/clusterQueue").is_empty()
        {
            let mut found = found;
            if let Some(spec) = found.as_object_mut().map(|map| map.entry("spec").or_insert_with(|| json!({}))) {
                *spec = json!({"clusterQueue": text(queue, "/metadata/name"), "fairSharing": spec.get("fairSharing")});
            }
            scene.put(&found)?;
        }
        let known: Vec<&Value> = self.case.of_kind("Namespace").collect();
        if direct && known.is_empty() {
            scene.put(&json!({"kind": "Namespace", "metadata": {"name": namespace}}))?;
        }
        scene.put(object)
    }

    fn take(&mut self, scene: &mut Scene, step: Step, trace: &mut Trace) -> Result<(), String> {
        let now = Millis(scene.offline.now().as_millisecond());
        let direct = step.action != "add";
        let keys: Vec<String> = match &step.update {
            Some(update) => vec![key_of(update)],
            None => step.workloads.clone(),
        };
        match step.action.as_str() {
            "push" | "add" => {
                for key in &keys {
                    self.put(scene, key, step.update.as_ref(), direct)?;
                    trace.added.push(key.clone());
                }
            }
            "pop" => {
                let name = match step.cluster_queue {
                    Some(name) => name,
                    None => scene.cluster_queues().into_iter().next().ok_or("no ClusterQueue to pop from")?,
                };
                let popped = scene.offline.control().world().pop_head(&name, now);
                trace.popped.push(popped.map(|uid| scene.name(&uid)));
            }
            "heads" => {
                let heads = scene.offline.control().world().pop_all_heads(now);
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
                    let requeued = self.requeue(scene, key, &step)?;
                    trace.requeued = Some(requeued);
                }
            }
            "requeue-inadmissible" => {
                let queues =
                    if step.cluster_queues.is_empty() { scene.cluster_queues() } else { step.cluster_queues.clone() };
                let world = scene.offline.control().world();
                trace.moved += queues.iter().map(|queue| world.retry_parked(queue)).sum::<usize>();
            }
            "advance-clock" => {
                scene.offline.advance(crate::scene::millis(step.by.as_deref().unwrap_or_default())?);
            }
            "queue-second-pass" => return Err(format!("second passes need topology ({:?})", step.iteration)),
            other => return Err(format!("input.steps: unknown action {other:?}")),
        }
        Ok(())
    }

    /// Puts a head back after its cycle, unless it is queued already.
    fn requeue(&mut self, scene: &mut Scene, key: &str, step: &Step) -> Result<bool, String> {
        let uid = scene.uid(key);
        let lists = queue::pending(scene);
        let has = |map: &queue::ByQueue| map.values().flatten().any(|found| found == key);
        let (active, parked) = (has(&lists.0), has(&lists.1));
        if active || (parked && !step.immediate) {
            return Ok(false);
        }
        let known = scene.object(Kind::Workload, key).is_some();
        if !known || step.update.is_some() {
            self.put(scene, key, step.update.as_ref(), true)?;
        }
        if known && step.update.is_some() && queue::pending(scene).0.values().flatten().any(|found| found == key) {
            // It changed while it was in flight, and is in its queue again for that.
            return Ok(true);
        }
        let uid = if known { uid } else { scene.uid(key) };
        if lists.1.is_empty() {
            // Nothing is parked yet: what happened before is seen by all queues.
            queue::requeue_parked(scene, &[]);
        }
        let outcome = match (step.immediate, step.reason.as_str()) {
            (true, _) | (_, "FailedAfterNomination") => Outcome::FailedAfterNomination,
            (_, "") => Outcome::Generic,
            (_, "NoFit") => Outcome::NoFit,
            (_, "PreemptionNoCandidates") => Outcome::PreemptionNoCandidates,
            (_, "NamespaceMismatch") => Outcome::NamespaceMismatch,
            (_, "PendingPreemption" | "PendingMigration") => Outcome::PendingPreemption,
            (_, "PreemptionFailed") => Outcome::PreemptionFailed,
            (_, "PreemptionGated") => Outcome::PreemptionGated,
            (_, other) => return Err(format!("input.steps: unknown reason {other:?}")),
        };
        let world = scene.offline.control().world();
        Ok(world.pop_workload(&uid) && world.put_back_as(&uid, outcome, &step.last_tried_flavor_idx))
    }
}

/// Whether a workload is in a queue that exists.
fn queued(scene: &mut Scene, key: &str) -> Result<bool, String> {
    Ok(refusal(scene, key).is_none())
}

/// Why a workload is in no queue, in upstream's words.
fn refusal(scene: &mut Scene, key: &str) -> Option<&'static str> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let now = Millis(scene.offline.now().as_millisecond());
    let uid = scene.uid(key);
    let control = scene.offline.control();
    let told = control.told(namespace, name)?;
    if control.world().explain(&uid, now).is_none() {
        return Some("workload is inadmissible and can't be added to a LocalQueue");
    }
    let Some(queue) = control.world().cluster_queue_of(namespace, &told.local_queue).map(str::to_owned) else {
        return Some("localQueue doesn't exist or inactive");
    };
    control.world().readiness(&queue).is_none().then_some("clusterQueue doesn't exist")
}

/// A list of one queue, or lists by queue.
fn lists(value: &Value) -> Result<Vec<String>, String> {
    let lists = match value {
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

fn compare(
    case: &Case,
    scene: &mut Scene,
    trace: &Trace,
    workload: &Option<String>,
    local_queue: &Option<String>,
    expect: Expect,
) -> Result<Diff, String> {
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
    let mut diff = Diff::default();
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
    diff.eq_if("activeCount", active_count.as_ref(), || count(&active));
    diff.eq_if("inadmissibleCount", inadmissible_count.as_ref(), || count(&parked));
    diff.eq_if("pending", pending.as_ref(), || count(&active).saturating_add(count(&parked)));
    diff.eq_if("inadmissible", inadmissible.as_ref(), || count(&parked) > 0);
    let queues = scene.cluster_queues();
    diff.eq_if("sticky", sticky.as_ref(), || {
        let world = scene.offline.control().world();
        queues.iter().any(|queue| world.sticky(queue).is_some())
    });
    let keys: Vec<String> = scene.workloads().map(|(key, _)| key).collect();
    let mut in_local: BTreeMap<String, String> = BTreeMap::new();
    for key in &keys {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let told = scene.offline.control().told(namespace, name);
        let refused = refusal(scene, key);
        if let (Some(told), None | Some("clusterQueue doesn't exist")) = (told, refused) {
            in_local.insert(key.clone(), format!("{namespace}/{}", told.local_queue));
        }
    }
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
        let told = scene.offline.control().told(namespace, name).ok_or("input: no such workload")?;
        let expired = match told.state {
            WorkloadState::Pending { not_before, blocked } => !blocked && not_before.is_none_or(|at| at <= now),
            WorkloadState::Reserved(_) => true,
        };
        diff.eq("backoffExpired", &want, &expired);
    }
    diff.eq_if("pendingWorkloads", pending_workloads.as_ref(), || {
        let (namespace, name) = local_queue.as_deref().and_then(|key| key.split_once('/')).unwrap_or_default();
        let figures = scene.offline.control().world().local_queue_figures(namespace, name);
        figures.map_or(0, |figures| figures.pending_active.saturating_add(figures.pending_inadmissible))
    });
    let _ = case;
    Ok(diff)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RequeueInput {
    workload: String,
    outcome: Option<OutcomeInput>,
    errors: Option<u32>,
    message: Option<String>,
    preempted: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct OutcomeInput {
    status: String,
    inadmissible_message: String,
    quota_reserved_reason: String,
    requeue_reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RequeueExpect {
    left: Option<queue::ByQueue>,
    inadmissible_left: Option<queue::ByQueue>,
    workloads: Option<Vec<super::statuses::Expected>>,
    message: Option<String>,
    requeue_reason: Option<String>,
    scan_progress_cleared: Option<bool>,
}

/// Kind `requeue`: what becomes of a head after its cycle.
///
/// # Errors
/// What cannot be read.
pub fn requeue(case: &Case) -> Result<Diff, String> {
    let input: RequeueInput = case.input()?;
    let expect: RequeueExpect = case.expect()?;
    let Some(given) = input.outcome else {
        let (errors, preempted) = (input.errors.unwrap_or_default(), input.preempted.unwrap_or_default());
        let message = input.message.unwrap_or_default();
        return Err(format!(
            "whether {preempted} preemptions were issued and {errors} failed is known only after the cycle ({message:?}; \
             {:?}, {:?}, {:?})",
            expect.message, expect.requeue_reason, expect.scan_progress_cleared
        ));
    };
    let mut scene = Scene::new(case)?;
    let uid = scene.uid(&input.workload);
    // A head that was nominated and not admitted has failed after that.
    let outcome = match (given.status.as_str(), given.requeue_reason.as_str()) {
        ("preemptionGated", "") => Outcome::PreemptionGated,
        ("", "" | "NoFit") => Outcome::NoFit,
        (_, "NoFit") => Outcome::NoFit,
        (_, "PendingPreemption" | "PendingMigration") => Outcome::PendingPreemption,
        (_, "PreemptionNoCandidates") => Outcome::PreemptionNoCandidates,
        (_, "NamespaceMismatch") => Outcome::NamespaceMismatch,
        (_, "" | "FailedAfterNomination" | "PreemptionFailed") => Outcome::FailedAfterNomination,
        (_, other) => return Err(format!("input.outcome.requeueReason: unknown {other:?}")),
    };
    queue::requeue_parked(&mut scene, &[]);
    let world = scene.offline.control().world();
    if !(world.pop_workload(&uid) && world.put_back_as(&uid, outcome, &[])) {
        return Err("input: the workload is in no queue".to_owned());
    }
    let reasons = [
        PendingReason::NoMatchingFlavor,
        PendingReason::WaitingForQuota,
        PendingReason::ExceedsMaxQuota,
        PendingReason::Misconfigured,
        PendingReason::Suspended,
        PendingReason::WaitingForPreemptedWorkloads,
        PendingReason::TopologyPlacementFailed,
        PendingReason::WaitingForPodsReady,
        PendingReason::PendingEvaluation,
    ];
    let mut diff = Diff::default();
    match reasons.iter().find(|reason| reason.as_str() == given.quota_reserved_reason) {
        Some(reason) => scene.offline.tell(&uid, *reason, &given.inadmissible_message),
        None if given.quota_reserved_reason.is_empty() => {}
        None => diff.note(format!("reason {} is not one of the engine's", given.quota_reserved_reason)),
    }
    let (left, parked) = queue::pending(&mut scene);
    for (place, want, got) in [("left", expect.left, left), ("inadmissibleLeft", expect.inadmissible_left, parked)] {
        if let Some(want) = want {
            diff.maps(place, &want.into_iter().map(|(k, list)| (k, sorted(&list))).collect(), &got);
        }
    }
    if let Some(want) = &expect.workloads {
        super::statuses::compare(&mut diff, "workloads", &scene, want, &[])?;
    }
    Ok(diff)
}
