//! Lists and watches of the simulated processes.

use std::rc::Rc;

use super::message::{Message, Process};
use super::streams::{WATCHED, WatchEntry, shown};
use super::{Planted, Simulation};
use crate::api_server::Revision;
use crate::watch::observation;

impl Simulation {
    /// Lets each watch of a process end and list again, for the present epoch of its lists.
    pub(super) fn ask_lists(&mut self, who: Process) {
        for stream in 0..WATCHED.len() {
            self.ask_list(who, stream);
        }
    }

    /// Lets one watch of a process end and list again.
    pub(super) fn ask_list(&mut self, who: Process, stream: usize) {
        let replica = &mut self.replicas[who.replica];
        replica.streams[stream].close();
        let epoch = replica.epoch;
        let at = self.now_ms + self.dice.millis(1, 30);
        self.messages.add(at, Message::List { from: who, stream, epoch });
    }

    /// Answers a request for a list that arrives at the API server.
    pub(super) fn list(&mut self, from: Process, stream: usize, epoch: u64) {
        let replica = &self.replicas[from.replica];
        if replica.identity() != from || epoch < replica.epoch {
            return;
        }
        if replica.is_cut(self.now_ms) {
            let at = replica.cut_until + self.dice.millis(1, 500);
            self.messages.add(at, Message::List { from, stream, epoch });
            return;
        }
        let kind = WATCHED[stream];
        let here = self.api.objects().iter().filter(|(key, _)| key.kind == kind);
        let mut objects: Vec<_> = here.map(|(key, object)| (key.clone(), object.clone())).collect();
        if self.planted == Some(Planted::StaleRelist) {
            self.judging.rewind(kind, &mut objects);
        }
        let at = self.now_ms + self.lag();
        let stream_of = &mut self.replicas[from.replica].streams[stream];
        stream_of.close();
        stream_of.is_open = true;
        let at = stream_of.send(at, WatchEntry::List(Rc::new(objects), epoch));
        self.messages.add(at, Message::Changes(from, stream));
    }

    /// Random delay of an entry of a watch, in milliseconds.
    fn lag(&mut self) -> u64 {
        if self.dice.per_mille(50) { self.dice.millis(1, self.drawn.lag_ms) } else { self.dice.millis(1, 50) }
    }

    /// Shows a revision to every open watch of its kind.
    pub(super) fn show(&mut self, revision: Rc<Revision>) {
        let Some(stream) = WATCHED.iter().position(|kind| *kind == revision.key.kind) else { return };
        for replica in 0..self.replicas.len() {
            let lag = self.lag();
            if self.planted == Some(Planted::LostWakeUp) && self.dice.per_mille(10) {
                continue;
            }
            let replica = &mut self.replicas[replica];
            if !replica.streams[stream].is_open {
                continue;
            }
            let due = (self.now_ms + lag).max(replica.cut_until);
            let at = replica.streams[stream].send(due, WatchEntry::Revision(Rc::clone(&revision)));
            self.messages.add(at, Message::Changes(replica.identity(), stream));
        }
    }

    /// Delivers entries of a watch to a process.
    pub(super) fn changes(&mut self, to: Process, stream: usize) {
        let (now, kind) = (self.timestamp(), WATCHED[stream]);
        let mut is_due = false;
        let replica = &mut self.replicas[to.replica];
        let Some(control) = &mut replica.control else { return };
        while let Some(mut entry) = replica.streams[stream].take(self.now_ms) {
            is_due = true;
            if let Some(planted) = self.planted {
                alter(planted, &mut entry);
            }
            for observation in shown(kind, &entry) {
                if self.planted.is_none_or(|planted| planted.takes(&observation)) {
                    control.observe(observation, now);
                }
            }
            if let WatchEntry::List(_, epoch) = entry {
                replica.streams[stream].listed = Some(epoch);
            }
        }
        if is_due {
            self.plan_step(to, self.now_ms);
        }
    }

    /// A fresh control that has listed all objects: the leader's state in memory must equal the state of the fresh control.
    pub(super) fn fresh(&self) -> berth_control::Control {
        let now = self.timestamp();
        let mut replica = super::Replica::new(usize::MAX);
        replica.start(&self.settings, now);
        let mut control = replica.control.expect("a process that has started");
        for kind in WATCHED {
            let all = self.api.objects().iter().filter(|(key, _)| key.kind == kind);
            for seen in all.filter_map(|(key, object)| observation(key, object, false)) {
                control.observe(seen, now);
            }
        }
        control
    }
}

/// Changes an entry of a watch into the form in which a process with a planted bug reads it.
fn alter(planted: Planted, entry: &mut WatchEntry) {
    if !matches!(planted, Planted::DoubleCharge | Planted::HalfCharge) {
        return;
    }
    match entry {
        WatchEntry::Revision(revision) => planted.read(&mut Rc::make_mut(revision).object),
        WatchEntry::List(objects, _) => Rc::make_mut(objects).iter_mut().for_each(|(_, object)| planted.read(object)),
    }
}
