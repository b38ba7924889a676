//! Berth's testkit: Kueue's decision cases, run through the code that operators run.
//!
//! A case is read strictly ([`case`]), turned into objects that control observes ([`scene`]), decided by control or by the
//! function that control's path calls ([`kinds`]), and compared field by field ([`diff`]). Nothing here decides anything by
//! itself, and nothing in the engine knows that it is being tested.
//!
//! Start reading at [`conformance::run`]; `cargo run -p berth-testkit -- conformance DIR` is the command.

pub mod amounts;
pub mod applicable;
pub mod case;
pub mod conformance;
pub mod diff;
pub mod gates;
pub mod kinds;
pub mod scene;
pub mod shown;
