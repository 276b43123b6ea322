//! Who relays a stream now, switched by its tables, and which way its copies go.

use std::net::SocketAddr;

use datapath::Error;

use super::super::skel::types;
use super::super::{entries, grace, groups};
use super::{Carried, Tables, carried};
use crate::handover::{FastPath, Road};
use crate::plan::{StreamId, Subscriber, SubscriberId};

/// Nothing is taken over before userspace has first said how far it is.
const NEVER: u64 = u64::MAX;

impl Tables {
    pub(super) fn start_handover(&self, stream: StreamId) -> Result<(), Error> {
        self.maps.done.set(&stream.0, &NEVER)?;
        let divert = types::divert::default();
        Ok(self.maps.diverts.set(&stream.0, &divert)?)
    }

    fn divert(&self, stream: StreamId) -> Result<types::divert, Error> {
        Ok(self.maps.diverts.get(&stream.0)?.unwrap_or_default())
    }

    pub(super) fn road_of(&self, stream: StreamId, carried: &Carried) -> Result<Road, Error> {
        Ok(match carried.road {
            Road::Diverted if self.divert(stream)?.taken_over == 1 => Road::Fast,
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
            let entry =
                entries::stream(&carried.plan, group, Road::Passing).map_err(Error::Plan)?;
            self.maps.streams.set(&stream.0, &entry)?;
            carried.road = Road::Passing;
        }
        grace()
    }

    fn diverted(&self, stream: StreamId) -> Result<u64, Error> {
        self.divert(stream).map(|divert| divert.diverted)
    }

    fn publish_done(&self, stream: StreamId, datagrams: u64) -> Result<(), Error> {
        Ok(self.maps.done.set(&stream.0, &datagrams)?)
    }

    fn latched(&self, stream: StreamId) -> Option<SocketAddr> {
        let latch = self.maps.latches.get(&stream.0);
        entries::latch_holder(&latch.ok()??)
    }

    fn slow_reason(&self, stream: StreamId, subscriber: SubscriberId) -> Option<String> {
        let state = self.state();
        let plan = &carried(&state, stream).ok()?.plan;
        if let Some(policy) = &plan.policy {
            return Some(format!("left to the kernel: {policy}"));
        }
        let subscribers = &plan.subscribers;
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
