//! The trace of a run: a line for each message, and a digest over all of them.

use std::collections::VecDeque;
use std::fmt;

/// Lines that a failure shows.
const SHOWN: usize = 80;

/// Lines of a run, the last ones as texts, and all of them in a digest (FNV-1a of 64 bits).
#[derive(Debug)]
pub(super) struct Trace {
    digest: u64,
    last: VecDeque<String>,
    is_printed: bool,
}

impl Trace {
    /// An empty trace; with `is_printed`, each line is printed as it comes.
    pub(super) const fn new(is_printed: bool) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, last: VecDeque::new(), is_printed }
    }

    /// Adds a line.
    pub(super) fn note(&mut self, at_ms: u64, line: fmt::Arguments<'_>) {
        let line = format!("{}.{:03} {line}", at_ms / 1_000, at_ms % 1_000);
        self.mix(line.as_bytes());
        if self.is_printed {
            println!("{line}");
        }
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// Adds bytes to the digest alone.
    pub(super) fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(b"\n") {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The digest so far.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    /// The last lines.
    pub(super) fn shown(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }
}
