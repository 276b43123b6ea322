//! Archives that depend on nothing but the files: sorted, owned by root, with the time of the release.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::release::Release;
use super::tree::Tree;
use crate::weight::remove_folder;

/// Writes the tarball: one folder with the files of an installation and the script that installs them.
pub(super) fn tarball(path: &Path, tree: &Tree, release: &Release) -> Result<()> {
    let mut tree = tree.clone();
    let script = crate::root().join("packaging/install");
    let script = fs::read_to_string(&script).with_context(|| script.display().to_string())?;
    tree.add_script("install", &script.replace("@version@", &release.version));
    let folder = release.folder();
    let stage = path.with_extension("stage");
    remove_folder(&stage)?;
    tree.write(&stage.join(&folder))?;
    tar(path, &stage, &folder, &["gzip", "-9n"], release.epoch)?;
    remove_folder(&stage)
}

/// Archives `name` of a folder, compressed by a program that reads its standard input.
pub(super) fn tar(
    path: &Path,
    folder: &Path,
    name: &str,
    compress: &[&str],
    epoch: u64,
) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--format=ustar",
        "--sort=name",
        "--numeric-owner",
    ])
    .args([
        "--owner=0",
        "--group=0",
        &format!("--mtime=@{epoch}"),
        "--directory",
    ])
    .args([folder.as_os_str(), name.as_ref()])
    // Options that a user has for every call.
    .env_remove("TAR_OPTIONS")
    .stdout(Stdio::piped());
    let mut tar = tar.spawn().context("tar does not start")?;
    let input = tar.stdout.take().context("tar has no standard output")?;
    let out = File::create(path).with_context(|| path.display().to_string())?;
    let (program, arguments) = compress.split_first().context("no program")?;
    let mut compressor = Command::new(program);
    compressor.args(arguments).stdin(input).stdout(out);
    for variable in ["GZIP", "XZ_OPT", "XZ_DEFAULTS"] {
        compressor.env_remove(variable);
    }
    let compressed = compressor
        .status()
        .with_context(|| format!("{program} does not start"))?;
    let packed = tar.wait().context("tar")?;
    ensure!(packed.success(), "tar ended with {packed}");
    ensure!(compressed.success(), "{program} ended with {compressed}");
    Ok(())
}

/// An ar archive of these members, in this order: deb(5), the common format of ar(5).
pub(super) fn ar(members: &[(&str, Vec<u8>)], epoch: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, contents) in members {
        let length = contents.len();
        // Name, time, owner, group, mode, length.
        let header = format!(
            "{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{length:<10}`\n",
            0, 0, "100644"
        );
        archive.extend(header.bytes());
        archive.extend(contents);
        if length % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}
