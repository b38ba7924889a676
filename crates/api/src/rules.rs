//! Patterns and CEL rules that the schemas of several kinds share.

use serde_json::{Value, json};

use crate::beyond_kueue::TAINTS_ONCE;

/// Pattern of an RFC 1123 subdomain, the shape of most object names.
pub(crate) const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// RFC 1123 label.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of an RFC 1035 label in upper or lower case, the shape of a kind.
pub(crate) const KIND: &str = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of a qualified name: an optional subdomain and a slash, then a name.
pub(crate) const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Pattern of a label's value, which may be empty.
pub(crate) const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// `x-kubernetes-validations` made from pairs of rule and message.
pub(crate) fn rules(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// `x-kubernetes-validations` made from (rule, field, message, rest), for messages with the wrong value. The API server's message does not have the wrong value
/// if the value is an object or list, or, before Kubernetes 1.35, if a rule refused it. The text `rest` is CEL that follows the text of `message` and begins
/// within its quotes, such as `, not ' + self.name`. If `field` is not empty, the error of the rule names this field, such as `.min`, below the field that has
/// the rule.
pub(crate) fn rules_with_value(list: &[[&str; 4]]) -> Value {
    list.iter()
        .map(|[rule, field, message, rest]| {
            let own = [("rule", (*rule).to_owned()), ("message", (*message).to_owned())];
            let path = (!field.is_empty()).then(|| ("fieldPath", (*field).to_owned()));
            let expression = (!rest.is_empty()).then(|| ("messageExpression", format!("'{message}{rest}")));
            let fields = own.into_iter().chain(path).chain(expression);
            fields.map(|(key, text)| (key.to_owned(), Value::String(text))).collect::<Value>()
        })
        .collect()
}

/// The rule that a value never changes.
pub(crate) fn immutable() -> Value {
    rules(&[("self == oldSelf", "field is immutable")])
}

/// The rule that the entries of a list of scalars are unique.
pub(crate) fn unique() -> Value {
    rules(&[("self.all(a, self.exists_one(b, a == b))", "must be unique")])
}

/// The rule that entries of a list are unique, with the first duplicate in the message. The schema of the entries of a list with unique entries needs a
/// `maxLength`, because the API server estimates the cost of the rule.
pub(crate) fn unique_with_value() -> Value {
    let rest = ", and ' + self.filter(a, !self.exists_one(b, a == b))[0] + ' is not'";
    rules_with_value(&[["self.all(a, self.exists_one(b, a == b))", "", "must be unique", rest]])
}

/// The rule that exactly one of two fields is present.
pub(crate) fn one_of(first: &str, second: &str) -> Value {
    rules(&[(
        &format!("has(self.{first}) ? !has(self.{second}) : has(self.{second})"),
        &format!("exactly one of the fields in [{first} {second}] must be set"),
    )])
}

/// Rules of a list of tolerations.
pub(crate) fn tolerations() -> Value {
    rules(&[
        (
            "self.all(t, has(t.key) || (has(t.operator) && t.operator == 'Exists'))",
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        ),
        (
            "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        ),
        (
            "self.all(t, !has(t.operator) || t.operator == 'Equal' || t.operator == 'Exists')",
            "supported toleration values: 'Equal'(default), 'Exists'",
        ),
        (
            "self.all(t, !has(t.value) || !has(t.operator) || t.operator != 'Exists')",
            "a value must be empty when 'operator' is 'Exists'",
        ),
        ("self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])", TAINT_EFFECTS),
    ])
}

/// Rules of a list of taints.
pub(crate) fn taints() -> Value {
    let effects = "self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])";
    rules_with_value(&[[effects, "", TAINT_EFFECTS, ""], TAINTS_ONCE])
}

const TAINT_EFFECTS: &str = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cel_message_expression_begins_with_static_message() {
        assert_eq!(
            rules_with_value(&[
                ["self.min <= self.max", ".min", "too great", ": %d'.format([self.min])"],
                ["has(self.min)", "", "is missing", ""]
            ]),
            json!([
                {
                    "rule": "self.min <= self.max",
                    "fieldPath": ".min",
                    "message": "too great",
                    "messageExpression": "'too great: %d'.format([self.min])",
                },
                {"rule": "has(self.min)", "message": "is missing"},
            ])
        );
        assert_eq!(unique_with_value()[0]["rule"], unique()[0]["rule"]);
        assert_eq!(unique_with_value()[0]["message"], unique()[0]["message"]);
    }
}
