//! Notes about the workers that one Workload is to give up, or has given up.

use berth_engine::model as engine;
use jiff::Timestamp;

/// A request to an elastic job to give up workers.
#[derive(Clone, Debug)]
pub struct GiveUp {
    /// Number of workers that stay after the job has given up workers.
    pub(crate) keeps: i32,
    /// The eviction that the engine wants, with its preemptor.
    pub eviction: engine::Eviction,
}

/// Notes about the number of workers of one Workload.
#[derive(Debug, Default)]
pub struct ScaleNotes {
    gives_up: Option<Box<GiveUp>>,
    /// Number of workers that stay, if the Workload was observed to have no pods of other workers, and the time of that observation.
    shrunk: Option<Box<(i32, Timestamp)>>,
}

impl ScaleNotes {
    /// Whether nothing is noted about the number of workers of the Workload.
    pub fn is_empty(&self) -> bool {
        self.gives_up.is_none() && self.shrunk.is_none()
    }

    /// The workers that the Workload is to give up for a preemptor.
    pub fn gives_up(&self) -> Option<&GiveUp> {
        self.gives_up.as_deref()
    }

    /// Notes a request to give up workers.
    pub fn ask_for_workers(&mut self, asked: GiveUp) {
        self.gives_up = Some(Box::new(asked));
    }

    /// Ends the request to give up workers: the Workload has given up the workers, or need not give them up any more.
    pub(crate) fn end_request(&mut self) {
        self.gives_up = None;
    }

    /// Whether no pods were observed beyond the pods of this number of workers.
    pub(crate) fn has_shrunk_to(&self, workers: i32) -> bool {
        self.shrunk.as_ref().is_some_and(|shrunk| shrunk.0 == workers)
    }

    /// Time at which no pods were observed beyond the pods of the workers that stay.
    pub(crate) fn shrunk_at(&self) -> Option<Timestamp> {
        self.shrunk.as_ref().map(|shrunk| shrunk.1)
    }

    /// Notes that no pods are left beyond the pods of this number of workers.
    pub fn note_shrunk(&mut self, workers: i32, now: Timestamp) {
        self.shrunk = Some(Box::new((workers, now)));
    }

    /// Forgets the observation about remaining pods of a Workload that has lost its quota: old pods say nothing about later pods.
    pub(crate) fn forget_shrunk(&mut self) {
        self.shrunk = None;
    }
}
