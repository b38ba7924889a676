//! Tests of quantities: by hand, and random ones against an arithmetic of any size.

#[path = "../../testrun/noted.rs"]
mod noted;
mod quantities;
mod random;
