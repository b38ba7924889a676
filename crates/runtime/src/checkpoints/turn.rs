//! Serialization of blocking calls in a mounted folder: on a hanging mount, each call occupies its thread for ever, and the number of threads is limited.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::FolderError;

/// Time without progress after which a call counts as hanging, so that other calls fail instead of waiting.
const SILENCE: Duration = Duration::from_secs(5);

/// Order of the calls in a mounted folder.
#[derive(Debug)]
pub(super) struct Turn {
    free: Arc<Semaphore>,
    silence: Duration,
    /// Origin of the times, by the monotonic clock and by the wall clock.
    begin: (Instant, Timestamp),
    /// Time of the last progress of a call, in milliseconds since the origin.
    stepped: AtomicU64,
}

impl Default for Turn {
    fn default() -> Self {
        Self::with_silence(SILENCE)
    }
}

impl Turn {
    pub(super) fn with_silence(silence: Duration) -> Self {
        let (free, begin) = (Arc::new(Semaphore::new(1)), (Instant::now(), Timestamp::now()));
        Self { free, silence, begin, stepped: AtomicU64::new(0) }
    }

    /// Waits for earlier calls, as long as they make progress. [`Call`] is for the thread that makes the call, and [`Wanted`] for the task that waits for its
    /// result.
    pub(super) async fn take(self: &Arc<Self>) -> Result<(Call, Wanted), FolderError> {
        let free = self.wait().await?;
        self.step();
        let unwanted = Arc::new(AtomicBool::new(false));
        let call = Call { turn: Arc::clone(self), unwanted: Arc::clone(&unwanted), _free: free };
        Ok((call, Wanted(unwanted)))
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, FolderError> {
        if let Ok(free) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(free);
        }
        let mut free = Box::pin(Arc::clone(&self.free).acquire_owned());
        loop {
            let left = self.patience()?;
            if let Ok(free) = tokio::time::timeout(left, &mut free).await {
                return free.map_err(FolderError::from);
            }
        }
    }

    /// Time for which the running call may continue without progress before it counts as hanging.
    fn patience(&self) -> Result<Duration, FolderError> {
        let stepped = self.stepped.load(Ordering::Relaxed);
        let silent = self.begin.0.elapsed().saturating_sub(Duration::from_millis(stepped));
        match self.silence.checked_sub(silent) {
            Some(left) => Ok(left.saturating_add(Duration::from_millis(1))),
            None => Err(FolderError::Hanging(self.time(stepped))),
        }
    }

    /// Time of day `stepped` milliseconds after the origin, rounded down to a second.
    fn time(&self, stepped: u64) -> Timestamp {
        let since = SignedDuration::from_millis(i64::try_from(stepped).unwrap_or(i64::MAX));
        let time = self.begin.1.checked_add(since).unwrap_or(self.begin.1);
        Timestamp::from_second(time.as_second()).unwrap_or(time)
    }

    fn step(&self) {
        let now = u64::try_from(self.begin.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.stepped.store(now, Ordering::Relaxed);
    }
}

/// A running call, for its thread. The next call begins when this value is dropped.
#[derive(Debug)]
pub(super) struct Call {
    turn: Arc<Turn>,
    unwanted: Arc<AtomicBool>,
    _free: OwnedSemaphorePermit,
}

impl Call {
    /// Notes progress of the call: the folder has answered. Returns an error if no task waits for the result.
    pub(super) fn step(&self) -> io::Result<()> {
        self.turn.step();
        if self.unwanted.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(())
    }
}

impl Drop for Call {
    /// Waiting calls measure the time without progress from the end of this call.
    fn drop(&mut self) {
        self.turn.step();
    }
}

/// Marker of a task that waits for the result of a call. Dropping the marker cancels the call at its next step.
#[derive(Debug)]
pub(super) struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
