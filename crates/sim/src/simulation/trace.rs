//! The trace of a simulation run: a line for each message, and a digest of all lines.

use std::collections::VecDeque;
use std::{fmt, io};

use serde_json::Value;

/// Number of the last lines that a failure shows.
const SHOWN: usize = 80;

/// The trace: the last lines as texts, and a digest of all lines (FNV-1a of 64 bits).
#[derive(Debug)]
pub(super) struct Trace {
    digest: u64,
    last: VecDeque<String>,
    is_printed: bool,
}

impl Trace {
    /// An empty trace; with `is_printed`, each line is printed when it is added.
    pub(super) const fn new(is_printed: bool) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, last: VecDeque::new(), is_printed }
    }

    /// Adds a line to the trace.
    pub(super) fn note(&mut self, at_ms: u64, line: fmt::Arguments<'_>) {
        let line = format!("{}.{:03} {line}", at_ms / 1_000, at_ms % 1_000);
        self.mix(line.as_bytes());
        self.mix(b"\n");
        if self.is_printed {
            println!("{line}");
        }
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Adds an object to the digest of the trace without a line.
    pub(super) fn mix_object(&mut self, object: &Value) {
        serde_json::to_writer(&mut *self, object).expect("a digest takes all bytes");
        self.mix(b"\n");
    }

    /// The digest of the trace so far.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    /// The last lines of the trace.
    pub(super) fn shown(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }
}

impl io::Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.mix(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
