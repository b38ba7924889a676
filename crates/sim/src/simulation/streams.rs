//! Watches of one simulated process: for each kind, the lists and changes that are under way to the process.

use std::collections::VecDeque;
use std::rc::Rc;

use berth_control::event::{Change, FoundBy, Observation};
use berth_control::write::{Kind, ObjectKey};
use serde_json::Value;

use crate::api_server::Revision;
use crate::watch::{FirstReport, MANAGED, POD_SET, observation, observations};

/// Kinds that a process watches.
pub(super) const WATCHED: [Kind; 11] = [
    Kind::ResourceFlavor,
    Kind::Cohort,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::QueuePolicy,
    Kind::Workload,
    Kind::JOB,
    Kind::JOB_SET,
    Kind::TrainingJob,
    Kind::Pod,
    Kind::JobPod,
];

/// An entry of a watch.
#[derive(Clone, Debug)]
pub(super) enum WatchEntry {
    /// A change of an object, as a revision of the API server.
    Revision(Rc<Revision>),
    /// All objects of the kind, with the epoch of the request for the list.
    List(Rc<Vec<(ObjectKey, Value)>>, u64),
}

/// The watch of one kind.
#[derive(Debug, Default)]
pub(super) struct Stream {
    entries: VecDeque<(u64, WatchEntry)>,
    /// True while the watch is open, so that changes are sent.
    pub(super) is_open: bool,
    /// Last epoch whose list of the kind has arrived at the process.
    pub(super) listed: Option<u64>,
}

impl Stream {
    /// Sends an entry that arrives no earlier than `at_ms`, and after all earlier entries; returns the time of its arrival.
    pub(super) fn send(&mut self, at_ms: u64, entry: WatchEntry) -> u64 {
        let at = self.entries.back().map_or(at_ms, |(last, _)| at_ms.max(*last));
        self.entries.push_back((at, entry));
        at
    }

    /// Ends the watch: entries under way are lost.
    pub(super) fn close(&mut self) {
        self.entries.clear();
        self.is_open = false;
    }

    /// The next entry of the watch that has arrived.
    pub(super) fn take(&mut self, now_ms: u64) -> Option<WatchEntry> {
        let (at, _) = self.entries.front()?;
        if *at > now_ms {
            return None;
        }
        self.entries.pop_front().map(|(_, entry)| entry)
    }
}

/// The observations that an entry of a watch shows to control.
pub(super) fn shown(kind: Kind, entry: &WatchEntry) -> Vec<Observation> {
    match entry {
        WatchEntry::Revision(revision) => observations(revision, FirstReport::Joined),
        WatchEntry::List(objects, _) => {
            let seen = objects.iter().filter_map(|(key, object)| observation(key, object, false));
            seen.chain(ends(kind, objects)).collect()
        }
    }
}

/// The observations that end the lists of a kind, with the names of the listed objects.
fn ends(kind: Kind, objects: &[(ObjectKey, Value)]) -> Vec<Observation> {
    let name = |(key, _): &(ObjectKey, Value)| (key.namespace.clone(), key.name.clone());
    let names = || objects.iter().map(name).collect::<Vec<_>>();
    let label = |object: &Value, label: &str| object["metadata"]["labels"][label].clone();
    let one = match kind {
        Kind::ResourceFlavor => Observation::ResourceFlavor(Change::Only(names())),
        Kind::Cohort => Observation::Cohort(Change::Only(names())),
        Kind::ClusterQueue => Observation::ClusterQueue(Change::Only(names())),
        Kind::LocalQueue => Observation::LocalQueue(Change::Only(names())),
        Kind::QueuePolicy => Observation::QueuePolicy(Change::Only(names())),
        Kind::Workload => Observation::Workload(Change::Only(names())),
        Kind::Job(kind) => Observation::Job(kind, Change::Only(names())),
        Kind::TrainingJob => Observation::TrainingJob(Change::Only(names())),
        Kind::JobPod => {
            let marked = objects.iter().filter(|(_, pod)| label(pod, POD_SET).is_string());
            Observation::JobPod(Change::Only(marked.map(name).collect()))
        }
        _ => {
            let (marked, others): (Vec<_>, Vec<_>) = objects.iter().partition(|(_, pod)| label(pod, MANAGED) == "true");
            return vec![
                Observation::Pod(Change::Only(marked.into_iter().map(name).collect())),
                Observation::UnmarkedPod(FoundBy::Queue, Change::Only(others.into_iter().map(name).collect())),
            ];
        }
    };
    vec![one]
}
