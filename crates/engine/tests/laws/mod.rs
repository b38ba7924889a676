//! Laws over random worlds. The laws are modules of one program, because each law takes a minute on one core, and all laws share the code that makes worlds.
//!
//! A failed law prints its seed; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

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
