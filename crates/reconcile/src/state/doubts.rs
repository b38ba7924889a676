//! Writes that are noted as unresolved: the answer was lost, or an earlier leader may have sent the write.

use berth_api::conditions::types;
use berth_cache::{JobPhase, View};
use berth_jobs::JobState;
use jiff::Timestamp;

use crate::state::flight::{Flight, Flights};
use crate::write::{Kind, ObjectKey, Purpose, key};

impl Flights {
    /// Notes that the answer to a write was lost, if the write uses quota.
    pub fn doubt(&mut self, view: &View, object: &ObjectKey, flight: &Flight, now: Timestamp) {
        self.unresolved_mut().forget_old(now);
        if flight.purpose == Purpose::StartTraining {
            if view.uid_of(object).is_some() {
                // The created object was observed before the answer could come.
                return;
            }
            self.unresolved_mut().doubt_creation(object.clone(), now);
        } else if flight.purpose.uses_quota() && !flight.vanished && view.seen_version(object) <= flight.based_on {
            self.unresolved_mut().doubt(object.clone(), flight.based_on);
        }
    }

    /// Notes writes of an earlier leader that may still be applied: starts of jobs and pods. The start of each admitted job or pod that looks as if it had
    /// not been started counts as unresolved until the job or pod is observed at another version.
    pub fn doubt_starts(&mut self, view: &View) {
        for workload in view.workloads().all_reserving().filter(|workload| workload.is(types::ADMITTED)) {
            let Some(whole) = workload.whole() else { continue };
            let name = (whole.namespace.clone(), whole.name.clone());
            match whole.kind {
                Kind::Pod => {
                    if let Some(pod) = view.pods().get(&name).filter(|pod| pod.gated && !pod.ended()) {
                        self.unresolved_mut().doubt(whole, pod.version);
                    }
                }
                Kind::PodGroup => {
                    for (pod, state) in view.pods().members(&name).filter(|(_, pod)| pod.gated && !pod.ended()) {
                        self.unresolved_mut().doubt(key(Kind::Pod, &(name.0.clone(), pod.to_owned())), state.version);
                    }
                }
                _ => {
                    // Berth starts a job only if the job is suspended and its pod templates may be changed.
                    let is_startable =
                        |job: &&JobState| JobPhase::of(job) == JobPhase::Suspended && job.may_change_template;
                    if let Some(job) = view.job_of(workload).filter(is_startable) {
                        self.unresolved_mut().doubt(whole, job.version);
                    }
                }
            }
        }
    }
}
