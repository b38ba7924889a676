//! Watches that request only metadata: the pods of jobs. A cluster may have tens of thousands of pods of jobs, and Berth keeps few of these pods in memory.

use std::sync::Arc;

use berth_api::labels::POD_SET;
use berth_control::event::{JobPod, Observation};
use http::header::ACCEPT;
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::client::{Body, Client};
use kube::core::ApiResource;

use super::{Kind, decode};

/// Media type for the metadata of one object, or of a watch event.
const ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Media type for a list of metadata.
pub(crate) const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A client that sends its requests through the given client, and whose lists and watches request metadata only.
fn only(client: &Client) -> Client {
    let client = client.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|pair| pair == "watch=true");
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(if watches { ONE } else { LIST }));
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}

impl Kind {
    /// Watch of the started pods of jobs: pods with the label `kueue.x-k8s.io/podset`, which names their pod set.
    pub(super) fn of_started_pods() -> Self {
        Self {
            resource: ApiResource::erase::<Pod>(&()),
            decode: Arc::new(|change| decode(change, JobPod::read, Observation::JobPod, |_| None)),
            needs: None,
            reports_served: None,
            integration: None,
            selector: Some(POD_SET.to_owned()),
            // Without the list of started pods, control does not see pods that no Job counts; other kinds still show which jobs wait, run and end.
            dispensable: true,
            holds_up: None,
            metadata_only: true,
            called: Some("pods of jobs"),
        }
    }

    /// The client for lists and watches of this kind, which requests only metadata if the kind needs no more.
    pub(super) fn client(&self, client: &Client) -> Client {
        if self.metadata_only { only(client) } else { client.clone() }
    }
}
