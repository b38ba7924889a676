//! Check of a manifest as its user wrote it: the fields that cannot be read, and the fields that the API server would drop.

use berth_api::json::to_value;
use berth_api::{self as api, berth, v1beta1};
use berth_jobs::JobType;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ObjectError;

/// The API group of Deployments and StatefulSets.
const APPS: &str = "apps";

/// Result of the check of a manifest: its meaning for Berth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manifest {
    /// The manifest has an object of a kind on which Berth's decisions depend.
    Read {
        /// Fields that the object's kind does not have, such as `spec.resourceGroups[0].flavour`: the API server drops them.
        unknown: Vec<String>,
    },
    /// The manifest has an object of a kind on which no decision of Berth depends.
    Foreign,
}

/// Function that reads an object as its kind, and returns the fields that the kind has.
type Read<'a> = &'a dyn Fn(&Value) -> serde_json::Result<Value>;

/// Examines a manifest without regard to other objects.
///
/// # Errors
/// The first field whose value has a wrong type, or the version of the kind if that version is not read.
pub fn examine(object: &Value) -> Result<Manifest, ObjectError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let is_older = version == v1beta1::API_VERSION;
    let job = JobType::named(group, kind);
    let read: Read<'_> = match (group, kind) {
        _ if let Some(job) = job => &move |object: &Value| typed_job(job, object),
        (api::GROUP, "ClusterQueue") if is_older => &older::<v1beta1::ClusterQueueSpec>,
        (api::GROUP, "Cohort") if is_older => &older::<v1beta1::CohortSpec>,
        (api::GROUP, "Workload") if is_older => &older::<v1beta1::WorkloadSpec>,
        (api::GROUP, "ClusterQueue") => &typed::<api::ClusterQueue>,
        (api::GROUP, "Cohort") => &typed::<api::Cohort>,
        (api::GROUP, "Workload") => &typed::<api::Workload>,
        (api::GROUP, "LocalQueue") => &typed::<api::LocalQueue>,
        (api::GROUP, "ResourceFlavor") => &typed::<api::ResourceFlavor>,
        (api::GROUP, "AdmissionCheck") => &typed::<api::AdmissionCheck>,
        (api::GROUP, "WorkloadPriorityClass") => &typed::<api::WorkloadPriorityClass>,
        (berth::GROUP, "QueuePolicy") => &typed::<berth::QueuePolicy>,
        (berth::GROUP, "CheckpointStore") => &typed::<berth::CheckpointStore>,
        (berth::GROUP, "TrainingJob") => &typed::<berth::TrainingJob>,
        ("", "Namespace") => &typed::<Namespace>,
        ("", "LimitRange") => &typed::<LimitRange>,
        ("", "Pod") => &typed::<Pod>,
        (APPS, "Deployment") => &typed::<Deployment>,
        (APPS, "StatefulSet") => &typed::<StatefulSet>,
        ("node.k8s.io", "RuntimeClass") => &typed::<RuntimeClass>,
        ("scheduling.k8s.io", "PriorityClass") => &typed::<PriorityClass>,
        _ => return Ok(Manifest::Foreign),
    };
    let versions: &[&str] = match group {
        api::GROUP => &[api::API_VERSION, v1beta1::API_VERSION],
        berth::GROUP => &[berth::API_VERSION],
        APPS => &["apps/v1"],
        _ => job.map_or(&[], |job| std::slice::from_ref(&job.info().api_version)),
    };
    if !versions.is_empty() && !versions.contains(&version) {
        return Err(ObjectError::Version { given: version.to_owned(), read: versions.join(" or ") });
    }
    let kept = match read(object) {
        Ok(kept) => kept,
        Err(why) => return Err(fault(object, "", &|part| part, read, why)),
    };
    let mut unknown = Vec::new();
    lost(object, &kept, "", &mut unknown)?;
    // Controllers write the status of an object, and users who write manifests do not.
    unknown.retain(|path| path.split(['.', '[']).next() != Some("status"));
    unknown.sort_unstable();
    Ok(Manifest::Read { unknown })
}

fn typed_job(kind: JobType, object: &Value) -> serde_json::Result<Value> {
    kind.read(object).and_then(|job| job.value())
}

fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> serde_json::Result<Value> {
    let known: T = super::read(object)?;
    Ok(to_value(&known))
}

/// An object of v1beta1, for a kind whose spec differs in v1beta1.
fn older<Spec: DeserializeOwned + Serialize>(object: &Value) -> serde_json::Result<Value> {
    let mut known = Map::new();
    for field in ["apiVersion", "kind", "metadata", "spec"] {
        let Some(part) = object.get(field) else { continue };
        let part = match field {
            "metadata" => typed::<ObjectMeta>(part)?,
            "spec" => typed::<Spec>(part)?,
            _ => part.clone(),
        };
        known.insert(field.to_owned(), part);
    }
    Ok(Value::Object(known))
}

/// The error about the innermost part of an object that cannot be read even if the other fields at its level are removed. `around` makes an object that has the
/// part in its place, and `why` is the error of reading `part`.
fn fault(
    part: &Value,
    path: &str,
    around: &dyn Fn(Value) -> Value,
    read: Read<'_>,
    why: serde_json::Error,
) -> ObjectError {
    match part {
        Value::Object(fields) => {
            for (field, inner) in fields {
                let alone = |inner: Value| around(Value::Object(Map::from_iter([(field.clone(), inner)])));
                if let Err(why) = read(&alone(inner.clone())) {
                    return fault(inner, &below(path, field), &alone, read, why);
                }
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let alone = |inner: Value| around(Value::Array(vec![inner]));
                if let Err(why) = read(&alone(inner.clone())) {
                    return fault(inner, &format!("{path}[{index}]"), &alone, read, why);
                }
            }
        }
        _ => {}
    }
    ObjectError::Malformed { path: path.to_owned(), fault: why.to_string() }
}

/// Finds fields of the given object that are absent after the object was read; an empty field is no loss.
///
/// # Errors
/// A list where a map belongs: the API server refuses such a list, but serde reads the items as fields in their order.
fn lost(given: &Value, kept: &Value, path: &str, unknown: &mut Vec<String>) -> Result<(), ObjectError> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (field, inner) in given {
                match kept.get(field) {
                    Some(kept) => lost(inner, kept, &below(path, field), unknown)?,
                    None if is_empty(inner) => {}
                    None => unknown.push(below(path, field)),
                }
            }
            Ok(())
        }
        (Value::Array(given), Value::Array(kept)) => given
            .iter()
            .zip(kept)
            .enumerate()
            .try_for_each(|(index, (given, kept))| lost(given, kept, &format!("{path}[{index}]"), unknown)),
        (Value::Array(_), Value::Object(_)) => Err(ObjectError::Malformed {
            path: path.to_owned(),
            fault: "invalid type: sequence, expected a map".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn below(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unknown(object: &Value) -> Vec<String> {
        match examine(object) {
            Ok(Manifest::Read { unknown }) => unknown,
            other => panic!("{object}: {other:?}"),
        }
    }

    fn queue(version: &str, spec: &Value) -> Value {
        json!({"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec})
    }

    fn template() -> Value {
        let container = json!({"name": "c", "image": "i", "resouces": {"requests": {"cpu": 1}}});
        json!({"metadata": {"creationTimestamp": null}, "spec": {"containers": [container]}})
    }

    #[test]
    fn manifest_fields_unknown_to_kind_and_version_are_named() {
        let quota = json!({"name": "cpu", "nominalQuotas": 4, "borrowingLimit": 1});
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]);
        let object = queue(api::API_VERSION, &json!({"cohort": "all", "resourceGroups": groups, "stopPolicy": "None"}));
        assert_eq!(unknown(&object), ["spec.cohort", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuotas"]);
        // The unknown fields of an object are judged by the object's own API version.
        let object = queue(v1beta1::API_VERSION, &json!({"cohort": "all", "cohortName": "all"}));
        assert_eq!(unknown(&object), ["spec.cohortName"]);
        let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"nam": "q"},
            "sepc": {"clusterQueue": "a"}});
        assert_eq!(unknown(&object), ["metadata.nam", "sepc"]);
    }

    #[test]
    fn unknown_fields_in_pod_templates_are_named() {
        for (version, kind, spec, path) in [
            ("batch/v1", "Job", json!({"template": template()}), "spec.template"),
            ("berth.dev/v1alpha1", "TrainingJob", json!({"template": template()}), "spec.template"),
            ("apps/v1", "Deployment", json!({"selector": {}, "template": template()}), "spec.template"),
            ("apps/v1", "StatefulSet", json!({"selector": {}, "template": template()}), "spec.template"),
            (api::API_VERSION, "Workload", json!({"podSets": [{"template": template()}]}), "spec.podSets[0].template"),
        ] {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
            assert_eq!(unknown(&object), [format!("{path}.spec.containers[0].resouces")], "{kind}");
        }
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        pod["spec"] = template()["spec"].clone();
        assert_eq!(unknown(&pod), ["spec.containers[0].resouces"]);
    }

    #[test]
    fn empty_values_status_and_foreign_fields_are_no_fault() {
        let spec = json!({"namespaceSelector": {}, "resourceGroups": [], "old": null, "none": {}, "blank": ""});
        let mut object = queue(api::API_VERSION, &spec);
        object["status"] = json!({"fromTheFuture": 1, "conditions": []});
        assert_eq!(unknown(&object), [""; 0]);
        let object = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"},
            "spec": {"replicatedJobs": [{"name": "a", "fromTheFuture": 1}]}});
        assert_eq!(unknown(&object), [""; 0]);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a/b": ""}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        assert_eq!(unknown(&object), [""; 0]);
    }

    #[test]
    fn manifest_value_of_wrong_type_is_refused_with_its_field() {
        let flavor = |name: Value| json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f"}, {"name": name}]}]);
        for (object, start) in [
            (queue(api::API_VERSION, &json!({"cohortName": 3})), "spec.cohortName: invalid type: integer `3`"),
            (
                queue(v1beta1::API_VERSION, &json!({"resourceGroups": flavor(json!(true)), "cohort": "all"})),
                "spec.resourceGroups[0].flavors[1].name: invalid type: boolean `true`",
            ),
            (queue(api::API_VERSION, &json!({"preemption": ["Never"]})), "spec.preemption: invalid type: sequence"),
            (queue(api::API_VERSION, &json!("all")), "spec: invalid type: string \"all\""),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {"a": 1}},
                    "spec": {"parallelism": "two", "template": {"spec": {"containers": {}}}}}),
                "metadata.labels.a: invalid type: integer `1`",
            ),
            (
                json!({"apiVersion": "batch/v1beta1", "kind": "Job"}),
                "apiVersion: \"batch/v1beta1\" is not read, batch/v1 is",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": []}, "spec": {"containers": "c"}}),
                "metadata.labels: invalid type: sequence",
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "3"}}),
                "spec.replicas: invalid type: string \"3\"",
            ),
            (
                json!({"apiVersion": "apps/v1beta2", "kind": "StatefulSet"}),
                "apiVersion: \"apps/v1beta2\" is not read, apps/v1 is",
            ),
            (queue("kueue.x-k8s.io/v1alpha1", &json!({})), "apiVersion: \"kueue.x-k8s.io/v1alpha1\" is not read"),
        ] {
            let error = examine(&object).unwrap_err();
            assert!(error.to_string().starts_with(start), "{error}");
            assert!(start.starts_with(error.path()) && !error.path().is_empty(), "{error}");
        }
    }

    #[test]
    fn manifest_of_unhandled_group_or_kind_is_foreign() {
        for (version, kind) in [
            ("v1", "ConfigMap"),
            ("apps/v1", "DaemonSet"),
            ("example.com/v1", "Pod"),
            ("batch/v1", "CronJob"),
            ("batch.volcano.sh/v1alpha1", "Job"),
            ("kueue.x-k8s.io/v1beta2", "Topology"),
            ("", "ClusterQueue"),
        ] {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": 1});
            assert_eq!(examine(&object), Ok(Manifest::Foreign), "{version} {kind}");
        }
    }
}
