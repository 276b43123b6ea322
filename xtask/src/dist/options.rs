//! The arguments of `cargo xtask dist`.

use std::path::PathBuf;

use anyhow::Result;

use super::PROFILE;
use crate::Usage;

pub(super) const USAGE: &str = "\
usage: cargo xtask dist [--profile NAME | --no-build DIR] [--out DIR]
       cargo xtask dist check-install [SUITE]
  --profile NAME     build with this profile of Cargo.toml [default: dist]
  --no-build DIR     pack the programs that are in DIR
  --out DIR          write the packages to DIR [default: target/packages]
  check-install      install both packages on a fresh system that debootstrap makes, and run what they install; as root,
                     SUITE is bookworm (the default) or noble";

/// Where packages are written, and where `check-install` looks for them.
pub(super) const PACKAGES: &str = "target/packages";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Pack(Options),
    CheckInstall { suite: Option<String> },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) source: Source,
    pub(super) out: PathBuf,
}

/// Where the programs come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A build with this profile.
    Profile(String),
    /// A folder that has them.
    Folder(PathBuf),
}

pub(super) fn parse(arguments: &[&str]) -> Result<Verb> {
    match arguments {
        ["check-install"] => return Ok(Verb::CheckInstall { suite: None }),
        ["check-install", suite] => {
            let suite = Some((*suite).to_owned());
            return Ok(Verb::CheckInstall { suite });
        }
        _ => {}
    }
    let mut source = None;
    let mut out = None;
    let mut rest = arguments;
    while let [option, value, tail @ ..] = rest {
        let twice = match *option {
            "--profile" => source
                .replace(Source::Profile((*value).to_owned()))
                .is_some(),
            "--no-build" => source.replace(Source::Folder(value.into())).is_some(),
            "--out" => out.replace(PathBuf::from(value)).is_some(),
            _ => return Err(Usage(USAGE.to_owned()).into()),
        };
        if twice {
            return Err(Usage(format!(
                "{option}: the programs and the folder are named once"
            ))
            .into());
        }
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(Usage(USAGE.to_owned()).into());
    }
    Ok(Verb::Pack(Options {
        source: source.unwrap_or_else(|| Source::Profile(PROFILE.to_owned())),
        out: out.unwrap_or_else(|| PACKAGES.into()),
    }))
}
