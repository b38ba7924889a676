//! Tests of the runner of decision cases: that each expectation counts, and that counts are as listed.

mod canary;
mod counts;
mod leaves;
mod runner;
