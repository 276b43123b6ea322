//! Capture files: whole records, in one file or in a series of which the oldest go.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use packet::pcap::{ETHERNET, Writer};

use super::format::Chunk;
use super::name::Names;
use super::store::Store;
use crate::sink::Error;

/// When another capture file begins, and how many are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// At about this many bytes.
    pub size: Option<u64>,
    /// Files, at most: the oldest is removed for the next.
    pub files: Option<u32>,
}

/// The capture files of a run.
#[derive(Debug)]
pub(crate) struct FrameFiles {
    names: Names,
    series: Series,
    open: Option<Store>,
    /// Of the frames, once there is one: a file has frames of one.
    link_type: Option<u32>,
    complete: VecDeque<PathBuf>,
}

impl FrameFiles {
    /// Opens the first file, so that what is wrong with the path is said before the work begins.
    pub(crate) fn create(path: &Path, series: Series) -> Result<Self, Error> {
        let mut names = Names::new(path, series.size.is_some())?;
        let open = Some(names.open()?);
        Ok(Self {
            names,
            series,
            open,
            link_type: None,
            complete: VecDeque::new(),
        })
    }

    /// Appends whole records. After an error the file has all of them or none.
    pub(crate) fn append(&mut self, link_type: u32, records: Vec<u8>) -> Result<(), Error> {
        if *self.link_type.get_or_insert(link_type) != link_type {
            return Err(Error::LinkTypes);
        }
        let bytes = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let is_full = |store: &mut Store| {
            let size = self.series.size.unwrap_or(u64::MAX);
            store.len() > 0 && store.len().saturating_add(bytes) > size
        };
        if self.open.as_mut().is_some_and(is_full) {
            self.close()?;
        }
        self.started()?.commit(&chunk(records))
    }

    /// The file, begun.
    fn started(&mut self) -> Result<&mut Store, Error> {
        let store = match &mut self.open {
            Some(store) => store,
            none => none.insert(self.names.open()?),
        };
        if store.len() == 0 {
            let link_type = self.link_type.unwrap_or(ETHERNET);
            let header = Writer::new(Vec::new(), link_type).and_then(Writer::finish);
            store.commit(&chunk(header.map_err(Error::io(store.path()))?))?;
        }
        Ok(store)
    }

    /// Completes the file, and makes room for the next.
    fn close(&mut self) -> Result<(), Error> {
        let Some(mut store) = self.open.take() else {
            return Ok(());
        };
        store.complete(&[])?;
        self.complete.push_back(store.path().to_owned());
        let most = self.series.files.map_or(usize::MAX, |files| files as usize);
        while self.complete.len() >= most {
            if let Some(oldest) = self.complete.pop_front() {
                fs::remove_file(&oldest).map_err(Error::io(&oldest))?;
            }
        }
        Ok(())
    }

    /// Completes the last file, which is a capture also where nothing came.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.started()?.complete(&[])?;
        self.open = None;
        Ok(())
    }

    /// Leaves no file behind where nothing was written: for a run that has not begun.
    pub(crate) fn abandon(&mut self) {
        let Some(mut store) = self.open.take() else {
            return;
        };
        // What has frames is kept.
        if store.len() == 0 || store.complete(&[]).is_err() {
            store.discard();
        }
    }
}

fn chunk(bytes: Vec<u8>) -> Chunk {
    Chunk {
        bytes,
        ..Chunk::default()
    }
}
