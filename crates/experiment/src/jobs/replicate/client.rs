//! A client that sends one request after the other over one connection, and times each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load::Application;

/// A request that is not answered for so long never is.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Client {
    connection: TcpStream,
    answers: BufReader<TcpStream>,
    request: Vec<u8>,
    /// Where the row is that differs in each request.
    row: Option<usize>,
    sent: u64,
}

impl Client {
    /// Connects to an application on this machine; `row` is how many bytes a POST has.
    pub(super) fn connect(port: u16, application: Application, row: usize) -> Result<Self> {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        let mut request = match application {
            Application::File => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            Application::Sqlite => {
                let head =
                    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream";
                format!("{head}\r\nContent-Length: {row}\r\n\r\n").into_bytes()
            }
        };
        let start = request.len();
        if application == Application::Sqlite {
            request.resize(start + row, b'x');
        }
        Ok(Self {
            answers: BufReader::new(connection.try_clone()?),
            connection,
            row: (application == Application::Sqlite).then_some(start),
            request,
            sent: 0,
        })
    }

    /// Sends `requests` requests, and returns the time of each, shortest first.
    pub(super) fn send(&mut self, requests: usize) -> Result<Vec<Duration>> {
        let mut took = Vec::with_capacity(requests);
        for _ in 0..requests {
            self.sent += 1;
            let number = self.sent.to_be_bytes();
            let row = self
                .row
                .and_then(|row| self.request.get_mut(row..row + number.len()));
            if let Some(row) = row {
                row.copy_from_slice(&number);
            }
            let begun = Instant::now();
            self.connection.write_all(&self.request)?;
            self.answer()?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        Ok(took)
    }

    /// Reads an answer to its end.
    fn answer(&mut self) -> Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if !line.contains(" 200 ") {
            bail!("the application answers {:?}", line.trim());
        }
        let mut length = 0;
        loop {
            line.clear();
            self.answers.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().context("an answer's length")?;
            }
        }
        let mut body = vec![0; length];
        Ok(self.answers.read_exact(&mut body)?)
    }
}

/// A program for each request, timed as a shell's `time` prints it: in whole milliseconds.
pub(super) fn by_curl(port: u16, requests: usize) -> Result<Vec<Duration>> {
    let url = format!("http://127.0.0.1:{port}/");
    let mut took = Vec::with_capacity(requests);
    for _ in 0..requests {
        let begun = Instant::now();
        let status = Command::new("curl")
            .args(["-s", "-f", &url])
            .stdout(Stdio::null())
            .status()
            .context("curl")?;
        let whole = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if !status.success() {
            bail!("curl ended with {status}");
        }
        took.push(Duration::from_millis(whole));
    }
    took.sort_unstable();
    Ok(took)
}
