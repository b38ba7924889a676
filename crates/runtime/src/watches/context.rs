//! State that all watches share, and the passing of observations from the watches to the control loop.

use super::Kind;
use crate::first_list::FirstList;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::raw::Raw;
use berth_control::event::Observation;
use berth_control::write as control;
use kube::Client;
use kube::runtime::watcher::Event;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch as channel};

/// An observation on its way from a watch to the control loop.
#[derive(Debug)]
pub struct Seen {
    /// The observation of the watch.
    pub observation: Observation,
    /// If the observation is the end of a list: the number of the listed kind, and the epoch in which the list began.
    pub listed: Option<(usize, u64)>,
    /// Permit for the memory of the observation's object on its way to the control loop; dropping the observation frees the permit.
    pub room: Option<OwnedSemaphorePermit>,
}

/// Observer hook for the observations of the watches, which must not block.
pub type ObservationHook = Arc<dyn Fn(&Observation) + Send + Sync>;

/// State that every watch needs.
#[derive(Clone)]
pub struct Context {
    /// Client for watches.
    pub client: Client,
    /// Channel of the observations to the control loop.
    pub seen: mpsc::Sender<Seen>,
    /// The epoch; a higher number makes every watch begin again with a fresh list.
    pub epoch: channel::Receiver<u64>,
    /// Registry of metrics.
    pub metrics: Arc<Metrics>,
    /// State of the control loop, to which the watches report the kinds that cannot be listed.
    pub liveness: Arc<Liveness>,
    /// Observer hook, which gets each observation before the control loop does.
    pub hook: Option<ObservationHook>,
    /// The kinds to watch, from the configuration.
    pub wanted: Wanted,
    /// Semaphore for the memory of objects on their way to the control loop, in kibibytes of the objects' texts, shared by all watches.
    pub room: Arc<Semaphore>,
}

/// The part of the configuration that decides which kinds are watched.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The job kinds that the configuration names; some kinds are watched only for these job kinds.
    pub job_kinds: BTreeSet<control::Kind>,
    /// True if Berth manages jobs without a queue name.
    pub without_queue: bool,
}

/// Limit of the memory of objects on their way to the control loop, in kibibytes. At this limit the watches wait and read no more, so the API server waits,
/// too.
const ROOM: u32 = 16 << 10;

/// Makes the semaphore for the memory of objects on their way to the control loop.
#[must_use]
pub fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ROOM as usize))
}

impl Context {
    /// Waits until the memory limit has room for the object of a watch event. An object larger than the limit waits until no other object is on its way to the
    /// control loop.
    pub(super) async fn room_for(&self, event: &Event<Raw>) -> Option<OwnedSemaphorePermit> {
        let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = event else { return None };
        let size = u32::try_from(object.text().len() >> 10).unwrap_or(ROOM).saturating_add(1);
        Arc::clone(&self.room).acquire_many_owned(size.min(ROOM)).await.ok()
    }

    /// Passes an observation first to the observer hook and then to the control loop. Returns false if the control loop is gone.
    pub(super) async fn send(&self, observation: Observation, listed: Option<(usize, u64)>) -> bool {
        self.send_with_room(observation, listed, None).await
    }

    /// Passes an observation to the observer hook and the control loop with the memory permit of the observation's object, which the control loop frees.
    pub(super) async fn send_with_room(
        &self,
        observation: Observation,
        listed: Option<(usize, u64)>,
        room: Option<OwnedSemaphorePermit>,
    ) -> bool {
        if let Some(hook) = &self.hook {
            hook(&observation);
        }
        self.seen.send(Seen { observation, listed, room }).await.is_ok()
    }

    /// Notes that the list of a kind is complete, and reports this to the control loop if the loop continued without the list. Returns false if the control
    /// loop is gone.
    pub(super) async fn listed(&self, kind: &Kind, first: &mut FirstList) -> bool {
        self.liveness.note_works(kind.name());
        !first.is_complete() || self.send(kind.unlisted(None), None).await
    }
}
