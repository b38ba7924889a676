//! Resolution of Rust paths to the file that defines the item. The resolution follows imports, re-exports and globs.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree};

use super::modules::{Module, bare};
use super::sources::{attributes, is_for_tests};

/// One import of a `use` declaration: a name or a glob.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name that the import has in the importing module; `None` for a glob.
    pub(crate) name: Option<String>,
}

/// The definition to which a Rust path leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    /// The path leads to an item; the number is the index of the file that defines it.
    Item(usize),
    /// The path leads to a module; the number is the module's index.
    Module(usize),
}

enum Named {
    Item,
    Module(usize),
    Import(Vec<String>),
}

struct Scope {
    file: usize,
    parent: Option<usize>,
    names: BTreeMap<String, Vec<Named>>,
    globs: Vec<Vec<String>>,
}

/// The names that can be used in each module of one crate.
pub(crate) struct Scopes(Vec<Scope>);

/// Look-ups of names in progress, by module and name, so that a look-up through circular glob imports ends.
type Begun = BTreeSet<(usize, String)>;

impl Scopes {
    /// Collects the names in each module; `imports` has the imports of each module.
    pub(crate) fn of(modules: &[Module<'_>], imports: &[Vec<Import>]) -> Self {
        let scope = |module: &Module<'_>| Scope {
            file: module.file,
            parent: module.parent,
            names: BTreeMap::new(),
            globs: Vec::new(),
        };
        let mut scopes: Vec<Scope> = modules.iter().map(scope).collect();
        for (index, module) in modules.iter().enumerate() {
            if let (Some(parent), Some(name)) = (module.parent, module.name.last()) {
                scopes[parent].names.entry(name.clone()).or_default().push(Named::Module(index));
            }
            for name in module.items.iter().filter(|item| !is_for_tests(attributes(item))).filter_map(defined) {
                scopes[index].names.entry(name).or_default().push(Named::Item);
            }
            for import in &imports[index] {
                match &import.name {
                    Some(name) => {
                        let named = Named::Import(import.path.clone());
                        scopes[index].names.entry(name.clone()).or_default().push(named);
                    }
                    None => scopes[index].globs.push(import.path.clone()),
                }
            }
        }
        Self(scopes)
    }

    /// The definitions to which a path in a module leads, and the number of path segments up to and including the definition. The result is empty for a path
    /// into another crate, a generic parameter and a local variable.
    ///
    /// The resolution of a path ends at the path's first item: variants and associated functions belong to their type. A name that no source of the crate
    /// defines was made by a macro, and counts as an item in the file of its module.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> (Vec<Found>, usize) {
        self.walk(module, path, &mut Begun::new())
    }

    fn walk(&self, module: usize, path: &[String], begun: &mut Begun) -> (Vec<Found>, usize) {
        let (mut at, mut inside) = (module, false);
        for (index, name) in path.iter().enumerate() {
            let last = index + 1 == path.len();
            match name.as_str() {
                "Self" => return (Vec::new(), 0),
                "self" => inside = true,
                "crate" => (at, inside) = (0, true),
                "super" => match self.0[at].parent {
                    Some(parent) => (at, inside) = (parent, true),
                    None => return (Vec::new(), 0),
                },
                name if last => {
                    let found = self.look_up(at, name, begun);
                    let made = found.is_empty() && inside && !self.0[at].names.contains_key(name);
                    return (if made { vec![Found::Item(self.0[at].file)] } else { found }, path.len());
                }
                name => match self.step(at, name, begun) {
                    Some(Found::Module(next)) => (at, inside) = (next, true),
                    Some(item) => return (vec![item], index + 1),
                    None if inside && !self.0[at].names.contains_key(name) => {
                        return (vec![Found::Item(self.0[at].file)], index + 1);
                    }
                    None => return (Vec::new(), 0),
                },
            }
        }
        (vec![Found::Module(at)], path.len())
    }

    /// The module or item that a segment of a path names, if the segment is not the path's last one; a module takes precedence over an item of the same name.
    fn step(&self, module: usize, name: &str, begun: &mut Begun) -> Option<Found> {
        let child = self.0[module].names.get(name).into_iter().flatten().find_map(|named| match named {
            Named::Module(index) => Some(Found::Module(*index)),
            _ => None,
        });
        child.or_else(|| {
            let found = self.look_up(module, name, begun);
            found.iter().find(|found| matches!(found, Found::Module(_))).or(found.first()).cloned()
        })
    }

    fn look_up(&self, module: usize, name: &str, begun: &mut Begun) -> Vec<Found> {
        let key = (module, name.to_owned());
        if !begun.insert(key.clone()) {
            return Vec::new();
        }
        let scope = &self.0[module];
        let mut found = BTreeSet::new();
        for named in scope.names.get(name).into_iter().flatten() {
            match named {
                Named::Item => _ = found.insert(Found::Item(scope.file)),
                Named::Module(index) => _ = found.insert(Found::Module(*index)),
                Named::Import(path) => found.extend(self.walk(module, path, begun).0),
            }
        }
        // A name that the module itself defines or imports hides a name that a glob imports.
        if !scope.names.contains_key(name) {
            for glob in &scope.globs {
                for target in self.walk(module, glob, begun).0 {
                    if let Found::Module(inner) = target {
                        found.extend(self.look_up(inner, name, begun));
                    }
                }
            }
        }
        begun.remove(&key);
        found.into_iter().collect()
    }
}

/// The name that a Rust item defines; `None` for modules, imports and implementations.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(bare(&ident.to_string()))
}

/// The imports of a Rust module outside of test code, including imports in function bodies.
pub(crate) fn imports(module: &Module<'_>) -> Vec<Import> {
    struct Uses(Vec<Import>);
    impl<'ast> Visit<'ast> for Uses {
        fn visit_item(&mut self, item: &'ast Item) {
            if !is_for_tests(attributes(item)) && !matches!(item, Item::Mod(_)) {
                visit::visit_item(self, item);
            }
        }
        fn visit_item_use(&mut self, item: &'ast ItemUse) {
            if item.leading_colon.is_none() {
                leaves(&item.tree, &mut Vec::new(), &mut self.0);
            }
        }
    }
    let mut uses = Uses(Vec::new());
    module.items.iter().for_each(|item| uses.visit_item(item));
    uses.0
}

/// Collects the imported names of a `use` declaration, which may have nested groups.
fn leaves(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<Import>) {
    let mut add = |before: &[String], last: &syn::Ident, name: &syn::Ident| {
        let (last, name) = (bare(&last.to_string()), bare(&name.to_string()));
        let path: Vec<String> =
            before.iter().cloned().chain([last.clone()].into_iter().filter(|l| l != "self")).collect();
        let name = if name == "self" { before.last().cloned() } else { Some(name) };
        if name.is_some() {
            found.push(Import { path, name });
        }
    };
    match tree {
        UseTree::Path(path) => {
            before.push(bare(&path.ident.to_string()));
            leaves(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(leaf) => add(before, &leaf.ident, &leaf.ident),
        UseTree::Rename(leaf) => add(before, &leaf.ident, &leaf.rename),
        UseTree::Glob(_) => found.push(Import { path: before.clone(), name: None }),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, found)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::modules::{modules, roots};
    use super::super::sources::Sources;
    use super::*;
    use crate::tidy::Tree;

    /// The files, or inline modules, that a path in the module of `b.rs` leads to.
    fn found(files: &[(&str, &str)], path: &str) -> Vec<String> {
        let tree = Tree::of_package(files);
        let sources = Sources::read(&tree).unwrap();
        let package = &sources.packages[0];
        let modules = modules(package, roots(package)[0]);
        let imports: Vec<Vec<Import>> = modules.iter().map(imports).collect();
        let scopes = Scopes::of(&modules, &imports);
        let file = |index: usize| package.sources[index].path.trim_start_matches("crates/a/src/").to_owned();
        let from = modules.iter().position(|module| file(module.file) == "b.rs").unwrap();
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        let name = |found: Found| match found {
            Found::Item(index) => file(index),
            Found::Module(index) => format!("{{{}}}", modules[index].name.join("::")),
        };
        scopes.resolve(from, &path).0.into_iter().map(name).collect()
    }

    const FILES: [(&str, &str); 7] = [
        ("lib.rs", "mod b; mod c; mod d; pub use d::*; pub use c::e::Moved as Named; struct Top; strings! { MADE }"),
        ("b.rs", "use super::c::{self, e, Kept}; use crate::Named; use std::fmt; use super::d::Loop; struct Own;"),
        ("c.rs", "mod e; pub use e::Moved; pub(crate) use self::e::Other as Kept; pub use std::io::Read;"),
        ("c/e.rs", "pub struct Moved; pub struct Other; pub enum Kind { One } mod inner { pub fn f() {} }"),
        ("d.rs", "pub struct Seen; pub use super::d2::Loop;"),
        ("d2.rs", ""),
        ("unused.rs", ""),
    ];

    #[test]
    fn paths_lead_to_the_file_of_the_definition() {
        for (path, expected) in [
            ("Own", "b.rs"),
            ("super::Top", "lib.rs"),
            ("crate::c::e::Moved", "c/e.rs"),
            ("crate::c::Moved", "c/e.rs"),
            ("crate::c::Kept", "c/e.rs"),
            ("Kept", "c/e.rs"),
            ("Named", "c/e.rs"),
            ("crate::Seen", "d.rs"),
            ("c::Moved::new", "c/e.rs"),
            ("e::Kind::One", "c/e.rs"),
            ("e::inner::f", "c/e.rs"),
            ("super::MADE", "lib.rs"),
            ("crate::made::X", "lib.rs"),
        ] {
            assert_eq!(found(&FILES, path), [expected], "{path}");
        }
    }

    #[test]
    fn module_path_is_distinguished_from_an_item() {
        assert_eq!(found(&FILES, "super::c"), ["{c}"]);
        assert_eq!(found(&FILES, "e"), ["{c::e}"]);
        assert_eq!(found(&FILES, "crate"), ["{}"]);
    }

    #[test]
    fn path_to_other_crate_or_circular_re_export_leads_nowhere() {
        let none: [&str; 0] = [];
        for path in ["fmt::Debug", "std::fmt", "local", "Self::x", "serde::Value", "super::super::x", "crate::c::Read"]
        {
            assert_eq!(found(&FILES, path), none, "{path}");
        }
        let circle = [("lib.rs", "mod b; mod c;"), ("b.rs", "pub use crate::c::X;"), ("c.rs", "pub use crate::b::X;")];
        assert_eq!(found(&circle, "X"), none);
    }

    #[test]
    fn module_and_function_of_one_name_are_both_found() {
        let files = [("lib.rs", "mod b; mod plan; pub use plan::plan;"), ("b.rs", ""), ("plan.rs", "pub fn plan() {}")];
        assert_eq!(found(&files, "crate::plan::plan"), ["plan.rs"]);
        assert_eq!(found(&files, "crate::plan"), ["plan.rs", "{plan}"]);
    }
}
