//! What the file says about the admission server: `webhook` and `internalCertManagement`.

use crate::schema::Configuration;

/// The admission server, as the file wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// `webhook.host` and `webhook.port`.
    pub(crate) address: String,
    /// `webhook.certDir`, when `internalCertManagement.enable` is off.
    pub(crate) folder: Option<String>,
    /// `internalCertManagement.webhookServiceName`.
    pub(crate) service: String,
    /// `internalCertManagement.webhookSecretName`.
    pub(crate) secret: String,
}

impl Webhook {
    /// The names of Service and Secret are those of Berth's chart, so that Kueue's own are left alone beside it.
    pub(super) fn of(file: &Configuration) -> Result<Self, String> {
        let (server, own) = (&file.webhook, &file.internal_cert_management);
        let named = |given: &Option<String>, default: &str| {
            given.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| default.to_owned())
        };
        // As in the controller runtime, no port is the usual one.
        let port = server.port.filter(|port| *port != 0).unwrap_or(9443);
        if !(1..=65535).contains(&port) {
            return Err(format!("webhook.port is {port}; allowed is 1 to 65535"));
        }
        let host = server.host.clone().unwrap_or_default();
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let folder = named(&server.cert_dir, "/tmp/k8s-webhook-server/serving-certs");
        Ok(Self {
            address,
            folder: (!own.enable.unwrap_or(true)).then_some(folder),
            service: named(&own.webhook_service_name, "berth-webhook-service"),
            secret: named(&own.webhook_secret_name, "berth-webhook-server-cert"),
        })
    }
}
