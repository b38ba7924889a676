//! The file in which laws note the number of their seeds, for `make inventory`. The tests of all crates take this file by its path, so that
//! no crate depends on another for it.

use std::fs::File;
use std::io::Write;

/// Notes the number of seeds of the law of this thread. `make test` names the file; without one nothing is noted.
pub(crate) fn note(package: &str, seeds: u64) {
    let Some(path) = std::env::var_os("BERTH_SEEDS_FILE") else { return };
    let file = File::options().create(true).append(true).open(path);
    if let (Ok(mut file), Some(law)) = (file, std::thread::current().name()) {
        // A law is judged by what it finds, and not by whether it is listed.
        let _ = file.write_all(format!("{package}::{law} {seeds}\n").as_bytes());
    }
}
