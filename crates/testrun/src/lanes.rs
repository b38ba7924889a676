//! Steps that run at the same time: so many lanes, each of which takes the next step of a list when it has done one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::runner::{Runner, Step};

/// A list of steps, and how many of them run at the same time.
pub(crate) struct Lanes {
    /// Steps in the order in which they begin.
    pub(crate) steps: Vec<Step>,
    /// How many run at the same time.
    pub(crate) at_once: usize,
}

/// Runs several lists at the same time, to the end of all, whatever fails. `Ok(false)` when a step failed.
///
/// # Errors
/// When a step cannot be started.
pub(crate) fn run(runner: &Runner, lists: Vec<Lanes>) -> Result<bool> {
    runner.expect(lists.iter().map(|list| list.steps.len()).sum());
    let passed = AtomicBool::new(true);
    let wrong: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    thread::scope(|scope| {
        for Lanes { steps, at_once } in lists {
            let list = std::sync::Arc::new(Mutex::new(VecDeque::from(steps)));
            for _ in 0..at_once {
                let (list, passed, wrong) = (std::sync::Arc::clone(&list), &passed, &wrong);
                scope.spawn(move || {
                    loop {
                        let next = list.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(step) = next else { return };
                        match runner.run(step) {
                            Ok(true) => {}
                            Ok(false) => passed.store(false, Ordering::Relaxed),
                            Err(error) => *wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
                        }
                    }
                });
            }
        }
    });
    match wrong.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(passed.into_inner()),
    }
}
