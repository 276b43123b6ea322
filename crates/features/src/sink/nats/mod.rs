//! NATS JetStream: a message for each row, kept until the server says that it is stored.
//!
//! At least once: what a connection's end leaves unanswered is sent again under the same message id, by
//! which a stream recognises it for a while (two minutes, unless it was made otherwise).

mod link;

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;

use super::dial::with_port;
use super::message::messages;
use super::{Error, Mode, Sink};
use link::{Answer, Identity, Link, Outcome};

const PORT: u16 = 4222;
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(250);
/// A server that has not answered for so long has lost the message, or the connection.
const ANSWER: Duration = Duration::from_secs(5);
/// Messages that may be without an answer: more would only wait in the server.
const WINDOW: usize = 1024;
/// Rows that wait for a server that is gone; beyond it, live ones are lost.
const MOST_WAITING: usize = 16_384;

/// Publishes rows to a subject that a stream takes.
#[derive(Debug)]
pub struct NatsSink {
    server: String,
    subject: String,
    identity: Identity,
    mode: Mode,
    /// Tells this run's message ids and answers from others'.
    run: String,
    link: Option<Link>,
    tried: Instant,
    /// Not stored yet, in order; the first ones have been sent.
    waiting: VecDeque<Row>,
    sent: usize,
    next: u64,
    stored: u64,
    lost: u64,
}

#[derive(Debug)]
struct Row {
    number: u64,
    headers: String,
    body: Vec<u8>,
}

impl NatsSink {
    /// `address` is `[USER:PASSWORD@|TOKEN@]HOST[:PORT]/SUBJECT`, and the server must be there.
    pub fn connect(address: &str, mode: Mode) -> Result<Self, Error> {
        let wrong = || Error::NoSubject(address.to_owned());
        let (server, subject) = address.split_once('/').ok_or_else(wrong)?;
        let plain = |c: char| c.is_ascii_graphic() && c != '*' && c != '>';
        if subject.is_empty() || !subject.chars().all(plain) {
            return Err(wrong());
        }
        let (identity, server) = identity(server);
        let mut sink = Self {
            server: with_port(server, PORT),
            subject: subject.to_owned(),
            identity,
            mode,
            run: run(),
            link: None,
            tried: Instant::now(),
            waiting: VecDeque::new(),
            sent: 0,
            next: 0,
            stored: 0,
            lost: 0,
        };
        let link = sink.dial().map_err(Error::address(&sink.server))?;
        sink.link = Some(link);
        Ok(sink)
    }

    fn dial(&self) -> io::Result<Link> {
        let inbox = format!("_INBOX.{}", self.run);
        Link::connect(&self.server, &self.identity, &inbox)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        for message in messages(batch)? {
            let number = self.next;
            self.next += 1;
            self.waiting.push_back(Row {
                number,
                headers: headers(&self.run, number, message.key),
                body: message.body,
            });
        }
        Ok(())
    }

    /// Sends what the window has room for, and takes the answers that are there.
    fn work(&mut self) -> io::Result<()> {
        if self.link.is_none() {
            if self.tried.elapsed() < RETRY {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.tried = Instant::now();
            self.link = Some(self.dial()?);
            tracing::info!("{}: connected again", self.server);
        }
        self.work_over_link().inspect_err(|error| {
            tracing::warn!("{}: {error}", self.server);
            self.link = None;
            self.sent = 0;
        })
    }

    fn work_over_link(&mut self) -> io::Result<()> {
        while let Some(link) = &mut self.link {
            while self.sent < WINDOW.min(self.waiting.len()) {
                let row = &self.waiting[self.sent];
                link.publish(&self.subject, row.number, &row.headers, &row.body)?;
                self.sent += 1;
            }
            let full = self.sent == WINDOW;
            match link.answer(full.then_some(ANSWER))? {
                Some(answer) => self.settle(answer)?,
                None if full => return Err(io::ErrorKind::TimedOut.into()),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// A row is stored, or will never be.
    fn settle(&mut self, answer: Answer) -> io::Result<()> {
        let sent = self.waiting.iter().take(self.sent);
        let Some(at) = sent.into_iter().position(|row| row.number == answer.number) else {
            return Ok(());
        };
        match answer.outcome {
            Outcome::Stored => self.stored += 1,
            // A server that has just started does not have its streams yet.
            Outcome::NoStream if self.stored > 0 => return Err(io::ErrorKind::NotFound.into()),
            Outcome::NoStream => return Err(io::Error::other("no stream takes this subject")),
            Outcome::Refused(why) if self.mode == Mode::Whole => return Err(io::Error::other(why)),
            Outcome::Refused(why) => {
                tracing::debug!("{}: {why}", self.subject);
                self.lost += 1;
            }
        }
        self.waiting.remove(at);
        self.sent -= 1;
        Ok(())
    }

    /// Works until this holds, or patience ends.
    fn insist(&mut self, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        let since = Instant::now();
        loop {
            let worked = self.work();
            match &worked {
                Ok(()) if done(self) => return Ok(()),
                // What the server itself has said does not change.
                Err(error) if error.kind() == io::ErrorKind::Other => return worked,
                _ => {}
            }
            if since.elapsed() > self.mode.patience() {
                return worked.and_then(|()| Err(io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn give_up(&mut self, error: io::Error) -> Error {
        self.lost += u64::try_from(self.waiting.len()).unwrap_or(0);
        self.waiting.clear();
        Error::address(&format!("{} {}", self.server, self.subject))(error)
    }
}

impl Sink for NatsSink {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if self.mode == Mode::Live && self.waiting.len() + batch.num_rows() > MOST_WAITING {
            // The newest are lost: what waits is sent in order.
            self.lost += u64::try_from(batch.num_rows()).unwrap_or(0);
        } else {
            self.add(batch)?;
        }
        match self.mode {
            Mode::Live => {
                let _ = self.work();
                Ok(())
            }
            Mode::Whole => self
                .insist(|this| this.waiting.len() < WINDOW)
                .map_err(|error| self.give_up(error)),
        }
    }

    fn idle(&mut self) {
        let _ = self.work();
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.insist(|this| this.waiting.is_empty())
            .map_err(|error| self.give_up(error))
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

fn identity(server: &str) -> (Identity, &str) {
    match server.rsplit_once('@') {
        None => (Identity::Nobody, server),
        Some((who, server)) => match who.split_once(':') {
            Some((user, password)) => (Identity::User(user.into(), password.into()), server),
            None => (Identity::Token(who.into()), server),
        },
    }
}

/// Differs from every other run's.
fn run() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    format!("{now:x}-{:x}", std::process::id())
}

fn headers(run: &str, number: u64, key: Option<String>) -> String {
    let key = key.map_or_else(String::new, |key| format!("Flow-Id: {key}\r\n"));
    format!("NATS/1.0\r\nNats-Msg-Id: {run}-{number}\r\n{key}\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        assert!(matches!(identity("h"), (Identity::Nobody, "h")));
        assert!(matches!(identity("t@h:1"), (Identity::Token(t), "h:1") if t == "t"));
        assert!(matches!(identity("u:p@h"), (Identity::User(u, p), "h") if u == "u" && p == "p"));
        for wrong in ["127.0.0.1:4222", "127.0.0.1:4222/", "h/a b", "h/flows.*"] {
            assert!(NatsSink::connect(wrong, Mode::Whole).is_err(), "{wrong}");
        }
    }
}
