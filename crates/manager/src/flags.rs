//! The command line.

use crate::capacity::clouds::Cloud;
use crate::configuration::ObjectNames;
use berth_api::validation::qualified_name;
use berth_jobs::training::Cards;
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
    /// Write the ResourceFlavors and ClusterQueues of a table of machine families and capacity tiers.
    Flavors(FlavorsFlags),
    /// Write manifests for what another system has.
    Import(ImportFlags),
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
    /// Key of a taint by which a node is announced to be taken back, beside those of GKE, AKS and AWS; once for each
    #[arg(long)]
    reclaim_taint: Vec<String>,
    #[command(flatten)]
    pub(crate) zap: ZapFlags,
    #[command(flatten)]
    pub(crate) cards: CardFlags,
}

impl ManagerFlags {
    /// Keys of the taints that announce the end of a node, beside those that are known.
    ///
    /// # Errors
    /// The flag, its value and what is wrong.
    pub(crate) fn reclaim_taints(&self) -> Result<Vec<String>, String> {
        let read = |key: &String| match qualified_name(key) {
            Some(wrong) => Err(format!("--reclaim-taint is `{key}`: {wrong}")),
            None => Ok(key.clone()),
        };
        self.reclaim_taint.iter().map(read).collect()
    }
}

/// The resource and node label of accelerators in TrainingJobs: `replicaResources.gpu` and `gpuType`.
#[derive(Debug, Args)]
pub(crate) struct CardFlags {
    /// Resource that counts the accelerators of TrainingJobs, as amd.com/gpu [default: nvidia.com/gpu]
    #[arg(long)]
    training_card_resource: Option<String>,
    /// Node label with the type of their accelerator, as cloud.google.com/gke-accelerator [default: nvidia.com/gpu.product]
    #[arg(long)]
    training_card_label: Option<String>,
}

impl CardFlags {
    /// The resource and label that the flags give.
    ///
    /// # Errors
    /// The flag, its value and what is allowed.
    pub(crate) fn cards(&self) -> Result<Cards, String> {
        let mut cards = Cards::default();
        if let Some(resource) = &self.training_card_resource {
            // A resource without a vendor is Kubernetes' own, as cpu.
            let extended = resource.split_once('/').is_some_and(|(vendor, _)| !vendor.ends_with("kubernetes.io"));
            if let Some(wrong) = qualified_name(resource) {
                return Err(format!("--training-card-resource is `{resource}`: {wrong}"));
            }
            if !extended {
                return Err(format!(
                    "--training-card-resource is `{resource}`; allowed is an extended resource, as amd.com/gpu"
                ));
            }
            cards.resource.clone_from(resource);
        }
        if let Some(label) = &self.training_card_label {
            if let Some(wrong) = qualified_name(label) {
                return Err(format!("--training-card-label is `{label}`: {wrong}"));
            }
            cards.type_label.clone_from(label);
        }
        Ok(cards)
    }
}

/// Flags of Kueue's logger without effect in Berth. They are accepted, so that users can copy Kueue's arguments unchanged.
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
    /// One sentence for each flag that asks for another behaviour than Berth's.
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

/// The manifests to decide on, and the form of the answer.
#[derive(Debug, Args)]
pub(crate) struct DecideFlags {
    /// Manifests: YAML or JSON, several documents in one file are fine; a folder stands for its *.yaml, *.yml and *.json; - is the standard
    /// input
    #[arg(short = 'f', long = "filename", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Path of a configuration file (config.kueue.x-k8s.io v1beta1 or v1beta2)
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// Form of the answer
    #[arg(short = 'o', long = "output", value_enum, default_value = "text")]
    pub(crate) output: Output,
    /// End with exit code 1 where something is `invalid`, `unknown` or `inactive`
    #[arg(long)]
    pub(crate) strict: bool,
    /// The time it is (RFC 3339) [default: the latest creationTimestamp in the manifests]
    #[arg(long)]
    pub(crate) now: Option<String>,
    #[command(flatten)]
    pub(crate) cards: CardFlags,
}

/// The table to make flavors of.
#[derive(Debug, Args)]
pub(crate) struct FlavorsFlags {
    /// The table (config.berth.dev/v1alpha1, kind CapacityTable); - is the standard input
    #[arg(short = 'f', long = "filename")]
    pub(crate) file: PathBuf,
    /// File to write [default: the standard output]
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
}

/// The system to import from.
#[derive(Debug, Args)]
pub(crate) struct ImportFlags {
    #[command(subcommand)]
    pub(crate) what: Import,
}

/// Other systems.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// AxLearn's quota file: flavors by tier, a ClusterQueue and a LocalQueue for each project, a cohort, and RoleBindings.
    AxlearnQuota(Box<AxlearnQuotaFlags>),
}

/// An AxLearn quota file, and options for facts that it does not hold.
#[derive(Debug, Args)]
pub(crate) struct AxlearnQuotaFlags {
    /// The quota file (project-quotas.config: TOML, schema version 1); - is the standard input
    #[arg(short = 'f', long = "filename")]
    pub(crate) file: PathBuf,
    /// File to write [default: the standard output]
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// For each tier of the file, best first, reserved, on-demand or spot, as reserved,spot [default: just that for two tiers,
    /// reserved for one]
    #[arg(long, value_delimiter = ',')]
    pub(crate) tiers: Vec<String>,
    /// Cloud or owner of the nodes
    #[arg(long, value_enum, default_value = "gke")]
    pub(crate) cloud: Cloud,
    /// Node label that holds the capacity tier, for aks (default capacity) and bare-metal
    #[arg(long)]
    pub(crate) capacity_label: Option<String>,
    /// Name of the reservation: NAME for all types, TYPE=NAME for one
    #[arg(long)]
    pub(crate) reservation: Vec<String>,
    /// Resource of a type: TYPE=RESOURCE[:UNITS][,LABEL=VALUE...], where UNITS of the file make one of the resource. TPUs v4, v5p,
    /// v5litepod, v6e and 7x are known
    #[arg(long = "type", value_name = "TYPE=RESOURCE")]
    pub(crate) types: Vec<String>,
    /// Name of the cohort
    #[arg(long, default_value = "axlearn")]
    pub(crate) cohort: String,
    /// Namespace of a project
    #[arg(long, default_value = "{project}")]
    pub(crate) namespace: String,
    /// LocalQueue of a project
    #[arg(long, default_value = "{project}")]
    pub(crate) local_queue: String,
    /// Name of a user of the file in RBAC, as oidc:{user}@example.com
    #[arg(long, default_value = "{user}")]
    pub(crate) user: String,
    /// Write the Namespaces as well
    #[arg(long)]
    pub(crate) create_namespaces: bool,
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
            other => unreachable!("the first word is manager: {other:?}"),
        }
    }

    #[test]
    fn manager_flags_are_consistent_and_parsed() {
        Cli::command().debug_assert();
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
    fn accelerator_flags_are_read_and_invalid_values_refused() {
        let cards = |words: &[&str]| manager(words).cards.cards();
        assert_eq!(cards(&[]), Ok(Cards::default()));
        let amd = ["--training-card-resource=amd.com/gpu", "--training-card-label=cloud.google.com/gke-accelerator"];
        let wanted = Cards { resource: "amd.com/gpu".into(), type_label: "cloud.google.com/gke-accelerator".into() };
        assert_eq!(cards(&amd), Ok(wanted));
        for (flag, value) in [
            ("--training-card-resource", "cpu"),
            ("--training-card-resource", ""),
            ("--training-card-resource", "amd.com/"),
            ("--training-card-resource", "kubernetes.io/batch-cpu"),
            ("--training-card-label", "a label"),
            ("--training-card-label", ""),
        ] {
            let error = cards(&[format!("{flag}={value}").as_str()]).unwrap_err();
            assert!(error.starts_with(&format!("{flag} is `{value}`")), "{error}");
        }
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
        assert!(Cli::try_parse_from(["berth", "manager", "--zap-colour=red"]).is_err(), "an unknown one is an error");
    }

    #[test]
    fn import_flags_are_parsed_and_flavors_needs_a_file() {
        let words = "berth import axlearn-quota -f q.toml --tiers reserved,spot --cloud bare-metal --reservation a \
                     --reservation v4=b";
        let Command::Import(ImportFlags { what: Import::AxlearnQuota(flags) }) =
            Cli::try_parse_from(words.split(' ')).unwrap().command
        else {
            unreachable!("the first words are import axlearn-quota");
        };
        let flags = *flags;
        assert_eq!((flags.tiers.join(" "), flags.reservation.join(" ")), ("reserved spot".into(), "a v4=b".into()));
        assert_eq!((flags.cloud, flags.namespace.as_str(), flags.output), (Cloud::BareMetal, "{project}", None));
        assert!(Cli::try_parse_from(["berth", "flavors"]).is_err(), "a file is needed");
    }
}
