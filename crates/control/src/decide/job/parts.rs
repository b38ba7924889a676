//! The Jobs that a JobSet is made of. Its controller only adds to the templates of Jobs that exist: what is to go from them goes
//! with them, and the controller makes them again from the JobSet's template.

use berth_jobs::{JobState, Placement};
use serde_json::Value;

use super::Case;
use crate::flight::{Decision, Draft};
use crate::view::WorkloadView;
use crate::write::{Purpose, Request, Subresource};

impl Case<'_> {
    /// Takes away, one by one, the parts of that kind which are not over.
    pub(super) fn take_parts(&self, which: fn(&JobState) -> bool) -> Option<Decision> {
        if !self.key.kind.is_made_of_jobs() {
            return None;
        }
        let jobs = self.control.view.jobs_in(&self.key.namespace);
        let mut parts = jobs.filter_map(|key| Some((key, self.control.view.jobs.get(key)?)));
        let (key, part) = parts.find(|(_, job)| {
            let ours = job.owner.as_ref().is_some_and(|owner| *owner.uid == *self.job.uid);
            ours && which(job) && !job.deleting && job.finished.is_none()
        })?;
        Some(Decision::write(Draft {
            purpose: Purpose::DeleteChild,
            key: key.clone(),
            request: Request::Delete { uid: part.uid.clone() },
            based_on: 0,
            notices: Vec::new(),
        }))
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
