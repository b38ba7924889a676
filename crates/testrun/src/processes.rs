//! CPU time and memory of a process and its descendants, read from `/proc`. On a system without `/proc`, the table of steps shows a dash.

use std::collections::HashMap;
use std::fs;

/// Clock ticks per second in `/proc/<pid>/stat`; Linux has used 100 on every architecture since 2.4.
const TICKS: f64 = 100.0;
/// Size of a page of resident memory in bytes.
const PAGE: u64 = 4096;

/// The fields of `/proc/<pid>/stat` from which CPU time and memory are measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stat {
    /// Process id of the parent.
    pub(crate) parent: u32,
    /// True if the process has ended and waits for its parent to reap it.
    pub(crate) zombie: bool,
    /// CPU seconds of the process and of all its descendants that it has waited for (reaped).
    pub(crate) cpu: f64,
    /// Resident memory of the process in bytes.
    pub(crate) resident: u64,
}

impl Stat {
    /// Reads the state of one process; `None` if the process is gone, or on a system without `/proc`.
    pub(crate) fn of(pid: u32) -> Option<Stat> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a line of `/proc/<pid>/stat`. In `/proc/<pid>/stat`, the process name is in parentheses, and may itself contain parentheses and spaces.
    fn parse(line: &str) -> Option<Stat> {
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let ticks = [11, 12, 13, 14].into_iter().map(number).sum::<Option<u64>>()?;
        Some(Stat {
            parent: u32::try_from(number(1)?).ok()?,
            zombie: fields.first() == Some(&"Z"),
            #[expect(clippy::cast_precision_loss, reason = "a measured time, shown with one decimal")]
            cpu: ticks as f64 / TICKS,
            resident: number(21)? * PAGE,
        })
    }
}

/// All processes of the machine at one moment.
pub(crate) struct Snapshot {
    children: HashMap<u32, Vec<u32>>,
    resident: HashMap<u32, u64>,
}

impl Snapshot {
    /// Reads all processes from `/proc`: about a millisecond for a hundred processes.
    pub(crate) fn take() -> Snapshot {
        let mut taken = Snapshot { children: HashMap::new(), resident: HashMap::new() };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if let Some(stat) = Stat::of(pid) {
                taken.children.entry(stat.parent).or_default().push(pid);
                taken.resident.insert(pid, stat.resident);
            }
        }
        taken
    }

    /// Resident memory of a process and all its descendants, in bytes; a shared page counts for each process that has it.
    pub(crate) fn resident_below(&self, root: u32) -> u64 {
        self.with_descendants(root).iter().filter_map(|pid| self.resident.get(pid)).sum()
    }

    /// The process `root`, which comes first, and all its descendants.
    pub(crate) fn with_descendants(&self, root: u32) -> Vec<u32> {
        let mut all = vec![root];
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            next += 1;
            all.extend(self.children.get(&pid).into_iter().flatten());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stat_line_with_spaces_in_the_name_is_parsed() {
        let line =
            "17 (a (b) c) Z 4 17 17 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 99 8192 10 18446744073709551615 0";
        let stat = Stat { parent: 4, zombie: true, cpu: 2.0, resident: 40_960 };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("17 (a) S"), None);
    }

    #[test]
    fn memory_of_child_processes_counts_for_their_parent() {
        let snapshot = Snapshot {
            children: HashMap::from([(1, vec![2, 3]), (2, vec![4])]),
            resident: HashMap::from([(1, 1), (2, 10), (3, 100), (4, 1000)]),
        };
        assert_eq!(snapshot.resident_below(1), 1111);
        assert_eq!(snapshot.resident_below(2), 1010);
        assert_eq!(snapshot.resident_below(9), 0);
        assert_eq!(snapshot.with_descendants(1), [1, 2, 3, 4]);
        assert_eq!(snapshot.with_descendants(9), [9]);
    }
}
