//! The CustomResourceDefinition of one API kind.

use anyhow::{Context, Result};
use berth_api as api;
use serde_json::{Map, Value, json};

use crate::expand::expand;
use crate::kinds::{Kind, columns};
use crate::v1beta1;

const HEADER: &str = "# Generated from crates/api by `make crds`; do not edit.\n";
const DEPRECATED: &str = "This version is deprecated. Use v1beta2 instead.";

/// The text of the CRD file of an API kind.
pub(crate) fn yaml(kind: &Kind) -> Result<String> {
    let body = serde_saphyr::to_string(&in_order(definition(kind)?))?;
    Ok(format!("{HEADER}{body}"))
}

/// The CustomResourceDefinition of an API kind.
pub(crate) fn definition(kind: &Kind) -> Result<Value> {
    let current = version(kind)?;
    let mut versions = Vec::new();
    if kind.is_kueues() {
        versions.push(v1beta1::version(kind, &current).context("v1beta1")?);
    }
    versions.push(current);
    let mut names = json!({
        "kind": kind.kind,
        "listKind": format!("{}List", kind.kind),
        "plural": kind.plural,
        "singular": kind.kind.to_lowercase(),
        "shortNames": kind.short_names,
    });
    if !kind.is_kueues() {
        names["categories"] = json!(["berth"]);
    }
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", kind.plural, kind.group),
            "labels": {"app.kubernetes.io/part-of": "berth"},
        },
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions,
        },
    }))
}

/// The entry of a kind's storage version in the CRD.
fn version(kind: &Kind) -> Result<Value> {
    let mut version = json!({
        "name": kind.version,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": newest(kind)?},
    });
    if !kind.columns.is_empty() {
        version["additionalPrinterColumns"] = json!(columns(kind));
    }
    if kind.status.is_some() {
        version["subresources"] = json!({"status": {}});
    } else if !kind.columns.is_empty() {
        // An empty `subresources` in a CRD means the same as no `subresources`. The key is written because Kueue's CRD file has it, and Berth's and Kueue's
        // files are compared.
        version["subresources"] = json!({});
    }
    if kind.kind == "Workload" {
        version["selectableFields"] = json!([{"jsonPath": ".status.admission.clusterQueue"}]);
    }
    Ok(version)
}

/// The entry of the version v1beta1 in a kind's CRD, without its schema.
pub(crate) fn older_version(kind: &Kind, current: &Value) -> Value {
    let mut older = current.clone();
    older["name"] = json!("v1beta1");
    older["served"] = json!(kind.older.is_none());
    older["storage"] = json!(false);
    if kind.deprecated {
        older["deprecated"] = json!(true);
        older["deprecationWarning"] = json!(DEPRECATED);
    }
    if let Some(fields) = older.as_object_mut() {
        fields.remove("selectableFields");
    }
    older
}

fn newest(kind: &Kind) -> Result<Value> {
    let status = kind.status.map(|status| status());
    root(kind, &(kind.spec)(), status.as_ref(), &(kind.rules)())
}

/// The schema of a kind's objects, built from the schemas of spec and status and from the CEL rules (rule, message) over the object.
pub(crate) fn root(
    kind: &Kind,
    spec: &Value,
    status: Option<&Value>,
    rules: &[(String, &'static str)],
) -> Result<Value> {
    let main = expand(spec).context("spec")?;
    let mut root = if kind.rooted { main } else { json!({"type": "object", "properties": {"spec": main}}) };
    root["description"] = json!(kind.description);
    if let Some(status) = status {
        root["properties"]["status"] = expand(status).context("status")?;
    }
    root["properties"]["apiVersion"] = json!({"type": "string", "description": "Group and version of this object."});
    root["properties"]["kind"] = json!({"type": "string", "description": "Kind of this object."});
    root["properties"]["metadata"] = json!({"type": "object"});
    let rules = rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message}));
    let rules: Vec<Value> = rules.chain(api::stays(kind.fixed)).collect();
    if !rules.is_empty() {
        root["x-kubernetes-validations"] = json!(rules);
    }
    Ok(root)
}

/// A JSON value with sorted keys, whichever map type serde_json is built with.
fn in_order(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, in_order(value))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(in_order).collect(),
        other => other,
    }
}
