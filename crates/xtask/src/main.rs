//! Berth's tooling: generated files of the repository, and checks of the house rules.
//!
//! `crdgen` (`make crds`) writes `crds/` from the types of `berth-api`, and with `--check` only reports stale files. `likeness` compares a CRD with Kueue's.
//! `image` writes the archive of `make image`. `tidy` checks rules that no compiler knows, such as dependencies of crates and places of files. `house` measures
//! the language and structure of the code. The program `xtask` never connects to a cluster. `crd.rs` makes a CRD from a kind, `expand.rs` turns a schemars
//! document into a schema that the API server accepts, and `tidy` has the rules.

mod crd;
mod dashboard;
mod expand;
mod house;
mod image;
mod job_kinds;
mod kinds;
mod likeness;
mod pods;
mod tidy;
mod v1beta1;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Generates and checks files of this repository")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write one CustomResourceDefinition per kind, and the parts of the chart about each kind of job.
    Crdgen {
        /// Folder to write to; `crds/` of the repository when absent.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Write nothing; fail when a file differs from what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Write the Grafana dashboard.
    Dashboard,
    /// Print a digest of each version in files of CustomResourceDefinitions, as `kueue-crds.txt` has them.
    Likeness {
        /// Print the lines of which the digests are made.
        #[arg(long)]
        lines: bool,
        /// Files of one definition each.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write an archive of the image, for container engines, kind and registries.
    Image {
        /// The program, linked statically.
        #[arg(long)]
        binary: PathBuf,
        /// The archive.
        #[arg(long)]
        out: PathBuf,
        /// Name and tag of the image.
        #[arg(long, default_value = image::NAME)]
        name: String,
        /// Take a program that is linked dynamically, for a test that puts its libraries beside it.
        #[arg(long)]
        dynamic: bool,
    },
    /// Check the house rules.
    Tidy,
    /// Print the measures of the house: import circles, private words, sentences, names, references.
    House(house::Options),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Crdgen { out, check } => {
            let folder = out.unwrap_or_else(repository_crds);
            let mut stale: Vec<(PathBuf, String)> =
                stale_files(&folder)?.into_iter().map(|(name, text)| (folder.join(name), text)).collect();
            stale.extend(job_kinds::stale()?);
            if check && !stale.is_empty() {
                let names: Vec<String> = stale.iter().map(|(path, _)| path.display().to_string()).collect();
                bail!("stale, run `make crds`: {}", names.join(", "));
            }
            for (path, text) in &stale {
                std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
            }
            println!("crdgen: {} kinds, {} files written", kinds::ALL.len(), stale.len());
            Ok(())
        }
        Command::Dashboard => {
            let path = dashboard::path();
            std::fs::write(&path, dashboard::text()?).with_context(|| format!("write {}", path.display()))
        }
        Command::Likeness { lines, files } => {
            for file in &files {
                let name = || file.display().to_string();
                let text = std::fs::read_to_string(file).with_context(name)?;
                let definition = serde_saphyr::from_str(&text).with_context(name)?;
                for version in likeness::versions(&definition).with_context(name)? {
                    println!("{}", version.digest());
                    version.lines.iter().filter(|_| lines).for_each(|line| println!("  {line}"));
                }
            }
            Ok(())
        }
        Command::Image { binary, out, name, dynamic } => {
            println!("{}", image::write(&image::Source { binary, name, dynamic }, &out)?);
            Ok(())
        }
        Command::Tidy => {
            let tree = tidy::Tree::read(&repository())?;
            let mut found = tidy::findings(&repository(), &tree)?;
            found.extend(house::findings(&tree)?);
            for finding in &found {
                println!("{finding}");
            }
            if found.is_empty() {
                println!("tidy: the house rules are kept");
                return Ok(());
            }
            eprintln!("tidy: {} against the house rules (crates/xtask/src/tidy)", found.len());
            std::process::exit(1)
        }
        Command::House(options) => house::run(&repository(), &options),
    }
}

/// The root folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder `crds/` of the repository.
fn repository_crds() -> PathBuf {
    repository().join("crds")
}

/// Name and generated content of every CRD file in `folder` that is missing or differs from its generated content.
fn stale_files(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut stale = Vec::new();
    for kind in kinds::ALL {
        let name = format!("{}.{}.yaml", kind.plural, kind.group);
        let wanted = crd::yaml(kind).with_context(|| format!("generate {}", kind.kind))?;
        if std::fs::read_to_string(folder.join(&name)).is_ok_and(|found| found == wanted) {
            continue;
        }
        stale.push((name, wanted));
    }
    let (name, wanted) = ("Kustomization".to_owned(), kustomization());
    if !std::fs::read_to_string(folder.join(&name)).is_ok_and(|found| found == wanted) {
        stale.push((name, wanted));
    }
    Ok(stale)
}

/// The kustomization that lists the CRD files for `kubectl apply -k`. The file of the kustomization has no extension, so that `kubectl apply -f` and the chart
/// ignore it.
fn kustomization() -> String {
    let mut names: Vec<String> =
        kinds::ALL.iter().map(|kind| format!("- {}.{}.yaml\n", kind.plural, kind.group)).collect();
    names.sort_unstable();
    format!(
        "# Generated from crates/api by `make crds`; do not edit.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{}",
        names.concat()
    )
}

#[cfg(test)]
mod tests;
