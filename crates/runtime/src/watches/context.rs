//! The context that watches share, and the passing on of their observations.

use super::Kind;
use crate::first_list::FirstList;
use crate::metrics::Metrics;
use crate::pulse::Pulse;
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
    /// The observation.
    pub observation: Observation,
    /// For a complete list: which kind, by its number, and the epoch in which it was started.
    pub listed: Option<(usize, u64)>,
    /// Permit of the observation in the queue to the loop. Dropping the observation frees the permit.
    pub room: Option<OwnedSemaphorePermit>,
}

/// Observer hook beside the loop for the observations of the watches; it must not wait for anything.
pub type Tap = Arc<dyn Fn(&Observation) + Send + Sync>;

/// State that every watch needs.
#[derive(Clone)]
pub struct Context {
    /// Client for watches.
    pub client: Client,
    /// Channel of the observations to the control loop.
    pub seen: mpsc::Sender<Seen>,
    /// The epoch; a higher number restarts every watch with a fresh list.
    pub epoch: channel::Receiver<u64>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Shows which kinds cannot be listed.
    pub pulse: Arc<Pulse>,
    /// Observer hook, called before the loop gets the observation.
    pub tap: Option<Tap>,
    /// The kinds that are watched at all.
    pub wanted: Wanted,
    /// For objects that are on their way to the loop, of all watches, in kibibytes of their text.
    pub room: Arc<Semaphore>,
}

/// The part of the configuration that says which kinds are watched.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The kinds of job that the configuration names: the objects of some kinds are not watched otherwise.
    pub job_kinds: BTreeSet<control::Kind>,
    /// True where jobs are managed that name no queue.
    pub without_queue: bool,
}

/// Kibibytes of objects that are on their way to the loop: the watches wait meanwhile, and with them the API server.
const ROOM: u32 = 16 << 10;

/// Room for the objects on their way to one loop.
#[must_use]
pub fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ROOM as usize))
}

impl Context {
    /// Waits until there is room for the object of an event. One that is larger than all of the room waits until it is alone.
    pub(super) async fn room_for(&self, event: &Event<Raw>) -> Option<OwnedSemaphorePermit> {
        let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = event else { return None };
        let size = u32::try_from(object.text().len() >> 10).unwrap_or(ROOM).saturating_add(1);
        Arc::clone(&self.room).acquire_many_owned(size.min(ROOM)).await.ok()
    }

    /// Passes an observation to the observer hook, and then to the loop; false when the loop is gone.
    pub(super) async fn tell(&self, observation: Observation, listed: Option<(usize, u64)>) -> bool {
        self.tell_of(observation, listed, None).await
    }

    /// Passes an observation on, and counts the memory of its object until the loop has taken it.
    pub(super) async fn tell_of(
        &self,
        observation: Observation,
        listed: Option<(usize, u64)>,
        room: Option<OwnedSemaphorePermit>,
    ) -> bool {
        if let Some(tap) = &self.tap {
            tap(&observation);
        }
        self.seen.send(Seen { observation, listed, room }).await.is_ok()
    }

    /// All objects of a kind were passed on; false when the loop is gone.
    pub(super) async fn listed(&self, kind: &Kind, first: &mut FirstList) -> bool {
        self.pulse.note_works(kind.name());
        !first.is_complete() || self.tell(kind.unlisted(None), None).await
    }
}
