//! Random numbers that are the same on every machine.

/// A generator of random numbers (xorshift64*), which depend only on the seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator of random numbers with the given seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A random number from 0, below `end`.
    ///
    /// # Panics
    ///
    /// Panics if `end` is zero.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).expect("31 bits") % end
    }

    /// A random number of seconds from `from`, below `to`.
    pub fn seconds(&mut self, from: usize, to: usize) -> i64 {
        i64::try_from(from + self.below(to - from)).expect("31 bits")
    }

    /// A random number of milliseconds from `from` to `to`.
    pub fn millis(&mut self, from: u64, to: u64) -> u64 {
        let width = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).saturating_add(1);
        from + self.below(width) as u64
    }

    /// A random bool that is true in `share` of a thousand cases.
    pub fn per_mille(&mut self, share: usize) -> bool {
        self.below(1_000) < share
    }

    /// A random bool that is true in half of the cases.
    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A random element of a list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
