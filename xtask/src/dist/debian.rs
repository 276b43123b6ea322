//! The Debian package: deb(5), deb-control(5).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive;
use super::documents::MAN;
use super::libraries;
use super::programs::Executable;
use super::release::{Release, debian_architecture};
use super::tree::{Contents, Tree};
use crate::folder;

/// Debian's own places for what other systems have elsewhere.
const PLACES: &[(&str, &str)] = &[
    (
        "share/zsh/site-functions/_lowroad",
        "share/zsh/vendor-completions/_lowroad",
    ),
    (
        "share/doc/lowroad/CHANGELOG.md",
        "share/doc/lowroad/changelog",
    ),
];

const AFTER_INSTALLATION: &str = r#"#!/bin/sh
set -e
if [ "$1" = configure ]; then
	# The users of the units. Nothing is enabled or started.
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers /usr/lib/sysusers.d/lowroad.conf
	fi
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
fi
"#;

const BEFORE_REMOVAL: &str = r#"#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	# A unit that is not loaded is no failure, and a pattern names the instances of a template.
	for unit in @units@; do
		systemctl --quiet disable "$unit" || true
		systemctl --quiet stop "$(echo "$unit" | sed 's/@/@*/')" || true
	done
fi
"#;

const AFTER_REMOVAL: &str = r#"#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
"#;

/// Writes the package.
pub(super) fn package(
    path: &Path,
    tree: &Tree,
    programs: &[Executable],
    release: &Release,
) -> Result<()> {
    let data = data(tree)?;
    let control = control(&data, &libraries::depends(programs)?, release)?;
    let stage = path.with_extension("stage");
    folder::remove(&stage)?;
    let mut members = vec![("debian-binary", b"2.0\n".to_vec())];
    for (name, tree) in [("control", &control), ("data", &data)] {
        let root = stage.join(name);
        tree.write(&root)?;
        let packed = stage.join(format!("{name}.tar.xz"));
        // One thread: the bytes of several depend on how many there are.
        archive::tar(&packed, &root, ".", &["xz", "--threads=1"], release.epoch)?;
        let bytes = fs::read(&packed).with_context(|| packed.display().to_string())?;
        let member = if name == "data" {
            "data.tar.xz"
        } else {
            "control.tar.xz"
        };
        members.push((member, bytes));
    }
    let package = archive::ar(&members, release.epoch);
    fs::write(path, package).with_context(|| path.display().to_string())?;
    folder::remove(&stage)
}

/// The files of the package: those of the tree below /usr, as Debian's policy wants them.
fn data(tree: &Tree) -> Result<Tree> {
    let mut data = Tree::default();
    for (path, file) in &tree.0 {
        let place = PLACES.iter().find(|(from, _)| from == path);
        let place = place.map_or(path.as_str(), |(_, to)| to);
        let is_compressed = path.starts_with(MAN) || place.ends_with("/changelog");
        if is_compressed {
            let bytes = archive::compress(&file.bytes()?)?;
            data.add(&format!("usr/{place}.gz"), Contents::Bytes(bytes), false);
        } else {
            data.add(
                &format!("usr/{place}"),
                file.contents.clone(),
                file.executable,
            );
        }
    }
    data.add_text("usr/share/doc/lowroad/copyright", &copyright());
    Ok(data)
}

/// The package's control files.
fn control(data: &Tree, depends: &str, release: &Release) -> Result<Tree> {
    let mut control = Tree::default();
    let mut sums = String::new();
    let mut size = 0;
    let mut units = Vec::new();
    for (path, file) in &data.0 {
        let bytes = file.bytes()?;
        size += bytes.len().div_ceil(1024);
        sums.push_str(&format!("{}  {path}\n", archive::md5(&bytes)?));
        if path.ends_with(".service") {
            units.extend(path.rsplit('/').next());
        }
    }
    let depends = match depends {
        "" => String::new(),
        packages => format!("Depends: {packages}\n"),
    };
    control.add_text(
        "control",
        &format!(
            "Package: lowroad
Version: {}
Architecture: {}
Maintainer: lowroad <lowroad@localhost>
Installed-Size: {size}
{depends}Suggests: nftables, iproute2, ffmpeg, runc
Section: net
Priority: optional
Description: packet work on the datapath that costs least
 lowroad relays streams, extracts flow features, routes and filters packets,
 replicates file changes, and measures network paths. Each job can run on
 several datapaths of Linux (sockets, tc, XDP, AF_XDP and others), and
 lowroad compare measures what each of them costs on this machine.
",
            release.version,
            debian_architecture(),
        ),
    );
    control.add_text("md5sums", &sums);
    control.add_script("postinst", AFTER_INSTALLATION);
    control.add_script(
        "prerm",
        &BEFORE_REMOVAL.replace("@units@", &units.join(" ")),
    );
    control.add_script("postrm", AFTER_REMOVAL);
    Ok(control)
}

/// Debian's machine-readable copyright file, version 1.0.
fn copyright() -> String {
    let mut text = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: lowroad

Files: *
Copyright: the authors of lowroad
License: MIT or Apache-2.0
Comment: BPF programs are under GPL-2.0-only or BSD-2-Clause. THIRD-PARTY.txt
 beside this file has the licences of the libraries that the programs contain.

License: MIT
"
    .to_owned();
    let licence = include_str!("../../../LICENSE-MIT");
    for line in licence.lines() {
        let line = if line.is_empty() { "." } else { line };
        text.push_str(&format!(" {line}\n"));
    }
    text.push_str(
        "
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
",
    );
    text
}
