//! What nftables hooks before a device sends, asked in its own netlink protocol.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::Error;
use crate::netlink::split;

const DONE: u16 = 3;
const ERROR: u16 = 2;
/// `NFNL_SUBSYS_NFTABLES`, `NFT_MSG_NEWCHAIN` and `NFT_MSG_GETCHAIN`
const CHAIN: u16 = 10 << 8 | 3;
const GET_CHAIN: u16 = 10 << 8 | 4;
/// `NFPROTO_NETDEV`
const NETDEV: u8 = 5;
const NETLINK_HEADER: usize = 16;
const LENGTH: u32 = 20;

/// Asking a kernel that has no nftables makes it look for the module, each time.
static ABSENT: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread's namespace has chains of family `netdev`, the only ones that can
/// see what a device sends.
pub(crate) fn has_device_chains() -> Result<bool, Error> {
    if ABSENT.load(Ordering::Relaxed) && !Path::new("/sys/module/nf_tables").exists() {
        return Ok(false);
    }
    match ask() {
        Err(error) if is_absent(&error) => {
            ABSENT.store(true, Ordering::Relaxed);
            Ok(false)
        }
        answer => answer.map_err(|source| Error::refused("listing nftables chains", source)),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT)
    )
}

/// The first message of the dump tells: a chain, or the end.
fn ask() -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = Vec::with_capacity(LENGTH as usize);
    request.extend(LENGTH.to_ne_bytes());
    request.extend(GET_CHAIN.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    // Sequence number and port: one question at a time needs neither.
    request.extend([0; 8]);
    request.extend([NETDEV, 0, 0, 0]);
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let unreadable = || io::Error::other("an answer that cannot be read");
    let message = split(&answer).next().ok_or_else(unreadable)?;
    let (header, body) = message
        .split_at_checked(NETLINK_HEADER)
        .ok_or_else(unreadable)?;
    match u16::from_ne_bytes([header[4], header[5]]) {
        CHAIN => Ok(true),
        DONE => Ok(false),
        ERROR => {
            let code = body.first_chunk().ok_or_else(unreadable)?;
            Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*code)))
        }
        _ => Err(unreadable()),
    }
}
