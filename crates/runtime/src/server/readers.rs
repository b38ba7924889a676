//! Authorization of readers of metrics: a request needs a bearer token of a user whom RBAC permits to get `/metrics`.

use crate::access::{Access, Verdict};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

/// Path of the permission that RBAC is asked about.
const PATH: &str = "/metrics";

/// Serves the routes only to users whom RBAC permits to get `/metrics`.
pub(super) fn only<S: Clone + Send + Sync + 'static>(readers: Access, routes: Router<S>) -> Router<S> {
    routes.route_layer(from_fn_with_state(readers, let_in))
}

async fn let_in(State(readers): State<Access>, request: Request, next: Next) -> Response {
    // A request without a bearer token is refused without a TokenReview.
    let Some(token) = bearer(request.headers()) else {
        return unauthorized("a bearer token of a user or ServiceAccount that may get /metrics is needed\n");
    };
    match readers.bearer_may_get(token, PATH).await {
        Verdict::Allowed => next.run(request).await,
        Verdict::Forbidden(why) => (StatusCode::FORBIDDEN, format!("forbidden: {why}\n")).into_response(),
        Verdict::Unknown => unauthorized("the API server does not know this token\n"),
        Verdict::Busy => {
            let later = [(header::RETRY_AFTER, "1")];
            (StatusCode::TOO_MANY_REQUESTS, later, "too many others show tokens\n").into_response()
        }
        Verdict::Unanswered(why) => {
            tracing::warn!(%why, "the API server was asked in vain who may read figures");
            (StatusCode::SERVICE_UNAVAILABLE, "the API server does not say who may read this\n").into_response()
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

fn unauthorized(text: &'static str) -> Response {
    let mut response = (StatusCode::UNAUTHORIZED, text).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::knowing_tokens;
    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use tower::ServiceExt;

    async fn ask(router: &Router, authorization: Option<&str>) -> (StatusCode, String) {
        let mut request = Request::builder().uri(PATH);
        if let Some(text) = authorization {
            request = request.header(header::AUTHORIZATION, text);
        }
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_are_served_only_to_permitted_bearer_tokens() {
        let (client, asked) = knowing_tokens().await;
        let router = only(Access::of_bearers(client), Router::new().route(PATH, get(|| async { "figures\n" })));
        for nothing in [None, Some(""), Some("Bearer"), Some("Bearer "), Some("Basic cmVhZGVyOg=="), Some("reader")] {
            assert_eq!(ask(&router, nothing).await.0, StatusCode::UNAUTHORIZED, "{nothing:?}");
        }
        assert!(asked.lock().unwrap().is_empty(), "without a token the API server is not asked");
        for (token, code, words) in [
            ("Bearer reader", StatusCode::OK, "figures\n"),
            ("bearer  reader", StatusCode::OK, "figures\n"),
            ("Bearer stranger", StatusCode::FORBIDDEN, "forbidden: User \"stranger\" cannot get path \"/metrics\"\n"),
            ("Bearer nobody", StatusCode::UNAUTHORIZED, "the API server does not know this token\n"),
            ("Bearer broken", StatusCode::SERVICE_UNAVAILABLE, "the API server does not say who may read this\n"),
        ] {
            assert_eq!(ask(&router, Some(token)).await, (code, words.to_owned()), "{token}");
        }
    }

    /// A hundred unknown tokens must not cause a hundred TokenReviews.
    #[tokio::test]
    async fn flood_of_bad_tokens_causes_few_token_reviews() {
        let (client, asked) = knowing_tokens().await;
        let router = only(Access::of_bearers(client), Router::new().route(PATH, get(|| async { "figures\n" })));
        assert_eq!(ask(&router, Some("Bearer reader")).await.0, StatusCode::OK);
        let mut turned_away = 0;
        for number in 0..300 {
            let (code, _) = ask(&router, Some(&format!("Bearer made-up-{number}"))).await;
            turned_away += usize::from(code == StatusCode::TOO_MANY_REQUESTS);
        }
        let questions = asked.lock().unwrap().len();
        assert!(questions < 60 && turned_away > 200, "{questions} questions, {turned_away} turned away");
        assert_eq!(ask(&router, Some("Bearer reader")).await.0, StatusCode::OK, "it is known");
        for _ in 0..50 {
            ask(&router, Some("Bearer made-up-0")).await;
        }
        assert_eq!(asked.lock().unwrap().len(), questions, "and so is who was refused");
    }
}
