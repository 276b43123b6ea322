//! Files that earlier versions wrote are still read, or refused with one error that says what to do.
//!
//! A folder here has the files of one release; they stay as that release wrote them. `report` has the records of
//! experiments.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::replicate_command::{lowroad, refused};

const RELEASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/upgrade");
const SEGMENT: &str = "log/00000000000000000001.log";

/// The files of a release in a folder of their own, and what they name.
fn release(version: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&Path::new(RELEASES).join(version), folder.path());
    let image = fs::read(folder.path().join("table.lrt.zst")).unwrap();
    let image = zstd::decode_all(&image[..]).unwrap();
    fs::write(folder.path().join("table.lrt"), image).unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// What a command prints that succeeds.
fn printed(arguments: &[&str], folder: &Path) -> String {
    let output = lowroad(arguments, folder);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a file with other bytes at an offset.
fn overwrite(path: &Path, offset: usize, bytes: &[u8]) {
    let mut content = fs::read(path).unwrap();
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
    fs::write(path, content).unwrap();
}

#[test]
fn configuration_files_are_read() {
    let folder = release("0.1.0");
    let folder = folder.path();
    fs::create_dir(folder.join("app")).unwrap();
    let token = folder.join("token");
    fs::write(&token, "correct-horse-battery-staple\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let keys = "replicate keys keys --server 127.0.0.1 --client edge";
    printed(&keys.split(' ').collect::<Vec<_>>(), folder);
    for command in [
        "relay serve --check --config relay.toml",
        "router run --check --config router.toml",
        "replicate run --check --config replicate.toml",
    ] {
        printed(&command.split(' ').collect::<Vec<_>>(), folder);
    }
}

#[test]
fn logs_are_read() {
    let folder = release("0.1.0");
    let log = printed(&["replicate", "log", "log"], folder.path());
    assert_eq!(log.lines().count(), 64, "{log}");
    let epochs = printed(
        &["replicate", "epochs", "log", "--last", "1"],
        folder.path(),
    );
    let expected = "epoch 12  at 2026-12-01T15:04:32.248494545Z  cause time  files 4  bytes 40007";
    assert!(epochs.starts_with(expected), "{epochs}");
    let verify = ["replicate", "verify", "log", "--rebuild", "--no-owners"];
    let equal = printed(&verify, folder.path());
    let hash = "229fc85903eaeee05a1d3ec60ac0bbcd7d02a5d9d3b4871cece5b637fa30e846";
    assert!(equal.contains(&format!("hash {hash}")), "{equal}");
    overwrite(&folder.path().join(SEGMENT), 0, b"lrreplg0");
    let error = refused(&["replicate", "epochs", "log"], 2, folder.path());
    assert!(
        error.ends_with("take the log again from its source\n"),
        "{error}"
    );
}

#[test]
fn table_images_are_read() {
    let folder = release("0.1.0");
    let explained = printed(
        &[
            "router",
            "explain",
            "table.lrt",
            "10.0.0.1:5000 -> 10.9.0.7:80/udp",
        ],
        folder.path(),
    );
    for part in ["10.0.0.0/8", "192.0.2.1", "drop"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    overwrite(&folder.path().join("table.lrt"), 8, &0_u32.to_le_bytes());
    let error = refused(&["router", "inspect", "table.lrt"], 2, folder.path());
    let expected = "error: table.lrt: a table image of version 0, where this lowroad reads 1: build it again from its \
                    sources\n";
    assert_eq!(error, expected);
}

#[test]
fn models_are_read() {
    let folder = release("0.1.0");
    let shown = printed(&["features", "model", "check", "model.json"], folder.path());
    let expected =
        "tree-3: 6 columns of flow.v1, 3 classes, 1 trees of at most 3 splits in a row, 13 nodes\n";
    assert!(shown.starts_with(expected), "{shown}");
    let model = folder.path().join("model.json");
    let text = fs::read_to_string(&model).unwrap();
    fs::write(
        &model,
        text.replacen("lowroad-model-1", "lowroad-model-0", 1),
    )
    .unwrap();
    let error = refused(
        &["features", "model", "check", "model.json"],
        2,
        folder.path(),
    );
    assert!(
        error.contains("is of format lowroad-model-0; lowroad-model-1 is read"),
        "{error}"
    );
}
