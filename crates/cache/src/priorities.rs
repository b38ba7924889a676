//! Priority classes, and the Workloads that take over a new value of their class.

use berth_jobs::Priority;

use crate::{View, WorkloadView};

/// The kind of the priority classes that jobs name for their Workloads.
pub const WORKLOAD_CLASS: &str = "WorkloadPriorityClass";

/// The name of the WorkloadPriorityClass that a job names, and the name of the PriorityClass of the job's pods.
pub type NamedClasses<'a> = (Option<&'a str>, Option<&'a str>);

/// A priority class that an object names and that does not exist, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingClass(pub String);

/// The priority that a Workload should have.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The value of the priority, with the class from which the value comes.
    pub priority: Priority,
    /// True if a policy reads the priority from a label.
    pub by_label: bool,
}

impl WorkloadView {
    /// Whether a Workload's job names another class than the Workload has, and the Workload may change to that class. The priority value belongs to the
    /// Workload: a user may edit the value, and the value follows the Workload's priority class only when the class changes.
    pub fn changes_class(&self, wanted: &Wanted) -> bool {
        let class = wanted.priority.class.as_ref().filter(|class| class.kind == WORKLOAD_CLASS);
        let new = class.map(|class| class.name.clone());
        match &self.priority_class {
            // The API server does not let a priority class be added to a Workload, or removed from it, while the Workload holds quota.
            None => !self.reserved() && new.is_some(),
            // As in Kueue, a Workload keeps a PriorityClass that comes from its pods, unless a QueuePolicy gives a WorkloadPriorityClass by a label.
            Some(class) if class.kind != WORKLOAD_CLASS => wanted.by_label && !self.reserved() && new.is_some(),
            Some(class) => new.as_ref() != Some(&class.name) && (new.is_some() || !self.reserved()),
        }
    }
}

impl View {
    /// The priority of a job that names the given classes, or the class that does not exist yet. If a job names a class of both kinds, the
    /// WorkloadPriorityClass decides, and not the PriorityClass of the pods.
    ///
    /// # Errors
    /// A class does not exist.
    pub fn priority(&self, of_workloads: Option<&str>, of_pods: Option<&str>) -> Result<Priority, MissingClass> {
        let missing = |class: &str| MissingClass(class.to_owned());
        if let Some(class) = of_workloads {
            let value = self.workload_priorities().get(class).copied().ok_or_else(|| missing(class))?;
            return Ok(Priority::of_workload_class(class, value));
        }
        if let Some(class) = of_pods {
            let (value, _) = self.priorities().get(class).copied().ok_or_else(|| missing(class))?;
            return Ok(Priority::of_pod_class(class, value));
        }
        let default = self.priorities().iter().find(|(_, (_, default))| *default);
        Ok(default.map_or_else(Priority::default, |(class, (value, _))| Priority::of_pod_class(class, *value)))
    }

    /// The value that a Workload takes over from its class; `None` if the Workload keeps its own value.
    pub fn new_value(&self, workload: &WorkloadView) -> Option<i32> {
        let class = workload.priority_class.as_ref().filter(|_| workload.takes_class_value)?;
        self.workload_priorities().get(&class.name).copied().filter(|value| *value != workload.own_priority)
    }
}
