//! Objects of a scenario that go before its end.

use anyhow::Result;

use super::Scenario;
use crate::kinds::{Kind, POD, WORKLOAD, items, text};

impl Scenario<'_> {
    /// Deletes all objects of these kinds in the namespace.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete_all(&self, kinds: &[Kind]) -> Result<()> {
        for kind in kinds {
            for object in kind.list(&self.client, &self.namespace).await? {
                kind.delete(&self.client, &self.namespace, text(&object, "/metadata/name")).await?;
            }
        }
        Ok(())
    }

    /// Deletes the Workloads of groups of pods, which outlive these, and pods that nobody controls.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete_groups_and_pods(&self) -> Result<()> {
        for workload in WORKLOAD.list(&self.client, &self.namespace).await? {
            if !text(&workload, "/metadata/annotations/kueue.x-k8s.io~1is-group-workload").is_empty() {
                WORKLOAD.delete(&self.client, &self.namespace, text(&workload, "/metadata/name")).await?;
            }
        }
        for pod in POD.list(&self.client, &self.namespace).await? {
            if items(&pod, "/metadata/ownerReferences").is_empty() {
                POD.delete(&self.client, &self.namespace, text(&pod, "/metadata/name")).await?;
            }
        }
        Ok(())
    }
}
