//! Who relays a stream now, switched by its tables, and which way its copies go.

use std::net::SocketAddr;

use datapath::Error;
use libbpf_rs::{MapCore, MapFlags};

use super::super::{grace, groups, layout, write};
use super::{Carried, Tables, carried};
use crate::handover::{FastPath, Road};
use crate::plan::{StreamId, Subscriber, SubscriberId};

/// Nothing is taken over before userspace has first said how far it is.
const NEVER: u64 = u64::MAX;

impl Tables {
    pub(super) fn start_handover(&self, stream: StreamId) -> Result<(), Error> {
        let key = stream.0.to_ne_bytes();
        write(&self.done, &key, &NEVER.to_ne_bytes())?;
        write(&self.diverts, &key, &[0; 16])
    }

    /// struct divert.
    fn divert(&self, stream: StreamId) -> Result<(bool, u64), Error> {
        let value = self
            .diverts
            .lookup(&stream.0.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::failed("reading map diverts", error))?
            .unwrap_or_default();
        let word = |at: usize| value.get(at..at + 8).and_then(|word| word.try_into().ok());
        let diverted = word(8).map_or(0, u64::from_ne_bytes);
        Ok((value.get(4) == Some(&1), diverted))
    }

    pub(super) fn road_of(&self, stream: StreamId, carried: &Carried) -> Result<Road, Error> {
        Ok(match carried.road {
            Road::Diverted if self.divert(stream)?.0 => Road::Fast,
            road => road,
        })
    }
}

impl FastPath for Tables {
    fn road(&self, stream: StreamId) -> Result<Road, Error> {
        let state = self.state();
        self.road_of(stream, carried(&state, stream)?)
    }

    fn pass(&self, stream: StreamId) -> Result<(), Error> {
        let mut state = self.state();
        let group = carried(&state, stream)?.group.index;
        if let Some(carried) = state.streams.get_mut(&stream.0) {
            let value = layout::stream(&carried.plan, group, Road::Passing).map_err(Error::Plan)?;
            write(&self.streams, &stream.0.to_ne_bytes(), &value)?;
            carried.road = Road::Passing;
        }
        grace()
    }

    fn diverted(&self, stream: StreamId) -> Result<u64, Error> {
        self.divert(stream).map(|(_, diverted)| diverted)
    }

    fn publish_done(&self, stream: StreamId, datagrams: u64) -> Result<(), Error> {
        write(
            &self.done,
            &stream.0.to_ne_bytes(),
            &datagrams.to_ne_bytes(),
        )
    }

    fn latched(&self, stream: StreamId) -> Option<SocketAddr> {
        let value = self.latches.lookup(&stream.0.to_ne_bytes(), MapFlags::ANY);
        layout::latch_holder(&value.ok()??)
    }

    fn slow_reason(&self, stream: StreamId, subscriber: SubscriberId) -> Option<String> {
        let state = self.state();
        let subscribers = &carried(&state, stream).ok()?.plan.subscribers;
        let subscriber = subscribers.iter().find(|known| known.id == subscriber)?;
        state
            .devices
            .get(&groups::egress(subscriber)?)?
            .slow
            .clone()
    }

    fn last_copy(&self, stream: StreamId) -> Option<String> {
        let state = self.state();
        let carried = carried(&state, stream).ok()?;
        let exit = |subscriber: &Subscriber| state.devices.get(&groups::egress(subscriber)?);
        let (last, exit) = (carried.plan.subscribers.iter())
            .filter_map(|subscriber| Some((subscriber, exit(subscriber)?)))
            .filter(|(_, exit)| exit.slow.is_none() && carried.plan.copy_port.is_none())
            .max_by_key(|(subscriber, _)| groups::egress(subscriber))?;
        let way = exit.way_to(last, carried.is_settled())?;
        Some(format!("{} {way}", last.destination))
    }
}
