//! Reading a hash table by many entries in each call.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;

use libbpf_rs::libbpf_sys::{self, bpf_map_batch_opts};
use libbpf_rs::{MapCore as _, MapType};

use crate::map::about;
use crate::{Error, Map, Plain};

/// Entries of a hash table that one call has read, and room for those of the next.
#[derive(Debug)]
pub struct Batch<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    room: u32,
}

/// A place in a hash table that is read in batches; its start by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Option<u32>);

/// Whether a call keeps or deletes the entries that it reads.
#[derive(Clone, Copy)]
enum Access {
    Read,
    Take,
}

impl<K: Plain, V: Plain> Batch<K, V> {
    /// Makes room for `room` entries in each call; for more if one bucket of a table has more.
    pub fn new(room: u32) -> Self {
        Self {
            keys: Vec::new(),
            values: Vec::new(),
            room,
        }
    }

    /// How many entries one call reads at most.
    pub fn room(&self) -> usize {
        usize::try_from(self.room).unwrap_or(usize::MAX)
    }

    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    /// In the order of the keys.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    pub fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.keys.iter().zip(&self.values)
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.keys.reserve(self.room());
        self.values.reserve(self.room());
    }
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// Reads the entries of a hash table from the cursor on, and moves it; whether there are more.
    ///
    /// # Errors
    /// The map is not a hash table, or has a copy for each CPU: the kernel cannot read it in batches.
    pub fn read_batch(&self, cursor: &mut Cursor, batch: &mut Batch<K, V>) -> Result<bool, Error> {
        self.batch(cursor, batch, Access::Read)
            .map_err(|error| about("reading", &self.handle)(error.into()))
    }

    /// As [`Self::read_batch`], and removes the entries.
    ///
    /// # Errors
    /// As [`Self::read_batch`].
    pub fn take_batch(&self, cursor: &mut Cursor, batch: &mut Batch<K, V>) -> Result<bool, Error> {
        self.batch(cursor, batch, Access::Take)
            .map_err(|error| about("emptying", &self.handle)(error.into()))
    }

    fn batch(
        &self,
        cursor: &mut Cursor,
        batch: &mut Batch<K, V>,
        access: Access,
    ) -> io::Result<bool> {
        // Maps of other types have longer cursors or longer values.
        if !matches!(self.handle.map_type(), MapType::Hash | MapType::LruHash) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        loop {
            match self.attempt(cursor, batch, access) {
                // One bucket has more entries than there is room for.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => batch.room *= 2,
                result => return result,
            }
        }
    }

    fn attempt(
        &self,
        cursor: &mut Cursor,
        batch: &mut Batch<K, V>,
        access: Access,
    ) -> io::Result<bool> {
        batch.clear();
        let call = match access {
            Access::Read => libbpf_sys::bpf_map_lookup_batch,
            Access::Take => libbpf_sys::bpf_map_lookup_and_delete_batch,
        };
        let mut from = cursor.0;
        let mut next = 0_u32;
        let mut count = batch.room;
        let options = bpf_map_batch_opts {
            sz: size_of::<bpf_map_batch_opts>() as _,
            ..Default::default()
        };
        let from = from.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: keys and values have room for `count` entries, whose sizes are those of the map. The cursor of a hash
        // table is 32 bits. All outlive the call.
        let result = unsafe {
            call(
                self.handle.as_fd().as_raw_fd(),
                from.cast(),
                (&raw mut next).cast(),
                batch.keys.as_mut_ptr().cast(),
                batch.values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        let error = io::Error::from_raw_os_error(-result);
        let at_end = error.kind() == io::ErrorKind::NotFound;
        if result < 0 && !at_end {
            return Err(error);
        }
        let count = usize::try_from(count).unwrap_or(0).min(batch.room());
        // SAFETY: the kernel has written this many keys and values, and any bytes are valid ones.
        unsafe {
            batch.keys.set_len(count);
            batch.values.set_len(count);
        }
        cursor.0 = (!at_end).then_some(next);
        Ok(!at_end)
    }
}
