//! Paths of the repository and the user's cache, and programs of other projects that tests run, for all test tools. The programs of other projects are built
//! with Go from a `go.mod` of this repository and stored in the cache. The binary of this crate is `testrun` (`main.rs`).

pub mod folders;
pub mod programs;
