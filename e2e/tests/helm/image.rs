//! Tests of the files and programs on which `charts/Dockerfile` relies, read from the repository, because the tests cannot build an image with it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;

const FILE: &str = "charts/Dockerfile";

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(repository().join(file)).with_context(|| format!("reading {file}"))
}

/// The instructions of the Dockerfile, each on one line: those before the last stage, and those of the last stage.
fn stages() -> Result<[Vec<String>; 2]> {
    let text_of_file = read(FILE)?.replace("\\\n", " ");
    let (build, image) =
        text_of_file.split_once("\nFROM scratch\n").with_context(|| format!("{FILE}: no stage from scratch"))?;
    Ok([build, image].map(|stage| {
        let lines = stage.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }))
}

/// The arguments of all instructions of a Dockerfile's stage that have the name `name`.
fn given<'l>(stage: &'l [String], name: &str) -> Vec<&'l str> {
    stage.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

/// Whether the ignore file keeps a file of the repository, or a folder that contains it, from the build.
fn is_ignored(rules: &str, source: &str) -> bool {
    rules.lines().any(|rule| Path::new(source).starts_with(rule.trim_matches('/')) && !rule.is_empty())
}

/// An image from scratch holds only copied files, and without certificate authorities it trusts no public store of checkpoints.
#[test]
fn image_has_the_public_certificate_authorities() -> Result<()> {
    let [build, image] = stages()?;
    let installs = |run: &&str| run.starts_with("apk add ") && run.split(' ').any(|word| word == "ca-certificates");
    ensure!(given(&build, "RUN").iter().any(installs), "the build stage does not install ca-certificates");
    // The path at which Berth's binary looks for certificate authorities (crate openssl-probe).
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    let copied = format!("--from=build {bundle} {bundle}");
    ensure!(given(&image, "COPY").contains(&copied.as_str()), "the image lacks {bundle}");
    Ok(())
}

#[test]
fn dockerfile_copy_sources_exist_and_are_not_ignored() -> Result<()> {
    let rules = read("charts/Dockerfile.dockerignore")?;
    ensure!(rules.lines().all(|rule| !rule.contains(['*', '!', '?', '#'])), "a pattern that this test does not read");
    let [build, image] = stages()?;
    let [of_build, of_image] = [given(&build, "COPY"), given(&image, "COPY")];
    ensure!(of_build.contains(&". ."), "the build does not get the repository");
    let mut sources = vec!["Cargo.toml", "Cargo.lock", "crates/berth/Cargo.toml", "e2e/Cargo.toml"];
    for copy in of_build.iter().chain(&of_image).filter(|copy| !copy.starts_with("--from=build ")) {
        let (from, _) = copy.rsplit_once(' ').context("a COPY without a target")?;
        ensure!(!from.starts_with("--"), "a COPY that this test does not read: {copy}");
        sources.extend(from.split(' '));
    }
    for source in sources {
        ensure!(repository().join(source).exists(), "{source} is copied, and is not in the repository");
        ensure!(!is_ignored(&rules, source), "{source} is copied, and kept from the build");
    }
    ensure!(is_ignored(&rules, "target/release/berth"), "what was built outside of the image is sent along");
    Ok(())
}

#[test]
fn image_runs_the_binary_as_the_chart_expects() -> Result<()> {
    let [build, image] = stages()?;
    let built = given(&build, "RUN")
        .iter()
        .any(|run| run.contains("cargo build --locked --release -p berth && cp target/release/berth /berth"));
    let manifest = read("crates/berth/Cargo.toml")?;
    // A package's program has the name of the package, unless a section `[[bin]]` gives it another name.
    let named = manifest.contains("[package]\nname = \"berth\"\n") && !manifest.contains("[[bin]]");
    ensure!(built && named, "the build does not make the binary of crates/berth");
    ensure!(manifest.contains("\ndefault = [\"manager\"]\n"), "the binary is built without the manager");
    ensure!(given(&image, "COPY").contains(&"--from=build /berth /berth"), "the image lacks the binary");
    ensure!(given(&image, "ENTRYPOINT") == ["[\"/berth\"]"], "the image does not run the binary");

    let pod = read("charts/berth/templates/manager.yaml")?;
    ensure!(!pod.contains("command:"), "the chart runs something else than the image says");
    let [command] = given(&image, "CMD")[..] else { anyhow::bail!("the image has no command of its own") };
    let first = command.trim_matches(['[', ']', '"']);
    ensure!(pod.contains(&format!("args:\n        - {first}\n")), "the chart's first argument is not {first}");
    let [user] = given(&image, "USER")[..] else { anyhow::bail!("the image has no user") };
    let (user, group) = user.split_once(':').context("the user's group")?;
    for line in ["runAsNonRoot: true".to_owned(), format!("runAsUser: {user}"), format!("runAsGroup: {group}")] {
        ensure!(pod.lines().any(|have| have.trim() == line), "the chart does not say {line}");
    }
    Ok(())
}

/// The toolchain file also names components that the build's base image does not have, and rustup would download these.
#[test]
fn image_build_uses_toolchain_of_its_base_image() -> Result<()> {
    let [build, _] = stages()?;
    let channel = read("rust-toolchain.toml")?;
    let channel =
        channel.lines().find_map(|line| line.strip_prefix("channel = ")).context("the channel")?.trim_matches('"');
    ensure!(
        given(&build, "ARG").contains(&format!("RUST={channel}").as_str()),
        "the image is built with another toolchain"
    );
    ensure!(given(&build, "FROM") == ["rust:${RUST}-alpine AS build"], "it starts from another image");
    ensure!(given(&build, "ENV").contains(&"RUSTUP_TOOLCHAIN=${RUST}"), "rustup reads rust-toolchain.toml");
    Ok(())
}
