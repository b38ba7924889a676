//! Serialization of blocking calls in a mounted folder: on a hanging mount, each call occupies its thread for ever, and the number of threads is limited.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::FolderError;

/// Time without progress after which a call in a mounted folder counts as hanging, so that other calls in the folder fail instead of waiting.
const SILENCE: Duration = Duration::from_secs(5);

/// Order of the calls in a mounted folder: one call runs at a time, and later calls wait.
#[derive(Debug)]
pub(super) struct Turn {
    free: Arc<Semaphore>,
    silence: Duration,
    /// The moment from which `stepped` is measured, by the monotonic clock and by the wall clock.
    begin: (Instant, Timestamp),
    /// Time of the last progress of a call in the mounted folder, in milliseconds since `begin`.
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

    /// Waits for earlier calls in the mounted folder, as long as these calls make progress. The returned [`Call`] is for the thread that makes the call in the
    /// folder, and [`Wanted`] is for the task that waits for the call's result.
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

    /// Time for which the running call in the mounted folder may continue without progress before the call counts as hanging.
    fn patience(&self) -> Result<Duration, FolderError> {
        let stepped = self.stepped.load(Ordering::Relaxed);
        let silent = self.begin.0.elapsed().saturating_sub(Duration::from_millis(stepped));
        match self.silence.checked_sub(silent) {
            Some(left) => Ok(left.saturating_add(Duration::from_millis(1))),
            None => Err(FolderError::Hanging(self.time(stepped))),
        }
    }

    /// Time of day `stepped` milliseconds after the moment `begin`, rounded down to a second.
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

/// A running call in a mounted folder, for the thread that makes the call. The next call in the folder begins when this value is dropped.
#[derive(Debug)]
pub(super) struct Call {
    turn: Arc<Turn>,
    unwanted: Arc<AtomicBool>,
    _free: OwnedSemaphorePermit,
}

impl Call {
    /// Notes that the mounted folder has answered a step of the call. Returns an error if no task waits for the call's result.
    pub(super) fn step(&self) -> io::Result<()> {
        self.turn.step();
        if self.unwanted.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        Ok(())
    }
}

impl Drop for Call {
    /// Calls that wait for the mounted folder measure the time without progress from the end of the call that is dropped.
    fn drop(&mut self) {
        self.turn.step();
    }
}

/// Marker of a task that waits for the result of a call. Dropping this marker cancels the call in the mounted folder at the call's next step.
#[derive(Debug)]
pub(super) struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
