//! Waiting for something observable, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long set-up steps may take on a slow machine.
const DEADLINE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

/// Polls until `ready` gives a value; `what` names it when the deadline passes.
pub(crate) fn until<T>(what: &str, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("waited {} s for {what}", DEADLINE.as_secs());
        }
        thread::sleep(POLL);
    }
}
