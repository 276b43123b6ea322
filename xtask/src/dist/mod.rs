//! `cargo xtask dist`: builds the programs that are handed out, and packs them as a tarball and a Debian package.
//!
//! Two checkouts of a commit, in any folders, give the same bytes: the programs do not name their source folder, and
//! archives are sorted and have the commit's time.

mod archive;
mod debian;
mod documents;
mod installation;
mod libraries;
mod notices;
mod options;
mod programs;
mod release;
mod sbom;
#[cfg(test)]
mod tests;
mod tree;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::metadata;
use crate::tally::Tally;

pub(crate) use programs::{Executable, in_folder};

use options::{Options, Source, Verb};
use release::Release;
use tree::Tree;

/// The profile of Cargo.toml for programs that are handed out.
pub(crate) const PROFILE: &str = "dist";

/// Builds the programs with a profile of Cargo.toml.
pub(crate) fn build(profile: &str) -> Result<Vec<Executable>> {
    programs::build(profile, &Release::of_checkout()?.commit)
}

/// `cargo xtask dist`.
pub(crate) fn run(arguments: &[&str]) -> Result<Tally> {
    let options = match options::parse(arguments)? {
        Verb::Pack(options) => options,
        Verb::CheckInstall { suite } => return installation::check(suite.as_deref()),
    };
    let release = Release::of_checkout()?;
    let programs = match &options.source {
        Source::Profile(profile) => programs::build(profile, &release.commit)?,
        Source::Folder(folder) => in_folder(folder)?,
    };
    for program in &programs {
        println!(
            "{:>6.1} MB  {}",
            megabytes(program.size()?),
            program.path.display()
        );
    }
    pack(&options, &release, &programs)?;
    Ok(Tally::default())
}

/// Writes the packages, the list of components, and the sums of both.
fn pack(options: &Options, release: &Release, programs: &[Executable]) -> Result<()> {
    if options.source == Source::Profile(PROFILE.to_owned()) {
        programs::require_no_folders(programs)?;
    }
    let out = options.out.as_path();
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    // Documents name what is linked: one call of cargo serves both.
    let metadata = metadata::load(true)?;
    let components = sbom::components(&metadata);
    let sbom = sbom::cyclone_dx(&metadata, &components, release)?;
    let mut tree = Tree::default();
    programs::add(&mut tree, programs);
    documents::add(&mut tree, programs, &out.join("man.stage"))?;
    tree.add_text("share/doc/lowroad/sbom.cdx.json", &sbom);
    let notices = notices::collect(&components)?;
    tree.add_text("share/doc/lowroad/THIRD-PARTY.txt", &notices);

    let names = [
        release.tarball(),
        release.debian_package(),
        format!("lowroad-{}.cdx.json", release.version),
    ];
    let [tarball, package, list] = names.each_ref().map(|name| out.join(name));
    archive::tarball(&tarball, &tree, release)?;
    debian::package(&package, &tree, programs, release)?;
    fs::write(&list, &sbom).with_context(|| list.display().to_string())?;
    sums(out, &names)?;
    for path in [tarball, package, list] {
        let size = path
            .metadata()
            .with_context(|| path.display().to_string())?;
        println!("{:>6.1} MB  {}", megabytes(size.len()), path.display());
    }
    Ok(())
}

/// Writes `SHA256SUMS` of the named files of a folder.
fn sums(folder: &Path, names: &[String]) -> Result<()> {
    let mut command = Command::new("sha256sum");
    let output = command.args(names).current_dir(folder).output();
    let output = output.context("sha256sum does not start")?;
    ensure!(
        output.status.success(),
        "sha256sum ended with {}",
        output.status
    );
    let path = folder.join("SHA256SUMS");
    fs::write(&path, output.stdout).with_context(|| path.display().to_string())
}

/// Bytes in MB (10^6), for display.
#[expect(clippy::cast_precision_loss, reason = "sizes of files are below 2^52")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
