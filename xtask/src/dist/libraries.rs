//! The shared libraries that programs need, and the Debian packages that have them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::programs::Executable;
use crate::run;

/// Beginnings of libraries' names, and the package of each on Debian and Ubuntu.
const PACKAGES: &[(&str, &str)] = &[
    ("libc.so.", "libc6"),
    ("libm.so.", "libc6"),
    ("libdl.so.", "libc6"),
    ("libpthread.so.", "libc6"),
    ("librt.so.", "libc6"),
    ("ld-linux", "libc6"),
    ("libgcc_s.so.", "libgcc-s1"),
    ("libelf.so.", "libelf1"),
    ("libz.so.", "zlib1g"),
    ("libstdc++.so.", "libstdc++6"),
];

/// The `Depends` of a package with these programs: libc6 in the oldest version that has all the symbols.
pub(super) fn depends(programs: &[Executable]) -> Result<String> {
    let mut packages = BTreeSet::new();
    let mut glibc = (0, 0);
    for program in programs {
        if !is_elf(&program.path)? {
            continue;
        }
        let path = program.path.display().to_string();
        let headers = run::output("objdump", &["-p", &path])?;
        for library in libraries(&headers) {
            let known = PACKAGES.iter().find(|(head, _)| library.starts_with(head));
            let (_, package) = known.with_context(|| {
                format!(
                    "{path} needs {library}: add its Debian package to {}",
                    file!()
                )
            })?;
            packages.insert(*package);
        }
        glibc = glibc.max(glibc_version(&headers));
    }
    let list = packages.into_iter().map(|package| match package {
        "libc6" => format!("libc6 (>= {}.{})", glibc.0, glibc.1),
        other => other.to_owned(),
    });
    Ok(list.collect::<Vec<_>>().join(", "))
}

fn is_elf(path: &Path) -> Result<bool> {
    let name = || path.display().to_string();
    let mut magic = Vec::new();
    let file = File::open(path).with_context(name)?;
    file.take(4).read_to_end(&mut magic).with_context(name)?;
    Ok(magic == *b"\x7fELF")
}

/// The libraries that the dynamic section names.
pub(super) fn libraries(headers: &str) -> impl Iterator<Item = &str> {
    let lines = headers.lines().map(str::trim_start);
    lines.filter_map(|line| Some(line.strip_prefix("NEEDED")?.trim()))
}

/// The newest version of glibc among the versions of symbols.
pub(super) fn glibc_version(headers: &str) -> (u32, u32) {
    let words = headers.split_whitespace();
    let versions = words.filter_map(|word| {
        // Packed relative relocations are a version without a number.
        let version = match word.strip_prefix("GLIBC_")? {
            "ABI_DT_RELR" => "2.36",
            version => version,
        };
        let mut numbers = version.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max().unwrap_or_default()
}
