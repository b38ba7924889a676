//! The review of each path of the webhook server. The paths of reviews are those of Kueue's webhooks, so that a webhook configuration of Kueue works
//! for Berth.

use crate::author::{self, Leave};
use crate::review::{self, Answer, Request, Unreadable, UserInfo};
use crate::{ClusterFacts, jobs, kinds, pods};
use berth_jobs::{JobType, KINDS};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Facts that a review needs besides the request.
pub struct Around<'a> {
    /// Facts about the cluster.
    pub cluster_facts: &'a dyn ClusterFacts,
    /// The feature gates.
    pub gates: Gates,
    /// Result of the check of the author's rights, for routes that need it.
    pub leave: Option<Leave>,
}

/// The feature gates that change reviews, by Kueue's names.
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

/// Kind of review that a route makes.
enum Handle {
    /// Admission review: whether an object may be stored, and with which changes.
    Admission(Rule),
    /// Admission review that includes changes of an object that is being deleted.
    AdmissionToTheEnd(Rule),
    /// Defaults of a job at its creation, and fields that an update leaves as they are.
    Defaults(JobType),
    /// Validation of a job, also while the job is being deleted.
    Rules(JobType),
    /// Validation of a TrainingJob; its author must be allowed to create Jobs.
    TrainingJob,
    /// Conversion of objects to another version.
    Conversion,
}

/// Names of the CRDs whose versions differ, for which the API server sends conversion reviews to [`CONVERT`].
pub const CONVERTED: [&str; 5] = [
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
];
/// Path of conversion reviews.
pub const CONVERT: &str = "/convert";

/// A path of the webhook server, and its review.
pub struct Route {
    /// Path of the request.
    pub path: Cow<'static, str>,
    /// Short name of the route, for metrics.
    pub name: Cow<'static, str>,
    handle: Handle,
}

/// All routes except those of job kinds that can be suspended.
const OTHERS: [Route; 16] = [
    Route {
        path: Cow::Borrowed("/mutate--v1-pod"),
        name: Cow::Borrowed("mutate-pod"),
        handle: Handle::Admission(pods::mutate_pod),
    },
    // The pods of StatefulSets have a path of their own: an older replica without this path would admit these pods unmanaged if the API server sent
    // them to the path of other pods.
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

/// The route of a path; `None` if there is no such path.
#[must_use]
pub fn route(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.path == path)
}

impl Route {
    /// The two routes of a job kind.
    fn of_jobs(kind: JobType) -> [Self; 2] {
        let info = kind.info();
        let route = |verb: &str, handle| Self {
            path: info.review_path(verb).into(),
            name: format!("{verb}-{}", info.kind.to_lowercase()).into(),
            handle,
        };
        [route("mutate", Handle::Defaults(kind)), route("validate", Handle::Rules(kind))]
    }

    /// The user and namespace for which the right to create Jobs must be checked before the answer; `None` if the route or the request needs no
    /// check.
    #[must_use]
    pub fn asks(&self, bytes: &[u8]) -> Option<(UserInfo, String)> {
        let is_asked = matches!(self.handle, Handle::TrainingJob);
        let request = is_asked.then(|| review::read(bytes).ok())??;
        author::question(&request)
    }

    /// Answers a review: returns the body of the answer, and `allowed`, `denied`, `converted` or `error`.
    ///
    /// # Errors
    /// Fails if the bytes are no review: without a review there is no uid to answer.
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
