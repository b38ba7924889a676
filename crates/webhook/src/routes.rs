//! Which path does what. Paths are those of Kueue's controller runtime, so that a configuration can be carried over.

use crate::review::{self, Answer, Request, Unreadable};
use crate::{Surroundings, jobs, kinds, pods};
use berth_jobs::{BatchJob, JobSet};

/// What a route is told beside the request.
pub struct Around<'a> {
    /// The cluster.
    pub surroundings: &'a dyn Surroundings,
    /// What is switched on.
    pub gates: Gates,
}

/// The feature gates that decide about reviews, by Kueue's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// `PartialAdmission`.
    pub partial_admission: bool,
    /// `PriorityBoost`.
    pub priority_boost: bool,
    /// `ConcurrentAdmission`.
    pub concurrent_admission: bool,
}

type Rule = fn(&Request, &Around<'_>) -> Result<Answer, Unreadable>;

/// What becomes of a body.
enum Handle {
    /// It is asked whether, and how, an object may be stored.
    Admission(Rule),
    /// The same, and what changes of an object that is being deleted is asked about as well.
    AdmissionToTheEnd(Rule),
    /// It is asked how objects look in another version.
    Conversion,
}

/// CRDs whose versions differ, so that the API server asks us at [`CONVERT`].
pub const CONVERTED: [&str; 5] = [
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
];
/// Path of conversions.
pub const CONVERT: &str = "/convert";

/// One path.
pub struct Route {
    /// Path of the request.
    pub path: &'static str,
    /// Short name, for figures.
    pub name: &'static str,
    handle: Handle,
}

/// Every path. A new kind of job is two lines here.
pub const ROUTES: &[Route] = &[
    Route { path: "/mutate-batch-v1-job", name: "mutate-job", handle: Handle::Admission(jobs::mutate::<BatchJob>) },
    Route {
        path: "/validate-batch-v1-job",
        name: "validate-job",
        handle: Handle::Admission(jobs::validate::<BatchJob>),
    },
    Route {
        path: "/mutate-jobset-x-k8s-io-v1alpha2-jobset",
        name: "mutate-jobset",
        handle: Handle::Admission(jobs::mutate::<JobSet>),
    },
    Route {
        path: "/validate-jobset-x-k8s-io-v1alpha2-jobset",
        name: "validate-jobset",
        handle: Handle::Admission(jobs::validate::<JobSet>),
    },
    Route { path: "/mutate--v1-pod", name: "mutate-pod", handle: Handle::Admission(pods::mutate_pod) },
    Route { path: "/validate--v1-pod", name: "validate-pod", handle: Handle::AdmissionToTheEnd(pods::validate_pod) },
    Route {
        path: "/mutate-apps-v1-deployment",
        name: "mutate-deployment",
        handle: Handle::Admission(pods::mutate_deployment),
    },
    Route {
        path: "/validate-apps-v1-deployment",
        name: "validate-deployment",
        handle: Handle::Admission(pods::validate_deployment),
    },
    Route {
        path: "/mutate-apps-v1-statefulset",
        name: "mutate-statefulset",
        handle: Handle::Admission(pods::mutate_stateful_set),
    },
    Route {
        path: "/validate-apps-v1-statefulset",
        name: "validate-statefulset",
        handle: Handle::Admission(pods::validate_stateful_set),
    },
    Route {
        path: "/mutate-kueue-x-k8s-io-v1beta2-workload",
        name: "mutate-workload",
        handle: Handle::Admission(|request, around| kinds::drop_min_counts(request, around.gates.partial_admission)),
    },
    Route {
        path: "/validate-kueue-x-k8s-io-v1beta2-workload",
        name: "validate-workload",
        handle: Handle::Admission(|request, around| kinds::workload(request, around.gates.priority_boost)),
    },
    Route {
        path: "/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
        name: "validate-clusterqueue",
        handle: Handle::Admission(|request, around| kinds::cluster_queue(request, around.gates.concurrent_admission)),
    },
    Route {
        path: "/validate-berth-dev-v1alpha1-trainingjob",
        name: "validate-trainingjob",
        handle: Handle::Admission(|request, _| kinds::training_job(request)),
    },
    Route {
        path: "/validate-kueue-x-k8s-io-v1beta2-cohort",
        name: "validate-cohort",
        handle: Handle::Admission(|request, _| kinds::cohort(request)),
    },
    Route {
        path: "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
        name: "validate-resourceflavor",
        handle: Handle::Admission(|request, _| kinds::resource_flavor(request)),
    },
    Route { path: CONVERT, name: "convert", handle: Handle::Conversion },
];

/// The route of a path.
#[must_use]
pub fn route(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.path == path)
}

impl Route {
    /// Answers a review: the body of the answer, and `allowed`, `denied`, `converted` or `error`.
    ///
    /// # Errors
    /// When the bytes are no review, so that there is nothing to answer to.
    pub fn answer(&self, bytes: &[u8], around: &Around<'_>) -> Result<(Vec<u8>, &'static str), Unreadable> {
        let (rule, to_the_end) = match &self.handle {
            Handle::Admission(rule) => (rule, false),
            Handle::AdmissionToTheEnd(rule) => (rule, true),
            Handle::Conversion => {
                let (body, converted) =
                    berth_api::conversion::respond(bytes).map_err(|error| Unreadable::Conversion(error.to_string()))?;
                return Ok((body, if converted { "converted" } else { "error" }));
            }
        };
        let request = review::read(bytes)?;
        let is_asked = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
        let answer =
            if is_asked && (to_the_end || !request.is_leaving()) { rule(&request, around) } else { Ok(Answer::Allow) };
        let outcome = match &answer {
            Ok(Answer::Deny(_)) => "denied",
            Ok(_) => "allowed",
            Err(_) => "error",
        };
        Ok((review::write(&request, &answer), outcome))
    }
}

#[cfg(test)]
mod tests;
