//! Builds the control plane's binaries when the cache does not have them, with progress on stderr, and prints their folder.

fn main() -> anyhow::Result<()> {
    let binaries = berth_e2e::binaries::ensure()?;
    println!("{}", binaries.folder().display());
    Ok(())
}
