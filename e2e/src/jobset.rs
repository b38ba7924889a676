//! The real controller of JobSets with its CRD and its webhooks, on a control plane of the tests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::binaries;
use crate::control_plane::ControlPlane;
use crate::kinds;
use crate::process::{Guarded, Launch, free_ports};
use crate::wait::{self, STEP, Seen};
use crate::webhooks::{MUTATING, VALIDATING};

pub use crate::kinds::JOBSET;

/// The user name of the JobSet controller's service account.
const ACCOUNT: &str = "system:serviceaccount:jobset-system:jobset-controller-manager";

/// The folder with the CRD of JobSets, for [`crate::control_plane::Options`].
///
/// # Errors
/// Fails if the JobSet controller's Go module cannot be downloaded.
pub async fn definitions() -> Result<PathBuf> {
    let module = tokio::task::spawn_blocking(binaries::jobset_module).await??;
    Ok(module.join("config/components/crd/bases"))
}

/// Starts the JobSet controller and installs its webhooks for JobSets. The JobSet controller's webhooks for pods serve exclusive placement only;
/// [`place_exclusively`] installs them.
///
/// # Errors
/// Fails if the JobSet controller cannot be built or does not come up.
pub async fn start(plane: &ControlPlane) -> Result<Guarded> {
    let client = plane.client();
    let program = tokio::task::spawn_blocking(binaries::jobset).await??;
    let folder = plane.folder().join("jobset");
    fs::create_dir_all(&folder)?;
    plane.serving_certificate_into(&folder)?;
    let [port, health] = free_ports()?;
    let config = json!({
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": false},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": folder.display().to_string()},
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": false},
    });
    let path = folder.join("config.yaml");
    fs::write(&path, config.to_string())?;
    let process = Guarded::start(Launch {
        name: "jobset",
        program: &program,
        args: vec![
            format!("--kubeconfig={}", plane.kubeconfig_as(ACCOUNT)?.display()),
            format!("--config={}", path.display()),
        ],
        env: Vec::new(),
        folder: plane.folder(),
        doomed: None,
        restarts: false,
    })?;
    let authority = base64::engine::general_purpose::STANDARD.encode(fs::read(plane.authority())?);
    for (kind, verb, operations) in
        [(MUTATING, "mutate", json!(["CREATE"])), (VALIDATING, "validate", json!(["CREATE", "UPDATE"]))]
    {
        let url = format!("https://127.0.0.1:{port}/{verb}-jobset-x-k8s-io-v1alpha2-jobset");
        let rule = json!({"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["v1alpha2"], "operations": operations,
            "resources": ["jobsets"]});
        let webhook = json!({"name": format!("{verb}.jobset.x-k8s.io"), "rules": [rule], "sideEffects": "None",
            "clientConfig": {"url": url, "caBundle": authority}, "admissionReviewVersions": ["v1"]});
        let configuration = json!({"apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": format!("jobset-{verb}")}, "webhooks": [webhook]});
        kinds::apply(&client, &configuration).await?;
    }
    wait::until(STEP, "the webhooks of JobSets answer", || async {
        Ok(Seen::when(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok(), || process.tail(3)))
    })
    .await?;
    Ok(process)
}

/// Installs the webhooks for pods of a started JobSet controller. If a JobSet has the annotation `alpha.jobset.sigs.k8s.io/exclusive-topology`, the
/// pods of each of its Jobs follow the first pod of the Job to one place, and no other Job's pods go to that place.
///
/// # Errors
/// Fails if the JobSet controller was not started or the API server refuses the webhooks.
pub async fn place_exclusively(plane: &ControlPlane) -> Result<()> {
    let config: Value = serde_json::from_slice(&fs::read(plane.folder().join("jobset/config.yaml"))?)?;
    let port = config["webhook"]["port"].as_u64().context("the port of the controller's webhooks")?;
    let authority = base64::engine::general_purpose::STANDARD.encode(fs::read(plane.authority())?);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let selector = json!({"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]});
    for (kind, verb) in [(MUTATING, "mutate"), (VALIDATING, "validate")] {
        let webhook = json!({"name": format!("{verb}-pods.jobset.x-k8s.io"), "rules": [rule], "objectSelector": selector,
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/{verb}--v1-pod"), "caBundle": authority}});
        let configuration = json!({"apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": format!("jobset-{verb}-pods")}, "webhooks": [webhook]});
        kinds::apply(&plane.client(), &configuration).await?;
    }
    Ok(())
}
