//! Reads map values as the 64-bit words they are made of, summed over CPUs where they are per CPU.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::Error;

/// The 64-bit words of a map value; the kernel's and this machine's byte order are one.
pub(crate) fn words(value: &[u8]) -> Vec<u64> {
    value
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("chunks_exact yields 8 bytes")))
        .collect()
}

/// A value of a per-CPU array, by CPU.
pub(crate) fn per_cpu(map: &MapHandle, index: u32) -> Result<Vec<Vec<u64>>, Error> {
    let values = map
        .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf(format!("reading map entry {index}")))?;
    Ok(values
        .unwrap_or_default()
        .iter()
        .map(|value| words(value))
        .collect())
}

/// A value of a per-CPU array, summed word by word over CPUs.
pub(crate) fn summed(map: &MapHandle, index: u32) -> Result<Vec<u64>, Error> {
    let values = per_cpu(map, index)?;
    let length = values.first().map_or(0, Vec::len);
    Ok((0..length)
        .map(|word| values.iter().map(|value| value[word]).sum())
        .collect())
}

/// A value of an array.
pub(crate) fn single(map: &MapHandle, index: u32) -> Result<Vec<u64>, Error> {
    let value = map
        .lookup(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf(format!("reading map entry {index}")))?;
    Ok(words(&value.unwrap_or_default()))
}
