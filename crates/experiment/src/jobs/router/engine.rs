//! An engine as a process: one JSON line to it, one back. What it looks up in and what for are files.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request to an engine. Names in it have no characters that JSON would escape, because peers parse requests
/// without a complete JSON parser.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Request {
    /// Build a table, which replaces that of the last request: [`LoadAnswer`].
    Load { engine: String, table: PathBuf },
    /// Look every key up once, compare, and time whole passes for `ms` or longer: [`PassAnswer`].
    Pass {
        keys: PathBuf,
        answers: PathBuf,
        ms: f64,
    },
    /// Change the table in one thread for `ms`, and look up in another: [`UpdateAnswer`].
    Update {
        /// Nothing for rules: of those, every tenth comes and goes.
        updates: Option<PathBuf>,
        keys: PathBuf,
        ms: f64,
        /// Updates a second; 0 is one after the other.
        offered: f64,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LoadAnswer {
    pub(super) build_s: f64,
    /// The size of the lookup structure.
    pub(super) mib: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PassAnswer {
    /// A lookup, in nanoseconds.
    pub(super) ns: f64,
    pub(super) lookups: u64,
    /// Wrong answers among the keys whose answers are known.
    pub(super) wrong: u64,
    /// Over all keys, the sum of place * answer, places counted from 1.
    pub(super) checksum: u64,
    /// The instructions, where the engine chose them by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) simd: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct UpdateAnswer {
    pub(super) updates: u64,
    pub(super) updates_per_s: f64,
    /// The median time of an update.
    pub(super) median_us: f64,
    pub(super) longest_us: f64,
    /// A lookup meanwhile, in nanoseconds.
    pub(super) ns: f64,
    pub(super) longest_batch_us: f64,
    pub(super) batches: u64,
}

/// A running engine; it ends when dropped.
#[derive(Debug)]
pub(super) struct Engine {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: PathBuf,
    /// The line it began with.
    pub(super) ready: Value,
}

impl Engine {
    /// Starts a program on these CPUs and waits for its first line.
    pub(super) fn start(program: &Path, words: &[&str], cpus: &str, errors: &Path) -> Result<Self> {
        let mut child = Command::new("taskset")
            .args(["-c", cpus])
            .arg(program)
            .args(words)
            // Keys and answers of an engine of ours in huge pages where they are granted, as the
            // peers have them.
            .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(errors)?)
            .spawn()
            .context("taskset")?;
        let input = child.stdin.take().context("its input is piped")?;
        let output = child.stdout.take().context("its output is piped")?;
        let mut engine = Self {
            child,
            input,
            output: BufReader::new(output),
            errors: errors.to_owned(),
            ready: Value::Null,
        };
        engine.ready = engine.answer()?;
        Ok(engine)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ask<T: for<'a> Deserialize<'a>>(&mut self, request: &Request) -> Result<T> {
        writeln!(self.input, "{}", serde_json::to_string(request)?)
            .context("the engine is gone")?;
        let answer = self.answer()?;
        serde_json::from_value(answer).context("the engine's answer")
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
            let last = said.trim().lines().last().unwrap_or("it printed nothing");
            bail!("the engine ended: {last}");
        }
        let answer: Value = serde_json::from_str(&line).context("the engine's answer")?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
