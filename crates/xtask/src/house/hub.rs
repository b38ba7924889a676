//! Measures of the type `Control`, the object that every decision of the controller can read.

use std::collections::BTreeSet;

use proc_macro2::Ident;
use syn::visit::{self, Visit};
use syn::{Field, FnArg, ImplItemFn, Item, ItemFn, ItemImpl, Signature, TraitItemFn, Type, TypeReference, Visibility};

use super::modules::{modules, roots};
use super::sources::{Sources, attributes, is_for_tests};
use crate::tidy::Finding;

/// Name of the measured type.
const HUB: &str = "Control";
/// Packages that may define the type `Control`.
const HOMES: [&str; 2] = ["control", "controller"];

/// Measures of the type `Control`; code of tests does not count.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Hub {
    /// The file that defines `Control`; empty if no package defines the type.
    pub(crate) defined: String,
    pub(crate) fields: usize,
    pub(crate) private_fields: usize,
    /// Files with an `impl` block of `Control` that implements no trait.
    pub(crate) impl_files: BTreeSet<String>,
    /// Functions outside of the `impl` blocks of `Control` that take a reference to `Control`, by file and line.
    pub(crate) takers: Vec<Finding>,
    /// Fields of other types that hold a reference to `Control`, by file and line.
    pub(crate) holders: Vec<Finding>,
}

/// Measures the use of the type `Control` in all packages.
pub(crate) fn measured(sources: &Sources<'_>) -> Hub {
    let mut hub = Hub::default();
    for package in &sources.packages {
        for root in roots(package) {
            for module in modules(package, root) {
                let path = package.sources[module.file].path;
                let mut search = Search { path, is_home: HOMES.contains(&package.name), hub: &mut hub };
                module.items.iter().for_each(|item| search.visit_item(item));
            }
        }
    }
    // A file that belongs to the library and to a program of a package is visited twice, so duplicate findings are removed.
    for list in [&mut hub.takers, &mut hub.holders] {
        list.sort();
        list.dedup();
    }
    hub
}

struct Search<'a> {
    path: &'a str,
    is_home: bool,
    hub: &'a mut Hub,
}

impl Search<'_> {
    fn finding(&self, name: &Ident) -> Finding {
        Finding::new(self.path, name.span().start().line, name.to_string())
    }

    fn signature(&mut self, signature: &Signature) {
        let takes = signature.inputs.iter().any(|input| match input {
            FnArg::Typed(input) => refers(&input.ty),
            FnArg::Receiver(_) => false,
        });
        if takes {
            self.hub.takers.push(self.finding(&signature.ident));
        }
    }
}

/// Whether a Rust type is or contains a reference to `Control`.
fn refers(of: &Type) -> bool {
    struct Refers(bool);
    impl<'ast> Visit<'ast> for Refers {
        fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
            self.0 |= is_hub(&reference.elem);
            visit::visit_type_reference(self, reference);
        }
    }
    let mut found = Refers(false);
    found.visit_type(of);
    found.0
}

fn is_hub(of: &Type) -> bool {
    matches!(of, Type::Path(of) if of.path.segments.last().is_some_and(|last| last.ident == HUB))
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) || matches!(item, Item::Mod(_)) {
            return;
        }
        if let Item::Struct(item) = item
            && item.ident == HUB
            && self.is_home
        {
            self.path.clone_into(&mut self.hub.defined);
            self.hub.fields = item.fields.len();
            self.hub.private_fields =
                item.fields.iter().filter(|field| matches!(field.vis, Visibility::Inherited)).count();
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if is_hub(&block.self_ty) {
            // Only `impl` blocks of `Control` without a trait count, because the `impl` of another crate's trait is only an interface to `Control`.
            if block.trait_.is_none() {
                self.hub.impl_files.insert(self.path.to_owned());
            }
        } else {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if refers(&field.ty) {
            let name = field.ident.as_ref().map_or_else(|| Ident::new("_0", field_span(field)), Clone::clone);
            self.hub.holders.push(self.finding(&name));
        }
        visit::visit_field(self, field);
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.signature(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.signature(&function.sig);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.signature(&function.sig);
        visit::visit_trait_item_fn(self, function);
    }
}

/// The place of an unnamed field with a reference to `Control`: the reference in the field's type.
fn field_span(field: &Field) -> proc_macro2::Span {
    match &field.ty {
        Type::Reference(reference) => reference.and_token.spans[0],
        _ => proc_macro2::Span::call_site(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Tree;

    fn measured_of(files: &[(&str, &str)]) -> Hub {
        let files: Vec<(&str, &str)> = [("crates/control/Cargo.toml", ""), ("crates/manager/Cargo.toml", "")]
            .iter()
            .chain(files)
            .copied()
            .collect();
        let tree = Tree::of(&files);
        measured(&Sources::read(&tree).unwrap())
    }

    #[test]
    fn fields_and_impl_blocks_of_control_are_counted_without_tests() {
        let hub = measured_of(&[
            ("crates/control/src/lib.rs", "mod core; mod b; mod c;\n#[cfg(test)]\nmod d;"),
            (
                "crates/control/src/core.rs",
                "pub struct Control { a: u8, pub(crate) b: u8, pub c: u8, d: u8 } impl Control {}",
            ),
            ("crates/control/src/b.rs", "impl Default for crate::core::Control {} impl Control {}"),
            ("crates/control/src/c.rs", "impl Other {} #[cfg(test)] impl Control {}"),
            ("crates/control/src/d.rs", "impl Control {}"),
            ("crates/manager/src/main.rs", "struct Control { e: u8 }"),
        ]);
        assert_eq!((hub.defined.as_str(), hub.fields, hub.private_fields), ("crates/control/src/core.rs", 4, 2));
        let files: Vec<&str> = hub.impl_files.iter().map(String::as_str).collect();
        assert_eq!(files, ["crates/control/src/b.rs", "crates/control/src/core.rs"]);
    }

    #[test]
    fn functions_and_structs_outside_that_take_control_are_counted() {
        let source = "fn a(x: &Control) {}\nfn b(x: u8, y: Option<&mut crate::Control>) {}\nfn c(x: Control) -> &Control { fn d(x: &Control) {} }\n\
                      impl Control {\n    fn e(&self, x: &Control) {}\n}\nimpl Other {\n    fn f(x: &'a Control) {}\n}\ntrait T {\n    fn g(x: &Control);\n}\n\
                      #[cfg(test)]\nfn h(x: &Control) {}\nfn i(x: &Controls) {}\nstruct J<'a> {\n    control: &'a Control,\n}\nstruct K<'a>(&'a Control);";
        let hub = measured_of(&[("crates/manager/src/main.rs", source)]);
        let at = |list: &[Finding]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = ["1: a", "2: b", "3: d", "8: f", "11: g"];
        assert_eq!(at(&hub.takers), expected.map(|rest| format!("crates/manager/src/main.rs:{rest}")));
        let expected = ["17: control", "19: _0"];
        assert_eq!(at(&hub.holders), expected.map(|rest| format!("crates/manager/src/main.rs:{rest}")));
        assert!(hub.defined.is_empty() && hub.fields == 0, "{hub:?}");
    }
}
