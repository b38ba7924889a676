//! Certificates change while reviews come in without a pause. The API server keeps its connections, so a client of the test also makes a new
//! handshake every few milliseconds and trusts the authorities that the configuration has at that moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::certificates::Certificates;
use berth_e2e::kinds::{JOB, items, text};
use berth_e2e::manager::{self, Manager, ManagerOptions, NAMESPACE};
use berth_e2e::manifest::{cluster_queue, group, quota};
use berth_e2e::scenario::Stage;
use berth_e2e::wait::{self, Seen};
use berth_e2e::webhooks::{self, NAMES, SECRET, SECRET_NAME, VALIDATING};
use k8s_openapi::ByteString;
use kube::Client;
use kube::api::PostParams;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::webhook::flood::Direct;
use crate::webhook::load::OLDER_QUEUE;

/// Number of reviews that are sent at once.
const CALLERS: usize = 4;
/// Argument of the manager: the time for the API server to learn of a new authority before Berth signs with it. A busy API server may need more than
/// a second to learn of a new authority.
pub(crate) const MARGIN: &str = "--webhook-ca-margin=2s";
/// The ClusterQueue that the test reads in v1beta1 while the certificates change.
const QUEUE: &str = "rotation-cq";

/// TLS configuration of a client that trusts the certificate authorities that the API server trusts.
pub(crate) async fn trust(client: &Client) -> Result<Arc<ClientConfig>> {
    trusting(&bundle(client).await?.0)
}

/// The certificate authorities in the webhook configuration that the API server reads.
async fn bundle(client: &Client) -> Result<ByteString> {
    let configuration = VALIDATING.get(client, "", NAMES[1]).await?.context("the configuration")?;
    let webhook = items(&configuration, "/webhooks").first().context("a webhook")?;
    Ok(serde_json::from_value(webhook["clientConfig"]["caBundle"].clone())?)
}

/// TLS configuration of a client that trusts the certificate authorities `authorities`.
fn trusting(authorities: &[u8]) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// Makes a TLS handshake; returns the leaf certificate that the server showed.
async fn handshake(trust: Arc<ClientConfig>, port: u16) -> Result<Vec<u8>> {
    let connector = TlsConnector::from(trust);
    let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    let stream = connector.connect(ServerName::try_from("127.0.0.1")?, tcp).await.context("handshake")?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
    Ok(leaf.context("a certificate")?.to_vec())
}

/// Makes a TLS handshake that trusts the authorities in the webhook configuration, and repeats a failed one if the configuration has changed
/// meanwhile.
async fn trusted_handshake(client: &Client, port: u16) -> Result<Vec<u8>> {
    loop {
        let before = bundle(client).await?;
        let leaf = handshake(trusting(&before.0)?, port).await;
        if leaf.is_ok() || bundle(client).await? == before {
            return leaf;
        }
    }
}

/// Creates an unsuspended job of a queue by a dry run: the answer must have it suspended.
pub(crate) async fn review(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let job = berth_e2e::manifest::Job::new(namespace, name, "queue").spec(&json!({"suspend": false})).manifest();
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let created = JOB.api(client, namespace).create(&params, &serde_json::from_value(job)?).await?;
    ensure!(created.data["spec"]["suspend"] == json!(true), "not suspended: {}", created.data["spec"]["suspend"]);
    Ok(())
}

pub(crate) async fn story(stage: &mut Stage, port: u16) -> Result<()> {
    let s = stage.scenario("rotation").await?;
    let client = &s.client;
    s.simple_queue("1", &json!({})).await?;
    ensure!(s.name("cq") == QUEUE, "the queue is called {}", s.name("cq"));
    // The API server replaces its handlers after a change of a CRD.
    wait::until(Duration::from_secs(90), "v1beta1 is served", || async {
        let found = OLDER_QUEUE.get(client, "", QUEUE).await?;
        Ok(Seen::when(found.is_some(), || "the queue is not there".to_owned()))
    })
    .await?;
    let alone = async {
        let (served, reviews) = under_traffic(client, &[port], rotations(client, port)).await?;
        let leaves = served.first().map_or(0, BTreeSet::len);
        ensure!(leaves >= 4, "the first, two of new authorities, and one in place of rubbish: {leaves}");
        ensure!(reviews > 200, "{reviews} reviews are no traffic");
        beside_a_second(stage, port).await.context("with a second replica")
    };
    let folder = async { from_a_folder(stage).await.context("certificates in a folder") };
    futures::try_join!(alone, folder)?;
    s.conclude().await
}

/// Sends reviews while `changes` runs; returns the leaf certificates that were served on each port, and the number of reviews.
async fn under_traffic(
    client: &Client,
    ports: &[u16],
    changes: impl Future<Output = Result<()>>,
) -> Result<(Vec<BTreeSet<Vec<u8>>>, u64)> {
    let over = AtomicBool::new(false);
    let reviews = AtomicU64::new(0);
    let callers = futures::future::try_join_all((0..CALLERS).map(|caller| {
        let (over, reviews) = (&over, &reviews);
        async move {
            while !over.load(Ordering::Relaxed) {
                let number = reviews.fetch_add(1, Ordering::Relaxed);
                review(client, "rotation", "asked").await.with_context(|| format!("review {number} of {caller}"))?;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        }
    }));
    // Each read of the ClusterQueue in v1beta1 is a conversion, for which the API server trusts the authorities in the CRD.
    let reads = async {
        let mut reads = 0_u64;
        while !over.load(Ordering::Relaxed) {
            let found = OLDER_QUEUE.get(client, "", QUEUE).await.with_context(|| format!("v1beta1 read {reads}"))?;
            let found = found.with_context(|| format!("v1beta1 read {reads}: the queue is gone"))?;
            ensure!(text(&found, "/apiVersion") == OLDER_QUEUE.api_version, "read {reads}: {found}");
            reads += 1;
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        ensure!(reads > 20, "{reads} reads of v1beta1 are no traffic");
        anyhow::Ok(reads)
    };
    let leaves = futures::future::try_join_all(ports.iter().map(|port| {
        let over = &over;
        async move {
            let mut leaves = BTreeSet::new();
            let mut count = 0_u64;
            loop {
                // The last handshake begins after the last change of a certificate.
                let last = over.load(Ordering::Relaxed);
                let leaf = trusted_handshake(client, *port).await;
                leaves.insert(leaf.with_context(|| format!("handshake {count} on {port}"))?);
                count += 1;
                if last {
                    return anyhow::Ok((leaves, count));
                }
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        }
    }));
    let changes = async {
        let done = changes.await;
        over.store(true, Ordering::Relaxed);
        done
    };
    let (_, served, read, ()) = futures::try_join!(callers, leaves, reads, changes)?;
    let reviews = reviews.load(Ordering::Relaxed);
    for (leaves, handshakes) in &served {
        let leaves = leaves.len();
        println!(
            "rotation: {reviews} reviews, {read} reads of v1beta1 and {handshakes} handshakes, none failed; {leaves} leaves \
             were served"
        );
    }
    Ok((served.into_iter().map(|(leaves, _)| leaves).collect(), reviews))
}

/// Two replicas serve with the certificates of one Secret: both replicas change to the certificates that either of them makes, and both answer.
async fn beside_a_second(stage: &Stage, port: u16) -> Result<()> {
    let client = &stage.client;
    let second = webhooks::port()?;
    let options = ManagerOptions {
        name: "second".to_owned(),
        webhooks: Some(second),
        args: vec![MARGIN.to_owned()],
        ..ManagerOptions::default()
    };
    let mut replica = Manager::start(&stage.plane, options).await?;
    let (served, _) = under_traffic(client, &[port, second], async {
        replace_authority(client, 2).await?;
        wait::until(Duration::from_secs(90), "both replicas serve the same leaf", || async {
            let leaves = [trusted_handshake(client, port).await?, trusted_handshake(client, second).await?];
            Ok(Seen::when(leaves[0] == leaves[1], || "they differ".to_owned()))
        })
        .await
    })
    .await?;
    follower_answers(stage, &replica, second).await.context("asked of the replica that follows")?;
    tokio::task::spawn_blocking(move || replica.kill()).await?;
    ensure!(served.iter().all(|leaves| leaves.len() >= 2), "one replica served on what it began with");
    Ok(())
}

/// A replica that does not lead converts in both directions and suspends a job, as the leader does.
async fn follower_answers(stage: &Stage, replica: &Manager, port: u16) -> Result<()> {
    let client = &stage.client;
    let leader = manager::leader(client).await?;
    ensure!(!leader.is_empty(), "nobody leads");
    let mut direct = Direct::open(port, trust(client).await?).await?;
    let group = group(&[("f", &[quota("cpu", "1")])]);
    let newer = cluster_queue(QUEUE, std::slice::from_ref(&group), &json!({"cohortName": "science"}));
    let mut older = cluster_queue(QUEUE, &[group], &json!({"cohort": "science"}));
    older["apiVersion"] = json!(OLDER_QUEUE.api_version);
    for (from, to) in [(&newer, &older), (&older, &newer)] {
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": to["apiVersion"], "objects": [from]}});
        let response = answered(&mut direct, "/convert", &review).await?;
        ensure!(response["result"]["status"] == "Success", "{response}");
        let [converted] = items(&response, "/convertedObjects") else { bail!("not one object: {response}") };
        ensure!(converted["apiVersion"] == to["apiVersion"], "{converted}");
        for field in ["cohort", "cohortName"] {
            ensure!(converted["spec"].get(field) == to["spec"].get(field), "{field} of {converted}");
        }
    }
    let job = berth_e2e::manifest::Job::new("rotation", "asked", "queue").spec(&json!({"suspend": false})).manifest();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
        "operation": "CREATE", "namespace": "rotation", "name": "asked",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"}, "object": job}});
    let response = answered(&mut direct, "/mutate-batch-v1-job", &review).await?;
    ensure!(response["allowed"] == json!(true), "{response}");
    let changes: ByteString = serde_json::from_value(response["patch"].clone()).context("a patch")?;
    let changes: Value = serde_json::from_slice(&changes.0)?;
    let mut changes = changes.as_array().into_iter().flatten();
    let suspended = changes.any(|change| change["path"] == "/spec/suspend" && change["value"] == json!(true));
    ensure!(suspended, "the job is not suspended: {response}");
    // The second replica has not taken the lease during the test, so a follower gave all of the checked answers.
    ensure!(manager::leader(client).await? == leader, "somebody else leads now");
    let log = std::fs::read_to_string(replica.log())?;
    ensure!(!log.is_empty() && !log.contains("lease taken"), "the second replica leads");
    Ok(())
}

/// The field `response` in the answer to a review.
async fn answered(direct: &mut Direct, path: &str, review: &Value) -> Result<Value> {
    let answer = direct.ask(path, &review.to_string()).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{path} answered {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("a body")?;
    let review: Value = serde_json::from_str(body).with_context(|| format!("{path} answered {answer}"))?;
    Ok(review["response"].clone())
}

/// Certificates that an administrator puts into a folder are served as they are, and are exchanged when the files change.
async fn from_a_folder(stage: &Stage) -> Result<()> {
    let folder = stage.plane.folder().join("given");
    let give = |name: &str| -> Result<Arc<ClientConfig>> {
        let made = Certificates::create(&stage.plane.folder().join(name))?;
        std::fs::create_dir_all(&folder)?;
        made.serving_into(&folder)?;
        trusting(&std::fs::read(made.file("ca.crt"))?)
    };
    let first = give("first-given")?;
    let port = webhooks::port()?;
    let config = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\ninternalCertManagement: {{enable: false}}\n\
         webhook: {{certDir: {}}}\n",
        folder.display()
    );
    let name = "folder".to_owned();
    let options = ManagerOptions { name, config: Some(config), webhooks: Some(port), ..ManagerOptions::default() };
    let path = stage.plane.folder().join("folder.kubeconfig");
    manager::kubeconfig(&stage.plane, None, &path).await?;
    // The API server does not know the authority of the folder's certificates, so the manager never becomes ready.
    let mut manager = Manager::launch(stage.plane.folder(), &path, options).await?;
    let shows = |trust: &Arc<ClientConfig>| {
        let trust = Arc::clone(trust);
        async move { handshake(trust, port).await.map(|_| Seen::Yes(())) }
    };
    wait::until(wait::STEP, "the first ones are served", || shows(&first)).await?;
    let second = give("second-given")?;
    wait::until(Duration::from_secs(90), "the new ones are served", || shows(&second)).await?;
    ensure!(handshake(first, port).await.is_err(), "the first ones are served on");
    tokio::task::spawn_blocking(move || manager.kill()).await?;
    Ok(())
}

/// The value of a key in a Secret, in base64.
fn present<'a>(key: &str, secret: &'a Value) -> &'a str {
    text(secret, &format!("/data/{key}"))
}

/// Asks Berth for a new certificate authority and waits until the Secret has the new authority alone, without the old one.
async fn replace_authority(client: &Client, round: u32) -> Result<()> {
    let old = SECRET.get(client, NAMESPACE, SECRET_NAME).await?.context("the Secret")?;
    let ask = json!({"metadata": {"annotations": {"berth.dev/rotate-ca": "now"}}});
    SECRET.patch(client, NAMESPACE, SECRET_NAME, &ask).await?;
    // Two seconds pass until Berth signs with the new authority, and twenty more until it removes the old one.
    wait::until(Duration::from_secs(120), &format!("authority {round} is replaced"), || async {
        let new = SECRET.get(client, NAMESPACE, SECRET_NAME).await?.context("the Secret")?;
        let replaced = present("ca.crt", &new) != present("ca.crt", &old)
            && present("tls.crt", &new) != present("tls.crt", &old)
            && present("ca-next.crt", &new).is_empty()
            && present("ca-previous.crt", &new).is_empty();
        let annotations = new["metadata"]["annotations"].to_string();
        Ok(Seen::when(replaced && !annotations.contains("rotate-ca"), || annotations))
    })
    .await
}

async fn rotations(client: &Client, port: u16) -> Result<()> {
    for round in 0..2 {
        replace_authority(client, round).await?;
    }
    // The test replaces the leaf certificate in the Secret by invalid data, and Berth serves its present leaf certificate until it has made a new one.
    let rubbish = json!({"data": {"tls.crt": "cnViYmlzaA=="}});
    SECRET.patch(client, NAMESPACE, SECRET_NAME, &rubbish).await?;
    wait::until(wait::STEP, "the rubbish is replaced, and what is there instead is served", || async {
        let new = SECRET.get(client, NAMESPACE, SECRET_NAME).await?.context("the Secret")?;
        if present("tls.crt", &new) == "cnViYmlzaA==" {
            return Ok(Seen::NotYet("still there".to_owned()));
        }
        let stored: ByteString = serde_json::from_value(new["data"]["tls.crt"].clone())?;
        let stored = CertificateDer::pem_slice_iter(&stored.0).next().context("a certificate")??;
        let served = trusted_handshake(client, port).await?;
        Ok(Seen::when(served == stored.to_vec(), || "another one is served".to_owned()))
    })
    .await?;
    // Reviews must also come in under the new leaf certificate.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}
