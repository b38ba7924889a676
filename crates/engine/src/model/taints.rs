//! Node taints, and tolerations of them.

/// Effect of a taint; `PreferNoSchedule` never decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// `NoSchedule`.
    NoSchedule,
    /// `PreferNoSchedule`.
    PreferNoSchedule,
    /// `NoExecute`.
    NoExecute,
}

/// A node taint declared by a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value, empty when absent.
    pub value: String,
    /// Taint effect.
    pub effect: TaintEffect,
}

/// Relation between the value of a taint and the value of a toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum TolerationOp {
    /// The values are equal.
    #[default]
    Equal,
    /// The taint may have any value.
    Exists,
    /// The taint's value is a larger integer.
    Gt,
    /// The taint's value is a smaller integer.
    Lt,
    /// The operator or the effect is unknown: the toleration tolerates nothing.
    Illegal,
}

/// A toleration of a pod or flavor. `key` empty with `Exists` tolerates everything.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash)]
pub struct Toleration {
    /// Taint key; empty matches every key.
    pub key: String,
    /// Operator.
    pub op: TolerationOp,
    /// Value that the operator compares with.
    pub value: String,
    /// Effect; `None` matches every effect.
    pub effect: Option<TaintEffect>,
}
