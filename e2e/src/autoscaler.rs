//! A scripted autoscaler, which answers each ProvisioningRequest as the request's parameter `script` says. The scripted autoscaler creates and
//! removes no nodes and computes nothing, in contrast to the real autoscaler of a cloud.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::binaries::module_folder;
use crate::kinds::{self, items, key, text};

pub use crate::kinds::{POD_TEMPLATE, PROVISIONING_REQUEST};

/// Annotation of a job whose value is the script: the autoscaler's answers to the job's attempts, separated by commas. The last word of the script
/// also holds for all later attempts of the job. The words of the script are `provisioned`, `failed`, `expired` (provisioned, and the capacity is
/// withdrawn at once) and `accepted` (accepted, without any further answer).
pub const SCRIPT: &str = "provreq.kueue.x-k8s.io/script";

/// Pause before the autoscaler tries to write an answer again.
const PERIOD: Duration = Duration::from_millis(500);

/// The folder with the CRD of ProvisioningRequests, for [`crate::control_plane::Options`].
///
/// # Errors
/// Fails if the Go module of the cluster autoscaler cannot be downloaded.
pub async fn definitions() -> Result<PathBuf> {
    let module =
        tokio::task::spawn_blocking(|| module_folder("autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis"));
    Ok(module.await??.join("config/crd"))
}

/// The scripted autoscaler; its task ends when the value is dropped.
#[derive(Debug)]
pub struct ScriptedAutoscaler {
    task: JoinHandle<()>,
}

impl ScriptedAutoscaler {
    /// Starts the scripted autoscaler for all namespaces.
    #[must_use]
    pub fn start(client: Client) -> Self {
        Self { task: tokio::spawn(work(client)) }
    }
}

impl Drop for ScriptedAutoscaler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(client: Client) {
    let mut asked = BTreeMap::new();
    let requests = watcher::watcher(PROVISIONING_REQUEST.all(&client), watcher::Config::default());
    let mut requests = pin!(requests.default_backoff());
    loop {
        match tokio::time::timeout(PERIOD, requests.next()).await {
            Ok(Some(Ok(Event::Apply(request) | Event::InitApply(request)))) => {
                let Ok(request) = serde_json::to_value(request) else { continue };
                // The watch shows an answered ProvisioningRequest again, because the answer changed its status: the autoscaler does not answer it a second
                // time.
                asked.entry(text(&request, "/metadata/uid").to_owned()).or_insert(Some(request));
            }
            Ok(Some(Ok(Event::Delete(request)))) => drop(asked.remove(&request.uid().unwrap_or_default())),
            _ => {}
        }
        for request in asked.values_mut() {
            // If the autoscaler could not write an answer, it tries again in the next round.
            if let Some(open) = request
                && answer(&client, open).await.is_ok()
            {
                *request = None;
            }
        }
    }
}

async fn answer(client: &Client, request: &Value) -> Result<()> {
    let (namespace, name) = (text(request, "/metadata/namespace"), text(request, "/metadata/name"));
    for set in items(request, "/spec/podSets") {
        let template = text(set, "/podTemplateRef/name");
        if POD_TEMPLATE.get(client, namespace, template).await?.is_none() {
            let missing = format!("PodTemplate {template} does not exist");
            return say(client, request, &[("Failed", "True", &missing)]).await;
        }
    }
    let attempt: usize = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1);
    let words: Vec<&str> = text(request, "/spec/parameters/script").split(',').collect();
    let word = words.get(attempt.saturating_sub(1)).or(words.last()).copied().unwrap_or_default();
    let accepted = ("Accepted", "True", "in the queue");
    let provisioned = ("Provisioned", "True", "nodes are there");
    match word {
        "provisioned" => say(client, request, &[accepted, provisioned]).await,
        "failed" => say(client, request, &[accepted, ("Failed", "True", "no machines")]).await,
        "expired" => say(client, request, &[accepted, provisioned, ("BookingExpired", "True", "nobody came")]).await,
        _ => say(client, request, &[accepted, ("Provisioned", "False", "expected in an hour")]).await,
    }
}

/// Writes conditions into the status of a ProvisioningRequest, as an autoscaler does, and the details of the nodes' class (`provisioningClassDetails`).
///
/// # Errors
/// Fails when the API server refuses the request.
pub async fn say(client: &Client, request: &Value, conditions: &[(&str, &str, &str)]) -> Result<()> {
    let time = Timestamp::now().to_string();
    let condition = |&(kind, status, message): &(&str, &str, &str)| {
        let mut condition = json!({"type": kind, "status": status, "reason": kind, "message": message});
        condition["lastTransitionTime"] = json!(time);
        condition
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    let body = json!({"status": {"conditions": conditions, "provisioningClassDetails": {"Pool": "blue"}}});
    let api = PROVISIONING_REQUEST.api(client, text(request, "/metadata/namespace"));
    api.patch_status(text(request, "/metadata/name"), &PatchParams::default(), &Patch::Merge(&body))
        .await
        .with_context(|| format!("status of ProvisioningRequest {}", key(request)))?;
    Ok(())
}

/// Writes the event about a pod that GKE's autoscaler writes when a zone has no machines left.
///
/// # Errors
/// Fails when the API server refuses the request.
pub async fn gets_no_node(client: &Client, pod: &Value, words: &str) -> Result<Value> {
    let seconds = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let event = json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{name}.scale-up-failed")},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
            "uid": pod["metadata"]["uid"]},
        "reason": "FailedScaleUp", "type": "Warning", "message": words, "source": {"component": "cluster-autoscaler"},
        "firstTimestamp": seconds, "lastTimestamp": seconds, "count": 1});
    kinds::apply(client, &event).await
}
