//! Cases of kind `queue-order` about equivalence classes of pending Workloads. Cases about equivalence classes name classes and no Workloads, so the runner
//! makes up the Workloads.

use super::queue;
use crate::case::Case;
use crate::diff::Diff;
use crate::scene::Scene;
use berth_control::write::Kind;
use berth_engine::PendingReason;
use berth_engine::steps::Outcome;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const NAMESPACE: &str = "default";
/// Kueue's word for an equivalence class that could not be determined.
const UNKNOWN: &str = "unknown";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Input {
    /// Equivalence class by pending Workload.
    equivalence_classes: BTreeMap<String, String>,
    /// Equivalence class of a Workload that is tried and turns out to be inadmissible.
    inadmissible_class: Option<String>,
    /// Classes of Workloads that have turned out to be inadmissible before `pushed_class` comes.
    inadmissible_classes: Vec<String>,
    /// Class of the Workload that enters the queue after `inadmissible_classes`.
    pushed_class: Option<String>,
    /// Pending reason with which a Workload is requeued.
    reason: Option<String>,
    requeue_reason: Option<String>,
    /// Reason in the condition of the requeued Workload.
    condition_reason: Option<String>,
    /// True if the requeued Workload is removed from the queue afterwards.
    removed_from_inadmissible: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    active_count: Option<usize>,
    inadmissible_count: Option<usize>,
    moved: Option<usize>,
    known: Option<bool>,
    reason: Option<String>,
    marks_class: Option<bool>,
}

/// Whether a case of kind `queue-order` is about equivalence classes.
#[must_use]
pub fn is_about(case: &Case) -> bool {
    let inputs = ["equivalenceClasses", "inadmissibleClasses", "pushedClass", "conditionReason"];
    inputs.iter().any(|key| case.input.get(key).is_some())
        || ["marksClass", "known"].iter().any(|key| case.expect.get(key).is_some())
}

/// Workloads that the runner makes up for the equivalence classes of a case: those of one class have equal requests.
struct Crowd {
    scene: Scene,
    classes: Vec<String>,
    /// Workloads that the runner added as probes, and does not count.
    probes: BTreeSet<String>,
}

impl Crowd {
    fn new(case: &Case) -> Result<Self, String> {
        let mut scene = Scene::new(case)?;
        let queue = scene.cluster_queues().into_iter().next().ok_or("objects: no ClusterQueue")?;
        scene.put(&json!({"kind": "Namespace", "metadata": {"name": NAMESPACE}}))?;
        scene.put(&json!({"kind": "LocalQueue", "metadata": {"namespace": NAMESPACE, "name": "lq"},
            "spec": {"clusterQueue": queue}}))?;
        Ok(Self { scene, classes: Vec::new(), probes: BTreeSet::new() })
    }

    /// Adds a Workload to the queue. A Workload without an equivalence class, or with Kueue's class `unknown`, gets a class of its own.
    fn come(&mut self, name: &str, class: &str) -> Result<String, String> {
        let class = if ["", UNKNOWN].contains(&class) { format!("only {name}") } else { class.to_owned() };
        let known = self.classes.iter().position(|known| *known == class);
        let index = known.unwrap_or(self.classes.len());
        if known.is_none() {
            self.classes.push(class);
        }
        let container =
            json!({"name": "c", "resources": {"requests": {"cpu": format!("{}m", index.saturating_add(1))}}});
        let sets = json!([{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]);
        self.scene.put(&json!({"kind": "Workload", "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": {"queueName": "lq", "podSets": sets}}))?;
        Ok(self.scene.uid(&format!("{NAMESPACE}/{name}")))
    }

    /// Takes a pending Workload out of its ClusterQueue as a head, and requeues it with the outcome `outcome`.
    fn come_back(&mut self, uid: &str, outcome: Outcome, reason: PendingReason) -> Result<(), String> {
        let world = self.scene.offline.control().world();
        let is_back = world.steps().pop_workload(uid) && world.steps().put_back_for(uid, outcome, reason, &[]);
        if is_back { Ok(()) } else { Err("the workload is in no queue".to_owned()) }
    }

    /// Adds a Workload of a class, and requeues it as inadmissible.
    fn block(&mut self, name: &str, class: &str) -> Result<(), String> {
        let uid = self.come(name, class)?;
        self.come_back(&uid, Outcome::NoFit, PendingReason::WaitingForQuota)
    }

    fn leave(&mut self, name: &str) {
        self.scene.offline.remove(Kind::Workload, NAMESPACE, name);
    }

    /// Numbers of active and of parked Workloads, without probes. Workloads of a StrictFIFO queue are not parked.
    fn counts(&mut self) -> (usize, usize) {
        let (active, parked) = queue::pending(&mut self.scene);
        let is_counted = |key: &&String| !self.probes.contains(*key);
        let count = |map: &queue::ByQueue| map.values().flatten().filter(is_counted).count();
        (count(&active), count(&parked))
    }
}

/// Judges a case of kind `queue-order` about equivalence classes.
///
/// # Errors
/// A field of the case cannot be read.
pub fn run(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let Expect { active_count, inadmissible_count, moved, known, reason, marks_class } = case.expect()?;
    let mut crowd = Crowd::new(case)?;
    for (name, class) in &input.equivalence_classes {
        crowd.come(name, class)?;
    }
    let (_, before) = crowd.counts();
    if let Some(class) = input.inadmissible_class.as_deref().filter(|class| !class.is_empty()) {
        crowd.block("probe", class)?;
        crowd.leave("probe");
    }
    let (_, after) = crowd.counts();
    // The engine forgets an inadmissible class with the class's last pending Workload (docs/departures/0007-parked-class-memory.md), so the probes stay in the
    // queue and are not counted.
    for (at, class) in input.inadmissible_classes.iter().enumerate() {
        let probe = format!("probe-{at}");
        crowd.block(&probe, class)?;
        crowd.probes.insert(format!("{NAMESPACE}/{probe}"));
    }
    if let Some(class) = &input.pushed_class {
        crowd.come("pushed", class)?;
    }
    let (active, parked) = crowd.counts();
    let mut diff = Diff::default();
    diff.eq_if("activeCount", active_count.as_ref(), || active);
    diff.eq_if("inadmissibleCount", inadmissible_count.as_ref(), || parked);
    diff.eq_if("moved", moved.as_ref(), || after.saturating_sub(before));
    if let Some(word) = input.reason.as_ref().or(input.requeue_reason.as_ref()) {
        let uid = crowd.come("back", "back")?;
        let condition = match input.condition_reason.as_deref().unwrap_or_default() {
            "" => PendingReason::PendingEvaluation,
            name => queue::pending_reason(name)?,
        };
        crowd.come_back(&uid, queue::outcome(word)?, condition)?;
        if input.removed_from_inadmissible {
            crowd.leave("back");
        }
        let found = crowd.scene.offline.control().world().steps().parked_with_equals(&uid);
        diff.eq_if("known", known.as_ref(), || found.is_some());
        diff.eq_if("marksClass", marks_class.as_ref(), || found.is_some());
        diff.eq_if("reason", reason.as_ref(), || found.map(|reason| reason.as_str().to_owned()).unwrap_or_default());
    }
    Ok(diff)
}
