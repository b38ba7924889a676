//! The Jobs of a JobSet. The JobSet controller only adds fields to the templates of existing Jobs. To remove fields from the template of an existing Job,
//! Berth deletes the Job, and the JobSet controller creates the Job again from the JobSet's template.

use berth_api::conditions::types;
use berth_cache::WorkloadView;
use berth_cache::moments::after_seconds;
use berth_jobs::{JobState, ObjectPatch, Placement};

use super::JobCase;
use super::owners::Named;
use crate::decision::{Decision, Draft};
use crate::workload::status::since;
use crate::write::Purpose;

/// Time in seconds within which the watch shows all Jobs of a JobSet, if the JobSet has as many Jobs as its status says.
const UNSEEN_PARTS_SECONDS: i64 = 3;

impl JobCase<'_> {
    /// The Jobs that name this job as their controller: parts of the job, and Jobs that only claim to be parts; none if the job's kind does not consist of
    /// Jobs.
    fn parts(&self) -> impl Iterator<Item = Named<'_>> {
        let made = self.key.kind.is_made_of_jobs();
        let jobs = self.ctx.view.jobs();
        made.then(|| jobs.controlled_by(&self.key.namespace, &self.job.uid)).into_iter().flatten()
    }

    /// The Jobs of the job that have the names of parts.
    fn own_parts(&self) -> impl Iterator<Item = Named<'_>> {
        self.parts().filter(|(key, _)| self.job.part_called(&self.key.name, &key.name).is_some())
    }

    /// Whether a Job of the JobSet may have pods, because its controller has not stopped the Job yet; the status of the JobSet does not count.
    pub(super) fn has_moving_parts(&self) -> bool {
        let moves = |part: &JobState| part.finished.is_none() && if part.deleting { part.active } else { !part.still };
        self.parts().any(|(_, part)| moves(part))
    }

    /// Deletes the pods of a Job that is being deleted and that a finalizer keeps, because no controller stops such a Job.
    pub(super) fn drive_out_part(&self) -> Option<Decision> {
        let stays = |part: &JobState| part.deleting && part.active && part.finished.is_none();
        let rid = |part: &JobState| self.ctx.notes.jobs().of(&part.uid).is_rid_of_pods();
        let (key, part) = self.parts().find(|(_, part)| stays(part) && !rid(part))?;
        Some(Decision::write(Draft::delete_owned_first(Purpose::DeleteChild, key.clone(), &part.uid)))
    }

    /// The wait before a start of the JobSet; `None` if no Job of the JobSet runs. A JobSet reports that it is suspended when its controller has suspended the
    /// known Jobs. A Job that was created just before the suspension of its JobSet runs on with the user's template, and would count as started.
    pub(super) fn parts_unrest(&self, workload: &WorkloadView) -> Option<Decision> {
        if self.has_moving_parts() {
            return Some(Decision::Done);
        }
        let due = after_seconds(since(&workload.status.conditions, types::ADMITTED, "True")?, UNSEEN_PARTS_SECONDS);
        let seen = || i32::try_from(self.own_parts().count()).unwrap_or(i32::MAX);
        (due > self.now && seen() < self.job.part_count()).then_some(Decision::Wait(due))
    }

    /// Deletes, one by one, the Jobs of the JobSet for which `which` returns true and that have not finished. A Job that does not have the name of a part of
    /// the JobSet belongs to another owner, and stays.
    pub(super) fn take_parts(&self, which: impl Fn(Named<'_>) -> bool) -> Option<Decision> {
        let goes = |part: &Named<'_>| !part.1.deleting && part.1.finished.is_none() && which(*part);
        let (key, part) = self.own_parts().find(goes)?;
        Some(Decision::write(Draft::delete(Purpose::DeleteChild, key.clone(), &part.uid)))
    }

    /// The next step before a start that removes selectors from the template of the JobSet; `None` if no part has these selectors any more. Before a start that
    /// removes selectors, the template of the JobSet is written first, while the JobSet is suspended. After the template of the JobSet, the Jobs that were
    /// created from the user's template are deleted.
    pub(super) fn remake_parts(
        &self,
        workload: &WorkloadView,
        placements: &[Placement],
        start: &ObjectPatch,
    ) -> Option<Decision> {
        let gives_way = |placement: &Placement| workload.shape.originals.iter().any(|parts| placement.strips(parts));
        if !placements.iter().any(gives_way) {
            return None;
        }
        let stale = self.take_parts(|(_, part)| !part.placed)?;
        if self.job.placed {
            return Some(stale);
        }
        Some(self.write(Purpose::PlaceTemplate, start.clone().without_spec("suspend"), Vec::new()))
    }
}

#[cfg(test)]
mod tests;
