//! The command `berth-testkit conformance DIR [--only SUBSTRING] [--verbose] [--known FILE] [--as-shipped]`.

use anyhow::{Context, bail};
use berth_testkit::conformance::{Options, run};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() != Some("conformance") {
        bail!("usage: berth-testkit conformance DIR [--only SUBSTRING] [--verbose] [--known FILE] [--as-shipped]");
    }
    let mut folder = None;
    let mut options = Options::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => options.only = Some(words.next().context("--only needs a part of a path")?),
            "--verbose" => options.verbose = true,
            "--as-shipped" => options.as_shipped = true,
            "--known" => {
                let path = words.next().context("--known needs a file")?;
                let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                options.known.extend(lines.map(str::to_owned));
            }
            flag if flag.starts_with('-') => bail!("unknown option {flag}"),
            path if folder.is_none() => folder = Some(PathBuf::from(path)),
            path => bail!("one folder is enough, not also {path}"),
        }
    }
    let folder = folder.context("a folder is needed")?;
    // A panic while a case is judged is reported as a difference of this case, so the panic hook prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let report = run(&folder, &options, &mut std::io::stdout().lock()).context("running the cases")?;
    Ok(if report.surprises == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
