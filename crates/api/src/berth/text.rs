//! Shapes of texts in Berth's own kinds, in words. The API server reports a broken pattern or limit of a schema as it is written; a rule
//! reports the meaning, and the wrong value.

use serde_json::{Value, json};

use crate::rules::telling;

/// Shape of a text.
pub(super) struct Text {
    /// Meaning of the text, for messages.
    pub(super) what: &'static str,
    /// Fewest and most characters.
    pub(super) size: (u32, u32),
    /// Shape of the text in words.
    pub(super) shape: &'static str,
    /// Regular expression for the text.
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

/// The end of a message: the first 60 characters of a wrong text, and the length of a longer one.
const REPEATED: &str = ", not %s%s'.format([strings.quote(self.size() > 60 ? self.substring(0, 60) : self), \
                        self.size() > 60 ? '... of %d characters'.format([self.size()]) : ''])";

impl Text {
    /// `maxLength` of the schema, above which the API server does not call the rule: it must know the cost of a rule. The bound is above the
    /// rule's own limit, because the API server's message has neither the value nor its length.
    pub(super) const fn bound(&self) -> u32 {
        let most = self.size.1.saturating_mul(4);
        if most > SHORT_BOUND { most } else { SHORT_BOUND }
    }

    /// The rule of a field.
    pub(super) fn rule(&self) -> Value {
        text_rule(&self.fits("self"), &self.must())
    }

    /// A CEL expression that is true if `name` stands for such a text.
    fn fits(&self, name: &str) -> String {
        let Self { size: (least, most), pattern, .. } = self;
        format!("{name}.size() >= {least} && {name}.size() <= {most} && {name}.matches(r'{pattern}')")
    }

    /// The allowed texts, in words.
    fn must(&self) -> String {
        let Self { what, size: (least, most), shape, .. } = self;
        format!("must be {what} of {least} to {most} characters: {shape}")
    }

    /// The rule of a map whose keys are such texts. The message has the first key that is not.
    pub(super) fn rule_of_keys(&self) -> Value {
        let fits = self.fits("k");
        telling(&[[
            &format!("self.all(k, {fits})"),
            "",
            &format!("each key {}", self.must()),
            &format!(", not %s'.format([strings.quote(self.filter(k, !({fits}))[0])])"),
        ]])
    }

    /// The schema of entries of lists and maps.
    pub(super) fn schema(&self) -> Value {
        json!({"type": "string", "maxLength": self.bound(), "x-kubernetes-validations": self.rule()})
    }
}

/// `maxLength` of short texts in the schema.
pub(super) const SHORT_BOUND: u32 = 1024;

/// A rule about a text, whose message has the text.
pub(super) fn text_rule(rule: &str, message: &str) -> Value {
    telling(&[[rule, "", message, REPEATED]])
}

/// An amount, which may be a number: at least 0, or more than that.
pub(super) fn amount(more_than_zero: bool) -> Value {
    let (compared, words) = if more_than_zero { (">", "more than 0") } else { (">=", "0 or more") };
    let least = format!("quantity(self).compareTo(quantity('0')) {compared} 0");
    let rule = format!("type(self) == int ? self {compared} 0 : isQuantity(self) && {least}");
    let message = format!("must be an amount such as 500m, 8 or 64Gi, {words}");
    json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": SHORT_BOUND,
        "x-kubernetes-validations": telling(&[[&rule, "", &message, ", not %s'.format([self])"]]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_value_rule_states_allowed_text_and_repeats_written_value() {
        let told = &LABEL_VALUE.rule()[0];
        let words = "must be the value of a label of 0 to 63 characters: letters, digits, -, _ and ., beginning and ending \
                     with a letter or digit";
        assert_eq!(told["message"], words);
        assert_eq!(
            told["rule"],
            r"self.size() >= 0 && self.size() <= 63 && self.matches(r'^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')"
        );
        assert!(told["messageExpression"].as_str().unwrap().starts_with(&format!("'{words}, not %s%s'.format([")));
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
