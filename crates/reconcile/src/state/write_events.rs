//! Events about the API server's answers to writes, and events that are sent only once.

use berth_api::conditions::own_reasons;
use berth_cache::{View, WorkloadView};

use crate::state::Reports;
use crate::write::{EventType, Kind, Notice, ObjectKey, WORKLOADS, key};

impl Reports {
    /// Sends an event about a refused write, at the object that the write is for.
    pub fn refused(&mut self, view: &View, object: &ObjectKey, creation: bool, text: &str) {
        self.report_write(view, object, creation, "refused a change by Berth", text);
    }

    /// Sends an event about the API server's answer to a write; `what` says in words how the API server answered.
    pub fn report_write(&mut self, view: &View, object: &ObjectKey, creation: bool, what: &str, text: &str) {
        let mut object = object.clone();
        if object.kind == Kind::PodGroup {
            // An event about a pod group is sent at the first pod of the group.
            let group = (object.namespace, object.name);
            let Some((pod, _)) = view.pods().members(&group).next() else { return };
            object = key(Kind::Pod, &(group.0.clone(), pod.to_owned()));
        }
        let Some(uid) = view.uid_of(&object) else { return };
        self.notices.push(Notice {
            key: object,
            uid,
            event_type: EventType::Warning,
            reason: if creation { own_reasons::FAILED_CREATE } else { own_reasons::WRITE_REFUSED }.into(),
            message: format!("the API server {what}: {text}"),
            reporter: WORKLOADS,
        });
    }

    /// Sends an event about the API server's answer to a write of a Workload, at the Workload's job, because users look at their job first.
    pub fn report_to_job_of(&mut self, view: &View, object: &ObjectKey, what: &str, text: &str) {
        let name = (object.namespace.clone(), object.name.clone());
        let workload = view.workloads().get(&name).filter(|_| object.kind == Kind::Workload);
        if let Some(job) = workload.and_then(WorkloadView::owner_key) {
            self.report_write(view, &job, false, what, &format!("Workload {}/{}: {text}", name.0, name.1));
        }
    }

    /// Whether an event differs from the last event with the same object and reason. An event that differs from the last event with the same object and reason
    /// is noted as the last event that was sent.
    pub fn is_news(&mut self, object: &ObjectKey, notice: &Notice) -> bool {
        let sent = self.sent_events.entry(object.clone()).or_default();
        let is_news = sent.get(&notice.reason) != Some(&notice.message);
        if is_news {
            sent.insert(notice.reason.clone(), notice.message.clone());
        }
        is_news
    }
}
