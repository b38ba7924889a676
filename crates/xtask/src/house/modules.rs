//! The Rust modules of a library or program: declarations `mod` are followed from the root file as the compiler follows them; test modules are left out.

use std::collections::BTreeMap;

use syn::{Expr, Item, ItemMod, Lit, Meta};

use super::sources::{Package, attributes, is_for_tests, is_test_file};

/// A Rust module: a source file, or the part of a file between the braces of `mod x { ... }`.
pub(crate) struct Module<'s> {
    /// Path of the module from the root module, name by name; empty for the root module.
    pub(crate) name: Vec<String>,
    /// The file of the module, as an index into the sources of the package.
    pub(crate) file: usize,
    /// The parent of the module, as an index into the list of modules; `None` for the root module.
    pub(crate) parent: Option<usize>,
    pub(crate) items: &'s [Item],
}

/// The root files of a package: its library and its programs, each of which is compiled as a crate.
pub(crate) fn roots(package: &Package<'_>) -> Vec<usize> {
    let is_root = |path: &str| {
        let Some(rest) = path.strip_prefix(&package.folder).and_then(|path| path.strip_prefix("src/")) else {
            return false;
        };
        match rest.split('/').collect::<Vec<_>>().as_slice() {
            ["lib.rs" | "main.rs"] | ["bin", _, "main.rs"] => true,
            ["bin", file] => file.ends_with(".rs"),
            _ => false,
        }
    };
    (0..package.sources.len()).filter(|index| is_root(package.sources[*index].path)).collect()
}

/// All Rust modules below a root file that are compiled outside of tests. The root module is the first of the list.
pub(crate) fn modules<'s>(package: &'s Package<'_>, root: usize) -> Vec<Module<'s>> {
    let files = package.sources.iter().enumerate().map(|(index, source)| (source.path, index)).collect();
    let mut walk = Walk { package, files, found: Vec::new() };
    let folder = folder_of(package.sources[root].path).to_owned();
    walk.module(Vec::new(), root, None, &package.sources[root].file.items, &folder);
    walk.found
}

struct Walk<'s, 't> {
    package: &'s Package<'t>,
    files: BTreeMap<&'s str, usize>,
    found: Vec<Module<'s>>,
}

impl<'s> Walk<'s, '_> {
    /// Adds a Rust module and its submodules to the list. `folder` is the folder with the files of the submodules.
    fn module(&mut self, name: Vec<String>, file: usize, parent: Option<usize>, items: &'s [Item], folder: &str) {
        let this = self.found.len();
        self.found.push(Module { name: name.clone(), file, parent, items });
        for item in items {
            let Item::Mod(child) = item else { continue };
            if is_for_tests(attributes(item)) {
                continue;
            }
            let ident = bare(&child.ident.to_string());
            let child_name: Vec<String> = name.iter().cloned().chain([ident.clone()]).collect();
            if let Some((_, items)) = &child.content {
                self.module(child_name, file, Some(this), items, &format!("{folder}{ident}/"));
            } else if let Some((index, folder)) = self.file_of(child, &ident, file, folder) {
                self.module(child_name, index, Some(this), &self.package.sources[index].file.items, &folder);
            }
        }
    }

    /// The file of the module that a declaration `mod x;` names, and the folder with the files of the module's submodules.
    fn file_of(&self, child: &ItemMod, ident: &str, parent: usize, folder: &str) -> Option<(usize, String)> {
        let candidates = match explicit_path(child) {
            Some(path) => {
                let path = format!("{}{path}", folder_of(self.package.sources[parent].path));
                vec![(path.clone(), folder_of(&path).to_owned())]
            }
            None => vec![
                (format!("{folder}{ident}.rs"), format!("{folder}{ident}/")),
                (format!("{folder}{ident}/mod.rs"), format!("{folder}{ident}/")),
            ],
        };
        candidates.into_iter().filter(|(path, _)| !is_test_file(path)).find_map(|(path, folder)| {
            let index = self.files.get(path.as_str())?;
            Some((*index, folder))
        })
    }
}

/// The file that an attribute `#[path = "..."]` names.
fn explicit_path(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

/// The folder in a file's path, with the slash at its end; empty for a file at the top level.
fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

/// A Rust identifier without the prefix `r#` that a raw identifier has.
pub(crate) fn bare(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::sources::Sources;
    use super::*;
    use crate::tidy::Tree;

    /// The names and files of all Rust modules below all root files of a test's package.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = [("crates/a/Cargo.toml", "")].iter().chain(files).copied().collect();
        let tree = Tree::of(&files);
        let sources = Sources::read(&tree).unwrap();
        let package = &sources.packages[0];
        let all = roots(package).into_iter().flat_map(|root| modules(package, root));
        all.map(|module| {
            let path = package.sources[module.file].path.strip_prefix("crates/a/src/").unwrap();
            format!("{}={path}", module.name.join("::"))
        })
        .collect()
    }

    #[test]
    fn modules_are_found_where_the_compiler_looks() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\nmod c;\nmod d { mod e; }\n#[path = \"other/f.rs\"]\nmod f;\nmod nowhere;"),
            ("crates/a/src/b.rs", "mod g;"),
            ("crates/a/src/b/g.rs", ""),
            ("crates/a/src/c/mod.rs", "mod h;"),
            ("crates/a/src/c/h.rs", ""),
            ("crates/a/src/d/e.rs", ""),
            ("crates/a/src/other/f.rs", "mod i;"),
            ("crates/a/src/other/i.rs", ""),
            ("crates/a/src/unused.rs", ""),
        ];
        let expected = [
            "=lib.rs",
            "b=b.rs",
            "b::g=b/g.rs",
            "c=c/mod.rs",
            "c::h=c/h.rs",
            "d=lib.rs",
            "d::e=d/e.rs",
            "f=other/f.rs",
            "f::i=other/i.rs",
        ];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn test_modules_are_left_out() {
        let files = [
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod b;\nmod c_tests;\nmod d;\n#[cfg(test)]\nmod e { mod f; }"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/c_tests.rs", ""),
            ("crates/a/src/d.rs", ""),
            ("crates/a/tests/main.rs", "mod g;"),
            ("crates/a/tests/g.rs", ""),
        ];
        assert_eq!(found(&files), ["=lib.rs", "d=d.rs"]);
    }

    #[test]
    fn binary_programs_are_module_roots_of_their_own() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;"),
            ("crates/a/src/main.rs", "mod b;"),
            ("crates/a/src/bin/c.rs", ""),
            ("crates/a/src/bin/d/main.rs", ""),
            ("crates/a/src/b.rs", ""),
        ];
        let mut found = found(&files);
        found.sort();
        assert_eq!(found, ["=bin/c.rs", "=bin/d/main.rs", "=lib.rs", "=main.rs", "b=b.rs", "b=b.rs"]);
    }
}
