//! `xtask house`: measures of the code's language and structure, such as banned sentence openings, import circles and private words in identifiers.
//!
//! Each measure of `xtask house` is a file with the measure's definition in its doc comment. The counts of four measures may only go down (`baseline.rs`):
//! sentences with a banned opening, references that lead nowhere, private words in identifiers, and test names above ten words. `make tidy` checks the baseline
//! of these four measures, and the limits of `shape.rs`. `sources.rs` is the place to start reading.

mod baseline;
mod circles;
mod counted;
mod decisions;
mod hub;
mod modules;
mod openings;
mod prose;
mod references;
mod scopes;
mod shape;
mod sources;
mod test_names;
mod type_names;
mod vocabulary;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::tidy::{Finding, Tree, long_files};
use baseline::Held;
use circles::Circle;
use counted::Counted;
use sources::{Package, Sources};

/// Path of the baseline file of `xtask house`, from the root of the repository.
const BASELINE: &str = "crates/xtask/house.txt";
/// The name under which findings in pages are counted; other names are names of packages.
const PAGES: &str = "pages";
/// The argument of `xtask house` that stands for all packages and the pages.
const ALL: &str = "all";

/// Lists to print in place of the table.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// List the files of each import circle, and the names that each file imports from the others.
    #[arg(long)]
    files: bool,
    /// List the functions and fields that refer to the type `Control`, and the files with its `impl` blocks.
    #[arg(long)]
    control: bool,
    /// List sentences with a banned opening.
    #[arg(long, value_name = "PACKAGE|pages|all")]
    sentences: Option<String>,
    /// List references to missing pages and to issue numbers.
    #[arg(long, value_name = "PACKAGE|pages|all")]
    references: Option<String>,
    /// List type names that several types of one crate have.
    #[arg(long, value_name = "PACKAGE|all")]
    types: Option<String>,
    /// List identifiers with words of the private vocabulary.
    #[arg(long, value_name = "PACKAGE|all")]
    words: Option<String>,
    /// List test names above ten words.
    #[arg(long, value_name = "PACKAGE|all")]
    names: Option<String>,
    /// Measure another checkout of this repository.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Write the baseline file with today's counts; fails if a measure has more findings than the file allows.
    #[arg(long)]
    lower: bool,
}

/// The measures that have a baseline.
struct Prose {
    sentences: BTreeMap<String, Counted>,
    references: BTreeMap<String, Counted>,
    words: BTreeMap<String, Counted>,
    names: BTreeMap<String, Counted>,
}

impl Prose {
    fn of(sources: &Sources<'_>) -> Self {
        Self {
            sentences: openings::counted(sources),
            references: references::counted(sources),
            words: vocabulary::uses(sources),
            names: test_names::counted(sources),
        }
    }

    fn held(&self) -> [Held<'_>; 4] {
        [
            Held { name: "sentences", findings: "sentences with a banned opening", counts: &self.sentences },
            Held { name: "references", findings: "references that lead nowhere", counts: &self.references },
            Held { name: "words", findings: "uses of private words", counts: &self.words },
            Held { name: "names", findings: "test names above ten words", counts: &self.names },
        ]
    }
}

/// Prints the table of all measures of the code, or the lists that the options ask for.
///
/// # Errors
///
/// A source cannot be read, a package does not exist, or the baseline would have to go up.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let root = options.root.as_deref().unwrap_or(root);
    let tree = Tree::read(root)?;
    let sources = Sources::read(&tree)?;
    let text = text(&sources, options)?;
    print!("{text}");
    if options.lower {
        let old = tree.text(BASELINE).unwrap_or_default();
        let new = baseline::lowered(old, &Prose::of(&sources).held()).map_err(anyhow::Error::msg)?;
        std::fs::write(root.join(BASELINE), new).with_context(|| format!("write {BASELINE}"))?;
        println!("house: wrote {BASELINE}");
    }
    Ok(())
}

/// Findings about measures whose counts differ from the baseline, and about import circles and uses of `Control` beyond the limits of `shape.rs`.
///
/// # Errors
///
/// A source cannot be read.
pub(crate) fn findings(tree: &Tree) -> Result<Vec<Finding>> {
    let sources = Sources::read(tree)?;
    let mut found = baseline::check(tree.text(BASELINE).unwrap_or_default(), &Prose::of(&sources).held());
    found.extend(shape::check(&sources));
    Ok(found)
}

fn text(sources: &Sources<'_>, options: &Options) -> Result<String> {
    let mut text = String::new();
    let lists = [&options.sentences, &options.references, &options.types, &options.words, &options.names];
    if options.files {
        files(sources, &mut text)?;
    }
    if options.control {
        control(sources, &mut text)?;
    }
    if options.sentences.is_some() || options.references.is_some() || options.names.is_some() {
        let prose = Prose::of(sources);
        for (asked, counts) in [
            (&options.sentences, &prose.sentences),
            (&options.references, &prose.references),
            (&options.names, &prose.names),
        ] {
            let Some(asked) = asked else { continue };
            for (_, counted) in chosen(counts.iter().map(|(name, counted)| (name.as_str(), counted)), asked)? {
                counted.found.iter().try_for_each(|finding| writeln!(text, "{finding}"))?;
            }
        }
    }
    let packages = || sources.packages.iter().map(|package| (package.name, package));
    if let Some(asked) = &options.types {
        chosen(packages(), asked)?.into_iter().try_for_each(|(_, package)| types(package, &mut text))?;
    }
    if let Some(asked) = &options.words {
        chosen(packages(), asked)?.into_iter().try_for_each(|(_, package)| words(package, &mut text))?;
    }
    let nothing_asked = !options.files && !options.control && !options.lower && lists.iter().all(|list| list.is_none());
    if nothing_asked {
        text = table(sources, &Prose::of(sources))?;
    }
    Ok(text)
}

/// The entries of the requested package, or all entries for the name `all`.
fn chosen<'n, T>(entries: impl Iterator<Item = (&'n str, T)>, asked: &str) -> Result<Vec<(&'n str, T)>> {
    let (all, mut found) = (asked == ALL, Vec::new());
    let mut names = Vec::new();
    for (name, entry) in entries {
        names.push(name);
        if all || name == asked {
            found.push((name, entry));
        }
    }
    if found.is_empty() {
        bail!("{asked:?}: allowed are {} and {ALL}", names.join(", "));
    }
    Ok(found)
}

/// The table of measures: a line about the type `Control`, and a line for each package.
fn table(sources: &Sources<'_>, prose: &Prose) -> Result<String> {
    let mut text = String::new();
    let hub = hub::measured(sources);
    writeln!(
        text,
        "house: Control has {} fields, {} of them private, and impl blocks without a trait in {} files; {} other functions and {} fields take a reference to it",
        hub.fields,
        hub.private_fields,
        hub.impl_files.len(),
        hub.takers.len(),
        hub.holders.len()
    )?;
    let head = [
        "package",
        "files",
        "too long",
        "circle",
        "banned",
        "of sentences",
        "dangling",
        "of references",
        "types",
        "words",
        "names",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let long: Vec<(&str, usize)> = long_files(sources.tree).collect();
    let counts = |counts: &BTreeMap<String, Counted>, name: &str| {
        counts.get(name).map_or((0, 0), |counted| (counted.found.len(), counted.of))
    };
    for package in &sources.packages {
        let circle = circles::circles(package).first().map_or(0, |circle| circle.files.len());
        let words: usize = vocabulary::counted(package).values().flat_map(BTreeMap::values).sum();
        let long = long.iter().filter(|(path, _)| path.starts_with(&package.folder)).count();
        let (banned, sentences) = counts(&prose.sentences, package.name);
        let (dangling, references) = counts(&prose.references, package.name);
        let types = type_names::collisions(package).len();
        let (names, _) = counts(&prose.names, package.name);
        let numbers =
            [package.sources.len(), long, circle, banned, sentences, dangling, references, types, words, names];
        rows.push(row(package.name, numbers.map(Some)));
    }
    let others = |(path, _): &&(&str, usize)| !sources.packages.iter().any(|package| path.starts_with(&package.folder));
    let (banned, sentences) = counts(&prose.sentences, PAGES);
    let (dangling, references) = counts(&prose.references, PAGES);
    let [files, long_others] = [sources.pages.len(), long.iter().filter(others).count()].map(Some);
    let [banned, sentences, dangling, references] = [banned, sentences, dangling, references].map(Some);
    rows.push(row(PAGES, [files, long_others, None, banned, sentences, dangling, references, None, None, None]));
    for row in &rows {
        let [name, numbers @ ..] = row;
        write!(text, "{name:<13}")?;
        for (number, head) in numbers.iter().zip(&head[1..]) {
            write!(text, "  {number:>width$}", width = head.len().max(5))?;
        }
        text.push('\n');
    }
    for (path, lines) in long {
        writeln!(text, "too long: {path}: {lines} lines")?;
    }
    let decisions = decisions::counted(sources);
    if decisions.of > 0 {
        let untested = decisions.found.len();
        writeln!(text, "house: {} decision files of reconcile, {untested} of them without unit tests", decisions.of)?;
        decisions.found.iter().try_for_each(|finding| writeln!(text, "{finding}"))?;
    }
    Ok(text)
}

fn row(name: &str, numbers: [Option<usize>; 10]) -> [String; 11] {
    let mut row = std::array::from_fn(|_| String::new());
    name.clone_into(&mut row[0]);
    for (cell, number) in row[1..].iter_mut().zip(numbers) {
        *cell = number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    }
    row
}

fn files(sources: &Sources<'_>, text: &mut String) -> Result<()> {
    for package in &sources.packages {
        for Circle { files } in circles::circles(package) {
            writeln!(text, "{}: circle of {} files", package.name, files.len())?;
            for (path, named) in files {
                writeln!(text, "  {path}")?;
                for (other, names) in named {
                    writeln!(text, "    {other} ({})", names.join(", "))?;
                }
            }
        }
    }
    for (path, lines) in long_files(sources.tree) {
        writeln!(text, "too long: {path}: {lines} lines")?;
    }
    Ok(())
}

fn control(sources: &Sources<'_>, text: &mut String) -> Result<()> {
    let hub = hub::measured(sources);
    writeln!(text, "defined in {}", hub.defined)?;
    hub.impl_files.iter().try_for_each(|path| writeln!(text, "impl in {path}"))?;
    hub.takers.iter().try_for_each(|place| writeln!(text, "parameter of {place}"))?;
    hub.holders.iter().try_for_each(|place| writeln!(text, "field {place}"))?;
    Ok(())
}

fn types(package: &Package<'_>, text: &mut String) -> Result<()> {
    for (name, places) in type_names::collisions(package) {
        let places: Vec<String> = places.into_iter().map(|(path, line)| format!("{path}:{line}")).collect();
        writeln!(text, "{}: {name} {} times: {}", package.name, places.len(), places.join(", "))?;
    }
    Ok(())
}

fn words(package: &Package<'_>, text: &mut String) -> Result<()> {
    for (word, idents) in vocabulary::counted(package) {
        let sum: usize = idents.values().sum();
        let mut idents: Vec<(String, usize)> = idents.into_iter().collect();
        idents.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let idents: Vec<String> = idents.into_iter().map(|(ident, count)| format!("{ident} {count}")).collect();
        writeln!(text, "{}: {word} {sum}: {}", package.name, idents.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
