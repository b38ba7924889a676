//! A memory cgroup around a process: the kernel kills the process if it needs more memory than the cgroup allows, as it kills a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// A memory cgroup with a limit. Dropping the value removes the cgroup after its process has ended.
#[derive(Debug)]
pub struct MemoryBound(PathBuf);

impl MemoryBound {
    /// Puts the process `pid` into a new cgroup with a limit of `bytes`; `None` if the test's process may not make a cgroup.
    ///
    /// # Errors
    /// Fails if the kernel does not accept the limit or the process in the cgroup.
    pub fn of(pid: u32, bytes: u64) -> Result<Option<Self>> {
        let first = (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes");
        let second = (Path::new("/sys/fs/cgroup"), "memory.max");
        for (parent, limit) in [first, second] {
            let folder = parent.join(format!("berth-e2e-{pid}"));
            if !parent.join("cgroup.procs").is_file() || fs::create_dir(&folder).is_err() {
                continue;
            }
            let bound = Self(folder);
            // In version 2 of cgroups the file of the limit is missing if the memory controller is not enabled in the folder.
            if !bound.0.join(limit).is_file() {
                continue;
            }
            fs::write(bound.0.join(limit), bytes.to_string()).context("the limit of a memory cgroup")?;
            fs::write(bound.0.join("cgroup.procs"), pid.to_string())
                .context("moving a process into a memory cgroup")?;
            return Ok(Some(bound));
        }
        Ok(None)
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        // The process leaves the cgroup a moment after its end.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
