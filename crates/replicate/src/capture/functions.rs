//! Selects kernel functions to attach programs to where the kernel has no tracepoints for the same
//! events. Checks that this kernel has the functions, and that programs can be attached to them.

mod types;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::utsname::uname;
use sys::kernel::{Config, Setting};

use super::format::Format;
use types::Types;

/// Names of arguments, by position.
type Arguments = &'static [(usize, &'static str)];

/// Functions that have the data of a write, and the arguments that their programs read, by
/// position. For each file system the first available one is used.
const WRITES: &[(&str, &str, Arguments)] = &[
    (
        "tmpfs",
        "shmem_write_end",
        &[(1, "mapping"), (2, "pos"), (3, "len"), (4, "copied")],
    ),
    (
        "xfs",
        "iomap_write_end",
        &[(0, "iter"), (1, "pos"), (2, "len"), (3, "copied")],
    ),
    (
        "xfs",
        "iomap_write_end",
        &[(0, "iter"), (1, "len"), (2, "copied")],
    ),
    (
        "btrfs",
        "btrfs_dirty_pages",
        &[(0, "inode"), (3, "pos"), (4, "write_bytes")],
    ),
    (
        "btrfs",
        "btrfs_dirty_folio",
        &[(0, "inode"), (2, "pos"), (3, "write_bytes")],
    ),
];
/// Functions that set or remove extended attributes. A write may remove one.
const XATTR_FUNCTIONS: &[(&str, Arguments)] = &[
    ("__vfs_setxattr", &[(1, "dentry"), (2, "inode")]),
    ("__vfs_removexattr", &[(1, "dentry")]),
];
/// Functions that report changes on kernels without a tracepoint for them.
const CHANGES: &[(&str, Arguments)] = &[
    ("current_time", &[(0, "inode")]),
    ("security_inode_create", &[(0, "dir")]),
    ("security_inode_mkdir", &[(0, "dir")]),
    ("security_inode_mknod", &[(0, "dir")]),
    ("security_inode_symlink", &[(0, "dir")]),
    ("security_inode_link", &[(0, "old_dentry"), (1, "dir")]),
    ("security_inode_unlink", &[(0, "dir"), (1, "dentry")]),
    ("security_inode_rmdir", &[(0, "dir"), (1, "dentry")]),
    (
        "security_inode_rename",
        &[
            (0, "old_dir"),
            (1, "old_dentry"),
            (2, "new_dir"),
            (3, "new_dentry"),
        ],
    ),
];
/// Functions that request the time of an access.
const ACCESSES: [&str; 2] = ["atime_needs_update", "touch_atime"];
/// Symbols with the addresses of the kernel's direct map of memory and of its page descriptors.
const MAPS: [&str; 2] = ["page_offset_base", "vmemmap_base"];
/// Exists if programs can be attached to functions.
const FUNCTIONS: &str = "/sys/bus/event_source/devices/kprobe";

/// The functions to use for a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    /// The names of the functions.
    pub(super) run_at: Vec<&'static str>,
    /// The function that reports writes. `None` if writes are read back.
    pub(super) write: Option<&'static str>,
    /// The function does not receive the offset as an argument, but has it.
    pub(super) at_offset: bool,
    pub(super) maps: [u64; 2],
    /// The address ranges of the functions.
    pub(super) accesses: [(u64, u64); 2],
}

/// Checks that programs can be attached to functions of this kernel, as far as can be known in
/// advance.
///
/// # Errors
/// The reason as text.
pub fn check() -> Result<(), &'static str> {
    if !Path::new(FUNCTIONS).exists() {
        return Err("the kernel lacks CONFIG_KPROBE_EVENTS");
    }
    let symbols = Symbols::read(&MAPS);
    if MAPS.iter().any(|map| symbols.start(map).is_none()) {
        return Err("/proc/kallsyms does not say where the kernel maps memory");
    }
    Ok(())
}

impl Functions {
    /// Whether they report changes for which other kernels have tracepoints.
    pub(super) fn changes(&self) -> bool {
        self.accesses != [(0, 0); 2]
    }

    pub(super) fn without_writes(mut self) -> Self {
        let write = self.write.take();
        self.run_at.retain(|name| Some(*name) != write);
        self
    }

    /// The functions for a file system. Those for changes are included only if there is no
    /// tracepoint for them.
    pub(super) fn of(format: Format, changes: bool) -> Result<Self, &'static str> {
        check()?;
        unpreempted()?;
        let types = Types::read(format.name()).map_err(|_| "the kernel's types cannot be read")?;
        let has = |name: &str, wanted: &[(usize, &str)]| {
            types.arguments(name).is_some_and(|arguments| {
                let mut wanted = wanted.iter();
                wanted.all(|(place, name)| arguments.get(*place) == Some(name))
            })
        };
        let all = |functions: &[(&'static str, Arguments)]| {
            let present = functions
                .iter()
                .all(|(name, arguments)| has(name, arguments));
            present.then(|| functions.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        };
        let symbols = Symbols::read(&[MAPS, ACCESSES].concat());
        let mut functions = Self {
            run_at: all(XATTR_FUNCTIONS)
                .ok_or("its functions for extended attributes are not known")?,
            ..Self::default()
        };
        if changes {
            let told = all(CHANGES).ok_or("its functions for changes are not known")?;
            functions.run_at.extend(told);
            for (access, name) in functions.accesses.iter_mut().zip(ACCESSES) {
                *access = symbols.code(name).ok_or("who reads a file is not known")?;
            }
        }
        for (map, name) in functions.maps.iter_mut().zip(MAPS) {
            *map = symbols.start(name).unwrap_or_default();
        }
        let writes = WRITES.iter().filter(|(of, ..)| *of == format.name());
        let mut writes = writes.filter(|(_, name, arguments)| has(name, arguments));
        if let Some((_, name, arguments)) = writes.next() {
            functions.write = Some(name);
            functions.at_offset = arguments.contains(&(1, "len"));
        }
        functions.run_at.extend(functions.write);
        Ok(functions)
    }
}

/// A fully preemptible kernel may skip a program because another task was preempted in the middle
/// of one, and nothing would report that.
pub(super) fn unpreempted() -> Result<(), &'static str> {
    let name = uname().map_err(|_| "nobody knows whether it is preempted")?;
    let version = name.version().to_string_lossy();
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let built = Config::running().get("CONFIG_PREEMPT") == Setting::BuiltIn;
    match preempted(&version, &line, built) {
        true => Err("it is preempted anywhere (CONFIG_PREEMPT, or preempt=full)"),
        false => Ok(()),
    }
}

/// Determines it from `uname -v`, the kernel's command line, and the build configuration.
fn preempted(version: &str, line: &str, built: bool) -> bool {
    let mut words = version.split_whitespace();
    if !words.any(|word| word == "PREEMPT_DYNAMIC") {
        let mut words = version.split_whitespace();
        return words.any(|word| matches!(word, "PREEMPT" | "PREEMPT_RT"));
    }
    let mut asked = line.split_whitespace();
    match asked.find_map(|word| word.strip_prefix("preempt=")) {
        Some(asked) => asked == "full",
        None => built,
    }
}

/// The addresses of some of the kernel's symbols.
#[derive(Debug, Default)]
struct Symbols(BTreeMap<String, (u64, u64)>);

impl Symbols {
    fn read(names: &[&str]) -> Self {
        // Without the file there are no symbols.
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let mut found = BTreeMap::new();
        for (address, name) in text.lines().filter_map(symbol) {
            if address != 0 && names.contains(&name) {
                found.insert(name.to_owned(), (address, u64::MAX));
            }
        }
        for (address, _) in text.lines().filter_map(symbol) {
            for (start, end) in found.values_mut() {
                if address > *start && address < *end {
                    *end = address;
                }
            }
        }
        Self(found)
    }

    fn start(&self, name: &str) -> Option<u64> {
        self.code(name).map(|(start, _)| start)
    }

    /// The code of a function, up to the next symbol.
    fn code(&self, name: &str) -> Option<(u64, u64)> {
        self.0.get(name).copied()
    }
}

fn symbol(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((address, words.nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_preempted_as_it_was_built_or_told() {
        for (version, line, built, preempted_anywhere) in [
            (
                "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2",
                "quiet",
                false,
                false,
            ),
            (
                "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2",
                "quiet",
                true,
                true,
            ),
            ("#1 SMP PREEMPT_DYNAMIC", "preempt=full", false, true),
            ("#1 SMP PREEMPT_DYNAMIC", "preempt=voluntary", true, false),
            ("#1 SMP PREEMPT_RT Debian", "preempt=none", false, true),
            ("#1 SMP PREEMPT", "", false, true),
            ("#1 SMP", "preempt=full", false, false),
        ] {
            assert_eq!(
                preempted(version, line, built),
                preempted_anywhere,
                "{version} {line}"
            );
        }
    }

    #[test]
    fn a_symbol_has_an_address_and_a_name() {
        let line = "ffffffffa0971690 T current_time";
        assert_eq!(symbol(line), Some((0xffff_ffff_a097_1690, "current_time")));
        let line = "ffffffffc0409b70 t btrfs_buffered_write\t[btrfs]";
        assert_eq!(
            symbol(line),
            Some((0xffff_ffff_c040_9b70, "btrfs_buffered_write"))
        );
        assert_eq!(symbol("no address"), None);
    }
}
