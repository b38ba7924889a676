//! How each kind looked in v1beta1, as changes to its v1beta2 schema.
//!
//! A path such as `.spec.podSets[].count` names a property; a change to a path that does not exist is an error, so
//! that an edit of the types cannot silently miss the older version.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::crd::older_version;
use crate::kinds::Kind;

const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The v1beta1 entry of a kind, made from its v1beta2 entry.
pub(crate) fn version(kind: &Kind, current: &Value) -> Result<Value> {
    let mut version = older_version(kind, current);
    let mut schema = Schema(version["schema"]["openAPIV3Schema"].take());
    if kind.status.is_some() && kind.kind != "Cohort" {
        schema.unset(".status.conditions", &["maxItems"])?;
    }
    match kind.kind {
        "AdmissionCheck" => admission_check(&mut schema)?,
        "ClusterQueue" => {
            version["additionalPrinterColumns"][0]["jsonPath"] = json!(".spec.cohort");
            cluster_queue(&mut schema)?;
        }
        "Cohort" => shared_quota(&mut schema)?,
        "LocalQueue" => local_queue(&mut schema)?,
        "MultiKueueCluster" => multikueue_cluster(&mut schema)?,
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
        "Workload" => workload(&mut schema)?,
        other => bail!("no v1beta1 changes for {other}"),
    }
    version["schema"]["openAPIV3Schema"] = schema.0;
    Ok(version)
}

fn admission_check(schema: &mut Schema) -> Result<()> {
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

/// What ClusterQueue and Cohort have in common.
fn shared_quota(schema: &mut Schema) -> Result<()> {
    schema.unset(".spec.resourceGroups[].coveredResources", &["x-kubernetes-list-type"])?;
    let quantity = schema.at(".spec.resourceGroups[].flavors[].resources[].nominalQuota")?.clone();
    let mut amounts = quantity;
    amounts.remove("description");
    schema.add(
        ".status.fairSharing.admissionFairSharingStatus",
        json!({
            "type": "object",
            "required": ["consumedResources", "lastUpdate"],
            "properties": {
                "consumedResources": {"type": "object", "additionalProperties": amounts},
                "lastUpdate": {"type": "string", "format": "date-time"},
            },
        }),
    )
}

fn cluster_queue(schema: &mut Schema) -> Result<()> {
    shared_quota(schema)?;
    schema.rename(".spec", "cohortName", "cohort")?;
    let rule = &mut schema.at(".spec")?["x-kubernetes-validations"][0]["rule"];
    *rule = json!(rule.as_str().context("rule")?.replace("self.cohortName", "self.cohort"));
    let checks = json!({
        "type": "array", "items": {"type": "string", "maxLength": 316},
        "description": "Names of AdmissionChecks that run for all flavors.",
    });
    schema.add(".spec.admissionChecks", checks)?;
    let lists = ["x-kubernetes-list-type", "x-kubernetes-list-map-keys", "minItems", "maxItems"];
    schema.unset(".spec.admissionChecksStrategy", &["required"])?;
    schema.unset(".spec.admissionChecksStrategy.admissionChecks", &lists)?;
    schema.unset(".spec.admissionChecksStrategy.admissionChecks[].name", &["minLength"])?;
    schema
        .unset(".spec.admissionChecksStrategy.admissionChecks[].onFlavors", &["x-kubernetes-list-type", "maxItems"])?;
    schema.unset(".spec.admissionScope.admissionMode", &["enum"])?;
    schema.drop(".spec.concurrentAdmissionPolicy")?;
    for (field, older) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        let values = json!(["MayStopSearch", "TryNextFlavor", older]);
        schema.set(&format!(".spec.flavorFungibility.{field}"), "enum", values)?;
    }
    schema.add(
        ".status.pendingWorkloadsStatus",
        json!({
            "type": "object",
            "description": "Not used; kept so that old objects are accepted.",
            "required": ["lastChangeTime"],
            "properties": {
                "clusterQueuePendingWorkload": {
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": {
                        "type": "object",
                        "required": ["name", "namespace"],
                        "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
                    },
                },
                "lastChangeTime": {"type": "string", "format": "date-time"},
            },
        }),
    )
}

fn local_queue(schema: &mut Schema) -> Result<()> {
    schema.rename(".status", "flavorsUsage", "flavorUsage")?;
    let name = || json!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN});
    let text = || json!({"type": "string"});
    schema.add(
        ".status.flavors",
        json!({
            "type": "array",
            "description": "Not used; kept so that old objects are accepted.",
            "maxItems": 64,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": name(),
                    "nodeLabels": {
                        "type": "object", "additionalProperties": text(), "maxProperties": 8,
                        "x-kubernetes-map-type": "atomic",
                    },
                    "nodeTaints": {
                        "type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic",
                        "items": {
                            "type": "object",
                            "required": ["effect", "key"],
                            "properties": {
                                "effect": text(), "key": text(), "value": text(),
                                "timeAdded": {"type": "string", "format": "date-time"},
                            },
                        },
                    },
                    "resources": {
                        "type": "array", "items": text(), "maxItems": 64, "x-kubernetes-list-type": "set",
                    },
                    "topology": {
                        "type": "object",
                        "required": ["levels", "name"],
                        "properties": {
                            "levels": {
                                "type": "array", "items": text(), "minItems": 1, "maxItems": 16,
                                "x-kubernetes-list-type": "atomic",
                            },
                            "name": name(),
                        },
                    },
                },
            },
        }),
    )
}

fn multikueue_cluster(schema: &mut Schema) -> Result<()> {
    for field in ["kubeConfig", "clusterProfileRef"] {
        let moved = schema.at(&format!(".spec.clusterSource.{field}"))?.clone();
        schema.add(&format!(".spec.{field}"), Value::Object(moved))?;
    }
    schema.drop(".spec.clusterSource")?;
    schema.set(".spec", "required", json!(["kubeConfig"]))?;
    schema.unset(".spec.kubeConfig.location", &["minLength", "maxLength"])?;
    schema.set(".spec.kubeConfig", "required", json!(["location", "locationType"]))
}

fn workload(schema: &mut Schema) -> Result<()> {
    workload_limits(schema)?;
    schema.drop(".spec.preemptionGates")?;
    schema.drop(".status.preemptionGates")?;
    schema.drop(".spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints")?;
    schema.set(".spec", "required", json!(["podSets"]))?;
    schema.set(".spec.podSets[]", "required", json!(["count", "template"]))?;
    schema.set(".status.admission", "required", json!(["clusterQueue", "podSetAssignments"]))?;
    schema.set(".status.admission.podSetAssignments[]", "required", json!(["name"]))?;
    schema.rename(".status", "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")?;

    schema.drop(".spec.priorityClassRef")?;
    let name = json!({
        "type": "string", "maxLength": 253, "pattern": SUBDOMAIN,
        "description": "Name of the class that `priority` came from.",
    });
    schema.add(".spec.priorityClassName", name)?;
    let source = json!({
        "type": "string", "default": "",
        "enum": ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""],
        "description": "Kind of the class that `priority` came from.",
    });
    schema.add(".spec.priorityClassSource", source)?;
    schema.at(".spec")?["x-kubernetes-validations"][0] = json!({
        "rule": "has(self.priorityClassName) ? has(self.priority) : true",
        "message": "priority should not be nil when priorityClassName is set",
    });
    workload_topology(schema)?;
    workload_rules(schema)
}

/// Limits that came only with v1beta2.
fn workload_limits(schema: &mut Schema) -> Result<()> {
    let request = ".spec.podSets[].topologyRequest";
    let unbounded = [
        "podIndexLabel",
        "podSetGroupName",
        "podSetSliceRequiredTopology",
        "preferred",
        "required",
        "subGroupIndexLabel",
    ];
    for field in unbounded {
        schema.unset(&format!("{request}.{field}"), &["maxLength"])?;
    }
    schema.unset(&format!("{request}.subGroupCount"), &["minimum"])?;
    schema.unset(".status.admissionChecks[].name", &["minLength"])?;
    schema.unset(".status.admissionChecks[].podSetUpdates[].tolerations", &["x-kubernetes-list-type"])?;
    schema.unset(".status.clusterName", &["maxLength"])?;
    schema.unset(".status.nominatedClusterNames[]", &["maxLength"])?;
    schema.unset(".status.schedulingStats.evictions", &["maxItems"])?;
    schema.unset(".status.unhealthyNodes[].name", &["maxLength"])?;
    schema.unset(".status.unhealthyNodes", &["maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"])?;
    schema.unset(".status.admission.podSetAssignments[].delayedTopologyRequest", &["enum", "maxLength"])
}

/// Placements were a plain list of domains.
fn workload_topology(schema: &mut Schema) -> Result<()> {
    let assignment = ".status.admission.podSetAssignments[].topologyAssignment";
    schema.unset(&format!("{assignment}.levels[]"), &["maxLength"])?;
    schema.drop(&format!("{assignment}.slices"))?;
    schema.unset(assignment, &["x-kubernetes-validations"])?;
    schema.set(assignment, "required", json!(["domains", "levels"]))?;
    schema.add(
        &format!("{assignment}.domains"),
        json!({
            "type": "array",
            "description": "Domains with their values and pod counts.",
            "items": {
                "type": "object",
                "required": ["count", "values"],
                "properties": {
                    "count": {"type": "integer", "format": "int32", "minimum": 1},
                    "values": {
                        "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 16,
                        "x-kubernetes-list-type": "atomic",
                    },
                },
            },
        }),
    )
}

/// The rules about the reference to a class, for a class given by name and source.
fn workload_rules(schema: &mut Schema) -> Result<()> {
    let reserved = "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
                    c.type == 'QuotaReserved' && c.status == 'True'))";
    let sources = "has(oldSelf.spec) && has(oldSelf.spec.priorityClassSource) && has(self.spec) && \
                   has(self.spec.priorityClassSource)";
    let names = "has(oldSelf.spec.priorityClassName) && has(self.spec.priorityClassName)";
    let about_source = json!({
        "rule": format!(
            "!({reserved} && {sources}) || self.spec.priorityClassSource == oldSelf.spec.priorityClassSource"
        ),
        "message": "priorityClassSource is immutable while workload quota reserved",
    });
    let about_name = json!({
        "rule": format!(
            "!({reserved} && {sources} && {names}) || \
             self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass' || \
             self.spec.priorityClassName == oldSelf.spec.priorityClassName"
        ),
        "message": "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to kueue.x-k8s.io/workloadpriorityclass",
    });
    let rules = schema.0["x-kubernetes-validations"].as_array().context("rules of the root")?;
    let kept: Vec<Value> = rules
        .iter()
        .filter(|rule| !rule["message"].as_str().is_some_and(|message| message.starts_with("priorityClassRef")))
        .cloned()
        .collect();
    let (first, rest) = kept.split_first().context("rules of the root")?;
    schema.0["x-kubernetes-validations"] =
        [first.clone(), about_source, about_name].into_iter().chain(rest.iter().cloned()).collect();
    Ok(())
}

/// A schema that can be changed by path.
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

    fn rename(&mut self, parent: &str, from: &str, to: &str) -> Result<()> {
        let schema = self.at(&format!("{parent}.{from}"))?.clone();
        self.drop(&format!("{parent}.{from}"))?;
        self.add(&format!("{parent}.{to}"), Value::Object(schema))
    }
}
