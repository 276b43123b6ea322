//! What is installed beside the programs: man pages, completions, units, examples and documents.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::programs::Executable;
use super::tree::{Contents, Tree};
use crate::{folder, run};

/// Each shell, and the file that it reads when it first completes `lowroad`.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/lowroad"),
    ("zsh", "share/zsh/site-functions/_lowroad"),
    ("fish", "share/fish/vendor_completions.d/lowroad.fish"),
];

pub(super) const MAN: &str = "share/man/man1";
pub(super) const UNITS: &str = "lib/systemd/system";
const DOCUMENTS: &str = "share/doc/lowroad";

/// Files of the repository's root that users read.
const ROOT_DOCUMENTS: &[&str] = &["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Folders whose tracked files are installed as documents, and the names there. The programs contain the experiments:
/// the files are there to be read and changed.
const FOLDERS: &[(&str, &str)] = &[
    ("docs/src", "book"),
    ("examples", "examples"),
    ("experiments", "experiments"),
];

/// Adds them; `stage` is a folder for files in between, and is removed.
pub(super) fn add(tree: &mut Tree, programs: &[Executable], stage: &Path) -> Result<()> {
    let lowroad = programs.iter().find(|program| program.name == "lowroad");
    let lowroad = fs::canonicalize(&lowroad.context("no program is called lowroad")?.path)?;
    let root = crate::root();
    man_pages(tree, &lowroad, stage)?;
    for (shell, path) in COMPLETIONS {
        let script = output(&lowroad, &["completions", shell])?;
        tree.add(path, Contents::Bytes(script), false);
    }
    for file in tracked("packaging")? {
        let name = file.trim_start_matches("packaging/");
        // Folders are for other programs: dashboards, rules of alerts, dissectors.
        let place = match name.contains('/') {
            true => DOCUMENTS,
            false if name.ends_with(".service") => UNITS,
            false => continue,
        };
        tree.add_copy(&format!("{place}/{name}"), &root.join(&file));
    }
    tree.add_copy(
        "lib/sysusers.d/lowroad.conf",
        &root.join("packaging/lowroad.sysusers"),
    );
    for name in ROOT_DOCUMENTS {
        tree.add_copy(&format!("{DOCUMENTS}/{name}"), &root.join(name));
    }
    for (folder, name) in FOLDERS {
        for file in tracked(folder)? {
            let below = file.trim_start_matches(folder);
            tree.add_copy(&format!("{DOCUMENTS}/{name}{below}"), &root.join(&file));
        }
    }
    Ok(())
}

/// The pages that the program writes.
fn man_pages(tree: &mut Tree, lowroad: &Path, stage: &Path) -> Result<()> {
    folder::remove(stage)?;
    let out = stage.display().to_string();
    let status = Command::new(lowroad).args(["man", "--out", &out]).output();
    let status = status.context("lowroad does not start")?.status;
    ensure!(status.success(), "lowroad man ended with {status}");
    let pages = fs::read_dir(stage).with_context(|| out.clone())?;
    for page in pages {
        let page = page.with_context(|| out.clone())?;
        let bytes = fs::read(page.path()).with_context(|| page.path().display().to_string())?;
        let name = page.file_name().to_string_lossy().into_owned();
        tree.add(&format!("{MAN}/{name}"), Contents::Bytes(bytes), false);
    }
    folder::remove(stage)
}

fn output(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{} does not start", program.display()))?;
    let status = output.status;
    ensure!(
        status.success(),
        "lowroad {} ended with {status}",
        arguments.join(" ")
    );
    Ok(output.stdout)
}

/// The files of a folder that git knows: what else lies there stays out of packages.
fn tracked(folder: &str) -> Result<Vec<String>> {
    let root = crate::root().display().to_string();
    let listed = run::output("git", &["-C", &root, "ls-files", "--", folder])?;
    Ok(listed.lines().map(str::to_owned).collect())
}
