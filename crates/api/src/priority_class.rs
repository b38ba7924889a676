//! WorkloadPriorityClass: priority for queueing, independent of the priority of pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named queueing priority.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct WorkloadPriorityClass {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: kube_core::ObjectMeta,
    /// Value of the priority; workloads with a higher value go first.
    pub value: i32,
    /// Description of the use of this class.
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
}

impl Serialize for WorkloadPriorityClass {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("WorkloadPriorityClass", 5)?;
        out.serialize_field("apiVersion", crate::API_VERSION)?;
        out.serialize_field("kind", "WorkloadPriorityClass")?;
        out.serialize_field("metadata", &self.metadata)?;
        out.serialize_field("value", &self.value)?;
        if let Some(description) = &self.description {
            out.serialize_field("description", description)?;
        }
        out.end()
    }
}

resource_identity!(WorkloadPriorityClass, "workloadpriorityclasses", ClusterResourceScope);
