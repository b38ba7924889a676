//! Names of tests with more than ten words, which `docs/STYLE.md` does not allow.

use std::collections::BTreeMap;

use proc_macro2::{Group, Ident, TokenTree};

use super::counted::Counted;
use super::sources::{Package, Sources, each_group};
use crate::tidy::Finding;

/// Largest allowed number of words in the name of a test.
const MOST: usize = 10;

/// The number of tests of each package, and findings about tests with too long names.
pub(crate) fn counted(sources: &Sources<'_>) -> BTreeMap<String, Counted> {
    sources.packages.iter().map(|package| (package.name.to_owned(), of_package(package))).collect()
}

fn of_package(package: &Package<'_>) -> Counted {
    let mut counted = Counted::default();
    for source in &package.sources {
        each_group(source.tokens.clone(), &mut |tokens| {
            for ident in named_tests(tokens) {
                counted.of += 1;
                let name = ident.to_string();
                let words = name.split('_').filter(|word| !word.is_empty()).count();
                if words > MOST {
                    let line = ident.span().start().line;
                    counted.found.push(Finding::new(source.path, line, format!("{name}: {words} words")));
                }
            }
        });
    }
    counted
}

/// Names of the functions with a test attribute. Tests within macro calls such as `proptest!` are found, too.
fn named_tests(tokens: &[TokenTree]) -> Vec<&Ident> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for pair in tokens.windows(2) {
        match pair {
            [TokenTree::Punct(mark), TokenTree::Group(attribute)] if mark.as_char() == '#' => {
                is_test |= marks_test(attribute);
            }
            [TokenTree::Ident(keyword), TokenTree::Ident(name)] if *keyword == "fn" => {
                if is_test {
                    found.push(name);
                }
                is_test = false;
            }
            _ => {}
        }
    }
    found
}

/// Whether an attribute makes a function a test: the last word of its path is `test`, as in `#[tokio::test(flavor = "multi_thread")]`.
fn marks_test(attribute: &Group) -> bool {
    let mut last = None;
    for token in attribute.stream() {
        match token {
            TokenTree::Ident(word) => last = Some(word),
            TokenTree::Group(_) => break,
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    last.is_some_and(|word| word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Tree;

    #[test]
    fn test_name_above_ten_words_is_found_in_any_module() {
        let text = "#[test]\nfn a_b_c_d_e_f_g_h_i_j() {}\n#[tokio::test(flavor = \"x\")]\nasync fn a_b_c_d_e_f_g_h_i_j_k() {}\n\
                    mod m {\n    #[test]\n    #[ignore]\n    fn k_j_i_h_g_f_e_d_c_b_a() {}\n}\n\
                    proptest! {\n    #[test]\n    fn b_b_b_b_b_b_b_b_b_b_b(x in 1..2) {}\n}\n\
                    #[cfg(test)]\nfn c_c_c_c_c_c_c_c_c_c_c() {}\n";
        let tree = Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", text)]);
        let counted = counted(&Sources::read(&tree).unwrap());
        let found: Vec<String> = counted["a"].found.iter().map(ToString::to_string).collect();
        let expected = [
            "crates/a/src/lib.rs:4: a_b_c_d_e_f_g_h_i_j_k: 11 words",
            "crates/a/src/lib.rs:8: k_j_i_h_g_f_e_d_c_b_a: 11 words",
            "crates/a/src/lib.rs:12: b_b_b_b_b_b_b_b_b_b_b: 11 words",
        ];
        assert_eq!((counted["a"].of, found), (4, expected.map(str::to_owned).to_vec()));
    }
}
