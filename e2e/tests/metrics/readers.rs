//! Readers of `/metrics`: only users whom RBAC allows may read the metrics, over TLS.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use berth_e2e::control_plane::token;
use berth_e2e::http::{http_get, https_get};
use berth_e2e::kinds;
use berth_e2e::manager::NAMESPACE;
use berth_e2e::scenario::Stage;
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio_rustls::TlsConnector;

use crate::webhook::rotation::trust;

/// The service account that may read the metrics.
const READER: &str = "prometheus";
/// Number of requests with unknown tokens in a flood.
const FLOOD: usize = 100;
/// Rate limit of Berth's questions to the API server about unknown tokens: so many at once at the beginning, and so many in each second.
const RATE: f64 = 10.0;

/// Gives a service account the right to read the metrics, as the chart's `metrics.readers` does; returns its token.
pub(super) async fn admitted(client: &Client) -> Result<String> {
    let rbac = "rbac.authorization.k8s.io";
    let version = format!("{rbac}/v1");
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": "default"}}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "berth-metrics-reader"},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "berth-metrics-readers"},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": "default"}],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "berth-metrics-reader"}}),
    ] {
        kinds::apply(client, &object).await?;
    }
    token(client, "default", READER).await
}

/// Requests the metrics with each kind of token.
pub(super) async fn readers_are_distinguished(stage: &Stage, reader: &str) -> Result<()> {
    let port = stage.manager.metrics_port();
    let ask = |token: Option<String>| async move { https_get(port, "/metrics", token.as_deref()).await };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "stranger", "namespace": "default"}});
    kinds::apply(&stage.client, &account).await?;
    let stranger = token(&stage.client, "default", "stranger").await?;

    let (code, message) = ask(None).await?;
    ensure!(code == 401 && message.contains("a bearer token"), "without a token: {code} {message}");
    let (code, message) = ask(Some("made-up".to_owned())).await?;
    ensure!(code == 401 && message.contains("does not know this token"), "with a token of nobody: {code} {message}");
    let (code, message) = ask(Some(stranger)).await?;
    let words = r#"User "system:serviceaccount:default:stranger" cannot get path "/metrics""#;
    ensure!(code == 403 && message.contains(words), "with a stranger's token: {code} {message}");
    let (code, message) = ask(Some(reader.to_owned())).await?;
    ensure!(code == 200 && message.contains("kueue_build_info"), "with the reader's token: {code}");
    let plain = http_get(port, "/metrics").await;
    ensure!(plain.is_err(), "without TLS: {plain:?}");
    // A client on the machine itself may read `/debug/recompute` without a token.
    let (code, message) = https_get(port, "/debug/recompute", None).await?;
    ensure!(code == 200 || code == 429, "/debug/recompute: {code} {message}");
    under_the_services_name(stage, port).await?;
    flood(stage, port).await
}

/// A client that trusts the certificate authority of the webhooks can verify the metrics server by the name of the chart's Service.
async fn under_the_services_name(stage: &Stage, port: u16) -> Result<()> {
    let connector = TlsConnector::from(trust(&stage.client).await?);
    for name in
        ["svc", "svc.cluster.local"].map(|suffix| format!("berth-controller-manager-metrics.{NAMESPACE}.{suffix}"))
    {
        let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        connector.connect(ServerName::try_from(name.clone())?, tcp).await.with_context(|| format!("as {name}"))?;
    }
    Ok(())
}

/// During a flood of unknown tokens Berth does not ask the API server about each of them, and still answers known users.
async fn flood(stage: &Stage, port: u16) -> Result<()> {
    let asked = || async {
        let found = stage.manager.metric("rest_client_requests_total", &[r#"resource="tokenreviews""#]).await?;
        anyhow::Ok(found.unwrap_or(0.0))
    };
    let (before, begun) = (asked().await?, Instant::now());
    let made_up = (0..FLOOD).map(|number| async move {
        let (code, message) = https_get(port, "/metrics", Some(&format!("made-up-{number}"))).await?;
        ensure!(code == 401 || code == 429, "{code} {message}");
        Ok(code)
    });
    let codes: Vec<u16> = futures::stream::iter(made_up).buffer_unordered(16).try_collect().await?;
    let turned_away = codes.iter().filter(|code| **code == 429).count();
    let (more, seconds) = (asked().await? - before, begun.elapsed().as_secs_f64());
    let allowed = RATE * (seconds + 1.0) + 1.0;
    // At a rate of requests below the limit Berth asks about each token, so the flood must be faster than the limit.
    let is_flood = FLOOD as f64 > 1.5 * allowed;
    ensure!(
        more <= allowed && (turned_away > 0 || !is_flood),
        "{more} of {FLOOD} tokens were asked about in {seconds:.1} s, {turned_away} turned away"
    );
    Ok(())
}
