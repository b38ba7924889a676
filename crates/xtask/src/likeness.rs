//! Comparison of a CustomResourceDefinition with Kueue's: all parts that the API server acts on and that clients see must be equal. The comparison of CRDs
//! leaves out descriptions, the text of CEL rules (Berth has its own rules, which `e2e/tests/crds` tests), and whether a version is served, which the chart
//! decides.
//!
//! `kueue-crds.txt` has a digest of each API version in Kueue's own CRD files. `xtask likeness FILE...` prints the digests of CRD files, and with `--lines` the
//! text of which the digests are made, so that `diff` can compare two CRD files.

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// Digests of the API versions in Kueue's CRD files: kind, version, digest.
#[cfg(test)]
const KUEUES: &str = include_str!("../kueue-crds.txt");

/// One version of an API kind in its CustomResourceDefinition.
pub(crate) struct Version {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Compared content of the API version: one value of its CRD entry per line.
    pub(crate) lines: Vec<String>,
}

impl Version {
    /// 64-bit FNV-1a hash of the compared content of this API version ([`Version::lines`]), by which accidental differences between two CRDs are found.
    pub(crate) fn digest(&self) -> String {
        let bytes = self.lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        format!("{} {} {hash:016x}", self.kind, self.name)
    }
}

/// The API versions of a CustomResourceDefinition, in its order.
pub(crate) fn versions(definition: &Value) -> Result<Vec<Version>> {
    let spec = definition.get("spec").context("spec: missing")?;
    let kind = spec.pointer("/names/kind").and_then(Value::as_str).context("spec.names.kind: missing")?;
    let all = spec.get("versions").and_then(Value::as_array).context("spec.versions: missing")?;
    let version = |version: &Value| {
        let name = version.get("name").and_then(Value::as_str).context("spec.versions[].name: missing")?;
        let mut lines = Vec::new();
        for field in ["group", "names", "scope"] {
            flatten(spec.get(field).unwrap_or(&Value::Null), field, &mut lines);
        }
        let mut rest = version.as_object().cloned().unwrap_or_default();
        rest.remove("served");
        let schema = rest.remove("schema").unwrap_or_default();
        let schema = schema.get("openAPIV3Schema").context("schema.openAPIV3Schema: missing")?;
        flatten(&normal(schema), "schema", &mut lines);
        let columns = rest.remove("additionalPrinterColumns").unwrap_or_default();
        let columns = columns.as_array().into_iter().flatten().map(normal).collect();
        flatten(&columns, "columns", &mut lines);
        flatten(&Value::Object(rest), "version", &mut lines);
        lines.sort_unstable();
        Ok(Version { kind: kind.to_owned(), name: name.to_owned(), lines })
    };
    all.iter().map(version).collect()
}

/// A CRD's schema without descriptions and CEL rules; the lists `required` are sorted, because their order has no meaning.
fn normal(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let kept = fields.iter().filter(|(key, _)| !["description", "x-kubernetes-validations"].contains(&key.as_str()));
    let field = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "properties" => {
                let all = value.as_object().into_iter().flatten();
                Value::Object(all.map(|(name, schema)| (name.clone(), normal(schema))).collect())
            }
            "items" | "additionalProperties" => normal(value),
            "required" => {
                let mut names: Vec<Value> = value.as_array().cloned().unwrap_or_default();
                names.sort_by_key(Value::to_string);
                Value::Array(names)
            }
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Object(kept.map(field).collect::<Map<_, _>>())
}

/// Adds one line of compared content for each scalar or empty value below a JSON value.
fn flatten(value: &Value, path: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(key, value)| flatten(value, &format!("{path}.{key}"), lines));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(index, value)| flatten(value, &format!("{path}[{index}]"), lines));
        }
        plain => lines.push(format!("{path} = {plain}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crd, kinds};
    use serde_json::json;

    /// Printer columns of Berth's CRDs that Kueue 0.19 does not have; Kueue 0.20 has `Active` and `Reason`.
    const OWN_COLUMNS: [(&str, &[&str]); 3] = [
        ("ClusterQueue", &["Active", "Reason", "Used"]),
        ("LocalQueue", &["Active", "Reason"]),
        ("Workload", &["Reason", "Job", "Priority", "Size", "Tier"]),
    ];
    /// Status fields of Berth's CRDs that Kueue's CRDs do not have.
    const OWN_FIELDS: [(&str, &[&str]); 1] = [("ClusterQueue", &["berthUsed"])];

    fn without_own(mut definition: Value) -> Value {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
        let fields = OWN_FIELDS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, fields)| *fields);
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            for field in fields.clone() {
                let status = version.pointer_mut("/schema/openAPIV3Schema/properties/status/properties").unwrap();
                assert!(status.as_object_mut().unwrap().remove(*field).is_some(), "{kind}: status.{field} is there");
            }
        }
        let Some((_, own)) = OWN_COLUMNS.iter().find(|(of, _)| *of == kind) else { return definition };
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            let columns = version["additionalPrinterColumns"].as_array_mut().unwrap();
            let all = columns.len();
            columns.retain(|column| !own.contains(&column["name"].as_str().unwrap()));
            assert_eq!(columns.len() + own.len(), all, "{kind}: each of {own:?} is there once");
        }
        definition
    }

    #[test]
    fn kueue_kinds_equal_the_definitions_of_kueue() {
        let known: Vec<&str> = KUEUES.lines().filter(|line| !line.starts_with('#')).collect();
        let kueues = kinds::ALL.iter().filter(|kind| kind.is_kueues());
        let definitions = kueues.map(|kind| without_own(crd::definition(kind).unwrap()));
        let mut ours: Vec<String> =
            definitions.flat_map(|definition| versions(&definition).unwrap()).map(|version| version.digest()).collect();
        ours.sort_unstable();
        let differing: Vec<&String> = ours.iter().filter(|line| !known.contains(&line.as_str())).collect();
        assert!(
            differing.is_empty(),
            "not as in Kueue: {differing:?}; compare `xtask likeness --lines` of the file in crds/ and of Kueue's"
        );
        assert_eq!(ours, known, "every version of each kind, in order");
    }

    #[test]
    fn crd_digest_changes_with_schema_fields_and_not_with_descriptions() {
        let definition = |schema: Value, served: bool, column: &str| {
            json!({"spec": {"group": "g", "scope": "Cluster", "names": {"kind": "K", "shortNames": ["k"]}, "versions": [
                {"name": "v1", "served": served, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a", "description": column}]}]}})
        };
        let digest = |definition: &Value| versions(definition).unwrap()[0].digest();
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "integer", "maximum": 4, "description": "words"}, "b": {"type": "string"},
            "description": {"type": "string"}}});
        let first = digest(&definition(schema.clone(), true, "words"));
        let mut same = schema.clone();
        same["required"] = json!(["b", "a"]);
        same["description"] = json!("other words");
        same["x-kubernetes-validations"] = json!([{"rule": "true"}]);
        assert_eq!(digest(&definition(same, false, "others")), first);
        for (path, value) in [
            ("/properties/a/maximum", json!(5)),
            ("/properties/b/type", json!("integer")),
            ("/properties/description/type", json!("integer")),
            ("/required", json!(["a"])),
        ] {
            let mut other = schema.clone();
            *other.pointer_mut(path).unwrap() = value;
            assert_ne!(digest(&definition(other, true, "words")), first, "{path}");
        }
        let mut renamed = definition(schema, true, "words");
        renamed["spec"]["names"]["categories"] = json!(["all"]);
        assert_ne!(digest(&renamed), first);
    }
}
