//! Tests of the public interface of the crate control: stories of jobs, random faulty objects, and the comparison with fresh lists.

#![allow(unreachable_pub, reason = "modules of a test program are private to it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::struct_excessive_bools, clippy::fn_params_excessive_bools, reason = "tests")]

mod fuzz;
#[path = "../../testrun/noted.rs"]
mod noted;
mod recompute;
mod stories;
