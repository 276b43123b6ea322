//! Other processes that write: one receives descriptors through a socket, one inherits its own.

use std::env;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::data::{bytes, write_at};
use crate::operation::Area;

/// The argument under which this program receives descriptors from its standard input.
pub(crate) const RECEIVE: &str = "--receive";
/// The argument under which it writes once to its standard output.
pub(crate) const INHERIT: &str = "--inherit";

const REQUEST: usize = 24;

/// The process that descriptors are passed to; it ends with the socket.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    socket: Option<UnixStream>,
}

impl Peer {
    /// The peer, started if it was not.
    pub(crate) fn reached(peer: &mut Option<Self>) -> io::Result<&mut Self> {
        let running = match peer.take() {
            Some(running) => running,
            None => Self::start()?,
        };
        Ok(peer.insert(running))
    }

    fn start() -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let process = Command::new(env::current_exe()?)
            .arg(RECEIVE)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            socket: Some(socket),
        })
    }

    pub(crate) fn write(&mut self, file: &File, area: Area) -> io::Result<u64> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let request = [area.offset, area.length as u64, area.seed].map(u64::to_le_bytes);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let parts = [IoSlice::new(request.as_flattened())];
        sendmsg(&*socket, &parts, &mut control, SendFlags::empty())?;
        let mut answer = [0; 8];
        socket.read_exact(&mut answer)?;
        result(i64::from_le_bytes(answer))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.socket = None;
        let _ = self.process.wait();
    }
}

/// The main loop of the peer: writes what it is asked to until the socket is closed.
pub(crate) fn receive() -> io::Result<()> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    let mut socket = UnixStream::from(socket);
    loop {
        let mut request = [0; REQUEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut request)];
        let received = recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Ok(());
        }
        let file = control
            .drain()
            .find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            })
            .ok_or_else(|| io::Error::other("no descriptor came with the request"))?;
        let mut numbers = request
            .as_chunks::<8>()
            .0
            .iter()
            .map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        let area = Area {
            offset: next(),
            length: usize::try_from(next()).map_err(io::Error::other)?,
            seed: next(),
        };
        let written = write_at(&file.into(), &bytes(area), area.offset);
        let answer = match written {
            Ok(written) => written.cast_signed(),
            Err(error) => -i64::from(error.raw_os_error().unwrap_or(1)),
        };
        socket.write_all(&answer.to_le_bytes())?;
    }
}

fn result(answer: i64) -> io::Result<u64> {
    u64::try_from(answer).map_err(|_| {
        let errno = answer.unsigned_abs().try_into().unwrap_or(1);
        io::Error::from_raw_os_error(errno)
    })
}

/// Has a child write at the offset of the descriptor that it inherits.
pub(crate) fn by_child(mut file: File, area: Area) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(area.offset))?;
    let numbers = [area.length as u64, area.seed].map(|number| number.to_string());
    let status = Command::new(env::current_exe()?)
        .arg(INHERIT)
        .args(numbers)
        .stdin(Stdio::null())
        .stdout(file)
        .status()?;
    match status.code() {
        Some(0) => Ok(area.length as u64),
        code => Err(io::Error::other(format!("the child ended with {code:?}"))),
    }
}

/// The child's life.
pub(crate) fn inherit(length: usize, seed: u64) -> io::Result<()> {
    let area = Area {
        offset: 0,
        length,
        seed,
    };
    // Past the buffer of `Stdout`: one system call.
    let mut file = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
    file.write_all(&bytes(area))
}
