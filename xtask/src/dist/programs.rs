//! The programs that are handed out: how they are built, and where they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::tree::Tree;
use crate::metadata::text;
use crate::{agent, run};

/// A program and the package that builds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) package: &'static str,
    pub(super) name: &'static str,
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        package: "lowroad",
        name: "lowroad",
    },
    Program {
        package: "compare",
        name: "lowroad-compare",
    },
    Program {
        package: "onnx",
        name: "lowroad-onnx",
    },
];

/// Netbench's agent, which has a profile and a target of its own.
pub(super) const AGENT: Program = Program {
    package: "netbench-agent",
    name: "netbench-agent",
};

/// A relative relocation takes one bit instead of 24 bytes; glibc reads them from 2.36 on.
const PACKED_RELOCATIONS: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

/// A program's file.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

impl Executable {
    /// Its size in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        let file = self.path.metadata();
        Ok(file.with_context(|| self.path.display().to_string())?.len())
    }
}

/// Builds every program with a profile of Cargo.toml, and netbench's agent with its own.
pub(super) fn build(profile: &str, commit: &str) -> Result<Vec<Executable>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--profile", profile]);
    for program in PROGRAMS {
        cargo.args(["--package", program.package, "--bin", program.name]);
    }
    cargo.env("LOWROAD_COMMIT", commit);
    let folders = folder_names()?;
    let prefixes = |option: &str| -> Vec<String> {
        let names = folders.iter();
        names
            .map(|(folder, name)| format!("{option}={}={name}", folder.display()))
            .collect()
    };
    let remap = prefixes("--remap-path-prefix");
    let mut flags = rust_flags();
    flags.extend_from_slice(&remap);
    flags.push(PACKED_RELOCATIONS.to_owned());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let mut c_flags = vec![std::env::var("CFLAGS").unwrap_or_default()];
    c_flags.extend(prefixes("-ffile-prefix-map"));
    cargo.env("CFLAGS", c_flags.join(" ").trim());
    let messages = run::build(&mut cargo).context("the programs do not build")?;
    let agent = agent::build_with(&remap)?;
    let programs = PROGRAMS
        .iter()
        .map(|program| (program, &messages))
        .chain([(&AGENT, &agent)]);
    programs
        .map(|(program, messages)| {
            Ok(Executable {
                name: program.name,
                path: executable(messages, program.name)
                    .with_context(|| format!("cargo built no {}", program.name))?,
            })
        })
        .collect()
}

/// The programs that a folder has.
pub(crate) fn in_folder(folder: &Path) -> Result<Vec<Executable>> {
    let programs = PROGRAMS.iter().chain([&AGENT]);
    programs
        .map(|program| {
            let path = folder.join(program.name);
            if !path.is_file() {
                bail!(
                    "{} is missing: build it, or leave --no-build out",
                    path.display()
                );
            }
            Ok(Executable {
                name: program.name,
                path,
            })
        })
        .collect()
}

pub(super) fn add(tree: &mut Tree, programs: &[Executable]) {
    for program in programs {
        tree.add_program(&format!("bin/{}", program.name), &program.path);
    }
}

/// The file that cargo's messages have for a program.
fn executable(messages: &[Value], name: &str) -> Option<PathBuf> {
    let built = messages
        .iter()
        .filter(|message| text(&message["target"], "name") == name);
    built
        .filter_map(|message| message["executable"].as_str())
        .next_back()
        .map(PathBuf::from)
}

/// What the compilers write in the place of each folder of sources: the folders differ from machine to machine.
fn folder_names() -> Result<Vec<(PathBuf, &'static str)>> {
    // Dependencies are unpacked when they are fetched, and only then have folders.
    run::quietly("cargo", &["fetch", "--locked", "--quiet"])?;
    let mut folders = vec![(crate::root().to_owned(), "/lowroad")];
    let dependencies = dependencies()?.into_iter();
    folders.extend(dependencies.map(|folder| (folder, "/crates")));
    Ok(folders)
}

/// The compiler flags in the environment.
fn rust_flags() -> Vec<String> {
    match std::env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(flags) => flags.split('\x1f').map(str::to_owned).collect(),
        Err(_) => {
            let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
            flags.split_whitespace().map(str::to_owned).collect()
        }
    }
}

/// The folders into which cargo unpacks what it downloads, one for each registry.
fn dependencies() -> Result<Vec<PathBuf>> {
    let registry = cargo_home()?.join("registry/src");
    let folders = fs::read_dir(&registry).with_context(|| registry.display().to_string())?;
    let mut folders = folders
        .map(|folder| Ok(folder?.path()))
        .collect::<Result<Vec<_>>>()?;
    folders.sort();
    Ok(folders)
}

fn cargo_home() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named
        .or_else(home)
        .context("neither CARGO_HOME nor HOME is set")
}

/// Refuses programs that name the folder of the sources or of cargo: they would differ from those of another machine.
pub(super) fn require_no_folders(programs: &[Executable]) -> Result<()> {
    let folders = [crate::root().to_owned(), cargo_home()?];
    for program in programs {
        let image = fs::read(&program.path).with_context(|| program.path.display().to_string())?;
        for folder in &folders {
            if let Some(text) = line_with(&image, &format!("{}/", folder.display())) {
                bail!("{} names a folder of this machine: {text}", program.name);
            }
        }
    }
    Ok(())
}

/// The printable text around the first occurrence of a word.
fn line_with(image: &[u8], word: &str) -> Option<String> {
    let start = image
        .windows(word.len())
        .position(|bytes| bytes == word.as_bytes())?;
    let text = image[start..].iter().take(200);
    let text = text.take_while(|byte| byte.is_ascii_graphic());
    Some(text.map(|byte| char::from(*byte)).collect())
}
