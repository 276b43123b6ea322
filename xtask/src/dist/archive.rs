//! Archives that depend on nothing but the files: sorted, owned by root, with the time of the release.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::release::Release;
use super::tree::Tree;
use crate::folder;

/// Writes the tarball: one folder with the files of an installation and the script that installs them.
pub(super) fn tarball(path: &Path, tree: &Tree, release: &Release) -> Result<()> {
    let mut tree = tree.clone();
    let script = crate::root().join("packaging/install");
    let script = fs::read_to_string(&script).with_context(|| script.display().to_string())?;
    tree.add_script("install", &script.replace("@version@", &release.version));
    let name = release.folder();
    let stage = path.with_extension("stage");
    folder::remove(&stage)?;
    tree.write(&stage.join(&name))?;
    tar(path, &stage, &name, &["gzip", "-9n"], release.epoch)?;
    folder::remove(&stage)
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

/// A file's bytes, compressed by gzip without a name and a time.
pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    filter("gzip", &["-9n"], bytes)
}

/// The MD5 sum that a Debian package has of each file.
pub(super) fn md5(bytes: &[u8]) -> Result<String> {
    let line = String::from_utf8(filter("md5sum", &[], bytes)?)?;
    let sum = line.split(' ').next();
    Ok(sum.unwrap_or_default().to_owned())
}

/// The output of a program that reads these bytes.
fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("GZIP");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{program} does not start"))?;
    let mut pipe = child.stdin.take().context("no standard input")?;
    let output = std::thread::scope(|scope| {
        // In a thread: a filter may stop reading until its output is read.
        let writer = scope.spawn(move || pipe.write_all(input));
        let output = child.wait_with_output();
        (writer.join(), output)
    });
    let (Ok(Ok(())), Ok(output)) = output else {
        bail!("{program} did not read its input");
    };
    ensure!(
        output.status.success(),
        "{program} ended with {}",
        output.status
    );
    Ok(output.stdout)
}
