//! Kueue's CRDs on their way from Kueue's release to Berth's: their objects are stored in one version, the CRDs are handed over to Berth's release
//! while Kueue converts the objects, and Berth converts the objects after Kueue has ended.

use anyhow::{Result, ensure};
use berth_e2e::adoption;
use berth_e2e::helm;
use berth_e2e::kinds::DEPLOYMENT;
use berth_e2e::manager::Manager;
use berth_e2e::webhooks::NAMES;
use serde_json::{Value, json};

use crate::migration::{WORKLOADS, World, kueue};

/// A migration is refused before any change if a CRD has objects that an older Kueue stored as v1beta1, and the repair in the message works.
pub(crate) async fn stored_in_one_version(world: &World) -> Result<()> {
    let say = |versions: Value| {
        let patch = json!({"status": {"storedVersions": versions}}).to_string();
        async move {
            let args = ["patch", "crd", WORKLOADS, "--subresource=status", "--type=merge", "-p", &patch];
            world.plane.kubectl(&args).await.map(drop)
        }
    };
    say(json!(["v1beta1", "v1beta2"])).await?;
    let chart = helm::chart().display().to_string();
    let output = world.helm.run(&["install", "berth", &chart, "--namespace", helm::NAMESPACE]).await?;
    let refused = !output.ok && output.err.contains(WORKLOADS) && output.err.contains("v1beta2 alone");
    ensure!(refused, "the chart does not refuse what is stored as v1beta1: {}", output.err);
    let path = world.plane.folder().join("workloads.json");
    std::fs::write(&path, world.plane.kubectl(&["get", WORKLOADS, "-A", "-o", "json"]).await?)?;
    world.plane.kubectl(&["replace", "-f", &path.display().to_string()]).await?;
    say(json!(["v1beta2"])).await
}

/// The CRDs become part of a Helm release of Berth that is not installed yet, and Kueue continues to use them.
pub(crate) async fn adopted(world: &World) -> Result<()> {
    adoption::belong_to(&world.client, "kueue").await?;
    adoption::adopt(&world.plane).await
}

/// Checks that Kueue's Service converts the objects, and that no other program has replaced Kueue's certificate authority in the CRDs; the release
/// that owns the CRDs does not matter for the conversion.
pub(crate) async fn are_converted_by_kueue(world: &World) -> Result<()> {
    adoption::are_berths(&world.client).await?;
    let trusted = adoption::converted_by(&world.client, kueue::SERVICE).await?;
    ensure!(trusted.values().all(String::is_empty), "Berth has a hand in Kueue's conversion: {trusted:?}");
    Ok(())
}

/// Until Kueue's release is uninstalled, one command brings Kueue back, with its webhooks and its CRDs. After Kueue is back the test repeats the steps of
/// docs/migrate-from-kueue.md from the second step on.
pub(crate) async fn kueue_could_come_back(world: &World) -> Result<()> {
    let chart = world.plane.folder().join("kueue-chart").display().to_string();
    let args = ["upgrade", "kueue", &*chart, "--namespace", kueue::NAMESPACE, "--reuse-values", "--force-conflicts"];
    world.helm.ok(&args).await?;
    let back = DEPLOYMENT.get(&world.client, kueue::NAMESPACE, "kueue-controller-manager").await?;
    ensure!(back.is_some_and(|it| it["spec"]["replicas"] == json!(1)), "Kueue is not scaled up again");
    // Kueue's release owns the CRDs again, and would delete them if it were uninstalled now.
    adopted(world).await?;
    let left = world.delete_webhooks(kueue::WEBHOOKS).await?;
    ensure!(left == NAMES, "{left:?} are left");
    let scale = ["scale", "deployment", "kueue-controller-manager", "--replicas=0", "--namespace", kueue::NAMESPACE];
    world.plane.kubectl(&scale).await.map(drop)
}

/// The fields and objects that Kueue wrote while it ran become Berth's: the conversion of the CRDs, and the roles for people.
pub(crate) async fn converted_by_berth(world: &World, manager: &Manager) -> Result<()> {
    are_converted_by_kueue(world).await?;
    let chart = helm::chart().display().to_string();
    let mut args = vec!["upgrade", "berth", &*chart, "--namespace", helm::NAMESPACE, "--reuse-values"];
    args.extend(["--set", "crds.install=true,batchRoles=true", "--take-ownership", "--force-conflicts"]);
    world.helm.ok(&args).await?;
    adoption::are_berths(&world.client).await?;
    adoption::until_berth_converts(&world.client, "").await?;
    world.usage_is_right(manager).await
}
