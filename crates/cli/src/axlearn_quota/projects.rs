//! Projects of AxLearn with the names that they get in Kubernetes.

use super::members::user_ids;
use super::quota_file::QuotaFile;
use super::shares::Decimal;
use crate::flags::AxlearnQuotaFlags;
use std::collections::{BTreeMap, BTreeSet};

/// Placeholder for the name of a project in the flags `--namespace` and `--local-queue`.
const PROJECT: &str = "{project}";
/// Placeholder for a user id in the flag `--user`.
const USER: &str = "{user}";
/// Longest name of a project, in characters, so that the names built from it are not too long for Kubernetes.
const MOST_CHARACTERS: usize = 40;

/// An AxLearn project with its Kubernetes names, fractions and users.
#[derive(Debug)]
pub(crate) struct Project {
    /// Name of the project's ClusterQueue, from which the project's other names are built.
    pub(crate) name: String,
    /// Namespace of the project's LocalQueue.
    pub(crate) namespace: String,
    /// Name of the project's LocalQueue.
    pub(crate) local_queue: String,
    /// Fractions of the total that the project gets, by resource type.
    pub(crate) fractions: BTreeMap<String, Decimal>,
    /// Members of the project, by their user names in RBAC.
    pub(crate) users: BTreeSet<String>,
}

/// The projects of a quota file by name, and warnings about them.
///
/// # Errors
/// The error names a project whose name is not allowed in Kubernetes, or two projects that would share a name.
pub(crate) fn projects(file: &QuotaFile, flags: &AxlearnQuotaFlags) -> Result<(Vec<Project>, Vec<String>), String> {
    if !flags.user.contains(USER) {
        return Err(format!("--user {:?}: it must hold {USER}, the user id of the file", flags.user));
    }
    let (mut projects, mut ids, mut warnings) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for table in [file.projects.keys().collect::<Vec<_>>(), file.members.keys().collect()] {
        let mut seen: BTreeMap<String, &String> = BTreeMap::new();
        for id in table {
            // AxLearn compares project ids in lower case, so two ids that differ in case only are an error.
            if let Some(other) = seen.insert(id.to_lowercase(), id) {
                return Err(format!("the projects {other:?} and {id:?} differ in case only"));
            }
            let project = named(id, flags)?;
            let known = ids.entry(project.name.clone()).or_insert_with(|| id.to_lowercase());
            if *known != id.to_lowercase() {
                return Err(format!("the projects {known:?} and {id:?} would both be called {:?}", project.name));
            }
            if project.name != *id && !projects.contains_key(&project.name) {
                warnings.push(format!("the project {id:?} is called {:?} here", project.name));
            }
            projects.entry(project.name.clone()).or_insert(project);
        }
    }
    for (id, fractions) in &file.projects {
        if let Some(project) = projects.get_mut(&name_of(id)?) {
            project.fractions.clone_from(fractions);
        }
    }
    for (id, members) in &file.members {
        let Some(project) = projects.get_mut(&name_of(id)?) else { continue };
        for pattern in members {
            match user_ids(pattern) {
                Some(ids) => project.users.extend(ids.into_iter().map(|id| flags.user.replace(USER, &id))),
                None => warnings.push(format!(
                    "project_membership.{id}: {pattern:?} is a pattern, and RBAC knows names only: bind kueue-batch-user-role \
                     in namespace {} to these users or to a group of them",
                    project.namespace
                )),
            }
        }
    }
    let projects: Vec<Project> = projects.into_values().collect();
    check_doors(&projects)?;
    Ok((projects, warnings))
}

/// Refuses flags that give two projects one LocalQueue.
fn check_doors(projects: &[Project]) -> Result<(), String> {
    let mut doors = BTreeSet::new();
    for Project { namespace, local_queue, .. } in projects {
        if !doors.insert((namespace, local_queue)) {
            return Err(format!(
                "two projects would share the LocalQueue {namespace}/{local_queue}: let --namespace or --local-queue hold \
                 {PROJECT}"
            ));
        }
    }
    Ok(())
}

/// A project with its Kubernetes names, and without fractions and users.
fn named(id: &str, flags: &AxlearnQuotaFlags) -> Result<Project, String> {
    let name = name_of(id)?;
    let [namespace, local_queue] =
        [("--namespace", &flags.namespace), ("--local-queue", &flags.local_queue)].map(|(option, pattern)| {
            let made = pattern.replace(PROJECT, &name);
            let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
            let is_name = (1..=63).contains(&made.len()) && made.bytes().all(inner);
            if is_name && !made.starts_with('-') && !made.ends_with('-') {
                return Ok(made);
            }
            Err(format!(
                "{option} {pattern:?} makes {made:?} of the project {id:?}; allowed are 1 to 63 lower-case letters, digits and \
                 '-', not first nor last"
            ))
        });
    let (fractions, users) = (BTreeMap::new(), BTreeSet::new());
    Ok(Project { name, namespace: namespace?, local_queue: local_queue?, fractions, users })
}

/// A project id as a Kubernetes name: in lower case, with `-` in place of characters that names cannot have.
///
/// # Errors
/// The id has no character that a name may have, or is too long.
pub(crate) fn name_of(id: &str) -> Result<String, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = id.chars().map(plain).collect();
    match name.trim_matches('-') {
        name if (1..=MOST_CHARACTERS).contains(&name.len()) => Ok(name.to_owned()),
        _ => Err(format!(
            "{id:?} cannot be made a name; allowed are 1 to {MOST_CHARACTERS} letters, digits and characters between them"
        )),
    }
}
