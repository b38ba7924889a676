//! A watch that decodes only the fields that the benchmark needs, so that the watch uses little of the measured CPU time.

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kube::Client;
use kube::core::WatchEvent;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A watched object, with only the fields that the benchmark reads.
#[derive(Clone, Debug, Deserialize)]
pub struct Slim {
    /// Metadata.
    pub metadata: Meta,
    /// Status.
    #[serde(default)]
    pub status: Status,
}

/// Metadata of a [`Slim`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Version.
    #[serde(default)]
    pub resource_version: String,
}

/// Status of a [`Slim`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Status {
    /// Conditions.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A condition of a Workload with the fields that the benchmark writes back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status.
    pub status: String,
    /// Reason.
    #[serde(default)]
    pub reason: String,
    /// Message.
    #[serde(default)]
    pub message: String,
    /// Time of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Slim {
    /// Whether the object's condition of the type `kind` is True.
    pub fn is(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|c| c.kind == kind && c.status == "True")
    }
}

/// A running watch; the watch ends when the value is dropped.
#[derive(Debug)]
pub struct Feed {
    /// Objects that the watch has shown as added or changed, in the order in which the watch has shown them.
    pub changes: mpsc::UnboundedReceiver<Slim>,
    task: JoinHandle<()>,
}

#[derive(Deserialize)]
struct Listed {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

impl Feed {
    /// Starts a watch of the collection at `path` (without query), which shows changes from now on.
    ///
    /// # Errors
    /// Fails if the collection cannot be listed or watched.
    pub async fn start(client: &Client, path: &str) -> Result<Feed> {
        let list = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        let listed: Listed = client.request(list).await.with_context(|| format!("listing {path}"))?;
        let (send, changes) = mpsc::unbounded_channel();
        let follow = follow(client.clone(), path.to_owned(), listed.metadata.resource_version, send);
        let task = tokio::spawn(async move {
            if let Err(e) = follow.await {
                eprintln!("bench: watch failed: {e:#}");
            }
        });
        Ok(Feed { changes, task })
    }

    /// The next object that the watch shows as added or changed.
    ///
    /// # Errors
    /// Fails if the watch has ended.
    pub async fn next(&mut self) -> Result<Slim> {
        match self.changes.recv().await {
            Some(object) => Ok(object),
            None => bail!("the watch of the benchmark ended"),
        }
    }
}

/// Watches a collection from the resourceVersion `version` on. The API server closes a watch that it finds too slow, which happens on a busy machine:
/// the next watch then goes on from the last resourceVersion.
async fn follow(client: Client, path: String, mut version: String, send: mpsc::UnboundedSender<Slim>) -> Result<()> {
    loop {
        let watch = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds=7200");
        let events = client.request_events::<Slim>(http::Request::get(watch).body(Vec::new())?).await?;
        let mut events = Box::pin(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    version.clone_from(&object.metadata.resource_version);
                    if send.send(object).is_err() {
                        return Ok(());
                    }
                }
                Ok(WatchEvent::Deleted(object)) => version = object.metadata.resource_version,
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Error(e)) => bail!("{e:?}"),
                Err(e) => {
                    eprintln!("bench: watch broke off and goes on: {e}");
                    break;
                }
            }
        }
        if send.is_closed() {
            return Ok(());
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}
