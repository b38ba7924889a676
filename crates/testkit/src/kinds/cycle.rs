//! Cases of kind `cycle`: complete scheduling cycles, run through control.

use super::queue::LocalQueueUsage;
use super::statuses::{self, Expected};
use crate::amounts;
use crate::case::{Case, typed};
use crate::diff::{Diff, sorted};
use crate::scene::{Scene, text};
use berth_api as api;
use berth_control::measure::Measure;
use berth_control::write::{EventType, Kind, Notice};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    steps: Vec<Value>,
    /// Workloads with a second scheduling pass, which exists for topologies only; the runner ignores this field.
    #[serde(rename = "secondPass")]
    _second_pass: Vec<String>,
    local_queue_usage: BTreeMap<String, LocalQueueUsage>,
    status_patch_error: Option<PatchError>,
    concurrent_write: Option<ConcurrentWrite>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchError {
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConcurrentWrite {
    workload: String,
    /// Description, for readers of the case, of the change that another client makes to a Workload during the cycle; the runner knows only one such change.
    #[serde(rename = "change")]
    _change: String,
    #[serde(rename = "when")]
    _when: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
enum Step {
    Schedule(Schedule),
    DeleteWorkloads(DeleteWorkloads),
    RequeueInadmissible(Plain),
    DeleteLocalQueue(DeleteLocalQueue),
    SetNominalQuota(SetNominalQuota),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Schedule {
    #[serde(default)]
    id: String,
    #[serde(default = "once")]
    times: u64,
}

const fn once() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteWorkloads {
    #[serde(default)]
    id: String,
    workloads: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    #[serde(default)]
    id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteLocalQueue {
    #[serde(default)]
    id: String,
    local_queue: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SetNominalQuota {
    #[serde(default)]
    id: String,
    cluster_queue: String,
    flavor: String,
    resource: String,
    nominal_quota: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    workloads: Option<Vec<Expected>>,
    assignments: Option<BTreeMap<String, api::Admission>>,
    new_assignments: Option<BTreeMap<String, api::Admission>>,
    left: Option<BTreeMap<String, Vec<String>>>,
    inadmissible_left: Option<BTreeMap<String, Vec<String>>>,
    events: Option<Vec<Event>>,
    events_compare: EventsCompare,
    skipped_preemptions: Option<BTreeMap<String, u32>>,
    preemption_target_recomputations: Option<BTreeMap<String, BTreeMap<String, u32>>>,
    assigned_flavor: Option<BTreeMap<String, Option<String>>>,
    after: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(deny_unknown_fields, default)]
struct Event {
    workload: String,
    #[serde(rename = "type")]
    event_type: String,
    reason: String,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EventsCompare {
    messages: bool,
    order: bool,
}

/// Runs the steps of a case of kind `cycle`, and compares the state after each step that has expectations.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let mut expect: Expect = case.expect()?;
    let mut case = case.clone();
    let absent = super::queue::lay_local_usage(&mut case, &input.local_queue_usage);
    add_local_queues(&mut case);
    let mut scene = Scene::new(&case)?;
    super::queue::keep_usage(&mut scene, &absent)?;
    scene.show_cycles_only();
    let given: BTreeSet<String> = statuses::assignments(&scene)?.into_keys().collect();
    if let Some(error) = &input.status_patch_error {
        scene.offline.refuse_status_writes(&error.message);
    }
    if let Some(write) = &input.concurrent_write {
        let (namespace, name) = write.workload.split_once('/').unwrap_or_default();
        scene.offline.contest(namespace, name);
    }
    let mut diff = Diff::default();
    let mut counts = Counts::default();
    for step in &input.steps {
        let step: Step = typed("input.steps", step)?;
        let id = take(&mut scene, step, &mut counts)?;
        if let Some(after) = expect.after.remove(&id) {
            let after: Expect = typed(&format!("expect.after.{id}"), &after)?;
            compare(&mut diff, &format!("after {id}: "), &scene_state(&mut scene, &given, &counts)?, &scene, after)?;
        }
    }
    if let Some(id) = expect.after.keys().next() {
        return Err(format!("expect.after: no step {id}"));
    }
    let state = scene_state(&mut scene, &given, &counts)?;
    compare(&mut diff, "", &state, &scene, expect)?;
    Ok(diff)
}

/// Adds the LocalQueues of Workloads with quota, which the cases leave out. If the LocalQueue of a Workload were missing, control would release the Workload's
/// quota until the Workload is admitted.
fn add_local_queues(case: &mut Case) {
    let name = |workload: &Value| (text(workload, "/metadata/namespace"), text(workload, "/spec/queueName"));
    let reserves = |workload: &&Value| {
        let conditions = workload.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let mut reserved = conditions.filter(|one| text(one, "/type") == "QuotaReserved");
        reserved.any(|one| text(one, "/status") == "True")
    };
    let known: BTreeSet<_> = case
        .of_kind("LocalQueue")
        .map(|queue| (text(queue, "/metadata/namespace"), text(queue, "/metadata/name")))
        .chain(case.of_kind("Workload").filter(|workload| !reserves(workload)).map(name))
        .collect();
    let lacking = case.of_kind("Workload").filter(reserves).filter(|workload| {
        let name = name(workload);
        !name.1.is_empty() && !known.contains(&name)
    });
    let queue = |workload: &Value| {
        let (namespace, name) = name(workload);
        json!({"kind": "LocalQueue", "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterQueue": text(workload, "/status/admission/clusterQueue")}})
    };
    let added: Vec<Value> = lacking.map(queue).collect();
    case.objects.extend(added);
}

/// Counts of skipped preemptions and of recomputed preemption targets since the last comparison, by ClusterQueue.
#[derive(Default)]
struct Counts {
    skipped: BTreeMap<String, u32>,
    recomputed: BTreeMap<String, BTreeMap<String, u32>>,
}

impl Counts {
    /// Takes control's counters since the last comparison, and its gauges of the last cycle.
    fn take(&mut self, scene: &mut Scene) {
        let gauges = scene.offline.control().figures().gauges;
        let skips = gauges.into_iter().filter(|gauge| gauge.name == "kueue_admission_cycle_preemption_skips");
        self.skipped = skips
            .filter_map(|gauge| {
                let (_, queue) = gauge.labels.into_iter().find(|(name, _)| *name == "cluster_queue")?;
                Some((queue, gauge.value as u32))
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        for measure in scene.offline.control().drain_measures() {
            let Measure::Count { name, labels, by } = measure else { continue };
            let label = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
            let by = u32::try_from(by).unwrap_or(u32::MAX);
            if name == "kueue_preemption_target_recomputations" {
                let (queue, result) = (label("cluster_queue").unwrap_or_default(), label("result").unwrap_or_default());
                *self.recomputed.entry(queue).or_default().entry(result).or_default() += by;
            }
        }
    }
}

fn take(scene: &mut Scene, step: Step, counts: &mut Counts) -> Result<String, String> {
    match step {
        Step::Schedule(step) => {
            for _ in 0..step.times {
                scene.offline.run(1);
                counts.take(scene);
            }
            Ok(step.id)
        }
        Step::DeleteWorkloads(step) => {
            for key in &step.workloads {
                let (namespace, name) = key.split_once('/').unwrap_or_default();
                scene.offline.remove(Kind::Workload, namespace, name);
            }
            Ok(step.id)
        }
        Step::RequeueInadmissible(step) => {
            super::queue::requeue_parked(scene, &[]);
            Ok(step.id)
        }
        Step::DeleteLocalQueue(step) => {
            let (namespace, name) = step.local_queue.split_once('/').unwrap_or_default();
            scene.offline.remove(Kind::LocalQueue, namespace, name);
            Ok(step.id)
        }
        Step::SetNominalQuota(step) => {
            set_nominal_quota(scene, &step)?;
            Ok(step.id)
        }
    }
}

fn set_nominal_quota(scene: &mut Scene, step: &SetNominalQuota) -> Result<(), String> {
    let Some(mut queue) = scene.object(Kind::ClusterQueue, &step.cluster_queue).cloned() else {
        return Err(format!("input.steps: no ClusterQueue {}", step.cluster_queue));
    };
    let mut found = false;
    let groups = queue.pointer_mut("/spec/resourceGroups").and_then(Value::as_array_mut).into_iter().flatten();
    let flavors = groups.filter_map(|group| group.get_mut("flavors")?.as_array_mut()).flatten();
    for flavor in flavors.filter(|flavor| text(flavor, "/name") == step.flavor) {
        let resources = flavor.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten();
        for resource in resources.filter(|resource| text(resource, "/name") == step.resource) {
            if let Value::Object(resource) = resource {
                resource.insert("nominalQuota".to_owned(), json!(step.nominal_quota));
                found = true;
            }
        }
    }
    if !found {
        return Err(format!("input.steps: {} has no {} of {}", step.cluster_queue, step.resource, step.flavor));
    }
    scene.put(&queue)
}

/// The state that can be compared after a step.
struct State {
    held: BTreeMap<String, api::Admission>,
    new: BTreeMap<String, api::Admission>,
    left: BTreeMap<String, Vec<String>>,
    parked: BTreeMap<String, Vec<String>>,
    events: Vec<Event>,
    skipped: BTreeMap<String, u32>,
    recomputed: BTreeMap<String, BTreeMap<String, u32>>,
}

fn scene_state(scene: &mut Scene, given: &BTreeSet<String>, counts: &Counts) -> Result<State, String> {
    let held = statuses::assignments(scene)?;
    let new = held.iter().filter(|(key, _)| !given.contains(*key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let (left, parked) = super::queue::pending(scene);
    let event = |notice: Notice| {
        let workload = format!("{}/{}", notice.key.namespace, notice.key.name);
        Event {
            event_type: if notice.event_type == EventType::Normal { "Normal" } else { "Warning" }.to_owned(),
            reason: notice.reason,
            message: Some(scene.message(&workload, &notice.message)),
            workload,
        }
    };
    let events = scene.notices().into_iter().map(event);
    Ok(State {
        new,
        left,
        parked,
        events: events.collect(),
        skipped: counts.skipped.clone(),
        recomputed: counts.recomputed.clone(),
        held,
    })
}

fn compare(diff: &mut Diff, at: &str, state: &State, scene: &Scene, expect: Expect) -> Result<(), String> {
    let Expect {
        workloads,
        assignments,
        new_assignments,
        left,
        inadmissible_left,
        events,
        events_compare,
        skipped_preemptions,
        preemption_target_recomputations,
        assigned_flavor,
        after: _,
    } = expect;
    let wanted = |list: BTreeMap<String, api::Admission>| -> BTreeMap<String, api::Admission> {
        list.into_iter().map(|(key, admission)| (key, admission_of(admission))).collect()
    };
    if let Some(want) = assignments {
        diff.maps(&format!("{at}assignments"), &wanted(want), &state.held);
    }
    if let Some(want) = new_assignments {
        diff.maps(&format!("{at}newAssignments"), &wanted(want), &state.new);
    }
    for (place, want, got) in [("left", left, &state.left), ("inadmissibleLeft", inadmissible_left, &state.parked)] {
        if let Some(want) = want {
            let want = want.into_iter().filter(|(_, list)| !list.is_empty()).map(|(k, list)| (k, sorted(&list)));
            diff.maps(&format!("{at}{place}"), &want.collect(), got);
        }
    }
    if let Some(mut want) = events {
        let mut got = state.events.clone();
        if !events_compare.messages {
            want.iter_mut().chain(&mut got).for_each(|event| event.message = None);
        }
        if !events_compare.order {
            want.sort();
            got.sort();
        }
        diff.eq(&format!("{at}events"), &want, &got);
    }
    if let Some(want) = skipped_preemptions {
        let all = want.keys().chain(state.skipped.keys()).cloned().collect::<BTreeSet<_>>();
        for queue in all {
            let count = |map: &BTreeMap<String, u32>| map.get(&queue).copied().unwrap_or_default();
            diff.eq(&format!("{at}skippedPreemptions/{queue}"), &count(&want), &count(&state.skipped));
        }
    }
    if let Some(want) = preemption_target_recomputations {
        // Numbers of recomputed preemption targets are compared only for the ClusterQueues that the case names, as in Kueue's test.
        for (queue, want) in want {
            let got = state.recomputed.get(&queue).cloned().unwrap_or_default();
            diff.eq(&format!("{at}preemptionTargetRecomputations/{queue}"), &want, &got);
        }
    }
    for (workload, want) in assigned_flavor.into_iter().flatten() {
        let sets = state.held.get(&workload).map(|admission| admission.pod_set_assignments.as_slice());
        let got = sets.unwrap_or_default().iter().find_map(|set| set.flavors.values().next().cloned());
        diff.eq(&format!("{at}assignedFlavor/{workload}"), &want, &got);
    }
    if let Some(want) = workloads {
        statuses::compare(diff, &format!("{at}workloads"), scene, &want, &[])?;
    }
    Ok(())
}

fn admission_of(mut admission: api::Admission) -> api::Admission {
    for set in &mut admission.pod_set_assignments {
        amounts::canonical(&mut set.resource_usage);
    }
    admission
}
