//! What texts in Berth's own kinds may be, in words. A pattern or a limit of a schema is told as it stands; a rule says what is
//! meant, and what was written instead.

use serde_json::{Value, json};

use crate::rules::telling;

/// What a text may be.
pub(super) struct Text {
    /// What it is.
    pub(super) what: &'static str,
    /// Fewest and most characters.
    pub(super) size: (u32, u32),
    /// Its shape in words.
    pub(super) shape: &'static str,
    /// Its shape.
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

/// So much of a text that is wrong is repeated, and how long it is where that is not all.
const REPEATED: &str = ", not %s%s'.format([strings.quote(self.size() > 60 ? self.substring(0, 60) : self), \
                        self.size() > 60 ? '... of %d characters'.format([self.size()]) : ''])";

impl Text {
    /// Where the API server stops reading, whatever the rule would say: it must know what a rule may cost. There is room
    /// for what is too long, since it says of that neither the value nor how long it is.
    pub(super) const fn bound(&self) -> u32 {
        let most = self.size.1.saturating_mul(4);
        if most > SHORT_BOUND { most } else { SHORT_BOUND }
    }

    /// The rule of a field.
    pub(super) fn rule(&self) -> Value {
        text_rule(&self.fits("self"), &self.must())
    }

    /// Whether what this expression names is such a text.
    fn fits(&self, name: &str) -> String {
        let Self { size: (least, most), pattern, .. } = self;
        format!("{name}.size() >= {least} && {name}.size() <= {most} && {name}.matches(r'{pattern}')")
    }

    /// What is allowed.
    fn must(&self) -> String {
        let Self { what, size: (least, most), shape, .. } = self;
        format!("must be {what} of {least} to {most} characters: {shape}")
    }

    /// The rule of a map whose keys are such texts. The first that is not is told.
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

/// Where the API server stops reading short texts.
pub(super) const SHORT_BOUND: u32 = 1024;

/// A rule about a text, which is told with the text.
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
    fn a_rule_says_what_is_allowed_and_repeats_what_was_written() {
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
    fn words_do_not_end_the_text_that_they_stand_in() {
        for text in [NAME, LABEL_KEY, LABEL_VALUE] {
            for words in [text.what, text.shape] {
                assert!(!words.contains(['\'', '%', '\\']), "{words}");
            }
            assert!(!text.pattern.contains('\''), "{}", text.pattern);
            assert!(text.bound() >= 4 * text.size.1 && text.bound() >= SHORT_BOUND);
        }
    }
}
