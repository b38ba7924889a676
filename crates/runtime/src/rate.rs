//! A token bucket on the monotonic clock.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A token bucket for a rate limit; a bucket without a rate always has tokens.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Option<f64>,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full token bucket that gains `rate` tokens per second (`None` means no limit) and holds at most `burst` tokens.
    #[must_use]
    pub fn new(rate: Option<f64>, burst: f64, now: Instant) -> Self {
        let burst = burst.max(1.0);
        Self { rate: rate.filter(|rate| *rate > 0.0), burst, tokens: burst, filled: now }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty; the error is the time until it has a token.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        self.take_many(1.0, now)
    }

    /// Takes `count` tokens from the bucket at once, or all tokens of a full bucket if `count` is larger than the bucket.
    ///
    /// # Errors
    /// The bucket has too few tokens; the error is the time until it has enough.
    pub fn take_many(&mut self, count: f64, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        let wanted = count.min(self.burst);
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens = (self.tokens + passed * rate).min(self.burst);
        if self.tokens >= wanted {
            self.tokens -= wanted;
            return Ok(());
        }
        Err(Duration::from_secs_f64((wanted - self.tokens) / rate))
    }
}

/// A token bucket that several tasks share.
#[derive(Clone, Debug)]
pub struct Rate(Arc<Mutex<Bucket>>);

impl Rate {
    /// Shares a token bucket.
    #[must_use]
    pub fn new(bucket: Bucket) -> Self {
        Self(Arc::new(Mutex::new(bucket)))
    }

    /// Waits for a token of the bucket and takes the token; waiting tasks get tokens in order of arrival, so that no task starves.
    pub async fn take(&self) {
        let mut bucket = self.0.lock().await;
        while let Err(pause) = bucket.take(Instant::now()) {
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::pin::pin;

    #[tokio::test]
    async fn token_bucket_allows_a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Some(10.0), 3.0, start);
        for _ in 0..3 {
            assert!(bucket.take(start).is_ok());
        }
        let pause = bucket.take(start).unwrap_err();
        assert!((pause.as_secs_f64() - 0.1).abs() < 1e-9, "{pause:?}");
        assert!(bucket.take(start + Duration::from_millis(101)).is_ok());
        assert!(bucket.take(start + Duration::from_millis(102)).is_err());
        assert!(bucket.take_many(2.0, start + Duration::from_millis(250)).is_err());
        assert!(bucket.take_many(2.0, start + Duration::from_millis(350)).is_ok());
        assert!(
            bucket.take_many(9.0, start + Duration::from_secs(9)).is_ok(),
            "a full bucket is enough for any number"
        );
        let mut endless = Bucket::new(None, 1.0, start);
        assert!((0..1000).all(|_| endless.take(start).is_ok()));
    }

    #[tokio::test]
    async fn rate_limited_waiter_is_not_overtaken_by_later_ones() {
        let rate = Rate::new(Bucket::new(Some(50.0), 1.0, Instant::now()));
        rate.take().await;
        let mut first = pin!(rate.take());
        assert!(first.as_mut().now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(rate.take().now_or_never().is_none(), "the token is for who waited for it");
        first.await;
        rate.take().await;
    }
}
