//! The transfer of Kueue's CRDs to Berth's Helm release, as docs/migrate-from-kueue.md describes it. The commands of that page change Helm's labels and
//! annotations of the CRDs while Kueue still converts objects of these CRDs. Berth converts the objects of Kueue's kinds after Kueue has ended.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::Value;

use crate::binaries::repository;
use crate::control_plane::ControlPlane;
use crate::helm;
use crate::kinds::{CRD, text};
use crate::wait::{self, STEP, Seen};

const PAGE: &str = "docs/migrate-from-kueue.md";
/// Part of a command by which the test finds the commands about CRDs in docs/migrate-from-kueue.md.
const POLICY: &str = "helm.sh/resource-policy=keep";
/// Number of Kueue 0.19's CRDs, and number of the CRDs among them whose API versions need a conversion webhook.
const KINDS: usize = 11;
const CONVERTED: usize = 5;
/// Labels and annotations by which Helm takes an object for a part of Berth's release.
const MARKS: [(&str, &str); 4] = [
    ("/metadata/annotations/helm.sh~1resource-policy", "keep"),
    ("/metadata/annotations/meta.helm.sh~1release-name", "berth"),
    ("/metadata/annotations/meta.helm.sh~1release-namespace", helm::NAMESPACE),
    ("/metadata/labels/app.kubernetes.io~1managed-by", "Helm"),
];

/// The CRDs of Kueue's kinds, by name.
///
/// # Errors
/// Fails if the API server lacks the CRD of one of Kueue's kinds.
pub async fn definitions(client: &Client) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for definition in CRD.list(client, "").await? {
        if text(&definition, "/spec/group") == "kueue.x-k8s.io" {
            found.insert(text(&definition, "/metadata/name").to_owned(), definition);
        }
    }
    ensure!(found.len() == KINDS, "Kueue's CRDs are {:?}", found.keys());
    Ok(found)
}

/// Checks that all of Kueue's CRDs exist and belong to the Helm release `release`.
///
/// # Errors
/// Fails with the first CRD that does not belong to `release`.
pub async fn belong_to(client: &Client, release: &str) -> Result<()> {
    for (name, definition) in definitions(client).await? {
        let owner = text(&definition, "/metadata/annotations/meta.helm.sh~1release-name");
        ensure!(owner == release, "CRD {name} belongs to {owner:?}");
    }
    Ok(())
}

/// Checks that all of Kueue's CRDs exist, belong to Berth's Helm release, and stay when that release is uninstalled.
///
/// # Errors
/// Fails with the first CRD that lacks one of the labels and annotations in `MARKS`.
pub async fn are_berths(client: &Client) -> Result<()> {
    for (name, definition) in definitions(client).await? {
        for (pointer, wanted) in MARKS {
            let marked = text(&definition, pointer);
            ensure!(marked == wanted, "CRD {name}: {pointer} is {marked:?}, not {wanted:?}");
        }
    }
    Ok(())
}

/// Runs the commands of docs/migrate-from-kueue.md about CRDs, and checks that the CRDs of all Kueue's kinds are Berth's afterwards, with the same
/// spec and the same stored versions.
///
/// # Errors
/// Fails if a command fails, leaves a CRD out, or changes the spec or the stored versions of a CRD.
pub async fn adopt(plane: &ControlPlane) -> Result<()> {
    let client = plane.client();
    let before = definitions(&client).await?;
    run(plane, commands()?).await?;
    let after = definitions(&client).await?;
    ensure!(before.keys().eq(after.keys()), "were {:?}, are {:?}", before.keys(), after.keys());
    for ((name, was), now) in before.iter().zip(after.values()) {
        // The spec of a CRD contains its conversion, the certificate authority of the conversion, and the served versions.
        for pointer in ["/spec", "/status/storedVersions"] {
            ensure!(was.pointer(pointer) == now.pointer(pointer), "CRD {name}: {pointer} changed");
        }
    }
    are_berths(&client).await
}

/// Checks that the Service `service` converts all kinds that need a conversion; returns the trusted certificate authority of each CRD, by the CRD's
/// name.
///
/// # Errors
/// Fails if a CRD with webhook conversion names another Service, or if the number of such CRDs is not `CONVERTED`.
pub async fn converted_by(client: &Client, service: &str) -> Result<BTreeMap<String, String>> {
    let mut trusted = BTreeMap::new();
    for (name, definition) in definitions(client).await? {
        if text(&definition, "/spec/conversion/strategy") == "Webhook" {
            let named = text(&definition, "/spec/conversion/webhook/clientConfig/service/name");
            ensure!(named == service, "{name} is converted by {named:?}");
            let authority = text(&definition, "/spec/conversion/webhook/clientConfig/caBundle").to_owned();
            trusted.insert(name, authority);
        }
    }
    ensure!(trusted.len() == CONVERTED, "converted are {:?}", trusted.keys());
    Ok(trusted)
}

/// Waits until Berth's Service converts Kueue's kinds and each CRD trusts Berth's own certificate authority, and no longer Kueue's authority (the parameter
/// `kueues`).
///
/// # Errors
/// Fails if the CRDs do not trust Berth's authority within [`STEP`].
pub async fn until_berth_converts(client: &Client, kueues: &str) -> Result<()> {
    wait::until(STEP, "Berth alone is trusted with the conversion", || async {
        let trusted = converted_by(client, "berth-webhook-service").await?;
        let wrong: Vec<_> = trusted.iter().filter(|(_, bundle)| bundle.is_empty() || *bundle == kueues).collect();
        Ok(Seen::when(wrong.is_empty(), || format!("{wrong:?}")))
    })
    .await
}

/// The block of commands in docs/migrate-from-kueue.md that hands the CRDs over to Berth's release; the text [`POLICY`] in the block identifies it.
fn commands() -> Result<String> {
    let page = fs::read_to_string(repository().join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let mut blocks = page.split("```").skip(1).step_by(2);
    let found = blocks.find(|block| block.contains(POLICY));
    found.map(str::to_owned).with_context(|| format!("{PAGE} does not say {POLICY}"))
}

/// Runs commands of docs/migrate-from-kueue.md in a shell, as the page's reader does.
async fn run(plane: &ControlPlane, commands: String) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-euc", commands.as_str()]).current_dir(repository()).stdin(Stdio::null());
    command.env("KUBECONFIG", plane.kubeconfig());
    command.env("KUBECACHEDIR", plane.kubeconfig().with_extension("cache"));
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("starting sh")?;
    ensure!(output.status.success(), "{commands}failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
