//! The Jobs that a JobSet is made of. Its controller only adds to the templates of Jobs that exist: what is to go from them goes
//! with them, and the controller makes them again from the JobSet's template.

use berth_api::conditions::types;
use berth_jobs::{JobState, Placement};
use serde_json::Value;

use super::Case;
use crate::core::after_seconds;
use crate::flight::{Decision, Draft};
use crate::status::since;
use crate::view::WorkloadView;
use crate::write::{ObjectKey, Purpose, Subresource};

/// Time in which all Jobs of a JobSet are seen, where it has as many as it says.
const UNSEEN_PARTS_SECONDS: i64 = 3;

impl Case<'_> {
    /// The Jobs that this one is made of. Costs the jobs of its namespace.
    fn parts(&self) -> impl Iterator<Item = (&ObjectKey, &JobState)> {
        let made = self.key.kind.is_made_of_jobs();
        let jobs = made.then(|| self.control.view.jobs_in(&self.key.namespace)).into_iter().flatten();
        let parts = jobs.filter_map(|key| Some((key, self.control.view.jobs.get(key)?)));
        parts.filter(|(_, job)| job.owner.as_ref().is_some_and(|owner| *owner.uid == *self.job.uid))
    }

    /// Whether a Job of it may have pods: one that its controller has not stopped yet, whatever the status of the whole says.
    pub(super) fn has_moving_parts(&self) -> bool {
        let moves = |part: &JobState| part.finished.is_none() && if part.deleting { part.active } else { !part.still };
        self.parts().any(|(_, part)| moves(part))
    }

    /// What is waited for before a start, `None` when nothing runs. A JobSet says that it is suspended when its controller has
    /// suspended the Jobs it knew; one made a moment before runs on, with the user's template, and would be taken for started.
    pub(super) fn parts_unrest(&self, workload: &WorkloadView) -> Option<Decision> {
        if self.has_moving_parts() {
            return Some(Decision::Done);
        }
        let due = after_seconds(since(&workload.status.conditions, types::ADMITTED, "True")?, UNSEEN_PARTS_SECONDS);
        let seen = || i32::try_from(self.parts().count()).unwrap_or(i32::MAX);
        (due > self.now && seen() < self.job.parts).then_some(Decision::Wait(due))
    }

    /// Takes away, one by one, the parts of that kind which are not over.
    pub(super) fn take_parts(&self, which: fn(&JobState) -> bool) -> Option<Decision> {
        let (key, part) = self.parts().find(|(_, job)| which(job) && !job.deleting && job.finished.is_none())?;
        Some(Decision::write(Draft::delete(Purpose::DeleteChild, key.clone(), &part.uid)))
    }

    /// The next step before a start that takes selectors out of the job's template, `None` when nothing is left that has them:
    /// the template is written while the job is suspended, and then the parts go that were made of the user's.
    pub(super) fn remake_parts(
        &self,
        workload: &WorkloadView,
        placements: &[Placement],
        start: &Value,
    ) -> Option<Decision> {
        let gives_way = |placement: &Placement| workload.shape.originals.iter().any(|parts| placement.strips(parts));
        if !placements.iter().any(gives_way) {
            return None;
        }
        let stale = self.take_parts(|part| !part.placed)?;
        if self.job.placed {
            return Some(stale);
        }
        let mut body = start.clone();
        body.get_mut("spec")?.as_object_mut()?.remove("suspend");
        Some(self.write(Purpose::PlaceTemplate, Subresource::None, body, Vec::new()))
    }
}
