//! A memory cgroup around a process: the kernel kills the process if it needs more, as it kills a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// A cgroup with a limit. Dropping it removes it, when its process has ended.
#[derive(Debug)]
pub struct MemoryBound(PathBuf);

impl MemoryBound {
    /// Puts a process into a cgroup of that many bytes; `None` where this process may make no cgroup.
    ///
    /// # Errors
    /// Fails if the kernel takes the limit or the process not.
    pub fn of(pid: u32, bytes: u64) -> Result<Option<Self>> {
        let first = (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes");
        let second = (Path::new("/sys/fs/cgroup"), "memory.max");
        for (parent, limit) in [first, second] {
            let folder = parent.join(format!("berth-e2e-{pid}"));
            if !parent.join("cgroup.procs").is_file() || fs::create_dir(&folder).is_err() {
                continue;
            }
            let bound = Self(folder);
            // Version 2 without the memory controller in this place has no such file.
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
        // The process leaves it a moment after its end.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
