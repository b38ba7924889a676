//! `docs/testing.md`: a page with the steps of each target of the Makefile, generated from the targets.

use std::fmt::Write as _;
use std::path::PathBuf;

use berth_testrun::folders;

use crate::plan::night;
use crate::plan::packages;
use crate::plan::test;

/// Path of the page docs/testing.md.
pub(crate) fn path() -> PathBuf {
    folders::repository().join("docs/testing.md")
}

/// The text of the page docs/testing.md.
pub(crate) fn text() -> String {
    let mut text = BEGINNING.to_owned();
    let _ = writeln!(text, "| step | `make check` | `make test` |\n|---|---|---|");
    for [step, check, test] in test::summary() {
        let _ = writeln!(text, "| {step} | {check} | {test} |");
    }
    text += NIGHT;
    let _ = writeln!(text, "| part | what it runs |\n|---|---|");
    let parts = night::parts();
    for part in night::distinct(&parts) {
        let of_run =
            |run: &str| parts.iter().filter(|other| other.shard().is_some_and(|(name, _)| name == run)).count();
        let last = part.shard().map(|(run, _)| format!(" to `-{}`", of_run(run))).unwrap_or_default();
        let _ = writeln!(text, "| `{}`{last} | {} |", part.name, part.what);
    }
    text += "\n| part | test programs and variables, or tool |\n|---|---|\n";
    for part in night::distinct(&parts) {
        for wide in &part.runs {
            let set: Vec<String> = wide.set.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
            let times = if wide.times > 1 { format!("{} times ", wide.times) } else { String::new() };
            let filter = if wide.filter.is_empty() { String::new() } else { format!(" `{}`", wide.filter) };
            let _ = writeln!(text, "| `{}` | {times}{}{filter} {} |", part.name, wide.suites.trim(), set.join(" "));
        }
        if part.name == packages::PART {
            let _ = writeln!(text, "| `{}` | `cargo-deny` {}, with `deny.toml` |", part.name, packages::VERSION);
        }
    }
    text += END;
    text
}

const BEGINNING: &str = "# Tests: what runs where

Generated from `crates/testrun` by `make crds`; do not edit.

`make check` is for the inner loop, `make test` is what a change must pass and what CI runs, and `make night` is wide and slow. Each ends
with a table: a line a step with its wall time, its CPU time, the part of the machine that it left idle, and its peak memory. Budgets are in
`.ci/budgets.txt`; a step that takes more than one and a half times its budget is named below the table.

";

const NIGHT: &str = "
End-to-end tests run in several lanes, and everything else in the background beside them with the lowest priority. A second clone waits
for the first one's end-to-end tests.

## make night

`make night PART=name` runs one part, which ends within 80 minutes; without a name it runs the part that was not run for longest. It writes
the result into `.ci/night.txt`, which is checked in.

";

const END: &str = "
## Smaller steps

| you changed | run |
|---|---|
| a file of one crate | `make unit OF=control` |
| a scenario, or what it is about | `make scenario SUITE=admission SCENARIO=borrowing` |
| a law, or what it is about | `BERTH_SEED=7 BERTH_CASES=1 cargo test --workspace --test engine laws::quota` |
| anything, before a commit | `make check` |
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn testing_page_is_up_to_date() {
        assert!(std::fs::read_to_string(path()).is_ok_and(|page| page == text()), "run `make crds`");
    }
}
