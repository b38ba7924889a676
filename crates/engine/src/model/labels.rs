//! Selectors of labels and of nodes.

/// Operators of label selectors and node selector terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectorOp {
    /// Value is one of.
    In,
    /// Value is none of (or key absent).
    NotIn,
    /// Key present.
    Exists,
    /// Key absent.
    DoesNotExist,
    /// Integer value greater than (node affinity only).
    Gt,
    /// Integer value less than (node affinity only).
    Lt,
    /// Not an operator: each value is a fault in Kubernetes' words and begins with its field.
    Illegal,
}

/// One requirement on labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub op: SelectorOp,
    /// Values, as the operator needs them.
    pub values: Vec<String>,
}

/// A label selector: every requirement must hold; `matchLabels` arrive as `In` with one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);
