//! Every CRD on a real API server: applied as an administrator applies it, and tested with objects that the API server must accept, complete, prune
//! or refuse. The expected answers are in `cases/crds`, one file per kind. The expected answers are those of Kueue's own CRDs, apart from five
//! answers to rules that fail on an absent field in Kueue's CRDs and name the fault in Berth's CRDs, and apart from the additions in
//! `docs/departures/0027-rules-in-the-crd.md`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::kinds::{self, CRD, Kind, WORKLOAD, items, text};
use berth_e2e::kueue_fields;
use berth_e2e::wait::{self, Seen};
use futures::StreamExt;
use http::{Method, Request};
use kube::Client;
use kube::api::PostParams;
use kube::client::Body;
use serde_json::{Value, json};

const VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// Time limit for the API server to replace its handlers after a change of a CRD.
const REBUILT: Duration = Duration::from_secs(90);

/// Kinds whose v1beta1 has the same form in storage as v1beta2: v1beta1 is served without a conversion webhook.
const BETA1: [&str; 6] = [
    "admissionchecks",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crds_behave_as_kueues() -> Result<()> {
    let plane = ControlPlane::start(Options { name: "crds".to_owned(), ..Options::default() }).await?;
    let outcome = async {
        applied_by_hand(&plane).await?;
        served_versions(&plane).await?;
        answers(&plane.client()).await?;
        columns(&plane).await?;
        every_rule(&plane.client()).await
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        plane.keep_files();
    }
    plane.stop().await;
    outcome
}

/// Tests every rule of every field of Kueue's kinds, in the version that is stored at first and then in the other version.
async fn every_rule(client: &Client) -> Result<()> {
    let [newer, older] = kueue_fields::VERSIONS;
    let [refused, kept] = kueue_fields::judge_answers(client, newer).await?;
    println!("{newer}: {refused} objects are refused by field, {kept} are at a limit");
    store_as(client, older).await?;
    let [refused, kept] = kueue_fields::judge_answers(client, older).await?;
    println!("{older}: {refused} objects are refused by field, {kept} are at a limit");
    Ok(())
}

/// Serves and stores all of Kueue's kinds in one version, because no webhook converts objects in this test.
async fn store_as(client: &Client, version: &str) -> Result<()> {
    for definition in CRD.list(client, "").await? {
        let name = text(&definition, "/metadata/name");
        if !name.ends_with(".kueue.x-k8s.io") {
            continue;
        }
        let mut versions = definition["spec"]["versions"].clone();
        for one in versions.as_array_mut().into_iter().flatten() {
            let this = one["name"] == version;
            one["served"] = json!(this);
            one["storage"] = json!(this);
        }
        CRD.patch(client, "", name, &json!({"spec": {"versions": versions}})).await?;
    }
    // The API server replaces its handlers a moment after the change of the CRD: from then on, a field that only the given version has is read as it
    // was written.
    let class = json!({"priority": 1, "priorityClassName": "c", "priorityClassSource": "scheduling.k8s.io/priorityclass",
        "podSets": [{"name": "main", "count": 1, "template": plain()}]});
    let probe = json!({"apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "Workload",
        "metadata": {"generateName": "probe-", "namespace": "default"}, "spec": class});
    let kind = Kind { api_version: "kueue.x-k8s.io/v1beta1", ..WORKLOAD };
    wait::until(REBUILT, "the other version is stored", || async {
        // The API server may replace the handler between two requests, so that a deletion misses the object: each probe object has a name of its own.
        let sent = serde_json::from_value(probe.clone())?;
        let made = kind.api(client, "default").create(&PostParams::default(), &sent).await?.metadata.name;
        let name = made.unwrap_or_default();
        let read = kind.get(client, "default", &name).await?.unwrap_or_default();
        kind.delete(client, "default", &name).await?;
        let found = read["spec"]["priorityClassName"] == "c";
        Ok(Seen::when(found, || read["spec"].to_string()))
    })
    .await?;
    // The test has seen the new handler of one kind; the API server replaces the handlers of the other kinds within two seconds of it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

async fn applied_by_hand(plane: &ControlPlane) -> Result<()> {
    let folder = repository().join("crds");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        // The file that kustomize reads, which lists the CRDs, is no object.
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let file = path.display().to_string();
        let args = ["apply", "--server-side", "-f", &file];
        plane.kubectl(&args).await?;
        let again = plane.kubectl(&args).await?;
        ensure!(again.contains("serverside-applied"), "{file}: {again}");
        count += 1;
    }
    ensure!(count == 14, "{count} files in crds/");
    kinds::apply_crds(&plane.client(), &folder).await?;
    let crds = plane.kubectl(&["get", "crds", "-o", "json"]).await?;
    let crds: Value = serde_json::from_str(&crds)?;
    for crd in items(&crds, "/items") {
        let name = text(crd, "/metadata/name");
        for wrong in ["NonStructuralSchema", "Terminating"] {
            ensure!(kinds::condition(crd, wrong) != "True", "{name} is {wrong}");
        }
        ensure!(kinds::condition(crd, "NamesAccepted") == "True", "names of {name} are not accepted");
    }
    Ok(())
}

async fn served_versions(plane: &ControlPlane) -> Result<()> {
    for (version, expected) in [("v1beta2", 11), ("v1beta1", BETA1.len())] {
        let path = format!("/apis/kueue.x-k8s.io/{version}");
        // The API server updates the list of served kinds apart from the handlers of the kinds.
        wait::until(wait::STEP, &format!("{version} serves {expected} kinds"), || async {
            let list: Value = serde_json::from_str(&plane.kubectl(&["get", "--raw", &path]).await?)?;
            let mut names: Vec<&str> =
                items(&list, "/resources").iter().map(|r| text(r, "/name")).filter(|n| !n.contains('/')).collect();
            names.sort_unstable();
            let right = names.len() == expected && (version == "v1beta2" || names == BETA1);
            Ok(Seen::when(right, || format!("{names:?}")))
        })
        .await?;
    }
    Ok(())
}

/// An object with the words that `kubectl get` must show about it in each form (`always`), and those that it must show only with `-o wide` (`wide`).
struct Shown {
    resource: &'static str,
    object: Value,
    status: Value,
    always: &'static [&'static str],
    wide: &'static [&'static str],
}

/// Tests the columns of `kubectl get`, and the columns that only `-o wide` shows. A column without a field of Kueue's shows a text that Berth writes,
/// for example the annotation `berth.dev/size`.
async fn columns(plane: &ControlPlane) -> Result<()> {
    let client = plane.client();
    let reported_by = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let mut tier = reported_by("CapacityTier", "True", "QuotaReserved");
    tier["message"] = json!("spot");
    let queue = json!({"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": "shown"},
        "spec": {"cohortName": "pool", "namespaceSelector": {}}});
    // The Workload's owner must exist, because the garbage collector would delete the Workload otherwise.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "its-job", "namespace": "default"},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let job = kinds::apply(&client, &job).await?;
    let pods = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let workload = json!({"apiVersion": VERSION, "kind": "Workload",
        "metadata": {"name": "shown", "namespace": "default", "annotations": {"berth.dev/size": "2 pods, cpu 3"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "its-job", "uid": job["metadata"]["uid"]}]},
        "spec": {"queueName": "lq", "priority": 7070, "podSets": [{"name": "main", "count": 2, "template": pods}]}});
    let training = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "shown", "namespace": "default"},
        "spec": {"jobType": "PyTorchJob", "resources": {"maxReplicas": 2}, "schedulingConfig": {"queue": "lq"},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let shown = [
        Shown {
            resource: "clusterqueues.kueue.x-k8s.io",
            object: queue,
            status: json!({"conditions": [reported_by("Active", "True", "Ready")], "berthUsed": "cpu 3/9"}),
            always: &["COHORT", "ACTIVE", "USED", "pool", "True", "cpu 3/9"],
            wide: &["STRATEGY", "REASON", "Ready"],
        },
        Shown {
            resource: "workloads.kueue.x-k8s.io",
            object: workload,
            status: json!({"conditions": [reported_by("QuotaReserved", "False", "WaitingForQuota"), tier]}),
            always: &["QUEUE", "ADMITTED", "REASON", "WaitingForQuota"],
            wide: &["JOB", "PRIORITY", "SIZE", "TIER", "its-job", "7070", "2 pods, cpu 3", "spot"],
        },
        Shown {
            resource: "trainingjobs.berth.dev",
            object: training,
            status: json!({"phase": "Queued", "accelerators": 1616,
                "conditions": [reported_by("Queued", "True", "WaitingForQuota")]}),
            always: &["PHASE", "REASON", "WaitingForQuota"],
            wide: &["ACCELERATORS", "1616"],
        },
    ];
    for one in shown {
        let (name, namespace, kind) = ("shown", ["-n", "default"], one.resource);
        kinds::apply(&client, &one.object).await?;
        let patch = json!({"status": one.status}).to_string();
        let patched = ["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch];
        plane.kubectl(&[&namespace[..], &patched].concat()).await?;
        let narrow = plane.kubectl(&[&namespace[..], &["get", kind, name]].concat()).await?;
        let wide = plane.kubectl(&[&namespace[..], &["get", kind, name, "-o", "wide"]].concat()).await?;
        for word in one.always.iter().chain(one.wide) {
            ensure!(wide.contains(word), "{kind} shows no {word}:\n{wide}");
            ensure!(narrow.contains(word) == one.always.contains(word), "{kind}, {word} without -o wide:\n{narrow}");
        }
        plane.kubectl(&[&namespace[..], &["delete", kind, name]].concat()).await?;
    }
    plane.kubectl(&["-n", "default", "delete", "job", "its-job"]).await?;
    Ok(())
}

/// The pod template that the cases call `plain`: it has one port twice with different protocols, an unknown field, and metadata that the API server
/// does not store.
fn plain() -> Value {
    json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}, "name": "n", "ownerReferences": [{"a": 1}]},
        "spec": {"fromTheFuture": 1, "containers": [{
            "name": "c", "image": "x", "resources": {"requests": {"cpu": 1}},
            "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        }]},
    })
}

/// Replaces the value `from` of each field `template` by `to`: the cases write a word such as `plain` in place of a pod template.
fn with_template(value: &Value, from: &Value, to: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(k, v)| {
                (k.clone(), if k == "template" && v == from { to.clone() } else { with_template(v, from, to) })
            })
            .collect(),
        Value::Array(list) => list.iter().map(|v| with_template(v, from, to)).collect(),
        other => other.clone(),
    }
}

struct Server<'a> {
    client: &'a Client,
    stored: Value,
}

impl Server<'_> {
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(Body::from(body.to_string().into_bytes()))?;
        let response = self.client.send(request).await?;
        let code = response.status();
        let bytes = response.into_body().collect_bytes().await?;
        let answer: Value = serde_json::from_slice(&bytes).with_context(|| format!("{path} answered {code}"))?;
        if code.is_success() {
            let mut kept = json!({});
            for field in answer
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(k, _)| !matches!(k.as_str(), "metadata" | "apiVersion" | "kind"))
            {
                kept[field.0] = field.1.clone();
            }
            return Ok(json!({"accepted": with_template(&kept, &self.stored, &json!("plain"))}));
        }
        ensure!(text(&answer, "/kind") == "Status", "{path} answered {code}: {answer}");
        let mut causes: Vec<Value> = items(&answer, "/details/causes")
            .iter()
            .map(|cause| json!([text(cause, "/field"), text(cause, "/message")]))
            .collect();
        if causes.is_empty() {
            causes.push(json!(["", text(&answer, "/message")]));
        }
        causes.sort_by_key(ToString::to_string);
        Ok(json!({"refused": causes}))
    }

    async fn answers(&self, kind: &str, number: usize, case: &Value) -> Result<Vec<Value>> {
        let plural = match kind {
            "Topology" => "topologies".to_owned(),
            "WorkloadPriorityClass" => "workloadpriorityclasses".to_owned(),
            other => format!("{}s", other.to_lowercase()),
        };
        let namespace = if matches!(kind, "LocalQueue" | "Workload") { "namespaces/default/" } else { "" };
        let base = format!("/apis/{VERSION}/{namespace}{plural}");
        let name = format!("case-{number}");
        let mut object = with_template(&case["create"], &json!("plain"), &plain());
        object["apiVersion"] = json!(VERSION);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name});
        let mut answers = vec![self.ask(Method::POST, &base, &object).await?];
        if answers[0].get("accepted").is_none() {
            return Ok(answers);
        }
        for step in items(case, "/steps") {
            let (path, patch) = match (step.get("status"), step.get("object")) {
                (Some(patch), None) => (format!("{base}/{name}/status"), patch),
                (None, Some(patch)) => (format!("{base}/{name}"), patch),
                _ => bail!("a step is either `status` or `object`: {step}"),
            };
            answers.push(self.ask(Method::PATCH, &path, &with_template(patch, &json!("plain"), &plain())).await?);
        }
        self.ask(Method::DELETE, &format!("{base}/{name}"), &json!({})).await?;
        Ok(answers)
    }
}

async fn answers(client: &Client) -> Result<()> {
    let mut server = Server { client, stored: Value::Null };
    let probe = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": "probe"},
        "spec": {"podSets": [{"template": plain()}]}});
    let path = format!("/apis/{VERSION}/namespaces/default/workloads");
    let probed = server.ask(Method::POST, &path, &probe).await?;
    server.stored = probed["accepted"]["spec"]["podSets"][0]["template"].clone();
    let stored = &server.stored["spec"];
    ensure!(stored.get("fromTheFuture").is_none(), "an unknown field is kept: {stored}");
    ensure!(stored["containers"][0]["ports"][0]["protocol"] == "TCP", "the protocol is not defaulted: {stored}");

    let mut files: Vec<_> = std::fs::read_dir(repository().join("e2e/cases/crds"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let (mut cases, mut wrong) = (0, Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        let list: Vec<Value> = serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", file.display()))?;
        let kind = file.file_stem().and_then(|s| s.to_str()).context("a file is called after its kind")?;
        let reported: Vec<Result<Vec<Value>>> = futures::stream::iter(list.iter().enumerate())
            .map(|(number, case)| server.answers(kind, number, case))
            .buffered(4)
            .collect()
            .await;
        let reported: Vec<Vec<Value>> = reported.into_iter().collect::<Result<_>>()?;
        cases += list.len();
        if std::env::var("UPDATE").is_ok_and(|v| v == "1") {
            write(file, &text, &list, &reported)?;
            continue;
        }
        for (case, reported) in list.iter().zip(&reported) {
            compare(&format!("{kind}: {}", case["case"]), items(case, "/answers"), reported, &mut wrong);
        }
    }
    ensure!(files.len() == 11 && cases >= 108, "{} files with {cases} cases", files.len());
    ensure!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
    println!("{cases} cases answered as expected");
    Ok(())
}

fn compare(what: &str, expected: &[Value], reported: &[Value], wrong: &mut Vec<String>) {
    if expected.len() != reported.len() {
        wrong.push(format!("{what}: {} answers expected, {} given: {reported:?}", expected.len(), reported.len()));
    }
    for (number, (expected, reported)) in expected.iter().zip(reported).enumerate() {
        if expected != reported {
            wrong.push(format!("{what}, request {number}:\n  expected {expected}\n  told     {reported}"));
        }
        // A refusal must name a field and a message, by which a user finds the mistake.
        for cause in items(reported, "/refused") {
            if text(cause, "/0").is_empty() || text(cause, "/1").is_empty() {
                wrong.push(format!("{what}, request {number}: the refusal names no field: {cause}"));
            }
        }
    }
}

fn write(file: &Path, old: &str, list: &[Value], reported: &[Vec<Value>]) -> Result<()> {
    let mut out: String = old.lines().take_while(|l| l.starts_with('#')).map(|l| format!("{l}\n")).collect();
    for (case, reported) in list.iter().zip(reported) {
        out.push_str(&format!("- case: {}\n  create: {}\n", case["case"], case["create"]));
        if case.get("steps").is_some() {
            out.push_str("  steps:\n");
            items(case, "/steps").iter().for_each(|step| out.push_str(&format!("  - {step}\n")));
        }
        out.push_str("  answers:\n");
        reported.iter().for_each(|answer| out.push_str(&format!("  - {answer}\n")));
    }
    std::fs::write(file, out)?;
    Ok(())
}
