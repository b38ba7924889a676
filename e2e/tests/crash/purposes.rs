//! The test that every purpose of a write has a row in the crash table, or a reason why it needs none.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;

use crate::crash::{older_rows, other_rows, rows};

/// Berth's source file that declares the purposes of its writes. The test reads the file, because end-to-end tests see Berth as its users do and link none of
/// its code.
const SOURCE: &str = "crates/reconcile/src/write/purpose.rs";

/// Purposes without a row in the crash table, with the reason why they need none.
const WITHOUT: [(&str, &str); 11] = [
    (
        "WithdrawStart",
        "made when the answer to a start was lost and the job is to stop: two faults at once, which control's stories tell",
    ),
    ("ListCheckpoints", "reads a store, past the API server; what it says is of use only to the process that asks"),
    ("DeleteCheckpoints", "writes to a store, past the API server; the next look finds what is left"),
    ("FindStuckPods", "reads; the next process asks again, and what is decided upon it is a write with a row"),
    ("CountNodes", "reads; as long as the status does not have the answer the next process asks again"),
    (
        "SyncPreemptionGates",
        "follows the spec alone, and a gate that is not listed counts as closed; the next process lists it",
    ),
    (
        "ExplainUnseen",
        "the same write as ExplainPending, which has rows, under a name of its own for its place in the queue of writes",
    ),
    ("FindLeftPods", "reads; the next process sees the Workload without an owner and asks again"),
    ("ReadPod", "reads; the next process knows of no answer and asks again, as long as the pod is odd or resized"),
    ("ReadJob", "reads; the next process asks again, as long as the job has no Workload"),
    ("FindPodsOnNode", "reads; the next process sees the node's taint and asks again"),
];

/// The names of the variants of `Purpose`, read from its source.
fn declared() -> Result<BTreeSet<String>> {
    let source = std::fs::read_to_string(repository().join(SOURCE)).with_context(|| format!("reading {SOURCE}"))?;
    let (_, rest) = source.split_once("pub enum Purpose {").context("it declares no `pub enum Purpose`")?;
    let (body, _) = rest.split_once("\n}").context("the enum has no end")?;
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let name = |line: &str| {
        let name = line.strip_suffix(',').filter(|name| name.chars().all(char::is_alphanumeric));
        name.map(str::to_owned).with_context(|| format!("{SOURCE}: {line:?} is not the name of a purpose"))
    };
    lines.map(name).collect()
}

#[test]
fn every_purpose_has_a_row() -> Result<()> {
    let declared = declared()?;
    let reported = rows().into_iter().chain(older_rows()).chain(other_rows());
    let reported: BTreeSet<String> = reported.map(|row| row.purpose.to_owned()).collect();
    let excused: BTreeSet<String> = WITHOUT.iter().map(|(purpose, _)| (*purpose).to_owned()).collect();
    let known: BTreeSet<String> = reported.union(&excused).cloned().collect();
    let missing: Vec<&String> = declared.difference(&known).collect();
    ensure!(missing.is_empty(), "no row breaks writes of {missing:?}: add some, or say why they need none");
    let unknown: Vec<&String> = known.difference(&declared).collect();
    ensure!(unknown.is_empty(), "{SOURCE} does not declare {unknown:?}");
    let both: Vec<&String> = reported.intersection(&excused).collect();
    ensure!(both.is_empty(), "{both:?} have rows and need no excuse");
    Ok(())
}
