//! The parts that a configuration lists, and their running state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::acknowledgements::Acknowledgements;
use super::capture::{self, Recorder};
use super::publish::{self, Publishing};
use super::receive::{self, Receiving};
use super::status::Progress;
use super::{Error, apply, serve};
use crate::make::Gate;
use crate::ship::tcp::Server;

/// One part of a service.
#[derive(Clone, Debug)]
pub struct Part {
    /// The unique name of the part in status, metrics and messages.
    pub name: String,
    pub job: Job,
}

#[derive(Clone, Debug)]
pub enum Job {
    Capture(capture::Settings),
    Serve(serve::Settings),
    Publish(publish::Settings),
    Receive(receive::Settings),
    Apply(apply::Settings),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Capture,
    Serve,
    Publish,
    Receive,
    Apply,
}

impl Part {
    pub fn kind(&self) -> Kind {
        self.job.kind()
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Serve => "serve",
            Self::Publish => "publish",
            Self::Receive => "receive",
            Self::Apply => "apply",
        }
    }

    /// Whether the part writes a log.
    pub fn writes_log(self) -> bool {
        matches!(self, Self::Capture | Self::Receive)
    }
}

impl Job {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Capture(_) => Kind::Capture,
            Self::Serve(_) => Kind::Serve,
            Self::Publish(_) => Kind::Publish,
            Self::Receive(_) => Kind::Receive,
            Self::Apply(_) => Kind::Apply,
        }
    }

    pub fn log(&self) -> &Path {
        let log: &PathBuf = match self {
            Self::Capture(settings) => &settings.log,
            Self::Serve(settings) => &settings.log,
            Self::Publish(settings) => &settings.log,
            Self::Receive(settings) => &settings.log,
            Self::Apply(settings) => &settings.log,
        };
        log
    }

    /// The size limit of its log. `None` without a limit, and for a part that writes no log.
    pub(super) fn keep(&self) -> Option<u64> {
        match self {
            Self::Capture(settings) => settings.keep,
            Self::Receive(settings) => settings.keep,
            Self::Serve(_) | Self::Publish(_) | Self::Apply(_) => None,
        }
    }

    /// Clears options that apply only once, so that a tree is not copied anew each time a capture
    /// has to restart.
    /// to begin again.
    pub(super) fn begun(&mut self) {
        if let Self::Capture(settings) = self {
            settings.fresh = false;
        }
    }

    /// Makes an apply check this gate before each call.
    pub(super) fn ask(&mut self, gate: &Gate) {
        if let Self::Apply(settings) = self {
            settings.options.gate = gate.clone();
        }
    }

    pub(super) fn begin(&self, confirmed: Option<Arc<Acknowledgements>>) -> Result<Working, Error> {
        Ok(match self {
            Self::Capture(settings) => {
                Working::Capture(Box::new(Recorder::shipped(settings, confirmed)?))
            }
            Self::Serve(settings) => Working::Serve(settings.start()?, settings.clone()),
            Self::Publish(settings) => Working::Publish(Box::new(settings.start()?)),
            Self::Receive(settings) => Working::Receive(settings.start()?),
            Self::Apply(settings) => Working::Apply(Box::new(settings.start()?)),
        })
    }
}

/// A running part.
#[derive(Debug)]
pub(super) enum Working {
    Capture(Box<Recorder>),
    Serve(Server, serve::Settings),
    Publish(Box<Publishing>),
    Receive(Receiving),
    Apply(Box<apply::Applying>),
}

impl Working {
    /// Does the pending work. If there is none, waits at most this long for some. If that takes
    /// long, `meanwhile` receives the progress and decides whether to end.
    pub(super) fn step(
        &mut self,
        wait: Duration,
        meanwhile: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Progress, Error> {
        Ok(match self {
            Self::Capture(recorder) => {
                recorder.wait(None)?;
                let captured =
                    recorder.step(&mut |now| meanwhile(Progress::Capture(now.clone())))?;
                Progress::Capture(captured)
            }
            Self::Serve(server, _) => {
                thread::sleep(wait);
                if let Some(error) = server.failed() {
                    return Err(error.into());
                }
                Progress::Serve(server.address(), server.status())
            }
            Self::Publish(publishing) => Progress::Publish(publishing.step(wait)?.clone()),
            Self::Receive(receiving) => Progress::Receive(receiving.step(wait)?),
            Self::Apply(applying) => {
                if !applying.follow()? {
                    applying.wait(wait)?;
                }
                Progress::Apply(applying.done().clone())
            }
        })
    }

    /// Lets an apply remove most of the files with its next step.
    pub(super) fn allow_delete_once(&mut self) {
        if let Self::Apply(applying) = self {
            applying.allow_delete_once();
        }
    }

    /// Ends the part without losing anything that it had begun.
    pub(super) fn finish(self) -> Result<Progress, Error> {
        match self {
            Self::Capture(recorder) => match recorder.finish()? {
                (captured, true) => Ok(Progress::Capture(captured)),
                (captured, false) => Err(capture::unfinished(&captured)),
            },
            Self::Serve(server, settings) => {
                settings.drain(&server)?;
                Ok(Progress::Serve(server.address(), server.status()))
            }
            Self::Publish(publishing) => {
                let published = publishing.finish()?;
                publish::unfinished(&published).map_or(Ok(Progress::Publish(published)), Err)
            }
            Self::Receive(receiving) => Ok(Progress::Receive(receiving.finish()?)),
            Self::Apply(mut applying) => {
                // Another program may write the log faster than it is applied.
                applying.follow()?;
                let done = applying.finish()?;
                match done.hold {
                    Some(hold) => Err(Error::Unfinished(hold.why)),
                    None => Ok(Progress::Apply(done)),
                }
            }
        }
    }
}
