//! Outcomes of writes: the effect of each answer on plans, and on the next try.

use jiff::Timestamp;

use crate::controller::flight::Flight;
use crate::controller::{Control, key};
use crate::job::left;
use crate::measure::Measure;
use crate::training_job::{nodes, training_figures};
use crate::write::{Checkpoint, CheckpointPlace, Kind, ObjectKey, Outcome, Purpose, WriteId};

impl Control {
    /// Takes the outcome of a write.
    pub fn outcome(&mut self, id: WriteId, outcome: Outcome, now: Timestamp) {
        let Some((object, flight)) = self.flights.land(id) else { return };
        self.touch_related(&object);
        let (origin, purpose) = (flight.origin.clone(), flight.purpose);
        if origin.kind == Kind::TrainingJob && origin != object {
            // A TrainingJob sees only the Jobs among the objects that it creates.
            self.touch(origin.clone());
        }
        if matches!(object.kind, Kind::PodTemplate | Kind::ProvisioningRequest) {
            // An object that does not exist cannot name the object that it was made for.
            self.touch(origin.clone());
        }
        self.take_outcome(object.clone(), flight, outcome, now);
        // The request to save ends with the grace period at the latest, and so does its back-off.
        if let Some(end) = self.context().end_of_grace(&object, purpose) {
            self.flights.not_beyond(&object, end);
        }
        if let Some(until) = self.flights.backing_off(&object, now).filter(|_| origin != object) {
            self.wait(origin, until);
        }
        if object.kind == Kind::Workload {
            // The watch may have shown the result before the answer came.
            self.settle(&(object.namespace, object.name));
        }
    }

    fn take_outcome(&mut self, object: ObjectKey, flight: Flight, outcome: Outcome, now: Timestamp) {
        if let Some(job) = self.training.note_outcome(&self.view, &object, &flight, &outcome, now) {
            self.touch(job);
        }
        let is_gone = matches!(outcome, Outcome::Applied { .. } | Outcome::Gone);
        if is_gone && self.remains.note_sent_off(&self.view, &flight.origin, &object) {
            self.touch(flight.origin.clone());
        }
        if flight.purpose.is_coalesced() && !matches!(outcome, Outcome::Applied { .. }) {
            self.work.touch_status(object.clone());
        }
        match outcome {
            Outcome::Applied { resource_version } => self.take_success(object, flight, &resource_version, now),
            Outcome::Checkpoints(found) => self.take_listing(&object, flight.place.as_deref(), found, now),
            Outcome::Stuck(stuck) => {
                self.flights.succeeded(&object, &flight.origin);
                self.note_stuck(&object, stuck, now);
            }
            Outcome::Left(pods) => {
                self.flights.succeeded(&object, &flight.origin);
                let pods = left::without_job(&self.context(), &object, pods);
                if let Some(uid) = self.view.uid_of(&object) {
                    self.remains.note_left(uid, pods, now);
                    self.touch(object);
                }
            }
            Outcome::Object(text) => {
                self.flights.succeeded(&object, &flight.origin);
                self.note_read(&object, &text, now);
            }
            Outcome::Nodes(nodes) => {
                self.flights.succeeded(&object, &object);
                let name = (object.namespace.clone(), object.name.clone());
                let counted = nodes::counted(&self.context(), &name, nodes, now);
                if let Some(view) = self.view.training.get_mut(&name) {
                    view.counted = counted;
                    self.touch(object);
                }
            }
            Outcome::OnNode(pods) => {
                self.flights.succeeded(&object, &flight.origin);
                self.note_on_node(&object.name, &pods, now);
            }
            Outcome::Conflict => self.take_conflict(object, &flight, now),
            Outcome::AlreadyExists => {
                self.flights.strays.landed(&object);
                self.take_conflict(object.clone(), &flight, now);
                self.note_name_taken(&object, &flight, now);
            }
            Outcome::Gone if object.kind == Kind::JobPod => {
                self.flights.succeeded(&object, &flight.origin);
                self.forget_job_pod(&(object.namespace, object.name));
            }
            Outcome::Gone => {
                self.flights.succeeded(&object, &flight.origin);
                self.drop_plan(&object);
                let until = self.flights.failed(&object, now, 0);
                self.wait(object, until);
            }
            Outcome::Refused(text) => self.take_refusal(object, &flight, &text, now),
            Outcome::Busy(after) => {
                let after = i64::try_from(after).unwrap_or(i64::MAX);
                let until = match flight.purpose.spares_its_object() {
                    true => self.flights.pause(&object, now, after),
                    false => self.flights.failed(&object, now, after),
                };
                self.wait(object, until);
            }
            // The same decision is made again: its precondition closes the question. Where it is not, see `strays`.
            Outcome::Unknown(text) => {
                self.doubt(&object, &flight, now);
                self.note_unanswered(&object, flight.purpose, &text);
                let until = self.flights.failed(&object, now, 0);
                self.wait(object, until);
            }
            Outcome::NotSent => {
                self.drop_settled_plan(&object);
                let until = self.flights.failed(&object, now, 500);
                self.wait(object, until);
            }
        }
    }

    /// Takes over a listing of checkpoints.
    fn take_listing(
        &mut self,
        object: &ObjectKey,
        place: Option<&CheckpointPlace>,
        found: Result<Vec<Checkpoint>, String>,
        now: Timestamp,
    ) {
        self.flights.succeeded(object, object);
        let name = (object.namespace.clone(), object.name.clone());
        let news = self.training.saving.note_listing(&self.view, &name, place, found, now);
        let Some((job, news)) = self.view.training.get(&name).zip(news) else { return };
        if news.fresh > 0 {
            self.reports.measures.push(training_figures::saved(&name, &job.status, news.fresh));
        }
        if news.changed {
            let uid = job.uid.clone();
            self.mirror_owned_by(&uid);
        }
        self.touch(key(Kind::TrainingJob, &name));
    }

    fn take_success(&mut self, object: ObjectKey, flight: Flight, resource_version: &str, now: Timestamp) {
        self.flights.succeeded(&object, &flight.origin);
        if self.quota.plans.made() {
            self.quota.plan_again();
        }
        self.note_done(&object, &flight, now);
        self.reports.notices.extend(flight.notices);
        let written = resource_version.parse().unwrap_or_default();
        let version = if flight.purpose.withdraws() { u64::MAX } else { written };
        if version > self.view.seen_version(&object) && !flight.vanished {
            self.flights.expect(object, version);
        }
    }

    /// Effects of a write that was made, beside those that the watch will show.
    fn note_done(&mut self, object: &ObjectKey, flight: &Flight, now: Timestamp) {
        if let (true, Some(uid)) = (flight.owned_first && !flight.vanished, self.context().uid_of(object)) {
            self.remains.note_rid_of_pods(uid);
        }
        self.note_sent_job_pod(object, flight.purpose, now);
        match flight.purpose {
            Purpose::ProbePods => {
                if let Some(uid) = self.context().uid_of(object) {
                    self.remains.note_pods_gone(uid);
                }
            }
            Purpose::ProbeSurplus => {
                let name = (object.namespace.clone(), object.name.clone());
                self.training.growth.note_shrunk(&self.view, &name, now);
            }
            Purpose::SetReclaimable => {
                if let Some(uid) = self.context().uid_of(&flight.origin) {
                    self.reports.ration.forget_ended(&uid);
                }
            }
            Purpose::CreateWorkload => self.note_creation(&flight.origin, now),
            Purpose::PrepareTraining => {
                if let Some(uid) = self.view.uid_of(&flight.origin) {
                    self.training.note_prepared(uid, object.clone());
                }
            }
            Purpose::ReserveQuota => {
                self.flights.forget_refused_reservation(object);
                if let Some(uid) = self.context().uid_of(object) {
                    self.quota.plans.remove(&uid);
                    self.quota.plan_again();
                }
            }
            _ => {}
        }
    }

    /// Another writer has changed the object meanwhile, or it is there already.
    fn take_conflict(&mut self, object: ObjectKey, flight: &Flight, now: Timestamp) {
        let until = self.flights.failed(&object, now, 0);
        self.wait(object.clone(), until);
        // Our own earlier write of unknown outcome may be in the way: the quota of a reservation stays charged until the newer version is seen.
        if flight.based_on > 0 && self.view.seen_version(&object) <= flight.based_on {
            let until = self.flights.suspect(object.clone(), flight.based_on, now);
            self.wait(object, until);
        } else if flight.purpose == Purpose::ReserveQuota {
            self.drop_plan(&object);
        }
    }

    /// The API server refuses the write for good: the user gets an event, and the write is tried again all the same.
    fn take_refusal(&mut self, object: ObjectKey, flight: &Flight, text: &str, now: Timestamp) {
        self.reports.measures.push(Measure::Count {
            name: "berth_writes_refused",
            labels: vec![("kind", object.kind.name().to_owned())],
            by: 1,
        });
        self.drop_settled_plan(&object);
        self.note_refused_eviction(&object, flight.purpose);
        if flight.purpose == Purpose::ReserveQuota {
            let until = self.flights.refused_reservation(&object, now);
            self.wait(object.clone(), until);
        }
        let until = self.flights.failed(&object, now, 5_000);
        let absent = flight.purpose.makes_anew();
        if absent {
            self.flights.refused(&flight.origin, &object, text);
        }
        let absent = absent || flight.purpose == Purpose::CreateWorkload;
        self.reports.refused(&self.view, if absent { &flight.origin } else { &object }, absent, text);
        self.reports.tell_job_of(&self.view, &object, "refused a change by Berth", text);
        self.wait(object, until);
    }

    /// An object that is to be made keeps being there already, and is not seen: it is somebody else's. An object of ours, whose creation was answered
    /// late, would have been seen by now.
    fn note_name_taken(&mut self, object: &ObjectKey, flight: &Flight, now: Timestamp) {
        let asks = matches!(flight.purpose, Purpose::PreparePodTemplate | Purpose::RequestCapacity);
        if asks && self.flights.keeps_failing(object, now) {
            self.flights.refused(&flight.origin, object, "exists and is somebody else's: delete it");
            self.touch(flight.origin.clone());
        }
    }

    /// No answer shows the outcome of a write. Where that goes on with a planned admission, no other workload waits for it any longer, and its user
    /// gets an event.
    fn note_unanswered(&mut self, object: &ObjectKey, purpose: Purpose, text: &str) {
        let Some(uid) = self.context().uid_of(object).filter(|_| purpose == Purpose::ReserveQuota) else { return };
        if self.quota.plans.unanswered(&uid) {
            self.quota.plan_again();
            let what = "does not say whether it has made a change by Berth";
            self.reports.tell_of_write(&self.view, object, false, what, text);
            self.reports.tell_job_of(&self.view, object, what, text);
        }
    }

    /// As [`Control::drop_plan`], unless an earlier try may still be applied: its reservation stays charged until that is known.
    fn drop_settled_plan(&mut self, object: &ObjectKey) {
        if !self.flights.strays.may_land(object) {
            self.drop_plan(object);
        }
    }

    /// Drops a planned admission that will not be written: the workload's own state decides again once it is seen.
    fn drop_plan(&mut self, object: &ObjectKey) {
        let Some(uid) = self.context().uid_of(object).filter(|_| object.kind == Kind::Workload) else { return };
        self.quota.plans.remove(&uid);
    }
}
