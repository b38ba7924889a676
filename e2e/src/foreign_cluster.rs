//! An existing cluster for the demo: the question about the cluster to the user, Berth's access to the cluster, and the objects that stay there.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::kinds::{items, text};
use crate::{manager, quickstart};

/// The existing cluster of the demo: the current context of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Target {
    config: Value,
    /// Name of the context.
    pub context: String,
    cluster: Value,
}

impl Target {
    /// Reads a kubeconfig; a file that the kubeconfig names by a relative path lies in the kubeconfig's folder.
    ///
    /// # Errors
    /// Fails if the kubeconfig cannot be read.
    pub fn read(kubeconfig: &Path) -> Result<Self> {
        let written = std::fs::read_to_string(kubeconfig);
        let written = written.with_context(|| format!("reading {}", kubeconfig.display()))?;
        let config: Value =
            serde_saphyr::from_str(&written).map_err(|e| anyhow::anyhow!("{}: {e}", kubeconfig.display()))?;
        let absolute = std::path::absolute(kubeconfig)?;
        Ok(Self::of(config, absolute.parent().unwrap_or(&absolute)))
    }

    fn of(mut config: Value, folder: &Path) -> Self {
        for cluster in config.get_mut("clusters").and_then(Value::as_array_mut).into_iter().flatten() {
            let authority = cluster.pointer_mut("/cluster/certificate-authority");
            if let Some(Value::String(path)) = authority.filter(|path| path.as_str().is_some_and(|p| !p.is_empty())) {
                // `Path::join` makes a relative path of the kubeconfig absolute, and leaves an absolute path unchanged.
                *path = folder.join(&*path).display().to_string();
            }
        }
        let context = text(&config, "/current-context").to_owned();
        let named = |list: &str, name: &str| {
            items(&config, list).iter().find(|entry| text(entry, "/name") == name).cloned().unwrap_or_default()
        };
        let cluster = named("/clusters", text(&named("/contexts", &context), "/context/cluster"));
        Self { config, context, cluster }
    }

    /// Address of the cluster's API server.
    #[must_use]
    pub fn server(&self) -> &str {
        text(&self.cluster, "/cluster/server")
    }

    /// A kubeconfig for the same cluster, whose only credentials are the token `token`.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &str) -> Value {
        let cluster = text(&self.cluster, "/name");
        let mut config = self.config.clone();
        config["clusters"] = json!([self.cluster]);
        config["users"] = json!([{"name": "berth", "user": {"token": token}}]);
        config["contexts"] = json!([{"name": "berth", "context": {"cluster": cluster, "user": "berth"}}]);
        config["current-context"] = json!("berth");
        config
    }
}

/// The message about the objects that the demo leaves on an existing cluster, and about the commands that remove them.
#[must_use]
pub fn what_stays() -> String {
    let (system, account, demo) = (manager::NAMESPACE, manager::SERVICE_ACCOUNT, quickstart::NAMESPACE);
    format!(
        "What stays in the cluster: the namespace {demo} with its queue and jobs, the ClusterQueue and the ResourceFlavors of \
         examples/quickstart, the namespace {system} with Berth's service account and roles, the ClusterRoles and \
         ClusterRoleBindings named berth-*, and the CRDs. The file with the token of {system}/{account} is removed; the \
         token itself is valid for a day, or until that account is deleted.\n\n  \
         kubectl delete -f examples/quickstart/   # while the demo runs: Berth has finalizers on what is in use\n  \
         kubectl delete namespace {system}\n  \
         kubectl get clusterroles,clusterrolebindings -o name | grep '/berth-' | xargs kubectl delete\n  \
         kubectl delete -f crds/   # and with them every object of these kinds"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_passes_on_only_the_current_cluster_with_absolute_paths() {
        let cluster = |name: &str, file: &str| json!({"name": name, "cluster": {"server": "https://s", "certificate-authority": file}});
        let config = json!({
            "current-context": "b", "contexts": [{"name": "a", "context": {"cluster": "one", "user": "admin"}},
                {"name": "b", "context": {"cluster": "two", "user": "admin"}}],
            "clusters": [cluster("one", "/etc/ca.crt"), cluster("two", "pki/ca.crt"), {"name": "three", "cluster": {}}],
            "users": [{"name": "admin", "user": {"client-key-data": "secret"}}]});
        let target = Target::of(config, Path::new("/people/me/.kube"));
        assert_eq!((target.context.as_str(), target.server()), ("b", "https://s"));
        let made = target.kubeconfig_for("t");
        assert_eq!(made["clusters"], json!([cluster("two", "/people/me/.kube/pki/ca.crt")]));
        assert_eq!(made["users"], json!([{"name": "berth", "user": {"token": "t"}}]));
        assert_eq!(text(&made, "/contexts/0/context/cluster"), "two");
        assert!(!made.to_string().contains("secret"));
        assert_eq!(text(&target.config, "/clusters/0/cluster/certificate-authority"), "/etc/ca.crt");
    }
}
