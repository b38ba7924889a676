//! Laws over random worlds. They are one program, since each would take a minute on one core, and all of them share what they are made of.
//!
//! A failure names its seed; `BERTH_SEED=<seed> BERTH_CASES=1` repeats it.

mod accounts;
mod additions;
mod advice;
mod beyond;
mod claims;
mod digest;
mod equals;
mod falls;
mod node;
mod oracle;
mod partial;
mod quota;
mod rules;
mod sequences;
mod victims;
