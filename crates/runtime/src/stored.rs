//! The versions in which the API server has stored objects of Kueue's kinds. Berth does not lead while an older Kueue's objects are stored as v1beta1, because
//! each read of such an object needs a conversion, and the API server would refuse a CRD without v1beta1. The process keeps running while it must not lead,
//! because its own webhook may be the conversion webhook, without which no client could store the objects again.

use crate::liveness::Liveness;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::Instant;

/// Plural names of Kueue's kinds.
const KINDS: [&str; 11] = [
    "admissionchecks",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "multikueueclusters",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
    "workloads",
];
/// The API version in which no object of Kueue's kinds may be stored when Berth leads.
const OLD: &str = "v1beta1";
/// Pause before the next request for a CustomResourceDefinition if the API server has not answered.
const RETRY: Duration = Duration::from_secs(2);
/// Pause before the next check whether the objects were stored in a newer version.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
/// Time after which the log line about objects in the old version is repeated.
const REMINDER: Duration = Duration::from_secs(600);

/// The fields of a CustomResourceDefinition that Berth reads; the schemas of the definition, half a megabyte, are skipped.
#[derive(Deserialize)]
struct Definition {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    stored_versions: Vec<String>,
}

/// Waits until no object of Kueue's kinds is stored in the version [`OLD`], and logs the kinds with such objects and the commands that store these objects
/// again. During this wait, `liveness` shows that the process may not lead yet.
pub(crate) async fn settled(client: &Client, liveness: &Liveness, again: Duration) {
    let mut logged: Option<(Vec<String>, Instant)> = None;
    loop {
        let refusals = refusals(client).await;
        liveness.hold(!refusals.is_empty());
        if refusals.is_empty() {
            if logged.is_some() {
                tracing::info!("every object is stored in one version now: Berth may lead");
            }
            return;
        }
        if logged.as_ref().is_none_or(|(before, at)| *before != refusals || at.elapsed() >= REMINDER) {
            tracing::error!("Berth does not lead, and only serves its webhooks: {}", refusals.join("; "));
            logged = Some((refusals, Instant::now()));
        }
        tokio::time::sleep(again).await;
    }
}

/// Asks the API server for the CustomResourceDefinition of every kind of Kueue, and repeats failed requests. Returns one sentence for each kind whose stored
/// versions forbid this process to lead.
async fn refusals(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for kind in KINDS {
        let name = format!("{kind}.kueue.x-k8s.io");
        found.extend(ask(client, &name).await.and_then(|definition| refusal(&name, &definition)));
    }
    found
}

/// The CustomResourceDefinition of a kind; `None` if there is none, or Berth may not read it.
async fn ask(client: &Client, name: &str) -> Option<Definition> {
    let path = Request::new(CustomResourceDefinition::url_path(&(), None));
    loop {
        let Ok(request) = path.get(name, &GetParams::default()) else { return None };
        match client.request(request).await {
            Ok(found) => return Some(found),
            Err(Error::Api(status)) if status.code == 404 => return None,
            Err(Error::Api(status)) if matches!(status.code, 401 | 403) => {
                tracing::warn!(name, message = status.message, "cannot see in which versions objects are stored");
                return None;
            }
            Err(error) => tracing::warn!(name, %error, "asking in which versions objects are stored"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reason in a CustomResourceDefinition why the process must not lead yet. The log escapes double quotes, so the command in the reason has no double quotes.
fn refusal(name: &str, definition: &Definition) -> Option<String> {
    let stored = &definition.status.stored_versions;
    stored.iter().any(|version| version == OLD).then(|| {
        format!(
            "CustomResourceDefinition {name}: status.storedVersions is [{}]; allowed is v1beta2 alone. Store every object anew \
             (kubectl get {name} -A -o json | kubectl replace -f -), then kubectl patch crd {name} --subresource=status \
             --type=merge -p '{{status: {{storedVersions: [v1beta2]}}}}', which Berth sees within a minute",
            stored.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn stored_version_v1beta1_is_refused_with_a_migration_command() {
        let read = |value: Value| serde_json::from_value::<Definition>(value).unwrap();
        let refusal_of = |versions: Value| {
            refusal("workloads.kueue.x-k8s.io", &read(json!({"status": {"storedVersions": versions}})))
        };
        assert_eq!(refusal_of(json!(["v1beta2"])), None);
        assert_eq!(refusal_of(json!([])), None);
        assert_eq!(refusal("a", &read(json!({}))), None);
        for versions in [json!(["v1beta1"]), json!(["v1beta1", "v1beta2"])] {
            let message = refusal_of(versions).unwrap();
            for part in
                ["CustomResourceDefinition workloads.kueue.x-k8s.io", "storedVersions is [v1beta1", "kubectl patch crd"]
            {
                assert!(message.contains(part), "{message}");
            }
        }
    }
    #[tokio::test]
    async fn startup_waits_for_storage_migration_while_serving_webhooks() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            // The test's API server reports Workloads as stored in the new version from the third round of requests on.
            let round = count.fetch_add(1, Ordering::Relaxed) / KINDS.len();
            let old = round < 2 && request.uri().path().ends_with("/workloads.kueue.x-k8s.io");
            let versions = if old { json!(["v1beta1", "v1beta2"]) } else { json!(["v1beta2"]) };
            let body = json!({"status": {"storedVersions": versions}}).to_string();
            async move { Ok::<_, kube::Error>(http::Response::new(Body::from(body.into_bytes()))) }
        });
        let (client, liveness) = (Client::new(service, "default"), Liveness::default());
        let mut settled = Box::pin(settled(&client, &liveness, Duration::from_secs(1)));
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut settled).await.is_err());
        assert!(liveness.ready(), "who may not lead serves webhooks all the same");
        tokio::time::timeout(Duration::from_secs(10), settled).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3 * KINDS.len());
        assert!(!liveness.ready(), "from here on everything has to be listed");
    }
}
