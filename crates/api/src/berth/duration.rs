//! Durations as users of Berth's kinds write them, such as `90s`, `10m` and `1h30m`.

use serde_json::Value;

use super::text::text_rule;

/// Pattern of a duration: at least one of hours, minutes and seconds, each at most once and in this order.
pub(super) const DURATION: &str = "^([0-9]{1,6}h([0-9]{1,6}m)?([0-9]{1,6}s)?|[0-9]{1,6}m([0-9]{1,6}s)?|[0-9]{1,6}s)$";

/// Schema rule for the text of a duration that may be `0s`.
pub(super) fn duration_rule() -> Value {
    text_rule(&format!("self.matches('{DURATION}')"), "must be a time such as 90s, 10m or 1h30m")
}

/// Schema rule for the text of a duration that must not be `0s`.
pub(super) fn some_time() -> Value {
    text_rule(
        &format!("self.matches('{DURATION}') && self.matches('[1-9]')"),
        "must be a time such as 90s, 10m or 1h30m, longer than 0",
    )
}

/// The duration in seconds; `None` for a text that is no duration.
#[must_use]
pub fn duration_seconds(text: &str) -> Option<i64> {
    let (mut total, mut rest, mut found) = (0_i64, text, false);
    for (unit, seconds) in [('h', 3600_i64), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else { continue };
        if number.is_empty() || number.len() > 6 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        total = total.saturating_add(number.parse::<i64>().ok()?.saturating_mul(seconds));
        (rest, found) = (after, true);
    }
    (found && rest.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_read_as_hours_minutes_seconds_in_that_order() {
        for (text, seconds) in
            [("90s", 90), ("10m", 600), ("1h30m", 5_400), ("1h0m1s", 3_601), ("0s", 0), ("999999h", 3_599_996_400)]
        {
            assert_eq!(duration_seconds(text), Some(seconds), "{text}");
        }
        for text in ["", "10", "s", "1m1h", "1.5h", "-1s", "1d", "1s1s", "10 m", "9999999s", "h1m"] {
            assert_eq!(duration_seconds(text), None, "{text}");
        }
    }
}
