//! Figures of the benchmark with their goals, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::Settings;
use super::meter::Requests;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Unit of the figure; empty for a ratio or a count.
    pub unit: &'static str,
    /// The largest value that meets the goal; `None` if the figure has no goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// Measurements of one operator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Part {
    /// Name of the operator.
    pub name: String,
    /// Figures, in the order of the report.
    pub figures: Vec<Figure>,
    /// Numbers of requests by the heading in the report, then by verb and resource.
    pub requests: BTreeMap<String, Requests>,
    /// Facts that a reader of the report needs to understand the figures.
    pub notes: Vec<String>,
}

impl Part {
    /// The measurements of an operator, without any figure yet.
    pub fn new(name: &str) -> Part {
        Part { name: name.to_owned(), ..Part::default() }
    }

    /// Adds a figure.
    pub fn add(&mut self, name: &str, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.to_owned(), value, unit, at_most: None });
    }

    /// Adds a figure whose goal is a value of at most `at_most`.
    pub fn goal(&mut self, name: &str, value: f64, unit: &'static str, at_most: f64) {
        self.figures.push(Figure { name: name.to_owned(), value, unit, at_most: Some(at_most) });
    }

    /// A figure by name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|f| f.name == name).map(|f| f.value)
    }
}

/// A complete run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Shape.
    pub shape: String,
    /// Scale.
    pub scale: f64,
    /// True if the queues of the run preempt.
    pub preemption: bool,
    /// Processors.
    pub cores: usize,
    /// Load average of the machine over the last minute before the run.
    pub load: f64,
    /// Measurements by operator.
    pub parts: Vec<Part>,
}

impl Report {
    /// An empty report with the machine's number of cores and its present load.
    pub fn begin() -> Report {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Report {
            cores: std::thread::available_parallelism().map(usize::from).unwrap_or(0),
            load: load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
            ..Report::default()
        }
    }

    /// Writes the settings of the run into the report.
    pub fn settings(&mut self, settings: &Settings) {
        self.shape.clone_from(&settings.shape);
        self.scale = settings.scale;
        self.preemption = settings.preemption;
    }

    /// Names of Berth's figures that miss their goals.
    pub fn missed(&self) -> Vec<&str> {
        let berth = self.parts.iter().filter(|p| p.name == "berth");
        let figures = berth.flat_map(|p| &p.figures);
        figures.filter(|f| f.at_most.is_some_and(|limit| f.value > limit)).map(|f| f.name.as_str()).collect()
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let preemption = if self.preemption { "with preemption" } else { "without preemption" };
        let _ = writeln!(
            out,
            "bench: shape {}, scale {}, {preemption}; {} cores, load {:.1} at the start",
            self.shape, self.scale, self.cores, self.load
        );
        for part in &self.parts {
            let _ = writeln!(out, "\n{}", part.name);
            for figure in &part.figures {
                let goal = match figure.at_most {
                    None => String::new(),
                    Some(limit) if figure.value <= limit => format!("goal <= {limit}: met"),
                    Some(limit) => format!("goal <= {limit}: MISSED"),
                };
                let _ = writeln!(out, "  {:<52} {:>10.2} {:<4} {goal}", figure.name, figure.value, figure.unit);
            }
            for (heading, requests) in &part.requests {
                let _ = writeln!(out, "  {heading}");
                for (what, count) in requests {
                    let _ = writeln!(out, "    {what:<50} {count:>10}");
                }
            }
            for note in &part.notes {
                let _ = writeln!(out, "  note: {note}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_a_missed_goal() {
        let mut part = Part::new("berth");
        part.goal("peak memory", 90.0, "MB", 80.0);
        part.goal("cpu", 9.0, "s", 10.0);
        part.add("wall", 100.0, "s");
        let mut report = Report::begin();
        report.parts.push(part);
        assert_eq!(report.missed(), ["peak memory"]);
        let table = report.table();
        assert!(table.contains("goal <= 80: MISSED") && table.contains("goal <= 10: met"), "{table}");
        assert!(serde_json::to_string(&report).unwrap().contains("\"at_most\":80.0"));
    }
}
