//! `scripts/image`: an OCI image layout that anyone's tools read, of the same bytes for the same tree. `scripts/test-packages` runs a real one.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::Folder;

/// A tree as scripts/package makes it, in a folder of a folder.
fn tree(folder: &Folder, name: &str, mode: u32) -> PathBuf {
    let root = folder.join(name);
    let files = [
        ("usr/bin/weir", "program", 0o711 | mode),
        ("etc/weir/policy.weir", "pings: icmp-type 8 accept\n", mode),
        ("etc/weir/sensor.rules", "# none\n", mode),
        ("usr/share/doc/weir/copyright", "text\n", mode),
        ("usr/share/doc/weir/weir.cdx.json", "{}\n", mode),
        ("usr/share/man/man1/weir.1.gz", "not in the image", mode),
    ];
    for (path, text, mode) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    }
    root
}

/// The image of a tree, unpacked beside it, and its bytes.
fn image(tree: &Path) -> (PathBuf, Vec<u8>) {
    let (file, layout) = (tree.join("image.tar"), tree.join("layout"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    let status = Command::new(script)
        .arg("1.2.3-4")
        .args([tree, &file])
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .current_dir("/")
        .status();
    assert!(status.expect("python3 is installed").success());
    fs::create_dir(&layout).expect("made");
    let status = Command::new("tar")
        .arg("-xf")
        .args([&file])
        .arg("-C")
        .arg(&layout)
        .status();
    assert!(status.expect("tar is installed").success());
    (layout, fs::read(&file).expect("an image"))
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum")
        .stdin(Stdio::from(File::open(path).expect("a blob")))
        .output();
    let text = String::from_utf8(output.expect("sha256sum is installed").stdout);
    text.expect("text")
        .split(' ')
        .next()
        .expect("a digest")
        .to_owned()
}

/// The blob of a descriptor, whose digest and size are checked.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().expect("a digest");
    let path = layout.join("blobs").join(digest.replace(':', "/"));
    assert_eq!(format!("sha256:{}", sha256(&path)), digest);
    let size = fs::metadata(&path).expect("a blob").len();
    assert_eq!(descriptor["size"], size, "{digest}");
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

#[test]
fn an_image_holds_what_its_descriptors_say() {
    let folder = Folder::new();
    let root = tree(&folder, "tree", 0o644);
    let (layout, _) = image(&root);
    assert_eq!(
        json(&layout.join("oci-layout"))["imageLayoutVersion"],
        "1.0.0"
    );
    let index = json(&layout.join("index.json"));
    let top = &index["manifests"][0];
    assert_eq!(
        top["annotations"]["org.opencontainers.image.ref.name"],
        "1.2.3-4"
    );
    let manifest = json(&blob(&layout, top));
    let config = json(&blob(&layout, &manifest["config"]));
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/weir");
    let layer = blob(&layout, &manifest["layers"][0]);
    // A difference identifier is that of the layer before it was compressed.
    let plain = root.join("layer.tar");
    let output = Command::new("gzip")
        .arg("-dc")
        .stdin(File::open(&layer).expect("a layer"))
        .output();
    let mut unpacked = File::create(&plain).expect("made");
    unpacked
        .write_all(&output.expect("gzip is installed").stdout)
        .expect("written");
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        format!("sha256:{}", sha256(&plain))
    );

    let listed = Command::new("tar")
        .args(["--numeric-owner", "-tvf"])
        .arg(&plain)
        .env("TZ", "UTC")
        .output();
    let listed = String::from_utf8(listed.expect("tar is installed").stdout).expect("text");
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let of = |path: &str| {
        let row = rows.iter().find(|row| row.last() == Some(&path));
        row.map(|row| (row[0], row[1]))
            .unwrap_or_else(|| panic!("no {path}: {listed}"))
    };
    assert_eq!(of("usr/bin/weir"), ("-rwxr-xr-x", "0/0"));
    assert_eq!(of("etc/passwd"), ("-rw-r--r--", "0/0"));
    assert_eq!(of("etc/weir/policy.weir"), ("-rw-r--r--", "0/0"));
    assert_eq!(of("var/lib/weir/"), ("drwx------", "0/0"));
    assert_eq!(of("var/log/weir/"), ("drwxr-x---", "999/999"));
    assert!(rows.iter().all(|row| row[3] == "2023-11-14"), "{listed}");
    assert!(!listed.contains("man1"), "{listed}");
    // A folder comes before what is in it.
    let places: Vec<&str> = rows
        .iter()
        .map(|row| *row.last().expect("a path"))
        .collect();
    for (at, path) in places.iter().enumerate() {
        let folder = path
            .trim_end_matches('/')
            .rsplit_once('/')
            .map(|(folder, _)| format!("{folder}/"));
        assert!(
            folder.is_none_or(|folder| places[..at].contains(&folder.as_str())),
            "{path}: {listed}"
        );
    }
}

/// Modes that a builder's umask leaves, times and folders are not in the image.
#[test]
fn the_same_tree_gives_the_same_image_anywhere() {
    let folder = Folder::new();
    let (_, first) = image(&tree(&folder, "one", 0o644));
    let (_, second) = image(&tree(&folder, "another/and/deeper", 0o600));
    assert_eq!(first, second);
}

#[test]
fn a_tree_without_a_program_is_refused() {
    let folder = Folder::new();
    let root = tree(&folder, "tree", 0o644);
    fs::remove_file(root.join("usr/bin/weir")).expect("removed");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    let output = Command::new(script)
        .args([
            "1".as_ref(),
            root.as_os_str(),
            root.join("image.tar").as_os_str(),
        ])
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .expect("python3 is installed");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("usr/bin/weir is missing"), "{text}");
    assert!(!root.join("image.tar").exists());
}
