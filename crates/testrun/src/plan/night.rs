//! `make night`: wide and slow tests, in parts of at most 80 minutes. `.ci/night.txt` has the date of each part's last run.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use berth_testrun::folders;
use berth_testrun::programs::{self, GoModule, KUEUE};

use super::{Run, image, logged, output, packages};
use crate::lanes::{self, Lanes};
use crate::step::{Class, Step};
use crate::suites::Suite;

/// A run of test suites with environment variables that make the tests try more seeds or sizes.
#[derive(Clone, Debug)]
pub(crate) struct Wide {
    /// Name of the run of test suites in the table of steps.
    pub(crate) name: String,
    /// Beginning of the names of the test suites that run.
    pub(crate) suites: &'static str,
    /// Only tests whose names contain this text run; an empty text selects all tests.
    pub(crate) filter: &'static str,
    /// Environment variables with which the test suites run.
    pub(crate) set: Vec<(&'static str, String)>,
    /// Number of times that each test suite runs.
    pub(crate) times: usize,
    /// Number of test suites that run at the same time.
    pub(crate) at_once: usize,
}

/// A part of `make night`.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Name of the part of `make night`, as the make variable `PART` takes it.
    pub(crate) name: String,
    /// Description of the tests of the part of `make night`.
    pub(crate) what: &'static str,
    /// Runs of test suites in the part of `make night`; the part `packages`, which checks the rules for packages, has none.
    pub(crate) runs: Vec<Wide>,
}

/// Name of the part whose tests run the release build of the image.
const SHIPPED: &str = "shipped";
/// Environment variable with which tests run the real Kueue, built from its Go module. A user may set the variable to the folder of a built Kueue instead.
const REAL_KUEUE: (&str, &str) = ("KUEUE", "1");
/// Number of parts that share the ten million worlds of each law.
const SHARDS: usize = 24;
/// Limit of the run time of a part of `make night`, in minutes.
const BOUND: u64 = 80;
/// Number of parts of `make night` that share the random worlds with a tenant's writes.
const TENANT_SHARDS: usize = 4;
/// Number of parts that share the simulations of two replicas.
const SIMULATION_SHARDS: usize = 14;

fn wide(name: &str, suites: &'static str, filter: &'static str, set: &[(&'static str, &str)]) -> Wide {
    let set = set.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Wide { name: name.to_owned(), suites, filter, set, times: 1, at_once: 1 }
}

/// All parts of `make night`.
pub(crate) fn parts() -> Vec<Part> {
    let many = ("BERTH_CASES", "100000");
    let mut parts = vec![
        Part {
            name: "laws".to_owned(),
            what: "laws of the engine, of quantities and of conversion on 100,000 cases each",
            runs: vec![
                wide("engine laws, 100,000 each", "engine laws", "", &[many]),
                wide("quantities, 100,000", "quantity random", "", &[many]),
                wide("conversion, 100,000", "api conversion", "", &[many]),
            ],
        },
        Part {
            name: "random".to_owned(),
            what: "five million small worlds, 2,000 random stories, a million objects that nobody meant, every expectation changed",
            runs: vec![
                wide("small worlds", "engine small", "", &[("BERTH_WORLDS", "757"), ("BERTH_WORLDS_SECONDS", "300")]),
                wide("random stories", "control stories", "random::", &[("BERTH_STORIES", "2000")]),
                wide("stories of swings", "control stories", "swings::jobs_do_not_swing", &[("BERTH_STORIES", "2000")]),
                wide("a million objects", "control fuzz", "", &[("BERTH_FUZZ", "1000000")]),
                wide("every expectation", "testkit leaves", "", &[("BERTH_LEAVES", "0")]),
            ],
        },
        Part {
            name: "stories".to_owned(),
            what: "2,000 random stories of each of five laws: rest, usage beyond quota, pods that end, kinds that cannot be listed, texts of two tenants",
            runs: vec![
                wide("worlds that come to rest", "control stories", "endings::", &[("BERTH_STORIES", "2000")]),
                wide("usage beyond quota", "control stories", "overruns::", &[("BERTH_STORIES", "2000")]),
                wide("pods that end", "control stories", "ending_pods::", &[("BERTH_STORIES", "2000")]),
                wide("kinds that cannot be listed", "control stories", "unlisted::", &[("BERTH_STORIES", "2000")]),
                wide("texts of two tenants", "control stories", "neighbours::", &[("BERTH_STORIES", "2000")]),
            ],
        },
        Part {
            name: "others".to_owned(),
            what: "frameworks from PyPI, Azurite, Helm 3, 50,000 malformed reviews",
            runs: vec![
                wide("frameworks", "e2e frameworks", "", &[("BERTH_FRAMEWORKS", "1")]),
                wide("training with Azurite", "e2e training", "", &[("BERTH_AZURE", "1")]),
                wide("chart under Helm 3", "e2e helm", "", &[("BERTH_HELM", "3")]),
                wide(
                    "50,000 malformed reviews",
                    "e2e webhook webhook_answers_under_load_and_floods",
                    "",
                    &[("BERTH_FLOOD", "50000")],
                ),
            ],
        },
        Part {
            name: "kueue".to_owned(),
            what: "the real Kueue, of the version in e2e/kueue/go.mod, hands a cluster over and takes it back, and is measured beside Berth",
            runs: vec![
                wide("the real Kueue", "e2e kueue", "", &[REAL_KUEUE]),
                wide("beside the real Kueue", "e2e bench berth_needs_fewer_requests", "", &[REAL_KUEUE]),
            ],
        },
        Part {
            name: SHIPPED.to_owned(),
            what: "the benchmark, the webhooks under load, 500 jobs of a mebibyte and the image, with the release build that the image holds and the times and the memory that it is promised to need",
            runs: vec![
                wide(
                    "webhooks under load",
                    "e2e webhook webhook_answers_under_load_and_floods",
                    "",
                    &[("BERTH_SHIPPED", "1")],
                ),
                wide("benchmark", "e2e bench", "", &[("BERTH_SHIPPED", "1")]),
                wide("500 large jobs", "e2e large", "", &[("BERTH_LARGE", "500"), ("BERTH_SHIPPED", "1")]),
                wide("image", "e2e image", "", &[("BERTH_SHIPPED", "1")]),
            ],
        },
        Part {
            name: "attacks".to_owned(),
            what: "every attack of a tenant, also without webhooks and while Berth is down; every fault at every kind of write",
            runs: vec![
                wide("attacks", "e2e tenants", "", &[("BERTH_ATTACKS", "all")]),
                wide("faults at writes", "e2e crash", "", &[("BERTH_CRASH", "all")]),
            ],
        },
        Part {
            name: "again".to_owned(),
            what: "the end-to-end tests three times",
            runs: vec![Wide { times: 3, at_once: 2, ..wide("end to end", "e2e ", "", &[]) }],
        },
        Part {
            name: "planted".to_owned(),
            what: "each of twelve planted bugs is found by the simulation of two replicas within 10,000 seeds",
            runs: vec![wide("planted bugs", "sim seeds", "planted", &[("BERTH_PLANTED", "1")])],
        },
        Part {
            name: packages::PART.to_owned(),
            what: "the rules of `deny.toml` for packages of other projects: licences, bans, sources; advisories where their database can be reached",
            runs: Vec::new(),
        },
    ];
    for shard in 1..=SHARDS {
        let of = format!("{shard}/{SHARDS}");
        let set = [("BERTH_CASES", "10000000"), ("BERTH_SHARD", of.as_str())];
        parts.push(Part {
            name: format!("worlds-{shard}"),
            what: "one of the parts of ten million worlds a law",
            runs: vec![wide("engine laws", "engine laws", "", &set), wide("quantities", "quantity random", "", &set)],
        });
    }
    for shard in 1..=TENANT_SHARDS {
        let of = format!("{shard}/{TENANT_SHARDS}");
        let set = [("BERTH_STORIES", "5000"), ("BERTH_SHARD", of.as_str())];
        parts.push(Part {
            name: format!("tenants-{shard}"),
            what: "one of the parts of 5,000 worlds with a tenant's writes",
            runs: vec![wide("worlds with a tenant's writes", "control stories", "attacks::", &set)],
        });
    }
    for shard in 1..=SIMULATION_SHARDS {
        let of = format!("{shard}/{SIMULATION_SHARDS}");
        let set = [("BERTH_SIMULATIONS", "100000"), ("BERTH_SHARD", of.as_str())];
        parts.push(Part {
            name: format!("simulation-{shard}"),
            what: "one of the parts of 100,000 simulations of two replicas with faults of the network, of 200 events each",
            runs: vec![wide("simulations", "sim seeds", "no_seed", &set)],
        });
    }
    parts
}

/// The parts of `make night`; of several parts whose names differ only in a number, only the first part.
pub(crate) fn distinct(parts: &[Part]) -> impl Iterator<Item = &Part> {
    parts.iter().filter(|part| part.shard().is_none_or(|(_, number)| number == 1))
}

/// The last run of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ran {
    date: String,
    commit: String,
    /// Minutes from the user's command to the end of the part of `make night`, rounded up.
    minutes: u64,
    result: String,
}

/// The checked-in record `.ci/night.txt` of the last run of each part of `make night`.
struct Record(BTreeMap<String, Ran>);

impl Record {
    fn path() -> PathBuf {
        folders::repository().join(".ci/night.txt")
    }

    fn read() -> Result<Record> {
        Self::parse(&fs::read_to_string(Self::path()).context("reading .ci/night.txt")?)
    }

    fn parse(text: &str) -> Result<Record> {
        let mut record = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let cells: Vec<&str> = line.splitn(5, char::is_whitespace).collect();
            let [part, date, commit, minutes, result] = cells.as_slice() else {
                bail!("{line:?}: part, date, commit, minutes, result")
            };
            let minutes = minutes.parse().with_context(|| format!("{line:?}: minutes"))?;
            let ran =
                Ran { date: (*date).to_owned(), commit: (*commit).to_owned(), minutes, result: (*result).to_owned() };
            record.insert((*part).to_owned(), ran);
        }
        Ok(Record(record))
    }

    fn text(&self) -> String {
        let mut text =
            "# When each part of `make night` last ran: part, date, commit, minutes, result. `make night` writes it.\n"
                .to_owned();
        for (part, ran) in &self.0 {
            let _ = writeln!(text, "{part} {} {} {} {}", ran.date, ran.commit, ran.minutes, ran.result);
        }
        text
    }

    /// The part of `make night` whose last run is oldest; a part that never ran comes first.
    fn oldest<'a>(&self, parts: &'a [Part]) -> Option<&'a Part> {
        parts.iter().min_by_key(|part| self.0.get(&part.name).map(|ran| ran.date.clone()))
    }
}

impl Wide {
    /// The environment variables of a run of test suites, without `KUEUE` if the user's environment sets `KUEUE`.
    fn variables(&self, named: impl Fn(&str) -> bool) -> impl Iterator<Item = (&'static str, &str)> {
        let kept = self.set.iter().filter(move |(name, _)| *name != REAL_KUEUE.0 || !named(name));
        kept.map(|(name, value)| (*name, value.as_str()))
    }
}

impl Part {
    /// The part's name without its number, and the number; `None` for a part that does not share its worlds with other parts of `make night`.
    pub(crate) fn shard(&self) -> Option<(&str, usize)> {
        let (run, number) = self.name.rsplit_once('-')?;
        Some((run, number.parse().ok()?))
    }

    /// Programs of other projects that the tests of the part of `make night` run; the real Kueue is among these programs only if a test needs it.
    fn programs(&self, named: impl Fn(&str) -> bool + Copy) -> Vec<GoModule> {
        if !self.runs.iter().any(|wide| wide.suites.starts_with("e2e")) {
            return Vec::new();
        }
        let asked = self.runs.iter().any(|wide| wide.variables(named).any(|variable| variable == REAL_KUEUE));
        programs::ALL.into_iter().filter(|module| asked || module.name != KUEUE.name).collect()
    }
}

/// Minutes, rounded up.
fn minutes_of(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(0, |time| time.as_secs().div_ceil(60))
}

/// Whether the user's environment sets a variable to a text that is not empty.
fn is_named(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

impl Run {
    /// The steps of a run of test suites: one step for each suite and repetition.
    fn wide(&self, wide: &Wide, suites: &[Suite]) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for time in 1..=wide.times {
            for suite in suites.iter().filter(|suite| suite.name.starts_with(wide.suites)) {
                let mut step = self.suite(suite);
                let tests = suite.tests.iter().filter(|test| test.contains(wide.filter)).count();
                ensure!(tests > 0, "{}: no test of {} is called like {:?}", wide.name, suite.name, wide.filter);
                if !wide.filter.is_empty() {
                    step.command = suite.program.command();
                    step.command.arg(wide.filter);
                }
                step.command.envs(wide.variables(is_named));
                let name = if wide.times == 1 { wide.name.clone() } else { format!("{} {time}", wide.name) };
                let name = format!("{name}: {}", suite.name);
                steps.push(Step { tests: Some(tests), ..logged(&name, Class::Running, step.command) });
            }
        }
        ensure!(!steps.is_empty(), "{}: no suite is called like {:?}", wide.name, wide.suites);
        Ok(steps)
    }

    /// Runs the tests of a part of `make night`; `None` if the build fails.
    fn tests(&self, part: &Part) -> Result<Option<bool>> {
        let mut passed = self.programs(&part.programs(is_named))?;
        let Some(suites) = self.everything()? else { return Ok(None) };
        if part.name == SHIPPED && !self.runner.run(image::release())? {
            return Ok(None);
        }
        let _machine = self.machine()?;
        for wide in &part.runs {
            let mut steps = self.wide(wide, &suites)?;
            if part.name == SHIPPED {
                for step in &mut steps {
                    step.command.env("BERTH_BINARY", image::binary());
                }
            }
            let lanes = Lanes { steps, at_once: wide.at_once, is_shared: false };
            passed &= lanes::run(&self.runner, vec![lanes])?;
        }
        Ok(Some(passed))
    }
}

/// Runs a part of `make night` and records the run; without a name, the part whose last run is oldest runs.
///
/// # Errors
/// `make night` has no part of this name, or a step cannot be started.
pub(crate) fn night(run: &Run, name: Option<&str>) -> Result<bool> {
    let (parts, mut record) = (parts(), Record::read()?);
    let part = match name {
        Some(name) => parts.iter().find(|part| part.name == name),
        None => record.oldest(&parts),
    };
    let names = || parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ");
    let part = part.with_context(|| format!("there is no part {name:?}; parts are {}", names()))?;
    println!("== part {}: {}", part.name, part.what);
    let passed = if part.name == packages::PART { packages::check(run)? } else { run.tests(part)? };
    let Some(passed) = passed else { return Ok(false) };
    if run.runner.is_stopping() {
        println!("== part {} was stopped: nothing is recorded", part.name);
        return Ok(false);
    }
    let minutes = minutes_of(run.runner.so_far());
    if minutes > BOUND {
        println!("== part {} took {minutes} minutes, of {BOUND}: it has to be cut", part.name);
    }
    let ran = Ran {
        date: output("date", &["-u", "+%Y-%m-%d"])?,
        commit: output("git", &["rev-parse", "--short=12", "HEAD"])?,
        minutes,
        result: if passed { "passed".to_owned() } else { "FAILED".to_owned() },
    };
    // A run on a tree with uncommitted changes is not recorded, because no commit describes the tree.
    if output("git", &["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
        record.0.insert(part.name.clone(), ran);
        fs::write(Record::path(), record.text())?;
        println!("== .ci/night.txt has the result; commit it");
    } else {
        println!("== the tree has changes: nothing is recorded");
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn night_part_that_never_ran_is_the_oldest() -> Result<()> {
        let parts = parts();
        let mut record = Record::parse("")?;
        for part in &parts {
            let date = if part.name == "again" { "2026-01-02" } else { "2026-02-03" };
            record.0.insert(
                part.name.clone(),
                Ran { date: date.into(), commit: "c".into(), minutes: 7, result: "passed".into() },
            );
        }
        assert_eq!(record.oldest(&parts).map(|part| part.name.as_str()), Some("again"));
        record.0.remove("random");
        assert_eq!(record.oldest(&parts).map(|part| part.name.as_str()), Some("random"));
        assert_eq!(Record::parse(&record.text())?.0, record.0);
        assert!(Record::parse("laws 2026-01-02 c passed").is_err());
        assert_eq!((minutes_of(60.5), minutes_of(121.0)), (1, 3));
        Ok(())
    }

    #[test]
    fn real_kueue_is_built_only_for_parts_that_need_it() {
        let builds = |part: &str, named: bool| {
            let part = parts().into_iter().find(|other| other.name == part).unwrap();
            part.programs(|_| named).iter().map(|module| module.name).collect::<Vec<_>>()
        };
        assert!(builds("kueue", false).contains(&"kueue"));
        for part in ["others", "again", "shipped", "attacks"] {
            assert!(builds(part, false).contains(&"controlplane") && !builds(part, false).contains(&"kueue"), "{part}");
        }
        assert!(builds("laws", false).is_empty());
        // If a user sets `KUEUE` to the folder of a built Kueue, no Kueue is built.
        assert!(builds("kueue", true).contains(&"controlplane") && !builds("kueue", true).contains(&"kueue"));
        let part = parts().into_iter().find(|part| part.name == "kueue").unwrap();
        for wide in &part.runs {
            assert_eq!(wide.variables(|_| true).count(), 0, "{}: the folder is kept", wide.name);
        }
    }

    #[test]
    fn night_record_names_only_parts_that_exist() -> Result<()> {
        let names: Vec<String> = parts().into_iter().map(|part| part.name).collect();
        assert!(Record::read()?.0.keys().all(|part| names.contains(part)));
        Ok(())
    }
}
