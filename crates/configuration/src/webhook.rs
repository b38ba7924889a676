//! The blocks `webhook` and `internalCertManagement` of the configuration file, which are about the webhook server.

use crate::fault::Fault;
use crate::gates::Gates;
use crate::schema::{Configuration, InternalCertManagement};
use std::path::Path;

/// Names, as the chart sets them, of the objects through which the API server reaches Berth, and of the objects that Berth may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ObjectNames {
    /// Berth's own names, for a Berth next to Kueue.
    #[default]
    Berth,
    /// Kueue's names, for a Berth in the place of Kueue.
    Kueue,
}

impl ObjectNames {
    /// Name of the Service by which the API server reaches the webhooks.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Berth => "berth-webhook-service",
            Self::Kueue => "kueue-webhook-service",
        }
    }

    /// Name of the chart's Service for metrics.
    pub const fn metrics_service(self) -> &'static str {
        match self {
            Self::Berth => "berth-controller-manager-metrics",
            Self::Kueue => "kueue-controller-manager-metrics-service",
        }
    }

    /// Name of the Secret with the certificates, the only Secret that the chart allows Berth to write.
    pub const fn secret(self) -> &'static str {
        match self {
            Self::Berth => "berth-webhook-server-cert",
            Self::Kueue => "kueue-webhook-server-cert",
        }
    }

    /// Names of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration.
    pub const fn configurations(self) -> [&'static str; 2] {
        match self {
            Self::Berth => ["berth-mutating-webhook-configuration", "berth-validating-webhook-configuration"],
            Self::Kueue => ["kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"],
        }
    }
}

/// Settings of the webhook server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Address from `webhook.host` and `webhook.port`.
    pub address: String,
    /// Folder `webhook.certDir` with the certificates, if `internalCertManagement.enable` is false.
    pub folder: Option<String>,
    /// Value of the gate `ConcurrentAdmission`: if it is true, a ClusterQueue with a concurrentAdmissionPolicy must follow Kueue's rules about the
    /// policy.
    pub concurrent_admission: bool,
}

impl Webhook {
    /// The settings in the configuration file.
    pub(crate) fn of(file: &Configuration, gates: &Gates) -> Result<Self, Fault> {
        let server = &file.webhook;
        // As in Kueue, `webhook.port` has its default 9443 if it is absent or 0.
        let port = server.port.filter(|port| *port != 0).unwrap_or(9443);
        if !(1..=65535).contains(&port) {
            return Err(Fault::of("webhook.port", format!("webhook.port is {port}; allowed is 1 to 65535")));
        }
        let host = server.host.clone().unwrap_or_default();
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let given = server.cert_dir.clone().filter(|folder| !folder.is_empty());
        let folder = given.unwrap_or_else(|| "/tmp/k8s-webhook-server/serving-certs".to_owned());
        let folder = is_external(&file.internal_cert_management).then_some(folder);
        Ok(Self { address, folder, concurrent_admission: gates.on("ConcurrentAdmission") })
    }

    /// Message about certificate files that an administrator must still put into the folder; `None` if the files exist, or if Berth creates its own
    /// certificates.
    pub fn missing(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        let absent = ["tls.crt", "tls.key"].into_iter().filter(|name| !Path::new(folder).join(name).is_file());
        let absent: Vec<&str> = absent.collect();
        (!absent.is_empty()).then(|| {
            format!(
                "internalCertManagement.enable is false and webhook.certDir ({folder}) has no {}: until it has, the webhooks \
                 answer nobody and this replica is not ready. Mount your certificates there by the chart's values extraVolumes \
                 and extraVolumeMounts (mountPath: {folder}), or leave internalCertManagement out and Berth makes its own",
                absent.join(" and no ")
            )
        })
    }
}

/// Warnings about names in the configuration file that differ from the chart's, one for each: The chart gives Berth no rights to a Service or Secret of another
/// name than the chart's.
pub(crate) fn unused_names(block: &InternalCertManagement, names: ObjectNames) -> Vec<String> {
    let kept = if is_external(block) {
        "certificates are read from webhook.certDir".to_owned()
    } else {
        format!("Berth keeps its certificates in the Secret `{}` of its own namespace", names.secret())
    };
    let reached = format!("Berth is reached by the Service `{}` of its chart", names.service());
    [
        ("webhookServiceName", &block.webhook_service_name, names.service(), reached),
        ("webhookSecretName", &block.webhook_secret_name, names.secret(), kept),
    ]
    .into_iter()
    .filter_map(|(field, given, ours, instead)| {
        let given = given.as_deref().filter(|name| !name.is_empty() && *name != ours)?;
        Some(format!("internalCertManagement.{field} is `{given}`, which is not used: {instead}"))
    })
    .collect()
}

fn is_external(block: &InternalCertManagement) -> bool {
    !block.enable.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_files_that_are_missing_are_named_with_remedy() {
        let folder = std::env::temp_dir().join(format!("berth-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.display().to_string();
        let webhook = Webhook { address: String::new(), folder: Some(path.clone()), concurrent_admission: false };
        let missing = webhook.missing().unwrap();
        for part in ["no tls.crt and no tls.key", "extraVolumes", "extraVolumeMounts", &path] {
            assert!(missing.contains(part), "`{part}` not in `{missing}`");
        }
        std::fs::write(folder.join("tls.crt"), "").unwrap();
        assert!(webhook.missing().is_some_and(|missing| missing.contains("has no tls.key:")));
        std::fs::write(folder.join("tls.key"), "").unwrap();
        assert_eq!(webhook.missing(), None);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Webhook { folder: None, ..webhook }.missing(), None);
    }
}
