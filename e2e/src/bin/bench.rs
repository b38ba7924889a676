//! The command of `make bench`: the operator under Kueue's performance shapes. The module `berth_e2e::bench` has the measurements.

use std::process::ExitCode;

use anyhow::Context;
use berth_e2e::bench::{self, Settings};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let settings = Settings::from_environment()?;
    let report = bench::run(&settings).await?;
    println!("{}", report.table());
    let json = serde_json::to_string_pretty(&report)?;
    match &settings.json {
        Some(path) => {
            std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
            println!("figures: {}", path.display());
        }
        None => println!("{json}"),
    }
    let strict = std::env::var("BENCH_STRICT").is_ok_and(|v| v == "1");
    Ok(if strict && !report.missed().is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
