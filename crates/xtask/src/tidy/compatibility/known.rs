//! Names of Kueue in Berth's sources that need a row in docs/compatibility.md: feature gates, metrics, names in Kueue's group such as labels, condition
//! reasons, and fields of Kueue's kinds.

use serde_json::Value;

use super::super::Tree;

/// Source files that may have the list of feature gates; the first file with the list counts.
const GATES: [&str; 2] = ["crates/cache/src/feature_gates.rs", "crates/configuration/src/gates.rs"];
/// Path of the page with a row for each metric.
const METRICS: &str = "docs/metrics.md";
/// Source file with the names of labels, annotations, finalizers and scheduling gates.
const LABELS: &str = "crates/api/src/labels.rs";
/// Source file with the reasons of conditions.
const CONDITIONS: &str = "crates/api/src/conditions.rs";

/// Messages about Kueue's names without a row in docs/compatibility.md; `rows` has the section and first cell of each row.
pub(super) fn without_a_row(tree: &Tree, rows: &[(&str, &str)]) -> Vec<String> {
    let mut missing = Vec::new();
    for (kind, section, names) in [
        ("gate", "## Feature gates", gates(tree)),
        ("metric", "## Metrics", metrics(tree)),
        ("reason", "## Conditions and their reasons", reasons(tree)),
        ("name", "", names(tree)),
    ] {
        for name in names {
            let there = rows.iter().any(|(of, cell)| (section.is_empty() || *of == section) && has(cell, &name));
            if !there {
                missing.push(format!("{kind} {name} has no row"));
            }
        }
    }
    for (kind, field) in fields(tree) {
        let of_kind = |cell: &str| cell.split(' ').any(|word| word.trim_matches(',') == kind);
        // A row of docs/compatibility.md may omit the prefix `spec.` of a field.
        let short = field.strip_prefix("spec.").unwrap_or(&field);
        let is_given = |cell: &str| of_kind(cell) && (has(cell, &field) || has(cell, short));
        if !rows.iter().any(|(section, cell)| *section == "## Fields" && is_given(cell)) {
            missing.push(format!("field {field} of {kind} has no row"));
        }
    }
    missing
}

/// Whether a table's cell has the given name in backquotes; dots after the name in the cell are ignored.
fn has(cell: &str, name: &str) -> bool {
    cell.split('`').skip(1).step_by(2).any(|token| token.trim_end_matches("...") == name)
}

/// The texts between double quotes that directly follow one of the given beginnings in a source.
fn quoted(text: &str, beginnings: &[&str]) -> Vec<String> {
    let behind = |beginning: &str| {
        let parts = text.split(beginning).skip(1);
        parts.filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    beginnings.iter().flat_map(|beginning| behind(beginning)).collect()
}

fn gates(tree: &Tree) -> Vec<String> {
    let lists = |text: &&str| text.contains("const GATES: ");
    let text = GATES.iter().filter_map(|path| tree.text(path)).find(lists).unwrap_or_default();
    let list = text.split_once("const GATES: ").map_or("", |(_, rest)| rest.split("];").next().unwrap_or_default());
    let mut found = quoted(list, &["gate(\"", "locked(\""]);
    // The list of feature gates has the name of one gate in the constant `TAS`, because other gates need this gate.
    found.extend(quoted(text, &["const TAS: &str = \""]));
    found
}

fn metrics(tree: &Tree) -> Vec<String> {
    let text = tree.text(METRICS).unwrap_or_default();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `kueue_"));
    rows.filter_map(|row| row.split('`').next().map(|name| format!("kueue_{name}"))).collect()
}

fn reasons(tree: &Tree) -> Vec<String> {
    let text = tree.text(CONDITIONS).unwrap_or_default();
    let module =
        text.split_once("pub mod reasons {").map_or("", |(_, rest)| rest.split("\n}\n").next().unwrap_or_default());
    quoted(module, &[" = \""])
}

/// Names in Kueue's API group from the source file of labels and annotations.
fn names(tree: &Tree) -> Vec<String> {
    let all = quoted(tree.text(LABELS).unwrap_or_default(), &[" = \""]);
    all.into_iter().filter(|name| name.starts_with("kueue.x-k8s.io/")).collect()
}

/// The fields of Kueue's kinds in v1beta1 and v1beta2: the kind, and the field as `spec.x`, `status.x` or `x`. Condition types are no fields here, because they
/// have a section of their own in docs/compatibility.md.
fn fields(tree: &Tree) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let of_kueue = |path: &str| path.starts_with("crds/") && path.ends_with(".kueue.x-k8s.io.yaml");
    for (path, text) in tree.files().filter(|(path, _)| of_kueue(path)) {
        let definition: Value = serde_saphyr::from_str(text).unwrap_or_default();
        let kind = definition.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or(path);
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).cloned().unwrap_or_default();
        for version in &versions {
            let schema = version.pointer("/schema/openAPIV3Schema/properties");
            for (part, schema) in schema.and_then(Value::as_object).into_iter().flatten() {
                let below = schema.get("properties").and_then(Value::as_object);
                match part.as_str() {
                    "apiVersion" | "kind" | "metadata" => {}
                    "spec" | "status" => {
                        let names = below.into_iter().flatten().map(|(name, _)| format!("{part}.{name}"));
                        found.extend(names.map(|name| (kind.to_owned(), name)));
                    }
                    _ => found.push((kind.to_owned(), part.clone())),
                }
            }
        }
        if versions.is_empty() {
            found.push((kind.to_owned(), "spec".to_owned()));
        }
    }
    found.retain(|(_, field)| field != "status.conditions");
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: [(&str, &str); 5] = [
        (
            GATES[0],
            "const TAS: &str = \"Topo\";\nconst GATES: &[Gate] = &[gate(\"One\", true, &[]), gate(TAS, true, &[]), locked(\"Two\")];",
        ),
        (METRICS, "| metric | type |\n|---|---|\n| `kueue_a_total` | counter |\n| `berth_b` | gauge |\n"),
        (LABELS, "strings! {\n A = \"kueue.x-k8s.io/a\";\n OURS = \"berth.dev/b\";\n}"),
        (
            CONDITIONS,
            "pub mod types {\n    A = \"Type\";\n}\npub mod reasons {\n    A = \"Why\";\n    B = \"DueTo\";\n}\npub mod c {\n    X = \"No\";\n}\n",
        ),
        (
            "crds/things.kueue.x-k8s.io.yaml",
            "spec:\n  names: {kind: Thing}\n  versions:\n  - schema: {openAPIV3Schema: {properties: {metadata: {}, value: {}, spec: {properties: {old: {}}}}}}\n  \
             - schema: {openAPIV3Schema: {properties: {spec: {properties: {new: {}}}, status: {properties: {new: {}, conditions: {}}}}}}\n",
        ),
    ];

    #[test]
    fn kueue_name_without_a_compatibility_row_is_reported() {
        let tree = Tree::of(&SOURCES);
        assert_eq!(
            without_a_row(&tree, &[]),
            [
                "gate One has no row",
                "gate Two has no row",
                "gate Topo has no row",
                "metric kueue_a_total has no row",
                "reason Why has no row",
                "reason DueTo has no row",
                "name kueue.x-k8s.io/a has no row",
                "field spec.new of Thing has no row",
                "field spec.old of Thing has no row",
                "field status.new of Thing has no row",
                "field value of Thing has no row",
            ]
        );
    }

    #[test]
    fn kueue_name_with_a_row_in_its_section_is_accepted() {
        let tree = Tree::of(&SOURCES);
        let rows = [
            ("## Feature gates", "`One`"),
            ("## Feature gates", "`Two` `Topo`"),
            ("## Metrics", "`kueue_a_total`"),
            ("## Conditions and their reasons", "Thing Active `Why` `DueTo...`"),
            ("## Labels", "`kueue.x-k8s.io/a`"),
            ("## Fields", "Thing `old`, and `spec.new` of v1beta1"),
            ("## Fields", "Thing `status.new` `value`"),
        ];
        assert_eq!(without_a_row(&tree, &rows), [""; 0]);
        // A row of docs/compatibility.md counts only in the right section and for the right kind, and the row of a status field is no row of a spec field.
        let others = [("## Labels", "`One`"), ("## Fields", "Other `old`"), ("## Fields", "Thing `status.old`")];
        let missing = without_a_row(&tree, &others);
        assert!(missing.contains(&"gate One has no row".to_owned()), "{missing:?}");
        assert!(missing.contains(&"field spec.old of Thing has no row".to_owned()), "{missing:?}");
    }

    #[test]
    fn kueue_names_are_read_from_the_sources_of_the_repository() {
        let tree = Tree::read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let many =
            [gates(&tree).len(), metrics(&tree).len(), reasons(&tree).len(), names(&tree).len(), fields(&tree).len()];
        let least = [70, 50, 70, 50, 75];
        assert!(many.iter().zip(least).all(|(found, least)| *found >= least), "{many:?}, not {least:?}");
    }
}
