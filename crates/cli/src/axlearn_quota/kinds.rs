//! AxLearn's resource types in Kubernetes: the resource, the node labels, and the number of AxLearn's units in one unit of the resource.

use std::collections::BTreeMap;

/// AxLearn's names of TPU versions, each with its node label value on GKE and the number of AxLearn's units per chip. AxLearn's unit is the unit of the last
/// number of an instance type (`v4-8`, `v5litepod-16`): cores for some versions, and chips for others.
const TPUS: [(&str, &str, i128); 5] = [
    ("v4", "tpu-v4-podslice", 2),
    ("v5p", "tpu-v5p-slice", 2),
    ("7x", "tpu7x", 2),
    ("v5litepod", "tpu-v5-lite-podslice", 1),
    ("v6e", "tpu-v6e-slice", 1),
];
/// The GKE label of nodes with TPUs, whose value is the TPU version.
const TPU_LABEL: &str = "cloud.google.com/gke-tpu-accelerator";
/// Largest number of AxLearn's units that one unit of a Kubernetes resource may stand for.
const MOST_UNITS: i128 = 1000;
/// The allowed form of the flag `--type`, for error messages.
const FORM: &str = "allowed is TYPE=RESOURCE[:UNITS][,LABEL=VALUE...], such as \
                    h100=nvidia.com/gpu,cloud.google.com/gke-accelerator=nvidia-h100-80gb";

/// The Kubernetes resource and nodes for one AxLearn resource type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceKind {
    /// Name of the Kubernetes resource that pods request.
    pub(crate) resource: String,
    /// Number of AxLearn's units in one unit of the resource.
    pub(crate) units: i128,
    /// Labels of the nodes that have the resource.
    pub(crate) labels: BTreeMap<String, String>,
}

/// Resource types that the flags `--type` define, by name.
///
/// # Errors
/// The error names the malformed flag and the allowed form.
pub(crate) fn from_flags(options: &[String]) -> Result<BTreeMap<String, ResourceKind>, String> {
    let mut kinds = BTreeMap::new();
    for option in options {
        let refused = || format!("--type {option:?}: {FORM}");
        let (name, rest) = option.split_once('=').ok_or_else(refused)?;
        let mut parts = rest.split(',');
        let first = parts.next().unwrap_or_default();
        let (resource, units) = first.rsplit_once(':').unwrap_or((first, "1"));
        let units = units.parse::<i128>().ok().filter(|units| (1..=MOST_UNITS).contains(units)).ok_or_else(refused)?;
        let labels = parts.map(|part| {
            let (key, value) = part.split_once('=').ok_or_else(refused)?;
            Ok::<_, String>((key.to_owned(), value.to_owned()))
        });
        let labels = labels.collect::<Result<_, String>>()?;
        if name.is_empty() || resource.is_empty() {
            return Err(refused());
        }
        let kind = ResourceKind { resource: resource.to_owned(), units, labels };
        if kinds.insert(name.to_owned(), kind).is_some() {
            return Err(format!("--type {option:?}: {name} is told twice"));
        }
    }
    Ok(kinds)
}

/// The built-in definition of a TPU type, which needs no `--type` flag.
pub(crate) fn known(name: &str) -> Option<ResourceKind> {
    let (_, label, units) = TPUS.into_iter().find(|(known, ..)| *known == name)?;
    Some(ResourceKind {
        resource: "google.com/tpu".to_owned(),
        units,
        labels: BTreeMap::from([(TPU_LABEL.to_owned(), label.to_owned())]),
    })
}

/// Error for an unknown resource type, with the form of the flag `--type`.
pub(crate) fn unknown(name: &str) -> String {
    let names = TPUS.map(|(name, ..)| name).join(", ");
    format!("the type {name:?} is not known ({names} are); say what it is by --type: {FORM}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerator_type_is_built_in_or_given_by_option() {
        assert_eq!(known("v4").map(|kind| kind.units), Some(2));
        assert_eq!(known("h100"), None);
        let kinds =
            from_flags(&["h100=nvidia.com/gpu,a.b/c=d,e=".to_owned(), "v3=google.com/tpu:2".to_owned()]).unwrap();
        let labels = BTreeMap::from([("a.b/c".to_owned(), "d".to_owned()), ("e".to_owned(), String::new())]);
        assert_eq!(kinds["h100"], ResourceKind { resource: "nvidia.com/gpu".to_owned(), units: 1, labels });
        assert_eq!((kinds["v3"].units, kinds["v3"].labels.len()), (2, 0));
    }

    #[test]
    fn type_option_that_is_malformed_or_repeated_is_refused() {
        for option in ["h100", "=a", "a=", "a=b:0", "a=b:x", "a=b:1001", "a=b,c"] {
            let fault = super::from_flags(&[option.to_owned()]).unwrap_err();
            assert!(fault.starts_with(&format!("--type {option:?}: allowed is TYPE=")), "{fault}");
        }
        let twice = super::from_flags(&["a=b".to_owned(), "a=c".to_owned()]).unwrap_err();
        assert!(twice.ends_with("a is told twice"), "{twice}");
    }
}
