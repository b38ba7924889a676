//! Owners of Kueue's CRDs along docs/migrate-from-kueue.md: Helm's marks on them change while Kueue goes on serving and converting them,
//! and Berth converts them when Kueue has ended.

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
/// Part of a command that marks the page's commands for the CRDs.
const POLICY: &str = "helm.sh/resource-policy=keep";
/// Number of Kueue 0.19's kinds, and of those that need a conversion.
const KINDS: usize = 11;
const CONVERTED: usize = 5;
/// Marks by which Helm takes an object for the release's.
const MARKS: [(&str, &str); 4] = [
    ("/metadata/annotations/helm.sh~1resource-policy", "keep"),
    ("/metadata/annotations/meta.helm.sh~1release-name", "berth"),
    ("/metadata/annotations/meta.helm.sh~1release-namespace", helm::NAMESPACE),
    ("/metadata/labels/app.kubernetes.io~1managed-by", "Helm"),
];

/// The CRDs of Kueue's kinds, by name.
///
/// # Errors
/// If the API server lacks one of these CRDs.
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

/// Kueue's CRDs are all there, and belong to that release.
///
/// # Errors
/// With the first that does not.
pub async fn belong_to(client: &Client, release: &str) -> Result<()> {
    for (name, definition) in definitions(client).await? {
        let owner = text(&definition, "/metadata/annotations/meta.helm.sh~1release-name");
        ensure!(owner == release, "CRD {name} belongs to {owner:?}");
    }
    Ok(())
}

/// Kueue's CRDs are all there, belong to Berth's release, and stay when it is uninstalled.
///
/// # Errors
/// With the first that is not marked so.
pub async fn are_berths(client: &Client) -> Result<()> {
    for (name, definition) in definitions(client).await? {
        for (pointer, wanted) in MARKS {
            let marked = text(&definition, pointer);
            ensure!(marked == wanted, "CRD {name}: {pointer} is {marked:?}, not {wanted:?}");
        }
    }
    Ok(())
}

/// Runs the page's commands, after which the CRDs of all kinds are Berth's and nothing that is served or stored has changed.
///
/// # Errors
/// When a command fails, leaves a kind out, or does more than that.
pub async fn adopt(plane: &ControlPlane) -> Result<()> {
    let client = plane.client();
    let before = definitions(&client).await?;
    run(plane, commands()?).await?;
    let after = definitions(&client).await?;
    ensure!(before.keys().eq(after.keys()), "were {:?}, are {:?}", before.keys(), after.keys());
    for ((name, was), now) in before.iter().zip(after.values()) {
        // The spec holds the conversion, its authority and the versions that are served.
        for pointer in ["/spec", "/status/storedVersions"] {
            ensure!(was.pointer(pointer) == now.pointer(pointer), "CRD {name}: {pointer} changed");
        }
    }
    are_berths(&client).await
}

/// Checks that the kinds that need a conversion are converted by that Service; returns its trusted authority for each, by name.
///
/// # Errors
/// If another Service converts one of these kinds.
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

/// Waits until Berth's Service converts, and the conversion trusts Berth's own authority, not `kueues`.
///
/// # Errors
/// If this takes longer than the usual time.
pub async fn until_berth_converts(client: &Client, kueues: &str) -> Result<()> {
    wait::until(STEP, "Berth alone is trusted with the conversion", || async {
        let trusted = converted_by(client, "berth-webhook-service").await?;
        let wrong: Vec<_> = trusted.iter().filter(|(_, bundle)| bundle.is_empty() || *bundle == kueues).collect();
        Ok(Seen::when(wrong.is_empty(), || format!("{wrong:?}")))
    })
    .await
}

/// The commands of the page.
fn commands() -> Result<String> {
    let page = fs::read_to_string(repository().join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let mut blocks = page.split("```").skip(1).step_by(2);
    let found = blocks.find(|block| block.contains(POLICY));
    found.map(str::to_owned).with_context(|| format!("{PAGE} does not say {POLICY}"))
}

/// Runs them as the page's reader does.
async fn run(plane: &ControlPlane, commands: String) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-euc", commands.as_str()]).current_dir(repository()).stdin(Stdio::null());
    command.env("KUBECONFIG", plane.kubeconfig());
    command.env("KUBECACHEDIR", plane.kubeconfig().with_extension("cache"));
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("starting sh")?;
    ensure!(output.status.success(), "{commands}failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
