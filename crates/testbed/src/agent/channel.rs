//! This machine's end of the connection to an agent, a serial port or two pipes: requests, and the answers to each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use guest::{Frame, Kind};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

/// After so long without an answer a guest hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends frames to a guest and sorts those that it sends.
pub(super) struct Channel {
    /// It never blocks: a guest that hangs reads no more.
    out: Mutex<OwnedFd>,
    /// How long the guest may read nothing.
    write_timeout: Duration,
    inbox: Arc<Inbox>,
    next: AtomicU32,
    /// Answers of the guest's routing netlink to the last request.
    netlink: Mutex<Receiver<Vec<u8>>>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    hello: Option<Frame>,
    /// The guest sends no more frames.
    gone: bool,
    answers: BTreeMap<u32, Frame>,
    ended: BTreeMap<u32, ExitStatus>,
    /// Programs that are ready.
    ready: BTreeSet<u32>,
    /// Where the outputs of programs go.
    outputs: BTreeMap<(u32, u8), Sender<Vec<u8>>>,
    netlink: Option<Sender<Vec<u8>>>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    /// Listens to `from` until it ends.
    pub(super) fn open(
        to: impl Into<OwnedFd>,
        from: impl Read + Send + 'static,
    ) -> io::Result<Self> {
        Self::with_timeout(to.into(), from, TIMEOUT)
    }

    fn with_timeout(
        to: OwnedFd,
        mut from: impl Read + Send + 'static,
        write_timeout: Duration,
    ) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&to, FcntlArg::F_GETFL)?);
        fcntl(&to, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let inbox: Arc<Inbox> = Arc::default();
        let (answers, netlink) = mpsc::channel();
        inbox.state().netlink = Some(answers);
        let listener = Arc::clone(&inbox);
        thread::spawn(move || {
            // A malformed frame ends the stream, as the guest's end does: nothing after it can be parsed.
            while let Ok(Some(frame)) = Frame::read(&mut from) {
                listener.hear(frame);
            }
            listener.close();
        });
        Ok(Self {
            out: Mutex::new(to),
            write_timeout,
            inbox,
            next: AtomicU32::new(1),
            netlink: Mutex::new(netlink),
        })
    }

    /// A number for a program or a file.
    pub(super) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn send_frame(&self, kind: Kind, number: u32, bytes: &[u8]) -> io::Result<()> {
        let mut whole = Vec::new();
        Frame::new(kind, number, bytes).write(&mut whole)?;
        self.send(&whole)
    }

    /// Writes it in one piece, as fast as it is read.
    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        while !bytes.is_empty() {
            match nix::unistd::write(out.as_fd(), bytes) {
                // After a part of a frame nothing that follows could be made out.
                _ if self.is_gone() => return Err(self.silence()),
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if !self.is_read(&out)? => {
                    let silence = self.silence();
                    self.inbox.close();
                    return Err(silence);
                }
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether there is room for more in time.
    fn is_read(&self, out: &OwnedFd) -> io::Result<bool> {
        let mut asked = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
        let within = PollTimeout::try_from(self.write_timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut asked, within) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends several frames of a number, and waits for the answer.
    pub(super) fn ask<'a>(
        &self,
        number: u32,
        frames: impl IntoIterator<Item = (Kind, &'a [u8])>,
    ) -> io::Result<Frame> {
        for (kind, bytes) in frames {
            self.send_frame(kind, number, bytes)?;
        }
        self.answer(number)
    }

    /// Sends all requests before it waits for the first answer. The answers are in the same order.
    pub(super) fn ask_all(
        &self,
        asked: &[Vec<(Kind, &[u8])>],
    ) -> io::Result<Vec<io::Result<Frame>>> {
        let mut whole = Vec::new();
        let mut numbers = Vec::new();
        for frames in asked {
            let number = self.number();
            for &(kind, bytes) in frames {
                Frame::new(kind, number, bytes).write(&mut whole)?;
            }
            numbers.push(number);
        }
        self.send(&whole)?;
        Ok(numbers
            .into_iter()
            .map(|number| self.answer(number))
            .collect())
    }

    fn answer(&self, number: u32) -> io::Result<Frame> {
        let answer = self
            .inbox
            .wait(TIMEOUT, |state| state.answers.remove(&number));
        match answer {
            Some(frame) if frame.kind == Kind::Failed => Err(io::Error::other(
                String::from_utf8_lossy(&frame.bytes).into_owned(),
            )),
            Some(frame) => Ok(frame),
            None => Err(self.silence()),
        }
    }

    /// The guest's first word; none within the time, or from one that is gone.
    pub(super) fn hello(&self, within: Duration) -> Option<Frame> {
        self.inbox.wait(within, |state| state.hello.clone())
    }

    pub(super) fn is_gone(&self) -> bool {
        self.inbox.state().gone
    }

    /// Where an output of a program goes from now on, part by part.
    pub(super) fn listen(&self, number: u32, kind: Kind) -> Receiver<Vec<u8>> {
        let (parts, incoming) = mpsc::channel();
        let mut state = self.inbox.state();
        state.outputs.insert((number, kind as u8), parts);
        incoming
    }

    pub(super) fn status(&self, number: u32) -> Option<ExitStatus> {
        self.inbox.state().status(number)
    }

    /// Whether a program has said that it is ready.
    pub(super) fn is_ready(&self, number: u32) -> bool {
        self.inbox.state().ready.contains(&number)
    }

    /// Waits for a program's end; one in a guest that is gone, or hangs, is killed with it.
    pub(super) fn wait(&self, number: u32) -> ExitStatus {
        loop {
            let ended = self.inbox.wait(TIMEOUT, |state| state.status(number));
            if let Some(status) = ended.or_else(|| self.status(number)) {
                return status;
            }
            if self.ping().is_err() {
                self.inbox.close();
            }
        }
    }

    /// A file of the guest's.
    pub(super) fn read(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let number = self.number();
        let parts = self.listen(number, Kind::Output);
        self.ask(number, [(Kind::Get, path)])?;
        self.inbox
            .state()
            .outputs
            .remove(&(number, Kind::Output as u8));
        Ok(parts.iter().flatten().collect())
    }

    /// Whether the guest still answers.
    pub(super) fn ping(&self) -> io::Result<()> {
        self.ask(self.number(), [(Kind::Ping, &[][..])]).map(drop)
    }

    /// The guest's routing netlink.
    pub(super) fn carrier(self: &Arc<Self>) -> Carrier {
        Carrier {
            channel: Arc::clone(self),
        }
    }

    fn silence(&self) -> io::Error {
        let what = match self.is_gone() {
            true => "what answers inside is gone".to_owned(),
            false => format!("what answers inside is silent for {} s", TIMEOUT.as_secs()),
        };
        io::Error::new(io::ErrorKind::TimedOut, what)
    }
}

impl State {
    fn status(&self, number: u32) -> Option<ExitStatus> {
        let killed = || {
            self.gone
                .then(|| ExitStatus::from_raw(Signal::SIGKILL as i32))
        };
        self.ended.get(&number).copied().or_else(killed)
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, frame: Frame) {
        let number = frame.number;
        let mut state = self.state();
        match frame.kind {
            Kind::Hello => state.hello = Some(frame),
            Kind::Ready => {
                state.ready.insert(number);
            }
            Kind::Ping | Kind::Started | Kind::Failed | Kind::Done => {
                state.answers.insert(number, frame);
            }
            Kind::Output | Kind::Errors => {
                let key = (number, frame.kind as u8);
                if frame.bytes.is_empty() {
                    state.outputs.remove(&key);
                } else if let Some(output) = state.outputs.get(&key) {
                    // The reader may be gone.
                    let _ = output.send(frame.bytes);
                }
            }
            Kind::Ended => {
                let status = frame.value().map_or(-1, |(status, _)| status);
                state.ended.insert(number, ExitStatus::from_raw(status));
            }
            Kind::Netlink => {
                if let Some(netlink) = &state.netlink {
                    let _ = netlink.send(frame.bytes);
                }
            }
            // Only a host sends these.
            Kind::Start
            | Kind::Listen
            | Kind::Input
            | Kind::Signal
            | Kind::Put
            | Kind::Get
            | Kind::Clear => {}
        }
        drop(state);
        self.changed.notify_all();
    }

    fn close(&self) {
        let mut state = self.state();
        state.gone = true;
        state.outputs.clear();
        state.netlink = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until there is one, the guest is gone, or the time is over.
    fn wait<T>(
        &self,
        within: Duration,
        mut find: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + within;
        let mut state = self.state();
        loop {
            if let Some(found) = find(&mut state) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.gone || left.is_zero() {
                return None;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Talks to the guest's routing tables.
pub(crate) struct Carrier {
    channel: Arc<Channel>,
}

impl netdev::Carrier for Carrier {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.channel.send_frame(Kind::Netlink, 0, request)
    }

    fn receive(&mut self, answer: &mut [u8]) -> io::Result<usize> {
        let answers = &self.channel.netlink;
        let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let said = answers.recv_timeout(TIMEOUT);
        let said = said.map_err(|_| self.channel.silence())?;
        let room = answer.get_mut(..said.len());
        let room = room.ok_or_else(|| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        room.copy_from_slice(&said);
        Ok(said.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel whose write timeout is `timeout`, with the other ends of its pipes.
    fn unread(timeout: Duration) -> (Channel, io::PipeReader, io::PipeWriter) {
        let (theirs, to) = io::pipe().unwrap();
        let (from, says) = io::pipe().unwrap();
        let channel = Channel::with_timeout(to.into(), from, timeout).unwrap();
        (channel, theirs, says)
    }

    #[test]
    fn guest_that_reads_nothing_times_out() {
        let (channel, _theirs, _says) = unread(Duration::from_millis(20));
        let part = vec![0; guest::MAX_FRAME_LEN];
        let mut said = (0..100).map(|_| channel.send_frame(Kind::Input, 1, &part));
        let error = said.find_map(Result::err).expect("no pipe holds so much");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(channel.is_gone());
        assert_eq!(channel.status(1).map(ExitStatus::into_raw), Some(9));
        assert!(channel.ping().is_err());
    }

    #[test]
    fn slow_reader_gets_every_byte() {
        let (channel, mut theirs, _says) = unread(Duration::from_secs(60));
        let reader = thread::spawn(move || {
            let frames = (0..8).map(|_| Frame::read(&mut theirs).unwrap().unwrap());
            frames.map(|frame| frame.bytes.len()).sum::<usize>()
        });
        let part = vec![7; guest::MAX_FRAME_LEN];
        for _ in 0..8 {
            channel.send_frame(Kind::Input, 1, &part).unwrap();
        }
        assert_eq!(reader.join().unwrap(), 8 * guest::MAX_FRAME_LEN);
    }

    #[test]
    fn requests_are_pipelined() {
        let (channel, mut theirs, mut says) = unread(Duration::from_secs(60));
        let guest = thread::spawn(move || {
            let asked: Vec<Frame> = (0..3)
                .map(|_| Frame::read(&mut theirs).unwrap().unwrap())
                .collect();
            for frame in asked.iter().rev() {
                let kind = if frame.bytes == b"no" {
                    Kind::Failed
                } else {
                    Kind::Done
                };
                let answer = Frame::new(kind, frame.number, frame.bytes.clone());
                answer.write(&mut says).unwrap();
            }
        });
        let asked = [&b"one"[..], b"no", b"three"].map(|path| vec![(Kind::Get, path)]);
        let answers = channel.ask_all(&asked).unwrap();
        guest.join().unwrap();
        let said = answers
            .into_iter()
            .map(|answer| answer.map(|frame| frame.bytes).ok());
        let said: Vec<_> = said.collect();
        assert_eq!(said, [Some(b"one".to_vec()), None, Some(b"three".to_vec())]);
    }
}
