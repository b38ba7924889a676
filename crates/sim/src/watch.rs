//! Simulated watches: the observations by which a watch shows a revision to control.

use berth_control::event::{Change, FoundBy, JobPod, Observation};
use berth_control::write::{Kind, ObjectKey};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api_server::Revision;

/// Label by which a watch selects the pods of Jobs.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// Label of managed pods.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";

/// The watch that reports first if a pod moves from one watch to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstReport {
    /// The watch that the pod leaves.
    Left,
    /// The watch that the pod enters.
    Joined,
}

/// The observations of a revision, in the order in which watches show them; empty for kinds without a watch.
///
/// # Panics
///
/// Panics if an object cannot be decoded as an object of its kind.
#[must_use]
pub fn observations(revision: &Revision, first: FirstReport) -> Vec<Observation> {
    let (key, object) = (&revision.key, &revision.object);
    let shown = |object: &Value, gone: bool| observation(key, object, gone);
    let all = match (key.kind, &revision.before, revision.gone) {
        (Kind::JobPod, _, true) if object["metadata"]["labels"][POD_SET].is_null() => [None, None],
        (Kind::JobPod, _, true) => {
            let mut last = object.clone();
            last["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            [shown(&last, true), None]
        }
        // A pod that loses the label leaves the watch like a deleted pod, with the last state that had the label.
        (Kind::JobPod, Some(before), false)
            if before["metadata"]["labels"][POD_SET].is_string() && object["metadata"]["labels"][POD_SET].is_null() =>
        {
            [shown(before, true), None]
        }
        (Kind::Pod, Some(before), false) if is_marked(before) != is_marked(object) => {
            let (left, joined) = (shown(before, true), shown(object, false));
            if first == FirstReport::Left { [left, joined] } else { [joined, left] }
        }
        (_, _, gone) => [shown(object, gone), None],
    };
    all.into_iter().flatten().collect()
}

fn is_marked(pod: &Value) -> bool {
    pod["metadata"]["labels"][MANAGED] == json!("true")
}

/// An object in the form in which the watch of its kind shows it; `None` for kinds without a watch.
///
/// # Panics
///
/// Panics if the object cannot be decoded as an object of its kind.
#[must_use]
pub fn observation(key: &ObjectKey, object: &Value, gone: bool) -> Option<Observation> {
    macro_rules! observe {
        ($kind:ident) => {
            Observation::$kind(change(Box::new(decode(object)), gone))
        };
    }
    Some(match key.kind {
        Kind::Job(kind) => {
            Observation::Job(kind, change(kind.read(object).expect("an object of that kind").into(), gone))
        }
        Kind::Workload => observe!(Workload),
        Kind::ClusterQueue => observe!(ClusterQueue),
        Kind::LocalQueue => observe!(LocalQueue),
        Kind::Cohort => observe!(Cohort),
        Kind::ResourceFlavor => observe!(ResourceFlavor),
        Kind::QueuePolicy => observe!(QueuePolicy),
        Kind::TrainingJob => observe!(TrainingJob),
        Kind::Pod => return pod(object, gone),
        Kind::JobPod if !gone && object["metadata"]["labels"][POD_SET].is_null() => return None,
        Kind::JobPod => Observation::JobPod(change(JobPod::read(&object.to_string()).expect("a pod"), gone)),
        Kind::StatefulSet => observe!(StatefulSet),
        Kind::Node => observe!(Node),
        Kind::AdmissionCheck => observe!(AdmissionCheck),
        Kind::ProvisioningRequest => observe!(ProvisioningRequest),
        Kind::PodTemplate => observe!(PodTemplate),
        Kind::Service | Kind::ConfigMap | Kind::PodGroup | Kind::Deployment | Kind::Checkpoints => return None,
    })
}

/// The observation of a namespace with its labels, and with the time since which it is being deleted.
///
/// # Panics
///
/// Panics if the labels are no map of texts.
#[must_use]
pub fn namespace(name: &str, labels: &Value, deleted: Option<Timestamp>) -> Observation {
    let deleted = deleted.map(|at| at.to_string());
    let namespace = json!({"metadata": {"name": name, "labels": labels, "deletionTimestamp": deleted}});
    Observation::Namespace(Change::Apply(Box::new(decode(&namespace))))
}

/// The observation of a pod by the watch whose label selector matches the pod; `None` if no watch does.
fn pod(object: &Value, gone: bool) -> Option<Observation> {
    let labels = &object["metadata"]["labels"];
    let of_set = object["metadata"]["ownerReferences"][0]["kind"] == json!("StatefulSet");
    let found_by = match (is_marked(object), labels["kueue.x-k8s.io/queue-name"].is_string()) {
        (true, _) => None,
        (false, true) => Some(FoundBy::Queue),
        (false, false) if of_set => Some(FoundBy::StatefulSet),
        (false, false) => return None,
    };
    let change = change(Box::new(decode(object)), gone);
    Some(match found_by {
        None => Observation::Pod(change),
        Some(label) => Observation::UnmarkedPod(label, change),
    })
}

fn change<T>(object: T, gone: bool) -> Change<T> {
    if gone { Change::Delete(object) } else { Change::Apply(object) }
}

fn decode<T: DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).expect("an object of that kind")
}
