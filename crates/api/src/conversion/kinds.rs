//! The kinds whose versions differ, and the units of each.

use super::fields::{Fields, text};
use super::unit::{Names, Unit};
use super::version::{Version, both};
use super::{queues, workload};

/// The kinds whose versions differ.
pub(super) const KINDS: [(&str, &[Unit]); 5] = [
    ("ClusterQueue", queues::CLUSTER_QUEUE),
    ("Cohort", queues::COHORT),
    ("LocalQueue", queues::LOCAL_QUEUE),
    ("MultiKueueCluster", queues::MULTIKUEUE_CLUSTER),
    ("Workload", workload::UNITS),
];
/// Fields that are read of every object beside its units: apiVersion and kind, name and namespace, and annotations.
const OF_ALL: [(Names, Names); 2] =
    [(&[], &["apiVersion", "kind"]), (&["metadata"], &["name", "namespace", "annotations"])];

/// The version of an object, and the units of its kind.
pub(super) fn known(object: &Fields) -> Result<(Version, &'static [Unit]), String> {
    let from = version_of(object)?;
    let kind = text(object, "kind");
    let units = units(kind).ok_or_else(|| {
        format!("kind {kind:?} has no conversion: its versions are alike, or it is not of this group")
    })?;
    Ok((from, units))
}

/// The name, in a version, of a field that the kind has in the other version alone: `spec.cohort` of a ClusterQueue is `spec.cohortName` in
/// v1beta2. `None` for all other fields.
#[must_use]
pub fn renamed_field(kind: &str, version: Version, path: &str) -> Option<String> {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let of = |unit: &&Unit| unit.parent.join(".") == parent && unit.fields.contains(&field);
    // The first name of a unit is that of v1beta2.
    let mut names = units(kind)?.iter().find(of)?.fields.iter();
    let newer = names.next().filter(|newer| **newer != field);
    let name = match version {
        Version::V1beta2 => newer,
        Version::V1beta1 => names.next().filter(|_| newer.is_none()),
    };
    name.map(|name| if parent.is_empty() { (*name).to_owned() } else { format!("{parent}.{name}") })
}

/// The version of an object.
pub(super) fn version_of(object: &Fields) -> Result<Version, String> {
    let given = text(object, "apiVersion");
    Version::of(given).ok_or_else(|| format!("apiVersion {given:?} cannot be converted, {} can", both()))
}

/// The units of a kind whose versions differ.
pub(super) fn units(kind: &str) -> Option<&'static [Unit]> {
    KINDS.into_iter().find(|(name, _)| *name == kind).map(|(_, units)| units)
}

/// Paths to parents in objects of all kinds, and the fields there that are read.
pub(super) fn looked_into() -> impl Iterator<Item = (Names, Names)> {
    let of_units = KINDS.into_iter().flat_map(|(_, units)| units).map(|unit| {
        // Limited fields may be long, and are mostly converted from their text.
        let fields: Names = if unit.limited.is_some() { &[] } else { unit.fields };
        (unit.parent, fields)
    });
    OF_ALL.into_iter().chain(of_units)
}
