//! The real Prometheus, which scrapes managers on loopback, evaluates the chart's rules, and answers queries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::binaries::{self, repository};
use crate::http::http_get;
use crate::kinds::{items, text};
use crate::process::{Guarded, Launch, free_ports};
use crate::wait::{self, Seen};

/// Time limit for the start of Prometheus, which has no old data to read.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Name of Prometheus' scrape job for the managers.
const JOB: &str = "berth";

/// One running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    process: Guarded,
    port: u16,
}

/// Path of the file with the chart's rules and alerts.
pub fn rules() -> PathBuf {
    repository().join("charts/berth/files/prometheus-rules.yaml")
}

/// Runs promtool; returns whether it succeeded, and its output.
///
/// # Errors
/// Fails if promtool cannot be built or started.
pub async fn promtool(args: &[&str]) -> Result<(bool, String)> {
    let program = tokio::task::spawn_blocking(binaries::prometheus).await??.join("promtool");
    let mut command = Command::new(program);
    command.args(args).current_dir(repository()).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("starting promtool")?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((output.status.success(), text))
}

impl Prometheus {
    /// Starts a Prometheus that scrapes the ports `targets` of this machine every second, over TLS and with the token `token`. Prometheus keeps the labels of
    /// the scraped series (`honorLabels`), as with the chart's ServiceMonitor.
    ///
    /// # Errors
    /// Fails if Prometheus cannot be built or does not start.
    pub async fn start(folder: &Path, targets: &[u16], token: &str) -> Result<Prometheus> {
        let program = tokio::task::spawn_blocking(binaries::prometheus).await??.join("prometheus");
        let [port] = free_ports()?;
        let targets: Vec<String> = targets.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let credentials = folder.join("prometheus.token");
        fs::write(&credentials, token)?;
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules()],
            "scrape_configs": [{"job_name": JOB, "honor_labels": true, "static_configs": [{"targets": targets}],
                "scheme": "https", "tls_config": {"insecure_skip_verify": true},
                "authorization": {"credentials_file": credentials}}],
        });
        let (path, data) = (folder.join("prometheus.yaml"), folder.join("prometheus"));
        fs::write(&path, config.to_string())?;
        let process = Guarded::start(Launch {
            name: "prometheus",
            program: &program,
            args: vec![
                format!("--config.file={}", path.display()),
                format!("--storage.tsdb.path={}", data.display()),
                format!("--web.listen-address=127.0.0.1:{port}"),
                "--log.level=warn".to_owned(),
            ],
            env: Vec::new(),
            folder,
            doomed: Some(&data),
            restarts: false,
        })?;
        let prometheus = Prometheus { process, port };
        wait::until(START_LIMIT, "Prometheus is ready", || async {
            let answer = http_get(port, "/-/ready").await;
            Ok(Seen::when(matches!(answer, Ok((200, _))), || format!("{answer:?} {}", prometheus.process.tail(3))))
        })
        .await?;
        Ok(prometheus)
    }

    /// The field `data` of an answer of Prometheus' API.
    ///
    /// # Errors
    /// Fails if Prometheus does not answer, or answers with an error.
    pub async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let encoded = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        let query: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        let (code, body) = http_get(self.port, &format!("/api/v1/{path}?{}", query.join("&"))).await?;
        let answer: Value = serde_json::from_str(&body).with_context(|| format!("{code}: {body}"))?;
        ensure!(text(&answer, "/status") == "success", "Prometheus says {code}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Label sets of all series that Prometheus has seen, without the labels that Prometheus adds.
    ///
    /// # Errors
    /// Fails as [`Prometheus::ask`] does.
    pub async fn series(&self) -> Result<Vec<(String, BTreeSet<String>)>> {
        let found = self.ask("series", &[("match[]", r#"{instance!=""}"#)]).await?;
        let labels = |series: &Value| -> Option<(String, BTreeSet<String>)> {
            let map = series.as_object()?;
            let own = map.iter().filter(|(key, value)| match key.as_str() {
                "__name__" | "instance" => false,
                "job" => *value != JOB,
                _ => true,
            });
            Some((map.get("__name__")?.as_str()?.to_owned(), own.map(|(key, _)| key.clone()).collect()))
        };
        found
            .as_array()
            .context("a list of series")?
            .iter()
            .map(|s| labels(s).context("a series without name"))
            .collect()
    }

    /// Checks that Prometheus has evaluated all rules without an error; returns the names of the alerts that fire.
    ///
    /// # Errors
    /// Fails with the rules that failed and their errors.
    pub async fn alerts(&self) -> Result<Vec<String>> {
        let groups = self.ask("rules", &[]).await?;
        let mut firing = Vec::new();
        for rule in items(&groups, "/groups").iter().flat_map(|group| items(group, "/rules")) {
            let name = text(rule, "/name");
            ensure!(
                text(rule, "/health") == "ok",
                "rule {name} is {}: {}",
                text(rule, "/health"),
                text(rule, "/lastError")
            );
            if text(rule, "/state") == "firing" {
                firing.push(name.to_owned());
            }
        }
        Ok(firing)
    }

    /// Checks that Prometheus can scrape every target.
    ///
    /// # Errors
    /// Fails if a target is not up; the message has Prometheus' error about the target.
    pub async fn all_up(&self) -> Result<()> {
        let targets = self.ask("targets", &[]).await?;
        let active = items(&targets, "/activeTargets");
        ensure!(!active.is_empty(), "no targets: {targets}");
        match active.iter().find(|target| text(target, "/health") != "up") {
            Some(target) => Err(anyhow!(
                "{} is {}: {}",
                text(target, "/scrapeUrl"),
                text(target, "/health"),
                text(target, "/lastError")
            )),
            None => Ok(()),
        }
    }
}
