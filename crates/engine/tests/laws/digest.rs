//! Law of determinism: equal deltas give plans that are equal to the byte in every process. Two more processes, with other environments, memory layouts and
//! threads, compute the digest of the plans of many worlds.

use std::process::{Child, Command, Stdio};

use crate::extras::{with_extras, with_usage};
use crate::worlds::{gates, mixed, seeds};
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };
/// Environment variable that is set if this program has to print its digest and nothing more.
const ASKED: &str = "BERTH_PRINT_DIGEST";
const MARK: &str = "digest of the plans: ";

/// FNV-1a, 64 bits.
fn mix(digest: &mut u64, text: &str) {
    for byte in text.bytes() {
        *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

/// Digest of the first plans of the worlds of all seeds, and of a later plan of each world.
fn digest() -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325;
    for seed in seeds() {
        let mut objects = mixed(seed);
        objects.options.gates = gates(seed);
        let mut world = match seed % 4 {
            0 => with_usage(objects, seed).world(),
            1 => with_extras(objects, seed).world(),
            _ => objects.world(),
        };
        for now in [NOW, Millis(4000)] {
            mix(&mut digest, &format!("{:?}", world.plan(now, ALL)));
        }
        mix(&mut digest, &format!("{:?} {:?}", check(&world), world.over_quota()));
    }
    digest
}

/// Starts another process that computes the digest.
fn start(environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "laws::digest::plans_are_the_same_to_the_byte_in_every_process", "--nocapture"]);
    command.env(ASKED, "1").envs(environment.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The digest of plans that another process of the test prints.
fn found_by(process: Child) -> String {
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, rest) = text.split_once(MARK).unwrap_or_else(|| panic!("no digest in {text}"));
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}

#[test]
fn plans_are_the_same_to_the_byte_in_every_process() {
    let own = || format!("{:016x}", digest());
    if std::env::var_os(ASKED).is_some() {
        println!("{MARK}{}", own());
        return;
    }
    let long = "x".repeat(10_000);
    let environments =
        [&[("RUST_TEST_THREADS", "1"), ("LANG", "C")][..], &[("TZ", "Asia/Kathmandu"), ("BERTH_LONG", &long)]];
    // The processes that compute the digest run at the same time, because this takes no longer than one process after the other.
    let others = environments.map(start);
    let own = own();
    for (other, environment) in others.into_iter().zip(environments) {
        assert_eq!(found_by(other), own, "under {environment:?}");
    }
}

#[test]
fn digest_of_different_plans_differs() {
    let (mut one, mut other) = (0, 0);
    mix(&mut one, &format!("{:?}", mixed(5).world().plan(NOW, ALL)));
    mix(&mut other, &format!("{:?}", mixed(7).world().plan(NOW, ALL)));
    assert_ne!(one, other);
}
