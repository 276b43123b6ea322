//! Debian 12's cloud kernel: finds or downloads its package, and resolves the modules we need.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run;

const FOLDER: &str = ".cache/guest";

/// What datapaths, probes, the test bed and file systems in images use that Debian builds as modules.
const MODULES: &[&str] = &[
    "veth",
    "bridge",
    "macvlan",
    "dummy",
    "8021q",
    "tun",
    "af_packet",
    "sch_ingress",
    "sch_fq",
    "sch_netem",
    "sch_tbf",
    "cls_bpf",
    "act_bpf",
    "xsk_diag",
    "udp_diag",
    "nf_tables",
    "loop",
];

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// Module files, each after those it depends on.
    pub(super) modules: Vec<PathBuf>,
}

/// The unpacked kernel, from an earlier run or from Debian's archive.
pub(super) fn available() -> Result<Kernel> {
    let tree = match unpacked() {
        Some(tree) => tree,
        None => download()?,
    };
    let image = find(&tree.join("boot"), &|name| name.starts_with("vmlinuz-"))
        .context("the package has no kernel image")?;
    let modules = resolve(&tree)?;
    Ok(Kernel { image, modules })
}

fn unpacked() -> Option<PathBuf> {
    find(Path::new(FOLDER), &|name| {
        name.starts_with("linux-image-6.1") && !name.ends_with(".deb")
    })
}

fn download() -> Result<PathBuf> {
    let package = current_package()?;
    fs::create_dir_all(FOLDER).context(FOLDER)?;
    let status = std::process::Command::new("apt-get")
        .args(["download", "--quiet", &package])
        .current_dir(FOLDER)
        .status()
        .context("apt-get does not start")?;
    let archive = find(Path::new(FOLDER), &|name| name.ends_with(".deb"));
    let (true, Some(archive)) = (status.success(), archive) else {
        bail!("apt-get download {package} did not work: is the network there?");
    };
    let part = Path::new(FOLDER).join("part");
    run::quietly("dpkg-deb", &[Path::new("--extract"), &archive, &part])?;
    fs::remove_file(&archive).context("the unpacked package")?;
    // Renamed last: an interrupted run leaves nothing that looks complete.
    let tree = Path::new(FOLDER).join(&package);
    fs::rename(&part, &tree).with_context(|| tree.display().to_string())?;
    Ok(tree)
}

/// The package that linux-image-cloud-amd64 stands for today.
fn current_package() -> Result<String> {
    let depends = run::output("apt-cache", &["depends", "linux-image-cloud-amd64"])?;
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with("linux-image-6.1"))
        .map(str::to_owned)
        .context("apt knows no linux-image-6.1 cloud kernel: run apt-get update on Debian 12")
}

/// The files of MODULES in an order in which each can be loaded.
fn resolve(tree: &Path) -> Result<Vec<PathBuf>> {
    let mut files = HashMap::new();
    collect(&tree.join("lib/modules"), &mut files)?;
    let mut order = Vec::new();
    for module in MODULES {
        visit(module, &files, &mut order)?;
    }
    Ok(order)
}

fn visit(module: &str, files: &HashMap<String, PathBuf>, order: &mut Vec<PathBuf>) -> Result<()> {
    // A name without a file is built in.
    let Some(file) = files.get(module) else {
        return Ok(());
    };
    if order.contains(file) {
        return Ok(());
    }
    for dependency in depends(file)? {
        visit(&dependency, files, order)?;
    }
    order.push(file.clone());
    Ok(())
}

/// The names in a module's `depends=` note, as modinfo would print them.
fn depends(file: &Path) -> Result<Vec<String>> {
    const NOTE: &[u8] = b"\0depends=";
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let Some(at) = bytes.windows(NOTE.len()).position(|window| window == NOTE) else {
        return Ok(Vec::new());
    };
    let list = bytes[at + NOTE.len()..].split(|byte| *byte == 0).next();
    let list = String::from_utf8_lossy(list.unwrap_or_default());
    Ok(list
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

fn collect(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "ko")
            && let Some(stem) = path.file_stem()
        {
            files.insert(stem.to_string_lossy().replace('-', "_"), path);
        }
    }
    Ok(())
}

fn find(folder: &Path, matches: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| matches(&name.to_string_lossy()))
        })
}
