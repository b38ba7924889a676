//! The writer against a small HTTP service in memory.

use super::*;
use crate::leadership::State;
use berth_control::write::{Kind, Purpose, StuckPod, Term, WriteId};
use http::Response;
use std::sync::Mutex;

type Seen = Arc<Mutex<Vec<(String, String, String, String)>>>;

fn answering(code: u16, body: &'static str, seen: Seen) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body_in) = request.into_parts();
            let bytes = body_in.collect_bytes().await?;
            let header = |name| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
            seen.lock().unwrap().push((
                parts.method.to_string(),
                parts.uri.to_string(),
                header(CONTENT_TYPE),
                String::from_utf8(bytes.to_vec()).unwrap(),
            ));
            if code == 0 {
                std::future::pending::<()>().await;
            }
            Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(body.as_bytes().to_vec())).unwrap())
        }
    });
    Client::new(service, "default")
}

fn write(kind: Kind, namespace: &str, request: Request) -> Write {
    Write {
        id: WriteId(1),
        term: Term(4),
        purpose: Purpose::ReserveQuota,
        key: ObjectKey { kind, namespace: namespace.into(), name: "w".into() },
        request,
    }
}

fn writer(client: Client, state: State) -> (tokio::sync::watch::Sender<State>, Writer) {
    let (sender, leadership) = Leadership::new(Duration::from_secs(10));
    sender.send_replace(state);
    let stores = Stores::new(client.clone(), None);
    (sender, Writer::new(client, leadership, stores, Arc::new(Metrics::new("test"))))
}

const LEADING: State = State { term: Some(Term(4)), until: None };

#[tokio::test]
async fn pods_that_were_not_told_are_told_once() {
    let seen = Seen::default();
    let list = r#"{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [
        {"metadata": {"name": "a"}}, {"metadata": {"name": "b", "annotations": {"stop": "now"}}}]}"#;
    let (_sender, writer) = writer(answering(200, list, Arc::clone(&seen)), LEADING);
    let annotations = std::collections::BTreeMap::from([("stop".to_owned(), "now".to_owned())]);
    let request = Request::AnnotatePods { label: "job-uid", uid: "u 1".into(), annotations };
    let told = writer.perform(&write(Kind::Workload, "ns", request)).await;
    assert!(matches!(told, Outcome::Applied { .. }), "{told:?}");
    let seen = seen.lock().unwrap();
    let [(method, uri, _, _), (patch, pod, _, body)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((method.as_str(), patch.as_str(), pod.as_str()), ("GET", "PATCH", "/api/v1/namespaces/ns/pods/a"));
    assert!(uri.contains("labelSelector=job-uid%3Du%201&fieldSelector=status.phase%21%3DSucceeded"), "{uri}");
    assert_eq!(body, r#"{"metadata":{"annotations":{"stop":"now"}}}"#);
}

#[tokio::test]
async fn requests_have_the_right_form() {
    let seen = Seen::default();
    let ok = r#"{"metadata":{"resourceVersion":"9"}}"#;
    let (_sender, writer) = writer(answering(200, ok, Arc::clone(&seen)), LEADING);
    let body = json!({"a": 1});
    let applied = Outcome::Applied { resource_version: "9".into() };
    let status = Subresource::Status;
    let apply = Request::Apply { manager: "kueue-admission", subresource: status, body: body.clone().into() };
    assert_eq!(writer.perform(&write(Kind::Workload, "ns", apply)).await, applied);
    let merge = Request::Merge { manager: "a/b", subresource: Subresource::None, body: body.clone().into() };
    assert_eq!(writer.perform(&write(Kind::Job, "ns", merge)).await, applied);
    assert_eq!(writer.perform(&write(Kind::Workload, "ns", Request::Create(body.into()))).await, applied);
    let merge = Request::Merge { manager: "m", subresource: status, body: json!({}).into() };
    writer.perform(&write(Kind::ClusterQueue, "", merge)).await;
    writer.perform(&write(Kind::Workload, "ns", Request::Delete { uid: "u-1".into() })).await;
    let seen = seen.lock().unwrap();
    let lines: Vec<String> = seen.iter().map(|(method, uri, kind, _)| format!("{method} {uri} {kind}")).collect();
    assert_eq!(
        lines,
        [
            "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w/status\
             ?fieldManager=kueue-admission&force=true&timeout=9s application/apply-patch+yaml",
            "PATCH /apis/batch/v1/namespaces/ns/jobs/w?fieldManager=a%2Fb&timeout=9s application/merge-patch+json",
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads?fieldManager=kueue&timeout=9s application/json",
            "PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues/w/status?fieldManager=m&timeout=9s \
             application/merge-patch+json",
            "DELETE /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w?timeout=9s application/json",
        ]
    );
    let options: serde_json::Value = serde_json::from_str(&seen[4].3).unwrap();
    assert_eq!(options["preconditions"]["uid"], "u-1");
    assert_eq!(options["propagationPolicy"], "Background");
}

#[tokio::test]
async fn nothing_is_sent_out_of_term_or_time() {
    let seen = Seen::default();
    let client = answering(200, "{}", Arc::clone(&seen));
    let delete = || write(Kind::Workload, "ns", Request::Delete { uid: "u".into() });
    let (sender, writer) = writer(client, State { term: Some(Term(5)), until: None });
    assert_eq!(writer.perform(&delete()).await, Outcome::NotSent);
    let soon = Instant::now() + Duration::from_secs(9);
    sender.send_replace(State { term: Some(Term(4)), until: Some(soon) });
    assert_eq!(writer.perform(&delete()).await, Outcome::NotSent);
    sender.send_replace(State::default());
    assert_eq!(writer.perform(&delete()).await, Outcome::NotSent);
    assert!(seen.lock().unwrap().is_empty());
    sender.send_replace(LEADING);
    assert!(matches!(writer.perform(&delete()).await, Outcome::Applied { .. }));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_unknown_after_the_deadline() {
    let seen = Seen::default();
    let (sender, leadership) = Leadership::new(Duration::from_millis(300));
    sender.send_replace(LEADING);
    let client = answering(0, "", Arc::clone(&seen));
    let stores = Stores::new(client.clone(), None);
    let writer = Writer::new(client, leadership, stores, Arc::new(Metrics::new("test")));
    let begin = Instant::now();
    let outcome = writer.perform(&write(Kind::Workload, "ns", Request::Create(json!({}).into()))).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!((300..5000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    assert_eq!(seen.lock().unwrap().len(), 1, "no hidden retry");
}

#[tokio::test]
async fn pods_without_a_node_are_found() {
    let seen = Seen::default();
    let body = r#"{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[
        {"metadata":{"labels":{"kueue.x-k8s.io/podset":"main"}},"status":{"conditions":[
            {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}},
        {"metadata":{"labels":{"kueue.x-k8s.io/podset":"gated"}},"status":{"conditions":[
            {"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}},
        {"metadata":{"name":"new"}}]}"#;
    let (_sender, finder) = writer(answering(200, body, Arc::clone(&seen)), LEADING);
    let ask = || {
        write(
            Kind::Workload,
            "ns",
            Request::FindStuckPods { label: "batch.kubernetes.io/controller-uid", uid: "u-1".into() },
        )
    };
    let stuck = StuckPod { pod_set: "main".into(), message: "0/3 nodes are available".into(), refused: None };
    assert_eq!(finder.perform(&ask()).await, Outcome::Stuck(vec![stuck]));
    let path = "/api/v1/namespaces/ns/pods?labelSelector=batch.kubernetes.io%2Fcontroller-uid%3Du-1\
                &fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending&limit=20";
    assert_eq!(seen.lock().unwrap()[0].1, path);
    let (_sender, finder) = writer(answering(403, "{}", Seen::default()), LEADING);
    assert_eq!(finder.perform(&ask()).await, Outcome::Busy(1_000), "no answer is no stock-out");
}
