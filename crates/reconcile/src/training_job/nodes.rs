//! Number of nodes on which the pods of a TrainingJob run. No watch shows the pods of a TrainingJob with their nodes, so Berth queries the API server once for
//! the pods of an admission when all pods are ready, and again when some pods failed or the number of pods changed.

use std::collections::BTreeMap;

use berth_api::conditions::types;
use berth_cache::training_view::{Counted, Crew};
use berth_cache::{Name, WorkloadPhase, WorkloadView};
use berth_jobs::training::{RoleState, WORKER};
use jiff::Timestamp;

use super::TrainingCase;
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::workload::status::since;
use crate::write::{Kind, Purpose, Query, key};

impl TrainingCase<'_> {
    /// Number of nodes of an admitted Workload's pods, `None` while the number is not known.
    pub(super) fn nodes(&self, workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> Option<i32> {
        // If all pods have gone meanwhile, the answer to the query does not show the nodes on which the pods ran.
        self.answer(workload, states).filter(|nodes| *nodes > 0)
    }

    /// The next step to find the number of nodes, `None` if the number is known or cannot be found yet.
    pub(super) fn count_nodes(&self) -> Option<Decision> {
        let workload = self.ctx.view.slice_of(&self.view.uid)?;
        if workload.phase != WorkloadPhase::Admitted {
            return None;
        }
        let states = self.states();
        if !self.all_ready(&states) || self.answer(workload, &states).is_some() {
            return None;
        }
        let query = Query::CountNodes { pods: self.ctx.training.pods_of(workload) };
        let object = key(Kind::TrainingJob, self.name);
        Some(Decision::write(Draft::ask(Purpose::CountNodes, object, query)))
    }

    fn answer(&self, workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> Option<i32> {
        let crew = crew(workload, states)?;
        let counted = self.view.counted.filter(|counted| counted.crew == crew);
        counted.map(|counted| counted.nodes).or_else(|| self.reported_before(crew, states))
    }

    /// The number of nodes that the status shows for the same pods, written by another process.
    fn reported_before(&self, crew: Crew, states: &BTreeMap<String, RoleState>) -> Option<i32> {
        let status = &self.view.status;
        let nodes = status.allocated_resources.as_ref()?.nodes?;
        let wanted = status.workers.as_ref()?.rsplit_once('/')?.1.parse::<i32>().ok()?;
        let same = since(&status.conditions, types::ADMITTED, "True")? >= crew.admitted
            && status.restarts.unwrap_or_default() == crew.failed
            && states.get(WORKER).is_some_and(|state| state.wanted == wanted);
        same.then_some(nodes)
    }
}

fn crew(workload: &WorkloadView, states: &BTreeMap<String, RoleState>) -> Option<Crew> {
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    let sum = |of: fn(&RoleState) -> i32| states.values().map(of).fold(0, i32::saturating_add);
    Some(Crew { admitted, failed: sum(|state| state.failed), wanted: sum(|state| state.wanted) })
}

/// The number of nodes from an answer about the pods of a TrainingJob, `None` if the answer is about a run that has ended.
pub fn counted(ctx: &Context<'_>, name: &Name, nodes: usize, now: Timestamp) -> Option<Counted> {
    let view = ctx.view.training().get(name)?;
    let states = TrainingCase { ctx, name, view, now }.states();
    let crew = ctx.view.slice_of(&view.uid).and_then(|workload| crew(workload, &states))?;
    Some(Counted { crew, nodes: i32::try_from(nodes).unwrap_or(i32::MAX) })
}

#[cfg(test)]
mod tests;
