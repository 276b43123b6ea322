//! The guest's whole file system, in memory: busybox, iproute2, modules, and our programs at the
//! paths they have here.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Result;
use boot::{Image, Kernel};

use crate::run;

pub(super) const BUSYBOX: &str = "/bin/busybox";

/// Programs that tests run, beyond those of busybox.
const TOOLS: &[&str] = &[
    "bash",
    "blkdiscard",
    "chattr",
    "dd",
    "env",
    "fallocate",
    "ip",
    "ipvsadm",
    "losetup",
    "mkfs.btrfs",
    "mkfs.ext4",
    "mkfs.xfs",
    "mount",
    "nft",
    "sqlite3",
    "sync",
    "tc",
    "touch",
    "umount",
];

/// Modules of Debian's kernel for datapaths, probes, the test bed and file systems in images.
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
    "sch_cake",
    "cls_bpf",
    "cls_flower",
    "cls_matchall",
    "act_bpf",
    "act_csum",
    "act_gact",
    "act_pedit",
    "act_police",
    "act_skbedit",
    "xsk_diag",
    "udp_diag",
    "nf_tables",
    "mpls_iptunnel",
    "vrf",
    "ip_vs",
    "ip_vs_rr",
    "xfrm_user",
    "esp4",
    "esp6",
    "authenc",
    "echainiv",
    "jitterentropy_rng",
    "sha512_generic",
    "drbg",
    "loop",
    "btrfs",
    "xfs",
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

/// The production binary.
pub(super) fn lowroad() -> PathBuf {
    built("lowroad")
}

/// A program that cargo built beside the tests.
pub(super) fn built(program: &str) -> PathBuf {
    crate::root().join("target/debug").join(program)
}

/// The base system with the kernel's modules.
pub(super) fn base(kernel: &Kernel) -> Result<Image> {
    let mut image = Image::default();
    for folder in [
        "bin", "dev", "proc", "sys", "tmp", "run", "root", "etc", "modules",
    ] {
        image.folder(Path::new("/").join(folder));
    }
    image.file(BUSYBOX, BUSYBOX);
    image.link("/bin/sh", "busybox");
    // Busybox has smaller ones of some names; /usr/sbin comes first in the guest.
    for tool in TOOLS {
        if let Some(program) = run::find(tool) {
            image.program(Path::new("/usr/sbin").join(tool), &program);
        }
    }
    image.modules(&kernel.modules(MODULES)?);
    image.text("/init", INIT);
    image.text("/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    Ok(image)
}

/// A file without its debugging information: the guest's memory is small. Modules stay whole, since
/// their symbols are what links them.
pub(super) fn stripped(source: &Path) -> io::Result<Vec<u8>> {
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
