//! The kinds whose versions differ, and the conversion units of each kind.

use super::error::ConversionError;
use super::fields::{Fields, text};
use super::unit::{Names, Unit};
use super::version::Version;
use super::{queues, workload};

/// The kinds whose versions differ, with their conversion units.
pub(super) const KINDS: [(&str, &[Unit]); 5] = [
    ("ClusterQueue", queues::CLUSTER_QUEUE),
    ("Cohort", queues::COHORT),
    ("LocalQueue", queues::LOCAL_QUEUE),
    ("MultiKueueCluster", queues::MULTIKUEUE_CLUSTER),
    ("Workload", workload::UNITS),
];
/// Fields that are read in every object, in addition to the fields of the conversion units: apiVersion and kind, name and namespace, and annotations.
const OF_ALL: [(Names, Names); 2] =
    [(&[], &["apiVersion", "kind"]), (&["metadata"], &["name", "namespace", "annotations"])];

/// The version of an object, and the conversion units of its kind.
pub(super) fn known(object: &Fields) -> Result<(Version, &'static [Unit]), ConversionError> {
    let from = version_of(object)?;
    let kind = text(object, "kind");
    let units = units(kind).ok_or_else(|| ConversionError::Kind(kind.to_owned()))?;
    Ok((from, units))
}

/// The path in `version` of a field that the other version names differently, as `spec.cohort` of a ClusterQueue is `spec.cohortName` in v1beta2. The path is
/// `None` for a field that both versions name alike.
#[must_use]
pub fn renamed_field(kind: &str, version: Version, path: &str) -> Option<String> {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let of = |unit: &&Unit| unit.parent.join(".") == parent && unit.fields.contains(&field);
    // In the list of fields of a conversion unit, the field with the name of v1beta2 comes first.
    let mut names = units(kind)?.iter().find(of)?.fields.iter();
    let newer = names.next().filter(|newer| **newer != field);
    let name = match version {
        Version::V1beta2 => newer,
        Version::V1beta1 => names.next().filter(|_| newer.is_none()),
    };
    name.map(|name| if parent.is_empty() { (*name).to_owned() } else { format!("{parent}.{name}") })
}

/// The version of an object.
pub(super) fn version_of(object: &Fields) -> Result<Version, ConversionError> {
    let given = text(object, "apiVersion");
    Version::of(given).ok_or_else(|| ConversionError::Version(given.to_owned()))
}

/// The conversion units of a kind; `None` if the versions of the kind do not differ.
pub(super) fn units(kind: &str) -> Option<&'static [Unit]> {
    KINDS.into_iter().find(|(name, _)| *name == kind).map(|(_, units)| units)
}

/// Pairs of a path in an object and the fields to decode at that path, for the conversion units of all kinds.
pub(super) fn looked_into() -> impl Iterator<Item = (Names, Names)> {
    let of_units = KINDS.into_iter().flat_map(|(_, units)| units).map(|unit| {
        // Fields of a conversion unit with `limited` may be long, and are mostly converted from their JSON text, so they are not decoded.
        let fields: Names = if unit.limited.is_some() { &[] } else { unit.fields };
        (unit.parent, fields)
    });
    OF_ALL.into_iter().chain(of_units)
}
