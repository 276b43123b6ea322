//! A program that writes to a file, one write after the other, and times each. A process of its own,
//! because some arms see the writes of a process.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use testbed::Child;

/// Places in the file, which are written to in turn: 4 MB of pages, which stay in the page cache.
const PLACES: u64 = 1000;

/// A request to a writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    file: PathBuf,
    /// The size of a write.
    bytes: usize,
    writes: u64,
}

/// Times of writes, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WriteTimes {
    /// From the first to the last, by their number.
    pub(super) mean: f64,
    pub(super) median: f64,
    pub(super) p95: f64,
}

/// Answers each line with a line, until the input ends. The first line has its process id.
///
/// # Errors
/// When the lines cannot be read or written, or the file cannot be written.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<()> {
    writeln!(output, "{}", std::process::id())?;
    output.flush()?;
    for line in input.lines() {
        let request: Request = serde_json::from_str(&line?).context("a writer's request")?;
        writeln!(output, "{}", serde_json::to_string(&write(&request)?)?)?;
        output.flush()?;
    }
    Ok(())
}

fn write(request: &Request) -> Result<WriteTimes> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false);
    let file = file.open(&request.file)?;
    let mut bytes = vec![b'x'; request.bytes];
    let mut took = Vec::with_capacity(usize::try_from(request.writes)?);
    let begun = Instant::now();
    let mut last = begun;
    for number in 0..request.writes {
        // Each write is one that has not been before.
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all_at(&bytes, number % PLACES * request.bytes as u64)?;
        let now = Instant::now();
        took.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        last = now;
    }
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 100).copied();
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let mean = (last - begun).as_nanos() as f64 / request.writes.max(1) as f64;
    Ok(WriteTimes {
        mean,
        median: at(50).unwrap_or(0).into(),
        p95: at(95).unwrap_or(0).into(),
    })
}

/// A running writer; it ends when dropped.
#[derive(Debug)]
pub(super) struct Writer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: PathBuf,
    file: PathBuf,
    /// Itself, where what runs it is another process.
    id: u32,
}

impl Writer {
    /// Starts one by a command of this program that lacks its words, for a file.
    pub(super) fn start(mut command: Command, file: PathBuf, out: &Path) -> Result<Self> {
        let errors = out.join("writer.errors");
        command
            .arg("writer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        let mut child = Child::start(command).context("a writer")?;
        let input = child.stdin().context("its input is piped")?;
        let output = child.stdout().context("its output is piped")?;
        let mut writer = Self {
            child,
            input,
            output: BufReader::new(output),
            errors,
            file,
            id: 0,
        };
        writer.id = writer.line()?.trim().parse().context("a writer's id")?;
        Ok(writer)
    }

    pub(super) fn pids(&self) -> [u32; 2] {
        [self.child.id(), self.id]
    }

    pub(super) fn write(&mut self, bytes: usize, writes: u64) -> Result<WriteTimes> {
        let request = Request {
            file: self.file.clone(),
            bytes,
            writes,
        };
        let request = serde_json::to_string(&request)?;
        writeln!(self.input, "{request}").context("the writer is gone")?;
        serde_json::from_str(&self.line()?).context("the writer's answer")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
            bail!("the writer ended: {}", said.trim());
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_so_many_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let request = Request {
            file: file.clone(),
            bytes: 16,
            writes: PLACES + 1,
        };
        let asked = serde_json::to_string(&request).unwrap();
        let mut said = Vec::new();
        serve(asked.as_bytes(), &mut said).unwrap();
        let answer = String::from_utf8(said).unwrap();
        let written: WriteTimes = serde_json::from_str(answer.lines().nth(1).unwrap()).unwrap();
        assert!(written.mean > 0.0 && written.median <= written.p95);
        let bytes = std::fs::read(file).unwrap();
        assert_eq!(bytes.len(), 16 * 1000);
        assert_eq!(bytes[..8], PLACES.to_le_bytes());
    }
}
