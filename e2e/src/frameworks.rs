//! PyTorch, JAX, Paddle and Open MPI from PyPI, with which the test runs the containers of pods as processes of this machine. The frameworks cannot run in pods
//! of the control plane, because kwok's pods execute nothing.
//!
//! The tests with the frameworks run only in `make night` (`BERTH_FRAMEWORKS=1`), because PyTorch's wheels take 3 GB.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::binaries::{cache_folder, repository};
use crate::kinds::{CONFIG_MAP, items, text};
use crate::own_folder::OwnFolder;

/// Time limit in seconds for the processes of a training.
const SECONDS: u64 = 180;
/// Number of times that this process has started a training's processes, for the names of their folders.
static RUNS: AtomicU32 = AtomicU32::new(0);

fn sources() -> PathBuf {
    repository().join("e2e/frameworks")
}

/// Path of a Python interpreter with the frameworks, which are installed first if the cache has none.
///
/// # Errors
/// Fails if Python is missing or a package cannot be downloaded.
pub fn python() -> Result<PathBuf> {
    let requirements = sources().join("requirements.txt");
    let digest = Sha256::digest(fs::read(&requirements).context("the list of frameworks")?);
    let key: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let (folder, lock) = (cache.join(format!("frameworks-{key}")), cache.join("frameworks.lock"));
    let (python, complete) = (folder.join("bin/python"), folder.join("complete"));
    let lock = File::create(lock).context("the lock of the frameworks")?;
    lock.lock().context("waiting for the lock of the frameworks")?;
    if complete.is_file() {
        return Ok(python);
    }
    let _ = fs::remove_dir_all(&folder);
    eprintln!("frameworks: installing PyTorch, JAX, Paddle and Open MPI into {}, once, 5 GB", folder.display());
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements))?;
    File::create(complete).context("the mark of a complete installation")?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The files that ConfigMaps put into a pod's first container, by their paths.
///
/// # Errors
/// Fails if the API server does not answer or a ConfigMap does not exist.
pub async fn mounted_files(client: &Client, pod: &Value) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for mount in items(pod, "/spec/containers/0/volumeMounts") {
        let volume = items(pod, "/spec/volumes").iter().find(|volume| volume["name"] == mount["name"]);
        let Some(map) = volume.and_then(|volume| volume.pointer("/configMap/name")).and_then(Value::as_str) else {
            continue;
        };
        let found = CONFIG_MAP.get(client, text(pod, "/metadata/namespace"), map).await?;
        let found = found.with_context(|| format!("no ConfigMap {map}"))?;
        for (name, content) in found["data"].as_object().into_iter().flatten() {
            let path = format!("{}/{name}", text(mount, "/mountPath"));
            files.insert(path, content.as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(files)
}

/// Runs the first container of each pod as a process, all at the same time, and returns the outputs. The processes share a network of their own, in
/// which the pods' names in the cluster are names of the loopback; the files in `files` are visible to all processes.
///
/// # Errors
/// Fails if a process fails or does not end in time.
pub fn run_pods(
    python: &Path,
    pods: &[Value],
    hosts: &[String],
    files: &BTreeMap<String, String>,
) -> Result<Vec<String>> {
    let processes = pods.iter().map(process).collect::<Result<Vec<_>>>()?;
    let task = json!({"hosts": hosts, "files": files, "seconds": SECONDS, "pods": processes});
    // The processes write their logs into their working folder, which is a new folder.
    let name = format!("berth-e2e-processes-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let folder = OwnFolder::make(std::env::temp_dir().join(name))?;
    for source in fs::read_dir(sources())? {
        let source = source?;
        if source.file_type()?.is_file() {
            fs::copy(source.path(), folder.path().join(source.file_name()))?;
        }
    }
    let mut child = Command::new("unshare")
        .args(["--map-root-user", "--net", "--mount"])
        .arg(python)
        .arg("pods.py")
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting unshare, which gives the processes a network of their own")?;
    let input = child.stdin.take().context("a pipe")?;
    serde_json::to_writer(input, &task)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "e2e/frameworks/pods.py: {}", output.status);
    let ended: Vec<Value> = serde_json::from_slice(&output.stdout).context("answer of e2e/frameworks/pods.py")?;
    if let Some(failed) = ended.iter().find(|pod| pod["code"] != json!(0)) {
        bail!("{} ended with {}:\n{}", failed["name"], failed["code"], text(failed, "/output"));
    }
    Ok(ended.iter().map(|pod| text(pod, "/output").to_owned()).collect())
}

/// Command and environment of a pod's first container, as the kubelet passes them to the container.
fn process(pod: &Value) -> Result<Value> {
    let container = pod.pointer("/spec/containers/0").context("a container")?;
    let words = ["command", "args"].map(|field| container[field].as_array().cloned().unwrap_or_default()).concat();
    ensure!(!words.is_empty(), "the container has no command: {container}");
    let mut known: Vec<(String, String)> = Vec::new();
    for variable in items(container, "/env") {
        let value = match variable.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str) {
            Some(path) => field(pod, path).with_context(|| format!("{path} of pod {}", pod["metadata"]["name"]))?,
            None => expanded(text(variable, "/value"), &known),
        };
        known.push((text(variable, "/name").to_owned(), value));
    }
    let command: Vec<String> = words.iter().map(|word| expanded(word.as_str().unwrap_or_default(), &known)).collect();
    let env: serde_json::Map<String, Value> = known.into_iter().map(|(name, value)| (name, value.into())).collect();
    Ok(json!({"name": pod["metadata"]["name"], "command": command, "env": env}))
}

/// The value of the pod's field at `path`, to which an environment variable may refer.
fn field(pod: &Value, path: &str) -> Option<String> {
    let found = match path.split_once("['") {
        Some((map, key)) => pod.pointer(&format!("/{}", map.replace('.', "/")))?.get(key.strip_suffix("']")?),
        None => pod.pointer(&format!("/{}", path.replace('.', "/"))),
    };
    found?.as_str().map(str::to_owned)
}

/// Replaces each `$(NAME)` by the value of a variable in `known`; an unknown name stays as it is.
fn expanded(value: &str, known: &[(String, String)]) -> String {
    known.iter().fold(value.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_process_gets_environment_and_arguments_as_from_the_kubelet() {
        let pod = json!({
            "metadata": {"name": "p", "annotations": {"batch.kubernetes.io/job-completion-index": "3"}},
            "spec": {"containers": [{"command": ["run"], "args": ["--rank=$(RANK)", "$(NO)"], "env": [
                {"name": "RANK", "valueFrom": {"fieldRef":
                    {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}},
                {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "TASK", "value": "task-$(RANK)"}]}]},
        });
        let wanted = json!({"name": "p", "command": ["run", "--rank=3", "$(NO)"],
            "env": {"RANK": "3", "WHO": "p", "TASK": "task-3"}});
        assert_eq!(process(&pod).unwrap(), wanted);
    }
}
