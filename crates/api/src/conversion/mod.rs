//! Conversion between v1beta1 and v1beta2, as changes to the JSON of an object. The conversion never fails on an object's content, has no clock or
//! I/O, and loses nothing of v1beta2.
//!
//! An object is not decoded into its type: unknown fields stay where they are, and only fields whose names or forms differ are changed. The fields whose names
//! or forms differ are listed as *conversion units* (`unit.rs`): fields of one parent object that have a meaning only together. Values that v1beta1 cannot
//! express are carried in the annotation [`NOT_IN_V1BETA1`](crate::labels::NOT_IN_V1BETA1). On the way back to v1beta2 the values in the annotation
//! `NOT_IN_V1BETA1` are used only while the v1beta1 fields still equal their conversion, so an edit through v1beta1 always takes precedence.
//!
//! A reader of the module starts at [`convert`], then reads the lists of conversion units in `workload.rs` and `queues.rs`. In a review ([`respond`]), fields
//! that no conversion unit reads stay JSON text (`lifted.rs`). `docs/departures/0008-conversion.md` lists what a conversion can lose, and why.

mod braces;
mod carried;
mod error;
mod fields;
mod kinds;
mod lifted;
mod object;
mod placement;
mod plain;
mod queues;
mod review;
mod unit;
mod version;
mod workload;

pub use error::ConversionError;
pub use kinds::renamed_field;
pub use object::{convert, to_stored};
pub use review::respond;
pub use version::Version;

#[cfg(test)]
mod tests;
