//! Reads where a tree is mounted, and what is mounted within it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::makedev;

/// A line of `/proc/thread-self/mountinfo`.
#[derive(Debug)]
struct Mount {
    id: u64,
    device: u64,
    at: PathBuf,
    /// The type of its file system.
    kind: Vec<u8>,
    /// The options of the mount itself, as they are written there.
    own: Vec<u8>,
    /// The options of the file system, as they are written there.
    options: Vec<u8>,
}

/// The device number that the kernel uses for an open directory's file system. `st_dev` may differ
/// from it.
pub(super) fn device(directory: impl AsFd) -> io::Result<Option<u64>> {
    Ok(mount(directory)?.map(|mount| mount.device))
}

/// Whether an open directory's file system was mounted with one of these options.
pub(super) fn has_option(directory: impl AsFd, wanted: &[&str]) -> io::Result<bool> {
    any_option(directory, |option| {
        wanted.iter().any(|wanted| option == wanted.as_bytes())
    })
}

/// Whether an open directory's btrfs was mounted with an option that makes it compress data.
pub(crate) fn compresses(directory: impl AsFd) -> io::Result<bool> {
    any_option(directory, |option| option.starts_with(b"compress"))
}

fn any_option(directory: impl AsFd, wanted: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    let mount = mount(directory)?.ok_or(io::ErrorKind::NotFound)?;
    let mut options = mount.options.split(|byte| *byte == b',');
    Ok(options.any(wanted))
}

/// Whether an open directory's mount shows other owners than its file system stores.
pub(super) fn maps_owners(directory: impl AsFd) -> io::Result<bool> {
    let maps = |mount: Mount| {
        mount
            .own
            .split(|byte| *byte == b',')
            .any(|option| option == b"idmapped")
    };
    Ok(mount(directory)?.is_some_and(maps))
}

fn mount(directory: impl AsFd) -> io::Result<Option<Mount>> {
    let info = format!("/proc/thread-self/fdinfo/{}", directory.as_fd().as_raw_fd());
    let info = fs::read_to_string(info)?;
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .and_then(|id| id.trim().parse::<u64>().ok());
    let mounts = read()?;
    Ok(mounts.into_iter().find(|mount| Some(mount.id) == id))
}

/// The mount points of file systems of a type.
pub(super) fn of_kind(kind: &[u8]) -> io::Result<Vec<PathBuf>> {
    let mounts = read()?.into_iter().filter(|mount| mount.kind == kind);
    Ok(mounts.map(|mount| mount.at).collect())
}

/// The mount points below a directory.
pub(super) fn below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = directory.canonicalize()?;
    let places = read()?.into_iter().map(|mount| mount.at);
    let mut below: Vec<_> = places
        .filter(|at| *at != directory && at.starts_with(&directory))
        .collect();
    below.sort();
    below.dedup();
    Ok(below)
}

fn read() -> io::Result<Vec<Mount>> {
    let text = fs::read("/proc/thread-self/mountinfo")?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = text(words.next()?)?.parse().ok()?;
    let _parent = words.next()?;
    let (major, minor) = text(words.next()?)?.split_once(':')?;
    let device = makedev(major.parse().ok()?, minor.parse().ok()?);
    let _root = words.next()?;
    let at = PathBuf::from(OsString::from_vec(unescape(words.next()?)));
    let own = words.next()?.to_vec();
    // After any number of optional fields come a dash, the type and the source.
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = words.next()?.to_vec();
    let options = words.nth(1);
    Some(Mount {
        id,
        device,
        at,
        kind,
        own,
        options: options.unwrap_or_default().to_vec(),
    })
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Decodes spaces and similar characters, which are written as three octal digits.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(text);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = if byte.is_some() {
            after.get(3..).unwrap_or_default()
        } else {
            after
        };
        plain.push(byte.unwrap_or(*first));
    }
    plain
}
