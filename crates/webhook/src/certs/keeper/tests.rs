//! Tests of the keeper of certificates with a small API server in memory.

use super::*;
use berth_jobs::Facts;
use http::{Method, Response};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Stored objects by path, and the number of writes that will still be refused with a conflict.
#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    conflicts: u32,
}

impl Store {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Result<Value, u16> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        match *method {
            Method::GET => self.objects.get(path).cloned().ok_or(404),
            Method::POST => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                self.objects.insert(path, body.clone());
                Ok(body)
            }
            _ if self.conflicts > 0 => {
                self.conflicts -= 1;
                Err(409)
            }
            _ => {
                let stored = self.objects.get_mut(path).ok_or(404_u16)?;
                stored.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
                Ok(stored.clone())
            }
        }
    }
}

/// A client of the API server in memory; watches never answer, so that no change is seen by a watch.
fn server(store: &Arc<Mutex<Store>>) -> Client {
    let store = Arc::clone(store);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let store = Arc::clone(&store);
        async move {
            let (parts, body) = request.into_parts();
            if parts.uri.query().unwrap_or_default().contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let body = body.collect_bytes().await.unwrap();
            let answer = store.lock().unwrap().answer(&parts.method, parts.uri.path(), &body);
            let failure = |code| {
                let reason = if code == 404 { "NotFound" } else { "Conflict" };
                (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code}))
            };
            let (code, body) = answer.map_or_else(failure, |object| (200, object));
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            Ok::<_, kube::Error>(response.unwrap())
        }
    });
    Client::new(service, "default")
}

struct Around;

impl ClusterFacts for Around {
    fn has_kind(&self, _: berth_jobs::JobType) -> bool {
        true
    }

    fn facts(&self, _: &str) -> Facts {
        Facts::default()
    }

    fn governs(&self, _: &str, _: &crate::ObjectMeta, _: &crate::OwnerReference) -> bool {
        false
    }

    fn stateful_set(&self, _: &str, _: &str) -> Option<berth_jobs::pods::OwningSet> {
        None
    }

    fn opted_in(&self) -> Option<BTreeMap<&'static str, Value>> {
        Some(BTreeMap::from([("jobs", namespaces())]))
    }

    fn accelerators(&self) -> berth_jobs::training::Accelerators {
        berth_jobs::training::Accelerators::default()
    }
}

impl Meter for Around {
    fn answered(&self, _: &'static str, _: &'static str, _: f64) {}

    fn refused(&self, _: &'static str) {}

    fn expires(&self, _: i64) {}
}

fn namespaces() -> Value {
    json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]}]})
}

#[tokio::test]
async fn certificate_keeper_repeats_a_conflicting_patch_with_namespaces_and_bundle() {
    let path =
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/berth-mutating-webhook-configuration";
    let client = json!({"service": {"namespace": "ns", "name": "berth"}});
    let configuration = json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
        {"name": "mjob-opted-in.berth.dev", "clientConfig": client, "rules": [{"resources": ["jobs"]}], "namespaceSelector": {}}]});
    let store =
        Arc::new(Mutex::new(Store { objects: BTreeMap::from([(path.to_owned(), configuration)]), conflicts: 1 }));
    let around = Arc::new(Around);
    let keeper = Keeper {
        client: server(&store),
        namespace: "ns".to_owned(),
        service: "berth".to_owned(),
        configurations: ["berth-mutating-webhook-configuration", "berth-validating-webhook-configuration"],
        source: Source::Own {
            secret: "secret".to_owned(),
            policy: Policy::new(vec!["berth.ns.svc".to_owned()], SignedDuration::from_secs(60)),
        },
        served: Arc::default(),
        cluster_facts: Arc::clone(&around) as Arc<dyn ClusterFacts>,
        meter: around,
        changed: Arc::default(),
        converted: Vec::new(),
    };
    let served = Arc::clone(&keeper.served);
    let keeping = tokio::spawn(keeper.run());
    let reported_by = |store: &Store| {
        let webhook = &store.objects[path]["webhooks"][0];
        webhook["namespaceSelector"] == namespaces() && !webhook["clientConfig"]["caBundle"].is_null()
    };
    let waited = tokio::time::timeout(HURRY * 20, async {
        while !reported_by(&store.lock().unwrap()) || served.trouble().is_some() {
            tokio::time::sleep(SETTLE).await;
        }
    });
    let waited = waited.await;
    let stored = store.lock().unwrap().objects[path].clone();
    assert!(waited.is_ok() && store.lock().unwrap().conflicts == 0, "long before the next look of itself: {stored}");
    keeping.abort();
}
