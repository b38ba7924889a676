//! Tests of the table and lists of `xtask house` with a small repository, and of this repository's baseline.

use super::*;

const FILES: [(&str, &str); 6] = [
    ("crates/a/Cargo.toml", ""),
    ("crates/a/src/lib.rs", "//! A.\nmod b;\npub struct A;\nuse b::B;\n"),
    (
        "crates/a/src/b.rs",
        "/// What it is, see gone.md.\npub struct B(super::A);\nmod c { pub struct B; }\nfn told() {}\n#[test] fn a_b_c_d_e_f_g_h_i_j_k() {}\n",
    ),
    ("crates/control/Cargo.toml", ""),
    ("crates/control/src/lib.rs", "//! Text.\npub struct Control { a: u8 }\nimpl Control {}\nfn f(x: &Control) {}\n"),
    ("README.md", "# R\n\nWho asks?\n"),
];

fn messages(options: &Options) -> Result<String> {
    let tree = Tree::of(&FILES);
    text(&Sources::read(&tree)?, options)
}

#[test]
fn house_table_has_a_line_per_package_and_for_pages() {
    let text = messages(&Options::default()).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        text.starts_with(
            "house: Control has 1 fields, 1 of them private, and impl blocks without a trait in 1 files; 1 other"
        ),
        "{text}"
    );
    assert_eq!(lines[2], ["a", "2", "0", "2", "1", "2", "1", "1", "1", "1", "1"]);
    assert_eq!(lines[3], ["control", "1", "0", "0", "0", "1", "0", "0", "0", "0", "0"]);
    assert_eq!(lines[4], ["pages", "1", "0", "-", "1", "1", "0", "0", "-", "-", "-"]);
    assert_eq!(lines.len(), 5);
}

#[test]
fn house_lists_name_the_places_of_findings() {
    let name = |name: &str| Some(name.to_owned());
    for (options, expected) in [
        (
            Options { files: true, ..Options::default() },
            "a: circle of 2 files\n  crates/a/src/b.rs\n    crates/a/src/lib.rs (A)\n  crates/a/src/lib.rs\n    crates/a/src/b.rs (B)\n",
        ),
        (
            Options { control: true, ..Options::default() },
            "defined in crates/control/src/lib.rs\nimpl in crates/control/src/lib.rs\nparameter of crates/control/src/lib.rs:4: f\n",
        ),
        (
            Options { sentences: name("all"), ..Options::default() },
            "crates/a/src/b.rs:1: What it is, see gone.md.\nREADME.md:3: Who asks?\n",
        ),
        (Options { references: name("a"), ..Options::default() }, "crates/a/src/b.rs:1: gone.md\n"),
        (
            Options { types: name("a"), ..Options::default() },
            "a: B 2 times: crates/a/src/b.rs:2, crates/a/src/b.rs:3\n",
        ),
        (Options { words: name("a"), ..Options::default() }, "a: told 1: told 1\n"),
        (Options { words: name("control"), ..Options::default() }, ""),
        (Options { names: name("a"), ..Options::default() }, "crates/a/src/b.rs:5: a_b_c_d_e_f_g_h_i_j_k: 11 words\n"),
    ] {
        assert_eq!(messages(&options).unwrap(), expected, "{options:?}");
    }
}

#[test]
fn package_that_does_not_exist_is_refused() {
    let options = Options { sentences: Some("b".to_owned()), ..Options::default() };
    assert_eq!(messages(&options).unwrap_err().to_string(), "\"b\": allowed are a, control, pages and all");
}

#[test]
fn repository_keeps_its_house_baseline() {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    assert!(tree.text(BASELINE).is_some());
    let found = findings(&tree).unwrap();
    let list: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{}", list.join("\n"));
}
