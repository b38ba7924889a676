//! Builds the Workload of a job from the job's complete object. Berth keeps only a part of a large job in memory, and reads a large job again to build its
//! Workload.

use berth_api as api;
use berth_api::conditions::event_reasons;
use berth_cache::priorities::MissingClass;
use berth_jobs::{Priority, too_large, workload_name};

use super::JobCase;
use crate::decision::{Decision, Draft};
use crate::policies::no_class;
use crate::write::{EventType, Kind, Notice, Purpose, Query, key};

/// The reason why no Workload can be built from a job.
pub(super) enum Unbuilt {
    /// The job names a priority class that does not exist.
    NoClass(MissingClass),
    /// The job is invalid; the text names the fault.
    Invalid(String),
    /// The job is large, and its complete object is not in memory.
    Lean,
}

impl JobCase<'_> {
    /// Queries the complete object of a job to build its Workload; only a few such reads are under way at a time.
    pub(super) fn read(&self) -> Decision {
        let info = self.job.kind.info();
        let name = workload_name(info.kind, info.group, &self.key.name, &self.job.uid);
        let workload = key(Kind::Workload, &(self.key.namespace.clone(), name));
        if self.ctx.in_flight.busy(&workload) {
            // The job was already read for the creation of the Workload that is under way.
            return Decision::WaitFor(workload);
        }
        if let Some(until) = self.ctx.in_flight.backing_off_from_writes(&workload, self.now) {
            return Decision::Wait(until);
        }
        if self.ctx.in_flight.creations_full() {
            return Decision::WaitForCreations;
        }
        Decision::write(Draft::ask(Purpose::ReadJob, self.key.clone(), Query::ReadObject))
    }

    /// The event about a job from which no Workload can be built.
    pub(super) fn complaint(&self, problem: &Unbuilt) -> Notice {
        let (reason, text) = match problem {
            Unbuilt::NoClass(class) => no_class(class, "the job"),
            Unbuilt::Invalid(text) => (event_reasons::ERR_WORKLOAD_COMPOSE, text.clone()),
            // A large job is read again, and gets no event about a failed build.
            Unbuilt::Lean => (event_reasons::ERR_WORKLOAD_COMPOSE, "the job is not known yet".to_owned()),
        };
        self.notice(EventType::Warning, reason, text)
    }

    /// Builds the Workload of the job from the job's complete object.
    pub(super) fn build(&self) -> Result<api::Workload, Unbuilt> {
        let job = self.job.decode().ok_or_else(|| Unbuilt::Invalid("the job was let go".to_owned()))?;
        let sets = job.pod_sets().map_err(|error| Unbuilt::Invalid(error.to_string()))?;
        if self.job.is_lean() {
            return Err(Unbuilt::Lean);
        }
        let made = job.workload(sets, Priority::default(), &self.ctx.settings.label_keys_to_copy);
        if let Some(problem) = too_large(&made) {
            return Err(Unbuilt::Invalid(problem));
        }
        self.ctx.with_priority(made, self.classes()).map_err(Unbuilt::NoClass)
    }
}

#[cfg(test)]
mod tests;
