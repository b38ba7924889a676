//! The runner of commands, which runs one or several commands at a time, and measures wall time, CPU time, peak memory and tests of each command.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::clock::now;
use crate::counts::Counts;
use crate::processes::{Snapshot, Stat};
use crate::step::{Class, Line, Output, Step};
use crate::table::minutes;

/// Time between two checks whether a command has ended.
const POLL: Duration = Duration::from_millis(20);
/// Time between two samples of memory.
const SAMPLE: Duration = Duration::from_secs(1);
/// Time between two output lines about running steps.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Running commands by process id: name, start time, and largest sample of the command's memory in bytes.
type Live = BTreeMap<u32, (String, Instant, u64)>;

/// Runner of steps, which keeps the table lines of finished steps.
pub(crate) struct Runner {
    live: Arc<Mutex<Live>>,
    lines: Mutex<Vec<Line>>,
    /// True if SIGINT or SIGTERM has arrived; no further step starts after such a signal.
    is_stopping: Arc<AtomicBool>,
    cores: usize,
    /// Time at which the user asked for the Makefile target, in seconds since 1970.
    began: f64,
    /// Seconds that each step takes on the reference machine, from the file of time budgets.
    elsewhere: BTreeMap<String, f64>,
    /// Number of started steps, and number of all known steps.
    progress: Mutex<(usize, usize)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runner {
    /// Starts a runner of steps and its memory sampler for a Makefile target; `began` is the time in seconds since 1970 at which the user asked for the target.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub(crate) fn new(began: f64, elsewhere: BTreeMap<String, f64>) -> Result<Runner> {
        let live: Arc<Mutex<Live>> = Arc::default();
        let is_stopping = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&is_stopping)).context("catching signals")?;
        }
        let sampled = Arc::clone(&live);
        thread::spawn(move || watch(&sampled));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Ok(Runner { live, lines: Mutex::default(), is_stopping, cores, began, elsewhere, progress: Mutex::default() })
    }

    /// Number of cores that commands may use.
    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// Whether the user has interrupted the run.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Adds the table line of a step that the runner itself did not run.
    pub(crate) fn add(&self, line: Line) {
        locked(&self.lines).push(line);
    }

    /// The table lines of the steps that have finished so far.
    pub(crate) fn lines(&self) -> Vec<Line> {
        locked(&self.lines).clone()
    }

    /// Runs a step to its end. The function returns `Ok(false)` if the step failed, after it has printed the step's log.
    ///
    /// # Errors
    /// The step cannot be started.
    pub(crate) fn run(&self, step: Step) -> Result<bool> {
        if self.is_stopping() {
            return Ok(false);
        }
        let Step { name, class, mut command, output, tests } = step;
        match &output {
            // A command with shown output keeps its standard input, because it may ask the user for input.
            Output::Shown => {}
            Output::Logged(path) => {
                let log = create(path)?;
                command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            }
            Output::Read(path) => {
                command.stdin(Stdio::null()).stdout(create(path)?);
            }
        }
        println!("== {}{name}{}; {} so far", self.place(), self.elsewhere(&name), minutes(self.so_far()));
        let begun = Instant::now();
        let child = command.spawn().with_context(|| format!("starting {name}: {command:?}"))?;
        let pid = child.id();
        locked(&self.live).insert(pid, (name.clone(), begun, 0));
        let ended = self.wait(child, class);
        let wall = begun.elapsed().as_secs_f64();
        let peak = locked(&self.live).remove(&pid).map(|(_, _, peak)| peak);
        let (status, cpu) = ended.with_context(|| format!("waiting for {name}"))?;
        let log = match &output {
            Output::Logged(path) => fs::read_to_string(path).unwrap_or_default(),
            _ => String::new(),
        };
        let counts = Counts::read(&log);
        let ran = usize::try_from(counts.passed + counts.failed + counts.ignored).unwrap_or(usize::MAX);
        let missed = tests.filter(|tests| *tests != ran);
        let passed = status.success() && missed.is_none();
        if !status.success() {
            println!("{log}== {name} FAILED ({status})");
        } else if let Some(tests) = missed {
            println!("{log}== {name} FAILED: {ran} tests ran, and there are {tests}");
        } else if matches!(output, Output::Logged(_)) {
            println!("== {name}: ok after {wall:.0} s, {counts}");
        }
        self.add(Line { name, class, wall, cpu, peak: peak.filter(|bytes| *bytes > 0), counts, passed });
        Ok(passed)
    }

    /// Seconds since the user asked for the Makefile target.
    pub(crate) fn so_far(&self) -> f64 {
        now() - self.began
    }

    /// Adds `more` to the number of steps that the run is known to have.
    pub(crate) fn expect(&self, more: usize) {
        let mut progress = locked(&self.progress);
        progress.1 = progress.0.max(progress.1) + more;
    }

    /// The number of the step that begins now and the number of all steps, as in `3 of 7: `; empty if the number of all steps is not known.
    fn place(&self) -> String {
        let mut progress = locked(&self.progress);
        progress.0 += 1;
        if progress.0 <= progress.1 { format!("{} of {}: ", progress.0, progress.1) } else { String::new() }
    }

    /// Text with the time of a step on the reference machine; empty if the time is not known, or below 20 seconds.
    fn elsewhere(&self, name: &str) -> String {
        let long = self.elsewhere.get(name).filter(|seconds| **seconds >= 20.0);
        long.map(|seconds| format!(" ({} elsewhere)", minutes(*seconds))).unwrap_or_default()
    }

    /// Waits for a child process, and reads the CPU time of the child and its descendants between its end and its reaping.
    ///
    /// The signal of an interrupt goes to a compiler and all its descendants, because a build tool may leave its descendants running. A test gets the signal
    /// alone, because it stops the programs that it has started itself, in an order of its own.
    fn wait(&self, mut child: Child, class: Class) -> Result<(ExitStatus, Option<f64>)> {
        let mut passed_on = false;
        loop {
            let stat = Stat::of(child.id());
            if stat.as_ref().is_none_or(|stat| stat.zombie)
                && let Some(status) = child.try_wait()?
            {
                return Ok((status, stat.map(|stat| stat.cpu)));
            }
            if self.is_stopping() && !passed_on {
                passed_on = true;
                // After Ctrl-C in a terminal, the child process has received the signal already, and a second signal changes nothing.
                let ended = match class {
                    Class::Compiling | Class::Downloading => Snapshot::take().with_descendants(child.id()),
                    Class::Running => vec![child.id()],
                };
                let _ = Command::new("kill").args(["-s", "TERM"]).args(ended.iter().map(u32::to_string)).status();
            }
            thread::sleep(POLL);
        }
    }
}

fn create(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    File::create(path).with_context(|| format!("creating {}", path.display()))
}

/// Samples the memory of running commands and prints the running steps, in an endless loop.
fn watch(live: &Mutex<Live>) {
    let mut reported_at = Instant::now();
    loop {
        thread::sleep(SAMPLE);
        if locked(live).is_empty() {
            continue;
        }
        let snapshot = Snapshot::take();
        let mut running = Vec::new();
        for (pid, (name, begun, peak)) in locked(live).iter_mut() {
            *peak = (*peak).max(snapshot.resident_below(*pid));
            running.push(format!("{name} {} s", begun.elapsed().as_secs()));
        }
        if reported_at.elapsed() >= HEARTBEAT {
            reported_at = Instant::now();
            println!("== running: {}", running.join(", "));
        }
    }
}
