//! The `netdev` family of generic netlink (Linux 6.3): what XDP can do with a device.

use std::io;

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_REQUEST, NlasIterator};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::Error;
use crate::netlink::split;

const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const DEVICE_IFINDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
const NETLINK_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ERROR: u16 = 2;

/// The `NETDEV_XDP_ACT_*` bits of a device of the calling thread's namespace; none on a kernel
/// that has no such family.
pub(crate) fn xdp_features(ifindex: u32) -> Result<Option<u64>, Error> {
    let read = || {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let name = attribute(FAMILY_NAME, b"netdev\0".to_vec());
        let family = match ask(&socket, CONTROLLER, GET_FAMILY, &name, FAMILY_ID) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        let family = u16::from_ne_bytes(family.try_into().map_err(unreadable)?);
        let device = attribute(DEVICE_IFINDEX, ifindex.to_ne_bytes().to_vec());
        let features = ask(&socket, family, GET_DEVICE, &device, DEVICE_XDP_FEATURES)?;
        let features = features.try_into().map_err(unreadable)?;
        Ok(Some(u64::from_ne_bytes(features)))
    };
    read().map_err(|source| Error::refused(format!("reading XDP features of {ifindex}"), source))
}

/// The value of one attribute of the answer.
fn ask(
    socket: &Socket,
    family: u16,
    command: u8,
    attribute: &[u8],
    wanted: u16,
) -> io::Result<Vec<u8>> {
    let length = NETLINK_HEADER + GENERIC_HEADER + attribute.len();
    let mut request = Vec::with_capacity(length);
    request.extend(
        u32::try_from(length)
            .map_err(io::Error::other)?
            .to_ne_bytes(),
    );
    request.extend(family.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port: one question at a time needs neither.
    request.extend([0; 8]);
    // Version 1, and two reserved bytes.
    request.extend([command, 1, 0, 0]);
    request.extend(attribute);
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let message = split(&answer).next().ok_or_else(|| unreadable("empty"))?;
    let (header, body) = message
        .split_at_checked(NETLINK_HEADER)
        .ok_or_else(|| unreadable("short"))?;
    if u16::from_ne_bytes([header[4], header[5]]) == ERROR {
        let code = body.first_chunk().ok_or_else(|| unreadable("short"))?;
        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*code)));
    }
    NlasIterator::new(body.get(GENERIC_HEADER..).unwrap_or_default())
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == wanted)
        .map(|attribute| attribute.value().to_vec())
        .ok_or_else(|| unreadable("the attribute is missing"))
}

fn attribute(kind: u16, value: Vec<u8>) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value);
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

fn unreadable(what: impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("an answer that cannot be read: {what:?}"))
}
