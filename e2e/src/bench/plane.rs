//! The control plane of a benchmark run, with its audit log, and the few raw requests that a run makes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::StreamExt;
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::audit::Audit;
use super::subject::{self, Kind};
use crate::control_plane::{ControlPlane, Options};
use crate::kueue::Kueue;

/// Number of requests that the benchmark sends at once: enough to keep the API server busy on two cores.
pub const IN_FLIGHT: usize = 16;

/// A control plane on which the benchmark measures a program.
pub struct Bed {
    /// The control plane.
    pub plane: ControlPlane,
    /// Audit log of the control plane's API server.
    pub audit: Audit,
    /// An administrator's client.
    pub client: Client,
}

impl Bed {
    /// Starts a control plane with the CRDs and the rights of the measured program. If the parameter `controllers` is false, only etcd and the API server go on
    /// running: Workloads without jobs need no controllers, and the controllers would use time of the two measured cores.
    ///
    /// # Errors
    /// Fails if the control plane does not start.
    pub async fn start(name: &str, kind: &Kind, controllers: bool) -> Result<Bed> {
        let audit = Audit::create(&subject::users())?;
        let mut options = Options::with_crds(&format!("bench-{name}"));
        // The CRDs are the measured operator's own, because the cost of their schemas is part of the operator's cost.
        let definitions = kind.kueue().map(Kueue::definitions).transpose()?;
        if let Some(folder) = &definitions {
            options.crds = vec![folder.path().to_owned()];
        }
        options.api_server_args = audit.args();
        let plane = ControlPlane::start(options).await?;
        let client = plane.client();
        let bed = Bed { plane, audit, client };
        kind.install(&bed.client).await?;
        if !controllers {
            for program in ["kube-controller-manager", "kube-scheduler", "kwok"] {
                bed.plane.signal(program, "KILL")?;
            }
        }
        Ok(bed)
    }

    /// Stops all programs of the control plane.
    pub async fn stop(self) {
        self.plane.stop().await;
    }
}

/// Sends one request with a JSON body; the answer is read and dropped.
///
/// # Errors
/// Fails if the API server refuses the request or does not answer.
pub async fn send(client: &Client, method: &str, path: &str, kind: &str, body: &Value) -> Result<()> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(serde_json::to_vec(body)?)?;
    client.request::<IgnoredAny>(request).await.map(drop).with_context(|| format!("{method} {path}"))
}

/// Creates an object.
///
/// # Errors
/// Fails as [`send`] does.
pub async fn create(client: &Client, path: &str, body: &Value) -> Result<()> {
    send(client, "POST", path, "application/json", body).await
}

/// Applies an object server-side under the field manager `manager`.
///
/// # Errors
/// Fails as [`send`] does.
pub async fn apply(client: &Client, path: &str, manager: &str, body: &Value) -> Result<()> {
    send(client, "PATCH", &format!("{path}?fieldManager={manager}&force=true"), "application/apply-patch+yaml", body)
        .await
}

/// Path of the collection of Workloads in a namespace.
pub fn workloads(namespace: &str) -> String {
    format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads")
}

/// Runs `work` for each item, for at most [`IN_FLIGHT`] items at once.
///
/// # Errors
/// Fails with the first error of `work`.
pub async fn each<T, F, Fut>(items: Vec<T>, work: F) -> Result<()>
where
    F: Fn(T) -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let mut all = futures::stream::iter(items).map(work).buffer_unordered(IN_FLIGHT);
    while let Some(done) = all.next().await {
        done?;
    }
    Ok(())
}

/// Deletes all objects of the collection at `path` and waits until they are gone.
///
/// # Errors
/// Fails if objects of the collection remain after five minutes.
pub async fn clear(client: &Client, path: &str) -> Result<()> {
    let options = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    send(client, "DELETE", path, "application/json", &options).await?;
    let mut left = Vec::new();
    for _ in 0..600 {
        let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        let list: Value = client.request(request).await?;
        left = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(anyhow!("objects of {path} stay after their deletion: {left:?}"))
}

/// Creates a namespace, and does not wait for a service account in it, because no controller runs here that creates service accounts.
///
/// # Errors
/// Fails when the API server refuses the namespace.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    crate::kinds::apply(client, &object).await.map(drop)
}

/// Applies manifests, at most [`IN_FLIGHT`] manifests at once.
///
/// # Errors
/// Fails with the API server's first refusal.
pub async fn apply_all(client: &Client, objects: Vec<Value>) -> Result<()> {
    ensure!(!objects.is_empty(), "nothing to apply");
    let client = Arc::new(client.clone());
    each(objects, |object| {
        let client = Arc::clone(&client);
        async move { crate::kinds::apply(&client, &object).await.map(drop) }
    })
    .await
}
