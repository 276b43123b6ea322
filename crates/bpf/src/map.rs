//! Maps with the types of their keys and values, and the counters of a per-CPU array.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut, MapType};

use crate::plain::bytes_of;
use crate::{Error, Plain};

/// A handle to a map, which lives on without the skeleton.
pub struct Map<K, V> {
    pub(crate) handle: MapHandle,
    types: PhantomData<fn(&K) -> V>,
}

/// A handle to an array of which each CPU has its own copy.
pub struct PerCpu<V> {
    handle: MapHandle,
    value: PhantomData<fn() -> V>,
}

/// A structure of 64-bit counters alone, so that sums over CPUs are sums of its words.
pub trait Counters: Plain {}

impl Counters for u64 {}

impl<K: Plain, V: Plain> Map<K, V> {
    /// A handle to a map of a loaded skeleton.
    ///
    /// # Errors
    /// The map has keys or values of another size; the process has too many open files.
    pub fn new(map: &MapMut<'_>) -> Result<Self, Error> {
        Self::from_handle(handle(map)?)
    }

    /// Makes a map that no skeleton declares.
    ///
    /// # Errors
    /// Memory is too small for the entries, or the kernel does not allow these options for the map's type.
    pub fn create(
        kind: MapType,
        name: &str,
        max_entries: u32,
        options: &bpf_map_create_opts,
    ) -> Result<Self, Error> {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            ..*options
        };
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let (key, value) = (size(size_of::<K>()), size(size_of::<V>()));
        let handle = MapHandle::create(kind, Some(name), key, value, max_entries, &options);
        Self::from_handle(handle.map_err(Error::of(format!("making map {name}")))?)
    }

    /// # Errors
    /// The map has keys or values of another size.
    pub fn from_handle(handle: MapHandle) -> Result<Self, Error> {
        check_size("keys", handle.key_size(), size_of::<K>(), &handle)?;
        check_size("values", handle.value_size(), size_of::<V>(), &handle)?;
        Ok(Self {
            handle,
            types: PhantomData,
        })
    }

    /// How many entries there is room for; all of them exist in an array.
    pub fn max_entries(&self) -> u32 {
        self.handle.max_entries()
    }

    /// Another handle to the same map.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let handle = MapHandle::try_from(&self.handle);
        Ok(Self {
            handle: handle.map_err(about("keeping", &self.handle))?,
            types: PhantomData,
        })
    }

    /// The value of a key; `None` where the map has no such key.
    ///
    /// # Errors
    /// The kernel does not allow this for the type of the map.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        let value = self.handle.lookup(key.bytes(), MapFlags::ANY);
        let value = value.map_err(about("reading", &self.handle))?;
        Ok(value.and_then(|value| V::read(&value)))
    }

    /// The keys of a map, as far as others do not change it meanwhile.
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.handle.keys().filter_map(|key| K::read(&key))
    }

    /// Adds or replaces the value of a key. The kernel copies a value word by word, so that programs
    /// see each aligned word of it whole.
    ///
    /// # Errors
    /// The map is full; the value is a descriptor of something that does not fit.
    pub fn set(&self, key: &K, value: &V) -> Result<(), Error> {
        self.handle
            .update(key.bytes(), value.bytes(), MapFlags::ANY)
            .map_err(about("writing", &self.handle))
    }

    /// Adds or replaces the values of these keys, in their order, by one call.
    ///
    /// # Errors
    /// As [`Self::set`]; there are more keys than values, or fewer.
    pub fn set_batch(&self, keys: &[K], values: &[V]) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let (keys, values, any) = (bytes_of(keys), bytes_of(values), MapFlags::ANY);
        self.handle
            .update_batch(keys, values, count, any, any)
            .map_err(about("writing", &self.handle))
    }

    /// Removes a key and its value.
    ///
    /// # Errors
    /// The map has no such key.
    pub fn remove(&self, key: &K) -> Result<(), Error> {
        self.handle
            .delete(key.bytes())
            .map_err(about("erasing from", &self.handle))
    }
}

impl<V: Plain> Map<u32, V> {
    /// Replaces consecutive values of an array, from `first` on, by one call.
    ///
    /// # Errors
    /// The array ends before.
    pub fn set_range(&self, first: u32, values: &[V]) -> Result<(), Error> {
        let keys: Vec<u32> = (first..).take(values.len()).collect();
        self.set_batch(&keys, values)
    }
}

impl<K: Plain> Map<K, i32> {
    /// Puts in a map, a program or a socket, which this kind of map holds.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_descriptor(&self, key: &K, of: impl AsFd) -> Result<(), Error> {
        self.set(key, &of.as_fd().as_raw_fd())
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Map").field(&self.handle).finish()
    }
}

impl<V> fmt::Debug for PerCpu<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerCpu").field(&self.handle).finish()
    }
}

impl<K, V> AsFd for Map<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl<V: Plain> PerCpu<V> {
    /// A handle to a map of a loaded skeleton.
    ///
    /// # Errors
    /// The map has values of another size; the process has too many open files.
    pub fn new(map: &MapMut<'_>) -> Result<Self, Error> {
        let handle = handle(map)?;
        check_size("values", handle.value_size(), size_of::<V>(), &handle)?;
        Ok(Self {
            handle,
            value: PhantomData,
        })
    }

    /// The value of each possible CPU, in the order of their numbers.
    ///
    /// # Errors
    /// The array ends before `index`.
    pub fn values(&self, index: u32) -> Result<Vec<V>, Error> {
        let values = self.handle.lookup_percpu(index.bytes(), MapFlags::ANY);
        let values = values.map_err(about("reading", &self.handle))?;
        let values = values.unwrap_or_default();
        Ok(values.iter().filter_map(|value| V::read(value)).collect())
    }

    /// Writes zeros for all CPUs.
    ///
    /// # Errors
    /// The array ends before `index`.
    pub fn zero(&self, index: u32) -> Result<(), Error> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(Error::of("counting CPUs"))?;
        let zeros = vec![vec![0; size_of::<V>()]; cpus];
        self.handle
            .update_percpu(index.bytes(), &zeros, MapFlags::ANY)
            .map_err(Error::of("zeroing counters"))
    }
}

impl<V: Counters> PerCpu<V> {
    /// The sums over all CPUs; zeros where the kernel has no values.
    ///
    /// # Errors
    /// The array ends before `index`.
    pub fn sum(&self, index: u32) -> Result<V, Error> {
        let mut sums = vec![0_u64; size_of::<V>() / size_of::<u64>()];
        for value in self.values(index)? {
            let (words, _) = value.bytes().as_chunks();
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum += u64::from_ne_bytes(*word);
            }
        }
        V::read(bytes_of(&sums)).ok_or_else(|| mismatch("values", &self.handle))
    }
}

fn handle(map: &MapMut<'_>) -> Result<MapHandle, Error> {
    let name = map.name().display();
    MapHandle::try_from(map).map_err(Error::of(format!("keeping map {name}")))
}

fn check_size(what: &str, has: u32, expected: usize, handle: &MapHandle) -> Result<(), Error> {
    if has as usize == expected {
        return Ok(());
    }
    Err(mismatch(what, handle))
}

fn mismatch(what: &str, handle: &MapHandle) -> Error {
    let name = handle.name().display();
    let cause = io::Error::from(io::ErrorKind::InvalidData).into();
    Error::of(format!("map {name} has {what} of another size"))(cause)
}

pub(crate) fn about<M: MapCore>(
    action: &'static str,
    map: &M,
) -> impl FnOnce(libbpf_rs::Error) -> Error {
    let what = format!("{action} map {}", map.name().display());
    Error::of(what)
}
