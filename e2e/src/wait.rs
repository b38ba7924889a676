//! Level-triggered waits: a wait looks at the state until the wanted state has come or the time is over, and then reports the last observed state.
//!
//! A scenario's wait looks again when the observer has seen a change of one of the scenario's objects ([`Changes`]); without an observer the pauses
//! between two looks grow. A long wait therefore costs the API server next to nothing.

use std::fmt::Write as _;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::sync::watch;

use crate::test_clock;

/// Shortest pause between two looks of a wait.
const PERIOD: Duration = Duration::from_millis(50);
/// Time for which a wait collects further changes before it looks again.
const CROWD: Duration = Duration::from_millis(100);
/// Longest pause between two looks of a wait without a source of changes.
const LONG_PERIOD: Duration = Duration::from_millis(250);
/// Longest pause between two looks of a wait with a source of changes: the awaited state may be something other than an object.
const SELDOM: Duration = Duration::from_millis(500);

tokio::task_local! {
    /// The source of notifications about changed objects of the scenario that runs in this task; the scenario's waits use it.
    static CHANGES: Changes;
}

/// A source of notifications that objects have changed, at which a wait looks at the awaited state again.
#[derive(Clone, Debug)]
pub struct Changes(watch::Receiver<u64>);

impl Changes {
    /// A source that notifies waits of each number that is sent into the channel `changes`: the number of observed changes so far.
    #[must_use]
    pub fn new(changes: watch::Receiver<u64>) -> Changes {
        Changes(changes)
    }

    /// Runs the future `work`, whose waits are notified by this source of changes.
    pub async fn notify<F: Future>(self, work: F) -> F::Output {
        CHANGES.scope(self, work).await
    }

    /// Returns at the next change, or after `SELDOM` without a change.
    async fn next(&mut self) {
        // If the sender of the changes is gone, the function only pauses.
        if let Ok(Err(_)) = tokio::time::timeout(SELDOM, self.0.changed()).await {
            tokio::time::sleep(LONG_PERIOD).await;
        }
    }
}

/// The pauses between the looks of one wait.
struct Pauses {
    changes: Option<Changes>,
    next: Duration,
}

impl Pauses {
    fn new() -> Pauses {
        let mut changes = CHANGES.try_with(Clone::clone).ok();
        // The wait's first look sees every change from before that look.
        if let Some(Changes(receiver)) = &mut changes {
            receiver.mark_unchanged();
        }
        Pauses { changes, next: PERIOD }
    }

    async fn pause(&mut self) {
        match &mut self.changes {
            Some(changes) => {
                changes.next().await;
                // Changes of objects come in groups, and the state after the last change of a group matters for a wait.
                tokio::time::sleep(CROWD).await;
            }
            None => {
                tokio::time::sleep(self.next).await;
                self.next = (self.next * 3 / 2).min(LONG_PERIOD);
            }
        }
    }
}

/// Usual time limit for one step of a scenario: three times the longest step on an idle machine, and less than the minute after which Berth writes a
/// text again, repeats an event or checks again what is stored.
pub const STEP: Duration = Duration::from_secs(50);

/// Answer of one look at an awaited state.
#[derive(Debug)]
pub enum Seen<T> {
    /// The wanted state has come.
    Yes(T),
    /// The wanted state has not come; the text is the observed state.
    NotYet(String),
}

impl Seen<()> {
    /// [`Seen::Yes`] if `there` is true, that is, if the wanted state has come; otherwise [`Seen::NotYet`] with the description of the observed state.
    pub fn when(there: bool, description: impl FnOnce() -> String) -> Seen<()> {
        if there { Seen::Yes(()) } else { Seen::NotYet(description()) }
    }
}

/// Waits for a state: calls the function `look` until it answers [`Seen::Yes`].
///
/// # Errors
/// Fails after `limit` on the clock of [`test_clock`], with `what` and the different observed states (the newest one last). An error of `look` counts as
/// "not yet", because the API server may be unavailable for a moment, which is the subject of some tests.
pub async fn until<T, F, Fut>(limit: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<T>>>,
{
    let (begun, limited) = (Instant::now(), test_clock::now());
    let mut history: Vec<(Duration, String)> = Vec::new();
    let mut pauses = Pauses::new();
    loop {
        let seen = match look().await {
            Ok(Seen::Yes(value)) => return Ok(value),
            Ok(Seen::NotYet(text)) => text,
            Err(e) => format!("error: {e:#}"),
        };
        if history.last().is_none_or(|(_, last)| *last != seen) {
            history.push((begun.elapsed(), seen));
        }
        if test_clock::now() - limited > limit {
            let mut text = String::new();
            for (at, seen) in history.iter().rev().take(8).rev() {
                let _ = write!(text, "\n  after {:.2} s: {seen}", at.as_secs_f64());
            }
            bail!(
                "waited {:.1} s in vain for: {what} ({}); seen:{text}",
                begun.elapsed().as_secs_f64(),
                test_clock::summary()
            );
        }
        pauses.pause().await;
    }
}

/// Asks `look` for the full `period` and fails as soon as `look` answers anything but [`Seen::Yes`]. An error of `look` says nothing about the state:
/// after an error the wait goes on until `look` has answered after the end of the period, too.
///
/// # Errors
/// Fails if the state is left within the period, or if `look` fails for longer than [`STEP`].
pub async fn stays<F, Fut>(period: Duration, what: &str, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<()>>>,
{
    let begun = Instant::now();
    let mut answered = false;
    let mut pauses = Pauses::new();
    while begun.elapsed() < period || !answered {
        match look().await {
            Ok(Seen::Yes(())) => answered = true,
            Ok(Seen::NotYet(text)) => bail!(
                "did not stay for {:.1} s: {what}; after {:.2} s: {text}",
                period.as_secs_f64(),
                begun.elapsed().as_secs_f64()
            ),
            Err(e) if begun.elapsed() > period + STEP => return Err(e.context(format!("looking whether {what}"))),
            Err(_) => answered = false,
        }
        pauses.pause().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn stays_check_ignores_errors_and_fails_when_the_state_ends() {
        let period = Duration::from_millis(120);
        let looks = Cell::new(0);
        let look = |left: bool| {
            looks.set(looks.get() + 1);
            let number = looks.get();
            async move {
                match number {
                    1 | 2 => bail!("busy"),
                    _ if left => Ok(Seen::NotYet("gone".to_owned())),
                    _ => Ok(Seen::Yes(())),
                }
            }
        };
        assert!(stays(period, "it is there", || look(false)).await.is_ok());
        assert!(looks.get() > 2, "errors alone prove nothing");
        looks.set(0);
        assert!(stays(period, "it is there", || look(true)).await.is_err_and(|e| e.to_string().contains("gone")));
        looks.set(0);
        // The state is checked once more at the end of any period, even of an empty one.
        assert!(stays(Duration::ZERO, "it is there", || look(true)).await.is_err());
    }
}
