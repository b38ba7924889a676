//! Methods that decisions of other rooms call, until these call the owners of the state themselves.

use berth_engine::model as engine;
use jiff::Timestamp;

use crate::cache::Name;
use crate::controller::Control;
use crate::write::ObjectKey;

impl Control {
    pub(crate) fn touch(&mut self, key: ObjectKey) {
        self.work.touch(key);
    }

    pub(crate) fn wait(&mut self, key: ObjectKey, until: Timestamp) {
        self.work.add_at(key, until);
    }

    pub(crate) fn engine(&mut self, delta: engine::Delta) {
        self.quota.apply(delta);
    }

    pub(crate) fn mirror(&mut self, name: &Name) {
        self.work.mirror(name.clone());
        self.mirror_stale();
    }

    pub(crate) fn mirror_waiting_of(&mut self, owner_uid: &str) {
        self.work.mirror_waiting_of(&self.view, owner_uid);
        self.mirror_stale();
    }

    pub(crate) fn mirror_owned_by(&mut self, uid: &str) {
        self.work.mirror_owned_by(&self.view, uid);
        self.mirror_stale();
    }

    pub(crate) fn touch_owned_by(&mut self, uid: &str) {
        self.work.touch_owned_by(&self.view, uid);
    }

    pub(crate) fn touch_jobs_below(&mut self, namespace: &str, uid: &str) {
        self.work.touch_jobs_below(&self.view, namespace, uid);
    }

    pub(crate) fn touch_related(&mut self, object: &ObjectKey) {
        self.work.touch_related(&self.view, object);
    }

    pub(crate) fn touch_job_pods(&mut self, namespace: &str) {
        self.work.touch_job_pods(&self.view, namespace);
    }

    pub(crate) fn touch_members(&mut self, group: &Name) {
        self.work.touch_members(&self.view, group);
    }
}
