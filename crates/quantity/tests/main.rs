//! Tests of quantities: texts chosen by hand, and random texts compared with an arithmetic without a limit of size.

#[path = "../../testrun/noted.rs"]
mod noted;
mod quantities;
mod random;
