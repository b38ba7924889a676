//! The API server's audit log, by which the API server itself counts the requests of each client.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::meter::Requests;

/// An audit log with its policy, in a folder of its own that is removed when the value is dropped.
#[derive(Debug)]
pub struct Audit {
    folder: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow)]
    verb: &'a str,
    #[serde(default)]
    user_agent: String,
    #[serde(default, borrow, rename = "requestURI")]
    request_uri: std::borrow::Cow<'a, str>,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    namespace: String,
    resource: String,
    subresource: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// Requests by program.
pub type ByAgent = BTreeMap<String, Requests>;

impl Audit {
    /// Writes the audit policy: the log has all requests of the users in `operators`, and every write of any user.
    ///
    /// # Errors
    /// Fails when the folder cannot be written.
    pub fn create(operators: &[String]) -> Result<Audit> {
        static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("berth-bench-audit-{}-{serial}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let policy = serde_json::json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "users": operators},
                {"level": "None", "verbs": ["get", "list", "watch"]},
                {"level": "Metadata"},
            ],
        });
        let audit = Audit { folder };
        fs::write(audit.policy(), policy.to_string())?;
        Ok(audit)
    }

    fn policy(&self) -> PathBuf {
        self.folder.join("policy.yaml")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// Arguments with which the API server writes this audit log. The API server writes the log before it answers a request, so no entry is ever dropped.
    pub fn args(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy().display()),
            format!("--audit-log-path={}", self.log().display()),
            "--audit-log-mode=blocking".to_owned(),
            // The audit log's size limit, above which the API server begins another file, is larger than the log of any run, because the benchmark reads only
            // one file.
            "--audit-log-maxsize=100000".to_owned(),
        ]
    }

    /// The present length of the log in bytes, as a mark for [`Audit::between`].
    pub fn mark(&self) -> u64 {
        fs::metadata(self.log()).map(|m| m.len()).unwrap_or(0)
    }

    /// Numbers of requests in the audit log between the marks `from` and `to`, by the client's program.
    ///
    /// # Errors
    /// Fails when the log cannot be read.
    pub fn between(&self, from: u64, to: u64) -> Result<ByAgent> {
        count(&self.log(), from, to, None)
    }

    /// Requests in the log between the marks `from` and `to`, about objects of one namespace.
    ///
    /// # Errors
    /// Fails when the log cannot be read.
    pub fn within(&self, namespace: &str, from: u64, to: u64) -> Result<ByAgent> {
        count(&self.log(), from, to, Some(namespace))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn count(path: &Path, from: u64, to: u64, namespace: Option<&str>) -> Result<ByAgent> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut all = ByAgent::new();
    let (mut at, mut line) = (from, String::new());
    while at < to {
        line.clear();
        let read = reader.read_line(&mut line)?;
        if read == 0 {
            break;
        }
        at += read as u64;
        let Ok(entry) = serde_json::from_str::<Entry<'_>>(&line) else { continue };
        let Some(object) = entry.object_ref else { continue };
        if namespace.is_some_and(|namespace| object.namespace != namespace) {
            continue;
        }
        let verb = match entry.verb {
            "patch" if entry.request_uri.contains("force=true") => "apply",
            other => other,
        };
        let mut what = format!("{verb} {}", object.resource);
        if !object.subresource.is_empty() {
            what = format!("{what}/{}", object.subresource);
        }
        // A refused request is counted as a request, but never as a write.
        if entry.response_status.is_some_and(|s| s.code >= 400) {
            what.push_str(" (refused)");
        }
        let agent = entry.user_agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
        *all.entry(agent).or_default().entry(what).or_default() += 1;
    }
    Ok(all)
}

/// The number of requests about other objects than events, and the number of requests about events.
pub fn split_events(requests: &Requests) -> (u64, u64) {
    let mut sums = (0, 0);
    for (what, count) in requests {
        if what.ends_with(" events") { sums.1 += count } else { sums.0 += count }
    }
    sums
}

/// The numbers of the successful writes in `requests`, which has all requests by verb and resource.
pub fn writes(requests: &Requests) -> Requests {
    let reads = ["get ", "list ", "watch "];
    requests
        .iter()
        .filter(|(what, _)| !reads.iter().any(|r| what.starts_with(r)) && !what.ends_with("(refused)"))
        .map(|(what, count)| (what.clone(), *count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_entries_are_counted_by_program_verb_and_resource() {
        let folder = std::env::temp_dir().join(format!("berth-audit-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let entry = |agent: &str, verb: &str, uri: &str, resource: &str, sub: &str, code: u16| {
            let mut object = serde_json::json!({"resource": resource});
            if !sub.is_empty() {
                object["subresource"] = sub.into();
            }
            serde_json::json!({"verb": verb, "userAgent": agent, "requestURI": uri, "objectRef": object,
                "responseStatus": {"code": code}})
            .to_string()
        };
        let first = entry("berth/0.1", "patch", "/x?force=true", "workloads", "status", 200);
        let lines = [
            first.clone(),
            entry("berth/0.1", "create", "/x", "events", "", 201),
            entry("kubectl/v1 (linux)", "patch", "/x", "jobs", "", 409),
            entry("berth/0.1", "watch", "/x", "jobs", "", 200),
            "broken".to_owned(),
        ];
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let end = fs::metadata(&path).unwrap().len();
        let all = count(&path, 0, end, None).unwrap();
        let berth = all.get("berth").unwrap();
        assert_eq!(berth.get("apply workloads/status"), Some(&1));
        assert_eq!(split_events(&writes(berth)), (1, 1));
        assert!(writes(all.get("kubectl").unwrap()).is_empty());
        let later = count(&path, first.len() as u64 + 1, end, None).unwrap();
        assert_eq!(later.get("berth").unwrap().get("apply workloads/status"), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn audit_entries_of_one_namespace_are_counted_alone() {
        let path = std::env::temp_dir().join(format!("berth-audit-namespaces-{}", std::process::id()));
        let entry = |namespace: &str| {
            let object = serde_json::json!({"resource": "workloads", "namespace": namespace});
            serde_json::json!({"verb": "create", "userAgent": "berth/0.1", "objectRef": object}).to_string()
        };
        fs::write(&path, ["one", "two", "one"].map(entry).join("\n") + "\n").unwrap();
        let end = fs::metadata(&path).unwrap().len();
        for (namespace, creations) in [(None, 3), (Some("one"), 2), (Some("on"), 0)] {
            let all = count(&path, 0, end, namespace).unwrap();
            let found = all.get("berth").and_then(|requests| requests.get("create workloads")).copied();
            assert_eq!(found.unwrap_or(0), creations, "{namespace:?}");
        }
        fs::remove_file(&path).unwrap();
    }
}
