use super::*;

const PROGRAM_FILE: &[u8] = b"the program";

fn parts() -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let layer = layer(PROGRAM_FILE, b"the licence").unwrap();
    let files = archive(&Name::parse("team/berth:v1").unwrap(), "arm64", &layer).unwrap();
    let files = files.into_iter().map(|(path, content)| (path, content.into_owned())).collect();
    (layer, files)
}

fn document(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Value {
    serde_json::from_slice(files.get(path).unwrap_or_else(|| panic!("{path} is missing"))).unwrap()
}

/// The content of the blob that a descriptor names, after a check of the blob's digest and size.
fn described<'f>(files: &'f BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'f [u8] {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let content = &files[&format!("blobs/sha256/{digest}")];
    assert_eq!((sha256(content), json!(content.len())), (digest.to_owned(), descriptor["size"].clone()));
    content
}

#[test]
fn oci_and_docker_layouts_share_configuration_and_layer() {
    let (layer, files) = parts();
    assert_eq!(document(&files, "oci-layout")["imageLayoutVersion"], "1.0.0");
    let index = document(&files, "index.json");
    assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1));
    let entry = &index["manifests"][0];
    assert_eq!(entry["platform"], json!({"architecture": "arm64", "os": "linux"}));
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "docker.io/team/berth:v1");
    let manifest: Value = serde_json::from_slice(described(&files, entry)).unwrap();
    let config: Value = serde_json::from_slice(described(&files, &manifest["config"])).unwrap();
    assert!(described(&files, &manifest["layers"][0]) == layer);
    assert_eq!(config["rootfs"]["diff_ids"], json!([manifest["layers"][0]["digest"]]));

    let docker = document(&files, "manifest.json");
    assert_eq!(docker[0]["RepoTags"], json!(["team/berth:v1"]));
    assert!(files[docker[0]["Config"].as_str().unwrap()] == described(&files, &manifest["config"]));
    assert!(files[docker[0]["Layers"][0].as_str().unwrap()] == layer);
    assert_eq!(files.len(), 6, "nothing else is in it: {:?}", files.keys());
}

#[test]
fn image_name_and_architecture_do_not_change_the_layer() {
    let (layer, files) = parts();
    let others = archive(&Name::parse(NAME).unwrap(), "amd64", &layer).unwrap();
    let same = files.iter().filter(|(path, content)| others.get(*path).is_some_and(|other| **other == ***content));
    let mut same: Vec<&str> = same.map(|(path, _)| path.as_str()).collect();
    same.sort_unstable();
    assert_eq!(same, [format!("blobs/sha256/{}", sha256(&layer)).as_str(), "oci-layout"]);
}

/// The image that the Dockerfile builds equals the image of `make image`, except for the C library.
#[test]
fn image_configuration_equals_that_of_the_dockerfile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/Dockerfile");
    let text = fs::read_to_string(path).unwrap();
    let config = config("amd64", &json!("sha256:0"))["config"].clone();
    let given = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(config["User"], given("USER"));
    for (instruction, field) in [("ENTRYPOINT", "Entrypoint"), ("CMD", "Cmd")] {
        assert_eq!(config[field], serde_json::from_str::<Value>(&given(instruction)).unwrap(), "{instruction}");
    }
    for (name, value) in config["Labels"].as_object().unwrap() {
        assert!(text.contains(&format!("{name}={value}")), "the Dockerfile has no label {name}={value}");
    }
    let copied = format!("/{AUTHORITIES} /{AUTHORITIES}\n");
    assert!(text.contains(&copied), "the authorities lie somewhere else there");
}

#[test]
fn program_that_needs_libraries_makes_no_image() {
    let folder = std::env::temp_dir().join(format!("berth-image-{}", std::process::id()));
    let out = folder.join("image.tar");
    let mut source = Source { binary: std::env::current_exe().unwrap(), name: NAME.to_owned(), dynamic: false };
    let refused = write(&source, &out).unwrap_err().to_string();
    assert!(refused.contains("linked dynamically"), "{refused}");
    assert!(!out.exists(), "nothing is left behind");
    source.name = "Berth:1".to_owned();
    source.dynamic = true;
    assert!(write(&source, &out).is_err(), "no image has such a name");
    assert!(!out.exists());
}

#[test]
fn image_of_the_same_program_has_the_same_bytes() {
    let folder = std::env::temp_dir().join(format!("berth-image-bytes-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // The smallest accepted program: a 64-bit ELF header for amd64 without program headers.
    let mut program = b"\x7fELF\x02\x01".to_vec();
    program.resize(64, 0);
    program[18] = 62;
    let made = ["first", "second"].map(|time| {
        let (binary, out) = (folder.join(time), folder.join("out").join(time));
        fs::write(&binary, &program).unwrap();
        let message = write(&Source { binary, name: NAME.to_owned(), dynamic: false }, &out).unwrap();
        assert!(message.contains("linux/amd64"), "{message}");
        fs::read(&out).unwrap()
    });
    assert!(made[0] == made[1]);
    let left = fs::read_dir(folder.join("out")).unwrap().count();
    assert_eq!(left, 2, "archives alone are left");
    fs::remove_dir_all(&folder).unwrap();
}
