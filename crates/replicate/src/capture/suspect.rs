//! Reads again what somebody has found to be otherwise than it was said.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::Capture;
use crate::record::{Kind, Name, Part};

impl Capture {
    /// Puts these parts of a file in doubt, and which names there are where it is: they are read, and said as the
    /// source has them. The path is below the root; a file that was not said has no parts yet, and is all read.
    pub fn suspect(&mut self, path: &Path, parts: &[Part]) {
        let deriver = &mut self.deriver;
        let Some(mut file) = deriver.tree.root() else {
            return;
        };
        let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
        let mut directory = file;
        for name in names.filter_map(|name| Name::new(name).ok()) {
            directory = file;
            let Some(below) = deriver.tree.child(directory, &name) else {
                deriver.doubt(directory, Part::Names);
                return;
            };
            file = below;
        }
        deriver.doubt(directory, Part::Names);
        let kind = deriver.tree.get(file).map(|node| node.kind.clone());
        for part in parts {
            let fits = match part {
                Part::Range { .. } => kind == Some(Kind::Regular),
                Part::Names => kind == Some(Kind::Directory),
                Part::Attributes => true,
            };
            if fits {
                deriver.doubt(file, part.clone());
            }
        }
    }
}
