//! Tests of the source of list and watch events, with a small API server in memory.

use super::*;
use http::{Request as Asked, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// An API server with prepared answers and status codes, which records the requests.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn answers(&self, code: u16, text: impl Into<String>) {
        self.answers.lock().unwrap().push_back((code, text.into()));
    }

    fn page(&self, names: &[&str], more: usize, token: &str) {
        let filler = "x".repeat(more);
        let item = |name: &&str| json!({"metadata": {"name": name, "resourceVersion": "5"}, "filler": filler});
        let items: Vec<Value> = names.iter().map(item).collect();
        let meta = json!({"resourceVersion": "9", "continue": token});
        self.answers(200, json!({"kind": "JobList", "metadata": meta, "items": items}).to_string());
    }

    fn change(kind: &str, name: &str, version: &str) -> String {
        let object = json!({"metadata": {"name": name, "resourceVersion": version}});
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
    }

    fn source(&self) -> Source {
        let server = self.clone();
        let service = tower::service_fn(move |request: Asked<Body>| {
            server.asked.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
            let answer = server.answers.lock().unwrap().pop_front();
            async move {
                let Some((code, text)) = answer else { return std::future::pending().await };
                Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap())
            }
        });
        let resource = ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&());
        Source::new(Client::new(service, "default"), &resource, Some("a=b".to_owned()))
    }

    /// The values of a URL query parameter in the recorded requests, in the order of the requests.
    fn given(&self, name: &str) -> Vec<Option<String>> {
        let value = |query: &String| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        self.asked.lock().unwrap().iter().map(value).collect()
    }
}

/// The next event of the source, as a short text.
async fn next_event(source: &mut Source) -> String {
    match source.next().await {
        Ok(Event::Init) => "begin".to_owned(),
        Ok(Event::InitApply(object)) => format!("lists {}", object.name_any()),
        Ok(Event::InitDone) => "end".to_owned(),
        Ok(Event::Apply(object)) => format!("shows {}", object.name_any()),
        Ok(Event::Delete(object)) => format!("deletes {}", object.name_any()),
        Err(Error::InitialListFailed(_)) => "no list".to_owned(),
        Err(Error::WatchStartFailed(_)) => "no watch".to_owned(),
        Err(Error::WatchError(status)) => format!("told {}", status.code),
        Err(other) => other.to_string(),
    }
}

async fn all_events(source: &mut Source, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(next_event(source).await);
    }
    all
}

#[tokio::test]
async fn source_lists_all_pages_and_then_follows_changes() {
    let server = Server::default();
    server.page(&["a", "b"], 0, "t1");
    server.page(&["c"], 0, "");
    let marks = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Job\",\"apiVersion\":\"batch/v1\",\"metadata\":{\"resourceVersion\":\"30\"}}}\n";
    let changes = Server::change("ADDED", "d", "10") + &Server::change("DELETED", "a", "11") + marks;
    server.answers(200, changes);
    server.answers(200, Server::change("MODIFIED", "d", "31"));
    let mut source = server.source();
    let all = all_events(&mut source, 8).await;
    assert_eq!(all, ["begin", "lists a", "lists b", "lists c", "end", "shows d", "deletes a", "shows d"]);
    let some = |value: &str| Some(value.to_owned());
    assert_eq!(server.given("limit"), [some("500"), some("500"), None, None]);
    assert_eq!(server.given("continue"), [None, some("t1"), None, None]);
    assert_eq!(server.given("resourceVersion"), [None, None, some("9"), some("30")], "the list is the store's");
    assert!(server.given("labelSelector").iter().all(Option::is_some));
}

#[tokio::test]
async fn list_page_limit_shrinks_for_large_objects() {
    let server = Server::default();
    server.page(&["a", "b"], 100_000, "t1");
    server.page(&["c"], 2_000_000, "t2");
    server.page(&["d"], 0, "t3");
    server.page(&["e"], 0, "");
    let mut source = server.source();
    assert_eq!(all_events(&mut source, 7).await.last().map(String::as_str), Some("end"));
    let limits: Vec<u32> = server.given("limit").iter().flatten().map(|limit| limit.parse().unwrap()).collect();
    let [first, second, third, fourth] = limits.as_slice() else { panic!("{limits:?}") };
    assert_eq!((*first, *fourth), (500, 500));
    assert!((70..84).contains(second) && *third == 16, "{limits:?}");
}

/// The API server would end a response that takes a minute at every attempt, so the source gives up a page with too many bytes before that.
#[tokio::test]
async fn oversized_list_page_is_repeated_in_smaller_pages() {
    let server = Server::default();
    let names: Vec<String> = (0..40).map(|index| format!("o{index}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    server.page(&all, 1 << 20, "");
    server.page(&all[..16], 1 << 20, "t1");
    server.page(&all[16..32], 1 << 20, "t2");
    server.page(&all[32..], 1 << 20, "");
    let mut source = server.source();
    let reported = all_events(&mut source, 1 + 32 + 1 + 40 + 1).await;
    assert_eq!(reported[33], "begin", "after 32 MiB: {reported:?}");
    assert!(
        reported[34..74].iter().zip(&all).all(|(reported, name)| *reported == format!("lists {name}")),
        "{reported:?}"
    );
    assert_eq!(reported[74], "end");
    let limits: Vec<String> = server.given("limit").into_iter().flatten().collect();
    assert_eq!(limits, ["500", "16", "16", "16"]);
    // The list is requested again with smaller pages also after the API server cut off a page.
    let server = Server::default();
    server.answers(200, "{\"metadata\": {\"resourceVersion\": \"9\"}, \"items\": [{");
    server.page(&["a"], 0, "");
    let mut source = server.source();
    assert_eq!(all_events(&mut source, 5).await, ["begin", "no list", "begin", "lists a", "end"]);
    let limits: Vec<String> = server.given("limit").into_iter().flatten().collect();
    assert_eq!(limits, ["500", "125"]);
}

/// A failed list begins again. A failed watch continues from its last resourceVersion, unless the API server no longer has that version.
#[tokio::test]
async fn source_restarts_failed_lists_and_resumes_failed_watches() {
    let server = Server::default();
    let no = |code: u16| {
        json!({"kind": "Status", "code": code, "status": "Failure", "message": "no", "reason": "No"}).to_string()
    };
    server.answers(403, no(403));
    server.page(&["a"], 0, "t1");
    server.answers(410, no(410));
    let text =
        json!({"kind": "L", "metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b"}}]}).to_string();
    server.answers(200, &text[..text.len() - 3]);
    server.page(&["c"], 0, "");
    server.answers(500, no(500));
    server.answers(200, format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", no(500)));
    server.answers(200, format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", no(410)));
    server.page(&["d"], 0, "");
    let mut source = server.source();
    let all = all_events(&mut source, 17).await;
    let expected = [
        "begin", "no list", "begin", "lists a", "no list", "begin", "lists b", "no list", "begin", "lists c", "end",
        "no watch", "told 500", "told 410", "begin", "lists d", "end",
    ];
    assert_eq!(all, expected);
    let watched: Vec<_> = server.given("resourceVersion").into_iter().flatten().collect();
    assert_eq!(watched, ["9", "9", "9"]);
}
