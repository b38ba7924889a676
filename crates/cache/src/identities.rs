//! The uid and the version of an observed object, by its key.

use berth_jobs::version_of;

use crate::admission_checks::Check;
use crate::object::{Kind, ObjectKey};
use crate::training_view::TrainingView;
use crate::{View, WorkloadView};

impl View {
    /// The uid of an object; `None` if the object is not known.
    pub fn uid_of(&self, object: &ObjectKey) -> Option<String> {
        let name = (object.namespace.clone(), object.name.clone());
        match object.kind {
            Kind::Workload => self.workloads().get(&name).map(|workload| workload.uid.clone()),
            kind if kind.is_job() => self.jobs().get(object).map(|job| job.uid.clone()),
            Kind::TrainingJob => self.training().get(&name).map(|job| job.uid.clone()),
            Kind::Pod => self.pods().get(&name).map(|pod| pod.uid.to_string()),
            Kind::JobPod => self.odd_pods().get(&name).map(|odd| odd.pod.uid.to_string()),
            Kind::AdmissionCheck => self.checks().get(&object.name).map(|check| check.uid.clone()),
            Kind::ProvisioningRequest => {
                self.provisioning().requests.get(&name).map(|request| request.uid().to_owned())
            }
            _ => None,
        }
    }

    /// The resourceVersion of an object in the view, as a number; 0 if the object is not known.
    pub fn seen_version(&self, object: &ObjectKey) -> u64 {
        let name = (object.namespace.clone(), object.name.clone());
        match object.kind {
            Kind::Workload => self.workloads().get(&name).map_or(0, WorkloadView::version),
            kind if kind.is_job() => self.jobs().get(object).map_or(0, |job| job.version),
            Kind::TrainingJob => self.training().get(&name).map_or(0, TrainingView::version),
            Kind::Pod => self.pods().get(&name).map_or(0, |pod| pod.version),
            Kind::AdmissionCheck => self.checks().get(&object.name).map_or(0, Check::version),
            Kind::ProvisioningRequest => {
                self.provisioning().requests.get(&name).map_or(0, |request| version_of(&request.metadata))
            }
            Kind::PodTemplate => {
                self.provisioning().templates.get(&name).map_or(0, |template| version_of(&template.metadata))
            }
            // Control remembers little of the pods of jobs, and does not wait until a watch shows a certain resourceVersion of such a pod. Control does not
            // wait for a resourceVersion of ClusterQueues and LocalQueues, because their statuses are computed from Berth's own accounting and are written if
            // they differ.
            _ => u64::MAX,
        }
    }
}
