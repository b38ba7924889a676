//! Dependencies between crates: the arrows of docs/ARCHITECTURE.md, and the complete list of dependencies for pure crates.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finding;

/// A package of the workspace with its normal and build dependencies, and with the dependencies of its tests.
#[derive(Debug)]
pub(crate) struct Package {
    name: String,
    ships: Vec<String>,
    tests: Vec<String>,
}

/// Allowed dependencies of a crate on packages outside of the workspace.
enum Others {
    /// A crate may depend only on these packages outside of the workspace.
    Only(&'static [&'static str]),
    /// A crate may depend on all packages outside of the workspace except these.
    AllBut(&'static [&'static str]),
}

struct Rule {
    name: &'static str,
    /// Allowed dependencies of the crate on other crates of the workspace.
    ours: &'static [&'static str],
    others: Others,
}

/// Packages that are a cluster client, an async runtime or an HTTP library: the work of such packages belongs to the crates that talk to the network.
const CLIENTS: &[&str] = &["kube", "kube-client", "kube-runtime", "tokio", "futures", "hyper", "axum", "reqwest"];

const RULES: [Rule; 20] = [
    Rule { name: "quantity", ours: &[], others: Others::Only(&["thiserror"]) },
    Rule {
        name: "api",
        ours: &["quantity"],
        others: Others::Only(&["jiff", "k8s-openapi", "kube-core", "schemars", "serde", "serde_json"]),
    },
    Rule { name: "engine", ours: &["quantity"], others: Others::Only(&["rustc-hash", "thiserror"]) },
    Rule {
        name: "jobs",
        ours: &["api", "quantity"],
        others: Others::Only(&["jiff", "k8s-openapi", "serde", "serde_json", "sha1", "sha2", "thiserror"]),
    },
    Rule { name: "lease", ours: &[], others: Others::Only(&[]) },
    // Decisions (crate `reconcile`) read the crate `cache`, and cannot name the controller (crate `control`).
    Rule {
        name: "cache",
        ours: &["api", "engine", "jobs", "quantity"],
        others: Others::Only(&["hashbrown", "jiff", "k8s-openapi", "rustc-hash", "serde_json"]),
    },
    Rule {
        name: "reconcile",
        ours: &["api", "cache", "engine", "jobs", "lease", "quantity"],
        others: Others::Only(&["hashbrown", "jiff", "k8s-openapi", "rustc-hash", "serde", "serde_json"]),
    },
    Rule {
        name: "control",
        ours: &["api", "cache", "engine", "jobs", "reconcile"],
        others: Others::Only(&["jiff", "k8s-openapi", "serde", "serde_json"]),
    },
    // The crate `runtime` reaches the crates `cache` and `reconcile` through the crate `control` only.
    Rule { name: "runtime", ours: &["api", "control", "lease"], others: Others::AllBut(&[]) },
    // The API server waits for the webhook's answers, so the crate `webhook` depends on nothing that waits for a watch or for a decision.
    Rule { name: "webhook", ours: &["api", "jobs"], others: Others::AllBut(&["kube-runtime", "axum", "reqwest"]) },
    // The crates `manager` and `cli` (the commands that need no cluster) share the crate `configuration`.
    Rule { name: "configuration", ours: &["api", "control", "engine", "jobs"], others: Others::AllBut(CLIENTS) },
    Rule {
        name: "manager",
        ours: &["api", "configuration", "control", "jobs", "runtime", "webhook"],
        others: Others::AllBut(&[]),
    },
    Rule {
        name: "cli",
        ours: &["api", "configuration", "control", "engine", "jobs", "quantity"],
        others: Others::AllBut(CLIENTS),
    },
    // The crate `berth` joins `cli` and `manager` to one program, and has no code that one of these crates could have.
    Rule { name: "berth", ours: &["cli", "manager"], others: Others::Only(&["clap", "mimalloc", "rustix"]) },
    Rule { name: "testkit", ours: &["api", "control", "engine", "jobs", "quantity"], others: Others::AllBut(CLIENTS) },
    Rule { name: "xtask", ours: &["api", "jobs"], others: Others::AllBut(CLIENTS) },
    // The package `testrun` runs before any other code of this repository is compiled, so it depends on no crate of the workspace.
    Rule { name: "testrun", ours: &[], others: Others::Only(&["anyhow", "serde_json", "signal-hook"]) },
    // The crate `invariants`, which judges invariants, shares no code with Berth, so that a fault of Berth cannot hide itself.
    Rule { name: "invariants", ours: &[], others: Others::Only(&["jiff", "serde_json"]) },
    // The crate `sim` is the cluster in memory of tests: control is a client of this cluster, and the crates `lease` and `invariants` are used unchanged.
    Rule {
        name: "sim",
        ours: &["api", "control", "engine", "invariants", "jobs", "lease"],
        others: Others::Only(&["jiff", "k8s-openapi", "serde", "serde-saphyr", "serde_json"]),
    },
    // The package `e2e` has names and manifests of its own instead of Berth's constants, so that a wrong constant in Berth cannot hide itself.
    Rule { name: "e2e", ours: &["invariants", "testrun"], others: Others::AllBut(&[]) },
];

/// The packages of the workspace, from `cargo metadata`.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    of_metadata(&serde_json::from_slice(&output.stdout).context("cargo metadata")?)
}

fn of_metadata(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("packages")?;
    Ok(packages.iter().map(package).collect())
}

fn package(package: &Value) -> Package {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |tests: bool| {
        all.iter()
            .filter(|dependency| (dependency["kind"] == "dev") == tests)
            .map(|dependency| text(&dependency["name"]))
            .collect()
    };
    Package { name: text(&package["name"]), ships: named(false), tests: named(true) }
}

pub(crate) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in packages {
        let short = package.name.strip_prefix("berth-").unwrap_or(&package.name);
        let path = if short == "e2e" { "e2e/Cargo.toml".to_owned() } else { format!("crates/{short}/Cargo.toml") };
        let mut add = |message: String| found.push(Finding::new(&path, 0, message));
        let Some(rule) = RULES.iter().find(|rule| rule.name == short) else {
            add("a crate without a place among the arrows of docs/ARCHITECTURE.md".to_owned());
            continue;
        };
        for name in &package.ships {
            let allowed = match name.strip_prefix("berth-") {
                Some(ours) => rule.ours.contains(&ours),
                None => match &rule.others {
                    Others::Only(names) => names.contains(&name.as_str()),
                    Others::AllBut(names) => !names.contains(&name.as_str()),
                },
            };
            if !allowed {
                add(format!("{short} must not depend on {name}"));
            }
        }
        // Tests of a pure crate depend on no cluster client and no async runtime, so that they run without a cluster and without waiting.
        if matches!(rule.others, Others::Only(_)) {
            for name in package.tests.iter().filter(|name| CLIENTS.contains(&name.as_str())) {
                add(format!("tests of {short} must not depend on {name}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(name: &str, dependencies: &Value) -> Vec<String> {
        let metadata = json!({"packages": [{"name": name, "dependencies": dependencies}]});
        check(&of_metadata(&metadata).unwrap()).iter().map(ToString::to_string).collect()
    }

    fn on(name: &str) -> Value {
        json!([{"name": name, "kind": null}])
    }

    #[test]
    fn dependency_on_a_higher_or_foreign_crate_is_refused() {
        for (from, to) in [
            ("berth-engine", "berth-api"),
            ("berth-engine", "serde"),
            ("berth-quantity", "berth-engine"),
            ("berth-jobs", "berth-control"),
            ("berth-jobs", "berth-engine"),
            ("berth-lease", "berth-control"),
            ("berth-lease", "tokio"),
            ("berth-cache", "berth-lease"),
            ("berth-cache", "berth-reconcile"),
            ("berth-reconcile", "berth-control"),
            ("berth-control", "berth-runtime"),
            ("berth-control", "tokio"),
            ("berth-control", "rand"),
            ("berth-api", "kube"),
            ("berth-api", "getrandom"),
            ("berth-api", "tracing"),
            ("berth-runtime", "berth-engine"),
            ("berth-runtime", "berth-testkit"),
            ("berth-configuration", "berth-runtime"),
            ("berth-configuration", "berth-webhook"),
            ("berth-manager", "berth-testkit"),
            ("berth-cli", "berth-runtime"),
            ("berth-cli", "tokio"),
            ("berth", "berth-control"),
            ("berth", "tokio"),
            ("berth-invariants", "berth-api"),
            ("berth-invariants", "berth-engine"),
            ("berth-e2e", "berth-api"),
            ("berth-util", "serde"),
        ] {
            assert_eq!(messages(from, &on(to)).len(), 1, "{from} -> {to}");
        }
        for (from, to) in [
            ("berth-engine", "berth-quantity"),
            ("berth-control", "jiff"),
            ("berth-runtime", "kube"),
            ("berth", "berth-cli"),
        ] {
            assert!(messages(from, &on(to)).is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn dev_dependency_of_a_pure_crate_on_tokio_is_refused() {
        assert!(messages("berth-engine", &json!([{"name": "proptest", "kind": "dev"}])).is_empty());
        assert_eq!(messages("berth-engine", &json!([{"name": "tokio", "kind": "dev"}])).len(), 1);
    }
}
