//! Law Q4: random texts are read with the same result as by a slow reader that was written apart from the code. The slow reader keeps every decimal digit and
//! has no number that can overflow.
//!
//! A failure names its text. `BERTH_CASES` sets the number of texts, `BERTH_SEED` the first seed; `BERTH_SHARD=2/8` tries the second of eight parts of the
//! texts, as in the engine's laws.

use berth_quantity::{Amount, Nano, ParseError, format, parse_quantity, quota, request, value};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds() -> std::ops::Range<u64> {
    let shard = std::env::var("BERTH_SHARD").unwrap_or_else(|_| "1/1".to_owned());
    let seeds = part(number("BERTH_SEED", 1), number("BERTH_CASES", 100_000), &shard);
    crate::noted::note("quantity", seeds.end - seeds.start);
    seeds
}

/// The seeds of a part such as `2/8` of the `all` seeds that begin with the seed `first`.
fn part(first: u64, all: u64, shard: &str) -> std::ops::Range<u64> {
    let parts = shard.split_once('/').and_then(|(part, of)| Some((part.parse::<u64>().ok()?, of.parse::<u64>().ok()?)));
    let known = parts.filter(|(part, of)| (1..=*of).contains(part));
    let (part, of) = known.unwrap_or_else(|| panic!("BERTH_SHARD is {shard:?}, and is to be like 2/8"));
    first + all * (part - 1) / of..first + all * part / of
}

/// The random number generator xorshift, which is good enough for random texts.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }

    fn digits(&mut self, most: usize) -> String {
        let count = self.below(most + 1);
        // Zeros and nines are frequent among the digits, because rounding and carrying happen at zeros and nines.
        (0..count).map(|_| ['0', '0', '0', '9', '1', '2', '5', '7'][self.below(8)]).collect()
    }
}

const SUFFIXES: [(&str, Scale); 16] = [
    ("n", Scale::Ten(-9)),
    ("u", Scale::Ten(-6)),
    ("m", Scale::Ten(-3)),
    ("", Scale::Ten(0)),
    ("k", Scale::Ten(3)),
    ("M", Scale::Ten(6)),
    ("G", Scale::Ten(9)),
    ("T", Scale::Ten(12)),
    ("P", Scale::Ten(15)),
    ("E", Scale::Ten(18)),
    ("Ki", Scale::Two(10)),
    ("Mi", Scale::Two(20)),
    ("Gi", Scale::Two(30)),
    ("Ti", Scale::Two(40)),
    ("Pi", Scale::Two(50)),
    ("Ei", Scale::Two(60)),
];

#[derive(Clone, Copy)]
enum Scale {
    Ten(i64),
    Two(u32),
}

/// A number of any size: its decimal digits in order, and the number of digits behind the point.
struct Exact {
    is_negative: bool,
    digits: Vec<u8>,
    behind: i64,
}

/// Sign of a number in a text, and the rest of the text.
fn sign(text: &str) -> (bool, &str) {
    match text.chars().next() {
        Some('-') => (true, &text[1..]),
        Some('+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn leading_digits(text: &str) -> (&str, &str) {
    let count = text.chars().take_while(char::is_ascii_digit).count();
    (&text[..count], &text[count..])
}

/// Value of a text, or `None` if Kubernetes refuses the text. A text without any digit is zero, as in Kubernetes.
fn read(text: &str) -> Option<Exact> {
    if text.is_empty() {
        return None;
    }
    let (is_negative, rest) = sign(text);
    let (integer, rest) = leading_digits(rest);
    let (part, rest) = if let Some(rest) = rest.strip_prefix('.') { leading_digits(rest) } else { ("", rest) };
    let known = SUFFIXES.iter().find(|(suffix, _)| *suffix == rest).map(|(_, scale)| *scale);
    let scale = match known {
        Some(scale) => scale,
        None => {
            let (is_below, exponent) = sign(rest.strip_prefix(['e', 'E'])?);
            if exponent.is_empty() || !leading_digits(exponent).1.is_empty() {
                return None;
            }
            // A text has fewer than a hundred digits, so an exponent of a thousand has the same effect as any larger exponent.
            let exponent = exponent.bytes().fold(0_i64, |sum, byte| (sum * 10 + i64::from(byte - b'0')).min(1000));
            Scale::Ten(if is_below { -exponent } else { exponent })
        }
    };
    let mut digits: Vec<u8> = integer.bytes().chain(part.bytes()).map(|byte| byte - b'0').collect();
    let mut behind = i64::try_from(part.len()).unwrap();
    match scale {
        Scale::Ten(exponent) => behind -= exponent,
        Scale::Two(times) => (0..times).for_each(|_| double(&mut digits)),
    }
    Some(Exact { is_negative, digits, behind })
}

/// Doubles a number that is given in decimal digits.
fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let twice = *digit * 2 + carry;
        (*digit, carry) = (twice % 10, twice / 10);
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

impl Exact {
    /// The number in units of ten to the minus `places`, rounded away from zero; `None` if the result is above `most`.
    fn units(&self, places: i64, most: i128) -> Option<i128> {
        let behind = self.behind - places;
        let count = i64::try_from(self.digits.len()).unwrap();
        let (mut before, mut rest) = (self.digits.clone(), Vec::new());
        if behind > 0 {
            rest = before.split_off(usize::try_from((count - behind).max(0)).unwrap());
        } else {
            before.extend(std::iter::repeat_n(0, usize::try_from(-behind).unwrap()));
        }
        let mut units = 0_i128;
        for digit in before {
            units = units.checked_mul(10)?.checked_add(i128::from(digit))?;
        }
        units = units.checked_add(i128::from(rest.iter().any(|digit| *digit > 0)))?;
        (units <= most).then_some(if self.is_negative { -units } else { units })
    }

    fn is_zero(&self) -> bool {
        self.digits.iter().all(|digit| *digit == 0)
    }
}

/// A random text: in most cases a valid quantity, in some cases a quantity with an error.
fn random_text(dice: &mut Dice) -> String {
    let sign = ["", "", "", "", "-", "+"][dice.below(6)];
    let most = [2, 4, 12, 20, 45][dice.below(5)];
    let (integer, part) = (dice.digits(most), dice.digits(most));
    let point = if dice.below(2) == 0 { format!(".{part}") } else { String::new() };
    let suffix = match dice.below(4) {
        0 => {
            let power = [0, 1, 9, 30, 99, 5_000_000_000_u64][dice.below(6)];
            format!("{}{}{power}", ["e", "E"][dice.below(2)], ["", "+", "-"][dice.below(3)])
        }
        _ => SUFFIXES[dice.below(SUFFIXES.len())].0.to_owned(),
    };
    let mut text: Vec<char> = format!("{sign}{integer}{point}{suffix}").chars().collect();
    if dice.below(3) == 0 {
        let letters: Vec<char> = "0123456789.+-eEinumkKMGTP xЖ".chars().collect();
        for _ in 0..=dice.below(2) {
            let at = dice.below(text.len() + 1);
            match dice.below(3) {
                0 if at < text.len() => drop(text.remove(at)),
                1 if at < text.len() => text[at] = letters[dice.below(letters.len())],
                _ => text.insert(at, letters[dice.below(letters.len())]),
            }
        }
    }
    text.into_iter().collect()
}

/// Amount in units of a resource, clamped to the range of an amount.
fn amount(exact: &Exact, resource: &str) -> Amount {
    let places = if resource == "cpu" { 3 } else { 0 };
    let ends = if exact.is_negative { i64::MIN } else { i64::MAX };
    let units = exact.units(places, i128::from(i64::MAX)).and_then(|units| i64::try_from(units).ok());
    Amount::new(units.unwrap_or(ends))
}

#[test]
fn seed_shards_together_cover_all_seeds() {
    assert_eq!(part(1, 10, "1/1"), 1..11);
    let parts: Vec<u64> = (1..=4).flat_map(|each| part(1, 10, &format!("{each}/4"))).collect();
    assert_eq!(parts, (1..11).collect::<Vec<_>>());
    assert_eq!(part(1, 10_000_000, "2/8"), 1_250_001..2_500_001);
}

#[test]
fn random_quantity_text_is_read_like_slow_reference_reader() {
    let (mut read_well, mut refused, mut huge, mut rounded) = (0_u64, 0_u64, 0_u64, 0_u64);
    for seed in seeds() {
        let text = random_text(&mut Dice::new(seed));
        let found = parse_quantity(&text);
        let Some(exact) = read(&text) else {
            refused += 1;
            assert!(found.is_err(), "seed {seed}: {text:?} is no quantity, and is read as {found:?}");
            continue;
        };
        read_well += 1;
        let nano = exact.units(9, i128::MAX);
        huge += u64::from(nano.is_none());
        rounded += u64::from(exact.behind > 9);
        let expected = nano.unwrap_or(if exact.is_negative { -i128::MAX } else { i128::MAX });
        assert_eq!(found, Ok(Nano(expected)), "seed {seed}: {text:?}");
        let is_endless = expected >= 9_223_372_036_854_775_000_000_000;
        for resource in ["cpu", "memory", "example.com/gpu"] {
            let expected = amount(&exact, resource);
            assert_eq!(value(resource, &text), Ok(expected), "seed {seed}: {text:?} of {resource}");
            let bounded = if exact.is_negative && !exact.is_zero() {
                Err(ParseError::Negative(text.clone()))
            } else {
                Ok(expected)
            };
            let limit = if resource == "cpu" && is_endless { Ok(Amount::UNLIMITED) } else { bounded.clone() };
            assert_eq!(quota(resource, &text), limit, "seed {seed}: quota {text:?} of {resource}");
            assert_eq!(request(resource, &text), bounded, "seed {seed}: request {text:?} of {resource}");
        }
    }
    println!("{read_well} read, of them {huge} beyond all bounds and {rounded} rounded; {refused} refused");
    let share = |count: u64, of: u64| seeds().end - seeds().start < 1000 || count > (seeds().end - seeds().start) / of;
    assert!(share(read_well, 2) && share(refused, 20) && share(huge, 50) && share(rounded, 20), "too tame");
}

#[test]
fn formatted_amount_is_read_back_as_same_amount() {
    for seed in seeds() {
        let mut dice = Dice::new(seed);
        let scale = [1, 7, 1000, 1024, 1 << 20, 1_000_000, 1 << 40, i64::MAX][dice.below(8)];
        let units = i64::try_from(dice.below(5000)).unwrap().saturating_sub(500).saturating_mul(scale);
        for resource in ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"] {
            let text = format(resource, Amount::new(units));
            let exact = read(&text).unwrap_or_else(|| panic!("seed {seed}: {text:?} is no quantity"));
            assert_eq!(amount(&exact, resource), Amount::new(units), "seed {seed}: {text:?} of {resource}");
            assert_eq!(value(resource, &text), Ok(Amount::new(units)), "seed {seed}: {text:?} of {resource}");
        }
    }
}
