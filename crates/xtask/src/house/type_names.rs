//! Type names that several types of one crate have.
//!
//! The measure counts structs, enums, unions, traits and type aliases that every module of the crate can see: `pub`, `pub(crate)`, and `pub(super)` directly
//! below the root. Types in modules of different API versions (such as `v1beta1`) may share a name. Types in test code and types that macros make do not count.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, Visibility};

use super::modules::{Module, modules, roots};
use super::sources::{Package, attributes, is_for_tests};

/// Type names that several types of the package have, each with path and line of all these types.
pub(crate) fn collisions(package: &Package<'_>) -> BTreeMap<String, BTreeSet<(String, usize)>> {
    let mut found: BTreeMap<String, BTreeSet<(String, usize)>> = BTreeMap::new();
    for root in roots(package) {
        let mut named: BTreeMap<String, BTreeSet<(String, usize)>> = BTreeMap::new();
        for module in modules(package, root) {
            let version: String =
                module.name.iter().filter(|name| is_version(name)).map(|name| format!("{name}::")).collect();
            for item in module.items.iter().filter(|item| !is_for_tests(attributes(item))) {
                let Some((ident, _)) = definition(item).filter(|(_, seen)| is_seen(seen, &module)) else { continue };
                let place = (package.sources[module.file].path.to_owned(), ident.span().start().line);
                named.entry(format!("{version}{ident}")).or_default().insert(place);
            }
        }
        for (name, places) in named.into_iter().filter(|(_, places)| places.len() > 1) {
            found.entry(name).or_default().extend(places);
        }
    }
    found
}

fn definition(item: &Item) -> Option<(&syn::Ident, &Visibility)> {
    match item {
        Item::Enum(item) => Some((&item.ident, &item.vis)),
        Item::Struct(item) => Some((&item.ident, &item.vis)),
        Item::Trait(item) => Some((&item.ident, &item.vis)),
        Item::Type(item) => Some((&item.ident, &item.vis)),
        Item::Union(item) => Some((&item.ident, &item.vis)),
        _ => None,
    }
}

/// Whether every module of the crate can see an item that has the given visibility and lies in the given module.
fn is_seen(visibility: &Visibility, module: &Module<'_>) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(within) => {
            within.path.is_ident("crate") || (within.path.is_ident("super") && module.name.len() == 1)
        }
        Visibility::Inherited => false,
    }
}

/// Whether a module name is an API version such as `v1` or `v1beta2`.
fn is_version(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('v') else { return false };
    let mut parts = rest.split("alpha").flat_map(|part| part.split("beta"));
    parts.all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::sources::Sources;
    use super::*;
    use crate::tidy::Tree;

    /// The colliding type names of a crate, each with its number of types.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of_package(files);
        let sources = Sources::read(&tree).unwrap();
        collisions(&sources.packages[0]).iter().map(|(name, places)| format!("{name} {}", places.len())).collect()
    }

    #[test]
    fn public_types_of_one_name_collide_whatever_their_sort() {
        let all = "pub struct A; pub(crate) enum B {} pub trait C {} pub type D = u8; pub union E { a: u8 } pub(super) struct F;";
        let files =
            [("lib.rs", "mod b; mod c; pub struct A; mod d { pub(in crate) struct F; }"), ("b.rs", all), ("c.rs", all)];
        assert_eq!(found(&files), ["A 3", "B 2", "C 2", "D 2", "E 2", "F 3"]);
    }

    #[test]
    fn private_types_tests_versions_and_other_programs_do_not_collide() {
        let none: [&str; 0] = [];
        let files = [
            ("lib.rs", "mod b; mod v1; mod v1beta1; #[cfg(test)] mod c; pub struct A; pub struct P; pub struct W;"),
            (
                "b.rs",
                "struct A; #[cfg(test)] pub struct P; pub fn A() {} mod d { pub(super) struct P; pub(self) struct W; }",
            ),
            ("c.rs", "pub struct A;"),
            ("v1.rs", "pub struct W;"),
            ("v1beta1.rs", "pub struct W;"),
            ("main.rs", "pub struct A;"),
        ];
        assert_eq!(found(&files), none);
        assert!(["v1", "v1beta2", "v2alpha1"].into_iter().all(is_version));
        assert!(!["v", "view", "v1beta", "version1", "vbeta1"].into_iter().any(is_version));
    }
}
