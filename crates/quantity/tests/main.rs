//! Tests of quantities: by hand, and random ones against an arithmetic of any size.

mod quantities;
mod random;
