//! Tests of authentication and authorization with an API server that knows the users of some tokens.

use super::*;
use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use serde_json::Value;
use std::sync::Mutex;

/// Requests that the API server received, by path and spec.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// The answer of the test's API server, which knows the users of the tokens `reader` and `stranger`, and allows everything to the user reader.
async fn answer(asked: Asked, request: Request<Body>) -> (StatusCode, String) {
    let path = request.uri().path().to_owned();
    let body: Value = serde_json::from_slice(&to_bytes(request.into_body(), 100_000).await.unwrap()).unwrap();
    let spec = body["spec"].clone();
    asked.lock().unwrap().push((path.clone(), spec.clone()));
    let status = if path.ends_with("/tokenreviews") {
        match spec["token"].as_str() {
            Some("broken") => return (StatusCode::INTERNAL_SERVER_ERROR, "{}".to_owned()),
            Some(name @ ("reader" | "stranger")) => {
                json!({"authenticated": true, "user": {"username": name, "uid": "u", "groups": ["g"], "extra": {"e": ["1"]}}})
            }
            _ => json!({"authenticated": false, "error": "it is not known"}),
        }
    } else {
        json!({"allowed": spec["user"] == "reader"})
    };
    (StatusCode::CREATED, json!({"metadata": {}, "spec": spec, "status": status}).to_string())
}

/// A client of the test's API server, and the requests that the server received.
pub(crate) async fn knowing_tokens() -> (Client, Asked) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: http::Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let fallback = move |request: Request<Body>| answer(Arc::clone(&noted), request);
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(fallback)).await });
    (Client::try_from(kube::Config::new(uri)).unwrap(), asked)
}

fn user(name: &str) -> User {
    let extra = BTreeMap::from([("e".to_owned(), vec!["1".to_owned()])]);
    User { name: name.to_owned(), uid: "u".to_owned(), groups: vec!["g".to_owned()], extra }
}

const CREATE_JOBS: Deed<'static> = Deed { verb: "create", group: "batch", resource: "jobs", namespace: "team-a" };

#[tokio::test]
async fn bearer_token_gets_verdict_of_token_review_and_access_review() {
    let (client, asked) = knowing_tokens().await;
    let access = Access::of_bearers(client);
    let get = |token: &str| access.bearer_may_get(token.to_owned(), "/metrics");
    assert_eq!(get("reader").await, Verdict::Allowed);
    assert_eq!(get("stranger").await, Verdict::Forbidden("User \"stranger\" cannot get path \"/metrics\"".into()));
    assert_eq!(get("nobody").await, Verdict::Unknown);
    assert!(matches!(get("broken").await, Verdict::Unanswered(_)));
    let spec = asked.lock().unwrap()[1].1.clone();
    let expected = json!({"user": "reader", "uid": "u", "groups": ["g"], "extra": {"e": ["1"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert_eq!(spec, expected);
    let count = asked.lock().unwrap().len();
    for token in ["reader", "stranger", "nobody"] {
        get(token).await;
    }
    assert_eq!(asked.lock().unwrap().len(), count, "they are known");
}

#[tokio::test]
async fn cached_access_verdict_counts_for_one_user_and_one_action() {
    let (client, asked) = knowing_tokens().await;
    let access = Access::of_authors(client);
    let words = "User \"alice\" cannot create resource \"jobs\" in API group \"batch\" in the namespace \"team-a\"";
    for _ in 0..3 {
        assert_eq!(access.may(user("reader"), CREATE_JOBS).await, Verdict::Allowed);
        assert_eq!(access.may(user("alice"), CREATE_JOBS).await, Verdict::Forbidden(words.into()));
    }
    assert_eq!(asked.lock().unwrap().len(), 2);
    let elsewhere = Deed { namespace: "team-b", ..CREATE_JOBS };
    access.may(user("reader"), elsewhere).await;
    access.may(User { groups: vec!["h".to_owned()], ..user("reader") }, CREATE_JOBS).await;
    assert_eq!(asked.lock().unwrap().len(), 4);
    let spec = asked.lock().unwrap()[0].1.clone();
    let expected = json!({"user": "reader", "uid": "u", "groups": ["g"], "extra": {"e": ["1"]},
        "resourceAttributes": {"verb": "create", "group": "batch", "resource": "jobs", "namespace": "team-a"}});
    assert_eq!(spec, expected);
}
