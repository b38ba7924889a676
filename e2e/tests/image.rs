//! Tests of the image that `make image` builds: a registry accepts the image's archive in both layouts and returns it unchanged, and the files of its
//! layer alone are enough to reach an API server by a name, from `/etc/hosts` or from a name server like a cluster's.
//!
//! In `make night` the image holds the release build, which is linked statically. In `make test` the image holds the build of the tests, and the test
//! adds the libraries that this build needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::certificates::IN_HOSTS;
use berth_e2e::container::{ContainerLaunch, Root, may_change_root, untar};
use berth_e2e::control_plane::{ControlPlane, Options, token};
use berth_e2e::http::http_get;
use berth_e2e::manager::{self, NAMESPACE, SERVICE_ACCOUNT};
use berth_e2e::name_server::NameServer;
use berth_e2e::own_folder::OwnFolder;
use berth_e2e::process::free_ports;
use berth_e2e::registry::Registry;
use berth_e2e::shipped;
use berth_e2e::wait::{self, Seen};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

/// The name that the chart gives the image.
const NAME: &str = "berth";
/// The API server's name in two forms: as a pod asks for it, and as the cluster's name server knows it.
const SERVICE: &str = "kubernetes.default.svc";
const KNOWN: &str = "kubernetes.default.svc.cluster.local";
/// The shortest content that a kubelet writes into a pod's `/etc/hosts`.
const HOSTS: &str = "127.0.0.1 localhost\n";
/// All files and folders in the image, with their modes.
const FILES: [&str; 7] = [
    "644 LICENSE",
    "755 berth",
    "755 etc/",
    "644 etc/nsswitch.conf",
    "755 etc/ssl/",
    "755 etc/ssl/certs/",
    "644 etc/ssl/certs/ca-certificates.crt",
];
/// The folder in which a pod finds its credentials.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// Time limit for a started manager to become ready.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// Time limit for a manager to end after it was stopped.
const GRACE: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layer_from_a_registry_reaches_an_api_server_by_name() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("berth-e2e-image-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let folder = OwnFolder::make(folder)?;
    let archive = tokio::task::spawn_blocking({
        let out = folder.path().join("image.tar");
        move || make(out)
    })
    .await??;
    let registry = Registry::start(folder.path()).await?;
    // crane reads an image as an archive in docker's layout, or as a folder in the layout of OCI.
    let layout = folder.path().join("layout");
    fs::create_dir(&layout)?;
    untar(&archive, &layout)?;
    registry.crane(&["validate", "--tarball", &archive.display().to_string()]).await?;
    let of_docker = carried(&registry, &archive, &layout, "docker").await.context("in docker's layout")?;
    let of_oci = carried(&registry, &layout, &layout, "oci").await.context("in the layout of OCI")?;
    if !may_change_root()? {
        println!("skipped: the image's layer run by itself, because chroot needs root");
        return Ok(());
    }

    let plane = ControlPlane::start(Options::with_crds("image")).await?;
    let outcome = runs(&plane, &of_docker, &of_oci).await;
    if outcome.is_err() {
        plane.keep_files();
    }
    plane.stop().await;
    outcome
}

/// Writes the image's archive as `make image` does; returns its path.
fn make(out: PathBuf) -> Result<PathBuf> {
    let mut command = Command::new(shipped::xtask()?);
    command.arg("image").arg("--binary").arg(shipped::binary()?).arg("--out").arg(&out);
    // Without `--dynamic` the command `xtask image` refuses a binary that is not linked statically.
    if !shipped::is_release() {
        command.arg("--dynamic");
    }
    let output = command.output().context("starting xtask")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(out)
}

fn document(path: &Path) -> Result<Value> {
    serde_json::from_slice(&fs::read(path)?).with_context(|| format!("reading {}", path.display()))
}

/// The file of a blob in an OCI layout; `named` is the JSON object that names the blob's digest.
fn blob(layout: &Path, named: &Value) -> Result<PathBuf> {
    let digest = named["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
    Ok(layout.join("blobs/sha256").join(digest.with_context(|| format!("no digest in {named}"))?))
}

/// The image in an OCI layout that was pulled or pushed: its descriptor and its manifest.
fn image(layout: &Path) -> Result<(Value, Value)> {
    let index = document(&layout.join("index.json"))?;
    let [image] = index["manifests"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        anyhow::bail!("not one image: {index}");
    };
    Ok((image.clone(), document(&blob(layout, image)?)?))
}

/// An image after it was pulled: its files and its configuration.
struct Pulled {
    root: Root,
    config: Value,
}

/// Pushes the image to the registry, pulls it, and unpacks its layer.
async fn carried(registry: &Registry, from: &Path, layout: &Path, tag: &str) -> Result<Pulled> {
    let name = registry.image(&format!("{NAME}:{tag}"));
    let (pushed, manifest) = image(layout)?;
    registry.crane(&["push", &from.display().to_string(), &name]).await?;
    // Without `--fast` the command `crane validate` assumes that every layer is compressed; the test pulls the image's layer itself and compares it.
    registry.crane(&["validate", "--fast", "--remote", &name]).await?;
    // The digest of the manifest stays the same only if no layer is compressed on the way; the image's id, by which container engines know it, always
    // stays the same.
    if from == layout {
        let digest = registry.crane(&["digest", &name]).await?;
        ensure!(pushed["digest"] == digest.as_str(), "{} came back as {digest}", pushed["digest"]);
    }
    let config = registry.crane(&["config", &name]).await?;
    ensure!(config == fs::read_to_string(blob(layout, &manifest["config"])?)?, "another configuration: {config}");

    let folder = layout.with_file_name(format!("pulled-{tag}"));
    registry.crane(&["pull", "--format=oci", &name, &folder.display().to_string()]).await?;
    let (_, manifest) = image(&folder)?;
    let [layer] = manifest["layers"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        anyhow::bail!("not one layer: {manifest}");
    };
    let root = Root::unpack(&blob(&folder, layer)?, &layout.with_file_name(format!("root-{tag}")))?;
    let found = root.listing()?;
    ensure!(found == FILES, "the layer holds {found:?}");
    let read = |path: &str| fs::read(root.folder().join(path));
    ensure!(read("LICENSE")? == fs::read(repository().join("LICENSE"))?, "another licence");
    ensure!(read("berth")? == fs::read(shipped::binary()?)?, "another program");
    authorities(&root)?;
    Ok(Pulled { root, config: serde_json::from_str(&config)? })
}

/// Checks that Berth's TLS library can read the image's certificate authorities and use each of them.
fn authorities(root: &Root) -> Result<()> {
    let file = root.folder().join("etc/ssl/certs/ca-certificates.crt");
    let read = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
    let (taken, refused) = RootCertStore::empty().add_parsable_certificates(read);
    ensure!(taken > 100 && refused == 0, "{taken} authorities can be used, {refused} cannot");
    Ok(())
}

/// Runs both pulled images, one after the other: the first image finds the API server in `/etc/hosts`, the second one asks the cluster's name server.
async fn runs(plane: &ControlPlane, first: &Pulled, second: &Pulled) -> Result<()> {
    manager::install(&plane.client()).await?;
    let names = NameServer::start(KNOWN)?;
    let server = names.as_ref().map_or_else(|| "127.53.0.2".to_owned(), |names| names.address().to_string());
    let resolver = format!(
        "search {NAMESPACE}.svc.cluster.local svc.cluster.local cluster.local\nnameserver {server}\noptions ndots:5\n"
    );
    let hosts = format!("{HOSTS}127.0.0.1 {IN_HOSTS}\n");
    let leader =
        reaches(plane, first, ("by-hosts", IN_HOSTS), &[("etc/hosts", &hosts), ("etc/resolv.conf", &resolver)])
            .await
            .context("by a name of /etc/hosts")?;
    let Some(names) = names else {
        println!("skipped: the image's layer with a name server, because this process may not listen on port 53");
        return Ok(());
    };
    let asked = names.asked();
    ensure!(
        !asked.iter().any(|name| name.starts_with(IN_HOSTS)),
        "the name server was asked before /etc/hosts: {asked:?}"
    );
    let other = reaches(plane, second, ("by-dns", SERVICE), &[("etc/hosts", HOSTS), ("etc/resolv.conf", &resolver)])
        .await
        .context("by a name that the cluster's name server knows")?;
    ensure!(leader != other, "{leader} leads still");
    let asked = names.asked();
    ensure!(asked.iter().any(|name| name == KNOWN), "the name server was not asked for {KNOWN}: {asked:?}");
    Ok(())
}

/// Runs an image as a pod, with the API server under a name, until the manager in it is ready and leads; returns the leader.
async fn reaches(
    plane: &ControlPlane,
    image: &Pulled,
    (pod, host): (&str, &str),
    files: &[(&str, &str)],
) -> Result<String> {
    let client = plane.client();
    let root = &image.root;
    if !shipped::is_release() {
        root.add_libraries("berth")?;
    }
    for (path, text) in files {
        root.add(path, text)?;
    }
    let token = token(&client, NAMESPACE, SERVICE_ACCOUNT).await?;
    let authority = fs::read_to_string(plane.authority())?;
    for (name, text) in [("token", token.as_str()), ("ca.crt", authority.as_str()), ("namespace", NAMESPACE)] {
        root.add(&format!("{ACCOUNT}/{name}"), text)?;
    }

    let list = |field: &str| image.config["config"][field].as_array().cloned().unwrap_or_default();
    let words = [list("Entrypoint"), list("Cmd")].concat();
    let mut command: Vec<String> = words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    let [metrics, health] = free_ports()?;
    command.extend([
        format!("--namespace={NAMESPACE}"),
        format!("--metrics-bind-address=127.0.0.1:{metrics}"),
        "--metrics-secure=false".to_owned(),
        format!("--health-probe-bind-address=127.0.0.1:{health}"),
        "--webhook-bind-address=0".to_owned(),
    ]);
    let user = image.config["config"]["User"].as_str().context("the image has no user")?;
    let (_, port) = plane.url().rsplit_once(':').context("a URL without a port")?;
    let env = [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port), ("POD_NAME", pod)];
    let before = manager::leader(&client).await?;
    let mut process =
        root.start(&ContainerLaunch { name: pod, logs: plane.folder(), user, env: &env, command: &command })?;
    wait::until(READY_LIMIT, "the program of the layer is ready", || async {
        let answer = http_get(health, "/readyz").await;
        Ok(Seen::when(matches!(answer, Ok((200, _))), || format!("{answer:?}; its log: {}", process.tail(5))))
    })
    .await?;
    root.holds(process.pid()?, user)?;
    let leader = manager::leads_after(&client, &before, READY_LIMIT).await?;
    ensure!(leader.starts_with(pod), "{leader} leads, not {pod}");
    process.stop(GRACE);
    Ok(leader)
}
