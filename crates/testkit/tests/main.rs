//! Tests of the runner of decision cases: each expectation of a case is compared, and the counts of verdicts are as listed.

mod canary;
mod counts;
mod leaves;
mod runner;
