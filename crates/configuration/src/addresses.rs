//! Addresses in flags and in the configuration file: the chart always sets the flags, and Kueue's file has other ports.

use crate::schema::Configuration;

/// Addresses that flags set.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// `--metrics-bind-address`.
    pub metrics: Option<String>,
    /// The value of the flag `--health-probe-bind-address`.
    pub health: Option<String>,
    /// `--webhook-bind-address`.
    pub webhook: Option<String>,
}

/// Warnings about addresses of the configuration file that a flag replaces, one for each address; `webhook` is the webhooks' address of the file
/// after defaults.
pub(crate) fn overruled(file: &Configuration, webhook: &str, given: &Addresses) -> Vec<String> {
    let server = &file.webhook;
    let says_webhook =
        server.port.is_some_and(|port| port != 0) || server.host.as_deref().is_some_and(|host| !host.is_empty());
    let parts = [
        ("metrics.bindAddress", file.metrics.bind_address.as_deref(), "--metrics-bind-address", &given.metrics),
        (
            "health.healthProbeBindAddress",
            file.health.health_probe_bind_address.as_deref(),
            "--health-probe-bind-address",
            &given.health,
        ),
        ("webhook.port", says_webhook.then_some(webhook), "--webhook-bind-address", &given.webhook),
    ];
    let warning = |(field, file, flag, given): (&str, Option<&str>, &str, &Option<String>)| {
        let file = file.filter(|address| !address.is_empty())?;
        let given = given.as_deref().filter(|address| *address != file)?;
        Some(format!(
            "{field} is `{file}` and {flag} is `{given}`, which holds; the chart gives the flag by its values metrics.port, \
             health.port and webhook.port"
        ))
    };
    parts.into_iter().filter_map(warning).collect()
}
