//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Berth: admission of batch jobs by quota, in Kueue's API.
#[derive(Debug, Parser)]
#[command(name = "berth", version, about, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, for a moment")]
pub(crate) enum Command {
    /// Run the operator.
    Manager(ManagerFlags),
    /// Say what Berth would do with the objects in manifests, without a cluster.
    Decide(DecideFlags),
}

#[derive(Debug, Args)]
pub(crate) struct ManagerFlags {
    /// Path of a kubeconfig; without it the usual places and then the service account
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Path of a configuration file (config.kueue.x-k8s.io v1beta1 or v1beta2)
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// Address of /metrics; "0" switches it off [default: the file's, else :8443]
    #[arg(long)]
    pub(crate) metrics_bind_address: Option<String>,
    /// Address of the probes; "0" switches them off [default: the file's, else :8081]
    #[arg(long)]
    pub(crate) health_probe_bind_address: Option<String>,
    /// Address of the webhooks; "0" switches them off [default: the file's, else :9443]
    #[arg(long)]
    pub(crate) webhook_bind_address: Option<String>,
    /// Pause between telling the API server about a new authority and using it, as 90s; ten times as long it is kept after
    #[arg(long, default_value = "1m")]
    pub(crate) webhook_ca_margin: String,
    /// Time from being told to end for which webhooks are served still, until all of the cluster has heard of it
    #[arg(long, default_value = "5s")]
    pub(crate) webhook_shutdown_delay: String,
    /// Namespace of the manager [default: the file's, else the service account's, else kueue-system]
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// Take part in leader election [default: the file's, else true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: Option<bool>,
    /// Namespace of the lease [default: the file's, else the manager's]
    #[arg(long)]
    pub(crate) leader_elect_resource_namespace: Option<String>,
    /// Name of the lease [default: the file's, else c1f6bfd2.kueue.x-k8s.io, which is Kueue's]
    #[arg(long)]
    pub(crate) leader_elect_resource_name: Option<String>,
    /// Feature gates, as A=true,B=false
    #[arg(long)]
    pub(crate) feature_gates: Option<String>,
    /// Log level: debug, info, warn, error, or a number (higher says more)
    #[arg(long, default_value = "info")]
    pub(crate) zap_log_level: String,
}

/// What to decide on, and how to say it.
#[derive(Debug, Args)]
pub(crate) struct DecideFlags {
    /// Manifests: YAML or JSON, several documents in one file are fine; of a folder its *.yaml, *.yml and *.json; - is the
    /// standard input
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Path of a configuration file (config.kueue.x-k8s.io v1beta1 or v1beta2)
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// Form of the answer
    #[arg(short = 'o', long = "output", value_enum, default_value = "text")]
    pub(crate) output: Output,
    /// The time it is (RFC 3339) [default: the latest creationTimestamp in the manifests]
    #[arg(long)]
    pub(crate) now: Option<String>,
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Yaml,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn manager(words: &[&str]) -> ManagerFlags {
        let words = ["berth", "manager"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Manager(flags) => flags,
            Command::Decide(_) => unreachable!("the first word is manager"),
        }
    }

    #[test]
    fn flags_are_consistent_and_read() {
        Cli::command().debug_assert();
        assert_eq!(manager(&[]).leader_elect, None);
        assert_eq!(manager(&["--leader-elect"]).leader_elect, Some(true));
        assert_eq!(manager(&["--leader-elect=false"]).leader_elect, Some(false));
        let delay = |words: &[&str]| manager(words).webhook_shutdown_delay;
        assert_eq!((delay(&[]), delay(&["--webhook-shutdown-delay=0s"])), ("5s".to_owned(), "0s".to_owned()));
        let flags = manager(&["--metrics-bind-address", "127.0.0.1:1", "--namespace", "n", "--zap-log-level=2"]);
        assert_eq!(flags.metrics_bind_address.as_deref(), Some("127.0.0.1:1"));
        assert_eq!((flags.namespace.as_deref(), flags.zap_log_level.as_str()), (Some("n"), "2"));
    }
}
