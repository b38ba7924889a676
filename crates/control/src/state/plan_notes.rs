//! Planned admission and eviction of one workload.

use berth_engine::model::{Admission, Eviction};

/// Number of writes in a row without an answer after which a planned admission is set aside.
const SEVERAL: u32 = 3;

/// The engine's plans for one workload that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct PlanNotes {
    admission: Option<Box<PlannedAdmission>>,
    eviction: Option<Box<Eviction>>,
    /// The API server refused the eviction.
    is_eviction_refused: bool,
}

#[derive(Debug)]
struct PlannedAdmission {
    admission: Admission,
    /// Set while the last write of the admission ended without an answer.
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    /// Number of writes in a row without an answer.
    times: u32,
    /// Number of the writes that the API server had made when the first of these writes ended.
    since: u64,
    is_aside: bool,
}

impl Failing {
    /// Sets the plan aside where that is due; true if it was. While the API server makes no writes at all, no other workload could go on.
    fn set_aside(&mut self, made: u64) -> bool {
        let due = !self.is_aside && self.times >= SEVERAL && made > self.since;
        self.is_aside |= due;
        due
    }
}

impl PlanNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.admission.is_none() && self.eviction.is_none() && !self.is_eviction_refused
    }

    /// The admission that the engine has charged.
    pub(crate) fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref().map(|planned| &planned.admission)
    }

    /// Whether the last write of the admission ended without an answer.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing().is_some()
    }

    /// Whether the acknowledgement of the admission is not waited for any longer.
    pub(crate) fn is_aside(&self) -> bool {
        self.failing().is_some_and(|failing| failing.is_aside)
    }

    fn failing(&self) -> Option<&Failing> {
        self.admission.as_ref()?.failing.as_ref()
    }

    /// Plans an admission in place of an older one.
    pub(crate) fn admit(&mut self, admission: Admission) {
        self.admission = Some(Box::new(PlannedAdmission { admission, failing: None }));
    }

    /// Drops the planned admission; true if there was one.
    pub(crate) fn drop_admission(&mut self) -> bool {
        self.admission.take().is_some()
    }

    /// Notes a write of the admission that ended without an answer, after so many writes that the API server has made; true if the admission is set
    /// aside for that.
    pub(crate) fn note_unanswered(&mut self, made: u64) -> bool {
        let Some(planned) = &mut self.admission else { return false };
        let failing = planned.failing.get_or_insert(Failing { times: 0, since: made, is_aside: false });
        failing.times = failing.times.saturating_add(1);
        failing.set_aside(made)
    }

    /// Notes that the API server has made so many writes; true if the admission is set aside for that.
    pub(crate) fn note_made(&mut self, made: u64) -> bool {
        let failing = self.admission.as_mut().and_then(|planned| planned.failing.as_mut());
        failing.is_some_and(|failing| failing.set_aside(made))
    }

    /// The eviction that is to be written.
    pub(crate) fn eviction(&self) -> Option<&Eviction> {
        self.eviction.as_deref()
    }

    pub(crate) fn evict(&mut self, eviction: Eviction) {
        self.eviction = Some(Box::new(eviction));
    }

    /// Takes the eviction back; the API server's refusal of it stands.
    pub(crate) fn spare(&mut self) {
        self.eviction = None;
    }

    /// The workload leaves.
    pub(crate) fn evicts_no_longer(&mut self) {
        self.eviction = None;
        self.is_eviction_refused = false;
    }

    pub(crate) fn is_eviction_refused(&self) -> bool {
        self.is_eviction_refused
    }

    /// The API server refused the eviction.
    pub(crate) fn refuse_eviction(&mut self) {
        self.is_eviction_refused = true;
    }
}
