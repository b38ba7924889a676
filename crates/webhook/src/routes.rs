//! The review of each path. Paths are those of Kueue's controller runtime, so that a configuration can be carried over.

use crate::author::{self, Leave};
use crate::review::{self, Answer, Request, Unreadable, UserInfo};
use crate::{Surroundings, jobs, kinds, pods};
use berth_jobs::{JobType, KINDS};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The context of a review beside the request.
pub struct Around<'a> {
    /// The cluster.
    pub surroundings: &'a dyn Surroundings,
    /// The feature gates.
    pub gates: Gates,
    /// The answer about the author, where the route asks for one.
    pub leave: Option<Leave>,
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

/// The treatment of a request's body.
enum Handle {
    /// Admission: whether, and how, an object may be stored.
    Admission(Rule),
    /// Admission, for changes of an object that is being deleted as well.
    AdmissionToTheEnd(Rule),
    /// Defaults of a job at its creation, and the fields that stay in a change.
    Defaults(JobType),
    /// Validation of a job, also while it is being deleted.
    Rules(JobType),
    /// Validation of a TrainingJob, for which its author must be allowed to create Jobs.
    TrainingJob,
    /// Conversion of objects to another version.
    Conversion,
}

/// CRDs whose versions differ, so that the API server sends conversions to [`CONVERT`].
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
    pub path: Cow<'static, str>,
    /// Short name, for figures.
    pub name: Cow<'static, str>,
    handle: Handle,
}

/// Every path but those of jobs that can be suspended.
const OTHERS: [Route; 16] = [
    Route {
        path: Cow::Borrowed("/mutate--v1-pod"),
        name: Cow::Borrowed("mutate-pod"),
        handle: Handle::Admission(pods::mutate_pod),
    },
    // Replicas from before this path admit such pods unmanaged, where the API server sends them to the path of other pods.
    Route {
        path: Cow::Borrowed("/mutate--v1-pod-of-set"),
        name: Cow::Borrowed("mutate-pod-of-set"),
        handle: Handle::Admission(pods::mutate_pod),
    },
    Route {
        path: Cow::Borrowed("/mutate--v1-pod-of-parent"),
        name: Cow::Borrowed("mutate-pod-of-parent"),
        handle: Handle::Admission(pods::mutate_pod),
    },
    Route {
        path: Cow::Borrowed("/validate--v1-pod"),
        name: Cow::Borrowed("validate-pod"),
        handle: Handle::AdmissionToTheEnd(pods::validate_pod),
    },
    Route {
        path: Cow::Borrowed("/validate--v1-pod-of-job"),
        name: Cow::Borrowed("validate-pod-of-job"),
        handle: Handle::AdmissionToTheEnd(|request, _| pods::validate_pod_of_job(request)),
    },
    Route {
        path: Cow::Borrowed("/mutate-apps-v1-deployment"),
        name: Cow::Borrowed("mutate-deployment"),
        handle: Handle::Admission(pods::mutate_deployment),
    },
    Route {
        path: Cow::Borrowed("/validate-apps-v1-deployment"),
        name: Cow::Borrowed("validate-deployment"),
        handle: Handle::Admission(pods::validate_deployment),
    },
    Route {
        path: Cow::Borrowed("/mutate-apps-v1-statefulset"),
        name: Cow::Borrowed("mutate-statefulset"),
        handle: Handle::Admission(pods::mutate_stateful_set),
    },
    Route {
        path: Cow::Borrowed("/validate-apps-v1-statefulset"),
        name: Cow::Borrowed("validate-statefulset"),
        handle: Handle::Admission(pods::validate_stateful_set),
    },
    Route {
        path: Cow::Borrowed("/mutate-kueue-x-k8s-io-v1beta2-workload"),
        name: Cow::Borrowed("mutate-workload"),
        handle: Handle::Admission(|request, around| kinds::drop_min_counts(request, around.gates.partial_admission)),
    },
    Route {
        path: Cow::Borrowed("/validate-kueue-x-k8s-io-v1beta2-workload"),
        name: Cow::Borrowed("validate-workload"),
        handle: Handle::Admission(|request, around| kinds::workload(request, around.gates.priority_boost)),
    },
    Route {
        path: Cow::Borrowed("/validate-kueue-x-k8s-io-v1beta2-clusterqueue"),
        name: Cow::Borrowed("validate-clusterqueue"),
        handle: Handle::Admission(|request, around| kinds::cluster_queue(request, around.gates.concurrent_admission)),
    },
    Route {
        path: Cow::Borrowed("/validate-berth-dev-v1alpha1-trainingjob"),
        name: Cow::Borrowed("validate-trainingjob"),
        handle: Handle::TrainingJob,
    },
    Route {
        path: Cow::Borrowed("/validate-kueue-x-k8s-io-v1beta2-cohort"),
        name: Cow::Borrowed("validate-cohort"),
        handle: Handle::Admission(|request, _| kinds::cohort(request)),
    },
    Route {
        path: Cow::Borrowed("/validate-kueue-x-k8s-io-v1beta2-resourceflavor"),
        name: Cow::Borrowed("validate-resourceflavor"),
        handle: Handle::Admission(|request, _| kinds::resource_flavor(request)),
    },
    Route { path: Cow::Borrowed(CONVERT), name: Cow::Borrowed("convert"), handle: Handle::Conversion },
];

/// Every path.
pub static ROUTES: LazyLock<Vec<Route>> =
    LazyLock::new(|| KINDS.into_iter().flat_map(Route::of_jobs).chain(OTHERS).collect());

/// The route of a path.
#[must_use]
pub fn route(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.path == path)
}

impl Route {
    /// The routes of a kind of job.
    fn of_jobs(kind: JobType) -> [Self; 2] {
        let info = kind.info();
        let route = |verb: &str, handle| Self {
            path: info.review_path(verb).into(),
            name: format!("{verb}-{}", info.kind.to_lowercase()).into(),
            handle,
        };
        [route("mutate", Handle::Defaults(kind)), route("validate", Handle::Rules(kind))]
    }

    /// The user whose right to create Jobs in a namespace must be known before the answer.
    #[must_use]
    pub fn asks(&self, bytes: &[u8]) -> Option<(UserInfo, String)> {
        let is_asked = matches!(self.handle, Handle::TrainingJob);
        let request = is_asked.then(|| review::read(bytes).ok())??;
        author::question(&request)
    }

    /// Answers a review: the body of the answer, and `allowed`, `denied`, `converted` or `error`.
    ///
    /// # Errors
    /// If the bytes are no review: there is no uid to answer.
    pub fn answer(&self, bytes: &[u8], around: &Around<'_>) -> Result<(Vec<u8>, &'static str), Unreadable> {
        if matches!(self.handle, Handle::Conversion) {
            let (body, converted) =
                berth_api::conversion::respond(bytes).map_err(|error| Unreadable::Conversion(error.to_string()))?;
            return Ok((body, if converted { "converted" } else { "error" }));
        }
        let request = review::read(bytes)?;
        let is_asked = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
        let to_the_end = matches!(self.handle, Handle::AdmissionToTheEnd(_) | Handle::Rules(_));
        let answer = match &self.handle {
            _ if !is_asked || (!to_the_end && request.is_leaving()) => Ok(Answer::Allow),
            Handle::Admission(rule) | Handle::AdmissionToTheEnd(rule) => rule(&request, around),
            Handle::Defaults(kind) => jobs::mutate(*kind, &request, around),
            Handle::Rules(kind) => jobs::validate(*kind, &request, around),
            Handle::TrainingJob => kinds::training_job(&request, around),
            Handle::Conversion => Ok(Answer::Allow),
        };
        let outcome = match &answer {
            Ok(Answer::Deny(_) | Answer::Forbid(_)) => "denied",
            Ok(Answer::Postpone(_)) | Err(_) => "error",
            Ok(_) => "allowed",
        };
        Ok((review::write(&request, &answer), outcome))
    }
}

#[cfg(test)]
mod tests;
