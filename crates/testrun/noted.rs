//! The file in which laws note their numbers of seeds, for `make inventory`. The tests of all crates include this source file by its path, so that no crate
//! depends on another crate for it.

use std::fs::File;
use std::io::Write;

/// Notes the number of seeds of the law that runs in this thread. `make test` sets the path of the file in `BERTH_SEEDS_FILE`; without this variable no number
/// is noted.
pub(crate) fn note(package: &str, seeds: u64) {
    let Some(path) = std::env::var_os("BERTH_SEEDS_FILE") else { return };
    let file = File::options().create(true).append(true).open(path);
    if let (Ok(mut file), Some(law)) = (file, std::thread::current().name()) {
        // A write error is ignored, because a law passes or fails by its own result.
        let _ = file.write_all(format!("{package}::{law} {seeds}\n").as_bytes());
    }
}
