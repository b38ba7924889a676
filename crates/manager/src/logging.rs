//! Logging: one JSON object per line on standard error. At the levels info and debug, libraries outside of Berth log only warnings and errors.

use tracing_subscriber::EnvFilter;

/// The log filter for a log level, which is a name, or a number as zap counts levels.
///
/// # Errors
/// The level is neither a known name nor a number.
fn filter(level: &str) -> Result<String, String> {
    let ours = match level.to_ascii_lowercase().as_str() {
        "error" | "dpanic" | "panic" | "fatal" => "error",
        "warn" | "warning" => "warn",
        "info" | "0" => "info",
        "debug" => "debug",
        "trace" => "trace",
        number => match number.parse::<u32>() {
            Ok(1..=4) => "debug",
            Ok(_) => "trace",
            Err(_) => {
                return Err(format!("--zap-log-level is `{level}`; allowed are debug, info, warn, error or a number"));
            }
        },
    };
    let below = if ours == "trace" { "debug" } else { "warn" };
    let below = if ours == "error" { "error" } else { below };
    Ok(format!(
        "{ours},kube={below},kube_client={below},kube_runtime={below},tower={below},hyper={below},hyper_util={below},rustls={below}"
    ))
}

/// Starts logging with a log level.
///
/// # Errors
/// The level is unknown, or logging was started before.
pub(crate) fn start(level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter(level).map_err(anyhow::Error::msg)?)?;
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| anyhow::anyhow!("logging: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_level_is_read_by_name_or_number() {
        for (level, start) in [("info", "info,"), ("0", "info,"), ("2", "debug,"), ("9", "trace,"), ("Error", "error,")]
        {
            let filter = filter(level).unwrap();
            assert!(filter.starts_with(start), "{level}: {filter}");
            EnvFilter::try_new(filter).unwrap();
        }
        assert!(filter("loud").unwrap_err().contains("loud"));
    }
}
