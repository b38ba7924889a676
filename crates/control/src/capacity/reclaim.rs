//! Nodes that are being taken away, and started workloads that have pods there.
//!
//! A taint announces the end of a node ([`crate::settings::Settings::reclaim_taints`]). Its pods are asked for once, and a workload that has one of
//! them in the spot tier leaves at once: otherwise it would hold its quota until that pod is lost and its patience is over.

use std::collections::BTreeMap;

use berth_api::node::Node;
use berth_engine::model::Tier;
use jiff::Timestamp;

use super::watch::{RECLAIMED, Rung, rungs};
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::flight::{Decision, Draft};
use crate::controller::{Control, cluster_key, key};
use crate::workload::evict;
use crate::write::{Kind, ObjectKey, PodOnNode, Purpose, Question};

/// State about nodes that are being taken away.
#[derive(Debug, Default)]
pub(crate) struct Reclaims {
    nodes: BTreeMap<String, Leaving>,
    /// Losses by the uid of the workload.
    losses: BTreeMap<String, Loss>,
}

/// A node that is being taken away.
#[derive(Debug)]
struct Leaving {
    uid: String,
    taint: String,
    /// The pods of the node are known.
    asked: bool,
}

/// Loss of a workload's capacity with a node.
#[derive(Debug)]
pub(crate) struct Loss {
    at: Timestamp,
    rung: Rung,
    node: String,
    taint: String,
}

impl Loss {
    /// Time at which the loss was seen.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether the loss concerns the capacity that a pod set was given there.
    pub(super) fn concerns(&self, rung: &Rung) -> bool {
        self.rung.pod_set == rung.pod_set && self.rung.flavor == rung.flavor
    }

    fn message(&self) -> String {
        format!("{} takes node {} back: it has the taint {}", self.rung.name(), self.node, self.taint)
    }
}

impl Reclaims {
    /// Names of the nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// Forgets the loss of a workload that gave up its capacity.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.losses.remove(uid);
    }

    /// Takes the loss for which a workload was evicted.
    pub(super) fn take(&mut self, uid: &str) -> Option<Loss> {
        self.losses.remove(uid)
    }
}

impl Control {
    /// Takes a node that was seen, or is gone.
    pub(crate) fn put_node(&mut self, name: &str, node: Option<&Node>) {
        let Some((node, taint)) = node.and_then(|node| Some((node, node.reclaimed_by(&self.settings.reclaim_taints)?)))
        else {
            if self.capacity.reclaims.nodes.remove(name).is_some() {
                self.flights.vanished(&cluster_key(Kind::Node, name));
            }
            return;
        };
        if self.capacity.reclaims.nodes.get(name).is_none_or(|known| known.uid != node.uid()) {
            let leaving = Leaving { uid: node.uid().to_owned(), taint: taint.to_owned(), asked: false };
            self.capacity.reclaims.nodes.insert(name.to_owned(), leaving);
            self.touch(cluster_key(Kind::Node, name));
        }
    }

    /// Takes the answer about the pods of a node.
    pub(crate) fn note_on_node(&mut self, node: &str, pods: &[PodOnNode], now: Timestamp) {
        let Some(leaving) = self.capacity.reclaims.nodes.get_mut(node) else { return };
        leaving.asked = true;
        let taint = leaving.taint.clone();
        for pod in pods {
            let Some((workload, pod_set)) = self.context().workload_of_pod(pod) else { continue };
            let Some(rung) = self.context().leaves_with(workload, pod_set) else { continue };
            let (uid, name) = (workload.uid.clone(), workload.key());
            let loss = Loss { at: now, rung, node: node.to_owned(), taint: taint.clone() };
            self.capacity.reclaims.losses.insert(uid, loss);
            self.touch(key(Kind::Workload, &name));
        }
    }
}

impl<'a> Context<'a> {
    /// The workload that has a pod, and the pod's set.
    fn workload_of_pod(&self, pod: &'a PodOnNode) -> Option<(&'a WorkloadView, &'a str)> {
        let name: Name = (pod.namespace.clone(), pod.name.clone());
        if let Some(managed) = self.view.pods.get(&name).filter(|managed| *managed.uid == *pod.uid) {
            let group = || self.view.workloads.get(&crate::cache::pods::group_of(&pod.namespace, managed)?);
            return Some((self.view.workloads.owned_by(&pod.uid).next().or_else(group)?, managed.role()));
        }
        let (job, uid) = pod.job.as_ref()?;
        let object = ObjectKey { kind: Kind::JOB, namespace: pod.namespace.clone(), name: job.clone() };
        let job = self.view.jobs.get(&object).filter(|job| job.uid == *uid)?;
        // A Job is a workload itself, or part of one.
        let running = |owner: &str| self.view.workloads.owned_by(owner).find(|workload| workload.holds().is_some());
        // The older slices of an elastic job are over.
        let above = || running(&job.owner.as_ref()?.uid);
        let workload = running(uid).or_else(above)?;
        Some((workload, &pod.pod_set))
    }

    /// The capacity that a workload leaves because it loses a pod of a set with its node, `None` where it stays.
    fn leaves_with(&self, workload: &WorkloadView, pod_set: &str) -> Option<Rung> {
        self.tier_rules(workload).filter(|rules| rules.signals.node_reclaimed)?;
        if self.view.job_of(workload).is_some_and(|job| job.independent) {
            return None;
        }
        rungs(self, workload).into_iter().find(|rung| rung.tier == Tier::Spot && rung.pod_set == pod_set)
    }
}

/// Asks for the pods of a node.
pub(crate) fn ask(ctx: &Context<'_>, object: &ObjectKey) -> Decision {
    if ctx.capacity.reclaims.nodes.get(&object.name).is_none_or(|leaving| leaving.asked) {
        return Decision::Done;
    }
    Decision::write(Draft::ask(Purpose::FindPodsOnNode, object.clone(), Question::FindPodsOnNode))
}

/// Evicts a workload that was admitted at that time and has lost a node since; `None` where it has not.
pub(super) fn decide(
    ctx: &Context<'_>,
    workload: &WorkloadView,
    admitted: Timestamp,
    now: Timestamp,
) -> Option<Decision> {
    let loss = ctx.capacity.reclaims.losses.get(&workload.uid).filter(|loss| loss.at >= admitted)?;
    Some(Decision::write(evict(workload, now, (RECLAIMED, ""), &loss.message())))
}
