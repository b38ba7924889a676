//! Flags for the accelerators of TrainingJobs, which `berth manager` and `berth decide` share.

use berth_api::validation::qualified_name;
use berth_jobs::training::Accelerators;
use clap::Args;

/// Flags for the resource that `replicaResources.gpu` of a TrainingJob requests, and for the node label that `gpuType` selects.
#[derive(Debug, Args)]
pub struct AcceleratorFlags {
    /// Resource that counts the accelerators of TrainingJobs, as amd.com/gpu [default: nvidia.com/gpu]
    #[arg(long)]
    training_card_resource: Option<String>,
    /// Node label with the type of accelerator of a node, as cloud.google.com/gke-accelerator [default: nvidia.com/gpu.product]
    #[arg(long)]
    training_card_label: Option<String>,
}

impl AcceleratorFlags {
    /// The resource and the node label that the flags set.
    ///
    /// # Errors
    /// Fails if a flag has an invalid value; the error has the flag, its value and what is allowed.
    pub fn accelerators(&self) -> Result<Accelerators, String> {
        let mut accelerators = Accelerators::default();
        if let Some(resource) = &self.training_card_resource {
            // A resource name without a vendor, such as cpu, is Kubernetes' own and not allowed.
            let extended = resource.split_once('/').is_some_and(|(vendor, _)| !vendor.ends_with("kubernetes.io"));
            if let Some(wrong) = qualified_name(resource) {
                return Err(format!("--training-card-resource is `{resource}`: {wrong}"));
            }
            if !extended {
                return Err(format!(
                    "--training-card-resource is `{resource}`; allowed is an extended resource, as amd.com/gpu"
                ));
            }
            accelerators.resource.clone_from(resource);
        }
        if let Some(label) = &self.training_card_label {
            if let Some(wrong) = qualified_name(label) {
                return Err(format!("--training-card-label is `{label}`: {wrong}"));
            }
            accelerators.type_label.clone_from(label);
        }
        Ok(accelerators)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: AcceleratorFlags,
    }

    #[test]
    fn accelerator_flags_are_read_and_invalid_values_refused() {
        let accelerators =
            |words: &[&str]| Line::try_parse_from(["berth"].iter().chain(words)).unwrap().flags.accelerators();
        assert_eq!(accelerators(&[]), Ok(Accelerators::default()));
        let amd = ["--training-card-resource=amd.com/gpu", "--training-card-label=cloud.google.com/gke-accelerator"];
        let wanted =
            Accelerators { resource: "amd.com/gpu".into(), type_label: "cloud.google.com/gke-accelerator".into() };
        assert_eq!(accelerators(&amd), Ok(wanted));
        for (flag, value) in [
            ("--training-card-resource", "cpu"),
            ("--training-card-resource", ""),
            ("--training-card-resource", "amd.com/"),
            ("--training-card-resource", "kubernetes.io/batch-cpu"),
            ("--training-card-label", "a label"),
            ("--training-card-label", ""),
        ] {
            let error = accelerators(&[format!("{flag}={value}").as_str()]).unwrap_err();
            assert!(error.starts_with(&format!("{flag} is `{value}`")), "{error}");
        }
    }
}
