//! Capture files: complete records in one file, or in a series whose oldest files are removed.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use packet::pcap::{ETHERNET, Writer};

use super::format::Chunk;
use super::name::Names;
use super::store::Store;
use crate::sink::Error;

/// The size of capture files, and the number that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The approximate size in bytes at which the next file begins.
    pub size: Option<u64>,
    /// The maximum number of files. The oldest is removed before the next begins.
    pub files: Option<u32>,
}

/// The capture files of a run.
#[derive(Debug)]
pub(crate) struct FrameFiles {
    names: Names,
    series: Series,
    open: Option<Store>,
    /// The link type of the frames, once there are any. A file holds frames of one link type.
    link_type: Option<u32>,
    complete: VecDeque<PathBuf>,
}

impl FrameFiles {
    /// Opens the first file, so that an invalid path is reported before the run begins.
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

    /// Appends complete records. After an error, the file contains all of them or none.
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

    /// The current file, opened if necessary.
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

    /// Completes the file, and removes the oldest if the series is full.
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

    /// Completes the last file. It is a valid capture even without frames.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.started()?.complete(&[])?;
        self.open = None;
        Ok(())
    }

    /// Removes an empty file, for a run that has not begun.
    pub(crate) fn abandon(&mut self) {
        let Some(mut store) = self.open.take() else {
            return;
        };
        // A file with frames is kept.
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
