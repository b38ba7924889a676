//! Flags of the commands that need no cluster.

use crate::capacity::clouds::Cloud;
use berth_configuration::AcceleratorFlags;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The manifests to decide on, and the form of the answer.
#[derive(Debug, Args)]
pub struct DecideFlags {
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
    pub(crate) accelerators: AcceleratorFlags,
}

/// The table to make flavors of.
#[derive(Debug, Args)]
pub struct FlavorsFlags {
    /// The table (config.berth.dev/v1alpha1, kind CapacityTable); - is the standard input
    #[arg(short = 'f', long = "filename")]
    pub(crate) file: PathBuf,
    /// File to write [default: the standard output]
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
}

/// The system to import from.
#[derive(Debug, Args)]
pub struct ImportFlags {
    #[command(subcommand)]
    pub(crate) what: Import,
}

/// Other systems.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// AxLearn's quota file: flavors by tier, a ClusterQueue and a LocalQueue for each project, a cohort, and RoleBindings.
    AxlearnQuota(Box<AxlearnQuotaFlags>),
    /// Volcano's queues, pod groups and jobs: a cohort tree, ClusterQueues, LocalQueues, and the jobs and pods with their queue.
    ///
    /// The manifests go to the standard output, and the report to the standard error: a line for each value that has no counterpart, with file,
    /// line, field and value.
    Volcano(VolcanoFlags),
}

/// Objects of Volcano, and options for facts that they do not hold.
#[derive(Debug, Args)]
pub(crate) struct VolcanoFlags {
    /// Manifests: YAML or JSON, several documents in one file are fine; a folder stands for its *.yaml, *.yml and *.json; - is the standard
    /// input
    #[arg(short = 'f', long = "filename", num_args = 1.., required_unless_present = "from_cluster")]
    pub(crate) files: Vec<PathBuf>,
    /// Read the objects from the cluster, by `kubectl get`, instead of files
    #[arg(long, conflicts_with = "files")]
    pub(crate) from_cluster: bool,
    /// Context of the kubeconfig file, for --from-cluster [default: the current one]
    #[arg(long, conflicts_with = "files")]
    pub(crate) context: Option<String>,
    /// Namespace of objects that name none
    #[arg(short = 'n', long, default_value = "default")]
    pub(crate) namespace: String,
    /// ResourceFlavor of all quotas [default: the one of the documents, else a new one called default]
    #[arg(long)]
    pub(crate) flavor: Option<String>,
    /// File to write [default: the standard output]
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// End with exit code 1 where the report has a line
    #[arg(long)]
    pub(crate) strict: bool,
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
    use crate::{Command, Line};
    use clap::Parser;

    #[test]
    fn import_flags_are_parsed_and_flavors_needs_a_file() {
        let words = "berth import axlearn-quota -f q.toml --tiers reserved,spot --cloud bare-metal --reservation a \
                     --reservation v4=b";
        let Command::Import(ImportFlags { what: Import::AxlearnQuota(flags) }) =
            Line::try_parse_from(words.split(' ')).unwrap().command
        else {
            unreachable!("the first words are import axlearn-quota");
        };
        let flags = *flags;
        assert_eq!((flags.tiers.join(" "), flags.reservation.join(" ")), ("reserved spot".into(), "a v4=b".into()));
        assert_eq!((flags.cloud, flags.namespace.as_str(), flags.output), (Cloud::BareMetal, "{project}", None));
        assert!(Line::try_parse_from(["berth", "flavors"]).is_err(), "a file is needed");
    }

    #[test]
    fn volcano_import_takes_either_files_or_the_cluster() {
        for (words, fits) in [
            ("-f a.yaml b.yaml --flavor gpu -n team --strict", true),
            ("--from-cluster --context prod", true),
            ("", false),
            ("-f a.yaml --from-cluster", false),
            ("-f a.yaml --context prod", false),
        ] {
            let words = format!("berth import volcano {words}");
            let parsed = Line::try_parse_from(words.split_whitespace());
            assert_eq!(parsed.is_ok(), fits, "{words}");
        }
    }
}
