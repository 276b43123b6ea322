//! Moving a stream to another datapath while it runs, without loss or reordering.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{Error, Kind};

use super::Core;
use super::instance::refused;
use super::stream::{Placement, SlowPath};
use crate::handover::{FastPath, Handover};
use crate::userspace;

/// How long frames that a CPU took before a change may take to reach their socket.
const SETTLE_TIME: Duration = Duration::from_millis(2);
/// How often a hand-over is looked at.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// How long each full queue may take to be sent when a hand-over is called off: to 256 subscribers
/// that is ten seconds' work.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

impl Core {
    /// Moves a stream to another datapath. When the backlog does not drain in time, the stream
    /// stays where it was, and the error says `not switched`.
    pub fn switch(&self, stream: &str, datapath: &str, timeout: Duration) -> Result<(), Error> {
        let (from, is_kernels) = {
            let state = self.lock();
            let at = state.find(stream)?;
            state.streams[at].settled()?;
            let known: Vec<_> = state.datapaths.iter().map(|known| known.name()).collect();
            if !known.contains(&datapath) {
                let known = known.join(", ");
                let message = format!("no datapath \"{datapath}\"; there are {known}");
                return Err(Error::bad_request(message));
            }
            let spec = &state.streams[at].spec;
            spec.check_work(datapath)
                .map_err(|what| Error::bad_request(format!("stream \"{stream}\": {what}")))?;
            let from = state.streams[at].place.datapath.clone().unwrap_or_default();
            let is_kernels = |datapath: &str| {
                is_fast(datapath) && state.streams[at].policy_on(datapath).kernel.is_some()
            };
            let is_kernels = is_kernels(&from) || is_kernels(datapath);
            (from, is_kernels)
        };
        if from == datapath {
            return Ok(());
        }
        match (is_fast(&from), is_fast(datapath)) {
            // What is left to the kernel stays in the ingest socket, whichever datapath is beside it.
            _ if is_kernels => self.move_through_socket(stream, datapath),
            (_, false) => self.move_through_socket(stream, datapath),
            (false, true) => self.to_fast_path(stream, &from, datapath, timeout),
            (true, true) => {
                self.move_through_socket(stream, INTERIM_DATAPATH)?;
                let moved = self.to_fast_path(stream, INTERIM_DATAPATH, datapath, timeout);
                if moved.is_err() {
                    self.to_fast_path(stream, INTERIM_DATAPATH, &from, timeout)?;
                }
                moved
            }
        }
    }

    /// From any datapath to one that reads the ingest socket: the stream waits there while it changes hands.
    fn move_through_socket(&self, name: &str, to: &str) -> Result<(), Error> {
        let mut state = self.lock();
        let at = state.find(name)?;
        let from = state.streams[at].place.datapath.clone().unwrap_or_default();
        if let Some(fast) = state.fast_path(&from) {
            state.streams[at].place.slow = SlowPath::Pause;
            let passed = state
                .apply_slow(&from)
                .and_then(|()| fast.pass(state.streams[at].id).map_err(refused));
            if let Err(error) = passed {
                state.streams[at].place.slow = SlowPath::Ingest;
                let _restored = state.apply_slow(&from);
                return Err(error);
            }
        }
        state.take_off(at)?;
        state.streams[at].place = on(to);
        let moved = state.apply(to);
        if moved.is_err() {
            state.streams[at].place = on(&from);
            state.apply(to)?;
            state.apply(&from)?;
        }
        moved
    }

    fn to_fast_path(
        &self,
        name: &str,
        from: &str,
        to: &str,
        timeout: Duration,
    ) -> Result<(), Error> {
        let handover = self.divert(name, to)?;
        let handed = self.hand_over(name, to, &handover, timeout);
        let settled = match &handed {
            Ok(()) => self.settle_on(name, to),
            Err(_) => self.call_off(name, from, to, &handover),
        };
        handed.and(settled)
    }

    /// Attaches the fast path with the stream diverted, beside the datapath that has it.
    fn divert(&self, name: &str, to: &str) -> Result<Arc<Handover>, Error> {
        let mut state = self.lock();
        let at = state.find(name)?;
        // Who holds the latch goes with the stream.
        let latched = state
            .counters(&state.streams[at], &state.present())
            .0
            .latched;
        let stream = &mut state.streams[at];
        stream.keep_latch(latched);
        stream.place.incoming = Some(to.into());
        let id = stream.id;
        let applied = state.apply(to);
        let fast = state.fast_path(to);
        // One that the fast path leaves to userspace is not in its tables.
        let applied = applied.and_then(|()| match &fast {
            Some(fast) => fast.forwarding_path(id).map(drop).map_err(refused),
            None => Ok(()),
        });
        match (applied, fast) {
            (Ok(()), Some(fast)) => Ok(Arc::new(Handover::new(id, fast))),
            (applied, _) => {
                state.streams[at].place.incoming = None;
                let _restored = state.apply(to);
                applied?;
                Err(Error::failed(format!("{to} is no fast path")))
            }
        }
    }

    /// Sends what the ingest socket holds, then what is diverted, until the fast path takes over.
    fn hand_over(
        &self,
        name: &str,
        to: &str,
        handover: &Arc<Handover>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let began = Instant::now();
        grace_period();
        thread::sleep(SETTLE_TIME);
        {
            let mut state = self.lock();
            let at = state.find(name)?;
            state.take_off(at)?;
            state.streams[at].place.slow = SlowPath::Handover(handover.clone());
            state.apply_slow(to)?;
        }
        let left = timeout.saturating_sub(began.elapsed());
        if wait(left, || handover.is_over().map_err(refused))? {
            return Ok(());
        }
        let message = format!(
            "not switched: stream \"{name}\" did not catch up within {} ms; \
             it is faster than userspace, or try a longer --switch-timeout",
            timeout.as_millis()
        );
        Err(Error::new(Kind::Failed, message))
    }

    /// The fast path has the stream.
    fn settle_on(&self, name: &str, to: &str) -> Result<(), Error> {
        let mut state = self.lock();
        let at = state.find(name)?;
        state.streams[at].place = on(to);
        state.apply(to)
    }

    /// Back to where it was: the ingest socket to its end, what is diverted, then the ingest socket
    /// again.
    fn call_off(
        &self,
        name: &str,
        from: &str,
        to: &str,
        handover: &Arc<Handover>,
    ) -> Result<(), Error> {
        let reverted = self.revert(name, to, handover);
        // Whatever went wrong, the stream is served where it was.
        let mut state = self.lock();
        let at = state.find(name)?;
        state.streams[at].place.incoming = None;
        let left = state.apply(to);
        state.fold(at, to);
        state.streams[at].place = on(from);
        state.apply(from).and(left).and(reverted)
    }

    /// Has userspace send what the fast path has diverted, after what came before it.
    fn revert(&self, name: &str, to: &str, handover: &Arc<Handover>) -> Result<(), Error> {
        if self.is_handing_over(name)? {
            wait(DRAIN_TIMEOUT, || Ok(handover.has_begun()))?;
        }
        let taken_off = {
            let mut state = self.lock();
            let at = state.find(name)?;
            let taken_off = state.streams[at].place.datapath.is_none();
            if taken_off {
                state.streams[at].place.slow = SlowPath::Revert(handover.clone());
                state.apply_slow(to)?;
                handover.pass().map_err(refused)?;
            }
            taken_off
        };
        // Others are served meanwhile: nobody may change a stream that is being switched.
        if taken_off {
            thread::sleep(SETTLE_TIME);
            wait(DRAIN_TIMEOUT, || handover.is_level().map_err(refused))?;
        }
        Ok(())
    }

    fn is_handing_over(&self, name: &str) -> Result<bool, Error> {
        let state = self.lock();
        let slow = &state.streams[state.find(name)?].place.slow;
        Ok(matches!(slow, SlowPath::Handover(_)))
    }
}

/// Looks again and again until it is so, or the time is over.
fn wait(time: Duration, is_so: impl Fn() -> Result<bool, Error>) -> Result<bool, Error> {
    let deadline = Instant::now() + time;
    loop {
        match is_so()? {
            false if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            so => return Ok(so),
        }
    }
}

/// Where a stream waits between two fast paths.
const INTERIM_DATAPATH: &str = "mmsg";

fn on(datapath: &str) -> Placement {
    Placement {
        datapath: Some(datapath.into()),
        ..Placement::default()
    }
}

/// Whether a datapath keeps packets out of userspace; known before it runs.
pub(super) fn is_fast(datapath: &str) -> bool {
    !userspace::NAMES.contains(&datapath)
}

/// After this no CPU runs what was replaced before. Where the kernel refuses to wait, it gets time instead.
fn grace_period() {
    if let Err(error) = netdev::grace::wait() {
        tracing::debug!(%error, "no grace period; waits instead");
        thread::sleep(Duration::from_millis(50));
    }
}

impl super::State {
    pub(super) fn fast_path(&self, name: &str) -> Option<Arc<dyn FastPath>> {
        self.instances.get(name)?.running.fast_path()
    }
}
