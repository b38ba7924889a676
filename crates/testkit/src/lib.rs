//! Berth's testkit: Kueue's decision cases, judged by the code of Berth that runs in clusters.
//!
//! Module [`case`] reads a case strictly, [`scene`] turns a case into objects that control observes, [`kinds`] lets control or a function of control decide,
//! and [`diff`] compares the result field by field. The testkit makes no decisions of its own, and the engine has no code for tests.
//!
//! [`conformance::run`] is the entry point; the command is `cargo run -p berth-testkit -- conformance DIR`.

pub mod amounts;
pub mod applicable;
pub mod case;
pub mod conformance;
pub mod diff;
pub mod gates;
pub mod kinds;
pub mod scene;
pub mod shown;
