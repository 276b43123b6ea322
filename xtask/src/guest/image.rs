//! The guest's whole file system, in memory: busybox, iproute2, modules, and our programs at the
//! paths they have here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::kernel::Kernel;
use crate::run;

pub(super) const BUSYBOX: &str = "/bin/busybox";

/// What tests run, beside what busybox has.
const TOOLS: &[&str] = &[
    "bash",
    "env",
    "fallocate",
    "ip",
    "mkfs.ext4",
    "mount",
    "sqlite3",
    "tc",
];

/// Loads the modules, then obeys the serial line; `console` knows the word that says ready.
const INIT: &str = "#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
mkdir -p /run/netns /var
ln -s /run /var/run
for module in $(cat /modules/order); do insmod /modules/$module; done
ip link set lo up
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
stty -echo
echo; echo lowroad-guest-ready
while read -r line; do eval \"$line\"; done
";

#[derive(Debug)]
pub(super) struct Image {
    files: BTreeMap<PathBuf, PathBuf>,
    texts: BTreeMap<PathBuf, String>,
    folders: BTreeSet<PathBuf>,
}

/// The binary under test, built beside the test programs.
pub(super) fn lowroad() -> PathBuf {
    built("lowroad")
}

fn built(program: &str) -> PathBuf {
    crate::root().join("target/debug").join(program)
}

impl Image {
    /// The base system with the kernel's modules.
    pub(super) fn new(kernel: &Kernel) -> Result<Self> {
        let mut image = Self {
            files: BTreeMap::new(),
            texts: BTreeMap::new(),
            folders: BTreeSet::new(),
        };
        for folder in [
            "bin", "dev", "proc", "sys", "tmp", "run", "root", "etc", "modules",
        ] {
            image.folder(&Path::new("/").join(folder));
        }
        image.files.insert(BUSYBOX.into(), BUSYBOX.into());
        // Busybox has smaller ones of some names; /usr/sbin comes first in the guest.
        for tool in TOOLS {
            if let Some(program) = run::find(tool) {
                image.program_as(&program, &Path::new("/usr/sbin").join(tool))?;
            }
        }
        for program in [lowroad(), built("statefuzz")] {
            if program.is_file() {
                image.program(&program)?;
            }
        }
        let mut order = String::new();
        for module in &kernel.modules {
            let name = Path::new(module.file_name().context("a module has a name")?);
            image
                .files
                .insert(Path::new("/modules").join(name), module.clone());
            order.push_str(&format!("{}\n", name.display()));
        }
        image.texts.insert("/modules/order".into(), order);
        image.texts.insert("/init".into(), INIT.to_owned());
        image.texts.insert(
            "/etc/passwd".into(),
            "root:x:0:0::/root:/bin/sh\n".to_owned(),
        );
        Ok(image)
    }

    pub(super) fn folder(&mut self, folder: &Path) {
        self.folders.insert(folder.to_owned());
    }

    /// A program at its own path, with the libraries it needs.
    pub(super) fn program(&mut self, program: &Path) -> Result<()> {
        self.program_as(program, program)
    }

    fn program_as(&mut self, program: &Path, at: &Path) -> Result<()> {
        self.files.insert(at.to_owned(), program.to_owned());
        let libraries = run::output("ldd", &[program]).unwrap_or_default();
        for library in libraries
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            self.files.insert(library.into(), library.into());
        }
        Ok(())
    }

    pub(super) fn write(mut self, to: &Path) -> Result<()> {
        for path in self.files.keys().chain(self.texts.keys()) {
            for folder in path.ancestors().skip(1) {
                self.folders.insert(folder.to_owned());
            }
        }
        for folder in self.folders.clone() {
            self.folders.extend(folder.ancestors().map(Path::to_owned));
        }
        self.folders.remove(Path::new("/"));
        let mut archive = Archive::new(BufWriter::new(File::create(to)?));
        for folder in &self.folders {
            archive.folder(&folder.to_string_lossy())?;
        }
        for (path, text) in &self.texts {
            archive.program(&path.to_string_lossy(), text.as_bytes())?;
        }
        for (path, source) in &self.files {
            let content = stripped(source).with_context(|| source.display().to_string())?;
            archive.program(&path.to_string_lossy(), &content)?;
        }
        archive.link("/bin/sh", "busybox")?;
        archive.finish()?;
        Ok(())
    }
}

/// A file without its debugging information: the guest's memory is small. Modules stay whole, since
/// their symbols are what links them.
fn stripped(source: &Path) -> io::Result<Vec<u8>> {
    if !source.starts_with(crate::root().join("target")) {
        return fs::read(source);
    }
    let copy = Path::new(".cache/guest/stripped");
    let status = std::process::Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .args([copy, source])
        .status()?;
    if !status.success() {
        return fs::read(source);
    }
    let content = fs::read(copy)?;
    fs::remove_file(copy)?;
    Ok(content)
}
