//! A running datapath and, beside a fast path, the userspace worker for what it passes up.

use std::collections::BTreeMap;

use control::{Error, Kind};
use datapath::{Detachment, Error as DatapathError};

use super::stream::{SlowPath, Stream};
use super::{State, switch, total};
use crate::Running;
use crate::counters::{Counters, StreamCounters};
use crate::plan::{Plan, SourcePolicy, StreamId};
use crate::userspace::{SLOW_PATH, Work, Worker};

/// The kernel gives the loopback this index in every namespace.
const LOOPBACK: u32 = 1;

pub(super) struct Instance {
    pub(super) running: Running,
    slow: Option<Worker>,
}

/// The counters of a datapath and its slow path.
#[derive(Debug, Default)]
pub(super) struct Counts {
    fast: Counters,
    slow: Counters,
}

impl Counts {
    /// Both together, each datagram once.
    pub(super) fn of(&self, stream: StreamId) -> StreamCounters {
        let mut counters = self
            .fast
            .streams
            .get(&stream.0)
            .cloned()
            .unwrap_or_default();
        if let Some(slow) = self.slow.streams.get(&stream.0) {
            counters.merge(slow);
        }
        counters
    }

    pub(super) fn passed(&self, stream: StreamId) -> u64 {
        let counters = self.fast.streams.get(&stream.0);
        counters.map_or(0, |counters| counters.passed.packets)
    }
}

impl Instance {
    fn counts(&self) -> Counts {
        Counts {
            fast: self.running.counters(),
            slow: self.slow.as_ref().map(Worker::counters).unwrap_or_default(),
        }
    }

    /// The fast path first: what it passes up until it is detached is still read.
    fn stop(self) -> Counts {
        Counts {
            fast: self.running.stop(),
            slow: self.slow.map(Worker::stop).unwrap_or_default(),
        }
    }
}

impl State {
    /// Brings a datapath to what the streams say: starts, reconfigures or stops it.
    pub(super) fn apply(&mut self, name: &str) -> Result<(), Error> {
        let plan = self.plan(name);
        if plan.streams.is_empty() {
            self.halt(name);
            return Ok(());
        }
        match self.instances.get_mut(name) {
            Some(instance) => instance.running.reconfigure(&plan).map_err(refused)?,
            None => {
                let running = self.start(name, &plan)?;
                let instance = Instance {
                    running,
                    slow: None,
                };
                self.instances.insert(name.into(), instance);
                self.set_userspace_only(name);
                self.apply_slow(name)?;
                self.next_cpu();
                return Ok(());
            }
        }
        self.set_userspace_only(name);
        self.apply_slow(name)
    }

    /// Takes over which subscribers a fast path cannot send to; whether that changed.
    pub(super) fn set_userspace_only(&mut self, name: &str) -> bool {
        let Some(fast) = self.fast_path(name) else {
            return false;
        };
        let mut changed = false;
        for stream in &mut self.streams {
            let place = &stream.place;
            if [&place.datapath, &place.incoming]
                .map(Option::as_deref)
                .contains(&Some(name))
            {
                changed |= stream.set_userspace_only(&fast.userspace_only(stream.id));
            }
        }
        changed
    }

    /// Brings the slow path beside a fast path to what the streams say.
    pub(super) fn apply_slow(&mut self, name: &str) -> Result<(), Error> {
        let on_it = |stream: &&Stream| stream.place.datapath.as_deref() == Some(name);
        let handing = |stream: &&Stream| {
            stream.place.datapath.is_none() && stream.place.incoming.as_deref() == Some(name)
        };
        let streams = self.streams.iter();
        let work: Vec<Work> = streams
            .filter(|stream| on_it(stream) || handing(stream))
            .map(Stream::slow_work)
            .collect();
        let Some(instance) = self.instances.get_mut(name) else {
            return Ok(());
        };
        let Some(fast) = instance.running.fast_path() else {
            return Ok(());
        };
        if instance.slow.is_none() {
            let punts = fast.punts().map_err(refused)?;
            let worker =
                Worker::start("slow", SLOW_PATH, &self.cpus, Some(punts)).map_err(refused)?;
            instance.slow = Some(worker);
        }
        match &instance.slow {
            Some(slow) => slow.set_work(&work).map_err(refused),
            None => Ok(()),
        }
    }

    /// The CPUs take turns: the next datapath starts on another.
    fn next_cpu(&mut self) {
        if !self.cpus.is_empty() {
            self.cpus.rotate_left(1);
        }
    }

    /// Brings the datapath a stream is on to what the stream says.
    pub(super) fn apply_stream(&mut self, at: usize) -> Result<(), Error> {
        match self.streams[at].place.datapath.clone() {
            Some(name) => self.apply(&name),
            None => Ok(()),
        }
    }

    /// Stops a datapath that no stream uses and keeps its counters.
    pub(super) fn halt(&mut self, name: &str) {
        if let Some(instance) = self.instances.remove(name) {
            self.finals.insert(name.into(), instance.stop());
        }
    }

    /// Takes a stream off its datapath; its packets wait in the ingest socket.
    pub(super) fn take_off(&mut self, at: usize) -> Result<(), Error> {
        let Some(name) = self.streams[at].place.datapath.take() else {
            return Ok(());
        };
        self.apply(&name)?;
        self.fold(at, &name);
        Ok(())
    }

    /// Adds what a datapath that a stream has left counted of it.
    pub(super) fn fold(&mut self, at: usize, name: &str) {
        let id = self.streams[at].id;
        let counters = match self.instances.get(name) {
            Some(instance) => instance.counts().of(id),
            None => self
                .finals
                .get(name)
                .map(|counts| counts.of(id))
                .unwrap_or_default(),
        };
        let stream = &mut self.streams[at];
        stream.keep_latch(counters.latched);
        stream.past = total(&stream.past, std::iter::once(counters));
    }

    /// Keeps what streams have counted on a datapath that starts again.
    fn keep_counts(&mut self, name: &str) {
        for at in 0..self.streams.len() {
            let place = &self.streams[at].place;
            if place
                .datapath
                .iter()
                .chain(&place.incoming)
                .any(|its| its == name)
            {
                self.fold(at, name);
            }
        }
        self.finals.remove(name);
    }

    /// What each datapath has counted up to now, all of it read once.
    pub(super) fn present(&self) -> BTreeMap<&str, Counts> {
        let instances = self.instances.iter();
        let counts = instances.map(|(name, instance)| (name.as_str(), instance.counts()));
        counts.collect()
    }

    /// What a stream has counted on every datapath, of which `present` are those that run, and what of it a fast path
    /// passed up.
    pub(super) fn counters(
        &self,
        stream: &Stream,
        present: &BTreeMap<&str, Counts>,
    ) -> (StreamCounters, u64) {
        let names = stream.place.datapath.iter().chain(&stream.place.incoming);
        let counts: Vec<_> = names
            .filter_map(|name| present.get(name.as_str()))
            .collect();
        let passed = counts.iter().map(|counts| counts.passed(stream.id)).sum();
        let present = counts.iter().map(|counts| counts.of(stream.id));
        (total(&stream.past, present), passed)
    }

    /// Puts programs back that others have taken off.
    pub(super) fn reattach(&mut self) {
        for (name, instance) in &mut self.instances {
            for change in instance.running.reattach() {
                tracing::error!(datapath = name, "{change}");
            }
        }
    }

    /// What other programs have detached from a datapath that runs.
    pub(super) fn detachments(&self, datapath: &str) -> Vec<Detachment> {
        let instance = self.instances.get(datapath);
        instance.map_or_else(Vec::new, |instance| instance.running.detachments())
    }

    /// Datapaths that stopped by themselves, or could not be started; their instances are dropped.
    pub(super) fn restartable(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for (name, instance) in &self.instances {
            if let Some(reason) = instance.running.failed() {
                tracing::error!(
                    datapath = name,
                    reason,
                    "has stopped by itself, starts again"
                );
                names.push(name.clone());
            }
        }
        for name in &names {
            self.halt(name);
            self.keep_counts(name);
        }
        for stream in &self.streams {
            let wanted = stream.place.datapath.iter();
            names.extend(
                wanted
                    .filter(|name| !self.instances.contains_key(*name))
                    .cloned(),
            );
        }
        names
    }

    fn start(&self, name: &str, plan: &Plan) -> Result<Running, Error> {
        let datapath = self
            .datapaths
            .iter()
            .find(|datapath| datapath.name() == name)
            .ok_or_else(|| Error::bad_request(format!("no datapath \"{name}\"")))?;
        datapath
            .check()
            .map_err(|missing| refused(missing.into()))?;
        datapath.start(plan).map_err(refused)
    }

    fn allows_kernel_source(&self, policy: &SourcePolicy) -> bool {
        let mut sources = self.kernel_sources.iter();
        match policy {
            SourcePolicy::Any | SourcePolicy::Latch { .. } => sources.len() > 0,
            SourcePolicy::Allow(prefixes) => sources.any(|source| {
                prefixes
                    .iter()
                    .any(|prefix| prefix.contains((*source).into()))
            }),
        }
    }

    fn plan(&self, name: &str) -> Plan {
        let streams = self.streams.iter().filter_map(|stream| {
            let place = &stream.place;
            let diverted = place.incoming.as_deref() == Some(name);
            if !diverted && place.datapath.as_deref() != Some(name) {
                return None;
            }
            // One whose hand-over is called off stays with userspace.
            let reverted = matches!(place.slow, SlowPath::Revert(_));
            let mut plan = stream.plan(name, diverted && !reverted);
            plan.check_source = self.allows_kernel_source(&plan.source);
            // No fast path for what this machine sends itself, unless it is asked for by name.
            if switch::is_fast(name) && stream.spec.interfaces.is_empty() {
                plan.interfaces.retain(|index| *index != LOOPBACK);
            }
            Some(plan)
        });
        Plan {
            streams: streams.collect(),
            cpus: self.cpus.clone(),
            kernel_sources: self.kernel_sources.clone(),
        }
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
pub(super) fn refused(error: DatapathError) -> Error {
    let kind = match &error {
        DatapathError::Missing(_) => Kind::Missing,
        DatapathError::Plan(_) => Kind::BadRequest,
        DatapathError::Failed { .. } => Kind::Failed,
    };
    Error::new(kind, error.to_string())
}
