//! Debian 12's kernels: found where an earlier run put them, or downloaded, and the modules resolved.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, at};

/// Which of Debian's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// Without drivers that virtual machines have no use for.
    Cloud,
    /// With PREEMPT_RT.
    Rt,
}

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The compressed image.
    pub image: PathBuf,
    /// `6.1.0-56-cloud-amd64`
    pub release: String,
    tree: PathBuf,
}

impl Flavour {
    fn package(self) -> &'static str {
        match self {
            Self::Cloud => "linux-image-cloud-amd64",
            Self::Rt => "linux-image-rt-amd64",
        }
    }

    /// Whether the package of one version, `linux-image-6.1.0-56-rt-amd64`, is of this flavour.
    fn names(self, package: &str) -> bool {
        let ending = self.package().trim_start_matches("linux-image");
        let version = package.strip_prefix("linux-image-");
        version.is_some_and(|version| version.starts_with("6.1") && version.ends_with(ending))
    }
}

impl Kernel {
    /// The unpacked kernel, from an earlier run or from Debian's archive. It is kept in
    /// `~/.cache/lowroad/guest`, or below `XDG_CACHE_HOME` where that is set.
    ///
    /// # Errors
    /// When there is none and apt cannot get it.
    pub fn available(flavour: Flavour) -> Result<Self, Error> {
        let cache = cache();
        Self::of(match unpacked(&cache, flavour) {
            Some(tree) => tree,
            None => download(&cache, flavour)?,
        })
    }

    /// The one from an earlier run.
    pub fn cached(flavour: Flavour) -> Option<Self> {
        Self::of(unpacked(&cache(), flavour)?).ok()
    }

    fn of(tree: PathBuf) -> Result<Self, Error> {
        let none = || Error::NoKernel(tree.display().to_string());
        let image = find(&tree.join("boot"), &|name| name.starts_with("vmlinuz-"));
        let image = image.ok_or_else(none)?;
        let name = image.file_name().ok_or_else(none)?.to_string_lossy();
        Ok(Self {
            release: name.trim_start_matches("vmlinuz-").to_owned(),
            image,
            tree,
        })
    }

    /// The files of these modules and of those they depend on, in an order in which each can be
    /// loaded. What the kernel has built in has no file.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>, Error> {
        let mut files = HashMap::new();
        collect(&self.tree.join("lib/modules"), &mut files)?;
        let mut order = Vec::new();
        for name in names {
            visit(name, &files, &mut order)?;
        }
        Ok(order)
    }
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let caches = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    let caches = caches.map_or_else(|| home().join(".cache"), PathBuf::from);
    caches.join("lowroad/guest")
}

fn unpacked(cache: &Path, flavour: Flavour) -> Option<PathBuf> {
    find(cache, &|name| flavour.names(name))
}

fn download(cache: &Path, flavour: Flavour) -> Result<PathBuf, Error> {
    let package = current_package(flavour)?;
    fs::create_dir_all(cache).map_err(at(cache))?;
    // Two that download at once have a folder each.
    let part = tempfile::tempdir_in(cache).map_err(at(cache))?;
    let output = Command::new("apt-get")
        .args(["download", "--quiet", &package])
        .current_dir(part.path())
        .output()
        .map_err(|cause| Error::Program("apt-get", cause))?;
    let failed = |output: &[u8]| Error::Download {
        package: package.clone(),
        output: String::from_utf8_lossy(output).trim().replace('\n', "; "),
    };
    let archive = find(part.path(), &|name| name.ends_with(".deb"));
    let archive = archive
        .filter(|_| output.status.success())
        .ok_or_else(|| failed(&output.stderr))?;
    let tree = part.path().join("tree");
    let output = Command::new("dpkg-deb")
        .arg("--extract")
        .args([&archive, &tree])
        .output()
        .map_err(|cause| Error::Program("dpkg-deb", cause))?;
    if !output.status.success() {
        return Err(failed(&output.stderr));
    }
    // Renamed last: an interrupted run leaves nothing that looks complete.
    let cached = cache.join(&package);
    match fs::rename(&tree, &cached) {
        Err(_) if cached.is_dir() => Ok(cached),
        renamed => renamed.map(|()| cached.clone()).map_err(at(&cached)),
    }
}

/// The package of the version that a flavour stands for today.
fn current_package(flavour: Flavour) -> Result<String, Error> {
    let output = Command::new("apt-cache")
        .args(["depends", flavour.package()])
        .output()
        .map_err(|cause| Error::Program("apt-cache", cause))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| flavour.names(package))
        .map(str::to_owned)
        .ok_or_else(|| Error::NoPackage(flavour.package()))
}

fn visit(
    module: &str,
    files: &HashMap<String, PathBuf>,
    order: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    // A name without a file is built in.
    let Some(file) = files.get(module) else {
        return Ok(());
    };
    if order.contains(file) {
        return Ok(());
    }
    for dependency in depends(&fs::read(file).map_err(at(file))?) {
        visit(&dependency, files, order)?;
    }
    order.push(file.clone());
    Ok(())
}

/// The names in a module's `depends=` note, as modinfo would print them.
fn depends(module: &[u8]) -> Vec<String> {
    const NOTE: &[u8] = b"\0depends=";
    let at = module.windows(NOTE.len()).position(|window| window == NOTE);
    let list = at.and_then(|at| module[at + NOTE.len()..].split(|byte| *byte == 0).next());
    String::from_utf8_lossy(list.unwrap_or_default())
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn collect(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_knows_its_packages() {
        assert!(Flavour::Rt.names("linux-image-6.1.0-56-rt-amd64"));
        assert!(Flavour::Cloud.names("linux-image-6.1.0-56-cloud-amd64"));
        for other in [
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-rt-amd64",
            "linux-image-6.12.0-1-rt-amd64-unsigned",
        ] {
            assert!(!Flavour::Rt.names(other), "{other}");
        }
    }

    #[test]
    fn modules_come_after_what_they_depend_on_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = HashMap::new();
        for (name, note) in [
            ("virtio_net", "net_failover"),
            ("net_failover", "failover"),
            ("failover", ""),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, format!("ELF\0license=GPL\0depends={note}\0name=x\0")).unwrap();
            files.insert(name.to_owned(), file);
        }
        let mut order = Vec::new();
        for name in ["virtio_net", "failover", "built_in"] {
            visit(name, &files, &mut order).unwrap();
        }
        let names: Vec<_> = order.iter().filter_map(|file| file.file_name()).collect();
        assert_eq!(names, ["failover", "net_failover", "virtio_net"]);
        assert_eq!(depends(b"\0depends=a,b_c\0"), ["a", "b_c"]);
    }
}
