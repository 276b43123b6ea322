//! What a device reads of a part of a batch, and how it lies there.

use std::ops::Range;

use acl::{Address, Key, Key4, Key6};

use super::launch::Input;
use super::steps::Form;
use crate::engine::{Function, Headers, Whole};

/// Those of IPv4 and those of IPv6 among the keys of a batch.
type Part = [Range<usize>; 2];

/// Keys, or with a function that does not filter addresses: IPv4's, then IPv6's.
pub(super) fn keys(
    headers: &Headers,
    function: Function,
    [v4, v6]: Part,
) -> (Input, impl FnOnce(&mut [u8])) {
    let each = if function.filters() {
        [size_of::<Key4>(), size_of::<Key6>()]
    } else {
        [size_of::<[u8; 4]>(), size_of::<[u8; 16]>()]
    };
    let first6 = v4.len() * each[0];
    let input = Input {
        keys: [v4.len(), v6.len()],
        at: [0, first6],
        bytes: first6 + v6.len() * each[1],
        form: if function.filters() {
            Form::Keys
        } else {
            Form::Addresses
        },
    };
    let write_all = move |to: &mut [u8]| {
        let (to4, to6) = to.split_at_mut(first6);
        if function.filters() {
            write(&headers.keys4[v4], to4);
            write(&headers.keys6[v6], to6);
        } else {
            to4.copy_from_slice(headers.destinations4[v4].as_flattened());
            to6.copy_from_slice(headers.destinations6[v6].as_flattened());
        }
    };
    (input, write_all)
}

/// Frames: IPv4's, then IPv6's, then numbers of 32 bits that say where their IP headers begin.
pub(super) fn whole(
    [frames4, frames6]: &[Whole; 2],
    [v4, v6]: Part,
) -> (Input, impl FnOnce(&mut [u8])) {
    const NUMBER: usize = size_of::<u32>();
    let keys = [v4.len(), v6.len()];
    let ((bytes4, headers4), (bytes6, headers6)) = (frames4.part(v4), frames6.part(v6));
    let all = bytes4.len() + bytes6.len();
    let first = all.next_multiple_of(NUMBER);
    let input = Input {
        keys,
        at: [first, first + keys[0] * NUMBER],
        bytes: first + (keys[0] + keys[1]) * NUMBER,
        form: Form::Frames,
    };
    let write_all = move |to: &mut [u8]| {
        let (frames, numbers) = to.split_at_mut(first);
        let (to4, rest) = frames.split_at_mut(bytes4.len());
        to4.copy_from_slice(bytes4);
        rest[..bytes6.len()].copy_from_slice(bytes6);
        let headers6 = headers6.map(|header| bytes4.len() + header);
        let (numbers, _) = numbers.as_chunks_mut();
        for (number, header) in numbers.iter_mut().zip(headers4.chain(headers6)) {
            *number = u32::try_from(header).unwrap_or(u32::MAX).to_le_bytes();
        }
    };
    (input, write_all)
}

/// Writes keys as `Key` has them.
pub(super) fn write<A: Address>(keys: &[Key<A>], to: &mut [u8])
where
    A::Octets: AsRef<[u8]>,
{
    let octets = A::BITS as usize / 8;
    for (key, to) in keys.iter().zip(to.chunks_exact_mut(size_of::<Key<A>>())) {
        to[0] = key.protocol;
        to[4..4 + octets].copy_from_slice(key.source.as_ref());
        to[4 + octets..4 + 2 * octets].copy_from_slice(key.destination.as_ref());
        to[4 + 2 * octets..6 + 2 * octets].copy_from_slice(&key.source_port);
        to[6 + 2 * octets..8 + 2 * octets].copy_from_slice(&key.destination_port);
    }
}
