//! Roles of a pod group's pods, with the names that Kueue gives. After a migration between Kueue and Berth, re-created pods find their pod set in the Workload
//! that the other controller made.

mod go;

use crate::requests::Quantities;
use go::{Form, Kept, field};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Number of hex digits of a role's name.
const DIGITS: usize = 8;

/// Name of a pod's role: the pods of a group whose fields for admission are equal are in one pod set. The name of a role does not depend on labels, images and
/// commands, nor on limits, which the API server has copied to missing requests.
///
/// The name of a role does not depend on the requests of restartable init containers, so the start of a pod has to check the pod's own requests.
#[must_use]
pub fn role_hash(spec: &PodSpec) -> String {
    let digest = Sha256::digest(go::write(&json!({ "spec": shape(spec) }), &ROLE));
    let mut name = String::with_capacity(DIGITS);
    for byte in digest.iter().take(DIGITS / 2) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Fields of a pod spec that decide about the pod's admission.
pub(super) fn shape(spec: &PodSpec) -> Value {
    shape_with(spec, |quantities| json!(quantities))
}

/// Fields of a pod spec that decide about the pod's admission, with amounts in the form that `amounts` gives.
pub(crate) fn shape_with(spec: &PodSpec, amounts: fn(Option<&Quantities>) -> Value) -> Value {
    let containers = |list: &[Container]| -> Vec<Value> {
        let shape = |container: &Container| {
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            json!({"ports": container.ports, "resources": {"requests": amounts(requests)}})
        };
        list.iter().map(shape).collect()
    };
    let mut shape = json!({
        "initContainers": containers(spec.init_containers.as_deref().unwrap_or_default()),
        "containers": containers(&spec.containers),
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "tolerations": spec.tolerations,
        "runtimeClassName": spec.runtime_class_name,
        "priority": spec.priority,
        "topologySpreadConstraints": spec.topology_spread_constraints,
        "overhead": amounts(spec.overhead.as_ref()),
        "resourceClaims": spec.resource_claims,
    });
    // Kueue includes pod-level resources in the hash of a role only if the pod has them, so that the hashes of other pods are those of older versions.
    if let (Some(resources), Value::Object(fields)) = (&spec.resources, &mut shape) {
        fields.insert("resources".to_owned(), amounts(resources.requests.as_ref()));
    }
    shape
}

// The order of fields and the omitted fields are those of the types of k8s.io/api 0.36; where Kueue writes a map, keys are sorted.

static ROLE: Form = Form::Fields(&[field("spec", &SPEC, Kept::Always)]);
static SPEC: Form = Form::Fields(&[
    field("affinity", &AFFINITY, Kept::Always),
    field("containers", &Form::List(&CONTAINER), Kept::Always),
    field("initContainers", &Form::List(&CONTAINER), Kept::Always),
    field("nodeSelector", &Form::Texts, Kept::Always),
    field("overhead", &Form::Quantities, Kept::Always),
    field("priority", &Form::Plain, Kept::Always),
    field("resourceClaims", &Form::List(&CLAIM), Kept::Always),
    field("resources", &Form::Quantities, Kept::Given),
    field("runtimeClassName", &Form::Plain, Kept::Always),
    field("tolerations", &Form::List(&TOLERATION), Kept::Always),
    field("topologySpreadConstraints", &Form::List(&SPREAD), Kept::Always),
]);
static CONTAINER: Form = Form::Fields(&[
    field("ports", &Form::List(&PORT), Kept::Always),
    field("resources", &Form::Fields(&[field("requests", &Form::Quantities, Kept::Always)]), Kept::Always),
]);
static PORT: Form = Form::Fields(&[
    field("name", &Form::Plain, Kept::Filled),
    field("hostPort", &Form::Plain, Kept::Filled),
    field("containerPort", &Form::Plain, Kept::Always),
    field("protocol", &Form::Plain, Kept::Filled),
    field("hostIP", &Form::Plain, Kept::Filled),
]);
static CLAIM: Form = Form::Fields(&[
    field("name", &Form::Plain, Kept::Always),
    field("resourceClaimName", &Form::Plain, Kept::Given),
    field("resourceClaimTemplateName", &Form::Plain, Kept::Given),
]);
static TOLERATION: Form = Form::Fields(&[
    field("key", &Form::Plain, Kept::Filled),
    field("operator", &Form::Plain, Kept::Filled),
    field("value", &Form::Plain, Kept::Filled),
    field("effect", &Form::Plain, Kept::Filled),
    field("tolerationSeconds", &Form::Plain, Kept::Given),
]);
static SPREAD: Form = Form::Fields(&[
    field("maxSkew", &Form::Plain, Kept::Always),
    field("topologyKey", &Form::Plain, Kept::Always),
    field("whenUnsatisfiable", &Form::Plain, Kept::Always),
    field("labelSelector", &LABEL_SELECTOR, Kept::Given),
    field("minDomains", &Form::Plain, Kept::Given),
    field("nodeAffinityPolicy", &Form::Plain, Kept::Given),
    field("nodeTaintsPolicy", &Form::Plain, Kept::Given),
    field("matchLabelKeys", &NAMES, Kept::Filled),
]);
static AFFINITY: Form = Form::Fields(&[
    field("nodeAffinity", &NODE_AFFINITY, Kept::Given),
    field("podAffinity", &POD_AFFINITY, Kept::Given),
    field("podAntiAffinity", &POD_AFFINITY, Kept::Given),
]);
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
static NODE_AFFINITY: Form = Form::Fields(&[
    field(REQUIRED, &Form::Fields(&[field("nodeSelectorTerms", &Form::List(&NODE_TERM), Kept::Always)]), Kept::Given),
    field(
        PREFERRED,
        &Form::List(&Form::Fields(&[
            field("weight", &Form::Plain, Kept::Always),
            field("preference", &NODE_TERM, Kept::Always),
        ])),
        Kept::Filled,
    ),
]);
static NODE_TERM: Form = Form::Fields(&[
    field("matchExpressions", &Form::List(&REQUIREMENT), Kept::Filled),
    field("matchFields", &Form::List(&REQUIREMENT), Kept::Filled),
]);
static POD_AFFINITY: Form = Form::Fields(&[
    field(REQUIRED, &Form::List(&POD_TERM), Kept::Filled),
    field(
        PREFERRED,
        &Form::List(&Form::Fields(&[
            field("weight", &Form::Plain, Kept::Always),
            field("podAffinityTerm", &POD_TERM, Kept::Always),
        ])),
        Kept::Filled,
    ),
]);
static POD_TERM: Form = Form::Fields(&[
    field("labelSelector", &LABEL_SELECTOR, Kept::Given),
    field("namespaces", &NAMES, Kept::Filled),
    field("topologyKey", &Form::Plain, Kept::Always),
    field("namespaceSelector", &LABEL_SELECTOR, Kept::Given),
    field("matchLabelKeys", &NAMES, Kept::Filled),
    field("mismatchLabelKeys", &NAMES, Kept::Filled),
]);
static LABEL_SELECTOR: Form = Form::Fields(&[
    field("matchLabels", &Form::Texts, Kept::Filled),
    field("matchExpressions", &Form::List(&REQUIREMENT), Kept::Filled),
]);
/// The form of requirements in node selectors and label selectors.
static REQUIREMENT: Form = Form::Fields(&[
    field("key", &Form::Plain, Kept::Always),
    field("operator", &Form::Plain, Kept::Always),
    field("values", &NAMES, Kept::Filled),
]);
static NAMES: Form = Form::List(&Form::Plain);
