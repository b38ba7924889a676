//! Tests of the API types through the public interface of the crate: laws of conversion.

mod conversion;
#[path = "../../testrun/noted.rs"]
mod noted;
