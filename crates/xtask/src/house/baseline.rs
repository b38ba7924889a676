//! The baseline of counts of findings that may only go down: crates/xtask/house.txt has the largest allowed number of findings per measure and package.

use std::collections::BTreeMap;

use super::BASELINE;
use super::counted::Counted;
use crate::tidy::Finding;

/// A measure of `xtask house` with a baseline: the measure's name in the baseline file and in `--<name>`, the words for its findings, and its counts by
/// package.
pub(crate) struct Held<'a> {
    pub(crate) name: &'static str,
    pub(crate) findings: &'static str,
    pub(crate) counts: &'a BTreeMap<String, Counted>,
}

const HEAD: &str = "# Findings that are still there, by measure and package: `xtask house` explains them, `xtask house --lower` writes this file.\n\
                    # A number never goes up, unless code moves from one package to another and the sum stays.\n";

/// Allowed numbers of findings by measure and package, each with its line number in the baseline file, from 1.
type Numbers<'b> = BTreeMap<(&'b str, &'b str), (usize, usize)>;

/// Findings about counts that differ from the baseline, and about lines of the baseline file that name no measure or package.
pub(crate) fn check(baseline: &str, held: &[Held<'_>]) -> Vec<Finding> {
    let (numbers, mut found) = read(baseline);
    let mut met = Vec::new();
    for measure in held {
        for (package, counted) in measure.counts {
            let key = (measure.name, package.as_str());
            let (allowed, line) = numbers.get(&key).copied().unwrap_or_default();
            let count = counted.found.len();
            met.push(key);
            if count > allowed {
                let (name, findings) = (measure.name, measure.findings);
                let list = format!("`xtask house --{name} {package}` lists them");
                found.push(Finding::new(
                    BASELINE,
                    line,
                    format!("{package}: {count} {findings}, {allowed} allowed; {list}"),
                ));
            } else if count < allowed {
                let (name, lower) = (measure.name, "lower the baseline with `xtask house --lower`");
                found.push(Finding::new(
                    BASELINE,
                    line,
                    format!("{package}: {name} came down from {allowed} to {count}; {lower}"),
                ));
            }
        }
    }
    for ((name, package), (_, line)) in numbers {
        if !met.contains(&(name, package)) {
            found.push(Finding::new(BASELINE, line, format!("{name} {package}: no such measure or package")));
        }
    }
    found
}

/// Reads the lines `<measure> <package> <number>` of the baseline file; a line that begins with `#` is a comment.
fn read(baseline: &str) -> (Numbers<'_>, Vec<Finding>) {
    let (mut numbers, mut found) = (Numbers::new(), Vec::new());
    for (index, line) in baseline.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(' ').collect();
        let number = parts.get(2).and_then(|number| number.parse().ok());
        match (parts.as_slice(), number) {
            ([name, package, _], Some(number)) => _ = numbers.insert((*name, *package), (number, index + 1)),
            _ => found.push(Finding::new(BASELINE, index + 1, "a line is `<measure> <package> <number>`")),
        }
    }
    (numbers, found)
}

/// The text of the baseline file with the current counts.
///
/// # Errors
///
/// A measure has more findings in all packages together than the baseline allows. An empty baseline allows any count.
pub(crate) fn lowered(baseline: &str, held: &[Held<'_>]) -> Result<String, String> {
    let (numbers, _) = read(baseline);
    let mut text = HEAD.to_owned();
    for measure in held {
        let before: usize = numbers.iter().filter(|((name, _), _)| *name == measure.name).map(|(_, (n, _))| n).sum();
        let now: usize = measure.counts.values().map(|counted| counted.found.len()).sum();
        if now > before && !numbers.is_empty() {
            return Err(format!(
                "{}: {now} {}, and {before} before: a baseline only goes down",
                measure.name, measure.findings
            ));
        }
        for (package, counted) in measure.counts.iter().filter(|(_, counted)| !counted.found.is_empty()) {
            text.push_str(&format!("{} {package} {}\n", measure.name, counted.found.len()));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, Counted> {
        let counted = |count: usize| Counted { of: count, found: vec![Finding::new("a", 1, "x"); count] };
        counts.iter().map(|(package, count)| ((*package).to_owned(), counted(*count))).collect()
    }

    fn held(counts: &BTreeMap<String, Counted>) -> [Held<'_>; 1] {
        [Held { name: "sentences", findings: "sentences", counts }]
    }

    fn messages(baseline: &str, now: &[(&str, usize)]) -> Vec<String> {
        check(baseline, &held(&counts(now))).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_at_the_baseline_pass() {
        let none: [&str; 0] = [];
        assert_eq!(messages("# head\nsentences a 2\n", &[("a", 2), ("b", 0)]), none);
    }

    #[test]
    fn count_above_the_baseline_fails() {
        let list = |package: &str| format!("`xtask house --sentences {package}` lists them");
        let expected = [
            format!("{BASELINE}:1: a: 3 sentences, 2 allowed; {}", list("a")),
            format!("{BASELINE}: b: 1 sentences, 0 allowed; {}", list("b")),
        ];
        assert_eq!(messages("sentences a 2", &[("a", 3), ("b", 1)]), expected);
    }

    #[test]
    fn count_below_the_baseline_asks_for_a_lower_one() {
        let expected =
            format!("{BASELINE}:1: a: sentences came down from 2 to 1; lower the baseline with `xtask house --lower`");
        assert_eq!(messages("sentences a 2", &[("a", 1)]), [expected]);
    }

    #[test]
    fn baseline_line_without_meaning_is_found() {
        let messages = messages("sentences a\nsentences gone 1\nwords a 1\nsentences a x\n", &[("a", 0)]);
        let lines: Vec<&str> = messages.iter().map(|message| message.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["1", "4", "2", "3"], "{messages:?}");
    }

    #[test]
    fn baseline_is_lowered_and_never_raised() {
        let now = counts(&[("a", 1), ("b", 1), ("c", 0)]);
        let text = lowered("sentences a 2\n", &held(&now)).unwrap();
        assert_eq!(text, format!("{HEAD}sentences a 1\nsentences b 1\n"));
        assert!(check(&text, &held(&now)).is_empty());
        assert_eq!(lowered("", &held(&now)).unwrap(), text);
        assert!(lowered("sentences a 1\n", &held(&now)).unwrap_err().contains("2 sentences, and 1 before"));
    }
}
