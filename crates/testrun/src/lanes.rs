//! Lanes: lists of steps run at the same time. Each lane runs one step at a time, and takes the next step of its list when that step has ended. A lane whose
//! list is empty takes steps of lists that are shared.

use std::collections::VecDeque;
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::runner::Runner;
use crate::step::Step;

/// A list of steps with the number of its lanes.
pub(crate) struct Lanes {
    /// Steps of the list, in the order in which they begin.
    pub(crate) steps: Vec<Step>,
    /// Number of lanes that run only this list, as long as the list has steps.
    pub(crate) at_once: usize,
    /// True if lanes of other lists take steps of this list after their own lists are empty.
    pub(crate) is_shared: bool,
}

/// Steps of a list that no lane has taken yet, and whether lanes of other lists may take these steps.
type Waiting = (Mutex<VecDeque<Step>>, bool);

/// The next step for a lane whose list has the index `own`.
fn next(lists: &[Waiting], own: usize) -> Option<Step> {
    let take = |(list, _): &Waiting| list.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    lists.get(own).and_then(take).or_else(|| lists.iter().filter(|(_, is_shared)| *is_shared).find_map(take))
}

/// Runs several lists of steps at the same time, and continues after failed steps. The function returns `Ok(false)` if a step failed.
///
/// # Errors
/// A step cannot be started.
pub(crate) fn run(runner: &Runner, lists: Vec<Lanes>) -> Result<bool> {
    runner.expect(lists.iter().map(|list| list.steps.len()).sum());
    let passed = AtomicBool::new(true);
    let wrong: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let lanes: Vec<usize> = lists.iter().map(|list| list.at_once).collect();
    let lists: Vec<Waiting> =
        lists.into_iter().map(|list| (Mutex::new(VecDeque::from(list.steps)), list.is_shared)).collect();
    thread::scope(|scope| {
        for own in lanes.iter().enumerate().flat_map(|(own, at_once)| iter::repeat_n(own, *at_once)) {
            let (lists, passed, wrong) = (&lists, &passed, &wrong);
            scope.spawn(move || {
                while let Some(step) = next(lists, own) {
                    match runner.run(step) {
                        Ok(true) => {}
                        Ok(false) => passed.store(false, Ordering::Relaxed),
                        Err(error) => *wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
                    }
                }
            });
        }
    });
    match wrong.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(passed.into_inner()),
    }
}
