//! The version v1beta1 of each of Kueue's kinds: made from Rust types of v1beta1 if conversion between the versions exists, and otherwise as changes to the
//! v1beta2 schema.
//!
//! A path such as `.spec.podSets[].count` names a property of the v1beta2 schema. A change to a path that the schema does not have is an error, so that v1beta1
//! cannot fall behind after an edit of the v1beta2 types.

use anyhow::{Context, Result, bail};
use berth_api::v1beta1::workload_rules;
use serde_json::{Map, Value, json};

use crate::crd::{older_version, root};
use crate::kinds::{Kind, Older};

/// The v1beta1 entry of a kind's CRD, made from its v1beta2 entry.
pub(crate) fn version(kind: &Kind, current: &Value) -> Result<Value> {
    let mut version = older_version(kind, current);
    if let Some(older) = &kind.older {
        version["schema"]["openAPIV3Schema"] = typed(kind, older)?;
        if kind.kind == "ClusterQueue" {
            version["additionalPrinterColumns"][0]["jsonPath"] = json!(".spec.cohort");
        }
        return Ok(version);
    }
    let mut schema = Schema(version["schema"]["openAPIV3Schema"].take());
    match kind.kind {
        "AdmissionCheck" => admission_check(&mut schema)?,
        "MultiKueueConfig" => {
            schema.unset(".spec.clusters[]", &["maxLength"])?;
            schema.unset(".spec.clusters", &["x-kubernetes-validations"])?;
            schema.set(".spec.clusters", "x-kubernetes-list-type", json!("set"))?;
            schema.drop(".spec.quotaManagement")?;
        }
        "ProvisioningRequestConfig" => {
            let lists = ["x-kubernetes-list-type", "x-kubernetes-list-map-keys"];
            schema.unset(".spec.podSetUpdates.nodeSelector", &lists)?;
            schema.unset(".spec.provisioningClassName", &["minLength"])?;
        }
        "ResourceFlavor" => {}
        "Topology" => {
            let levels = schema.at(".spec.levels")?;
            levels["x-kubernetes-validations"][0] = json!({"rule": "self == oldSelf", "message": "field is immutable"});
        }
        "WorkloadPriorityClass" => schema.unset(".description", &["maxLength"])?,
        other => bail!("no v1beta1 changes for {other}"),
    }
    version["schema"]["openAPIV3Schema"] = schema.0;
    Ok(version)
}

fn typed(kind: &Kind, older: &Older) -> Result<Value> {
    let rules = if kind.kind == "Workload" { workload_rules() } else { Vec::new() };
    root(kind, &(older.spec)(), Some(&(older.status)()), &rules)
}

fn admission_check(schema: &mut Schema) -> Result<()> {
    schema.unset(".status.conditions", &["maxItems"])?;
    schema.unset(".spec.controllerName", &["minLength", "maxLength"])?;
    for field in ["apiGroup", "kind", "name"] {
        schema.unset(&format!(".spec.parameters.{field}"), &["minLength"])?;
    }
    let delay = json!({
        "type": "integer", "format": "int64", "default": 15,
        "description": "Not used; kept so that old manifests are accepted.",
    });
    schema.add(".spec.retryDelayMinutes", delay)
}

/// A JSON schema with access to its properties by path.
struct Schema(Value);

impl Schema {
    fn at(&mut self, path: &str) -> Result<&mut Map<String, Value>> {
        let mut here = &mut self.0;
        for segment in path.split('.').skip(1) {
            let (field, is_list) = segment.strip_suffix("[]").map_or((segment, false), |field| (field, true));
            let child = here.get_mut("properties").and_then(|properties| properties.get_mut(field));
            here = child.with_context(|| format!("no {field} in {path}"))?;
            if is_list {
                here = here.get_mut("items").with_context(|| format!("{field} in {path} is not a list"))?;
            }
        }
        here.as_object_mut().with_context(|| format!("{path} is not an object"))
    }

    fn set(&mut self, path: &str, key: &str, value: Value) -> Result<()> {
        self.at(path)?.insert(key.to_owned(), value);
        Ok(())
    }

    fn unset(&mut self, path: &str, keys: &[&str]) -> Result<()> {
        let node = self.at(path)?;
        for key in keys {
            node.remove(*key).with_context(|| format!("{path} has no {key}"))?;
        }
        Ok(())
    }

    fn properties(&mut self, path: &str) -> Result<(&mut Map<String, Value>, String)> {
        let (parent, field) = path.rsplit_once('.').with_context(|| format!("path {path}"))?;
        let field = field.to_owned();
        let properties = self.at(parent)?.get_mut("properties").and_then(Value::as_object_mut);
        Ok((properties.with_context(|| format!("no properties above {path}"))?, field))
    }

    fn add(&mut self, path: &str, schema: Value) -> Result<()> {
        let (properties, field) = self.properties(path)?;
        match properties.insert(field, schema) {
            None => Ok(()),
            Some(_) => bail!("{path} exists already"),
        }
    }

    fn drop(&mut self, path: &str) -> Result<()> {
        let (properties, field) = self.properties(path)?;
        properties.remove(&field).with_context(|| format!("no {path}"))?;
        Ok(())
    }
}
