//! Parts that the test tools share: the paths of the repository and the user's cache, and the programs of other projects that tests run,
//! built with Go from a `go.mod` of this repository and kept in the cache. The program `testrun` is beside it (`main.rs`).

pub mod folders;
pub mod programs;
