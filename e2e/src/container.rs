//! A program of an image, started as a kubelet starts it: under the image's user, with its own environment, and with a folder as its root (chroot),
//! which holds the files of the image's layer and the files that a kubelet adds.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{Guarded, Launch};

/// Paths at which the program chroot may lie: some users have no administrators' folders in their PATH.
const CHROOT: [&str; 4] = ["/usr/sbin/chroot", "/usr/bin/chroot", "/sbin/chroot", "/bin/chroot"];

/// True if this process may change its root, that is, if it runs as root.
///
/// # Errors
/// Fails when /proc is missing.
pub fn may_change_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("reading /proc/self")?.uid() == 0)
}

/// The files of a container, in a folder that is the container's root.
#[derive(Debug)]
pub struct Root {
    folder: PathBuf,
}

impl Root {
    /// Unpacks a layer of an image into the new folder `folder`.
    ///
    /// # Errors
    /// Fails if the folder cannot be made, or if tar cannot read the layer.
    pub fn unpack(layer: &Path, folder: &Path) -> Result<Root> {
        fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))?;
        // The user under which the program runs must be able to enter the root folder.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        untar(layer, folder)?;
        Ok(Root { folder: folder.canonicalize()? })
    }

    /// The folder with the files of the container.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All files and folders of the container with their modes, for example `644 etc/hosts`, sorted by path.
    ///
    /// # Errors
    /// Fails if a folder of the container cannot be read.
    pub fn listing(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut waiting = vec![self.folder.clone()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
                let entry = entry?;
                let of = entry.metadata()?;
                let path = entry.path();
                let (within, slash) = (path.strip_prefix(&self.folder)?, if of.is_dir() { "/" } else { "" });
                found.push((format!("{}{slash}", within.display()), of.permissions().mode() & 0o7777));
                if of.is_dir() {
                    waiting.push(path);
                }
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(path, mode)| format!("{mode:o} {path}")).collect())
    }

    /// Adds a file to the container that every user can read, as a kubelet mounts a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn add(&self, path: &str, text: &str) -> Result<()> {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().context("a file in no folder")?)?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Adds the libraries that the container's program `program` needs, from this machine.
    ///
    /// # Errors
    /// Fails when ldd cannot be run, or a library cannot be copied.
    pub fn add_libraries(&self, program: &str) -> Result<()> {
        let output = Command::new("ldd").arg(self.folder.join(program)).output().context("starting ldd")?;
        ensure!(output.status.success(), "ldd {program}: {}", String::from_utf8_lossy(&output.stderr));
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            let to = self.folder.join(library.trim_start_matches('/'));
            fs::create_dir_all(to.parent().context("a library in no folder")?)?;
            fs::copy(library, &to).with_context(|| format!("copying {library}"))?;
        }
        Ok(())
    }

    /// Starts a program in the container, as a `user:group` in numbers; the log goes to the folder `logs` outside of the container.
    ///
    /// # Errors
    /// Fails if this machine has no chroot, or if the program cannot be started.
    pub fn start(&self, launch: &ContainerLaunch<'_>) -> Result<Guarded> {
        let chroot = CHROOT.into_iter().find(|path| Path::new(path).is_file()).context("there is no chroot")?;
        let (user, group) = launch.user.split_once(':').context("a user without a group")?;
        let mut args = vec!["-i".to_owned()];
        args.extend(launch.env.iter().map(|(name, value)| format!("{name}={value}")));
        // In chroot's option `--userspec` a plus sign marks a number: without it chroot would look for a user of that name, and the container has no list of
        // users.
        args.extend([chroot.to_owned(), format!("--userspec=+{user}:+{group}"), format!("--groups=+{group}")]);
        args.push(self.folder.display().to_string());
        args.extend(launch.command.iter().cloned());
        Guarded::start(Launch {
            name: launch.name,
            program: Path::new("env"),
            args,
            env: Vec::new(),
            folder: launch.logs,
            doomed: None,
            restarts: false,
        })
    }

    /// Checks that the process `process` is a program of the container, has the container's folder as its root, and runs as `user`.
    ///
    /// # Errors
    /// Fails if the process has another root, program or user; the message names the one that is wrong.
    pub fn holds(&self, process: u32, user: &str) -> Result<()> {
        let of = |what: &str| format!("/proc/{process}/{what}");
        let (root, program) = (fs::read_link(of("root"))?, fs::read_link(of("exe"))?);
        ensure!(root == self.folder, "its root is {}", root.display());
        ensure!(program.starts_with(&self.folder), "it is {}", program.display());
        let owner = fs::metadata(of(""))?;
        let owner = format!("{}:{}", owner.uid(), owner.gid());
        ensure!(owner == user, "it runs as {owner}, not as {user}");
        Ok(())
    }
}

/// The parameters with which a program is started in a [`Root`].
#[derive(Debug)]
pub struct ContainerLaunch<'a> {
    /// Name of the program's log.
    pub name: &'a str,
    /// Folder of the program's log.
    pub logs: &'a Path,
    /// User and group of the program in numbers, as images give them, for example `65532:65532`.
    pub user: &'a str,
    /// The complete environment of the program.
    pub env: &'a [(&'a str, &'a str)],
    /// The program, by its path within the container, and its arguments.
    pub command: &'a [String],
}

/// Unpacks a tar archive, compressed or not, into an existing folder.
///
/// # Errors
/// Fails if tar cannot read the archive.
pub fn untar(archive: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--extract", "--numeric-owner", "--preserve-permissions"]);
    command.arg("--file").arg(archive).arg("--directory").arg(folder).stdin(Stdio::null());
    let output = command.output().context("starting tar")?;
    ensure!(output.status.success(), "tar {}: {}", archive.display(), String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Paths of libraries in the output of ldd: a path stands behind an arrow, or alone for the dynamic linker.
fn libraries(message: &str) -> Vec<&str> {
    message.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/'))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_libraries_are_found_in_ldd_output() {
        let message = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld-x.so.2 (0x00007f)\n";
        assert_eq!(libraries(message), ["/lib/x/libc.so.6", "/lib64/ld-x.so.2"]);
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}
