//! The table of time-outs in `README.md` against the scenarios: each row has its source, and each scenario that sets a time-out has a row.

use std::fs;
use std::path::Path;

use crate::binaries::repository;

/// Fields by which scenarios set time-outs, as their source code writes them before the value.
const FIELDS: [&str; 16] = [
    "  timeout: ",
    "backoffBaseSeconds: ",
    "\"backoffBaseSeconds\": ",
    "afterFinished: ",
    "afterDeactivatedByKueue: ",
    ".label(\"kueue.x-k8s.io/max-exec-time-seconds\", ",
    "(\"requeueAfterSeconds\", json!(",
    "\"patience\": ",
    "patience = json!(",
    "\"minStay\": ",
    "\"protectedRunningTime\": ",
    "\"gracePeriod\": ",
    "\"schedulingTimeout\": ",
    "\"maxWaitTime\": ",
    "\"scaleUpCooldown\": ",
    "leaseDuration: ",
];

/// A row of the table.
#[derive(Debug)]
struct Row {
    /// Scenarios of the suite.
    scenarios: Vec<String>,
    /// File below `tests`.
    file: String,
    /// The text in the scenario's file that sets the time-out.
    source: String,
}

impl Row {
    fn read(row: &str) -> Row {
        let cell = |number: usize| row.split(" | ").nth(number).unwrap_or_else(|| panic!("four cells: {row}"));
        let (file, source) = cell(2).split_once(": ").unwrap_or_else(|| panic!("file and source: {row}"));
        // The second cell of a row names the suite before its scenarios, so the suite's name is skipped.
        let names = cell(1).split('`').skip(1).step_by(2).skip(1);
        Row {
            scenarios: names.map(str::to_owned).collect(),
            file: file.trim_matches('`').to_owned(),
            source: source.trim_matches('`').to_owned(),
        }
    }
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(repository().join("e2e/README.md")).unwrap();
    let table = page.split_once("\n## Time-outs\n").unwrap().1.split_once("\n## ").unwrap().0;
    table.lines().filter(|line| line.starts_with("| ")).skip(1).map(Row::read).collect()
}

/// Whether a line of a scenario's source sets one of the fields in `FIELDS` to a number.
fn sets_a_time(line: &str) -> bool {
    let is_time = |value: &str| {
        let quoted = value.split('"').skip(1).any(|text| text.starts_with(|c: char| c.is_ascii_digit()));
        quoted || value.starts_with(|c: char| c.is_ascii_digit())
    };
    FIELDS.iter().filter_map(|field| Some(line.split_once(field)?.1)).any(is_time)
}

/// Adds every Rust file below the folder `folder` to `found`: its path relative to `folder`, and its text.
fn files(folder: &Path, below: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.path().is_dir() {
            files(folder, &path, found);
        } else if path.ends_with(".rs") {
            found.push((path, fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

fn scenarios() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&repository().join("e2e/tests"), "", &mut found);
    found
}

#[test]
fn time_out_of_each_row_is_in_its_scenario() {
    let (rows, files) = (rows(), scenarios());
    assert!(rows.len() > 20, "{rows:?}");
    for Row { scenarios, file, source } in rows {
        let text = files.iter().find(|(path, _)| *path == file).map(|(_, text)| text);
        assert!(text.unwrap_or_else(|| panic!("no {file}")).contains(&source), "{file} has no {source}");
        for name in scenarios {
            let is_there = files.iter().any(|(_, text)| text.contains(&format!("\"{name}\"")));
            assert!(is_there, "no scenario is called {name}");
        }
    }
}

#[test]
fn time_out_of_each_scenario_has_a_row() {
    let rows = rows();
    for (file, text) in scenarios() {
        for line in text.lines().filter(|line| sets_a_time(line)) {
            let is_listed = rows.iter().any(|row| row.file == file && line.contains(&row.source));
            assert!(is_listed, "{file}: `{}` has no row in e2e/README.md", line.trim());
        }
    }
}

#[test]
fn time_out_is_recognized_by_field_and_value() {
    for (line, expected) in [
        ("  timeout: 12s", true),
        ("let tiers = json!({\"default\": [\"a\"], \"patience\": {\"reserved\": \"3s\"}});", true),
        ("let tiers = json!({\"patience\": patience});", false),
        ("\"backoffLimitCount\": -1, \"backoffBaseSeconds\": -1, \"backoffMaxSeconds\": -1}", false),
        ("tokio::time::timeout(Duration::from_secs(30), x)", false),
    ] {
        assert_eq!(sets_a_time(line), expected, "{line}");
    }
}
