//! Berth: testkit.
