//! The parsed sources of the workspace, and the pages of the repository.

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

use super::prose::{Paragraph, of_comments, of_page};
use crate::tidy::Tree;

/// A source file.
pub(crate) struct Source<'t> {
    pub(crate) path: &'t str,
    /// The paragraphs of the comments in the source.
    pub(crate) prose: Vec<Paragraph>,
    /// All tokens of the source, including the content of macro calls.
    pub(crate) tokens: TokenStream,
    pub(crate) file: syn::File,
}

/// A package of the workspace with all its sources: library, programs, tests, benchmarks and examples.
pub(crate) struct Package<'t> {
    /// Name of the package: the last part of its folder, as in `crates/<name>`.
    pub(crate) name: &'t str,
    pub(crate) folder: String,
    pub(crate) sources: Vec<Source<'t>>,
}

/// A page of documentation.
pub(crate) struct Page<'t> {
    pub(crate) path: &'t str,
    pub(crate) prose: Vec<Paragraph>,
}

/// The repository's files, packages and pages, for the measures of `xtask house`.
pub(crate) struct Sources<'t> {
    pub(crate) tree: &'t Tree,
    pub(crate) packages: Vec<Package<'t>>,
    pub(crate) pages: Vec<Page<'t>>,
}

/// Folders whose pages are not measured, because nobody edits them: measured results, and decision cases with texts of Kueue.
const FOREIGN_PAGES: [&str; 2] = ["docs/results/", "crates/testkit/cases/"];

impl<'t> Sources<'t> {
    /// Parses every source of the workspace.
    ///
    /// # Errors
    ///
    /// A source is not valid Rust; the error names its path.
    pub(crate) fn read(tree: &'t Tree) -> Result<Self> {
        let mut packages = Vec::new();
        for (path, _) in tree.files() {
            let Some(folder) = path.strip_suffix("Cargo.toml").filter(|folder| is_member(folder)) else { continue };
            let files = tree.files().filter(|(path, _)| path.starts_with(folder) && path.ends_with(".rs"));
            let sources = files.map(|(path, text)| Source::read(path, text)).collect::<Result<_>>()?;
            let name = folder.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            packages.push(Package { name, folder: folder.to_owned(), sources });
        }
        let foreign = |path: &str| FOREIGN_PAGES.iter().any(|folder| path.starts_with(folder));
        let pages = tree.files().filter(|(path, _)| path.ends_with(".md") && !foreign(path));
        let pages = pages.map(|(path, text)| Page { path, prose: of_page(text) }).collect();
        Ok(Self { tree, packages, pages })
    }
}

impl<'t> Source<'t> {
    fn read(path: &'t str, text: &'t str) -> Result<Self> {
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow::anyhow!("{error}")).with_context(|| format!("tokens of {path}"))?;
        let file = syn::parse2(tokens.clone()).with_context(|| format!("parse {path}"))?;
        Ok(Self { path, prose: of_comments(text), tokens, file })
    }
}

/// Whether a folder is a member of the workspace: `crates/*` or `e2e`.
fn is_member(folder: &str) -> bool {
    folder == "e2e/" || folder.strip_prefix("crates/").is_some_and(|rest| rest.matches('/').count() == 1)
}

/// Whether a Rust item with these attributes is compiled only for tests.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = || attribute.parse_args::<Meta>().is_ok_and(|condition| asks_for_test(&condition));
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && condition())
    })
}

/// Whether a `cfg` condition holds only in tests.
fn asks_for_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
            (list.path.is_ident("all") && parts.iter().any(asks_for_test))
                || (list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(asks_for_test))
        }
        Meta::NameValue(_) => false,
    }
}

/// Whether a path is the path of a file with tests only.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("_tests.rs") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The attributes of a Rust item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Calls `visit` with the outermost tokens of a token stream, and with the tokens of every bracket group in it.
pub(crate) fn each_group(tokens: TokenStream, visit: &mut dyn FnMut(&[TokenTree])) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    visit(&tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            each_group(group.stream(), visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfg_conditions_for_tests_are_recognised() {
        let marked = |text: &str| is_for_tests(attributes(&syn::parse_str::<Item>(text).unwrap()));
        for text in [
            "#[cfg(test)] mod a;",
            "#[cfg(all(test, unix))] fn a() {}",
            "#[cfg(any(test, all(test, unix)))] use a::b;",
            "#[test] fn a() {}",
        ] {
            assert!(marked(text), "{text}");
        }
        for text in
            ["#[cfg(unix)] mod a;", "#[cfg(not(test))] fn a() {}", "#[cfg(any(test, unix))] fn a() {}", "fn a() {}"]
        {
            assert!(!marked(text), "{text}");
        }
    }

    #[test]
    fn packages_have_the_sources_below_their_folder() {
        let files = [
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "fn a() {}"),
            ("crates/ab/Cargo.toml", ""),
            ("crates/ab/tests/b.rs", "fn b() {}"),
            ("crates/ab/fixtures/Cargo.toml", ""),
            ("e2e/Cargo.toml", ""),
            ("e2e/src/lib.rs", "fn e() {}"),
            ("docs/a.md", "# A"),
            ("docs/results/b.md", "# B"),
        ];
        let tree = Tree::of(&files);
        let sources = Sources::read(&tree).unwrap();
        let packages: Vec<(&str, Vec<&str>)> = sources
            .packages
            .iter()
            .map(|package| (package.name, package.sources.iter().map(|source| source.path).collect()))
            .collect();
        let expected =
            [("a", vec!["crates/a/src/lib.rs"]), ("ab", vec!["crates/ab/tests/b.rs"]), ("e2e", vec!["e2e/src/lib.rs"])];
        assert_eq!(packages, expected);
        assert_eq!(sources.pages.iter().map(|page| page.path).collect::<Vec<_>>(), ["docs/a.md"]);
    }

    #[test]
    fn source_that_does_not_parse_is_named_in_the_error() {
        let tree = Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", "fn fn")]);
        let error = Sources::read(&tree).err().unwrap().to_string();
        assert!(error.contains("crates/a/src/lib.rs"), "{error}");
    }
}
