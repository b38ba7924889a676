//! In which versions the API server has stored Kueue's kinds. Where an older Kueue left objects as v1beta1, Berth does not begin:
//! each read of such an object needs its conversion, and a CRD that drops the version one day would be refused.

use crate::core_loop::Pulse;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::Deserialize;
use std::time::Duration;

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
/// The version that goes away.
const OLD: &str = "v1beta1";
/// Pause before asking again when nobody answered.
const RETRY: Duration = Duration::from_secs(2);

/// What is read of a definition: its schemas, half a megabyte of it, are passed over.
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

/// Asks about every kind, as long as it takes; one sentence per kind that forbids to begin.
pub(crate) async fn refusals(client: &Client, pulse: &Pulse) -> Vec<String> {
    let mut found = Vec::new();
    for kind in KINDS {
        let name = format!("{kind}.kueue.x-k8s.io");
        found.extend(ask(client, &name, pulse).await.and_then(|definition| refusal(&name, &definition)));
    }
    found
}

/// The definition; `None` when there is none, or it is not ours to read.
async fn ask(client: &Client, name: &str, pulse: &Pulse) -> Option<Definition> {
    let path = Request::new(CustomResourceDefinition::url_path(&(), None));
    loop {
        // A server that does not answer is no fault of this process: a restart would not help.
        pulse.beat();
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

/// What a definition says against beginning.
fn refusal(name: &str, definition: &Definition) -> Option<String> {
    let stored = &definition.status.stored_versions;
    stored.iter().any(|version| version == OLD).then(|| {
        format!(
            "CustomResourceDefinition {name}: status.storedVersions is [{}]; allowed is v1beta2 alone. Store every object anew \
             (kubectl get {name} -A -o json | kubectl replace -f -), then kubectl patch crd {name} --subresource=status \
             --type=merge -p '{{\"status\":{{\"storedVersions\":[\"v1beta2\"]}}}}', and start Berth again",
            stored.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_the_old_version_is_refused() {
        let read = |value: Value| serde_json::from_value::<Definition>(value).unwrap();
        let said = |versions: Value| {
            refusal("workloads.kueue.x-k8s.io", &read(json!({"status": {"storedVersions": versions}})))
        };
        assert_eq!(said(json!(["v1beta2"])), None);
        assert_eq!(said(json!([])), None);
        assert_eq!(refusal("a", &read(json!({}))), None);
        for versions in [json!(["v1beta1"]), json!(["v1beta1", "v1beta2"])] {
            let message = said(versions).unwrap();
            for part in
                ["CustomResourceDefinition workloads.kueue.x-k8s.io", "storedVersions is [v1beta1", "kubectl patch crd"]
            {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}
