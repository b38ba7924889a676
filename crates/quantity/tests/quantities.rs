//! Tests of the texts that Kubernetes accepts or refuses, of Kueue's units, and of canonical output.

use berth_quantity::{Amount, Nano, ParseError, canonical, format, parse_quantity, quota, request, value};

#[test]
fn valid_quantity_text_is_read_as_nano_units() {
    const ONE: i128 = 1_000_000_000;
    let table: &[(&str, i128)] = &[
        ("0", 0),
        ("1", ONE),
        ("+1", ONE),
        ("-1", -ONE),
        (".5", ONE / 2),
        ("5.", 5 * ONE),
        ("1.G", ONE * ONE),
        ("0012", 12 * ONE),
        ("100n", 100),
        ("3u", 3_000),
        ("7m", 7_000_000),
        ("2k", 2_000 * ONE),
        ("1Ki", 1024 * ONE),
        ("1.5Gi", 1_610_612_736 * ONE),
        ("1E", ONE * ONE * ONE),
        ("1Ei", (1 << 60) * ONE),
        ("1e3", 1_000 * ONE),
        ("1E3", 1_000 * ONE),
        ("1e+3", 1_000 * ONE),
        ("125e-3", 125_000_000),
        ("0.0000000001", 1),
        ("-0.0000000001", -1),
        ("1.0000000001", ONE + 1),
        ("0.1Ki", 102_400_000_000),
        ("0.0000000000001Ki", 1),
        ("1e-400", 1),
        ("0e999999999999999999999", 0),
    ];
    for (text, nano) in table {
        assert_eq!(parse_quantity(text), Ok(Nano(*nano)), "{text}");
    }
}

#[test]
fn malformed_or_negative_quantity_text_is_refused() {
    for text in [
        "", " 1", "1 ", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", "1e", "--1",
        "1KI", "1Kib", "1e5.0", "0x10", "١",
    ] {
        assert!(parse_quantity(text).is_err(), "{text:?}");
    }
    assert_eq!(quota("cpu", "-1"), Err(ParseError::Negative("-1".into())));
    assert_eq!(request("cpu", "-1m"), Err(ParseError::Negative("-1m".into())));
}

#[test]
fn quantity_is_read_in_resource_units_and_bounded_to_i64() {
    let table: &[(&str, &str, i64)] = &[
        ("cpu", "500m", 500),
        ("cpu", "1500m", 1500),
        ("cpu", "1P", 1_000_000_000_000_000_000),
        ("cpu", "10000000000000000", i64::MAX),
        ("cpu", "0.0001", 1),
        ("memory", "512Mi", 536_870_912),
        ("memory", "100Ei", i64::MAX),
        ("memory", "1500m", 2),
        ("example.com/gpu", "9223372036854775807", i64::MAX),
        ("example.com/gpu", "9223372036854775808", i64::MAX),
        ("example.com/gpu", "100000000000000000000", i64::MAX),
        ("example.com/gpu", "-100000000000000000000", i64::MIN),
        ("example.com/gpu", "-3", -3),
        ("example.com/gpu", "99999999999999999999999999999999999999999999999999999", i64::MAX),
    ];
    for (resource, text, units) in table {
        assert_eq!(value(resource, text), Ok(Amount::new(*units)), "{resource} {text}");
    }
    assert_eq!(quota("cpu", "10P"), Ok(Amount::UNLIMITED));
    assert_eq!(quota("memory", "10E"), Ok(Amount::UNLIMITED));
    // Kueue compares whole cores: a quota of the last number of whole cores that fits is unlimited already.
    assert_eq!(quota("cpu", "9223372036854775"), Ok(Amount::UNLIMITED));
    assert_eq!(quota("cpu", "9223372036854774999m"), Ok(Amount::new(9_223_372_036_854_774_999)));
    assert_eq!(request("cpu", "9223372036854775"), Ok(Amount::new(9_223_372_036_854_775_000)));
    assert_eq!(quota("memory", "9223372036854775806"), Ok(Amount::new(i64::MAX - 1)));
}

#[test]
fn amount_is_formatted_as_canonical_kubernetes_quantity() {
    let table: &[(&str, i64, &str)] = &[
        ("cpu", 0, "0"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 2_000_000, "2k"),
        ("memory", 1000, "1k"),
        ("memory", 1024, "1Ki"),
        ("memory", 1_572_864, "1536Ki"),
        ("memory", 128_000, "125Ki"),
        ("memory", 1_500_000, "1500k"),
        ("memory", 100_000, "100k"),
        ("memory", 1 << 30, "1Gi"),
        ("hugepages-2Mi", 1 << 21, "2Mi"),
        ("example.com/gpu", 1500, "1500"),
        ("example.com/gpu", 1000, "1k"),
        ("pods", -5, "-5"),
        ("cpu", i64::MAX, "9223372036854775807m"),
    ];
    for (resource, units, text) in table {
        assert_eq!(format(resource, Amount::new(*units)), *text, "{resource} {units}");
        assert_eq!(value(resource, text), Ok(Amount::new(*units)), "{resource} {text}");
    }
}

#[test]
fn amount_arithmetic_saturates_and_unlimited_stays_unlimited() {
    assert_eq!(Amount::UNLIMITED.sub(Amount::new(5)), Amount::UNLIMITED);
    assert_eq!(Amount::new(i64::MAX - 1).add(Amount::new(5)), Amount::UNLIMITED);
    assert_eq!(Amount::new(i64::MIN).sub(Amount::new(5)), Amount::new(i64::MIN));
    assert_eq!(Amount::new(i64::MAX / 2).mul(3), Amount::UNLIMITED);
}

/// Texts that apimachinery 0.36.2 writes for texts that it has read, produced by a Go program. Apimachinery keeps some texts as it read them.
#[test]
fn canonical_quantity_text_equals_that_of_kubernetes() {
    let table = "
        0=0 -0=0 00=0 0m=0 0Gi=0 0.0=0 1=1 +1=+1 -1=-1 +01=+01 010=010 5.=5. 1.5=1500m 1.500=1.500 1.50=1500m
        1.100k=1.100k .5=500m 0.5=500m 0.500=500m 1000m=1 1100m=1100m 100m=100m 1500m=1500m 1000=1k 1000000=1M
        12000k=12M 1024=1024 1024Ki=1Mi 1023Ki=1023Ki 1025Ki=1025Ki 1028Ki=1028Ki 1024Mi=1Gi 1536Mi=1536Mi
        1.5Gi=1536Mi 1Gi=1Gi 01Gi=01Gi +1Gi=+1Gi -1Gi=-1Gi -1024Mi=-1Gi 8Gi=8Gi 0.5Gi=512Mi 0.1Gi=107374182400m
        0.5Ki=512 1.1Ki=1126400m 0.1Ki=102400m 100Ki=100Ki 2048=2048 1Ei=1Ei 8Ei=9223372036854775807 7Ei=7Ei
        0.0000000001=1n 1n=1n 1000n=1u 1500n=1500n 1u=1u 0.1m=100u 1e3=1e3 1E3=1E3 1e2=100 1e-3=1e-3 10e3=10e3
        1e0=1e0 1000e0=1e3 12e6=12e6 1.5e3=1500 1.25e1=12500e-3 123456789012345678=123456789012345678
        1234567890123456789=1234567890123456789 12345678901234567890=12345678901234567890
        9223372036854775807=9223372036854775807 9223372036854775807Ki=9223372036854775807 1E=1E 1000E=1 1P=1P
        1000P=1E 999999999999999999=999999999999999999 1.000000001=1.000000001 1.0000000001=1000000001n 4Gi=4Gi
        32Gi=32Gi 40Gi=40Gi 30Gi=30Gi 9Ki=9Ki 8Ki=8Ki 16Mi=16Mi 1000Mi=1000Mi 1000Gi=1000Gi 3500Mi=3500Mi -0.5=-500m
        -1500m=-1500m 100k=100k 1000k=1M 1e18=1e18 1e15=1e15 6e1=60
    ";
    for (text, written) in table.split_whitespace().map(|pair| pair.split_once('=').expect("a pair")) {
        assert_eq!(canonical(text).as_deref(), Ok(written), "{text}");
        assert_eq!(canonical(written).as_deref(), Ok(written), "{written}");
    }
    assert!(canonical("").is_err() && canonical("many").is_err() && canonical("1Qi").is_err());
}
