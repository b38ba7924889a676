//! CPU time and memory of a process, as the kernel reports them, and the operator's own count of its requests, from its metrics.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// Clock ticks per second of `/proc/PID/stat`: 100 on every Linux that Berth supports.
const TICKS: f64 = 100.0;

/// CPU time and memory that a process has used since it started.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// CPU time of the process in seconds: user and system time.
    pub cpu_seconds: f64,
    /// Peak resident memory of the process in MB (10^6 bytes).
    pub peak_mb: f64,
    /// Present resident memory of the process in MB (10^6 bytes).
    pub resident_mb: f64,
    /// The part of the resident memory that is pages of files: the program itself and its libraries.
    pub files_mb: f64,
}

impl Usage {
    /// Reads the CPU time and memory of the process `pid` from `/proc`.
    ///
    /// # Errors
    /// Fails if there is no process with the id `pid`.
    pub fn of(pid: u32) -> Result<Usage> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        let status = read("status")?;
        let megabytes = |key: &str| {
            let line = status.lines().find(|l| l.starts_with(key))?;
            line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6)
        };
        Ok(Usage {
            cpu_seconds: cpu(&read("stat")?).context("/proc/PID/stat has no times")?,
            peak_mb: megabytes("VmHWM:").context("no VmHWM")?,
            resident_mb: megabytes("VmRSS:").context("no VmRSS")?,
            files_mb: megabytes("RssFile:").context("no RssFile")?,
        })
    }
}

/// CPU seconds from the fields utime and stime of `/proc/PID/stat`; the fields are counted after the command's name, which may contain spaces.
fn cpu(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// Numbers of an operator's requests, by verb and resource.
pub type Requests = BTreeMap<String, u64>;

/// Samples of the metric `rest_client_requests_total`, with keys of the form `verb resource`.
pub fn own_requests(exposition: &str) -> Requests {
    let mut all = Requests::new();
    for (labels, value) in samples(exposition, "rest_client_requests_total") {
        let label = |key: &str| labels.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).unwrap_or("");
        *all.entry(format!("{} {}", label("verb"), label("resource"))).or_default() += value as u64;
    }
    all
}

/// Sum of a metric's samples.
pub fn total(exposition: &str, name: &str) -> f64 {
    samples(exposition, name).iter().map(|(_, value)| value).sum()
}

type Sample = (Vec<(String, String)>, f64);

fn samples(exposition: &str, name: &str) -> Vec<Sample> {
    exposition
        .lines()
        .filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(inner) => inner.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let labels = labels
                .split("\",")
                .filter_map(|pair| pair.split_once("=\""))
                .map(|(k, v)| (k.to_owned(), v.trim_end_matches('"').to_owned()))
                .collect();
            Some((labels, value.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_meter_reads_memory_and_cpu_of_its_own_process() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_mb >= usage.resident_mb && usage.resident_mb > 0.5, "{usage:?}");
        assert!(usage.files_mb > 0.1 && usage.files_mb < usage.resident_mb, "{usage:?}");
        assert_eq!(cpu("1 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"), Some(2.0));
    }

    #[test]
    fn client_requests_in_metrics_are_summed_by_verb_and_resource() {
        let text = "# HELP x\nrest_client_requests_total{code=\"200\",method=\"PATCH\",resource=\"workloads/status\",verb=\"apply\"} 3\n\
            rest_client_requests_total{code=\"409\",method=\"PATCH\",resource=\"workloads/status\",verb=\"apply\"} 1\nother_total 2\n";
        assert_eq!(own_requests(text), Requests::from([("apply workloads/status".to_owned(), 4)]));
        assert_eq!(total(text, "other_total"), 2.0);
    }
}
