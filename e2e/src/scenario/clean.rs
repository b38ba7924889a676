//! Deletion of a scenario's objects before the scenario ends.

use anyhow::{Context, Result};

use super::Scenario;
use crate::kinds::{CLUSTER_QUEUE, Kind, POD, WORKLOAD, items, text};
use crate::quota_tree::reserved;
use crate::wait::{self, STEP, Seen};

impl Scenario<'_> {
    /// Deletes all objects of the kinds `kinds` in the scenario's namespace.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn delete_all(&self, kinds: &[Kind]) -> Result<()> {
        for kind in kinds {
            for object in kind.list(&self.client, &self.namespace).await? {
                kind.delete(&self.client, &self.namespace, text(&object, "/metadata/name")).await?;
            }
        }
        Ok(())
    }

    /// Deletes the namespace with all objects in it. The namespace must be gone within 60 s, and the scenario's own queue must have no reservation
    /// afterwards.
    ///
    /// # Errors
    /// Fails if an object of the namespace remains, or if the queue has a reservation.
    pub async fn ends_with_its_namespace(&self) -> Result<()> {
        let deletion = ["delete", "namespace", &self.namespace, "--timeout=60s"];
        self.stage.plane.kubectl(&deletion).await.context("what is in the namespace keeps it")?;
        let queue = self.name("cq");
        wait::until(STEP, &format!("queue {queue} holds nothing"), || async {
            let queue = CLUSTER_QUEUE.get(&self.client, "", &queue).await?.unwrap_or_default();
            Ok(Seen::when(reserved(&queue, "total") == 0, || queue["status"].to_string()))
        })
        .await
    }

    /// Deletes the Workloads of pod groups, which outlive the groups, and deletes pods without a controller.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
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
