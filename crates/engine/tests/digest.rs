//! The same deltas give the same plans to the byte, in whichever process: a digest of the plans of many worlds, computed by two more
//! processes with other environments, memory layouts and threads than this one.

#[path = "worlds/extras.rs"]
mod extras;
mod worlds;

use std::process::Command;

use berth_engine::*;
use extras::{with_extras, with_usage};
use worlds::mixed;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };
const WORLDS: u64 = 2000;
/// Set where this program is to print its digest and no more.
const ASKED: &str = "BERTH_PRINT_DIGEST";
const MARK: &str = "digest of the plans: ";

/// FNV-1a, 64 bits.
fn mix(digest: &mut u64, text: &str) {
    for byte in text.bytes() {
        *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

/// Of all that the first plans of these worlds say, and of one after it.
fn digest() -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325;
    for seed in 1..=WORLDS {
        let mut world = match seed % 4 {
            0 => with_usage(mixed(seed), seed).world(),
            1 => with_extras(mixed(seed), seed).world(),
            _ => mixed(seed).world(),
        };
        for now in [NOW, Millis(4000)] {
            mix(&mut digest, &format!("{:?}", world.plan(now, ALL)));
        }
        mix(&mut digest, &format!("{:?} {:?}", check(&world), world.over_quota()));
    }
    digest
}

/// What another process finds.
fn elsewhere(environment: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "plans_are_the_same_to_the_byte_in_every_process", "--nocapture"]);
    command.env(ASKED, "1").envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, rest) = text.split_once(MARK).unwrap_or_else(|| panic!("no digest in {text}"));
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}

#[test]
fn plans_are_the_same_to_the_byte_in_every_process() {
    let own = format!("{:016x}", digest());
    if std::env::var_os(ASKED).is_some() {
        println!("{MARK}{own}");
        return;
    }
    let long = "x".repeat(10_000);
    for environment in
        [&[("RUST_TEST_THREADS", "1"), ("LANG", "C")][..], &[("TZ", "Asia/Kathmandu"), ("BERTH_LONG", &long)]]
    {
        assert_eq!(elsewhere(environment), own, "under {environment:?}");
    }
}

#[test]
fn the_digest_tells_plans_apart() {
    let (mut one, mut other) = (0, 0);
    mix(&mut one, &format!("{:?}", mixed(5).world().plan(NOW, ALL)));
    mix(&mut other, &format!("{:?}", mixed(7).world().plan(NOW, ALL)));
    assert_ne!(one, other);
}
