use super::*;
use crate::flags::{Import, ImportFlags};
use crate::{Command, Line};
use clap::Parser;
use std::path::Path;

/// A quota file with two resource types in two tiers, and two projects.
const QUOTA: &str = "[toml-schema]
version = \"1\"

[[total_resources]]
v4 = 1024
v5litepod = 3

[[total_resources]]
v4 = 16

[project_resources]
team-a = {v4 = 0.6, v5litepod = 1}

[project_resources.team-b]
v4 = 0.4

[project_membership]
team-a = [\"ann\", \"user[12]\"]
team-b = [\"bob|eve\"]
";

fn flags(words: &str) -> AxlearnQuotaFlags {
    let words = format!("berth import axlearn-quota -f q {words}");
    match Line::try_parse_from(words.split_whitespace()).unwrap().command {
        Command::Import(ImportFlags { what: Import::AxlearnQuota(flags) }) => *flags,
        other => unreachable!("{other:?}"),
    }
}

fn converted(text: &str, words: &str) -> Result<Converted, String> {
    convert(&flags(words), text)
}

fn at<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The converted objects, each as `Kind namespace/name`.
fn listed(converted: &Converted) -> Vec<String> {
    let name = |object| match (at(object, "/metadata/namespace"), at(object, "/metadata/name")) {
        ("", name) => format!("{} {name}", at(object, "/kind")),
        (namespace, name) => format!("{} {namespace}/{name}", at(object, "/kind")),
    };
    converted.objects.iter().map(name).collect()
}

/// Quotas of the converted object of this kind and name, as `flavor amount`.
fn quotas(converted: &Converted, kind: &str, name: &str) -> Vec<String> {
    let is = |object: &&Value| at(object, "/kind") == kind && at(object, "/metadata/name") == name;
    let object = converted.objects.iter().find(is).unwrap();
    let list = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let groups = list(object, "/spec/resourceGroups");
    let flavors = groups.iter().flat_map(|group| list(group, "/flavors"));
    flavors.map(|flavor| format!("{} {}", at(&flavor, "/name"), at(&flavor, "/resources/0/nominalQuota"))).collect()
}

/// The queues.yaml of examples/import-axlearn equals the output for its quota file. The environment variable `UPDATE=1` makes the test rewrite queues.yaml.
#[test]
fn axlearn_example_equals_the_output_for_its_quota_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/import-axlearn");
    let text = std::fs::read_to_string(folder.join("quota/project-quotas.config")).unwrap();
    let words = "--reservation quickstart --namespace axlearn-{project} --local-queue axlearn --user {user}@example.com \
                 --create-namespaces";
    let made = || manifests("project-quotas.config", converted(&text, words).unwrap()).unwrap();
    assert_eq!(made(), made(), "the same twice");
    let path = folder.join("queues.yaml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, made()).unwrap();
    }
    assert_eq!(made(), std::fs::read_to_string(&path).unwrap());
}

#[test]
fn axlearn_fractions_become_quota_in_units_of_pod_requests() {
    let made = converted(QUOTA, "--reservation r").unwrap();
    // 1024 and 16 cores of v4 are 512 and 8 chips. The projects' exact shares are 307.2 and 204.8 chips of the first tier, and 4.8 and 3.2 chips of the second
    // tier. Rounding the first tier to 307 and 205 chips puts the first project below its exact share, so it gets the odd chip of the second tier.
    assert_eq!(
        quotas(&made, "ClusterQueue", "team-a"),
        ["v4-reserved 307", "v5litepod-reserved 3", "v4-spot 5"],
        "one resource group, and no v5litepod on spot, of which the file has none there"
    );
    assert_eq!(quotas(&made, "ClusterQueue", "team-b"), ["v4-reserved 205", "v5litepod-reserved 0", "v4-spot 3"]);
    assert_eq!(quotas(&made, "Cohort", "axlearn"), [""; 0]);
    let expected = [
        "ResourceFlavor v4-reserved",
        "ResourceFlavor v4-spot",
        "ResourceFlavor v5litepod-reserved",
        "Cohort axlearn",
        "ClusterQueue team-a",
        "ClusterQueue team-b",
        "LocalQueue team-a/team-a",
        "LocalQueue team-b/team-b",
        "RoleBinding team-a/team-a-batch-user",
        "RoleBinding team-b/team-b-batch-user",
    ];
    assert_eq!(listed(&made), expected);
    let reported = "project_membership.team-a: \"user[12]\" is a pattern, and RBAC knows names only: bind kueue-batch-user-role in \
                namespace team-a to these users or to a group of them";
    assert_eq!(made.warnings, [reported]);
    let subjects = made.objects.last().and_then(|binding| binding.get("subjects")).and_then(Value::as_array).unwrap();
    assert_eq!(subjects.iter().map(|subject| at(subject, "/name")).collect::<Vec<_>>(), ["bob", "eve"]);
}

/// As in AxLearn, fractions may have any sum, projects may lack fractions or members, and types may lack a total.
#[test]
fn quota_file_is_read_as_axlearn_does_with_warnings() {
    let text = "[toml-schema]\nversion = \"1\"\n[total_resources]\nv6e = 16\nv4 = 8.0\n[project_resources]\nTeam_1 = {v6e = 0.8}\n\
                team2 = {v6e = 0.6, v5p = 1.0}\n[project_membership]\nteam2 = [\"user[12]\"]\nteam3 = [\".*\", \"root\"]\n\
                [notes]\nby = \"me\"\n";
    let made = converted(text, "--reservation r --local-queue queue").unwrap();
    assert_eq!(
        quotas(&made, "ClusterQueue", "team-1"),
        ["v4-reserved 0", "v6e-reserved 9"],
        "0.8 of 1.4 of 16 is 9.14"
    );
    assert_eq!(quotas(&made, "ClusterQueue", "team2"), ["v4-reserved 0", "v6e-reserved 7"]);
    assert_eq!(quotas(&made, "ClusterQueue", "team3"), ["v4-reserved 0", "v6e-reserved 0"], "it may borrow");
    assert_eq!(quotas(&made, "Cohort", "axlearn"), ["v4-reserved 4"], "8 cores that are nobody's are lent to all");
    let begins = [
        "line 12: \"notes\" is nothing that AxLearn reads",
        "the project \"Team_1\" is called \"team-1\" here",
        "project_membership.team2: \"user[12]\" is a pattern",
        "project_membership.team3: \".*\" is a pattern",
        "project_resources.team2.v5p: total_resources has no v5p",
        "no project has a fraction of v4; the cohort axlearn lends it to all",
    ];
    assert_eq!(made.warnings.len(), begins.len(), "{:?}", made.warnings);
    for (warning, begin) in made.warnings.iter().zip(begins) {
        assert!(warning.starts_with(begin), "{warning}");
    }
    let objects = listed(&made);
    assert!(objects.contains(&"LocalQueue team-1/queue".to_owned()), "{objects:?}");
    assert!(objects.contains(&"RoleBinding team3/team3-batch-user".to_owned()), "{objects:?}");
    assert!(!objects.iter().any(|name| name.starts_with("RoleBinding team2/")), "{objects:?}");
}

#[test]
fn import_options_set_tiers_types_reservations_and_names() {
    let text = "total_resources = [{h100 = 8}, {h100 = 4}, {h100 = 2}]\n[toml-schema]\nversion = \"1\"\n\
                [project_resources]\nteam-a = {h100 = 60}\nteam-b = {h100 = 40}\n[project_membership]\nteam-a = [\"ann\"]\n";
    let words = "--tiers reserved,reserved,spot --type h100=nvidia.com/gpu:2,gpu=h100 --reservation all --reservation h100=own \
                 --cohort research --namespace ns-{project} --user oidc:{user} --create-namespaces";
    let made = converted(text, words).unwrap();
    assert_eq!(quotas(&made, "ClusterQueue", "team-a"), ["h100-reserved 4", "h100-spot 0"], "3.6 of 6, and 4.2 of 7");
    assert_eq!(quotas(&made, "ClusterQueue", "team-b"), ["h100-reserved 2", "h100-spot 1"]);
    assert_eq!(made.warnings, ["tiers 0, 1 of the file are all reserved: their totals are added up"]);
    let find = |name: &str| made.objects.iter().find(|object| at(object, "/metadata/name") == name).unwrap();
    let flavor = find("h100-reserved");
    assert_eq!(at(flavor, "/spec/nodeLabels/gpu"), "h100");
    assert_eq!(at(flavor, "/spec/nodeLabels/cloud.google.com~1reservation-name"), "own");
    assert_eq!(at(flavor, "/spec/tolerations/0/key"), "nvidia.com/gpu");
    assert_eq!(at(find("team-a"), "/spec/cohortName"), "research");
    assert_eq!(at(find("team-a-batch-user"), "/subjects/0/name"), "oidc:ann");
    assert_eq!(listed(&made)[..2], ["Namespace ns-team-a", "Namespace ns-team-b"]);
    let metal = "--tiers reserved,spot --cloud bare-metal --capacity-label example.com/capacity";
    let made = converted(QUOTA, metal).unwrap();
    let value = made.objects.first().map(|flavor| at(flavor, "/spec/nodeLabels/example.com~1capacity"));
    assert_eq!(value, Some("owned"), "it needs no reservation");
}

/// Each error message names the line or the field, the value, and what is allowed.
#[test]
fn quota_file_or_option_fault_names_place_value_and_allowed() {
    let reserved = "--reservation r";
    let cases: Vec<(&str, &str, &str, Vec<&str>)> = vec![
        ("version = \"1\"", "version = 1", reserved, vec!["line 2: toml-schema.version is 1;", "\"1\" is read"]),
        ("version = \"1\"", "", reserved, vec!["toml-schema.version is missing"]),
        ("[toml-schema]\nversion = \"1\"\n", "", reserved, vec!["toml-schema is missing", "total_resources"]),
        ("v4 = 16\n", "v4 = \n", reserved, vec!["line "]),
        ("v4 = 16\n", "v4 = 16\nv4 = 8\n", reserved, vec!["line 10: duplicate key"]),
        ("v4 = 16", "v4 = -2", reserved, vec!["line 9: total_resources[1].v4 is -2;", "whole number from 0 to"]),
        ("v4 = 16", "v4 = 16.5", reserved, vec!["total_resources[1].v4 is 16.5;", "whole number"]),
        ("v4 = 16", "v4 = \"many\"", reserved, vec!["total_resources[1].v4 is \"many\";", "whole number"]),
        ("v4 = 16", "v4 = 1_000_000_000_001", reserved, vec!["is 1_000_000_000_001;", "0 to 1000000000000"]),
        (
            "v4 = 16",
            "v4 = 15",
            reserved,
            vec!["line 9: total_resources[1].v4 is 15;", "multiple of 2", "google.com/tpu"],
        ),
        ("v4 = 16", "v3 = 16", reserved, vec!["the type \"v3\" is not known", "v5litepod", "--type", "TYPE=RESOURCE"]),
        (
            "v5litepod = 3",
            "V4 = 16",
            "--reservation r --type V4=a/b",
            vec!["\"V4\" and \"v4\" would both be called \"v4\""],
        ),
        ("{v4 = 0.6, v5litepod = 1}", "5", reserved, vec!["line 12: project_resources.team-a is 5; a table is needed"]),
        ("v4 = 0.6", "v4 = -0.6", reserved, vec!["line 12: project_resources.team-a.v4 is -0.6;", "0 or more"]),
        ("v4 = 0.6", "v4 = nan", reserved, vec!["project_resources.team-a.v4 is nan;", "0 or more"]),
        ("v4 = 0.6", "v4 = \"0.6\"", reserved, vec!["project_resources.team-a.v4 is \"0.6\"; a number is needed"]),
        ("[\"bob|eve\"]", "\"bob\"", reserved, vec!["line 19: project_membership.team-b is \"bob\"; a list"]),
        ("[\"bob|eve\"]", "[\"bob\", 7]", reserved, vec!["line 19: project_membership.team-b has 7; texts are needed"]),
        ("team-a = {", "__ = {", reserved, vec!["\"__\" cannot be made a name", "1 to 40 letters"]),
        ("team-a = {", "team_b = {", reserved, vec!["\"team-b\" and \"team_b\" would both be called \"team-b\""]),
        (
            "team-a = {",
            "Team-A = {v4 = 1}\nteam-a = {",
            reserved,
            vec!["\"Team-A\" and \"team-a\" differ in case only"],
        ),
        ("v4 = 16", "v4 = 16", "", vec!["--reservation is missing", "gke", "--reservation v4=NAME"]),
        (
            "v4 = 16",
            "v4 = 16",
            "--reservation v5p=r",
            vec!["--reservation v5p: the file has no such type", "v4, v5litepod"],
        ),
        ("v4 = 16", "v4 = 16", "--reservation r --type v3=a", vec!["--type v3: the file has no such type"]),
        ("v4 = 16", "v4 = 16", "--reservation r --type v4", vec!["--type \"v4\": allowed is TYPE=RESOURCE"]),
        ("v4 = 16", "v4 = 16", "--tiers reserved", vec!["--tiers names 1 tiers, and the file has 2", "on-demand"]),
        (
            "v4 = 16",
            "v4 = 16",
            "--tiers reserved,cheap",
            vec!["--tiers: \"cheap\" is no capacity tier; allowed are reserved"],
        ),
        (
            "v4 = 16",
            "v4 = 16\n[[total_resources]]\nv4 = 2",
            reserved,
            vec!["--tiers names 0 tiers, and the file has 3"],
        ),
        ("v4 = 16", "v4 = 16", "--reservation r --user all", vec!["--user \"all\": it must hold {user}"]),
        (
            "v4 = 16",
            "v4 = 16",
            "--reservation r --namespace A",
            vec!["--namespace \"A\" makes \"A\"", "lower-case letters"],
        ),
        ("v4 = 16", "v4 = 16", "--reservation r --cohort A", vec!["--cohort \"A\": the name", "lower case"]),
        (
            "v4 = 16",
            "v4 = 16",
            "--reservation r --local-queue q --namespace n",
            vec!["share the LocalQueue n/q", "{project}"],
        ),
        ("v4 = 16", "v4 = 16", "--cloud bare-metal", vec!["--capacity-label: is missing"]),
        (
            "v4 = 16",
            "v4 = 16",
            "--reservation r --capacity-label a",
            vec!["--capacity-label: gke", "aks and bare-metal only"],
        ),
        ("v4 = 16", "v4 = 16", "--cloud eks", vec!["--tiers: eks has no reserved", "on-demand, spot"]),
    ];
    for (from, to, words, parts) in cases {
        assert_eq!(QUOTA.matches(from).count(), 1, "{from}");
        let fault = converted(&QUOTA.replace(from, to), words).unwrap_err();
        for part in parts {
            assert!(fault.contains(part), "{to} {words}: {part:?} is not in\n{fault}");
        }
    }
    let tables = "[[total_resources]]\nv4 = 1024\nv5litepod = 3\n\n[[total_resources]]\nv4 = 16\n";
    assert!(QUOTA.contains(tables));
    for (value, part) in [
        ("[]", "line 1: total_resources has 0 tiers; 1 to 64 are allowed"),
        ("5", "line 1: total_resources is 5; a table of whole numbers"),
        ("[5]", "line 1: total_resources is a list; a table of whole numbers"),
        ("{}", "total_resources: no tier has any type"),
    ] {
        let text = format!("total_resources = {value}\n{}", QUOTA.replace(tables, ""));
        let fault = converted(&text, reserved).unwrap_err();
        assert!(fault.contains(part), "{fault}");
    }
}
