//! The chart's ValidatingAdmissionPolicy, which limits the objects that Berth's own account may create.

use std::fs;

use anyhow::{Context, Result, anyhow};
use kube::Client;
use serde_json::{Value, json};

use crate::binaries::repository;
use crate::kinds;
use crate::manager::{NAMESPACE, SERVICE_ACCOUNT};

/// Name of the ValidatingAdmissionPolicy, and of its binding.
const NAME: &str = "berth-controller-manager";

/// Applies the chart's ValidatingAdmissionPolicy and its binding.
///
/// # Errors
/// Fails if the chart's file cannot be read, or if the API server refuses the policy or its binding.
pub async fn install(client: &Client) -> Result<()> {
    let path = repository().join("charts/berth/files/admission-policy.yaml");
    let mut text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    for (expression, value) in [(".Release.Namespace", NAMESPACE), (".Values.serviceAccount.name", SERVICE_ACCOUNT)] {
        text = text.replace(&format!("{{{{ {expression} }}}}"), value);
    }
    let spec: Value = serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    let version = "admissionregistration.k8s.io/v1";
    for (kind, spec) in [
        ("ValidatingAdmissionPolicy", spec),
        ("ValidatingAdmissionPolicyBinding", json!({"policyName": NAME, "validationActions": ["Deny"]})),
    ] {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "spec": spec});
        kinds::apply(client, &object).await?;
    }
    Ok(())
}
