//! Level-triggered waiting: asks until the state is there or the time is over, and then says what it saw last.

use std::fmt::Write as _;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often the state is asked for.
const PERIOD: Duration = Duration::from_millis(50);

/// Usual deadline of one step of a scenario: three times what the longest takes on a machine that does nothing else, and less than
/// the minute after which Berth tells a text anew, repeats an event or looks again at what is stored.
pub const STEP: Duration = Duration::from_secs(50);

/// Answer of one look.
#[derive(Debug)]
pub enum Seen<T> {
    /// The state is there.
    Yes(T),
    /// Not there; what was seen instead.
    NotYet(String),
}

impl Seen<()> {
    /// `Yes` when `there`, else `NotYet` with the description.
    pub fn when(there: bool, description: impl FnOnce() -> String) -> Seen<()> {
        if there { Seen::Yes(()) } else { Seen::NotYet(description()) }
    }
}

/// Asks `look` until it answers [`Seen::Yes`].
///
/// # Errors
/// After `limit`, with `what` and the different things seen on the way (newest last). An error of `look` counts as
/// "not yet": the API server may be briefly away, which is what some tests are about.
pub async fn until<T, F, Fut>(limit: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<T>>>,
{
    let begun = Instant::now();
    let mut history: Vec<(Duration, String)> = Vec::new();
    loop {
        let seen = match look().await {
            Ok(Seen::Yes(value)) => return Ok(value),
            Ok(Seen::NotYet(text)) => text,
            Err(e) => format!("error: {e:#}"),
        };
        if history.last().is_none_or(|(_, last)| *last != seen) {
            history.push((begun.elapsed(), seen));
        }
        if begun.elapsed() > limit {
            let mut text = String::new();
            for (at, seen) in history.iter().rev().take(8).rev() {
                let _ = write!(text, "\n  after {:.2} s: {seen}", at.as_secs_f64());
            }
            bail!("waited {:.1} s in vain for: {what}; seen:{text}", limit.as_secs_f64());
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Asks `look` for the whole `period` and fails as soon as it answers anything but [`Seen::Yes`]. An error of `look` says nothing: then it
/// is asked on until it has answered after the period, too.
///
/// # Errors
/// When the state is left within the period, or `look` fails for longer than [`STEP`].
pub async fn stays<F, Fut>(period: Duration, what: &str, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<()>>>,
{
    let begun = Instant::now();
    let mut answered = false;
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
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn what_is_not_answered_says_nothing_and_what_is_left_is_told() {
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
        // However short the period is, the last answer counts.
        assert!(stays(Duration::ZERO, "it is there", || look(true)).await.is_err());
    }
}
