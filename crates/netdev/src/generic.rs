//! The `netdev` family of generic netlink (Linux 6.3): what XDP can do with a device. Numbers are those
//! of linux/netdev.h.

use std::io;

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_REQUEST, NlasIterator};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::Error;
use crate::socket::split;

const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const DEVICE_IFINDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
const DEVICE_ZERO_COPY_SEGMENTS: u16 = 4;
const DEVICE_METADATA_FEATURES: u16 = 5;
const NETLINK_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ERROR: u16 = 2;

/// The kernel's answer about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `NETDEV_XDP_ACT_*`.
    pub(crate) features: u64,
    /// Pieces of one frame in zero-copy mode; none without that mode.
    pub(crate) zero_copy_segments: Option<u32>,
    /// `NETDEV_XDP_RX_METADATA_*`; none where the kernel does not report it.
    pub(crate) metadata: Option<u64>,
}

/// Asks about a device of the calling thread's namespace; none on a kernel that has no such family.
pub(crate) fn xdp(ifindex: u32) -> Result<Option<Answer>, Error> {
    let read = || {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let name = attribute(FAMILY_NAME, b"netdev\0".to_vec());
        let family = match ask(&socket, CONTROLLER, GET_FAMILY, &name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        let missing = || unreadable("an attribute is missing");
        let family = find(&family, FAMILY_ID).map(u16::from_ne_bytes);
        let device = attribute(DEVICE_IFINDEX, ifindex.to_ne_bytes().to_vec());
        let device = ask(&socket, family.ok_or_else(missing)?, GET_DEVICE, &device)?;
        let features = find(&device, DEVICE_XDP_FEATURES).map(u64::from_ne_bytes);
        Ok(Some(Answer {
            features: features.ok_or_else(missing)?,
            zero_copy_segments: find(&device, DEVICE_ZERO_COPY_SEGMENTS).map(u32::from_ne_bytes),
            metadata: find(&device, DEVICE_METADATA_FEATURES).map(u64::from_ne_bytes),
        }))
    };
    read().map_err(|source| Error::refused(format!("reading XDP features of {ifindex}"), source))
}

/// The attributes of the answer.
fn ask(socket: &Socket, family: u16, command: u8, attribute: &[u8]) -> io::Result<Vec<u8>> {
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
    Ok(body.get(GENERIC_HEADER..).unwrap_or_default().to_vec())
}

/// The value of one attribute, if it is there and as long as that.
fn find<const N: usize>(attributes: &[u8], wanted: u16) -> Option<[u8; N]> {
    let mut all = NlasIterator::new(attributes).filter_map(Result::ok);
    let found = all.find(|attribute| attribute.kind() == wanted)?;
    found.value().try_into().ok()
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
