//! What the test tools share: where the repository and the user's cache are, and the programs of other people that tests run,
//! built with Go from a `go.mod` of this repository and kept in the cache. The program `testrun` is beside it (`main.rs`).

pub mod folders;
pub mod programs;
