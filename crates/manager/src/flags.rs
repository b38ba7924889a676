//! The flags of `berth manager`.

use berth_api::validation::qualified_name;
use berth_configuration::{AcceleratorFlags, ObjectNames};
use clap::Args;
use std::path::PathBuf;

/// Flags of the manager, which take precedence over its configuration file.
#[derive(Debug, Args)]
pub struct ManagerFlags {
    /// Path of a kubeconfig; without it the usual places and then the service account
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Path of a configuration file (config.kueue.x-k8s.io v1beta1 or v1beta2)
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// Address of /metrics; "0" switches it off [default: the file's, else :8443]
    #[arg(long)]
    pub(crate) metrics_bind_address: Option<String>,
    /// Serve /metrics over TLS, and to those alone who may get it by RBAC [default: true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) metrics_secure: Option<bool>,
    /// Address of the probes; "0" switches them off [default: the file's, else :8081]
    #[arg(long)]
    pub(crate) health_probe_bind_address: Option<String>,
    /// Address of the webhooks; "0" switches them off [default: the file's, else :9443]
    #[arg(long)]
    pub(crate) webhook_bind_address: Option<String>,
    /// Pause between publishing a new authority to the API server and using it, as 90s; the old one is kept ten times as long after
    #[arg(long, default_value = "1m")]
    pub(crate) webhook_ca_margin: String,
    /// Time for which webhooks are still served after the signal to end, until all of the cluster has heard of it; the pod's
    /// terminationGracePeriodSeconds (45 by the chart) has to be longer by 6, and above the 31 seconds that requests under way may take
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
    /// Names of the Service, the Secret of certificates and the webhook configurations: Berth's own or Kueue's
    #[arg(long, value_enum, default_value_t)]
    pub(crate) object_names: ObjectNames,
    /// Feature gates, as A=true,B=false
    #[arg(long)]
    pub(crate) feature_gates: Option<String>,
    /// Log level: debug, info, warn, error, or a number (higher says more)
    #[arg(long, default_value = "info")]
    pub(crate) zap_log_level: String,
    /// Key of a taint that announces that the cloud takes a node back, besides those of GKE, AKS and AWS; one flag for each key
    #[arg(long)]
    reclaim_taint: Vec<String>,
    #[command(flatten)]
    pub(crate) zap: ZapFlags,
    #[command(flatten)]
    pub(crate) accelerators: AcceleratorFlags,
}

impl ManagerFlags {
    /// Keys of the taints beside the built-in ones that announce the reclaim of a node by the cloud.
    ///
    /// # Errors
    /// A key is invalid; the error has the flag, its value and the fault.
    pub(crate) fn reclaim_taints(&self) -> Result<Vec<String>, String> {
        let read = |key: &String| match qualified_name(key) {
            Some(wrong) => Err(format!("--reclaim-taint is `{key}`: {wrong}")),
            None => Ok(key.clone()),
        };
        self.reclaim_taint.iter().map(read).collect()
    }
}

/// Flags of Kueue's logger that have no effect in Berth. Berth accepts flags of Kueue's logger, so that users can copy Kueue's arguments unchanged.
#[derive(Debug, Args)]
pub(crate) struct ZapFlags {
    /// Kueue's: no effect
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    zap_devel: Option<bool>,
    /// Kueue's: no effect
    #[arg(long, hide = true)]
    zap_encoder: Option<String>,
    /// Kueue's: no effect
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    /// Kueue's: no effect
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

impl ZapFlags {
    /// Warnings about flags that request another behaviour than Berth's, one sentence for each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let devel = self.zap_devel.filter(|on| *on).map(|on| on.to_string());
        let encoder = self.zap_encoder.clone().filter(|name| name != "json");
        let time = self.zap_time_encoding.clone().filter(|name| !matches!(name.as_str(), "rfc3339" | "rfc3339nano"));
        [
            ("zap-devel", devel),
            ("zap-encoder", encoder),
            ("zap-stacktrace-level", self.zap_stacktrace_level.clone()),
            ("zap-time-encoding", time),
        ]
        .into_iter()
        .filter_map(|(flag, value)| {
            let value = value?;
            Some(format!(
                "--{flag}={value} has no effect: logs are JSON lines with times of RFC 3339 and no stack traces, and \
                 --zap-log-level says how much of them there is"
            ))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: ManagerFlags,
    }

    fn manager(words: &[&str]) -> ManagerFlags {
        Line::try_parse_from(["manager"].iter().chain(words)).unwrap().flags
    }

    #[test]
    fn manager_flags_are_consistent_and_parsed() {
        Line::command().debug_assert();
        assert_eq!(manager(&[]).leader_elect, None);
        let secure = |words: &[&str]| manager(words).metrics_secure.unwrap_or(true);
        assert_eq!(
            (secure(&[]), secure(&["--metrics-secure"]), secure(&["--metrics-secure=false"])),
            (true, true, false)
        );
        assert_eq!(manager(&["--leader-elect"]).leader_elect, Some(true));
        assert_eq!(manager(&["--leader-elect=false"]).leader_elect, Some(false));
        let delay = |words: &[&str]| manager(words).webhook_shutdown_delay;
        assert_eq!((delay(&[]), delay(&["--webhook-shutdown-delay=0s"])), ("5s".to_owned(), "0s".to_owned()));
        let flags = manager(&["--metrics-bind-address", "127.0.0.1:1", "--namespace", "n", "--zap-log-level=2"]);
        assert_eq!(flags.metrics_bind_address.as_deref(), Some("127.0.0.1:1"));
        assert_eq!((flags.namespace.as_deref(), flags.zap_log_level.as_str()), (Some("n"), "2"));
    }

    #[test]
    fn reclaim_taint_flags_are_read_and_invalid_values_refused() {
        let taints = |words: &[&str]| manager(words).reclaim_taints();
        assert_eq!(taints(&[]), Ok(vec![]));
        let two = ["--reclaim-taint=karpenter.sh/disrupted", "--reclaim-taint", "ToBeDeletedByClusterAutoscaler"];
        assert_eq!(taints(&two), Ok(vec!["karpenter.sh/disrupted".into(), "ToBeDeletedByClusterAutoscaler".into()]));
        for value in ["", "a=b", "a/b/c", "karpenter.sh/disrupted:NoSchedule"] {
            let error = taints(&[format!("--reclaim-taint={value}").as_str()]).unwrap_err();
            assert!(error.starts_with(&format!("--reclaim-taint is `{value}`: ")), "{error}");
        }
    }

    #[test]
    fn zap_flags_are_accepted_and_ineffective_ones_cause_warnings() {
        let warned = |words: &[&str]| manager(words).zap.warnings();
        let flag = |text: &String| text.split(' ').next().unwrap_or_default().to_owned();
        assert_eq!(warned(&[]), Vec::<String>::new());
        assert_eq!(
            warned(&["--zap-devel=false", "--zap-encoder=json", "--zap-time-encoding=rfc3339"]),
            Vec::<String>::new()
        );
        let all =
            ["--zap-devel", "--zap-encoder", "console", "--zap-stacktrace-level=error", "--zap-time-encoding=epoch"];
        let all = warned(&all);
        let named: Vec<String> = all.iter().map(flag).collect();
        let wanted =
            ["--zap-devel=true", "--zap-encoder=console", "--zap-stacktrace-level=error", "--zap-time-encoding=epoch"];
        assert_eq!(named, wanted);
        assert!(all.iter().all(|text| text.contains("--zap-log-level")), "{all:?}");
        assert!(Line::try_parse_from(["manager", "--zap-colour=red"]).is_err(), "an unknown one is an error");
    }
}
