//! Conversion of one object from one version to the other.

use serde_json::{Map, Value};

use super::error::ConversionError;
use super::fields::{Fields, text};
use super::kinds::{known, units, version_of};
use super::unit::Unit;
use super::version::Version;
use super::{carried, placement};

/// Converts an object of one of the five kinds whose versions differ to the version `to`.
///
/// # Errors
/// Fails if the apiVersion is of another group or version, or if the kind is not one of the five whose versions differ. The error of the conversion is a
/// sentence for the user, without the object's name. Apart from `apiVersion` and `kind`, no content of an object makes the conversion fail.
pub fn convert(object: &mut Map<String, Value>, to: Version) -> Result<(), ConversionError> {
    let mut left = placement::DOMAINS;
    convert_within(object, to, &mut left)
}

/// Converts one of several objects; `left` is the number of topology domains that these objects may still write out.
pub(super) fn convert_within(object: &mut Fields, to: Version, left: &mut usize) -> Result<(), ConversionError> {
    let (from, units) = known(object)?;
    match (from, to) {
        (Version::V1beta2, Version::V1beta1) => down(object, units, left),
        (Version::V1beta1, Version::V1beta2) => up(object, units),
        (Version::V1beta1, Version::V1beta1) | (Version::V1beta2, Version::V1beta2) => return Ok(()),
    }
    object.insert("apiVersion".to_owned(), to.api_version().into());
    Ok(())
}

/// Converts an object of any kind of the group `kueue.x-k8s.io` to the version that the API server stores. If the versions of the object's kind do
/// not differ, only the `apiVersion` changes.
///
/// # Errors
/// Fails if the apiVersion is of another group or version; the error is a sentence for the user.
pub fn to_stored(object: &mut Map<String, Value>) -> Result<(), ConversionError> {
    if units(text(object, "kind")).is_some() {
        return convert(object, Version::V1beta2);
    }
    version_of(object)?;
    object.insert("apiVersion".to_owned(), Version::V1beta2.api_version().into());
    Ok(())
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
