//! The flags of an older Berth's binary, which the present tests run: some flags were added later.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The arguments of a manager without the flags that the binary's help does not list; only flags of the form `--flag=value` are left out.
///
/// # Errors
/// Fails if the binary does not print its flags.
pub(crate) fn known(program: &Path, args: Vec<String>) -> Result<Vec<String>> {
    let message = Command::new(program).args(["manager", "--help"]).stdin(Stdio::null()).output();
    let message = message.with_context(|| format!("starting {}", program.display()))?;
    ensure!(message.status.success(), "{} manager --help: {}", program.display(), message.status);
    Ok(known_flags(&String::from_utf8_lossy(&message.stdout), args))
}

fn known_flags(help: &str, mut args: Vec<String>) -> Vec<String> {
    let reported_by =
        |flag: &str| help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == flag);
    args.retain(|arg| match arg.split_once('=') {
        Some((flag, _)) if flag.starts_with("--") => reported_by(flag),
        _ => true,
    });
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_unknown_to_an_older_berth_are_left_out() {
        let help =
            "      --kubeconfig <KUBECONFIG>\n      --metrics-secure-port <N>\n      --metrics-bind-address <A>\n";
        let args = ["manager", "--kubeconfig", "/x=y", "--metrics-secure=false", "--metrics-bind-address=0"];
        let left = known_flags(help, args.map(str::to_owned).to_vec());
        assert_eq!(left, ["manager", "--kubeconfig", "/x=y", "--metrics-bind-address=0"]);
    }
}
