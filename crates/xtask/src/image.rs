//! The archive of `make image`: one image in the layouts of OCI and of docker, so that container engines, kind and clients of registries take
//! the same file. It needs no container engine, and the same binary gives the same bytes on every machine: no clock, no owner, no
//! compressor. Start reading at [`write`].

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

/// The name of the image in the chart where its values name no other.
pub(crate) const NAME: &str = concat!("berth:", env!("CARGO_PKG_VERSION"));
/// The program in the image.
const PROGRAM: &str = "berth";
/// The argument of the program when a container sets none.
const COMMAND: &str = "manager";
/// User and group, as the chart has them.
const USER: &str = "65532:65532";
const LABELS: [(&str, &str); 3] = [
    ("org.opencontainers.image.title", "berth"),
    (
        "org.opencontainers.image.description",
        "Admits Kubernetes jobs by quota, priority and fair share, with Kueue's API",
    ),
    ("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE")),
];
/// Every time in the archive.
const EPOCH: &str = "1970-01-01T00:00:00Z";
/// The file in which the binary looks for public authorities (crate openssl-probe).
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// A binary with glibc in it resolves names by this file: a kubelet's `/etc/hosts` comes before the cluster's DNS. Other sources than these
/// two would need libraries that the image does not have.
const NSSWITCH: (&str, &str) = ("etc/nsswitch.conf", "hosts: files dns\n");

/// The parts of an archive.
pub(crate) struct Source {
    /// The program.
    pub(crate) binary: PathBuf,
    /// Name and tag of the image.
    pub(crate) name: String,
    /// True: the program may need libraries that are not in the image.
    pub(crate) dynamic: bool,
}

/// Writes the archive, complete or not at all, and returns a description of it.
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

/// The only layer: a tar archive of all files of the image.
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

/// The files of the archive. Both layouts name the same configuration and the same layer.
fn archive<'l>(name: &Name, architecture: &str, layer: &'l [u8]) -> Result<BTreeMap<String, Cow<'l, [u8]>>> {
    let mut files = BTreeMap::new();
    // Adds a blob, and returns its path and its description for manifests.
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
    // containerd takes the image's name from the first, other tools the tag from the second, as `docker save` writes them.
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

/// The configuration of the image: how a container is started, and which layer it has. The layer is not compressed, so that its two digests are one.
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
