//! The hash of a tree, implemented literally from its definition.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::bed::trees::extended;

const BLOCK: usize = 64 << 10;

pub(crate) fn hash(root: &Path, owners: bool) -> String {
    let mut said = vec![u8::from(owners)];
    let mut first = BTreeMap::new();
    entry(root, &PathBuf::new(), owners, &mut first, &mut said);
    let mut hasher = blake3::Hasher::new_derive_key("lowroad replicate tree 1");
    hasher.update(&said);
    hasher.finalize().to_hex().to_string()
}

fn entry(
    root: &Path,
    path: &Path,
    owners: bool,
    first: &mut BTreeMap<u64, PathBuf>,
    said: &mut Vec<u8>,
) {
    let full = if path.as_os_str().is_empty() {
        root.to_owned()
    } else {
        root.join(path)
    };
    let metadata = full.symlink_metadata().unwrap();
    let kind = metadata.file_type();
    bytes(path.as_os_str().as_bytes(), said);
    if !kind.is_dir() && metadata.nlink() > 1 {
        let first = first.entry(metadata.ino()).or_insert_with(|| path.into());
        if first != path {
            said.push(0);
            bytes(first.as_os_str().as_bytes(), said);
            return;
        }
    }
    let numbers = [
        kind.is_file(),
        kind.is_dir(),
        kind.is_symlink(),
        kind.is_fifo(),
        kind.is_socket(),
    ];
    let number = numbers.iter().position(|is| *is).unwrap() + 1;
    said.push(u8::try_from(number).unwrap());
    let mut mode = metadata.mode() & 0o7777;
    if kind.is_symlink() {
        mode = 0;
    } else if !kind.is_dir() {
        mode &= 0o1777;
    }
    said.extend(u16::try_from(mode).unwrap().to_le_bytes());
    if owners {
        said.extend(metadata.uid().to_le_bytes());
        said.extend(metadata.gid().to_le_bytes());
    }
    let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    said.extend(modified.to_le_bytes());
    let extended: Vec<_> = extended(&full)
        .into_iter()
        .filter(|(name, _)| name.starts_with(b"user."))
        .collect();
    said.extend((extended.len() as u64).to_le_bytes());
    for (name, value) in &extended {
        bytes(name, said);
        bytes(value, said);
    }
    if kind.is_symlink() {
        bytes(fs::read_link(&full).unwrap().as_os_str().as_bytes(), said);
    } else if kind.is_file() {
        let content = fs::read(&full).unwrap();
        said.extend((content.len() as u64).to_le_bytes());
        let blocks: Vec<&[u8]> = content.chunks(BLOCK).collect();
        said.extend(merkle(&blocks));
    } else if kind.is_dir() {
        let mut names: Vec<_> = fs::read_dir(&full)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        for name in names {
            entry(root, &path.join(name), owners, first, said);
        }
    }
}

fn bytes(bytes: &[u8], said: &mut Vec<u8>) {
    said.extend((bytes.len() as u64).to_le_bytes());
    said.extend(bytes);
}

fn merkle(blocks: &[&[u8]]) -> [u8; 32] {
    match blocks {
        [] => *blake3::hash(b"").as_bytes(),
        [one] => *blake3::hash(one).as_bytes(),
        more => {
            let (left, right) = more.split_at(more.len().next_power_of_two() / 2);
            let both = [merkle(left), merkle(right)].concat();
            blake3::derive_key("lowroad replicate node 1", &both)
        }
    }
}
