//! The archive format of an initial file system ("newc"; the kernel's buffer-format.rst).

use std::io::{Result, Write};

/// Writes entries in the order they are given; folders must come before what is in them.
#[derive(Debug)]
pub(crate) struct Archive<W: Write> {
    out: W,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, entries: 0 }
    }

    pub(crate) fn folder(&mut self, path: &str) -> Result<()> {
        self.entry(path, FOLDER, &[])
    }

    pub(crate) fn program(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.entry(path, PROGRAM, content)
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.entry(path, LINK, target.as_bytes())
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let path = path.trim_start_matches('/');
        let (inode, size, name) = (self.entries, content.len(), path.len() + 1);
        write!(
            self.out,
            "070701{inode:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name:08x}{:08x}",
            0, 0, 1, 0, 0, 0, 0, 0, 0
        )?;
        self.out.write_all(path.as_bytes())?;
        // The header is 110 bytes; names and contents end on multiples of four.
        self.pad(110 + path.len(), 1)?;
        self.out.write_all(content)?;
        self.pad(size, 0)
    }

    fn pad(&mut self, length: usize, at_least: usize) -> Result<()> {
        let padded = (length + at_least).next_multiple_of(4);
        self.out.write_all(&[0; 4][..padded - length])
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_aligned_and_sized() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.program("/bin/x", b"hello").unwrap();
        archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[110..116], b"bin/x\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
    }
}
