//! Turns a schemars document into a structural schema: references are resolved, and keywords of the schema that the API server does not know are removed.
//!
//! Only this module corrects generated schemas. The type `null` is removed from schemas, because the API server applies defaults only to absent fields. Types
//! of Kubernetes get the list types and defaults that the generator of their Rust types left out (see `pods.rs`). Types of Kubernetes lose their descriptions,
//! which would make the Workload CRD several times larger.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::pods;

const DEFINITIONS: &str = "#/$defs/";
const DEPTH: usize = 64;

/// Pattern of a Kubernetes quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The structural schema of `document`, without references.
pub(crate) fn expand(document: &Value) -> Result<Value> {
    let definitions = document.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    Expander { definitions }.node(document, false, 0)
}

struct Expander {
    definitions: Map<String, Value>,
}

impl Expander {
    /// Expands one schema. `foreign` is true if the schema is of a type of Kubernetes.
    fn node(&self, node: &Value, foreign: bool, depth: usize) -> Result<Value> {
        if depth > DEPTH {
            bail!("schema is recursive or too deep");
        }
        let node = node.as_object().context("schema is not an object")?;
        let mut out = match self.base(node, foreign, depth)? {
            Value::Object(base) => base,
            other => bail!("definition is not an object: {other}"),
        };
        for (key, value) in node {
            let value = match key.as_str() {
                "anyOf" if amount(node) => value.clone(),
                "$ref" | "anyOf" | "$defs" | "$schema" | "title" => continue,
                "description" if foreign => continue,
                "properties" => {
                    let properties = value.as_object().context("properties is not an object")?;
                    let expanded: Result<Map<_, _>> = properties
                        .iter()
                        .map(|(name, schema)| {
                            Ok((name.clone(), self.node(schema, foreign, depth + 1).with_context(|| name.clone())?))
                        })
                        .collect();
                    Value::Object(expanded?)
                }
                "items" | "additionalProperties" if value.is_object() => self.node(value, foreign, depth + 1)?,
                "type" => without_null(value)?,
                "enum" => without_nulls(value),
                "required" => sorted(value),
                "format" => {
                    check_format(value)?;
                    value.clone()
                }
                _ => value.clone(),
            };
            out.insert(key.clone(), value);
        }
        Ok(Value::Object(out))
    }

    /// The schema to which `$ref`, or an `anyOf` with null, of a schema refers; an empty schema if the schema has neither.
    fn base(&self, node: &Map<String, Value>, foreign: bool, depth: usize) -> Result<Value> {
        if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, depth);
        }
        let Some(options) = node.get("anyOf").and_then(Value::as_array).filter(|_| !amount(node)) else {
            return Ok(json!({}));
        };
        let mut real = options.iter().filter(|option| *option != &json!({"type": "null"}));
        match (real.next(), real.next()) {
            (Some(only), None) => self.node(only, foreign, depth + 1),
            _ => bail!("anyOf that is not just an optional value: {options:?}"),
        }
    }

    fn reference(&self, reference: &str, depth: usize) -> Result<Value> {
        let name = reference.strip_prefix(DEFINITIONS).with_context(|| format!("reference {reference}"))?;
        if let Some(special) = special(name) {
            return Ok(special);
        }
        let definition = self.definitions.get(name).with_context(|| format!("no definition {name}"))?;
        let foreign = name.starts_with("io.k8s.");
        let mut schema = self.node(definition, foreign, depth + 1).with_context(|| name.to_owned())?;
        if foreign {
            pods::annotate(name, &mut schema)?;
        }
        Ok(schema)
    }
}

/// Whether a schema allows an integer or a text, which is the only choice between types that the schemas of a CRD may have.
fn amount(node: &Map<String, Value>) -> bool {
    node.get("x-kubernetes-int-or-string") == Some(&json!(true))
}

/// The schema that replaces the generated schema of a Kubernetes type.
fn special(name: &str) -> Option<Value> {
    Some(match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        }),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        }),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time" => json!({"type": "string", "format": "date-time"}),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" => pods::template_metadata(),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Condition" => condition(),
        _ => return None,
    })
}

/// The schema of a condition, with the limits that Kubernetes documents.
fn condition() -> Value {
    json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {
                "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {
                "type": "string", "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
        },
    })
}

/// Turns the type list `["string", "null"]` into the type `"string"`.
fn without_null(value: &Value) -> Result<Value> {
    let Some(types) = value.as_array() else {
        return Ok(value.clone());
    };
    let mut real = types.iter().filter(|type_| *type_ != "null");
    match (real.next(), real.next()) {
        (Some(only), None) => Ok(only.clone()),
        _ => bail!("more than one type: {types:?}"),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value.as_array() {
        Some(values) => values.iter().filter(|value| !value.is_null()).cloned().collect(),
        None => value.clone(),
    }
}

fn sorted(value: &Value) -> Value {
    let mut names: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    names.sort_unstable();
    json!(names)
}

/// Checks the format of a schema: only formats that the API server knows are accepted, because it warns users about other formats.
fn check_format(value: &Value) -> Result<()> {
    match value.as_str() {
        Some("int32" | "int64" | "date-time") => Ok(()),
        _ => bail!("format {value} is not known to the API server"),
    }
}
