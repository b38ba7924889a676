//! Schema rules for texts in Berth's own kinds. When a text breaks a `pattern` or limit of the schema, the API server's message has only the pattern
//! or limit; the message of a rule says in words which texts are allowed, and has the wrong text.

use serde_json::{Value, json};

use crate::rules::rules_with_value;

/// Allowed form of a text.
pub(super) struct Text {
    /// Name of the kind of text in messages, such as "a name".
    pub(super) what: &'static str,
    /// Smallest and largest number of characters of the text.
    pub(super) size: (u32, u32),
    /// Allowed form of the text, in words for messages.
    pub(super) shape: &'static str,
    /// Regular expression that the text must match.
    pub(super) pattern: &'static str,
}

/// Name of an object.
pub(super) const NAME: Text = Text {
    what: "a name",
    size: (1, 253),
    shape: "lower case letters, digits, - and ., where each part between dots begins and ends with a letter or digit",
    pattern: crate::rules::SUBDOMAIN,
};

/// Key of a label.
pub(super) const LABEL_KEY: Text = Text {
    what: "the key of a label",
    size: (1, 317),
    shape: "at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit, and before them perhaps a \
            name of lower case letters, digits, - and . with a slash",
    pattern: "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
              ([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$",
};

/// Value of a label; it may be empty.
pub(super) const LABEL_VALUE: Text = Text {
    what: "the value of a label",
    size: (0, 63),
    shape: "letters, digits, -, _ and ., beginning and ending with a letter or digit",
    pattern: crate::rules::LABEL_VALUE,
};

/// End of the message of a schema rule about a text: the first 60 characters of the wrong text, and its length if the text is longer.
const REPEATED: &str = ", not %s%s'.format([strings.quote(self.size() > 60 ? self.substring(0, 60) : self), \
                        self.size() > 60 ? '... of %d characters'.format([self.size()]) : ''])";

impl Text {
    /// The field `maxLength` in the schema of a text: the API server needs it to bound the cost of the text's rule, and does not evaluate the rule for longer
    /// texts. The value of `maxLength` is higher than the limit in the text's rule, because the API server's message about `maxLength` has neither the value
    /// nor its length.
    pub(super) const fn bound(&self) -> u32 {
        let most = self.size.1.saturating_mul(4);
        if most > SHORT_BOUND { most } else { SHORT_BOUND }
    }

    /// The schema rule of a field whose value is a text of the form `self`.
    pub(super) fn rule(&self) -> Value {
        text_rule(&self.fits("self"), &self.must())
    }

    /// A CEL expression that is true if the value of the CEL variable `name` is an allowed text.
    fn fits(&self, name: &str) -> String {
        let Self { size: (least, most), pattern, .. } = self;
        format!("{name}.size() >= {least} && {name}.size() <= {most} && {name}.matches(r'{pattern}')")
    }

    /// The requirement on a text in words, for a message.
    fn must(&self) -> String {
        let Self { what, size: (least, most), shape, .. } = self;
        format!("must be {what} of {least} to {most} characters: {shape}")
    }

    /// The schema rule for a map whose keys are texts of the form `self`. The message of the rule has the first key that is not allowed.
    pub(super) fn rule_of_keys(&self) -> Value {
        let fits = self.fits("k");
        rules_with_value(&[[
            &format!("self.all(k, {fits})"),
            "",
            &format!("each key {}", self.must()),
            &format!(", not %s'.format([strings.quote(self.filter(k, !({fits}))[0])])"),
        ]])
    }

    /// The schema of an entry of a list or map that is a text of the form `self`.
    pub(super) fn schema(&self) -> Value {
        json!({"type": "string", "maxLength": self.bound(), "x-kubernetes-validations": self.rule()})
    }
}

/// The value of `maxLength` in the schema for short texts.
pub(super) const SHORT_BOUND: u32 = 1024;

/// A schema rule about a text; the message ends with the wrong text.
pub(super) fn text_rule(rule: &str, message: &str) -> Value {
    rules_with_value(&[[rule, "", message, REPEATED]])
}

/// Schema of an amount, which may be written as a number: at least 0, or more than 0 if `more_than_zero`.
pub(super) fn amount(more_than_zero: bool) -> Value {
    let (compared, words) = if more_than_zero { (">", "more than 0") } else { (">=", "0 or more") };
    let least = format!("quantity(self).compareTo(quantity('0')) {compared} 0");
    let rule = format!("type(self) == int ? self {compared} 0 : isQuantity(self) && {least}");
    let message = format!("must be an amount such as 500m, 8 or 64Gi, {words}");
    json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": SHORT_BOUND,
        "x-kubernetes-validations": rules_with_value(&[[&rule, "", &message, ", not %s'.format([self])"]]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_value_rule_states_allowed_text_and_repeats_written_value() {
        let reported = &LABEL_VALUE.rule()[0];
        let words = "must be the value of a label of 0 to 63 characters: letters, digits, -, _ and ., beginning and ending \
                     with a letter or digit";
        assert_eq!(reported["message"], words);
        assert_eq!(
            reported["rule"],
            r"self.size() >= 0 && self.size() <= 63 && self.matches(r'^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')"
        );
        assert!(reported["messageExpression"].as_str().unwrap().starts_with(&format!("'{words}, not %s%s'.format([")));
    }

    #[test]
    fn text_rules_contain_no_character_that_ends_a_cel_string() {
        for text in [NAME, LABEL_KEY, LABEL_VALUE] {
            for words in [text.what, text.shape] {
                assert!(!words.contains(['\'', '%', '\\']), "{words}");
            }
            assert!(!text.pattern.contains('\''), "{}", text.pattern);
            assert!(text.bound() >= 4 * text.size.1 && text.bound() >= SHORT_BOUND);
        }
    }
}
