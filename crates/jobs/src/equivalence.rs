//! Equivalence of a job and its Workload, by digests, so that control need not keep templates.

use crate::requests::with_own_limits;
use crate::template::TemplateParts;
use berth_api::PodSet;
use berth_api::json::to_value;
use berth_quantity::{Nano, parse_quantity};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Digest of a pod set: its fields that decide about equivalence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSetDigest {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods of the pod set.
    pub count: i32,
    /// Smallest accepted number of pods of the pod set.
    pub min_count: Option<i32>,
    /// Digest of the pod set's init containers and containers.
    pub containers: [u8; 16],
    /// Digest of the pod set's tolerations.
    pub tolerations: [u8; 16],
    /// Digest of all parts of the template that may change while a job is suspended.
    pub parts: [u8; 16],
}

impl PodSetDigest {
    /// Digest of a pod set, from a Workload or from a job.
    #[must_use]
    pub fn of(set: &PodSet) -> Self {
        let parts = TemplateParts::of(&set.template, 0);
        Self {
            name: set.effective_name().to_owned(),
            count: set.effective_count(),
            min_count: set.min_count,
            containers: template_digest(&set.template),
            tolerations: digest(&parts.tolerations),
            parts: digest(&parts.to_value()),
        }
    }
}

/// State of the job and its Workload on which equivalence depends.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionState<'a> {
    /// Admitted number of pods per pod set, if the Workload has a quota reservation.
    pub admitted_counts: Option<&'a BTreeMap<String, i32>>,
    /// The Workload is admitted.
    pub admitted: bool,
    /// The job is suspended.
    pub suspended: bool,
}

/// Whether the Workload with the pod sets `workload` still fits the job with the pod sets `job`: names in order, counts and containers are equal, and so are
/// tolerations while the Workload is not admitted. With a reservation, a pod set that accepts fewer pods has the admitted count; in a suspended job, such a pod
/// set may still have the count of the spec. Every other pod set keeps its own count, because the admitted count leaves out pods that had ended when quota was
/// reserved, and a start does not change the job for these pods.
#[must_use]
pub fn pod_sets_equivalent(
    job: &[PodSetDigest],
    workload: &[PodSetDigest],
    admission_state: AdmissionState<'_>,
) -> bool {
    let spec_counts = BTreeMap::new();
    let equal = |counts: &BTreeMap<String, i32>| {
        job.len() == workload.len()
            && job.iter().zip(workload).all(|(a, b)| {
                let given = b.min_count.and_then(|_| counts.get(&b.name).copied());
                a.name == b.name
                    && a.count == given.unwrap_or(b.count)
                    && a.min_count == b.min_count
                    && a.containers == b.containers
                    && (admission_state.admitted || a.tolerations == b.tolerations)
            })
    };
    match admission_state.admitted_counts {
        Some(counts) => equal(counts) || (admission_state.suspended && equal(&spec_counts)),
        None => equal(&spec_counts),
    }
}

/// Whether a Workload without reservation equals its suspended job, including the mutable parts of templates. A Workload that differs from its suspended job
/// must be updated before the job starts, because a stop restores the job's templates from the Workload.
#[must_use]
pub fn pod_sets_identical(job: &[PodSetDigest], workload: &[PodSetDigest]) -> bool {
    job == workload
}

/// Digest of a template's containers: init containers, containers, pod-level resources, and the RuntimeClass, whose overhead is charged. The digest does not
/// depend on the notation of quantities.
#[must_use]
pub fn template_digest(template: &PodTemplateSpec) -> [u8; 16] {
    let empty = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&empty);
    let containers = (spec.init_containers.as_deref().unwrap_or_default(), &spec.containers);
    let of_pod = spec.resources.as_ref().and_then(|_| with_own_limits(spec).resources);
    digest(&(containers, of_pod, spec.runtime_class_name.as_deref().unwrap_or_default()))
}

/// Digest of the template fields from which the requests of pods are computed; equal digests mean equal requests.
#[must_use]
pub fn requests_digest(template: &PodTemplateSpec) -> [u8; 16] {
    let empty = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&empty);
    let asks =
        |container: &Container| json!({"resources": container.resources, "restartPolicy": container.restart_policy});
    let of = |containers: &[Container]| containers.iter().map(asks).collect::<Vec<Value>>();
    let pod_level = (&spec.resources, &spec.overhead, &spec.runtime_class_name);
    digest(&(of(spec.init_containers.as_deref().unwrap_or_default()), of(&spec.containers), pod_level))
}

/// Whether two values are equal apart from the notation of quantities and the defaults of the API server.
pub(crate) fn same(mut a: Value, mut b: Value) -> bool {
    normalise(&mut a);
    normalise(&mut b);
    a == b
}

fn digest<T: Serialize>(value: &T) -> [u8; 16] {
    let mut value = to_value(value);
    normalise(&mut value);
    let hash: [u8; 32] = Sha256::digest(value.to_string()).into();
    hash.first_chunk().copied().unwrap_or_default()
}

/// Whether a field has the default that the API server sets in the containers of a job; a prebuilt Workload may lack such defaults.
fn is_filled_in(key: &str, value: &Value, pull_policy: &str) -> bool {
    match key {
        "imagePullPolicy" => value == pull_policy,
        "terminationMessagePath" => value == "/dev/termination-log",
        "terminationMessagePolicy" => value == "File",
        "protocol" => value == "TCP",
        "scheme" => value == "HTTP",
        "apiVersion" => value == "v1",
        "timeoutSeconds" | "successThreshold" => *value == 1,
        "periodSeconds" => *value == 10,
        "failureThreshold" => *value == 3,
        _ => false,
    }
}

/// The `imagePullPolicy` that the API server sets by default, which is `Always` for an image without a digest whose tag is `latest` or absent, and
/// `IfNotPresent` for any other image.
fn default_pull_policy(image: &str) -> &'static str {
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map_or("latest", |(_, tag)| tag);
    if tag == "latest" && !image.contains('@') { "Always" } else { "IfNotPresent" }
}

/// Removes empty lists, empty resource maps and defaults of the API server from a value, and writes quantities in one notation.
fn normalise(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                normalise(field);
                if matches!(key.as_str(), "requests" | "limits")
                    && let Value::Object(quantities) = field
                {
                    quantities.values_mut().for_each(canonical);
                }
            }
            let pull_policy = default_pull_policy(fields.get("image").and_then(Value::as_str).unwrap_or_default());
            fields.retain(|key, field| {
                let optional = matches!(key.as_str(), "requests" | "limits" | "resources");
                let empty_map = optional && field.as_object().is_some_and(serde_json::Map::is_empty);
                let empty = field.is_null() || empty_map || field.as_array().is_some_and(Vec::is_empty);
                !(empty || is_filled_in(key, field, pull_policy))
            });
        }
        _ => {}
    }
}

fn canonical(quantity: &mut Value) {
    if let Some(Ok(Nano(nano))) = quantity.as_str().map(parse_quantity) {
        *quantity = Value::String(nano.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: Value) -> PodSetDigest {
        PodSetDigest::of(&serde_json::from_value(value).expect("pod set"))
    }

    fn with_spec(spec: Value) -> PodSetDigest {
        set(json!({"name": "main", "count": 2, "template": {"spec": spec}}))
    }

    fn base() -> Value {
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]})
    }

    #[test]
    fn pod_sets_with_changed_containers_or_resources_are_not_equivalent() {
        let standard = with_spec(base());
        let changed = |pointer: &str, value: Value| {
            let mut spec = base();
            let (parent, key) = pointer.rsplit_once('/').expect("pointer");
            spec.pointer_mut(parent).expect("parent")[key] = value;
            pod_sets_equivalent(&[with_spec(spec)], std::slice::from_ref(&standard), AdmissionState::default())
        };
        assert!(changed("/containers/0/resources/requests", json!({"cpu": "1000m"})));
        assert!(changed("/containers/0/resources", json!({"requests": {"cpu": "1"}, "limits": {}})));
        assert!(changed("/containers/0/env", json!([])));
        assert!(changed("/containers/0/imagePullPolicy", json!("Always")), "the default of an image without a tag");
        assert!(!changed("/containers/0/imagePullPolicy", json!("Never")));
        assert!(changed("/containers/0/terminationMessagePath", json!("/dev/termination-log")));
        assert!(changed("/nodeSelector", json!({"a": "b"})));
        assert!(changed("/volumes", json!([{"name": "v"}])));
        assert!(!changed("/containers/0/resources", json!({"requests": {"cpu": "2"}})));
        assert!(!changed("/containers/0/image", json!("j")));
        assert!(!changed("/initContainers", json!([{"name": "i"}])));
        assert!(!changed("/tolerations", json!([{"operator": "Exists"}])));
        assert!(changed("/resources", Value::Null));
        assert!(
            !changed("/resources", json!({"requests": {"cpu": "8"}})),
            "it takes the place of what containers ask for"
        );
        assert!(!changed("/runtimeClassName", json!("vm")), "its overhead is charged");
    }

    #[test]
    fn pod_level_limits_count_as_requests_for_equivalence() {
        let with = |resources: Value| {
            let mut spec = base();
            spec["resources"] = resources;
            with_spec(spec)
        };
        let same =
            |one: Value, other: Value| pod_sets_equivalent(&[with(one)], &[with(other)], AdmissionState::default());
        let filled_in = json!({"limits": {"memory": "2Gi"}, "requests": {"memory": "2Gi"}});
        assert!(same(json!({"limits": {"memory": "2Gi"}}), filled_in));
        // The container requests cpu, so the API server does not copy the pod-level limit of cpu to the pod-level request.
        let raised = json!({"limits": {"cpu": "6"}, "requests": {"cpu": "6"}});
        assert!(!same(json!({"limits": {"cpu": "6"}}), raised), "it asks for more than before");
    }

    #[test]
    fn default_image_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("a", "Always"),
            ("a:latest", "Always"),
            ("host:5000/a", "Always"),
            ("host:5000/a:1", "IfNotPresent"),
            ("a@sha256:00", "IfNotPresent"),
        ] {
            assert_eq!(default_pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn equivalence_follows_admitted_count_and_ignores_tolerations_once_admitted() {
        let sized = |count: i32, spec: Value| {
            set(json!({"name": "main", "count": count, "minCount": 1,
            "template": {"spec": spec}}))
        };
        let mut tolerating = base();
        tolerating["tolerations"] = json!([{"operator": "Exists"}]);
        let admitted = BTreeMap::from([("main".to_owned(), 2)]);
        let reserved = AdmissionState { admitted_counts: Some(&admitted), ..AdmissionState::default() };
        let cases = [
            (sized(4, base()), AdmissionState::default(), true),
            (sized(2, base()), AdmissionState::default(), false),
            (sized(2, base()), reserved, true),
            (sized(4, base()), reserved, false),
            (sized(4, base()), AdmissionState { suspended: true, ..reserved }, true),
            (sized(2, tolerating.clone()), reserved, false),
            (sized(2, tolerating), AdmissionState { admitted: true, ..reserved }, true),
        ];
        for (index, (job, admission_state, expected)) in cases.into_iter().enumerate() {
            assert_eq!(pod_sets_equivalent(&[job], &[sized(4, base())], admission_state), expected, "case {index}");
        }
        assert!(!pod_sets_equivalent(&[], &[sized(4, base())], AdmissionState::default()));
    }

    #[test]
    fn equivalence_ignores_admitted_count_of_pod_set_without_minimum() {
        let admitted = BTreeMap::from([("main".to_owned(), 1)]);
        let admission_state = AdmissionState { admitted_counts: Some(&admitted), admitted: true, suspended: false };
        let asked = [with_spec(base())];
        assert!(pod_sets_equivalent(&asked, &asked, admission_state), "one of its two pods was over");
        let smaller = [set(json!({"name": "main", "count": 1, "template": {"spec": base()}}))];
        assert!(!pod_sets_equivalent(&smaller, &asked, admission_state), "its user has made it smaller");
    }

    #[test]
    fn pod_sets_with_changed_mutable_parts_are_not_identical() {
        let plain = with_spec(base());
        assert!(pod_sets_identical(std::slice::from_ref(&plain), &[with_spec(base())]));
        for (key, value) in [
            ("nodeSelector", json!({"a": "b"})),
            ("schedulingGates", json!([{"name": "g"}])),
            ("affinity", json!({"nodeAffinity": {}})),
        ] {
            let mut spec = base();
            spec[key] = value;
            assert!(!pod_sets_identical(&[with_spec(spec)], std::slice::from_ref(&plain)), "{key}");
        }
        let labelled = set(json!({"name": "main", "count": 2, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": base()}}));
        assert!(!pod_sets_identical(&[labelled], &[plain]));
    }

    #[test]
    fn requests_digest_changes_only_with_inputs_of_requests() {
        let of = |spec: &Value| requests_digest(&serde_json::from_value(json!({"spec": spec})).expect("template"));
        let with = |pointer: &str, value: Value| {
            let mut spec = base();
            let (parent, key) = pointer.rsplit_once('/').expect("pointer");
            spec.pointer_mut(parent).expect("parent")[key] = value;
            of(&spec)
        };
        let standard = of(&base());
        assert_eq!(with("/containers/0/env", json!([{"name": "A", "value": "1"}])), standard);
        assert_eq!(with("/containers/0/resources/requests", json!({"cpu": "1000m"})), standard);
        assert_eq!(with("/nodeSelector", json!({"a": "b"})), standard);
        let bare = json!({"containers": [{"name": "c"}]});
        assert_eq!(
            of(&json!({"containers": [{"name": "c", "resources": {}}]})),
            of(&bare),
            "as the API server stores it"
        );
        for (pointer, value) in [
            ("/containers/0/resources/requests", json!({"cpu": "2"})),
            ("/containers/0/resources/limits", json!({"memory": "1Gi"})),
            ("/containers", json!([base()["containers"][0], {"name": "d"}])),
            ("/initContainers", json!([{"name": "i", "restartPolicy": "Always"}])),
            ("/overhead", json!({"cpu": "1"})),
            ("/runtimeClassName", json!("sandbox")),
            ("/resources", json!({"requests": {"cpu": "2"}})),
        ] {
            assert_ne!(with(pointer, value), standard, "{pointer}");
        }
    }
}
