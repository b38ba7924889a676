//! State that all watches share, and the passing of their observations to the loop.

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

/// An observation on its way from a watch to the loop.
#[derive(Debug)]
pub struct Seen {
    /// The observation of the watch.
    pub observation: Observation,
    /// For the end of a list: the number of the kind, and the epoch in which the list began.
    pub listed: Option<(usize, u64)>,
    /// Permit for the memory of the observation's object on the way to the loop; dropping the observation frees the permit.
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
    /// State of the loop, which shows the kinds that cannot be listed.
    pub liveness: Arc<Liveness>,
    /// Observer hook, which gets an observation before the loop does.
    pub hook: Option<ObservationHook>,
    /// The kinds to watch, from the configuration.
    pub wanted: Wanted,
    /// Semaphore for the memory of objects on their way to the loop, in kibibytes of their text, for all watches.
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

/// Limit of the memory of objects on their way to the loop, in kibibytes. The watches wait at the limit, and the API server with them.
const ROOM: u32 = 16 << 10;

/// Semaphore for the memory of objects on their way to the loop.
#[must_use]
pub fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ROOM as usize))
}

impl Context {
    /// Waits for memory for the object of an event. An object larger than the limit waits until it is the only one.
    pub(super) async fn room_for(&self, event: &Event<Raw>) -> Option<OwnedSemaphorePermit> {
        let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = event else { return None };
        let size = u32::try_from(object.text().len() >> 10).unwrap_or(ROOM).saturating_add(1);
        Arc::clone(&self.room).acquire_many_owned(size.min(ROOM)).await.ok()
    }

    /// Passes an observation to the observer hook, and then to the loop. Returns false if the loop is gone.
    pub(super) async fn send(&self, observation: Observation, listed: Option<(usize, u64)>) -> bool {
        self.send_with_room(observation, listed, None).await
    }

    /// Passes an observation on with the memory permit of its object, which the loop frees.
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

    /// Notes that all objects of a kind were passed on. Returns false if the loop is gone.
    pub(super) async fn listed(&self, kind: &Kind, first: &mut FirstList) -> bool {
        self.liveness.note_works(kind.name());
        !first.is_complete() || self.send(kind.unlisted(None), None).await
    }
}
