//! Import circles: files of one crate that import from each other, directly or through other files.
//!
//! File A has an edge to file B if the code of A has an import or a path that leads to an item defined in B. Re-exports are followed, so that the edge of an
//! import leads to the file that defines the imported item. `use super::X` is an edge to the file of X, which may be the parent. A declaration `mod x;`, the
//! import of a module itself, a visibility and a method call make no edge between files, but each path through an imported module makes an edge. Paths in macro
//! calls and attributes make edges, too. Code that is compiled only for tests makes no edges.
//!
//! An import circle is a strongly connected component of at least two files. The library and each program of a package count as separate crates.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, Macro, Path, TraitItemFn, Visibility};

use super::modules::{Module, bare, modules, roots};
use super::scopes::{Found, Import, Scopes, imports};
use super::sources::{Package, attributes, each_group, is_for_tests};

/// Import edges between files by index: the imported files of each file, with the imported names.
type Edges = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// A file from which another file imports, with the imported names.
type Named = (String, Vec<String>);

/// An import circle: each file with the files of the circle from which it imports.
pub(crate) struct Circle {
    pub(crate) files: Vec<(String, Vec<Named>)>,
}

/// The import circles of all crates of a package, the largest first.
pub(crate) fn circles(package: &Package<'_>) -> Vec<Circle> {
    let mut found = Vec::new();
    for root in roots(package) {
        let edges = edges(&modules(package, root));
        for members in components(&edges) {
            found.push(circle(package, &edges, &members));
        }
    }
    found.sort_by(|a, b| b.files.len().cmp(&a.files.len()).then_with(|| a.files.cmp(&b.files)));
    found
}

fn circle(package: &Package<'_>, edges: &Edges, members: &BTreeSet<usize>) -> Circle {
    let path = |file: &usize| package.sources[*file].path.to_owned();
    let named = |file: &usize| {
        let inner = edges.get(file).into_iter().flatten().filter(|(to, _)| members.contains(to));
        let mut named: Vec<(String, Vec<String>)> =
            inner.map(|(to, names)| (path(to), names.iter().cloned().collect())).collect();
        named.sort();
        named
    };
    let mut files: Vec<_> = members.iter().map(|file| (path(file), named(file))).collect();
    files.sort();
    Circle { files }
}

/// The import edges between the files of one crate.
fn edges(modules: &[Module<'_>]) -> Edges {
    let imports: Vec<Vec<Import>> = modules.iter().map(imports).collect();
    let scopes = Scopes::of(modules, &imports);
    let mut edges = Edges::new();
    for (index, module) in modules.iter().enumerate() {
        let mut names = Names { scopes: &scopes, module: index, file: module.file, edges: &mut edges };
        imports[index].iter().for_each(|import| names.path(&import.path));
        module.items.iter().for_each(|item| names.visit_item(item));
    }
    edges
}

/// Collector of the import edges of one Rust module.
struct Names<'a> {
    scopes: &'a Scopes,
    module: usize,
    file: usize,
    edges: &'a mut Edges,
}

impl Names<'_> {
    fn path(&mut self, path: &[String]) {
        let (found, parts) = self.scopes.resolve(self.module, path);
        for found in found {
            if let Found::Item(file) = found
                && file != self.file
            {
                let name = path[..parts].last().cloned().unwrap_or_default();
                self.edges.entry(self.file).or_default().entry(file).or_default().insert(name);
            }
        }
    }

    /// Collects Rust paths from the tokens of macro calls and attributes.
    fn tokens(&mut self, tokens: TokenStream) {
        each_group(tokens, &mut |tokens| {
            let mut at = 0;
            while at < tokens.len() {
                let (path, next) = path_at(tokens, at);
                let after_dot = at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(punct) if punct.as_char() == '.');
                if path.len() > 1 || (path.len() == 1 && !after_dot) {
                    self.path(&path);
                }
                at = next;
            }
        });
    }
}

/// The Rust path that begins at a token, and the index of the token after the path; the path is empty if no path begins at the token.
fn path_at(tokens: &[TokenTree], start: usize) -> (Vec<String>, usize) {
    let (mut path, mut at) = (Vec::new(), start);
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
        path.push(bare(&ident.to_string()));
        at += 1;
        if colon(at) && colon(at + 1) && matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
            at += 2;
        } else {
            break;
        }
    }
    (path, at.max(start + 1))
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        // Submodules and imports are skipped here, because submodules are visited separately, and the imports of the module were collected already.
        if !is_for_tests(attributes(item)) && !matches!(item, Item::Mod(_) | Item::Use(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_trait_item_fn(self, function);
        }
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            syn::Meta::List(list) => {
                self.tokens(list.tokens.clone());
                // An attribute such as `#[serde(with = "crate::time")]` has a Rust path in a string literal.
                each_group(list.tokens.clone(), &mut |tokens| {
                    for token in tokens {
                        let text = match token {
                            TokenTree::Literal(literal) => literal.to_string(),
                            _ => continue,
                        };
                        if let Ok(path) = syn::parse_str::<Path>(text.trim_matches('"'))
                            && path.segments.len() > 1
                        {
                            self.visit_path(&path);
                        }
                    }
                });
            }
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => {}
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> = path.segments.iter().map(|part| bare(&part.ident.to_string())).collect();
            self.path(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}

/// The strongly connected components of at least two files (Tarjan's algorithm).
fn components(edges: &Edges) -> Vec<BTreeSet<usize>> {
    #[derive(Default)]
    struct Search {
        order: BTreeMap<usize, usize>,
        lowest: BTreeMap<usize, usize>,
        open: Vec<usize>,
        found: Vec<BTreeSet<usize>>,
    }
    fn visit(file: usize, edges: &Edges, search: &mut Search) {
        let order = search.order.len();
        search.order.insert(file, order);
        search.open.push(file);
        let mut lowest = order;
        for next in edges.get(&file).into_iter().flatten().map(|(next, _)| *next) {
            if !search.order.contains_key(&next) {
                visit(next, edges, search);
                lowest = lowest.min(search.lowest[&next]);
            } else if search.open.contains(&next) {
                lowest = lowest.min(search.order[&next]);
            }
        }
        search.lowest.insert(file, lowest);
        if lowest == order {
            let start = search.open.iter().position(|open| *open == file).unwrap_or_default();
            let members: BTreeSet<usize> = search.open.drain(start..).collect();
            if members.len() > 1 {
                search.found.push(members);
            }
        }
    }
    let mut search = Search::default();
    for file in edges.keys() {
        if !search.order.contains_key(file) {
            visit(*file, edges, &mut search);
        }
    }
    search.found
}

#[cfg(test)]
mod tests {
    use super::super::sources::Sources;
    use super::*;
    use crate::tidy::Tree;

    /// The import circles of a crate, each as its file names without folder and extension.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of_package(files);
        let sources = Sources::read(&tree).unwrap();
        let short = |path: &String| path.trim_start_matches("crates/a/src/").trim_end_matches(".rs").to_owned();
        let line = |circle: Circle| circle.files.iter().map(|(path, _)| short(path)).collect::<Vec<_>>().join(" ");
        circles(&sources.packages[0]).into_iter().map(line).collect()
    }

    /// The import circles of a crate in which `lib.rs` declares `b.rs` and `c.rs`, and `c.rs` imports from `b.rs`.
    fn with(b: &str) -> Vec<String> {
        found(&[("lib.rs", "mod b; mod c;"), ("b.rs", b), ("c.rs", "use crate::b::B; pub struct C; pub mod inner {}")])
    }

    #[test]
    fn circle_of_files_is_closed_by_any_kind_of_reference() {
        for b in [
            "pub struct B; use crate::c::C;",
            "pub struct B; use super::c::C as Other;",
            "pub struct B(super::c::C);",
            "pub struct B; fn f() { let x = crate::c::C::new(); }",
            "pub struct B; fn f() { use crate::c::C; }",
            "pub struct B; use crate::c; fn f(x: c::C) {}",
            "pub struct B; use crate::c::*; fn f(x: C) {}",
            "pub struct B; impl crate::c::C {}",
            "pub struct B; fn f() { assert!(x, \"{}\", crate::c::C); }",
            "pub struct B; #[serde(with = \"crate::c::C\")] struct D;",
            "pub struct B; fn f() -> Vec<Option<crate::c::C>> { vec![] }",
            "pub struct B; mod inner { use super::super::c::C; }",
        ] {
            assert_eq!(with(b), ["b c"], "{b}");
        }
    }

    #[test]
    fn circle_is_not_closed_by_tests_declarations_or_other_crates() {
        let none: [&str; 0] = [];
        for b in [
            "pub struct B;",
            "pub struct B; #[cfg(test)] mod tests { use crate::c::C; }",
            "pub struct B; #[cfg(test)] fn f(x: crate::c::C) {}",
            "pub struct B; impl B { #[cfg(test)] fn f(x: crate::c::C) {} }",
            "pub struct B; use crate::c;",
            "pub struct B; pub(in crate::c) struct D;",
            "pub struct B; use c::C;",
            "pub struct B; use crate::c::*;",
            "pub struct B; fn f(c: u8) { c.C; println!(\"crate::c::C\", c.C); } // crate::c::C",
        ] {
            assert_eq!(with(b), none, "{b}");
        }
    }

    #[test]
    fn re_export_counts_as_a_reference_to_the_defining_file() {
        // File `c` imports a name from file `b`; file `d` defines the name, and `b` re-exports it.
        let files = |b: &'static str| {
            [
                ("lib.rs", "mod b; mod c; mod d;"),
                ("b.rs", b),
                ("c.rs", "use crate::b::D; pub struct C;"),
                ("d.rs", "pub struct D;"),
            ]
        };
        let none: [&str; 0] = [];
        assert_eq!(found(&files("pub use crate::d::D; use crate::c::C;")), none);
        assert_eq!(found(&files("pub struct D; use crate::c::C;")), ["b c"]);
    }

    #[test]
    fn parent_module_joins_circle_only_if_it_uses_children() {
        let none: [&str; 0] = [];
        let child = [("b/c.rs", "use super::B; pub struct C;"), ("b/d.rs", "use super::c::C; pub struct D;")];
        let all = |b: &'static str| found(&[[("lib.rs", "mod b;"), ("b.rs", b)].as_slice(), &child].concat());
        assert_eq!(all("mod c; mod d; pub struct B;"), none);
        assert_eq!(all("mod c; mod d; pub struct B; fn f(x: d::D) {}"), ["b b/c b/d"]);
    }

    #[test]
    fn circles_are_sorted_by_size_and_list_references_by_file() {
        let files = [
            ("lib.rs", "mod b; mod c; mod d; mod e; mod f;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::b::B; pub struct C;"),
            ("d.rs", "use crate::e::E; pub struct D;"),
            ("e.rs", "use crate::f::F; use crate::b::B; pub struct E;"),
            ("f.rs", "use crate::d::D; pub struct F;"),
        ];
        assert_eq!(found(&files), ["d e f", "b c"]);
        let full: Vec<(String, &str)> = files.iter().map(|(path, text)| (format!("e2e/src/{path}"), *text)).collect();
        let mut files: Vec<(&str, &str)> = full.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.push(("e2e/Cargo.toml", ""));
        let tree = Tree::of(&files);
        let sources = Sources::read(&tree).unwrap();
        let largest = circles(&sources.packages[0]).remove(0);
        let expected = ("e2e/src/e.rs".to_owned(), vec![("e2e/src/f.rs".to_owned(), vec!["F".to_owned()])]);
        assert_eq!(largest.files[1], expected);
    }
}
