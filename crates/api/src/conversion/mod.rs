//! v1beta1 ↔ v1beta2, as changes to the JSON of an object: total, without a clock or I/O, and lossless from v1beta2.
//!
//! An object is never decoded: unknown fields stay where they are, and only fields whose names or forms differ are changed. Such fields are
//! listed as *units* (`unit.rs`): fields of one parent that have a meaning only together. Values that a unit cannot have in v1beta1 travel in
//! the annotation [`NOT_IN_V1BETA1`]. They count on the way back only while the v1beta1 fields are equal to their conversion, so an edit
//! through v1beta1 always wins.
//!
//! Start reading at [`convert`], then the lists of units in `workload.rs` and `queues.rs`. In a review ([`respond`]) fields that no unit
//! looks into are not read at all (`lifted.rs`). `docs/departures/0008-conversion.md` lists the losses and their causes.

mod braces;
mod carried;
mod lifted;
mod placement;
mod plain;
mod queues;
mod review;
mod unit;
mod workload;

use serde_json::{Map, Value};

pub use review::respond;

use crate::labels::NOT_IN_V1BETA1;
use unit::{Names, Unit};

/// The members of a JSON object.
type Fields = Map<String, Value>;

/// The kinds whose versions differ.
const KINDS: [(&str, &[Unit]); 5] = [
    ("ClusterQueue", queues::CLUSTER_QUEUE),
    ("Cohort", queues::COHORT),
    ("LocalQueue", queues::LOCAL_QUEUE),
    ("MultiKueueCluster", queues::MULTIKUEUE_CLUSTER),
    ("Workload", workload::UNITS),
];
/// Fields that are read of every object beside its units: apiVersion and kind, name and namespace, and annotations.
const OF_ALL: [(Names, Names); 2] =
    [(&[], &["apiVersion", "kind"]), (&["metadata"], &["name", "namespace", "annotations"])];

/// A version of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The older one.
    V1beta1,
    /// The one that is stored.
    V1beta2,
}

impl Version {
    /// The version that an `apiVersion` names, when it is one of this group.
    pub fn of(api_version: &str) -> Option<Self> {
        match api_version {
            crate::v1beta1::API_VERSION => Some(Self::V1beta1),
            crate::API_VERSION => Some(Self::V1beta2),
            _ => None,
        }
    }

    /// The text of `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1beta1 => crate::v1beta1::API_VERSION,
            Self::V1beta2 => crate::API_VERSION,
        }
    }
}

/// Brings an object of one of the five kinds whose versions differ into the version `to`.
///
/// # Errors
/// A sentence for the user, without the object's name, when the apiVersion is of another group or version, or the kind is
/// none of the five. No content of an object is an error.
pub fn convert(object: &mut Map<String, Value>, to: Version) -> Result<(), String> {
    let mut left = placement::DOMAINS;
    convert_within(object, to, &mut left)
}

/// The same for one of several objects; `left` is the number of domains that they may still write out.
fn convert_within(object: &mut Fields, to: Version, left: &mut usize) -> Result<(), String> {
    let (from, units) = known(object)?;
    match (from, to) {
        (Version::V1beta2, Version::V1beta1) => down(object, units, left),
        (Version::V1beta1, Version::V1beta2) => up(object, units),
        (Version::V1beta1, Version::V1beta1) | (Version::V1beta2, Version::V1beta2) => return Ok(()),
    }
    object.insert("apiVersion".to_owned(), to.api_version().into());
    Ok(())
}

/// The version of an object, and the units of its kind.
fn known(object: &Fields) -> Result<(Version, &'static [Unit]), String> {
    let from = version_of(object)?;
    let kind = text(object, "kind");
    let units = units(kind).ok_or_else(|| {
        format!("kind {kind:?} has no conversion: its versions are alike, or it is not of this group")
    })?;
    Ok((from, units))
}

/// Brings an object of any kind of the group into the version that is stored. Where the versions are alike, only its
/// `apiVersion` changes.
///
/// # Errors
/// A sentence for the user when the apiVersion is of another group or version.
pub fn to_stored(object: &mut Map<String, Value>) -> Result<(), String> {
    if units(text(object, "kind")).is_some() {
        return convert(object, Version::V1beta2);
    }
    version_of(object)?;
    object.insert("apiVersion".to_owned(), Version::V1beta2.api_version().into());
    Ok(())
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

fn text<'a>(object: &'a Fields, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn version_of(object: &Fields) -> Result<Version, String> {
    let given = text(object, "apiVersion");
    Version::of(given).ok_or_else(|| format!("apiVersion {given:?} cannot be converted, {} can", both()))
}

fn both() -> String {
    format!("{} or {}", crate::v1beta1::API_VERSION, crate::API_VERSION)
}

fn units(kind: &str) -> Option<&'static [Unit]> {
    KINDS.into_iter().find(|(name, _)| *name == kind).map(|(_, units)| units)
}

/// Paths to parents in objects of all kinds, and the fields there that are read.
fn looked_into() -> impl Iterator<Item = (Names, Names)> {
    let of_units = KINDS.into_iter().flat_map(|(_, units)| units).map(|unit| {
        // Limited fields may be long, and are mostly converted from their text.
        let fields: Names = if unit.limited.is_some() { &[] } else { unit.fields };
        (unit.parent, fields)
    });
    OF_ALL.into_iter().chain(of_units)
}

fn down(object: &mut Fields, units: &[Unit], left: &mut usize) {
    let mut carried = Fields::new();
    for unit in units {
        unit.each(object, &mut |key, parent| {
            if let Some(lost) = unit.down(parent, left) {
                carried.insert(key, Value::Object(lost));
            }
        });
    }
    carried::put(object, carried);
}

fn up(object: &mut Fields, units: &[Unit]) {
    let mut carried = carried::take(object);
    for unit in units {
        unit.each(object, &mut |key, parent| unit.up(parent, carried.remove(&key)));
    }
}

#[cfg(test)]
mod tests;
