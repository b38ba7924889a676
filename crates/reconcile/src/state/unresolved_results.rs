//! Writes that are noted as unresolved: the answer was lost, or an earlier leader may have sent the write.

use berth_api::conditions::types;
use berth_cache::{JobPhase, View};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::state::in_flight::{InFlightWrite, InFlightWrites};
use crate::write::{Kind, ObjectKey, Purpose, key};

impl InFlightWrites {
    /// Notes that the answer to a write was lost, if the write uses quota.
    pub fn note_unresolved(&mut self, view: &View, object: &ObjectKey, write: &InFlightWrite, now: Timestamp) {
        self.unresolved_mut().forget_old(now);
        if write.purpose == Purpose::StartTraining {
            if view.uid_of(object).is_some() {
                // The object of the creation with a lost answer was observed before the answer could come, so the creation is resolved.
                return;
            }
            self.unresolved_mut().note_unresolved_creation(object.clone(), now);
        } else if write.purpose.uses_quota() && !write.vanished && view.seen_version(object) <= write.based_on {
            self.unresolved_mut().note_unresolved(object.clone(), write.based_on);
        }
    }

    /// Notes writes of an earlier leader that may still be applied: starts of jobs and pods. The start of each admitted job or pod that looks as if it had
    /// not been started counts as unresolved until the job or pod is observed at another version.
    pub fn note_unresolved_starts(&mut self, view: &View) {
        for workload in view.workloads().all_reserving().filter(|workload| workload.is(types::ADMITTED)) {
            let Some(owner_key) = workload.owner_key() else { continue };
            let name = (owner_key.namespace.clone(), owner_key.name.clone());
            match owner_key.kind {
                Kind::Pod => {
                    if let Some(pod) = view.pods().get(&name).filter(|pod| pod.gated && !pod.ended()) {
                        self.unresolved_mut().note_unresolved(owner_key, pod.version);
                    }
                }
                Kind::PodGroup => {
                    for (pod, state) in view.pods().members(&name).filter(|(_, pod)| pod.gated && !pod.ended()) {
                        self.unresolved_mut()
                            .note_unresolved(key(Kind::Pod, &(name.0.clone(), pod.to_owned())), state.version);
                    }
                }
                _ => {
                    // Berth starts a job only if the job is suspended and its pod templates may be changed.
                    let is_startable =
                        |job: &&JobState| JobPhase::of(job) == JobPhase::Suspended && job.may_change_template;
                    if let Some(job) = view.job_of(workload).filter(is_startable) {
                        self.unresolved_mut().note_unresolved(owner_key, job.version);
                    }
                }
            }
        }
    }
}
