//! Size limits of host lists: the kernel starts no process with a longer variable, and the API server accepts no larger ConfigMap.

use super::party::{Party, Variables, index};
use super::{frameworks, mpi};
use crate::training::role::{Role, WORKER};

/// Largest size that Linux accepts for one variable, in bytes: name, `=`, value and the final zero byte (`MAX_ARG_STRLEN`).
const VARIABLE: usize = 131_072;
/// Largest size of a ConfigMap's values, in bytes.
const CONFIG_MAP: usize = 1_048_576;

/// A host list: a description of its place, its size in bytes, and its largest allowed size.
type List = (&'static str, usize, usize);

/// Reason why this number of workers has too long a host list, with the largest number that fits; `None` if the list fits.
pub(in crate::training) fn too_many_workers(party: &mut Party<'_>, roles: &[Role]) -> Option<String> {
    let workers = party.count(WORKER);
    let (what, bytes, allowed) = longest(party, roles).filter(|(_, bytes, allowed)| bytes > allowed)?;
    let (mut fits, mut fails) = (0, workers);
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        party.set_workers(middle);
        match longest(party, roles) {
            Some((_, bytes, allowed)) if bytes > allowed => fails = middle,
            _ => fits = middle,
        }
    }
    party.set_workers(workers);
    Some(format!(
        "makes a {what} of {bytes} bytes, and {allowed} are allowed: at most {fits} workers with a name of this length"
    ))
}

/// The host list that is closest to its size limit, or furthest beyond it.
fn longest(party: &Party<'_>, roles: &[Role]) -> Option<List> {
    let of_variable = |role: &Role, name: &'static str, variables: Variables| {
        let (_, value) = variables.into_iter().find(|(known, _)| *known == name)?;
        let digits = role.count.max(1).saturating_sub(1).to_string().len();
        // The variable is measured with the longest index of a pod, because the kubelet replaces the reference to the index by the index.
        let value = value.replace(&index(), &"9".repeat(digits));
        Some((name, name.len() + value.len() + 2, VARIABLE))
    };
    match party.job.spec.job_type.as_str() {
        "TFJob" => {
            let list = |role: &Role| of_variable(role, "TF_CONFIG", frameworks::tensorflow(party, &role.name));
            roles.iter().filter(|role| !sets(role, "TF_CONFIG")).filter_map(list).max_by_key(|(_, bytes, _)| *bytes)
        }
        "XGBoostJob" => {
            let list = |role: &Role| of_variable(role, "WORKER_ADDRS", frameworks::xgboost(party));
            roles.iter().filter(|role| !sets(role, "WORKER_ADDRS")).find_map(list)
        }
        "MPIJob" => {
            let files = mpi::host_file(party);
            let lengths = files.as_object()?.values().filter_map(serde_json::Value::as_str).map(str::len);
            Some(("host file", lengths.sum(), CONFIG_MAP))
        }
        _ => None,
    }
}

/// Whether the role's template sets the environment variable `name` itself, so that the rendezvous does not set it.
fn sets(role: &Role, name: &str) -> bool {
    let spec = role.template.spec.as_ref();
    let main = spec.and_then(|spec| spec.containers.first());
    main.and_then(|main| main.env.as_ref()).is_some_and(|own| own.iter().any(|variable| variable.name == name))
}

#[cfg(test)]
mod tests {
    use berth_api::berth::TrainingJob;
    use serde_json::json;

    use crate::training::{Accelerators, invalid_training_job};

    /// Faults of a TrainingJob with this number of workers.
    fn messages(job_type: &str, workers: i32) -> Vec<String> {
        let spec = json!({"jobType": job_type, "resources": {"maxReplicas": workers, "replicaResources": {"cpu": "1"}},
            "schedulingConfig": {"queue": "lq"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        let job = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": "a-job-with-a-name", "namespace": "team", "uid": "u"}, "spec": spec});
        let job: TrainingJob = serde_json::from_value(job).expect("a TrainingJob");
        invalid_training_job(&job, &Accelerators::default()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn too_many_workers_are_refused_with_largest_accepted_number() {
        for (job_type, what) in [("TFJob", "TF_CONFIG"), ("XGBoostJob", "WORKER_ADDRS"), ("MPIJob", "host file")] {
            let all = messages(job_type, 10_000);
            let [one] = all.as_slice() else { panic!("{job_type}: {all:?}") };
            assert!(one.starts_with("spec.resources.maxReplicas: ") && one.contains(what), "{one}");
            let (_, rest) = one.split_once("at most ").expect("the largest number");
            let largest: i32 = rest.split(' ').next().unwrap_or_default().parse().expect("a number");
            assert!(largest > 1_000, "{job_type}: {largest}");
            assert!(
                messages(job_type, largest).is_empty() && messages(job_type, largest + 1).len() == 1,
                "{job_type}: {largest}"
            );
        }
        for job_type in ["PyTorchJob", "JAXJob", "PaddleJob"] {
            assert!(messages(job_type, 10_000).is_empty(), "{job_type}");
        }
    }
}
