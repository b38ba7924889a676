//! The effects of observations on the state of control, by the owner of state that an observation changes.

use berth_api as api;
use berth_api::berth::{QueuePolicy, TrainingJob};
use berth_api::node::Node;
use berth_cache::event::{FoundBy, Observation, Unlisted};
use berth_cache::names::Name;
use berth_cache::training_view::TrainingView;
use berth_cache::{JobPhase, WorkloadView, slim};
use berth_engine::model::Delta;
use berth_jobs::{JobState, SharedJob, version_of};
use berth_reconcile::capacity::losses::NodeNews;
use berth_reconcile::capacity::{self, WantedPods};
use berth_reconcile::job::{attempts, remains, starts};
use berth_reconcile::notes::job::JobNotes;
use berth_reconcile::observe::jobs::{self, JobNews};
use berth_reconcile::observe::training_jobs::TrainingNews;
use berth_reconcile::observe::{cluster_wide, objects, pods, workloads};
use berth_reconcile::provisioning;
use berth_reconcile::state::plans;
use berth_reconcile::training_job::{checkpoints, elastic, growth, saves, training_figures};
use berth_reconcile::write::{Kind, ObjectKey, cluster_key, key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::controller::{Control, planning};

impl Control {
    /// Takes an observation. The observation of an older version of an object with a known uid is ignored, and the order of observations of different kinds
    /// does not matter.
    pub fn observe(&mut self, observation: Observation, now: Timestamp) {
        match observation {
            Observation::Job(kind, change) => {
                let all = self.view.jobs().keys().filter(|key| key.kind == Kind::Job(kind));
                let known = all.map(|key| (key.namespace.clone(), key.name.clone()));
                let seen = objects(change, known);
                self.each(seen, |me, name, job| me.take_job(&key(Kind::Job(kind), &name), job, now));
            }
            Observation::Workload(change) => {
                let known = self.view.workloads().keys();
                let seen = objects(change, known);
                self.each(seen, |me, name, object| match object {
                    Some(object) => me.put_workload(*object, now),
                    None => me.drop_workload(&name, now),
                });
            }
            Observation::ServesProvisioningRequests(served) => {
                provisioning::put_served(&mut self.view, &mut self.work, served);
            }
            Observation::Unlisted(unlisted) => self.put_unlisted(unlisted),
            Observation::ProvisioningRequestConfig(change) => {
                let known = cluster_wide(self.view.provisioning().configs.keys());
                let seen = objects(change, known);
                self.each(seen, |me, name, object| {
                    provisioning::put_config(&mut me.view, &mut me.work, &name.1, object);
                });
            }
            Observation::ProvisioningRequest(change) => {
                let known = self.view.provisioning().requests.keys().cloned();
                let seen = objects(change, known);
                self.each(seen, |me, name, object| {
                    provisioning::put_request(&mut me.view, &mut me.in_flight, &mut me.work, name, object);
                });
            }
            Observation::PodTemplate(change) => {
                let known = self.view.provisioning().templates.keys().cloned();
                let seen = objects(change, known);
                self.each(seen, |me, name, object| {
                    provisioning::put_template(&mut me.view, &mut me.in_flight, &mut me.work, name, object);
                });
            }
            Observation::QueuePolicy(change) => {
                let known = cluster_wide(self.view.policies().keys());
                let seen = objects(change, known);
                self.each(seen, |me, name, object| me.put_policy(&name.1, object, now));
            }
            Observation::CheckpointStore(change) => {
                let known = cluster_wide(self.view.stores().keys());
                let seen = objects(change, known);
                self.each(seen, |me, name, object| checkpoints::put_store(&mut me.view, &mut me.work, &name.1, object));
            }
            Observation::TrainingJob(change) => {
                let known = self.view.training().keys().cloned();
                let seen = objects(change, known);
                self.each(seen, |me, name, object| me.put_training_job(name, object));
            }
            Observation::Pod(change) => {
                let known = self.view.pods().marked(true).cloned();
                let seen = objects(change, known);
                self.each(seen, |me, name, object| me.pod_change().take_marked(name, object, now));
            }
            Observation::UnmarkedPod(by, change) => {
                let known = self.view.pods().found_by(by).cloned();
                let seen = objects(change, known);
                self.each(seen, |me, name, object| me.take_unmarked(name, object, by, now));
            }
            Observation::JobPod(change) => self.pod_change().observe_job_pods(change, now),
            Observation::StatefulSet(change) => {
                let known = self.view.sets().keys().cloned();
                let seen = objects(change, known);
                self.each(seen, |me, name, set| me.pod_change().put_set(name, set.as_deref()));
            }
            Observation::Node(change) => {
                let known = cluster_wide(self.capacity.leaving_nodes());
                let seen = objects(change, known);
                self.each(seen, |me, name, object| me.put_node(&name.1, object.as_deref()));
            }
            rule => {
                self.quota_rules().observe(rule, now);
                self.mirror_stale();
            }
        }
    }

    fn each<T>(&mut self, objects: Vec<(Name, Option<T>)>, mut put: impl FnMut(&mut Self, Name, Option<T>)) {
        for (name, object) in objects {
            put(self, name, object);
            self.mirror_stale();
        }
    }

    fn take_job(&mut self, object: &ObjectKey, job: Option<SharedJob>, now: Timestamp) {
        let Some(job) = job else {
            self.forget_job(object, now);
            return;
        };
        self.put_job(object.clone(), now, |older| {
            let mut state = job.state(older);
            // A large job that was read completely is needed completely for the next decision, so the view keeps the complete job.
            let was_read = older.is_some_and(|older| older.is_large() && older.uid == state.uid);
            if !was_read {
                state.lighten();
            }
            state
        });
    }

    /// Takes a pod without the label of managed pods: the view keeps such a pod only if the pod was let in without a review.
    fn take_unmarked(&mut self, name: Name, object: Option<Box<Pod>>, by: FoundBy, now: Timestamp) {
        let let_in = object.and_then(|pod| Some((self.context().let_in_state(&pod)?, pod)));
        match let_in {
            Some((mut state, pod)) => {
                state.marked = false;
                // A pod joins its group once the pod has the label of managed pods.
                state.group = None;
                self.pod_change().take_pod(name, state, *pod, now);
            }
            None if self.view.pods().is_found_by(&name, by) => self.pod_change().drop_pod(&name),
            None => {}
        }
    }

    /// Takes the news that a resource of the API cannot be listed, or can be listed again.
    fn put_unlisted(&mut self, unlisted: Unlisted) {
        if self.view.put_unlisted(unlisted) {
            self.view.workloads().values().for_each(|workload| self.work.mirror(workload.key()));
            self.mirror_stale();
            self.everything_dirty();
            self.quota.plan_again();
        }
    }

    fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>, now: Timestamp) {
        // The leader keeps the stock-outs itself; other replicas take the stock-outs from the QueuePolicy status that the leader wrote.
        let follows = !self.session.leads() || !self.view.policies().contains_key(name);
        if let Some(status) = object.as_ref().and_then(|object| object.status.as_ref()).filter(|_| follows) {
            let restored = self.capacity.restore_stock(&status.backoffs, now);
            restored.into_iter().for_each(|out| self.quota.apply(Delta::StockOut(out)));
        }
        self.quota_rules().put_policy(name, object, now);
    }

    fn put_training_job(&mut self, name: Name, object: Option<Box<TrainingJob>>) {
        let object_key = key(Kind::TrainingJob, &name);
        let old = self.view.training().get(&name);
        let gone = old.map(|old| old.uid.clone());
        let new = object.map(|object| TrainingView::new(object, old, &self.settings.accelerators));
        match (old, &new) {
            (Some(old), Some(new)) if old.uid == new.uid && old.version() > new.version() => return,
            (Some(old), Some(new)) if old.uid == new.uid => {}
            (Some(old), _) => {
                let uid = old.uid.clone();
                self.forget_training_job(&object_key, &uid);
            }
            (None, _) => {}
        }
        let Some(new) = new else {
            if let Some(old) = self.view.remove_training_job(&name) {
                self.work.mirror_waiting_of(&self.view, &old.uid);
            }
            return;
        };
        if let Some(old) = self.view.training().get(&name).filter(|old| old.uid == new.uid && self.leads()) {
            self.reports.add_measures(training_figures::status_measures(&name, old, &new));
        }
        let (version, uid) = (new.version(), new.uid.clone());
        let gone = gone.filter(|gone| *gone != uid);
        if new.facts.elastic.is_none() {
            growth::note_inelastic(self.notes.jobs_mut(), &uid);
        }
        let news = TrainingNews::of(self.view.training().get(&name), &new);
        self.view.put_training_job(name.clone(), new);
        saves::note_shown(self.notes.workloads_mut(), &self.view, &name);
        if news.concerns_workloads {
            self.work.mirror_owned_by(&self.view, &uid);
            self.work.touch_owned_by(&self.view, &uid);
        }
        if news.is_ruled_otherwise {
            // After the end of a TrainingJob, Jobs that name the TrainingJob as their controller are jobs like any other.
            self.work.touch_jobs_below(&self.view, &name.0, &uid);
        }
        if let Some(gone) = gone {
            self.work.mirror_waiting_of(&self.view, &gone);
        }
        self.in_flight.seen(&object_key, version);
        self.work.touch(object_key);
    }

    /// Forgets a TrainingJob, and marks the objects that it owned.
    fn forget_training_job(&mut self, object_key: &ObjectKey, uid: &str) {
        self.work.touch_owned_by(&self.view, uid);
        self.work.touch_jobs_below(&self.view, &object_key.namespace, uid);
        if self.leads() {
            self.quota.overruns_mut().note(object_key.clone());
        }
        let name = (object_key.namespace.clone(), object_key.name.clone());
        self.notes.jobs_mut().remove(uid);
        self.reports.add_measure(training_figures::forget(&name));
        self.reports.forget_events(object_key);
        self.in_flight.vanished(object_key);
    }

    fn drop_workload(&mut self, name: &Name, now: Timestamp) {
        let object_key = key(Kind::Workload, name);
        self.work.touch_related(&self.view, &object_key);
        self.work.touch_requests_of(&self.view, name);
        self.work.remove(&object_key);
        self.in_flight.vanished(&object_key);
        if let Some(old) = self.view.remove_workload(name) {
            if let Some(owner) = &old.owner {
                self.work.touch_jobs_below(&self.view, &old.namespace, &owner.uid);
            }
            self.quota.shapes_mut().release(&old.shape);
            if self.leads() {
                self.quota.overruns_mut().note_gone_workload(&self.view, &old);
            }
            self.quota.apply(Delta::RemoveWorkload(old.uid.clone()));
            planning::spare_victims_of(&mut self.quota, &mut self.notes, &old.uid);
            self.notes.workloads_mut().remove(&old.uid);
            self.training.forget_workload(self.notes.jobs_mut(), &self.view, &old, now);
            self.reports.forget_events(&object_key);
            workloads::mark_queues(self.reports.schedule_mut(), &old, now);
            self.pod_change().forget_job_pods_of(&old.namespace);
            if old.group.is_some() {
                self.view.pods_mut().forget_owners(name);
                self.work.touch_members(&self.view, name);
            } else if self.view.pods().group(name).is_some() || self.view.sets().of_group(name).is_some() {
                // The removed Workload may have had the name that the Workload of the pod group needs.
                self.work.touch(key(Kind::PodGroup, name));
            }
        }
    }

    fn put_workload(&mut self, object: api::Workload, now: Timestamp) {
        let new = Box::new(slim::slim(&self.settings, &self.view, self.quota.shapes_mut(), object));
        let name = new.key();
        let object_key = key(Kind::Workload, &name);
        let version = new.version();
        match self.view.workloads().get(&name) {
            Some(old) if old.uid == new.uid && old.version() > version => return,
            Some(old) if old.uid != new.uid => self.drop_workload(&name, now),
            _ => {}
        }
        self.notes.note_workload(&new);
        self.training.note_workload(self.notes.jobs_mut(), &self.view, &new);
        workloads::mark_queues(self.reports.schedule_mut(), &new, now);
        let old = self.view.put_workload(new);
        attempts::note_again(&mut self.view, &name);
        let stage = old.as_ref().map(|old| old.stage());
        let seen = self.view.workloads().get(&name).filter(|new| !new.reserved());
        let asks_otherwise = old.as_ref().zip(seen).is_some_and(|(old, new)| old.asks_otherwise(new));
        pods::note_hands(&mut self.view, &mut self.work, &name, old.as_deref());
        if self.leads() {
            self.quota.overruns_mut().note_held(&self.view, &name, old.as_deref());
        }
        if let Some(old) = old {
            // The stored state of a finished Workload is incomplete, so changes of a finished Workload are not measured.
            let counts = self.leads() && !old.is_finished();
            if let Some(new) = self.view.workloads().get(&name).filter(|_| counts) {
                let measures = workloads::measures(&self.context(), &old, new, now);
                self.reports.add_measures(measures);
                self.capacity.note_moves(self.context().tier_moves(&old, new, now));
            }
            if let Some(at) =
                self.view.workloads().get(&name).and_then(|new| self.context().stock_out_between(&old, new))
            {
                self.note_stock_out(&old, at, now);
            }
            self.quota.shapes_mut().release(&old.shape);
            workloads::mark_queues(self.reports.schedule_mut(), &old, now);
        }
        if asks_otherwise || self.in_flight.explains_conflict(&object_key, version) {
            // The Workload's request has changed or ended, or another writer has changed the Workload, so that the plan was made for another state.
            let uid = self.view.workloads().get(&name).map(|workload| workload.uid.clone()).unwrap_or_default();
            plans::drop_admission(self.notes.workloads_mut(), &uid);
        }
        if asks_otherwise {
            self.in_flight.forget_refused_reservation(&object_key);
        }
        pods::wake_group(&mut self.view, &mut self.work, &name, stage);
        jobs::wake_parts(&self.view, &mut self.work, &name, stage);
        self.work.touch_requests_of(&self.view, &name);
        self.view.shed_workload(&name);
        self.in_flight.seen(&object_key, version);
        self.settle(&name);
        elastic::slices_after(&self.view, &name).into_iter().for_each(|slice| self.work.mirror(slice));
        self.work.touch_related(&self.view, &object_key);
    }

    /// Takes an object that was read for a decision. A large job is read because its Workload is to be created, and its complete object is kept until the
    /// next decision.
    pub(super) fn note_read(&mut self, object: &ObjectKey, text: &str, now: Timestamp) {
        if object.kind == Kind::JobPod {
            self.pod_change().note_job_pod(object, text, now);
            return;
        }
        let (Kind::Job(kind), Some(known)) = (object.kind, self.view.jobs().get(object)) else { return };
        let (uid, version) = (known.uid.clone(), known.version);
        // The runtime refuses the query for an object that does not decode.
        let read = kind.decode(text).ok();
        let read =
            read.filter(|job| job.metadata().uid.as_ref() == Some(&uid) && version_of(job.metadata()) >= version);
        if let Some(job) = read {
            self.put_job(object.clone(), now, |older| job.state(older));
        }
        self.work.touch(object.clone());
    }

    /// Forgets a job that is gone, even if another job has its name now. This function removes all state about a removed job, and no other function does.
    fn forget_job(&mut self, object: &ObjectKey, now: Timestamp) {
        // The objects that the job owned are marked before the job is removed from the view.
        self.work.touch_related(&self.view, object);
        self.in_flight.vanished(object);
        self.reports.forget_events(object);
        if let Some(old) = self.view.remove_job(object) {
            self.work.touch_jobs_below(&self.view, &object.namespace, &old.uid);
            self.pod_change().count_ending_pods_of(&object.namespace, &old.uid);
            if let Some(uid) = jobs::attempt_of(object, &old) {
                jobs::note_attempt(&mut self.view, &mut self.work, &uid);
            }
            self.work.mirror_waiting_of(&self.view, &old.uid);
            if let Some(owner) = &old.owner {
                self.work.mirror_waiting_of(&self.view, &owner.uid);
            }
            self.notes.jobs_mut().remove(&old.uid);
            starts::note_lost(self.notes.jobs_mut(), &self.view, object, &old, now);
            self.training.forget_job(self.notes.jobs_mut(), &self.view, object, &old);
            if self.leads() && (old.pods > 0 || object.kind.is_made_of_jobs()) {
                self.quota.overruns_mut().note_gone_job(object, &old);
            }
        }
    }

    fn put_job(&mut self, object: ObjectKey, now: Timestamp, read: impl FnOnce(Option<&JobState>) -> JobState) {
        let older = self.view.jobs().get(&object);
        let mut job = read(older);
        if self.context().passes_over(object.kind, &job) {
            job.shed();
        }
        let version = job.version;
        match older {
            Some(old) if old.uid == job.uid && old.version > version => return,
            Some(old) if old.uid != job.uid => self.forget_job(&object, now),
            _ => {}
        }
        let news = JobNews::of(&object, self.view.jobs().get(&object), &job);
        if news.changes_hands {
            // If the job has another controller now, the earlier controlling job is marked, too.
            self.work.touch_related(&self.view, &object);
        }
        if news.appeared {
            self.in_flight.appeared(&object);
        }
        let again = remains::note_job(self.notes.jobs_mut(), &self.view, &object, &job, news.appeared, now);
        self.reports.add_measures(again.filter(|_| self.session.leads()).map(starts::measure));
        if JobPhase::of(&job) != JobPhase::Running {
            self.notes.jobs_mut().change_known(&job.uid, JobNotes::forget_ended);
        } else if news.more_ended {
            self.notes.jobs_mut().change(&job.uid, |notes| notes.note_ended(now));
        }
        self.note_capacity(&object, &job, news.before, now);
        self.training.note_job(self.notes.jobs_mut(), &object, &job);
        if self.leads() {
            self.quota.overruns_mut().note_job(&self.view, &object, &job);
        }
        let uid = job.uid.clone();
        self.view.put_job(object.clone(), job);
        if news.appeared || news.changes_hands {
            self.pod_change().count_ending_pods_of(&object.namespace, &uid);
        }
        self.view.shed_job(&object);
        self.in_flight.seen(&object, version);
        self.work.touch_related(&self.view, &object);
        if news.governs {
            self.work.touch_jobs_below(&self.view, &object.namespace, &uid);
        }
        if let Some(uid) = &news.attempt {
            jobs::note_attempt(&mut self.view, &mut self.work, uid);
        }
        for uid in &news.moved {
            self.work.mirror_waiting_of(&self.view, uid);
        }
        if let Some(uid) = &news.training {
            self.work.mirror_owned_by(&self.view, uid);
        }
        if news.mirrors_its_own {
            self.work.mirror_owned_by(&self.view, &uid);
        }
    }

    fn note_capacity(&mut self, object: &ObjectKey, job: &JobState, before: Option<WantedPods>, now: Timestamp) {
        if self.capacity.note_pods(self.notes.jobs_mut(), job, before, now) {
            let assignments = capacity::turned_up(&self.context(), object, job);
            let news = self.capacity.note_turned_up(assignments, now);
            self.quota_rules().pass_on_stock(news, now);
        }
    }

    fn note_stock_out(&mut self, workload: &WorkloadView, at: Timestamp, now: Timestamp) {
        if let Some(lost) = capacity::stock_outs(&self.context(), workload, at) {
            self.notes.workloads_mut().change_known(&workload.uid, |notes| notes.capacity_mut().forget_pods());
            let news = self.capacity.note_stock_out(lost);
            self.quota_rules().pass_on_stock(news, now);
        }
    }

    fn put_node(&mut self, name: &str, node: Option<&Node>) {
        match self.capacity.put_node(name, node, &self.settings.reclaim_taints) {
            Some(NodeNews::Leaves) => self.work.touch(cluster_key(Kind::Node, name)),
            Some(NodeNews::Stays) => self.in_flight.vanished(&cluster_key(Kind::Node, name)),
            None => {}
        }
    }
}
