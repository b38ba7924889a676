//! v1beta1 ↔ v1beta2, as changes to the JSON of an object: total, without a clock or I/O, and lossless from v1beta2.
//!
//! An object is never decoded: unknown fields stay where they are, and only fields whose names or forms differ are changed. Such fields are
//! listed as *units* (`unit.rs`): fields of one parent that have a meaning only together. Values that a unit cannot have in v1beta1 travel in
//! the annotation [`NOT_IN_V1BETA1`](crate::labels::NOT_IN_V1BETA1). They count on the way back only while the v1beta1 fields are equal to
//! their conversion, so an edit through v1beta1 always wins.
//!
//! Start reading at [`convert`], then the lists of units in `workload.rs` and `queues.rs`. In a review ([`respond`]) fields that no unit
//! looks into are not read at all (`lifted.rs`). `docs/departures/0008-conversion.md` lists the losses and their causes.

mod braces;
mod carried;
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

pub use kinds::renamed_field;
pub use object::{convert, to_stored};
pub use review::respond;
pub use version::Version;

#[cfg(test)]
mod tests;
