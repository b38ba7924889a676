//! Tests of the API types through their public face: laws of conversion.

mod conversion;
#[path = "../../testrun/noted.rs"]
mod noted;
