//! Golden cases: each file under `tests/cases` holds cases, each with commands and the output that these commands print. With the environment variable
//! `UPDATE=1`, a run of the golden cases rewrites the expected output in their files.

use std::fs;
use std::path::Path;

use berth_engine::Options;

use crate::fixture;

#[test]
fn golden_cases_print_their_expected_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut failures = Vec::new();
    let mut count = 0;
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut rewritten = String::new();
        for case in text.split("=== ").skip(1) {
            count += 1;
            let (title, body) = case.split_once('\n').unwrap();
            let (commands, expected) = body.split_once("--- \n").or_else(|| body.split_once("---\n")).unwrap();
            let mut scene = fixture::Scene::new(Options::default());
            scene.run(commands);
            if scene.out.trim() != expected.trim() {
                failures.push(format!("{title}\nexpected:\n{}\ngot:\n{}", expected.trim(), scene.out));
            }
            rewritten.push_str(&format!("=== {title}\n{commands}---\n{}\n", scene.out));
        }
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, rewritten.trim_end().to_owned() + "\n").unwrap();
            failures.clear();
        }
    }
    assert!(count >= 20, "only {count} cases");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
