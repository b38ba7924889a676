//! Child processes that end with this process, also if this process is killed.
//!
//! A small shell starts each program and also holds the reading end of a pipe, whose writing end belongs to this process. When this process exits,
//! panics or is killed, the kernel closes the writing end, and the shell kills the program. Each child has a process group of its own, so that Ctrl-C
//! in a terminal reaches only this process, which decides the order in which the children end.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Script of the shell that guards a program. The script's `$0` is the pid file, `$1` a folder to remove at the end (may be empty), and the other arguments are
/// the program and its arguments.
const GUARD: &str = r#"
exec 3<&0 </dev/null
doomed=$1; shift
"$@" 3<&- &
pid=$!
echo "$pid" > "$0"
( read -r _ <&3; : > "$0.stop"; kill -9 "$pid" 2>/dev/null; [ -n "$doomed" ] && rm -rf "$doomed"; : ) >/dev/null 2>&1 &
watch=$!
wait "$pid"
code=$?
# Once the end was asked for, the watch has a folder to remove and ends by itself.
if [ -e "$0.stop" ]; then wait "$watch"; else kill -9 "$watch" 2>/dev/null; fi
exit "$code"
"#;

/// A script like [`GUARD`], which starts the program again whenever it ends, as a kubelet would; the pid file names the present process.
const RESTARTING_GUARD: &str = r#"
exec 3<&0 </dev/null
doomed=$1; shift
(
  read -r _ <&3
  : > "$0.stop"
  kill -9 "$(cat "$0")" 2>/dev/null
  [ -n "$doomed" ] && rm -rf "$doomed"
  :
) >/dev/null 2>&1 &
while [ ! -e "$0.stop" ]; do
  "$@" 3<&- &
  pid=$!
  echo "$pid" > "$0"
  # The end may have been asked for before the pid file named this one.
  [ -e "$0.stop" ] && kill -9 "$pid" 2>/dev/null
  wait "$pid"
  sleep 0.05
done
"#;

/// A running program with its log file.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    shell: Child,
    lifeline: Option<ChildStdin>,
    pid_file: PathBuf,
    log: PathBuf,
}

/// The parameters with which a [`Guarded`] program is started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Short name of the program for messages; the log and the pid file are called after it.
    pub name: &'a str,
    /// The program.
    pub program: &'a Path,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Extra environment.
    pub env: Vec<(String, String)>,
    /// Folder for the files `<name>.log` and `<name>.pid`.
    pub folder: &'a Path,
    /// A folder that is worthless after the program's end and is removed with the program.
    pub doomed: Option<&'a Path>,
    /// True if the program is started again when it ends before the test stops it.
    pub restarts: bool,
}

impl Guarded {
    /// Starts the program. The program's output is appended to `<folder>/<name>.log`.
    ///
    /// # Errors
    /// Fails if the log cannot be opened or the shell cannot be started.
    pub fn start(launch: Launch<'_>) -> Result<Guarded> {
        let log = launch.folder.join(format!("{}.log", launch.name));
        let pid_file = launch.folder.join(format!("{}.pid", launch.name));
        let _ = fs::remove_file(&pid_file);
        let _ = fs::remove_file(launch.folder.join(format!("{}.pid.stop", launch.name)));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(if launch.restarts { RESTARTING_GUARD } else { GUARD })
            .arg(&pid_file)
            .arg(launch.doomed.map(Path::as_os_str).unwrap_or_else(|| OsStr::new("")))
            .arg(launch.program)
            .args(&launch.args)
            .env_remove("KUBECONFIG")
            .envs(launch.env)
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0);
        let mut shell = command.spawn().with_context(|| format!("starting {}", launch.name))?;
        let lifeline = shell.stdin.take();
        Ok(Guarded { name: launch.name.to_owned(), shell, lifeline, pid_file, log })
    }

    /// Name that the program was given at its start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Process id of the program itself, and not of the guarding shell.
    ///
    /// # Errors
    /// Fails if the guarding shell does not write the process id in time.
    pub fn pid(&self) -> Result<u32> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(pid) = fs::read_to_string(&self.pid_file).ok().and_then(|t| t.trim().parse().ok()) {
                return Ok(pid);
            }
            if Instant::now() > deadline {
                anyhow::bail!("{} did not start: no {}", self.name, self.pid_file.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Exit code of the program once it has ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<i32> {
        match self.shell.try_wait() {
            Ok(Some(status)) => Some(status.code().unwrap_or(-1)),
            Ok(None) => None,
            Err(_) => Some(-1),
        }
    }

    /// Sends a signal (`TERM`, `STOP`, `CONT`, `KILL`) to the program.
    ///
    /// # Errors
    /// Fails if the program does not run any more.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.pid()?.to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).stderr(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "{} (process {pid}) does not run: no {signal} sent", self.name);
        Ok(())
    }

    /// Kills the program at once and waits for its end.
    pub fn kill(&mut self) {
        if let Some(mut pipe) = self.lifeline.take() {
            let _ = pipe.write_all(b"\n");
        }
        let _ = self.shell.wait();
    }

    /// Sends TERM to the program, waits for its end for at most `grace`, then kills it.
    pub fn stop(&mut self, grace: Duration) {
        if self.ended().is_none() && self.signal("TERM").is_ok() {
            let deadline = Instant::now() + grace;
            while self.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.kill();
    }

    /// The last `lines` lines of the program's log.
    pub fn tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last `lines` lines of a text file; empty if the file cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Ports that this process has given out: the program that got a port may not listen on it yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A listener on a free port of 127.0.0.1 that no other part of this process has got.
///
/// # Errors
/// Fails if no port can be bound.
pub fn listener() -> Result<TcpListener> {
    let mut refused = Vec::new();
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("binding a port of 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(listener);
        }
        // The listener on a given-out port is kept until a free port is found, so that the kernel does not choose the same port again.
        refused.push(listener);
    }
}

/// Ports below the range from which the kernel takes ports of outgoing connections: a program that is stopped and started again finds its port free.
const QUIET: std::ops::Range<u16> = 10_000..32_000;
/// Distance between the ports at which two processes begin to look for free ports.
const APART: u32 = 100;

/// `N` different free ports of 127.0.0.1. This process gives out no port twice, and two processes begin to look at different ports.
///
/// # Errors
/// Fails if no port can be bound.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let room = u32::from(QUIET.end - QUIET.start);
    let first = std::process::id().wrapping_mul(APART) % room;
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = (0..room).filter_map(|step| u16::try_from(u32::from(QUIET.start) + (first + step) % room).ok());
    let mut free = all.filter(|port| !given.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free.next().context("no free port of 127.0.0.1")?;
    }
    drop(free);
    given.extend(ports);
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_port_is_never_given_out_twice() -> Result<()> {
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let ports: [u16; 4] = free_ports()?;
            let held = listener()?.local_addr()?.port();
            assert!(ports.into_iter().chain([held]).all(|port| seen.insert(port)), "{ports:?}, {held}");
        }
        Ok(())
    }
}
