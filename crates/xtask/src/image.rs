//! The archive of `make image`: one image in the layouts of OCI and of Docker, so that container engines, kind and registry clients can read the file. The
//! image archive is built without a container engine. Equal binaries give equal bytes of the archive on every machine, because the archive has no build time,
//! no owner and no compression. [`write`] writes the archive, and is the entry point of this module.

mod authorities;
mod elf;
mod name;
mod tar;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use name::Name;
use tar::Entry;

/// The image name that the chart uses by default.
pub(crate) const NAME: &str = concat!("berth:", env!("CARGO_PKG_VERSION"));
/// File name of the program in the image.
const PROGRAM: &str = "berth";
/// The default argument of the program `berth` in a container of the image.
const COMMAND: &str = "manager";
/// User and group of a container of the image, equal to user and group in the chart.
const USER: &str = "65532:65532";
const LABELS: [(&str, &str); 3] = [
    ("org.opencontainers.image.title", "berth"),
    (
        "org.opencontainers.image.description",
        "Admits Kubernetes jobs by quota, priority and fair share, with Kueue's API",
    ),
    ("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE")),
];
/// Creation time of the image, and modification time of every file in it.
const EPOCH: &str = "1970-01-01T00:00:00Z";
/// The file in which the program looks for public certificate authorities (crate openssl-probe).
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Order of name resolution for programs with glibc: `/etc/hosts`, which the kubelet writes, comes before the cluster's DNS. The file names no other source of
/// host names, because other sources would need libraries that the image does not have.
const NSSWITCH: (&str, &str) = ("etc/nsswitch.conf", "hosts: files dns\n");

/// The inputs of an image archive.
pub(crate) struct Source {
    /// Path of the program's binary.
    pub(crate) binary: PathBuf,
    /// Name and tag of the image.
    pub(crate) name: String,
    /// True if the program may be linked dynamically to libraries that the image lacks.
    pub(crate) dynamic: bool,
}

/// Writes the image archive, completely or not at all, and returns a description of the image.
pub(crate) fn write(source: &Source, out: &Path) -> Result<String> {
    let shown = source.binary.display();
    let binary = fs::read(&source.binary).with_context(|| format!("reading {shown}"))?;
    let program = elf::read(&binary).with_context(|| format!("reading {shown}"))?;
    if let Some(interpreter) = &program.interpreter {
        ensure!(
            source.dynamic,
            "{shown} is linked dynamically: it needs {interpreter} and libraries, and the image has none; `make image` links it statically"
        );
    }
    let licence = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../LICENSE");
    let licence = fs::read(&licence).with_context(|| format!("reading {}", licence.display()))?;
    let layer = layer(&binary, &licence)?;
    let files = archive(&Name::parse(&source.name)?, program.architecture, &layer)?;
    let entries = files.iter().map(|(path, content)| Entry { path, mode: 0o644, content });
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let unfinished = out.with_extension("unfinished");
    let file = File::create(&unfinished).with_context(|| format!("creating {}", unfinished.display()))?;
    let mut file = BufWriter::new(file);
    tar::write(&mut file, entries)?;
    file.flush().with_context(|| format!("writing {}", unfinished.display()))?;
    fs::rename(&unfinished, out).with_context(|| format!("moving the archive to {}", out.display()))?;
    let megabytes = layer.len() / 1_000_000;
    Ok(format!("{} (linux/{}, {megabytes} MB) is in {}", source.name, program.architecture, out.display()))
}

/// The only layer of the image: a tar archive of all its files.
fn layer(binary: &[u8], licence: &[u8]) -> Result<Vec<u8>> {
    let authorities = authorities::pem();
    let (nsswitch, sources) = NSSWITCH;
    let file = |path, content| Entry { path, mode: 0o644, content };
    let mut layer = Vec::with_capacity(binary.len() + 1_000_000);
    let entries = [
        Entry { path: PROGRAM, mode: 0o755, content: binary },
        file("LICENSE", licence),
        file(nsswitch, sources.as_bytes()),
        file(AUTHORITIES, authorities.as_bytes()),
    ];
    tar::write(&mut layer, entries)?;
    Ok(layer)
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// The files of the image archive. The OCI layout and the Docker layout in the archive name the same configuration and the same layer.
fn archive<'l>(name: &Name, architecture: &str, layer: &'l [u8]) -> Result<BTreeMap<String, Cow<'l, [u8]>>> {
    let mut files = BTreeMap::new();
    // The closure `blob` adds a blob to the archive, and returns the blob's path and the blob's descriptor for manifests.
    let mut blob = |media: &str, content: Cow<'l, [u8]>| {
        let digest = sha256(&content);
        let described = json!({
            "mediaType": format!("application/vnd.oci.image.{media}"),
            "digest": format!("sha256:{digest}"),
            "size": content.len(),
        });
        let path = format!("blobs/sha256/{digest}");
        files.insert(path.clone(), content);
        (path, described)
    };
    let (layer_path, layer) = blob("layer.v1.tar", layer.into());
    let config = config(architecture, &layer["digest"]);
    let (config_path, config) = blob("config.v1+json", serde_json::to_vec(&config)?.into());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let (_, mut manifest) = blob("manifest.v1+json", serde_json::to_vec(&manifest)?.into());
    manifest["platform"] = json!({"architecture": architecture, "os": "linux"});
    // containerd takes the image's name from the annotation `io.containerd.image.name`, and other tools take the tag from `org.opencontainers.image.ref.name`,
    // as in archives of `docker save`.
    manifest["annotations"] = json!({
        "io.containerd.image.name": name.full,
        "org.opencontainers.image.ref.name": name.tag,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    let docker = json!([{"Config": config_path, "RepoTags": [name.short], "Layers": [layer_path]}]);
    for (path, content) in
        [("oci-layout", json!({"imageLayoutVersion": "1.0.0"})), ("index.json", index), ("manifest.json", docker)]
    {
        files.insert(path.to_owned(), serde_json::to_vec(&content)?.into());
    }
    Ok(files)
}

/// The configuration of the image: the container's settings and the digest of the layer. The image's layer is uncompressed, so the digest of its blob and its
/// diff id are equal.
fn config(architecture: &str, layer: &Value) -> Value {
    json!({
        "created": EPOCH,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": [format!("/{PROGRAM}")],
            "Cmd": [COMMAND],
            "WorkingDir": "/",
            "Labels": LABELS.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>(),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": EPOCH, "created_by": "make image"}],
    })
}

#[cfg(test)]
mod tests;
