use crate::{Amount, Nano, is_cpu, nano_per_unit};

const DECIMAL: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
const FINE: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Canonical Kubernetes text of an amount of a resource. An amount of `cpu` is in milli units; memory, ephemeral storage and huge pages are written with binary
/// suffixes, other resources with decimal suffixes.
#[must_use]
pub fn format(resource: &str, amount: Amount) -> String {
    let units = amount.get();
    if is_cpu(resource) {
        return shorten(units, 1000, &DECIMAL);
    }
    let is_bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    // An amount of bytes that no binary suffix shortens is written with a decimal suffix, as in Kueue.
    if is_bytes && units % 1024 == 0 {
        shorten(units, 1024, &BINARY)
    } else {
        shorten(units, 1000, DECIMAL.get(1..).unwrap_or_default())
    }
}

/// Canonical text of an amount that may be a fraction of the unit of `resource`; whole units are written as by [`format`].
#[must_use]
pub fn format_nano(resource: &str, Nano(nano): Nano) -> String {
    let unit = nano_per_unit(resource);
    match nano.checked_rem(unit) {
        Some(0) => format(resource, Amount::clamped(nano.checked_div(unit).unwrap_or_default())),
        _ => i64::try_from(nano).map_or_else(
            |_| format(resource, Amount::clamped(nano.checked_div(unit).unwrap_or_default())),
            |nano| shorten(nano, 1000, &FINE),
        ),
    }
}

/// Divides an amount by `base` as long as the result is exact and a suffix is left.
fn shorten(mut units: i64, base: i64, suffixes: &[&str]) -> String {
    if units == 0 {
        return "0".to_owned();
    }
    let mut suffixes = suffixes.iter().peekable();
    while let Some(suffix) = suffixes.next() {
        let shorter = units.checked_div(base).filter(|shorter| shorter.saturating_mul(base) == units);
        let Some(shorter) = shorter.filter(|_| suffixes.peek().is_some()) else {
            return format!("{units}{suffix}");
        };
        units = shorter;
    }
    units.to_string()
}
