//! Amounts of a Queue of Volcano, and the quota that they become. All amounts are exact.

use berth_quantity::{Nano, format_nano, parse_quantity};
use serde_json::{Map, Value, json};

/// Number of digits up to which a number of YAML with a fraction or an exponent is exact.
const EXACT_DIGITS: usize = 15;
/// The allowed form of an amount, for error messages.
const AMOUNT: &str = "an amount of 0 or more is needed, such as 500m, 8 or 64Gi";

/// An amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    /// The amount as its author wrote it, or in Kubernetes' form if it was calculated.
    pub(super) text: String,
    /// The amount in billionths.
    pub(super) nano: i128,
}

impl Figure {
    /// The amount 0.
    pub(super) fn zero() -> Self {
        Self { text: "0".to_owned(), nano: 0 }
    }

    /// Reads an amount, which may be written as a number.
    ///
    /// # Errors
    /// The error says what is allowed.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => {
                let text = number.to_string();
                let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
                let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
                if number.is_f64() && digits.trim_start_matches('0').len() > EXACT_DIGITS {
                    return Err("a number of so many digits is not read exactly; write it in quotes".to_owned());
                }
                text
            }
            _ => return Err(AMOUNT.to_owned()),
        };
        match parse_quantity(&text) {
            Ok(Nano(nano)) if nano >= 0 => Ok(Self { text, nano }),
            _ => Err(AMOUNT.to_owned()),
        }
    }

    /// An amount of a resource, given in billionths of its unit.
    ///
    /// # Errors
    /// The amount has no exact text.
    pub(super) fn made(resource: &str, nano: i128) -> Result<Self, String> {
        let text = format_nano(resource, Nano(nano));
        match parse_quantity(&text) {
            Ok(Nano(read)) if read == nano => Ok(Self { text, nano }),
            _ => {
                Err(format!("{resource}: a quota that is calculated of the amounts is too large to be written exactly"))
            }
        }
    }
}

/// The amounts of one resource in a Queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Volcano's `deserved`: amount of the resource that the Queue may take back from other Queues.
    pub(super) deserved: Option<Figure>,
    /// Volcano's `capability`: amount of the resource that the Queue may use at most.
    pub(super) capability: Option<Figure>,
    /// Volcano's `guarantee`: amount of the resource that no other Queue may use.
    pub(super) guarantee: Option<Figure>,
}

/// The quota of a Queue for one resource, in which `guarantee` is at most `nominal`, and `nominal` is at most `capability`.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// The nominal quota that the Queue's ClusterQueue or Cohort gets, with that of the Queues below it.
    pub(super) nominal: Figure,
    /// The amount that the queue may use at most; no limit if absent.
    pub(super) capability: Option<Figure>,
    /// The part of `nominal` that is not lent; all of it may be lent if absent.
    pub(super) guarantee: Option<Figure>,
    /// Fields of the Queue's spec whose amount was changed to fit the others, with the reason.
    pub(super) adjusted: Vec<(&'static str, &'static str)>,
}

impl Figures {
    /// Whether the queue's own quota is its limit, because it has no `deserved`.
    pub(super) fn owns_its_limit(&self) -> bool {
        self.deserved.is_none() && self.capability.is_some()
    }

    /// The quota of a Queue for one resource, whose `nominal` is `deserved`, else `capability`, else `guarantee`, within the bounds that Volcano's plugin
    /// `capacity` sets to `deserved`.
    pub(super) fn share(&self) -> Share {
        let above = "is above the capability, which Volcano never exceeds; the capability counts";
        let below = "is below the guarantee, to which Volcano raises it; the guarantee counts";
        let mut adjusted = Vec::new();
        let guarantee = match (&self.guarantee, &self.capability) {
            (Some(guarantee), Some(limit)) if guarantee.nano > limit.nano => {
                adjusted.push(("guarantee.resource", above));
                Some(limit.clone())
            }
            (guarantee, _) => guarantee.clone(),
        };
        let nominal = match (&self.deserved, &self.capability) {
            (Some(deserved), Some(limit)) if deserved.nano > limit.nano => {
                adjusted.push(("deserved", above));
                limit.clone()
            }
            (Some(figure), _) | (None, Some(figure)) => figure.clone(),
            (None, None) => guarantee.clone().unwrap_or_else(Figure::zero),
        };
        let nominal = match &guarantee {
            Some(guarantee) if guarantee.nano > nominal.nano => {
                adjusted.push(("deserved", below));
                guarantee.clone()
            }
            _ => nominal,
        };
        Share { nominal, capability: self.capability.clone(), guarantee, adjusted }
    }
}

impl Share {
    /// The quota of a ClusterQueue.
    ///
    /// # Errors
    /// A limit has no exact text.
    pub(super) fn quota(&self, resource: &str) -> Result<Value, String> {
        let nominal = self.nominal.nano;
        let borrowing = self.capability.as_ref().map(|limit| limit.nano.saturating_sub(nominal));
        let lending = self.guarantee.as_ref().map(|kept| nominal.saturating_sub(kept.nano));
        resource_quota(resource, &self.nominal, borrowing, lending)
    }
}

/// The quota of a resource, with limits in billionths.
///
/// # Errors
/// A limit has no exact text.
pub(super) fn resource_quota(
    resource: &str,
    nominal: &Figure,
    borrowing: Option<i128>,
    lending: Option<i128>,
) -> Result<Value, String> {
    let mut quota = Map::new();
    quota.insert("name".to_owned(), json!(resource));
    quota.insert("nominalQuota".to_owned(), json!(nominal.text));
    for (field, nano) in [("borrowingLimit", borrowing), ("lendingLimit", lending)] {
        if let Some(nano) = nano {
            quota.insert(field.to_owned(), json!(Figure::made(resource, nano)?.text));
        }
    }
    Ok(Value::Object(quota))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(text: &str) -> Option<Figure> {
        (!text.is_empty()).then(|| Figure::read(&json!(text)).unwrap())
    }

    /// Quota of a resource as `nominal/borrowing/lending`, with `-` for a limit that is absent.
    fn quota(resource: &str, [deserved, capability, guarantee]: [&str; 3]) -> String {
        let figures =
            Figures { deserved: figure(deserved), capability: figure(capability), guarantee: figure(guarantee) };
        let quota = figures.share().quota(resource).unwrap();
        let field = |name: &str| quota.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        [field("nominalQuota"), field("borrowingLimit"), field("lendingLimit")].join("/")
    }

    #[test]
    fn queue_amounts_become_nominal_quota_and_limits_exactly() {
        for (resource, amounts, expected) in [
            ("cpu", ["8", "", ""], "8/-/-"),
            ("cpu", ["8", "12", ""], "8/4/-"),
            ("cpu", ["8", "12", "2"], "8/4/6"),
            ("cpu", ["", "512", "128"], "512/0/384"),
            ("cpu", ["", "512", ""], "512/0/-"),
            ("cpu", ["", "", "128"], "128/-/0"),
            ("cpu", ["", "", ""], "0/-/-"),
            ("cpu", ["1500m", "2", "1"], "1500m/500m/500m"),
            ("cpu", ["0.1", "0.3", ""], "0.1/200m/-"),
            ("memory", ["1Ti", "2Ti", "512Gi"], "1Ti/1Ti/512Gi"),
            ("memory", ["1G", "1Gi", ""], "1G/73741824/-"),
            ("nvidia.com/gpu", ["16", "64", "16"], "16/48/0"),
            // Volcano's plugin capacity bounds deserved by capability and guarantee.
            ("cpu", ["16", "12", ""], "12/0/-"),
            ("cpu", ["2", "12", "4"], "4/8/0"),
            ("cpu", ["2", "3", "4"], "3/0/0"),
            ("cpu", ["", "3", "4"], "3/0/0"),
            ("cpu", ["0", "0", "0"], "0/0/0"),
        ] {
            assert_eq!(quota(resource, amounts), expected, "{amounts:?} of {resource}");
        }
    }

    #[test]
    fn amount_is_read_exactly_or_refused_with_allowed_form() {
        for (value, nano) in
            [(json!(8), 8_000_000_000_i128), (json!(0.5), 500_000_000), (json!("2Gi"), 2_147_483_648_000_000_000)]
        {
            assert_eq!(Figure::read(&value).unwrap().nano, nano, "{value}");
        }
        for value in [json!("-1"), json!(-1), json!("8 cpu"), json!(""), json!(null), json!([8]), json!(true)] {
            assert_eq!(Figure::read(&value).unwrap_err(), AMOUNT, "{value}");
        }
        assert!(Figure::read(&json!(0.123_456_789_012_345_6)).unwrap_err().contains("in quotes"));
        assert!(Figure::made("cpu", i128::MAX).unwrap_err().contains("cpu"), "no text is exact");
    }
}
