//! The seam every datapath implements: check, start, reconfigure, count, stop.
//!
//! It decides the life cycle and the words for what a machine cannot run; what a datapath does
//! with packets, and what a plan and a counter are, belongs to the job.

mod class;
mod detachment;

pub use class::{Classify, ErrorClass};
pub use detachment::Detachment;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A job's own types: what it asks of a datapath, and what a datapath reports back.
pub trait Job {
    /// The complete desired state of one datapath. `reconfigure` moves to a new one.
    type Plan: ?Sized;
    /// Everything counted since `start`.
    type Counters;
    /// The result of a datapath that has stopped.
    type Summary;
    /// The additional controls of a datapath that keeps packets out of userspace.
    type FastPath: ?Sized;
}

/// One way of handling a job's packets.
pub trait Datapath<J: Job>: Send + Sync {
    /// The name users type after `--datapath`: `recv`, `xdp`, `af-xdp`.
    fn name(&self) -> &'static str;

    /// Why this machine cannot run it, with the remedy. Loads nothing and changes nothing.
    fn check(&self) -> Result<(), Missing>;

    /// Starts handling packets; returns once they are handled.
    fn start(&self, plan: &J::Plan) -> Result<Box<dyn Running<J>>, Error>;
}

/// A started datapath. Dropping it detaches everything it attached.
pub trait Running<J: Job>: Send {
    /// Moves to a new plan without losing packets that both plans cover.
    fn reconfigure(&mut self, plan: &J::Plan) -> Result<(), Error>;

    /// Counters since the start.
    fn counters(&self) -> J::Counters;

    /// Why it has stopped by itself, if it has (its interface disappeared, a thread died).
    fn failed(&self) -> Option<String>;

    /// Attaches its programs again where other programs have detached them, and returns what has changed.
    fn reattach(&mut self) -> Vec<Detachment> {
        Vec::new()
    }

    /// What other programs have detached since the start, by device.
    fn detachments(&self) -> Vec<Detachment> {
        Vec::new()
    }

    /// The controls of a fast path; `None` from a datapath that handles packets in userspace.
    fn fast_path(&self) -> Option<Arc<J::FastPath>> {
        None
    }

    /// Detaches, drains, and returns the final counters.
    fn stop(self: Box<Self>) -> J::Summary;
}

/// Something this machine lacks, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Missing {
    /// What is missing: `needs CAP_BPF and CAP_NET_ADMIN`.
    pub what: String,
    /// What to do about it: `run with sudo`, or why nothing can be done.
    pub remedy: String,
}

impl Missing {
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// Why a datapath could not start or change.
#[derive(Debug)]
pub enum Error {
    /// This machine cannot run it.
    Missing(Missing),
    /// The plan asks for something no input can make work.
    Plan(String),
    /// It was attempted and did not work.
    Failed {
        what: String,
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl Error {
    /// An attempt that did not work: `what` names the thing and the action.
    pub fn failed(
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Failed {
            what: what.into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => write!(f, "{}; {}", missing.what, missing.remedy),
            Self::Plan(what) => f.write_str(what),
            Self::Failed { what, source: None } => f.write_str(what),
            Self::Failed {
                what,
                source: Some(source),
            } => write!(f, "{what}: {source}"),
        }
    }
}

impl StdError for Error {}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}
